/* allocator_release.c - giving cached memory back to the device: on a failed allocation, on
 * request, by age.
 *
 * c10/cuda/CUDACachingAllocator.cpp: release_available_cached_blocks, release_cached_blocks,
 * release_blocks, garbage_collect_cached_blocks. */
#include "memory/allocator_internal.h"

static gboolean
is_oversize(const CachingAllocator *allocator, const FreeSet *set, FreePosition position)
{
  return free_set_key(set, position).bytes >= allocator->config.max_split_size;
}

static gboolean
is_whole_segment(const CachingAllocator *allocator, BlockHandle block)
{
  const Block *entry = block_at(allocator, block);
  return entry->reservation < 0 && !block_is_split(entry);
}

/* From position downwards, frees oversize segments until bytes are released. */
static gboolean
release_oversize(CachingAllocator *allocator, FreeSet *set, FreePosition position, gint64 bytes)
{
  gint64 released = 0;
  gboolean more = TRUE;
  while (more && released < bytes && is_oversize(allocator, set, position)) {
    BlockHandle block = free_set_block(set, position);
    FreePosition below = position;
    more = free_set_previous(set, &below);
    if (is_whole_segment(allocator, block)) {
      released += block_at(allocator, block)->bytes;
      segment_release(allocator, block);
    }
    /* Removing an entry moves only those above it. */
    position = below;
  }
  return released >= bytes;
}

gboolean
release_available_cached_blocks(CachingAllocator *allocator, const Request *request)
{
  const AllocatorConfig *config = &allocator->config;
  if (config->max_split_size == G_MAXINT64)
    return FALSE;
  FreeSet *set = &allocator->streams[request->stream]->free[request->pool];
  gint64 bytes = MAX(request->bytes, config->max_split_size);
  FreePosition position;
  gboolean found = free_set_lower_bound(set, (FreeKey){bytes, 0}, &position);
  if (found && is_whole_segment(allocator, free_set_block(set, position))) {
    segment_release(allocator, free_set_block(set, position));
    return TRUE;
  }
  gboolean any = found ? free_set_previous(set, &position) : free_set_last(set, &position);
  return any && release_oversize(allocator, set, position, bytes);
}

gboolean
has_available_cached_blocks(const CachingAllocator *allocator, const Request *request)
{
  const FreeSet *set = &allocator->streams[request->stream]->free[request->pool];
  FreePosition last;
  return allocator->config.max_split_size < G_MAXINT64 && free_set_last(set, &last) &&
         is_oversize(allocator, set, last);
}

static void
release_pool(CachingAllocator *allocator, PoolKind pool)
{
  g_autoptr(GArray) blocks = block_pool_list(allocator, pool);
  guint n_expandable = 0;
  for (guint i = 0; i < blocks->len; i++) {
    BlockHandle block = g_array_index(blocks, BlockHandle, i);
    if (block_at(allocator, block)->reservation >= 0)
      g_array_index(blocks, BlockHandle, n_expandable++) = block;
    else if (is_whole_segment(allocator, block))
      segment_release(allocator, block);
  }
  /* Unmapping one block neither moves nor merges the other free ones. */
  for (guint i = 0; i < n_expandable; i++)
    expandable_release(allocator, g_array_index(blocks, BlockHandle, i));
}

gboolean
release_cached_blocks(CachingAllocator *allocator, const Request *request)
{
  (void) request;
  pending_free_process(allocator, TRUE);
  release_pool(allocator, POOL_LARGE);
  release_pool(allocator, POOL_SMALL);
  return TRUE;
}

gboolean
garbage_collection_is_on(const AllocatorConfig *config)
{
  return config->garbage_collection_threshold > 0 && config->process_limit < G_MAXINT64;
}

static gint64
block_age(const CachingAllocator *allocator, BlockHandle block)
{
  const Block *entry = block_at(allocator, block);
  return allocator->search_count[entry->pool] - entry->idle_since;
}

/* The whole free segments of the large pool and the sum of their ages. */
static GArray *
collectable(const CachingAllocator *allocator, gint64 *total_age)
{
  GArray *blocks = block_pool_list(allocator, POOL_LARGE);
  guint kept = 0;
  *total_age = 0;
  for (guint i = 0; i < blocks->len; i++) {
    BlockHandle block = g_array_index(blocks, BlockHandle, i);
    if (!is_whole_segment(allocator, block))
      continue;
    *total_age += block_age(allocator, block);
    g_array_index(blocks, BlockHandle, kept++) = block;
  }
  g_array_set_size(blocks, kept);
  return blocks;
}

/* Frees all blocks that have lain free at least as long as the average; returns the bytes. */
static gint64
release_older_than_average(CachingAllocator *allocator)
{
  gint64 total_age, released = 0;
  g_autoptr(GArray) blocks = collectable(allocator, &total_age);
  if (blocks->len == 0)
    return 0;
  double average = (double) total_age / blocks->len;
  for (guint i = 0; i < blocks->len; i++) {
    BlockHandle block = g_array_index(blocks, BlockHandle, i);
    if ((double) block_age(allocator, block) < average)
      continue;
    released += block_at(allocator, block)->bytes;
    segment_release(allocator, block);
  }
  return released;
}

gint64
garbage_excess(const CachingAllocator *allocator)
{
  const AllocatorConfig *config = &allocator->config;
  if (!garbage_collection_is_on(config))
    return 0;
  double threshold = config->garbage_collection_threshold * (double) config->process_limit;
  return MAX(0, allocator->stats.reserved_bytes.current - (gint64) threshold);
}

void
garbage_collect_cached_blocks(CachingAllocator *allocator)
{
  gint64 excess = garbage_excess(allocator), released = 0, last = 1;
  while (released < excess && last > 0) {
    last = release_older_than_average(allocator);
    released += last;
  }
}

gboolean
garbage_collection_is_due(const CachingAllocator *allocator)
{
  gint64 total_age;
  if (garbage_excess(allocator) == 0)
    return FALSE;
  g_autoptr(GArray) blocks = collectable(allocator, &total_age);
  return blocks->len > 0;
}

void
caching_allocator_empty_cache(CachingAllocator *allocator)
{
  release_cached_blocks(allocator, NULL);
  if (allocator->check_always)
    caching_allocator_check(allocator);
}
