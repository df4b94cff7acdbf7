/* memory_snapshot_segments.c - the segments that there are when the history ends, and their blocks.
 */
#include "memory/segment_map.h"
#include "report/memory_snapshot_parts.h"

/* A block that cannot be handed out. */
typedef struct {
  const MemoryEvent *birth;
  gboolean waits; /* freed, but not complete */
} ActiveBlock;

/* Pages are mapped for the allocation that comes next. */
static gboolean
is_small(const Snapshot *s, const SegmentEvent *event)
{
  const GArray *memory = s->recording->memory;
  if (event->action == SEGMENT_ALLOC)
    return event->bytes == ALLOCATOR_SMALL_SEGMENT;
  if ((guint) event->memory_events == memory->len)
    return s->recording->out_of_memory.requested_bytes <= ALLOCATOR_SMALL_REQUEST;
  return g_array_index(memory, MemoryEvent, event->memory_events).block_bytes <=
         ALLOCATOR_SMALL_REQUEST;
}

static void
follow_segments(const Snapshot *s, SegmentMap *map)
{
  for (guint i = 0; i < s->recording->segments->len; i++) {
    const SegmentEvent *event = &g_array_index(s->recording->segments, SegmentEvent, i);
    MappedSegment segment = {.address = event->address,
                             .bytes = event->bytes,
                             .stream = event->stream,
                             .origin = (gint32) i,
                             .small_pool = (guint8) is_small(s, event),
                             .expandable = event->action == SEGMENT_MAP};
    if (event->action == SEGMENT_ALLOC || event->action == SEGMENT_MAP)
      segment_map_add(map, &segment);
    else
      segment_map_remove(map, event->address, event->bytes, NULL);
  }
}

static gint
compare_addresses(gconstpointer a, gconstpointer b)
{
  guint64 x = ((const ActiveBlock *) a)->birth->address,
          y = ((const ActiveBlock *) b)->birth->address;
  return (x > y) - (x < y);
}

/* ActiveBlock, by address. */
static GArray *
list_active(const Snapshot *s)
{
  const GArray *memory = s->recording->memory, *completions = s->recording->completions;
  GArray *blocks = g_array_new(FALSE, FALSE, sizeof(ActiveBlock));
  g_autofree guint8 *freed = g_new0(guint8, memory->len + 1);
  for (guint i = 0; i < memory->len; i++) {
    const MemoryEvent *event = &g_array_index(memory, MemoryEvent, i);
    freed[event->allocation] = event->requested_bytes < 0;
  }
  for (guint i = 0; i < memory->len; i++) {
    const MemoryEvent *event = &g_array_index(memory, MemoryEvent, i);
    if (event->requested_bytes > 0 && !freed[event->allocation])
      g_array_append_val(blocks, ((ActiveBlock){event, FALSE}));
  }
  for (guint i = 0; i < completions->len; i++) {
    const CompletionEvent *event = &g_array_index(completions, CompletionEvent, i);
    if (event->time < 0)
      g_array_append_val(blocks, ((ActiveBlock){snapshot_birth(s, event->allocation), TRUE}));
  }
  g_array_sort(blocks, compare_addresses);
  return blocks;
}

static void
add_number(Snapshot *s, const char *key, gint64 number)
{
  snapshot_text(s, key);
  pickle_write_int(&s->out, number);
}

static void
add_text(Snapshot *s, const char *key, const char *text)
{
  snapshot_text(s, key);
  snapshot_text(s, text);
}

static void
add_inactive(Snapshot *s, guint *number, guint64 address, gint64 bytes)
{
  if (bytes == 0)
    return;
  pickle_next_item(&s->out, (*number)++);
  pickle_begin_dict(&s->out);
  add_number(s, "address", (gint64) address);
  add_number(s, "size", bytes);
  add_number(s, "requested_size", 0);
  add_text(s, "state", "inactive");
  snapshot_text(s, "frames");
  pickle_begin_list(&s->out);
  pickle_end_list(&s->out);
  pickle_end_dict(&s->out);
}

static void
add_active(Snapshot *s, guint number, const ActiveBlock *block)
{
  const MemoryEvent *birth = block->birth;
  pickle_next_item(&s->out, number);
  pickle_begin_dict(&s->out);
  add_number(s, "address", (gint64) birth->address);
  add_number(s, "size", birth->block_bytes);
  add_number(s, "requested_size", birth->requested_bytes);
  add_text(s, "state", block->waits ? "active_pending_free" : "active_allocated");
  snapshot_text(s, "frames");
  pickle_repeat(&s->out, s->birth_frames[birth->allocation]);
  pickle_end_dict(&s->out);
}

/* The blocks of a segment: those from *first on that lie in it, and what is free between them. */
static void
add_blocks(Snapshot *s, const MappedSegment *segment, const ActiveBlock *blocks, guint n)
{
  guint64 at = segment->address;
  guint number = 0;
  snapshot_text(s, "blocks");
  pickle_begin_list(&s->out);
  for (guint i = 0; i < n; i++) {
    add_inactive(s, &number, at, (gint64) (blocks[i].birth->address - at));
    add_active(s, number++, &blocks[i]);
    at = blocks[i].birth->address + (guint64) blocks[i].birth->block_bytes;
  }
  add_inactive(s, &number, at, segment->bytes - (gint64) (at - segment->address));
  pickle_end_list(&s->out);
}

typedef struct {
  gint64 allocated, active, requested;
} SegmentSums;

static SegmentSums
sum_blocks(const ActiveBlock *blocks, guint n)
{
  SegmentSums sums = {0};
  for (guint i = 0; i < n; i++) {
    sums.active += blocks[i].birth->block_bytes;
    sums.allocated += blocks[i].waits ? 0 : blocks[i].birth->block_bytes;
    sums.requested += blocks[i].birth->requested_bytes;
  }
  return sums;
}

static void
add_segment(Snapshot *s, const MappedSegment *segment, const ActiveBlock *blocks, guint n)
{
  SegmentSums sums = sum_blocks(blocks, n);
  pickle_begin_dict(&s->out);
  add_number(s, "device", 0);
  add_number(s, "address", (gint64) segment->address);
  add_number(s, "total_size", segment->bytes);
  add_number(s, "allocated_size", sums.allocated);
  add_number(s, "active_size", sums.active);
  add_number(s, "requested_size", sums.requested);
  add_number(s, "stream", segment->stream);
  add_text(s, "segment_type", segment->small_pool ? "small" : "large");
  snapshot_text(s, "segment_pool_id");
  pickle_write_int(&s->out, 0);
  pickle_write_int(&s->out, 0);
  pickle_make_pair(&s->out);
  snapshot_text(s, "is_expandable");
  pickle_write_bool(&s->out, segment->expandable);
  snapshot_text(s, "frames");
  pickle_repeat(&s->out, s->segment_frames[segment->origin]);
  add_blocks(s, segment, blocks, n);
  pickle_end_dict(&s->out);
}

void
snapshot_add_segments(Snapshot *s)
{
  SegmentMap map;
  segment_map_init(&map);
  follow_segments(s, &map);
  g_autoptr(GArray) active = list_active(s);
  const ActiveBlock *blocks = (const ActiveBlock *) (gpointer) active->data;
  guint first = 0;
  pickle_begin_list(&s->out);
  for (guint i = 0; i < map.segments->len; i++) {
    const MappedSegment *segment = &g_array_index(map.segments, MappedSegment, i);
    guint64 end = segment->address + (guint64) segment->bytes;
    guint n = 0;
    while (first + n < active->len && blocks[first + n].birth->address < end)
      n++;
    pickle_next_item(&s->out, i);
    add_segment(s, segment, blocks + first, n);
    first += n;
  }
  pickle_end_list(&s->out);
  segment_map_clear(&map);
}
