/* caching_allocator.c - the allocator's life, malloc and free.
 *
 * c10/cuda/CUDACachingAllocator.cpp: malloc, alloc_found_block, free, free_block. */
#include "memory/caching_allocator.h"
#include "memory/allocator_internal.h"

/* Below 2^53, so that viewers may hold addresses in doubles. */
#define SEGMENTS_END ((guint64) 1 << 52)
#define RESERVATIONS_END ((guint64) 1 << 53)

CachingAllocator *
caching_allocator_new(const AllocatorConfig *config, const AllocatorHost *host)
{
  g_assert(config->large_segment_size > 0 && config->device_total_bytes > 0);
  CachingAllocator *allocator = g_new0(CachingAllocator, 1);
  allocator->config = *config;
  if (host)
    allocator->host = *host;
  allocator->unused_block = BLOCK_NONE;
  allocator->uses = g_array_new(FALSE, FALSE, sizeof(StreamUse));
  allocator->unused_use = -1;
  allocator->reservations = g_array_new(FALSE, FALSE, sizeof(Reservation));
  const guint64 granule = (guint64) ADDRESS_GRANULE, base = config->address_base;
  gboolean room_below = base > granule;
  address_space_init(&allocator->segments, base, SEGMENTS_END);
  address_space_init(&allocator->reservable, room_below ? granule : SEGMENTS_END,
                     room_below ? base : RESERVATIONS_END);
  allocator->check_always = g_strcmp0(g_getenv("HIGHWATER_CHECK"), "1") == 0;
  return allocator;
}

void
caching_allocator_free(CachingAllocator *allocator)
{
  if (!allocator)
    return;
  for (int i = 0; i < allocator->n_streams; i++) {
    StreamPools *stream = allocator->streams[i];
    for (int pool = 0; pool < POOL_COUNT; pool++) {
      free_set_clear(&stream->free[pool]);
      free_set_clear(&stream->unmapped[pool]);
    }
    g_free(stream->pending.items);
    g_free(stream);
  }
  g_free(allocator->streams);
  g_free(allocator->blocks);
  g_array_free(allocator->uses, TRUE);
  g_array_free(allocator->reservations, TRUE);
  address_space_clear(&allocator->segments);
  address_space_clear(&allocator->reservable);
  g_free(allocator);
}

/* inactive_split_bytes when a block of the pool is handed out, whole or its low part only. */
static void
count_inactive_split(CachingAllocator *allocator, const Block *found, const Request *request,
                     gboolean split)
{
  AllocatorStat *stat = &allocator->stats.inactive_split_bytes;
  if (found->reservation >= 0)
    return;
  if (block_is_split(found))
    stat_change(stat, -(split ? request->bytes : found->bytes));
  else if (split)
    stat_change(stat, found->bytes - request->bytes);
}

static BlockHandle
hand_out(CachingAllocator *allocator, BlockHandle block, const Request *request)
{
  const Block *found = block_at(allocator, block);
  gboolean split = allocator_should_split(&allocator->config, found, request->bytes);
  count_inactive_split(allocator, found, request, split);
  if (split)
    block = block_split(allocator, block, request->bytes);
  Block *entry = block_at(allocator, block);
  entry->allocated = TRUE;
  entry->requested_bytes = request->requested_bytes;
  AllocatorStats *stats = &allocator->stats;
  stat_change(&stats->allocations, 1);
  stat_change(&stats->allocated_bytes, entry->bytes);
  stat_change(&stats->active_bytes, entry->bytes);
  stat_change(&stats->requested_bytes, entry->requested_bytes);
  return block;
}

/* What is tried in turn when no free block fits: a release, then a new segment. */
static const struct {
  gboolean (*release)(CachingAllocator *allocator, const Request *request);
  gboolean is_retry; /* counts in num_alloc_retries */
} attempts[] = {
    {NULL, FALSE},
    {release_available_cached_blocks, FALSE},
    {release_cached_blocks, TRUE},
};

static BlockHandle
acquire(CachingAllocator *allocator, const Request *request)
{
  garbage_collect_cached_blocks(allocator);
  BlockHandle block = BLOCK_NONE;
  for (guint i = 0; block == BLOCK_NONE && i < G_N_ELEMENTS(attempts); i++) {
    if (attempts[i].release && !attempts[i].release(allocator, request))
      continue;
    allocator->stats.num_alloc_retries += attempts[i].is_retry;
    block = segment_acquire(allocator, request);
  }
  return block;
}

static void
describe_failure(const CachingAllocator *allocator, const Request *request,
                 AllocatorFailure *failure)
{
  *failure = (AllocatorFailure){
      .requested_bytes = request->requested_bytes,
      .segment_bytes = request->segment_bytes,
      .limit_bytes = MIN(allocator->config.memory_limit, allocator->config.process_limit),
      .allocated_bytes = allocator->stats.allocated_bytes.current,
      .reserved_bytes = allocator->stats.reserved_bytes.current,
  };
}

BlockHandle
caching_allocator_malloc(CachingAllocator *allocator, gint64 bytes, int stream,
                         AllocatorFailure *failure)
{
  g_assert(bytes > 0);
  block_pool_stream(allocator, stream);
  pending_free_process(allocator, FALSE);
  Request request = allocator_request(&allocator->config, bytes, stream);
  BlockHandle block = block_pool_take(allocator, &request);
  if (block == BLOCK_NONE)
    block = acquire(allocator, &request);
  if (block != BLOCK_NONE) {
    block = hand_out(allocator, block, &request);
  } else {
    allocator->stats.num_ooms++;
    if (failure)
      describe_failure(allocator, &request, failure);
  }
  if (allocator->check_always)
    caching_allocator_check(allocator);
  return block;
}

MallocOutlook
caching_allocator_outlook(CachingAllocator *allocator, gint64 bytes, int stream)
{
  FreePosition position;
  block_pool_stream(allocator, stream);
  pending_free_process(allocator, FALSE);
  Request request = allocator_request(&allocator->config, bytes, stream);
  if (block_pool_find(allocator, &request, &position))
    return MALLOC_REUSES;
  if (garbage_collection_is_due(allocator))
    return MALLOC_COLLECTS;
  if (segment_has_room(allocator, &request))
    return MALLOC_GROWS;
  gboolean collects =
      garbage_excess(allocator) > 0 || has_available_cached_blocks(allocator, &request);
  return collects ? MALLOC_COLLECTS : MALLOC_WAITS;
}

void
block_free(CachingAllocator *allocator, BlockHandle block)
{
  Block *entry = block_at(allocator, block);
  gint64 bytes = entry->bytes;
  gint64 before = block_absorb(allocator, block, entry->prev);
  gint64 after = block_absorb(allocator, block, entry->next);
  block_pool_insert(allocator, block);

  /* A block of expandable segments can always be given back by its pages: it does not count. */
  AllocatorStats *stats = &allocator->stats;
  if (entry->reservation < 0) {
    gint64 now_split = block_is_split(entry) ? entry->bytes : 0;
    stat_change(&stats->inactive_split_bytes, now_split - before - after);
  }
  stat_change(&stats->active_bytes, -bytes);
  stat_change(&stats->requested_bytes, -entry->requested_bytes);
}

gboolean
caching_allocator_release(CachingAllocator *allocator, BlockHandle block)
{
  g_assert(block >= 0 && block < allocator->n_blocks && block_at(allocator, block)->allocated);
  Block *entry = block_at(allocator, block);
  entry->allocated = FALSE;
  stat_change(&allocator->stats.allocations, -1);
  stat_change(&allocator->stats.allocated_bytes, -entry->bytes);
  gboolean at_once = entry->uses < 0;
  if (at_once)
    block_free(allocator, block);
  else
    pending_free_record(allocator, block);
  if (allocator->check_always)
    caching_allocator_check(allocator);
  return at_once;
}

void
caching_allocator_record_stream(CachingAllocator *allocator, BlockHandle block, int stream)
{
  g_assert(block >= 0 && block < allocator->n_blocks && block_at(allocator, block)->allocated);
  /* The owner's own work is in stream order already. */
  if (block_at(allocator, block)->stream != stream)
    stream_uses_add(allocator, block, stream);
}

void
caching_allocator_set_limit(CachingAllocator *allocator, gint64 bytes)
{
  allocator->config.memory_limit = bytes;
  allocator->config.device_total_bytes = MIN(allocator->config.device_total_bytes, MAX(bytes, 1));
}

guint64
caching_allocator_address(const CachingAllocator *allocator, BlockHandle block)
{
  return block_at(allocator, block)->address;
}

gint64
caching_allocator_block_size(const CachingAllocator *allocator, BlockHandle block)
{
  return block_at(allocator, block)->bytes;
}

gint64
caching_allocator_cached_bytes(const CachingAllocator *allocator, int stream)
{
  return stream < allocator->n_streams ? allocator->streams[stream]->cached_bytes : 0;
}
