/* allocator_check.c - verifies every invariant of the allocator's state; aborts at a broken one. */
#include "memory/allocator_internal.h"
#include <stdlib.h>

/* What the blocks add up to, counted from scratch. */
typedef struct {
  gint64 allocations, allocated, requested, active, inactive_split, segments;
  gint64 reserved[POOL_COUNT];
  gint64 events, device;
  gint64 *cached;     /* by stream */
  guint *free_blocks; /* by stream and pool: entries of the set of free blocks */
  guint *unmapped;    /* likewise of the unmapped */
  GArray *segment_ranges;
} Tally;

static void broken(const char *format, ...) G_GNUC_PRINTF(1, 2) G_GNUC_NORETURN;

static void
broken(const char *format, ...)
{
  va_list arguments;
  va_start(arguments, format);
  g_autofree char *text = g_strdup_vprintf(format, arguments);
  va_end(arguments);
  g_printerr("caching allocator: %s\n", text);
  abort();
}

#define REQUIRE(condition, ...)                                                                    \
  do {                                                                                             \
    if (!(condition))                                                                              \
      broken(__VA_ARGS__);                                                                         \
  } while (0)

static void
require_equal(const char *what, gint64 counted, gint64 stored)
{
  REQUIRE(counted == stored,
          "%s: blocks add up to %" G_GINT64_FORMAT ", the counter says %" G_GINT64_FORMAT, what,
          counted, stored);
}

static gboolean
set_holds(const FreeSet *set, FreeKey key, BlockHandle block)
{
  FreePosition position;
  if (!free_set_lower_bound(set, key, &position))
    return FALSE;
  FreeKey found = free_set_key(set, position);
  return found.bytes == key.bytes && found.address == key.address &&
         free_set_block(set, position) == block;
}

static void
check_idle_block(const CachingAllocator *allocator, BlockHandle index, Tally *tally)
{
  const Block *block = block_at(allocator, index);
  const StreamPools *stream = allocator->streams[block->stream];
  int set = block->stream * POOL_COUNT + block->pool;
  REQUIRE(block->uses < 0, "block %d is free but has recorded streams", index);
  if (block->mapped) {
    REQUIRE(set_holds(&stream->free[block->pool], (FreeKey){block->bytes, block->address}, index),
            "free block %d is not in its pool", index);
    tally->free_blocks[set]++;
    tally->cached[block->stream] += block->bytes;
    if (block->reservation < 0 && block_is_split(block))
      tally->inactive_split += block->bytes;
  } else {
    REQUIRE(set_holds(&stream->unmapped[block->pool], (FreeKey){0, block->address}, index),
            "unmapped block %d is not in its set", index);
    tally->unmapped[set]++;
  }
}

static void
check_block(const CachingAllocator *allocator, BlockHandle index, Tally *tally)
{
  const Block *block = block_at(allocator, index);
  REQUIRE(block->bytes % MIN_BLOCK_BYTES == 0 && block->address % (guint64) MIN_BLOCK_BYTES == 0,
          "block %d is not on 512 bytes", index);
  REQUIRE(block->stream < allocator->n_streams && block->pool < POOL_COUNT, "block %d has no pool",
          index);
  REQUIRE(block->mapped || (block->reservation >= 0 && block_is_idle(block)),
          "block %d is in use or of cudaMalloc, but not mapped", index);
  REQUIRE(!(block->allocated && block->events > 0), "block %d is live and waits for events", index);
  if (block_is_idle(block)) {
    check_idle_block(allocator, index, tally);
  } else {
    REQUIRE(block->bytes >= block->requested_bytes, "block %d is too small", index);
    tally->active += block->bytes;
    tally->requested += block->requested_bytes;
  }
  if (block->allocated) {
    tally->allocations++;
    tally->allocated += block->bytes;
  }
  tally->events += block->events;
  if (block->mapped)
    tally->reserved[block->pool] += block->bytes;
}

static void
check_pair(const CachingAllocator *allocator, BlockHandle index, BlockHandle next)
{
  const Block *a = block_at(allocator, index), *b = block_at(allocator, next);
  REQUIRE(b->prev == index, "block %d does not lead back to %d", next, index);
  REQUIRE(b->address == a->address + (guint64) a->bytes, "a gap or overlap after block %d", index);
  REQUIRE(a->stream == b->stream && a->pool == b->pool && a->reservation == b->reservation,
          "blocks %d and %d share a segment but not stream and pool", index, next);
  REQUIRE(!(block_is_idle(a) && block_is_idle(b) && a->mapped == b->mapped),
          "free neighbours %d and %d are not merged", index, next);
}

static void
check_reservation(const CachingAllocator *allocator, const Block *head, AddressRange range)
{
  const Reservation *reservation =
      &g_array_index(allocator->reservations, Reservation, head->reservation);
  REQUIRE(reservation->address == range.begin &&
              reservation->bytes == (gint64) (range.end - range.begin),
          "the blocks of reservation %d do not cover it", head->reservation);
}

/* Walks the segment that begins with a block; returns how many blocks it has. */
static gint32
check_segment(const CachingAllocator *allocator, BlockHandle head, Tally *tally)
{
  const Block *first = block_at(allocator, head);
  AddressRange range = {first->address, first->address};
  gint32 count = 0;
  for (BlockHandle i = head; i != BLOCK_NONE; i = block_at(allocator, i)->next) {
    const Block *block = block_at(allocator, i);
    REQUIRE(block->bytes > 0 && ++count <= allocator->n_blocks, "a chain runs through block %d", i);
    check_block(allocator, i, tally);
    if (block->next != BLOCK_NONE)
      check_pair(allocator, i, block->next);
    range.end = block->address + (guint64) block->bytes;
    if (block->reservation >= 0) {
      gint64 page = g_array_index(allocator->reservations, Reservation, block->reservation).page;
      REQUIRE(block->mapped || block->bytes % page == 0, "unmapped block %d is no page", i);
      tally->device += block->mapped ? block->bytes : 0;
    }
  }
  if (first->reservation >= 0) {
    check_reservation(allocator, first, range);
  } else {
    tally->segments++;
    tally->device += round_up((gint64) (range.end - range.begin), ADDRESS_GRANULE);
  }
  g_array_append_val(tally->segment_ranges, range);
  return count;
}

static gint
compare_ranges(gconstpointer a, gconstpointer b)
{
  guint64 first = ((const AddressRange *) a)->begin, second = ((const AddressRange *) b)->begin;
  return (first > second) - (first < second);
}

static gint64
check_space(const AddressSpace *space)
{
  gint64 taken = (gint64) (space->whole.end - space->whole.begin);
  guint64 last = 0;
  for (guint i = 0; i < space->holes->len; i++) {
    const AddressRange *hole = &g_array_index(space->holes, AddressRange, i);
    REQUIRE(hole->begin < hole->end && (i == 0 || last < hole->begin), "holes touch or overlap");
    last = hole->end;
    taken -= (gint64) (hole->end - hole->begin);
  }
  return taken;
}

static void
check_addresses(const CachingAllocator *allocator, const Tally *tally)
{
  g_array_sort(tally->segment_ranges, compare_ranges);
  gint64 taken = 0;
  for (guint i = 0; i < tally->segment_ranges->len; i++) {
    const AddressRange *range = &g_array_index(tally->segment_ranges, AddressRange, i);
    REQUIRE(i == 0 || range[-1].end <= range->begin, "two segments overlap");
    taken += round_up((gint64) (range->end - range->begin), ADDRESS_GRANULE);
  }
  require_equal("addresses taken", taken,
                check_space(&allocator->segments) + check_space(&allocator->reservable));
}

static void
check_stat(const char *what, gint64 counted, const AllocatorStat *stat)
{
  require_equal(what, counted, stat->current);
  REQUIRE(stat->peak >= stat->current && stat->current >= 0, "%s: current is above its peak", what);
  REQUIRE(stat->allocated == G_MAXINT64 || stat->allocated - stat->freed == stat->current,
          "%s: allocated less freed is not what is left", what);
}

static void
check_counters(const CachingAllocator *allocator, const Tally *tally)
{
  const AllocatorStats *stats = &allocator->stats;
  check_stat("allocations", tally->allocations, &stats->allocations);
  check_stat("allocated_bytes", tally->allocated, &stats->allocated_bytes);
  check_stat("requested_bytes", tally->requested, &stats->requested_bytes);
  check_stat("active_bytes", tally->active, &stats->active_bytes);
  check_stat("inactive_split_bytes", tally->inactive_split, &stats->inactive_split_bytes);
  check_stat("segments", tally->segments, &stats->segments);
  check_stat("reserved_small", tally->reserved[POOL_SMALL], &stats->reserved_small);
  check_stat("reserved_large", tally->reserved[POOL_LARGE], &stats->reserved_large);
  check_stat("reserved_bytes", tally->reserved[POOL_SMALL] + tally->reserved[POOL_LARGE],
             &stats->reserved_bytes);
  require_equal("events outstanding", tally->events, allocator->n_pending);
  require_equal("device memory", tally->device, allocator->device_bytes);
}

static void
check_streams(const CachingAllocator *allocator, const Tally *tally)
{
  gint64 pending = 0;
  for (int i = 0; i < allocator->n_streams; i++) {
    const StreamPools *stream = allocator->streams[i];
    require_equal("cached bytes of a stream", tally->cached[i], stream->cached_bytes);
    for (int pool = 0; pool < POOL_COUNT; pool++) {
      require_equal("free blocks of a pool", tally->free_blocks[i * POOL_COUNT + pool],
                    stream->free[pool].count);
      require_equal("unmapped blocks of a pool", tally->unmapped[i * POOL_COUNT + pool],
                    stream->unmapped[pool].count);
    }
    pending += stream->pending.count;
    for (guint k = 0; k < stream->pending.count; k++) {
      guint at = (stream->pending.head + k) & (stream->pending.capacity - 1);
      REQUIRE(block_at(allocator, stream->pending.items[at].block)->events > 0,
              "an event of stream %d belongs to no waiting block", i);
    }
  }
  require_equal("events in queues", pending, allocator->n_pending);
}

void
caching_allocator_check(const CachingAllocator *allocator)
{
  guint n_sets = (guint) allocator->n_streams * POOL_COUNT;
  g_autofree gint64 *cached = g_new0(gint64, MAX(allocator->n_streams, 1));
  g_autofree guint *free_blocks = g_new0(guint, MAX(n_sets, 1));
  g_autofree guint *unmapped = g_new0(guint, MAX(n_sets, 1));
  g_autoptr(GArray) ranges = g_array_new(FALSE, FALSE, sizeof(AddressRange));
  Tally tally = {
      .cached = cached, .free_blocks = free_blocks, .unmapped = unmapped, .segment_ranges = ranges};

  gint32 used = 0, reached = 0;
  for (BlockHandle i = 0; i < allocator->n_blocks; i++) {
    const Block *block = block_at(allocator, i);
    used += block->bytes > 0;
    if (block->bytes > 0 && block->prev == BLOCK_NONE)
      reached += check_segment(allocator, i, &tally);
  }
  require_equal("blocks in chains", reached, used);
  check_counters(allocator, &tally);
  check_streams(allocator, &tally);
  check_addresses(allocator, &tally);
}
