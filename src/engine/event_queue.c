/* event_queue.c - the heap of pending events and the lane of those that are due now. */
#include "engine/event_queue.h"

#include <string.h>

/* Four children share a cache line, and the heap has half the levels of a binary one. */
#define ARITY 4
#define CACHE_LINE 64
#define FIRST_CAPACITY 256
#define ID_STEP ((guint64) 1 << EVENT_TARGET_BITS)

G_STATIC_ASSERT(ARITY * sizeof(Event) == CACHE_LINE);

/* ---- order ---- */

/* (time, id) as one number; times are never negative. */
static inline unsigned __int128
event_key(const Event *event)
{
  return (unsigned __int128) (guint64) event->time << 64 | event->id;
}

/* 1 when a comes before b, else 0.  A number and no condition: outcomes are as good as random, so
 * the callers compute with it instead of branching. */
static inline gsize
event_before(const Event *a, const Event *b)
{
  return event_key(a) < event_key(b);
}

/* ---- heap ---- */

/* Stands after the last event, so that each node with a child has four. */
static const Event never = {SIM_TIME_MAX, G_MAXUINT64};

static void
heap_reserve(EventQueue *queue, gsize capacity)
{
  /* heap[0] is the last event of a cache line, so that heap[1] opens the next. */
  gsize events = capacity + ARITY - 1;
  gpointer block = g_malloc(events * sizeof(Event) + 2 * CACHE_LINE);
  gsize line = ((gsize) block + CACHE_LINE - 1) / CACHE_LINE * CACHE_LINE;
  Event *heap = (Event *) (line + CACHE_LINE) - 1;

  for (gsize i = queue->heap_count; i < events; i++)
    heap[i] = never;
  if (queue->heap_count > 0)
    memcpy(heap, queue->heap, queue->heap_count * sizeof(Event));
  g_free(queue->heap_block);
  queue->heap_block = block;
  queue->heap = heap;
  queue->heap_capacity = capacity;
}

/* Puts event into the hole or, to keep the order, above it. */
static inline void
sift_up(Event *heap, gsize hole, Event event)
{
  while (hole > 0) {
    gsize parent = (hole - 1) / ARITY;

    if (!event_before(&event, &heap[parent]))
      break;
    heap[hole] = heap[parent];
    hole = parent;
  }
  heap[hole] = event;
}

static inline gsize
earliest_of_four(const Event *heap, gsize first)
{
  const Event *child = heap + first;
  gsize left = event_before(&child[1], &child[0]);
  gsize right = 2 + event_before(&child[3], &child[2]);

  return first + (left ^ ((left ^ right) & -event_before(&child[right], &child[left])));
}

/* Fills the hole at the root: the earliest children move up all the way to a leaf, then event,
 * which mostly belongs near the bottom, goes in from below. */
static inline void
refill_root(Event *heap, gsize count, Event event)
{
  gsize hole = 0;

  for (gsize first = 1; first < count; first = ARITY * hole + 1) {
    gsize child = earliest_of_four(heap, first);

    heap[hole] = heap[child];
    hole = child;
  }
  sift_up(heap, hole, event);
}

static inline void
heap_push(EventQueue *queue, Event event)
{
  if (queue->root_taken) {
    queue->root_taken = FALSE;
    refill_root(queue->heap, queue->heap_count, event);
    return;
  }
  if (G_UNLIKELY(queue->heap_count == queue->heap_capacity))
    heap_reserve(queue, queue->heap_capacity * 2);
  sift_up(queue->heap, queue->heap_count++, event);
}

/* The root is given out lazily: most events cause one other, which then takes its place in a single
 * pass.  This does the work when none did. */
static inline void
heap_settle(EventQueue *queue)
{
  Event last;

  if (!queue->root_taken)
    return;
  queue->root_taken = FALSE;
  last = queue->heap[--queue->heap_count];
  queue->heap[queue->heap_count] = never;
  if (queue->heap_count > 0)
    refill_root(queue->heap, queue->heap_count, last);
}

/* Time of the earliest event in the heap, SIM_TIME_MAX when it is empty. */
static inline SimTime
heap_time(const EventQueue *queue)
{
  return queue->heap[queue->root_taken ? earliest_of_four(queue->heap, 1) : 0].time;
}

/* ---- lane ---- */

static void
lane_grow(EventQueue *queue)
{
  gsize old = queue->lane_capacity;
  Event *lane = g_new(Event, old * 2);

  for (gsize i = 0; i < queue->lane_count; i++)
    lane[i] = queue->lane[(queue->lane_first + i) & (old - 1)];
  g_free(queue->lane);
  queue->lane = lane;
  queue->lane_first = 0;
  queue->lane_capacity = old * 2;
}

static inline void
lane_push(EventQueue *queue, Event event)
{
  if (G_UNLIKELY(queue->lane_count == queue->lane_capacity))
    lane_grow(queue);
  queue->lane[(queue->lane_first + queue->lane_count) & (queue->lane_capacity - 1)] = event;
  queue->lane_count++;
}

static inline Event
lane_pop(EventQueue *queue)
{
  Event event = queue->lane[queue->lane_first];

  queue->lane_first = (queue->lane_first + 1) & (queue->lane_capacity - 1);
  queue->lane_count--;
  return event;
}

/* ---- queue ---- */

void
event_queue_init(EventQueue *queue)
{
  *queue = (EventQueue){
      .lane = g_new(Event, FIRST_CAPACITY),
      .lane_capacity = FIRST_CAPACITY,
      .next_id = ID_STEP,
  };
  heap_reserve(queue, FIRST_CAPACITY);
}

void
event_queue_clear(EventQueue *queue)
{
  g_free(queue->heap_block);
  g_free(queue->lane);
  *queue = (EventQueue){0};
}

guint64
event_queue_push(EventQueue *queue, SimTime time, guint target)
{
  Event event = {.time = time, .id = queue->next_id | target};

  g_assert(time >= queue->now && target < EVENT_TARGETS);
  queue->next_id += ID_STEP;
  g_assert(queue->next_id != 0);
  if (time == queue->now)
    lane_push(queue, event);
  else
    heap_push(queue, event);
  return event.id;
}

gboolean
event_queue_pop(EventQueue *queue, Event *event)
{
  /* What the heap holds for this very time was inserted while it lay ahead: before all of the lane.
   */
  if (queue->lane_count > 0 && heap_time(queue) > queue->now) {
    *event = lane_pop(queue);
    return TRUE;
  }
  heap_settle(queue);
  if (queue->heap_count == 0)
    return FALSE;
  *event = queue->heap[0];
  queue->root_taken = TRUE;
  queue->now = event->time;
  return TRUE;
}

SimTime
event_queue_next_time(const EventQueue *queue)
{
  return queue->lane_count > 0 ? queue->now : heap_time(queue);
}

void
event_queue_advance(EventQueue *queue, SimTime time)
{
  g_assert(time >= queue->now && time <= event_queue_next_time(queue));
  queue->now = time;
}
