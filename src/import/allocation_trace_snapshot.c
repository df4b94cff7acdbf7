/* allocation_trace_snapshot.c - a trace made of a snapshot's history and of how it began. */
#include "import/allocation_trace_snapshot.h"

#include "import/allocation_trace_internal.h"

/* The driver maps memory in pages of that size. */
#define GRANULE (2 * MIB)
/* Not within one reservation. */
#define WIDE_HOLE ((guint64) 4 << 30)

typedef struct {
  const SnapshotFile *file;
  const SnapshotStart *start;
  gint32 *frames; /* of each label: index into the trace's frames, or -1 */
} Source;

/* ---- the beginning ---- */

static void
add_block(AllocationTrace *trace, gint64 bytes, gint64 requested, gint32 slot, gboolean pending)
{
  TraceBlock block = {bytes, requested, slot, pending};
  if (bytes > 0)
    g_array_append_val(trace->blocks, block);
}

/* The blocks from *next on that lie in the segment, and what is free between them. */
static void
add_blocks(AllocationTrace *trace, const SnapshotStart *start, const MappedSegment *segment,
           guint *next)
{
  guint64 at = segment->address, end = segment->address + (guint64) segment->bytes;
  for (; *next < start->blocks->len; ++*next) {
    const StartBlock *block = &g_array_index(start->blocks, StartBlock, *next);
    if (block->address >= end)
      break;
    TraceSlot slot = {block->pending ? -1 : G_MAXINT32, G_MAXINT32, -1};
    add_block(trace, (gint64) (block->address - at), 0, -1, FALSE);
    add_block(trace, block->bytes, block->requested_bytes, (gint32) *next, block->pending);
    g_array_append_val(trace->slots, slot);
    at = block->address + (guint64) block->bytes;
  }
  add_block(trace, (gint64) (end - at), 0, -1, FALSE);
}

static gboolean
add_segments(TraceBuilder *builder, const SnapshotStart *start)
{
  AllocationTrace *trace = builder->trace;
  guint next = 0;
  for (guint i = 0; i < start->map.segments->len; i++) {
    const MappedSegment *mapped = &g_array_index(start->map.segments, MappedSegment, i);
    TraceSegment segment = {.address = mapped->address,
                            .stream = trace_builder_stream(builder, (guint64) mapped->stream),
                            .small_pool = mapped->small_pool,
                            .first_block = trace->blocks->len};
    if (segment.stream < 0)
      return FALSE;
    add_blocks(trace, start, mapped, &next);
    segment.n_blocks = trace->blocks->len - segment.first_block;
    g_array_append_val(trace->segments, segment);
  }
  return TRUE;
}

/* ---- the history ---- */

static gint32
frame_of(const Source *source, AllocationTrace *trace, gint32 index)
{
  const SnapshotLabel *label;
  if (index < 0)
    return -1;
  if (source->frames[index] >= 0)
    return source->frames[index];
  label = &g_array_index(source->file->labels, SnapshotLabel, index);
  char *text = label->module && label->what
                   ? g_strdup_printf("%s of %s", label->what, label->module)
                   : g_strdup(label->what ? label->what : "");
  source->frames[index] = (gint32) trace->frames->len;
  g_ptr_array_add(trace->frames, text);
  return source->frames[index];
}

static gboolean
add_event(TraceBuilder *builder, const Source *source, guint i)
{
  const SnapshotEntry *entry = &g_array_index(source->file->entries, SnapshotEntry, i);
  TraceEvent event = {.address = entry->address,
                      .bytes = entry->bytes,
                      .stream = trace_builder_stream(builder, entry->stream),
                      .slot = -1,
                      .phase = -1,
                      .frame = frame_of(source, builder->trace, entry->label),
                      .action = entry->action};
  if (entry->label >= 0) {
    const SnapshotLabel *label = &g_array_index(source->file->labels, SnapshotLabel, entry->label);
    if (label->phase)
      event.phase = trace_builder_phase(builder, label->phase);
  }
  g_array_append_val(builder->trace->events, event);
  return event.stream >= 0;
}

/* ---- expandable segments: how large their reservations are ---- */

/* Addresses that were mapped at some time. */
typedef struct {
  guint64 begin, end;
} MappedRange;

static gint
compare_ranges(gconstpointer a, gconstpointer b)
{
  guint64 x = ((const MappedRange *) a)->begin, y = ((const MappedRange *) b)->begin;
  return (x > y) - (x < y);
}

static GArray *
list_mapped(const Source *source)
{
  const GArray *segments = source->start->map.segments, *entries = source->file->entries;
  GArray *list = g_array_new(FALSE, FALSE, sizeof(MappedRange));
  for (guint i = 0; i < segments->len; i++) {
    const MappedSegment *segment = &g_array_index(segments, MappedSegment, i);
    MappedRange range = {segment->address, segment->address + (guint64) segment->bytes};
    g_array_append_val(list, range);
  }
  for (guint i = 0; i < entries->len; i++) {
    const SnapshotEntry *entry = &g_array_index(entries, SnapshotEntry, i);
    MappedRange range = {entry->address, entry->address + (guint64) entry->bytes};
    if (entry->action == TRACE_SEGMENT_MAP)
      g_array_append_val(list, range);
  }
  g_array_sort(list, compare_ranges);
  return list;
}

/* A snapshot does not say how large the device is, but reservations are 1 1/8 of it and lie side by
 * side: no two begin closer to each other.  Each is mapped from its beginning on, without wide
 * holes. */
static gint64
guess_device_bytes(const Source *source, gint64 most)
{
  g_autoptr(GArray) mapped = list_mapped(source);
  guint64 closest = (guint64) (most + most / 8), begin = 0, end = 0;
  for (guint i = 0; i < mapped->len; i++) {
    const MappedRange *range = &g_array_index(mapped, MappedRange, i);
    if (i > 0 && range->begin >= end + WIDE_HOLE)
      closest = MIN(closest, range->begin - begin);
    if (i == 0 || range->begin >= end + WIDE_HOLE)
      begin = range->begin;
    end = MAX(end, range->end);
  }
  return MAX((gint64) (closest / 9 * 8) / GRANULE, 1) * GRANULE;
}

static void
set_config(AllocationTrace *trace, const Source *source)
{
  trace->config = source->file->config;
  if (trace->config.expandable_segments &&
      trace->config.device_total_bytes == allocator_config_default().device_total_bytes)
    trace->config.device_total_bytes = guess_device_bytes(source, trace->config.device_total_bytes);
  trace->reservation_bytes =
      trace->config.device_total_bytes + trace->config.device_total_bytes / 8;
}

static gboolean
fill(TraceBuilder *builder, gpointer data, GError **error)
{
  const Source *source = data;
  builder->trace->has_segment_events = TRUE;
  gboolean ok = add_segments(builder, source->start);
  for (guint i = 0; ok && i < source->file->entries->len; i++)
    ok = add_event(builder, source, i);
  set_config(builder->trace, source);
  if (!ok)
    g_set_error(error, HIGHWATER_ERROR, HIGHWATER_ERROR_INPUT, "%s: more than %d different streams",
                source->file->name, TRACE_MAX_STREAMS);
  return ok;
}

AllocationTrace *
allocation_trace_of_snapshot(const SnapshotFile *file, const SnapshotStart *start, GError **error)
{
  g_autofree gint32 *frames = g_new(gint32, file->labels->len + 1);
  for (guint i = 0; i < file->labels->len; i++)
    frames[i] = -1;
  Source source = {file, start, frames};
  return allocation_trace_build(file->name, fill, &source, error);
}
