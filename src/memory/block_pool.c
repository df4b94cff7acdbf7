/* block_pool.c - blocks: the array they live in, their chains, the sets of free ones, best fit.
 *
 * c10/cuda/CUDACachingAllocator.cpp: Block, BlockPool, get_free_block, try_merge_blocks. */
#include "memory/allocator_internal.h"

StreamPools *
block_pool_stream(CachingAllocator *allocator, int stream)
{
  g_assert(stream >= 0);
  if (stream >= allocator->n_streams) {
    allocator->streams = g_renew(StreamPools *, allocator->streams, stream + 1);
    while (allocator->n_streams <= stream)
      allocator->streams[allocator->n_streams++] = g_new0(StreamPools, 1);
  }
  return allocator->streams[stream];
}

static BlockHandle
unused_block(CachingAllocator *allocator)
{
  if (allocator->unused_block != BLOCK_NONE) {
    BlockHandle block = allocator->unused_block;
    allocator->unused_block = block_at(allocator, block)->next;
    return block;
  }
  if (allocator->n_blocks == allocator->blocks_capacity) {
    g_assert(allocator->blocks_capacity < G_MAXINT32 / 2);
    allocator->blocks_capacity = MAX(256, 2 * allocator->blocks_capacity);
    allocator->blocks = g_renew(Block, allocator->blocks, allocator->blocks_capacity);
  }
  return allocator->n_blocks++;
}

BlockHandle
block_new(CachingAllocator *allocator, const Block *like, guint64 address, gint64 bytes)
{
  Block block = {
      .address = address,
      .bytes = bytes,
      .prev = BLOCK_NONE,
      .next = BLOCK_NONE,
      .reservation = like->reservation,
      .stream = like->stream,
      .uses = -1,
      .pool = like->pool,
      .mapped = TRUE,
  };
  BlockHandle index = unused_block(allocator);
  *block_at(allocator, index) = block;
  return index;
}

void
block_recycle(CachingAllocator *allocator, BlockHandle block)
{
  Block *entry = block_at(allocator, block);
  entry->bytes = 0;
  entry->next = allocator->unused_block;
  allocator->unused_block = block;
}

void
block_link(CachingAllocator *allocator, BlockHandle block, BlockHandle prev, BlockHandle next)
{
  Block *entry = block_at(allocator, block);
  entry->prev = prev;
  entry->next = next;
  if (prev != BLOCK_NONE)
    block_at(allocator, prev)->next = block;
  if (next != BLOCK_NONE)
    block_at(allocator, next)->prev = block;
}

void
block_pool_insert(CachingAllocator *allocator, BlockHandle block)
{
  Block *entry = block_at(allocator, block);
  StreamPools *stream = allocator->streams[entry->stream];
  if (!entry->mapped) {
    free_set_insert(&stream->unmapped[entry->pool], (FreeKey){0, entry->address}, block);
    return;
  }
  entry->idle_since = allocator->search_count[entry->pool];
  stream->cached_bytes += entry->bytes;
  free_set_insert(&stream->free[entry->pool], (FreeKey){entry->bytes, entry->address}, block);
}

void
block_pool_remove(CachingAllocator *allocator, BlockHandle block)
{
  const Block *entry = block_at(allocator, block);
  StreamPools *stream = allocator->streams[entry->stream];
  if (!entry->mapped) {
    free_set_remove(&stream->unmapped[entry->pool], (FreeKey){0, entry->address});
    return;
  }
  stream->cached_bytes -= entry->bytes;
  free_set_remove(&stream->free[entry->pool], (FreeKey){entry->bytes, entry->address});
}

gint64
block_absorb(CachingAllocator *allocator, BlockHandle into, BlockHandle other)
{
  if (other == BLOCK_NONE)
    return 0;
  Block *block = block_at(allocator, into), *neighbour = block_at(allocator, other);
  if (!block_is_idle(neighbour) || neighbour->mapped != block->mapped)
    return 0;
  gint64 absorbed = neighbour->bytes;
  block_pool_remove(allocator, other);
  block->bytes += absorbed;
  if (block->prev == other) {
    block->address = neighbour->address;
    block_link(allocator, into, neighbour->prev, block->next);
  } else {
    block_link(allocator, into, block->prev, neighbour->next);
  }
  block_recycle(allocator, other);
  return absorbed;
}

BlockHandle
block_split(CachingAllocator *allocator, BlockHandle block, gint64 bytes)
{
  BlockHandle low =
      block_new(allocator, block_at(allocator, block), block_at(allocator, block)->address, bytes);
  Block *rest = block_at(allocator, block);
  block_link(allocator, low, rest->prev, block);
  rest->address += (guint64) bytes;
  rest->bytes -= bytes;
  block_pool_insert(allocator, block);
  return low;
}

/* What an expandable block can grow to in place. */
static gint64
expandable_bytes(const CachingAllocator *allocator, const Block *block)
{
  const Block *next = block->next != BLOCK_NONE ? block_at(allocator, block->next) : NULL;
  return block->bytes + (next && !next->mapped ? next->bytes : 0);
}

static const Block *
block_in(const CachingAllocator *allocator, const FreeSet *set, FreePosition position)
{
  return block_at(allocator, free_set_block(set, position));
}

/* Best fit counts what an expandable block can grow to, so that the growing end of a segment is
 * used last: as long as the next larger block can grow less, it is the better one. */
static void
prefer_least_expandable(const CachingAllocator *allocator, const FreeSet *set,
                        FreePosition *position)
{
  FreePosition next = *position;
  while (block_in(allocator, set, *position)->reservation >= 0 && free_set_next(set, &next) &&
         expandable_bytes(allocator, block_in(allocator, set, next)) <
             expandable_bytes(allocator, block_in(allocator, set, *position)))
    *position = next;
}

static gboolean
skip_expandable(const CachingAllocator *allocator, const FreeSet *set, FreePosition *position)
{
  while (block_in(allocator, set, *position)->reservation >= 0) {
    if (!free_set_next(set, position))
      return FALSE;
  }
  return TRUE;
}

/* Oversize blocks serve only oversize requests, and those only when little is left over. */
static gboolean
max_split_size_allows(const AllocatorConfig *config, gint64 requested, gint64 found)
{
  if (requested < config->max_split_size)
    return found < config->max_split_size;
  return found - requested < config->max_non_split_rounding;
}

gboolean
block_pool_find(const CachingAllocator *allocator, const Request *request, FreePosition *position)
{
  const FreeSet *set = &allocator->streams[request->stream]->free[request->pool];
  if (!free_set_lower_bound(set, (FreeKey){request->bytes, 0}, position))
    return FALSE;
  if (allocator->config.expandable_segments)
    prefer_least_expandable(allocator, set, position);
  else if (!skip_expandable(allocator, set, position))
    return FALSE;
  return max_split_size_allows(&allocator->config, request->bytes,
                               free_set_key(set, *position).bytes);
}

BlockHandle
block_pool_take(CachingAllocator *allocator, const Request *request)
{
  FreePosition position;
  if (garbage_collection_is_on(&allocator->config))
    allocator->search_count[request->pool]++;
  if (!block_pool_find(allocator, request, &position))
    return BLOCK_NONE;
  StreamPools *stream = allocator->streams[request->stream];
  FreeSet *set = &stream->free[request->pool];
  BlockHandle block = free_set_block(set, position);
  stream->cached_bytes -= free_set_key(set, position).bytes;
  free_set_remove_at(set, position);
  return block;
}

GArray *
block_pool_list(const CachingAllocator *allocator, PoolKind pool)
{
  GArray *list = g_array_new(FALSE, FALSE, sizeof(BlockHandle));
  for (int i = 0; i < allocator->n_streams; i++) {
    const FreeSet *set = &allocator->streams[i]->free[pool];
    FreePosition position;
    gboolean more = free_set_first(set, &position);
    for (; more; more = free_set_next(set, &position)) {
      BlockHandle block = free_set_block(set, position);
      g_array_append_val(list, block);
    }
  }
  return list;
}
