/* allocator_stats.c - counters with their peaks, as torch.cuda.memory_stats has them. */
#include "memory/allocator_internal.h"

void
stats_reserved(CachingAllocator *allocator, const Block *block, SegmentAction action,
               AddressRange range)
{
  AllocatorStats *stats = &allocator->stats;
  gboolean comes = action == SEGMENT_ALLOC || action == SEGMENT_MAP;
  gint64 bytes = (gint64) (range.end - range.begin);
  gint64 delta = comes ? bytes : -bytes;
  stat_change(&stats->reserved_bytes, delta);
  stat_change(block->pool == POOL_SMALL ? &stats->reserved_small : &stats->reserved_large, delta);
  if (action == SEGMENT_ALLOC || action == SEGMENT_FREE)
    stat_change(&stats->segments, comes ? 1 : -1);
  if (comes)
    stats->num_device_alloc++;
  else
    stats->num_device_free++;
  /* The driver gives whole granules. */
  allocator->device_bytes +=
      comes ? round_up(bytes, ADDRESS_GRANULE) : -round_up(bytes, ADDRESS_GRANULE);
  if (allocator->host.segment)
    allocator->host.segment(allocator->host.user, action, block->stream, range.begin, bytes);
}

const AllocatorStats *
caching_allocator_stats(const CachingAllocator *allocator)
{
  return &allocator->stats;
}

void
caching_allocator_reset_peak(CachingAllocator *allocator)
{
  AllocatorStats *stats = &allocator->stats;
  AllocatorStat *const all[] = {
      &stats->allocated_bytes, &stats->requested_bytes,      &stats->active_bytes,
      &stats->reserved_bytes,  &stats->inactive_split_bytes, &stats->segments,
      &stats->allocations,     &stats->reserved_small,       &stats->reserved_large,
  };
  for (guint i = 0; i < G_N_ELEMENTS(all); i++)
    all[i]->peak = all[i]->current;
}
