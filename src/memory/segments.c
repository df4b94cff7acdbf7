/* segments.c - segments of the device: one cudaMalloc each, or pages of an expandable one.
 *
 * c10/cuda/CUDACachingAllocator.cpp: alloc_block, release_block. */
#include "memory/allocator_internal.h"

static gboolean
place_segment(CachingAllocator *allocator, const Request *request, guint64 *address)
{
  const AllocatorHost *host = &allocator->host;
  gint64 bytes = request->segment_bytes;
  if (host->place && host->place(host->user, request->stream, bytes, address) &&
      address_space_claim(&allocator->segments, *address, bytes))
    return TRUE;
  return address_space_take_lowest(&allocator->segments, bytes, address);
}

BlockHandle
segment_new(CachingAllocator *allocator, const Block *like, guint64 address, gint64 bytes)
{
  BlockHandle block = block_new(allocator, like, address, bytes);
  stats_reserved(allocator, block_at(allocator, block), SEGMENT_ALLOC,
                 (AddressRange){address, address + (guint64) bytes});
  return block;
}

/* The process's limit is checked with the size of a segment even when pages are mapped. */
static gboolean
process_has_room(const CachingAllocator *allocator, const Request *request)
{
  gint64 reserved = allocator->stats.reserved_bytes.current;
  return request->segment_bytes <= allocator->config.process_limit - reserved;
}

static gboolean
device_has_room(const CachingAllocator *allocator, gint64 bytes)
{
  gint64 physical = round_up(bytes, ADDRESS_GRANULE);
  return physical <= allocator->config.memory_limit - allocator->device_bytes;
}

gboolean
segment_has_room(const CachingAllocator *allocator, const Request *request)
{
  gint64 bytes = allocator->config.expandable_segments
                     ? expandable_missing_bytes(allocator, request)
                     : request->segment_bytes;
  return process_has_room(allocator, request) && device_has_room(allocator, bytes);
}

BlockHandle
segment_acquire(CachingAllocator *allocator, const Request *request)
{
  guint64 address;
  if (!process_has_room(allocator, request))
    return BLOCK_NONE;
  if (allocator->config.expandable_segments)
    return expandable_acquire(allocator, request);
  if (!device_has_room(allocator, request->segment_bytes) ||
      !place_segment(allocator, request, &address))
    return BLOCK_NONE;
  const Block like = {.reservation = -1, .stream = request->stream, .pool = (guint8) request->pool};
  return segment_new(allocator, &like, address, request->segment_bytes);
}

void
segment_release(CachingAllocator *allocator, BlockHandle block)
{
  const Block *entry = block_at(allocator, block);
  g_assert(entry->reservation < 0 && !block_is_split(entry));
  block_pool_remove(allocator, block);
  address_space_release(&allocator->segments, entry->address, entry->bytes);
  stats_reserved(allocator, entry, SEGMENT_FREE,
                 (AddressRange){entry->address, entry->address + (guint64) entry->bytes});
  block_recycle(allocator, block);
}
