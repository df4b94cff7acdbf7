/* allocator_restore.c - segments of a snapshot become chains of blocks again. */
#include "memory/allocator_restore.h"
#include "memory/allocator_internal.h"

typedef struct {
  CachingAllocator *allocator;
  const RestoredSegment *segments;
  guint n_segments;
  gint64 reservation_bytes;
  BlockHandle *handles;
} Restore;

static gboolean refuse(GError **error, guint segment, const char *format, ...) G_GNUC_PRINTF(3, 4);

static gboolean
refuse(GError **error, guint segment, const char *format, ...)
{
  va_list arguments;
  va_start(arguments, format);
  g_autofree char *text = g_strdup_vprintf(format, arguments);
  va_end(arguments);
  g_set_error(error, HIGHWATER_ERROR, HIGHWATER_ERROR_INPUT, "segment %u: %s", segment, text);
  return FALSE;
}

/* Checks the blocks; *bytes becomes the size of the segment. */
static gboolean
measure(const RestoredSegment *segment, guint index, gint64 *bytes, GError **error)
{
  *bytes = 0;
  if (segment->n_blocks == 0)
    return refuse(error, index, "no blocks");
  for (guint i = 0; i < segment->n_blocks; i++) {
    const RestoredBlock *block = &segment->blocks[i];
    if (block->bytes <= 0 || block->bytes % MIN_BLOCK_BYTES != 0 ||
        block->bytes > LARGEST_REQUEST - *bytes)
      return refuse(error, index,
                    "block %u has %" G_GINT64_FORMAT " bytes, not a positive multiple of 512", i,
                    block->bytes);
    if (block->active && (block->requested_bytes < 0 || block->requested_bytes > block->bytes))
      return refuse(error, index,
                    "block %u has %" G_GINT64_FORMAT " bytes, but %" G_GINT64_FORMAT " requested",
                    i, block->bytes, block->requested_bytes);
    if (i > 0 && !block->active && !segment->blocks[i - 1].active)
      return refuse(error, index, "blocks %u and %u are both free but not merged", i - 1, i);
    *bytes += block->bytes;
  }
  return TRUE;
}

/* Cuts the whole free block `left`, which is in no set, into the blocks of the segment. */
static void
cut_blocks(Restore *restore, const RestoredSegment *segment, BlockHandle left)
{
  CachingAllocator *allocator = restore->allocator;
  AllocatorStats *stats = &allocator->stats;
  for (guint i = 0; i < segment->n_blocks; i++) {
    const RestoredBlock *block = &segment->blocks[i];
    BlockHandle index = left;
    if (i + 1 < segment->n_blocks) {
      index = block_split(allocator, left, block->bytes);
      block_pool_remove(allocator, left);
    }
    Block *entry = block_at(allocator, index);
    entry->requested_bytes = block->requested_bytes;
    entry->allocated = (guint8) block->active;
    if (!block->active) {
      block_pool_insert(allocator, index);
      if (entry->reservation < 0 && block_is_split(entry))
        stat_change(&stats->inactive_split_bytes, entry->bytes);
      continue;
    }
    *restore->handles++ = index;
    stat_change(&stats->allocations, 1);
    stat_change(&stats->allocated_bytes, entry->bytes);
    stat_change(&stats->active_bytes, entry->bytes);
    stat_change(&stats->requested_bytes, entry->requested_bytes);
  }
}

static gboolean
restore_classic(Restore *restore, guint index, GError **error)
{
  const RestoredSegment *segment = &restore->segments[index];
  gint64 bytes;
  if (!measure(segment, index, &bytes, error))
    return FALSE;
  if (!address_space_claim(&restore->allocator->segments, segment->address, bytes))
    return refuse(error, index, "overlaps another, or its address is not a multiple of 2 MiB");
  const Block like = {.reservation = -1,
                      .stream = segment->stream,
                      .pool = segment->small_pool ? POOL_SMALL : POOL_LARGE};
  block_pool_stream(restore->allocator, segment->stream);
  cut_blocks(restore, segment, segment_new(restore->allocator, &like, segment->address, bytes));
  return TRUE;
}

/* A reservation as it is filled from below. */
typedef struct {
  Block like;
  AddressRange range;
  guint64 next; /* up to here its blocks exist */
  gint64 page;
  BlockHandle last;
} Filling;

static void
append_block(Restore *restore, Filling *filling, guint64 end, gboolean mapped)
{
  BlockHandle block =
      block_new(restore->allocator, &filling->like, filling->next, (gint64) (end - filling->next));
  block_at(restore->allocator, block)->mapped = (guint8) mapped;
  block_link(restore->allocator, block, filling->last, BLOCK_NONE);
  filling->last = block;
  filling->next = end;
}

static void
append_unmapped(Restore *restore, Filling *filling, guint64 end)
{
  if (filling->next == end)
    return;
  append_block(restore, filling, end, FALSE);
  block_pool_insert(restore->allocator, filling->last);
}

/* The reservation whose first mapped range a segment is: as large as it was made, or as the next
 * known one of another stream or pool lets it be. */
static gboolean
begin_reservation(Restore *restore, guint index, Filling *filling, GError **error)
{
  const RestoredSegment *segment = &restore->segments[index];
  CachingAllocator *allocator = restore->allocator;
  PoolKind pool = segment->small_pool ? POOL_SMALL : POOL_LARGE;
  gint64 page = expandable_page(&allocator->config, pool);
  gint64 bytes = round_up(restore->reservation_bytes, page);
  guint64 begin = segment->reservation_address ? segment->reservation_address : segment->address;
  for (guint i = index + 1; i < restore->n_segments; i++) {
    const RestoredSegment *other = &restore->segments[i];
    if (other->stream == segment->stream && other->small_pool == segment->small_pool)
      continue;
    bytes = MIN(bytes, (gint64) (other->address - begin) / page * page);
    break;
  }
  if (begin > segment->address || bytes <= 0 ||
      !address_space_claim(&allocator->reservable, begin, bytes))
    return refuse(error, index, "overlaps another, or its address is not a multiple of 2 MiB");
  block_pool_stream(allocator, segment->stream);
  *filling = (Filling){
      .like = {.reservation = expandable_reservation_new(allocator, begin, bytes, page),
               .stream = segment->stream,
               .pool = (guint8) pool},
      .range = {begin, begin + (guint64) bytes},
      .next = begin,
      .page = page,
      .last = BLOCK_NONE,
  };
  return TRUE;
}

static gboolean
belongs_to(const RestoredSegment *segment, const Filling *filling)
{
  return filling->page > 0 && segment->stream == filling->like.stream &&
         segment->small_pool == (filling->like.pool == POOL_SMALL) &&
         segment->address < filling->range.end;
}

static gboolean
append_range(Restore *restore, guint index, Filling *filling, GError **error)
{
  const RestoredSegment *segment = &restore->segments[index];
  gint64 bytes;
  if (!measure(segment, index, &bytes, error))
    return FALSE;
  guint64 end = segment->address + (guint64) bytes;
  if (segment->address < filling->next || end > filling->range.end ||
      (segment->address - filling->range.begin) % (guint64) filling->page != 0 ||
      bytes % filling->page != 0)
    return refuse(error, index, "is not made of whole pages of a reservation");
  append_unmapped(restore, filling, segment->address);
  append_block(restore, filling, end, TRUE);
  const Block *block = block_at(restore->allocator, filling->last);
  stats_reserved(restore->allocator, block, SEGMENT_MAP, (AddressRange){segment->address, end});
  cut_blocks(restore, segment, filling->last);
  return TRUE;
}

static gboolean
restore_expandable(Restore *restore, GError **error)
{
  Filling filling = {.page = 0};
  for (guint i = 0; i < restore->n_segments; i++) {
    if (!belongs_to(&restore->segments[i], &filling)) {
      if (filling.page > 0)
        append_unmapped(restore, &filling, filling.range.end);
      if (!begin_reservation(restore, i, &filling, error))
        return FALSE;
    }
    if (!append_range(restore, i, &filling, error))
      return FALSE;
  }
  if (filling.page > 0)
    append_unmapped(restore, &filling, filling.range.end);
  return TRUE;
}

gboolean
caching_allocator_restore(CachingAllocator *allocator, const RestoredSegment *segments,
                          guint n_segments, gint64 reservation_bytes, BlockHandle *handles,
                          GError **error)
{
  g_assert(allocator->n_blocks == 0);
  Restore restore = {.allocator = allocator,
                     .segments = segments,
                     .n_segments = n_segments,
                     .reservation_bytes = reservation_bytes,
                     .handles = handles};
  gboolean ok = TRUE;
  if (allocator->config.expandable_segments)
    ok = restore_expandable(&restore, error);
  for (guint i = 0; ok && !allocator->config.expandable_segments && i < n_segments; i++)
    ok = restore_classic(&restore, i, error);
  caching_allocator_reset_peak(allocator);
  return ok;
}
