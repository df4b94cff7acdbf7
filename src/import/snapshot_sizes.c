/* snapshot_sizes.c - sizes from the end, from a replay, from rounding. */
#include "import/snapshot_sizes.h"

/* live: address -> slot + 1 of those that are there at the end. */
static void
take_sizes_at_end(const SnapshotFile *file, GHashTable *live, gint64 *bytes)
{
  for (guint i = 0; i < file->blocks->len; i++) {
    const SnapshotBlock *block = &g_array_index(file->blocks, SnapshotBlock, i);
    gpointer slot = g_hash_table_lookup(live, GSIZE_TO_POINTER(block->address));
    if (block->state != SNAPSHOT_INACTIVE && slot)
      bytes[GPOINTER_TO_INT(slot) - 1] = block->bytes;
  }
}

void
snapshot_block_sizes(const SnapshotFile *file, const SnapshotStart *start,
                     const AllocationTrace *trace, const TraceReplay *replay, gint64 *bytes)
{
  g_autoptr(GHashTable) live = g_hash_table_new(NULL, NULL);
  for (guint i = 0; i < start->blocks->len; i++)
    bytes[i] = g_array_index(start->blocks, StartBlock, i).bytes;
  for (guint i = 0; i < trace->events->len; i++) {
    const TraceEvent *event = trace_event(trace, i);
    if (event->action != TRACE_ALLOC)
      continue;
    gint64 replayed = replay ? replay->slot_bytes[event->slot] : 0;
    bytes[event->slot] =
        replayed > 0 ? replayed : allocator_round_request(&trace->config, event->bytes);
    if (g_array_index(trace->slots, TraceSlot, event->slot).completed_at == G_MAXINT32)
      g_hash_table_insert(live, GSIZE_TO_POINTER(event->address), GINT_TO_POINTER(event->slot + 1));
  }
  take_sizes_at_end(file, live, bytes);
}

void
snapshot_requested_sizes(const SnapshotStart *start, const AllocationTrace *trace, gint64 *bytes)
{
  for (guint i = 0; i < start->blocks->len; i++)
    bytes[i] = MAX(g_array_index(start->blocks, StartBlock, i).requested_bytes, 1);
  for (guint i = 0; i < trace->events->len; i++)
    if (trace_event(trace, i)->action == TRACE_ALLOC)
      bytes[trace_event(trace, i)->slot] = trace_event(trace, i)->bytes;
}
