/* allocator_visit.c - all blocks in address order, for snapshots.
 *
 * c10/cuda/CUDACachingAllocator.cpp: snapshot (one segment for each contiguous mapped range). */
#include "memory/allocator_internal.h"

static gint
compare_address(gconstpointer a, gconstpointer b, gpointer user)
{
  const CachingAllocator *allocator = user;
  guint64 first = block_at(allocator, *(const BlockHandle *) a)->address;
  guint64 second = block_at(allocator, *(const BlockHandle *) b)->address;
  return (first > second) - (first < second);
}

/* The first block of each mapped range. */
static GArray *
list_heads(const CachingAllocator *allocator)
{
  GArray *heads = g_array_new(FALSE, FALSE, sizeof(BlockHandle));
  for (BlockHandle i = 0; i < allocator->n_blocks; i++) {
    const Block *block = block_at(allocator, i);
    if (block->bytes > 0 && block->mapped &&
        (block->prev == BLOCK_NONE || !block_at(allocator, block->prev)->mapped))
      g_array_append_val(heads, i);
  }
  g_array_sort_with_data(heads, compare_address, (gpointer) (guintptr) allocator);
  return heads;
}

static gboolean
is_mapped(const CachingAllocator *allocator, BlockHandle block)
{
  return block != BLOCK_NONE && block_at(allocator, block)->mapped;
}

static void
visit_segment(const CachingAllocator *allocator, BlockHandle head,
              void (*visit)(const BlockInfo *, gpointer), gpointer user)
{
  gint64 bytes = 0;
  for (BlockHandle i = head; is_mapped(allocator, i); i = block_at(allocator, i)->next)
    bytes += block_at(allocator, i)->bytes;
  for (BlockHandle i = head; is_mapped(allocator, i); i = block_at(allocator, i)->next) {
    const Block *block = block_at(allocator, i);
    BlockInfo info = {
        .segment_address = block_at(allocator, head)->address,
        .segment_bytes = bytes,
        .address = block->address,
        .bytes = block->bytes,
        .requested_bytes = block_is_idle(block) ? 0 : block->requested_bytes,
        .stream = block->stream,
        .small_pool = block->pool == POOL_SMALL,
        .expandable = block->reservation >= 0,
        .state = block->allocated       ? BLOCK_ALLOCATED
                 : block_is_idle(block) ? BLOCK_INACTIVE
                                        : BLOCK_PENDING_FREE,
    };
    visit(&info, user);
  }
}

void
caching_allocator_visit(const CachingAllocator *allocator,
                        void (*visit)(const BlockInfo *, gpointer), gpointer user)
{
  g_autoptr(GArray) heads = list_heads(allocator);
  for (guint i = 0; i < heads->len; i++)
    visit_segment(allocator, g_array_index(heads, BlockHandle, i), visit, user);
}
