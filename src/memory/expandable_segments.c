/* expandable_segments.c - segments that grow: address reservations whose pages are mapped on
 * demand.
 *
 * c10/cuda/CUDACachingAllocator.cpp: ExpandableSegment, find_expandable_block, map_block,
 * try_allocate_expandable_block, unmap_block, release_expandable_segment. */
#include "memory/allocator_internal.h"

gint64
expandable_page(const AllocatorConfig *config, PoolKind pool)
{
  /* The driver creates physical memory in whole granules only. */
  return pool == POOL_SMALL ? SMALL_SEGMENT_BYTES
                            : round_up(config->large_segment_size, ADDRESS_GRANULE);
}

gint64
expandable_reservation_bytes(const AllocatorConfig *config, PoolKind pool)
{
  gint64 total = MIN(config->device_total_bytes, LARGEST_REQUEST);
  return round_up(total + total / 8, expandable_page(config, pool));
}

static Reservation *
reservation_at(const CachingAllocator *allocator, gint32 index)
{
  return &g_array_index(allocator->reservations, Reservation, index);
}

gint32
expandable_reservation_new(CachingAllocator *allocator, guint64 address, gint64 bytes, gint64 page)
{
  Reservation reservation = {address, bytes, page};
  for (guint i = 0; i < allocator->reservations->len; i++) {
    if (reservation_at(allocator, (gint32) i)->bytes == 0) {
      *reservation_at(allocator, (gint32) i) = reservation;
      return (gint32) i;
    }
  }
  g_array_append_val(allocator->reservations, reservation);
  return (gint32) allocator->reservations->len - 1;
}

static gboolean
place_reservation(CachingAllocator *allocator, int stream, gint64 bytes, guint64 *address)
{
  const AllocatorHost *host = &allocator->host;
  if (host->place && host->place(host->user, stream, bytes, address) &&
      address_space_claim(&allocator->reservable, *address, bytes))
    return TRUE;
  return address_space_take_highest(&allocator->reservable, bytes, address);
}

/* A fresh reservation, all of it one unmapped block; NONE when no address range is left. */
static BlockHandle
reserve(CachingAllocator *allocator, const Request *request)
{
  const AllocatorConfig *config = &allocator->config;
  gint64 bytes = expandable_reservation_bytes(config, request->pool);
  guint64 address;
  if (request->bytes > bytes || !place_reservation(allocator, request->stream, bytes, &address))
    return BLOCK_NONE;
  const Block like = {
      .reservation = expandable_reservation_new(allocator, address, bytes,
                                                expandable_page(config, request->pool)),
      .stream = request->stream,
      .pool = (guint8) request->pool,
  };
  BlockHandle block = block_new(allocator, &like, address, bytes);
  block_at(allocator, block)->mapped = FALSE;
  block_pool_insert(allocator, block);
  return block;
}

/* TRUE when idle neighbours from block on, mapped or not, hold that many bytes together. */
static gboolean
chain_holds(const CachingAllocator *allocator, BlockHandle block, gint64 bytes)
{
  gint64 found = 0;
  for (; block != BLOCK_NONE && found < bytes; block = block_at(allocator, block)->next) {
    if (!block_is_idle(block_at(allocator, block)))
      return FALSE;
    found += block_at(allocator, block)->bytes;
  }
  return found >= bytes;
}

/* The lowest chain of idle blocks with room, looking only at those that begin at an unmapped block
 * or at the free one before it. */
static BlockHandle
find_candidate(const CachingAllocator *allocator, const Request *request)
{
  const FreeSet *unmapped = &allocator->streams[request->stream]->unmapped[request->pool];
  FreePosition position;
  gboolean more = free_set_first(unmapped, &position);
  for (; more; more = free_set_next(unmapped, &position)) {
    BlockHandle block = free_set_block(unmapped, position);
    BlockHandle before = block_at(allocator, block)->prev;
    if (before != BLOCK_NONE && block_is_idle(block_at(allocator, before)))
      block = before;
    if (chain_holds(allocator, block, request->bytes))
      return block;
  }
  return BLOCK_NONE;
}

gint64
expandable_missing_bytes(const CachingAllocator *allocator, const Request *request)
{
  gint64 page = expandable_page(&allocator->config, request->pool);
  BlockHandle block = find_candidate(allocator, request);
  if (block == BLOCK_NONE)
    return round_up(request->bytes, page);
  gint64 missing = 0, wanted = request->bytes;
  for (; wanted > 0; block = block_at(allocator, block)->next) {
    const Block *entry = block_at(allocator, block);
    missing += entry->mapped ? 0 : round_up(MIN(wanted, entry->bytes), page);
    wanted -= entry->bytes;
  }
  return missing;
}

/* Maps the pages that cover the first bytes of an unmapped block and joins them with what is free
 * beside them; the result, still named block, is in its pool.  FALSE when the device is full. */
static gboolean
map_pages(CachingAllocator *allocator, BlockHandle block, gint64 bytes)
{
  const Block *entry = block_at(allocator, block);
  gint64 mapped = round_up(bytes, reservation_at(allocator, entry->reservation)->page);
  AddressRange range = {entry->address, entry->address + (guint64) mapped};
  if (mapped > allocator->config.memory_limit - allocator->device_bytes)
    return FALSE;
  block_pool_remove(allocator, block);
  if (mapped < entry->bytes) {
    BlockHandle rest = block_new(allocator, entry, range.end, entry->bytes - mapped);
    block_at(allocator, rest)->mapped = FALSE;
    block_link(allocator, rest, block, block_at(allocator, block)->next);
    block_pool_insert(allocator, rest);
    block_at(allocator, block)->bytes = mapped;
  }
  block_at(allocator, block)->mapped = TRUE;
  block_absorb(allocator, block, block_at(allocator, block)->prev);
  block_absorb(allocator, block, block_at(allocator, block)->next);
  block_pool_insert(allocator, block);
  stats_reserved(allocator, block_at(allocator, block), SEGMENT_MAP, range);
  return TRUE;
}

BlockHandle
expandable_acquire(CachingAllocator *allocator, const Request *request)
{
  BlockHandle block = find_candidate(allocator, request);
  if (block == BLOCK_NONE)
    block = reserve(allocator, request);
  if (block == BLOCK_NONE)
    return BLOCK_NONE;
  if (!block_at(allocator, block)->mapped &&
      !map_pages(allocator, block, MIN(request->bytes, block_at(allocator, block)->bytes)))
    return BLOCK_NONE;
  /* The chain is now a free block, then an unmapped one: grow into it.  What was mapped stays
   * mapped when the device fills up on the way. */
  while (block_at(allocator, block)->bytes < request->bytes) {
    gint64 missing = request->bytes - block_at(allocator, block)->bytes;
    BlockHandle next = block_at(allocator, block)->next;
    g_assert(next != BLOCK_NONE);
    if (!map_pages(allocator, next, MIN(missing, block_at(allocator, next)->bytes)))
      return BLOCK_NONE;
    block = next;
  }
  block_pool_remove(allocator, block);
  return block;
}

/* Puts a free remainder of block between two of its neighbours. */
static void
keep_remainder(CachingAllocator *allocator, BlockHandle block, AddressRange range, gboolean before)
{
  if (range.begin == range.end)
    return;
  BlockHandle rest = block_new(allocator, block_at(allocator, block), range.begin,
                               (gint64) (range.end - range.begin));
  const Block *entry = block_at(allocator, block);
  if (before)
    block_link(allocator, rest, entry->prev, block);
  else
    block_link(allocator, rest, block, entry->next);
  block_pool_insert(allocator, rest);
}

static void
destroy_reservation(CachingAllocator *allocator, BlockHandle block)
{
  Reservation *reservation = reservation_at(allocator, block_at(allocator, block)->reservation);
  g_assert(block_at(allocator, block)->bytes == reservation->bytes);
  block_pool_remove(allocator, block);
  address_space_release(&allocator->reservable, reservation->address, reservation->bytes);
  reservation->bytes = 0;
  block_recycle(allocator, block);
}

void
expandable_release(CachingAllocator *allocator, BlockHandle block)
{
  Block *entry = block_at(allocator, block);
  Reservation reservation = *reservation_at(allocator, entry->reservation);
  AddressRange whole = {entry->address, entry->address + (guint64) entry->bytes};
  gint64 begin = round_up((gint64) (whole.begin - reservation.address), reservation.page);
  gint64 end = (gint64) (whole.end - reservation.address) / reservation.page * reservation.page;
  if (begin >= end)
    return;
  AddressRange pages = {reservation.address + (guint64) begin, reservation.address + (guint64) end};

  block_pool_remove(allocator, block);
  keep_remainder(allocator, block, (AddressRange){whole.begin, pages.begin}, TRUE);
  keep_remainder(allocator, block, (AddressRange){pages.end, whole.end}, FALSE);
  entry = block_at(allocator, block);
  entry->address = pages.begin;
  entry->bytes = end - begin;
  entry->mapped = FALSE;
  block_absorb(allocator, block, entry->prev);
  block_absorb(allocator, block, entry->next);
  block_pool_insert(allocator, block);
  stats_reserved(allocator, block_at(allocator, block), SEGMENT_UNMAP, pages);
  if (!block_is_split(block_at(allocator, block)))
    destroy_reservation(allocator, block);
}
