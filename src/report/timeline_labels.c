/* timeline_labels.c - where the name of each category has most room in a stacked timeline: the time
 * is cut into slots, and a label is as wide as some of them. */
#include "report/timeline_labels.h"

enum { SLOTS = 96, SLOTS_OF_LABEL = 18 };

/* Bounds of a category's area that hold all through a slot. */
typedef struct {
  gint64 lowest[CATEGORY_COUNT], highest[CATEGORY_COUNT];
} Slot;

static void
add_state(Slot *slot, const gint64 *categories)
{
  gint64 level = 0;
  for (int c = 0; c < CATEGORY_COUNT; c++) {
    slot->lowest[c] = MAX(slot->lowest[c], level);
    level += categories[c];
    slot->highest[c] = MIN(slot->highest[c], level);
  }
}

static int
slot_at(SimTime time, SimTime from, SimTime to)
{
  return (int) MIN(SLOTS - 1, (double) (time - from) / (double) (to - from) * SLOTS);
}

static void
fill_slots(const Recording *recording, SimTime from, SimTime to, Slot slots[SLOTS])
{
  for (int s = 0; s < SLOTS; s++)
    for (int c = 0; c < CATEGORY_COUNT; c++)
      slots[s].highest[c] = G_MAXINT64;
  gint64 categories[CATEGORY_COUNT] = {0};
  int at = 0;
  for (guint i = 0; i < recording->memory->len; i++) {
    const MemoryEvent *event = &g_array_index(recording->memory, MemoryEvent, i);
    if (event->time > to)
      break;
    if (i == 0)
      categories[CATEGORY_OTHER] = event->allocated_after - event->block_bytes;
    if (event->time >= from) {
      /* What held until now did so in all slots up to this one. */
      for (int next = slot_at(event->time, from, to); at <= next; at++)
        add_state(&slots[at], categories);
      at--;
    }
    categories[event->category] += event->block_bytes;
    if (event->time >= from)
      add_state(&slots[at], categories);
  }
  for (; at < SLOTS; at++)
    add_state(&slots[at], categories);
}

void
timeline_labels(const Recording *recording, SimTime from, SimTime to,
                TimelineLabel labels[CATEGORY_COUNT])
{
  for (int c = 0; c < CATEGORY_COUNT; c++)
    labels[c] = (TimelineLabel){0};
  if (to <= from)
    return;
  Slot slots[SLOTS] = {0};
  fill_slots(recording, from, to, slots);
  for (int first = 0; first + SLOTS_OF_LABEL <= SLOTS; first++)
    for (int c = 0; c < CATEGORY_COUNT; c++) {
      gint64 low = 0, high = G_MAXINT64;
      for (int s = first; s < first + SLOTS_OF_LABEL; s++) {
        low = MAX(low, slots[s].lowest[c]);
        high = MIN(high, slots[s].highest[c]);
      }
      if (high - low > labels[c].highest - labels[c].lowest)
        labels[c] = (TimelineLabel){from + (to - from) * (2 * first + SLOTS_OF_LABEL) / (2 * SLOTS),
                                    low, high};
    }
}
