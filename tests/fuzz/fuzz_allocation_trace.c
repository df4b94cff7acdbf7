/* fuzz_allocation_trace.c - any bytes as an allocation trace, JSON or list; what is accepted is
 * replayed with every invariant of the allocator checked at the end. */
#include "base/units.h"
#include "fuzz.h"
#include "import/trace_replay.h"

/* A replay ends, and its figures agree with each other. */
static void
replay(const AllocationTrace *trace, gboolean follow_addresses)
{
  const ReplayOptions options = {.follow_addresses = follow_addresses};
  g_autoptr(GError) error = NULL;
  g_autoptr(TraceReplay) result = trace_replay_run(trace, &options, &error);
  g_assert((result == NULL) == (error != NULL));
  if (!result)
    return;
  g_assert(result->stats.reserved_bytes.peak >= result->stats.allocated_bytes.peak);
  gint64 reserved = 0;
  for (guint i = 0; i < result->blocks->len; i++)
    reserved += g_array_index(result->blocks, BlockInfo, i).bytes;
  g_assert(reserved == result->stats.reserved_bytes.current);
}

int
LLVMFuzzerTestOneInput(const guint8 *data, gsize size)
{
  g_setenv("HIGHWATER_CHECK", "1", TRUE);
  g_autoptr(ByteSource) source = byte_source_from_memory("input", data, size);
  g_autoptr(GError) error = NULL;
  g_autoptr(AllocationTrace) trace = allocation_trace_read(source, &error);
  g_assert((trace == NULL) == (error != NULL));
  if (!trace)
    return 0;
  replay(trace, TRUE);
  replay(trace, FALSE);
  trace->config.memory_limit = MIN(trace->config.memory_limit, 64 * MIB);
  replay(trace, TRUE);
  return 0;
}
