/* allocation_trace.c - the trace as a value: made, told apart by format, freed. */
#include "import/allocation_trace.h"
#include "base/units.h"
#include "import/allocation_trace_internal.h"
#include "import/allocation_trace_snapshot.h"
#include "import/pickle_reader.h"

const char *
trace_action_name(TraceAction action)
{
  static const char *const names[TRACE_ACTION_COUNT] = {
      [TRACE_ALLOC] = "alloc",
      [TRACE_FREE_REQUESTED] = "free_requested",
      [TRACE_FREE_COMPLETED] = "free_completed",
      [TRACE_SEGMENT_ALLOC] = "segment_alloc",
      [TRACE_SEGMENT_FREE] = "segment_free",
      [TRACE_SEGMENT_MAP] = "segment_map",
      [TRACE_SEGMENT_UNMAP] = "segment_unmap",
      [TRACE_OUT_OF_MEMORY] = "oom",
      [TRACE_SNAPSHOT] = "snapshot",
      [TRACE_EMPTY_CACHE] = "empty_cache",
  };
  return names[action];
}

gint32
trace_builder_stream(TraceBuilder *builder, guint64 name)
{
  gpointer number = g_hash_table_lookup(builder->stream_numbers, &name);
  if (number)
    return GPOINTER_TO_INT(number) - 1;
  GArray *streams = builder->trace->streams;
  if (streams->len == TRACE_MAX_STREAMS)
    return -1;
  g_array_append_val(streams, name);
  g_hash_table_insert(builder->stream_numbers, g_memdup2(&name, sizeof name),
                      GINT_TO_POINTER((int) streams->len));
  return (gint32) streams->len - 1;
}

gint32
trace_builder_phase(TraceBuilder *builder, const char *name)
{
  gpointer number = g_hash_table_lookup(builder->phase_numbers, name);
  if (number)
    return GPOINTER_TO_INT(number) - 1;
  GPtrArray *phases = builder->trace->phases;
  char *copy = g_strdup(name);
  g_ptr_array_add(phases, copy);
  g_hash_table_insert(builder->phase_numbers, copy, GINT_TO_POINTER((int) phases->len));
  return (gint32) phases->len - 1;
}

static AllocationTrace *
trace_new(const char *name)
{
  AllocationTrace *trace = g_new0(AllocationTrace, 1);
  trace->name = g_strdup(name);
  trace->config = allocator_config_default();
  trace->segments = g_array_new(FALSE, FALSE, sizeof(TraceSegment));
  trace->blocks = g_array_new(FALSE, FALSE, sizeof(TraceBlock));
  trace->events = g_array_new(FALSE, FALSE, sizeof(TraceEvent));
  trace->slots = g_array_new(FALSE, FALSE, sizeof(TraceSlot));
  trace->streams = g_array_new(FALSE, FALSE, sizeof(guint64));
  trace->phases = g_ptr_array_new_with_free_func(g_free);
  trace->frames = g_ptr_array_new_with_free_func(g_free);
  trace->recorded_peak_allocated = trace->recorded_peak_reserved = -1;
  return trace;
}

void
allocation_trace_free(AllocationTrace *trace)
{
  if (!trace)
    return;
  g_array_free(trace->segments, TRUE);
  g_array_free(trace->blocks, TRUE);
  g_array_free(trace->events, TRUE);
  g_array_free(trace->slots, TRUE);
  g_array_free(trace->streams, TRUE);
  g_ptr_array_free(trace->phases, TRUE);
  g_ptr_array_free(trace->frames, TRUE);
  g_free(trace->name);
  g_free(trace);
}

/* JSON begins with a brace, behind white space. */
static gboolean
is_json(ByteSource *source)
{
  int byte = byte_source_peek(source);
  while (byte == ' ' || byte == '\t' || byte == '\r') {
    byte_source_next(source);
    byte = byte_source_peek(source);
  }
  return byte == '{';
}

AllocationTrace *
allocation_trace_build(const char *name, gboolean (*fill)(TraceBuilder *, gpointer, GError **),
                       gpointer data, GError **error)
{
  g_autoptr(AllocationTrace) trace = trace_new(name);
  g_autoptr(GHashTable) streams = g_hash_table_new_full(g_int64_hash, g_int64_equal, g_free, NULL);
  g_autoptr(GHashTable) phases = g_hash_table_new(g_str_hash, g_str_equal);
  TraceBuilder builder = {trace, streams, phases};
  if (!fill(&builder, data, error) || !allocation_trace_link(trace, error))
    return NULL;
  return g_steal_pointer(&trace);
}

static gboolean
fill_from_text(TraceBuilder *builder, gpointer data, GError **error)
{
  ByteSource *source = data;
  return is_json(source) ? allocation_trace_read_json(builder, source, error)
                         : allocation_trace_read_list(builder, source, error);
}

static AllocationTrace *
read_snapshot(ByteSource *source, GError **error)
{
  g_autoptr(SnapshotFile) file = snapshot_file_read(source, -1, error);
  SnapshotStart start = {0};
  if (!file)
    return NULL;
  AllocationTrace *trace = snapshot_start_find(&start, file, error)
                               ? allocation_trace_of_snapshot(file, &start, error)
                               : NULL;
  snapshot_start_clear(&start);
  return trace;
}

AllocationTrace *
allocation_trace_read(ByteSource *source, GError **error)
{
  if (byte_source_peek(source) == PICKLE_FIRST_BYTE)
    return read_snapshot(source, error);
  return allocation_trace_build(source->name, fill_from_text, source, error);
}

AllocationTrace *
allocation_trace_load(const char *path, GError **error)
{
  g_autoptr(ByteSource) source = byte_source_open(path, error);
  return source ? allocation_trace_read(source, error) : NULL;
}
