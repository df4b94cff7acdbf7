/* check_caching_allocator.c - the rules of the caching allocator with segments of cudaMalloc:
 * rounding, pools, best fit, splitting, merging, streams, the retry chain, garbage collection,
 * max_split_size, statistics.  Expectations are worked out by hand from PyTorch's rules.
 * Not pinned: the addresses of segments, beyond their order. */
#include "allocator_fixture.h"
#include "tap_main.h"

static const struct {
  gint64 bytes, block, segment;
} sizes[] = {
    /* Up to 1 MiB: rounded to 512 bytes, cut from segments of 2 MiB. */
    {1, 512, 2 * MIB},
    {512, 512, 2 * MIB},
    {513, 1024, 2 * MIB},
    {MIB, MIB, 2 * MIB},
    /* Up to 10 MiB: cut from segments of 20 MiB, as more than 1 MiB is left over. */
    {MIB + 1, MIB + 512, 20 * MIB},
    {10 * MIB - 512, 10 * MIB - 512, 20 * MIB},
    /* From 10 MiB: a segment of their own in steps of 2 MiB. */
    {10 * MIB, 10 * MIB, 10 * MIB},
    /* 12 MiB less 10 MiB and 512 bytes are more than 1 MiB: cut. */
    {10 * MIB + 1, 10 * MIB + 512, 12 * MIB},
    /* Exactly 1 MiB left over is not more than 1 MiB: the block keeps it. */
    {11 * MIB, 12 * MIB, 12 * MIB},
    {11 * MIB - 1, 12 * MIB, 12 * MIB},
    {11 * MIB - 512, 11 * MIB - 512, 12 * MIB},
    {100 * MIB + 1, 100 * MIB + 512, 102 * MIB},
};

START_TEST(a_request_is_rounded_and_cut_from_a_segment_of_its_size_class)
{
  const AllocatorConfig config = allocator_config_default();
  g_autoptr(Fixture) fixture = fixture_new(&config);
  BlockHandle block = fixture_malloc(fixture, sizes[_i].bytes, 0);
  const AllocatorStats *stats = caching_allocator_stats(fixture->allocator);
  ck_assert_int_eq(caching_allocator_block_size(fixture->allocator, block), sizes[_i].block);
  ck_assert_int_eq(stats->reserved_bytes.current, sizes[_i].segment);
  ck_assert_int_eq(stats->allocated_bytes.current, sizes[_i].block);
  ck_assert_int_eq(stats->requested_bytes.current, sizes[_i].bytes);
  ck_assert_int_eq(stats->inactive_split_bytes.current, sizes[_i].segment - sizes[_i].block);
}
END_TEST

START_TEST(the_large_segment_size_can_be_set)
{
  AllocatorConfig config = allocator_config_default();
  config.large_segment_size = 32 * MIB;
  g_autoptr(Fixture) fixture = fixture_new(&config);
  fixture_malloc(fixture, 2 * MIB, 0);
  fixture_malloc(fixture, 10 * MIB, 0); /* from the 30 MiB that are left of the first */
  fixture_malloc(fixture, 24 * MIB, 0);
  ck_assert_str_eq(fixture->log->str, "alloc 32M, alloc 24M");
}
END_TEST

static const struct {
  int divisions;
  gint64 bytes, block;
} divided[] = {
    /* Up to 512 bytes times the divisions: plain rounding. */
    {4, 1200, 1536},
    {4, 2048, 2048},
    /* 2048 to 4096 in steps of 512, 4096 to 8192 in steps of 1024, and so on. */
    {4, 2049, 2560},
    {4, 4096, 4096},
    {4, 5000, 5120},
    {4, 5120, 5120},
    {4, 7169, 8192},
    {8, 5000, 5120},
    {2, 5000, 6144},
    {4, MIB + 1, MIB + 256 * KIB},
    /* One division is none. */
    {1, 5000, 5120},
    {0, 5000, 5120},
};

START_TEST(sizes_can_be_rounded_to_divisions_of_powers_of_two)
{
  AllocatorConfig config = allocator_config_default();
  config.roundup_power2_divisions = divided[_i].divisions;
  g_autoptr(Fixture) fixture = fixture_new(&config);
  BlockHandle block = fixture_malloc(fixture, divided[_i].bytes, 0);
  ck_assert_int_eq(caching_allocator_block_size(fixture->allocator, block), divided[_i].block);
}
END_TEST

START_TEST(small_and_large_requests_share_no_segment)
{
  const AllocatorConfig config = allocator_config_default();
  g_autoptr(Fixture) fixture = fixture_new(&config);
  fixture_cache(fixture, 8 * MIB, 0);
  fixture_malloc(fixture, 512, 0); /* 20 MiB are free, but in the large pool */
  ck_assert_str_eq(fixture->log->str, "alloc 20M, alloc 2M");
  const AllocatorStats *stats = caching_allocator_stats(fixture->allocator);
  ck_assert_int_eq(stats->reserved_small.current, 2 * MIB);
  ck_assert_int_eq(stats->reserved_large.current, 20 * MIB);
  ck_assert_int_eq(stats->segments.current, 2);
}
END_TEST

/* Bytes from the first block of the test. */
static gint64
offset_of(const Fixture *fixture, BlockHandle first, BlockHandle block)
{
  return (gint64) (caching_allocator_address(fixture->allocator, block) -
                   caching_allocator_address(fixture->allocator, first));
}

START_TEST(best_fit_takes_the_smallest_block_and_the_lowest_address)
{
  const AllocatorConfig config = allocator_config_default();
  g_autoptr(Fixture) fixture = fixture_new(&config);
  /* 0..4 x, 4..6 kept, 6..9 x, 9..11 kept, 11..15 x, 15..17 kept, 17..20 left over */
  BlockHandle x[3];
  static const gint64 at[] = {4, 3, 4};
  for (int i = 0; i < 3; i++) {
    x[i] = fixture_malloc(fixture, at[i] * MIB, 0);
    fixture_malloc(fixture, 2 * MIB, 0);
  }
  BlockHandle first = x[0];
  const guint64 base = caching_allocator_address(fixture->allocator, first);
  for (int i = 0; i < 3; i++)
    fixture_release(fixture, x[i]);
  /* Free are 3 at 6, 3 at 17, 4 at 0, 4 at 11. */
  static const struct {
    gint64 request, offset, size;
  } expected[] = {
      {3, 6, 3},
      {3, 17, 3},
      {4, 0, 4},
      /* A remainder of 1 MiB is not cut off. */
      {3, 11, 4},
  };
  for (guint i = 0; i < G_N_ELEMENTS(expected); i++) {
    BlockHandle block = fixture_malloc(fixture, expected[i].request * MIB, 0);
    ck_assert_uint_eq(caching_allocator_address(fixture->allocator, block),
                      base + (guint64) (expected[i].offset * MIB));
    ck_assert_int_eq(caching_allocator_block_size(fixture->allocator, block),
                     expected[i].size * MIB);
  }
  ck_assert_str_eq(fixture->log->str, "alloc 20M");
}
END_TEST

START_TEST(a_split_hands_out_the_low_part)
{
  const AllocatorConfig config = allocator_config_default();
  g_autoptr(Fixture) fixture = fixture_new(&config);
  BlockHandle first = fixture_malloc(fixture, 512, 0);
  ck_assert_int_eq(offset_of(fixture, first, fixture_malloc(fixture, 1024, 0)), 512);
  ck_assert_int_eq(offset_of(fixture, first, fixture_malloc(fixture, 1, 0)), 1536);
  /* In the small pool even 512 bytes are cut off: 2 MiB less 2048 less 1 MiB is what is left. */
  BlockHandle block = fixture_malloc(fixture, MIB - 2048 - 512, 0);
  ck_assert_int_eq(caching_allocator_block_size(fixture->allocator, block), MIB - 2560);
  ck_assert_int_eq(offset_of(fixture, first, fixture_malloc(fixture, MIB, 0)), MIB - 512);
  ck_assert_int_eq(offset_of(fixture, first, fixture_malloc(fixture, 512, 0)), 2 * MIB - 512);
}
END_TEST

/* All orders of freeing three neighbours. */
static const int orders[][3] = {{0, 1, 2}, {0, 2, 1}, {1, 0, 2}, {1, 2, 0}, {2, 0, 1}, {2, 1, 0}};

START_TEST(free_neighbours_merge_in_any_order)
{
  const AllocatorConfig config = allocator_config_default();
  g_autoptr(Fixture) fixture = fixture_new(&config);
  BlockHandle blocks[3];
  for (int i = 0; i < 3; i++)
    blocks[i] = fixture_malloc(fixture, 6 * MIB, 0);
  const guint64 base = caching_allocator_address(fixture->allocator, blocks[0]);
  for (int i = 0; i < 3; i++)
    fixture_release(fixture, blocks[orders[_i][i]]);
  const AllocatorStats *stats = caching_allocator_stats(fixture->allocator);
  ck_assert_int_eq(stats->inactive_split_bytes.current, 0);
  BlockHandle whole = fixture_malloc(fixture, 20 * MIB, 0);
  ck_assert_uint_eq(caching_allocator_address(fixture->allocator, whole), base);
  ck_assert_int_eq(stats->num_device_alloc, 1);
}
END_TEST

START_TEST(inactive_split_bytes_are_the_free_parts_of_split_segments)
{
  const AllocatorConfig config = allocator_config_default();
  g_autoptr(Fixture) fixture = fixture_new(&config);
  const AllocatorStat *stat = &caching_allocator_stats(fixture->allocator)->inactive_split_bytes;
  BlockHandle a = fixture_malloc(fixture, 5 * MIB, 0);
  ck_assert_int_eq(stat->current, 15 * MIB);
  BlockHandle b = fixture_malloc(fixture, 5 * MIB, 0);
  ck_assert_int_eq(stat->current, 10 * MIB);
  fixture_release(fixture, a);
  ck_assert_int_eq(stat->current, 15 * MIB);
  fixture_malloc(fixture, 10 * MIB, 0); /* all that was left over */
  ck_assert_int_eq(stat->current, 5 * MIB);
  fixture_release(fixture, b); /* merges with the first */
  ck_assert_int_eq(stat->current, 10 * MIB);
  ck_assert_int_eq(stat->peak, 15 * MIB);
}
END_TEST

START_TEST(a_free_block_serves_only_its_own_stream)
{
  const AllocatorConfig config = allocator_config_default();
  g_autoptr(Fixture) fixture = fixture_new(&config);
  fixture_cache(fixture, 10 * MIB, 1);
  fixture_malloc(fixture, 10 * MIB, 0);
  fixture_malloc(fixture, 10 * MIB, 2);
  ck_assert_str_eq(fixture->log->str, "alloc 10M, alloc 10M, alloc 10M");
  fixture_malloc(fixture, 10 * MIB, 1);
  ck_assert_int_eq(caching_allocator_stats(fixture->allocator)->num_device_alloc, 3);
  ck_assert_int_eq(caching_allocator_cached_bytes(fixture->allocator, 1), 0);
}
END_TEST

START_TEST(statistics_keep_peaks_and_sums)
{
  const AllocatorConfig config = allocator_config_default();
  g_autoptr(Fixture) fixture = fixture_new(&config);
  const AllocatorStats *stats = caching_allocator_stats(fixture->allocator);
  BlockHandle a = fixture_malloc(fixture, 10 * MIB, 0);
  fixture_cache(fixture, 1000, 0);
  ck_assert_int_eq(stats->allocated_bytes.current, 10 * MIB);
  ck_assert_int_eq(stats->allocated_bytes.peak, 10 * MIB + 1024);
  ck_assert_int_eq(stats->allocated_bytes.allocated, 10 * MIB + 1024);
  ck_assert_int_eq(stats->allocated_bytes.freed, 1024);
  ck_assert_int_eq(stats->requested_bytes.peak, 10 * MIB + 1000);
  ck_assert_int_eq(stats->allocations.current, 1);
  ck_assert_int_eq(stats->allocations.peak, 2);
  caching_allocator_reset_peak(fixture->allocator);
  ck_assert_int_eq(stats->allocated_bytes.peak, 10 * MIB);
  ck_assert_int_eq(stats->allocations.peak, 1);
  fixture_release(fixture, a);
  ck_assert_int_eq(stats->allocated_bytes.peak, 10 * MIB);
  ck_assert_int_eq(stats->reserved_bytes.peak, 12 * MIB);
}
END_TEST

/* ---- Streams and events */

START_TEST(a_block_used_on_another_stream_waits_for_it)
{
  const AllocatorConfig config = allocator_config_default();
  g_autoptr(Fixture) fixture = fixture_new(&config);
  const AllocatorStats *stats = caching_allocator_stats(fixture->allocator);
  BlockHandle a = fixture_malloc(fixture, MIB, 0);
  const guint64 address = caching_allocator_address(fixture->allocator, a);
  caching_allocator_record_stream(fixture->allocator, a, 1);
  caching_allocator_record_stream(fixture->allocator, a, 1); /* once is enough */
  fixture_release(fixture, a);
  ck_assert_uint_eq(fixture->done->len, 1);
  ck_assert_int_eq(stats->allocated_bytes.current, 0);
  ck_assert_int_eq(stats->active_bytes.current, MIB);
  ck_assert_int_eq(stats->requested_bytes.current, MIB);
  /* The other half of the segment, then a second one. */
  fixture_malloc(fixture, MIB, 0);
  fixture_malloc(fixture, MIB, 0);
  ck_assert_int_eq(stats->segments.current, 2);
  fixture_complete(fixture, 0);
  BlockHandle again = fixture_malloc(fixture, MIB, 0);
  ck_assert_uint_eq(caching_allocator_address(fixture->allocator, again), address);
  ck_assert_int_eq(stats->active_bytes.current, 3 * MIB);
}
END_TEST

START_TEST(recording_the_owners_stream_changes_nothing)
{
  const AllocatorConfig config = allocator_config_default();
  g_autoptr(Fixture) fixture = fixture_new(&config);
  BlockHandle a = fixture_malloc(fixture, MIB, 3);
  caching_allocator_record_stream(fixture->allocator, a, 3);
  fixture_release(fixture, a);
  ck_assert_uint_eq(fixture->done->len, 0);
  ck_assert_int_eq(caching_allocator_stats(fixture->allocator)->active_bytes.current, 0);
}
END_TEST

START_TEST(a_block_used_on_two_streams_waits_for_both)
{
  const AllocatorConfig config = allocator_config_default();
  g_autoptr(Fixture) fixture = fixture_new(&config);
  BlockHandle a = fixture_malloc(fixture, 10 * MIB, 0);
  caching_allocator_record_stream(fixture->allocator, a, 1);
  caching_allocator_record_stream(fixture->allocator, a, 2);
  fixture_release(fixture, a);
  ck_assert_uint_eq(fixture->done->len, 2);
  fixture_complete(fixture, 1);
  fixture_malloc(fixture, 512, 0); /* looks at the events */
  ck_assert_int_eq(caching_allocator_cached_bytes(fixture->allocator, 0), 2 * MIB - 512);
  fixture_complete(fixture, 0);
  fixture_malloc(fixture, 10 * MIB, 0);
  ck_assert_str_eq(fixture->log->str, "alloc 10M, alloc 2M");
}
END_TEST

START_TEST(events_are_looked_at_in_order_on_each_stream_alone)
{
  const AllocatorConfig config = allocator_config_default();
  g_autoptr(Fixture) fixture = fixture_new(&config);
  /* Events 0 and 1 are on stream 1, event 2 on stream 2. */
  static const int used_on[] = {1, 1, 2};
  BlockHandle blocks[3];
  for (int i = 0; i < 3; i++)
    blocks[i] = fixture_malloc(fixture, (10 + 2 * i) * MIB, 0);
  for (int i = 0; i < 3; i++) {
    caching_allocator_record_stream(fixture->allocator, blocks[i], used_on[i]);
    fixture_release(fixture, blocks[i]);
  }
  fixture_complete(fixture, 1);
  fixture_complete(fixture, 2);
  fixture_malloc(fixture, 512, 3);
  /* Event 1 stands behind event 0; event 2 does not. */
  ck_assert_int_eq(caching_allocator_cached_bytes(fixture->allocator, 0), 14 * MIB);
  fixture_complete(fixture, 0);
  fixture_malloc(fixture, 512, 3);
  ck_assert_int_eq(caching_allocator_cached_bytes(fixture->allocator, 0), 36 * MIB);
}
END_TEST

START_TEST(without_a_host_events_are_over_at_the_next_call)
{
  const AllocatorConfig config = allocator_config_default();
  g_autoptr(CachingAllocator) allocator = caching_allocator_new(&config, NULL);
  BlockHandle a = caching_allocator_malloc(allocator, 10 * MIB, 0, NULL);
  caching_allocator_record_stream(allocator, a, 1);
  caching_allocator_release(allocator, a);
  ck_assert_int_eq(caching_allocator_stats(allocator)->active_bytes.current, 10 * MIB);
  caching_allocator_malloc(allocator, 10 * MIB, 0, NULL);
  ck_assert_int_eq(caching_allocator_stats(allocator)->num_device_alloc, 1);
}
END_TEST

/* ---- Running out */

START_TEST(a_full_device_gives_back_what_is_cached_on_all_streams)
{
  AllocatorConfig config = allocator_config_default();
  config.memory_limit = 42 * MIB;
  g_autoptr(Fixture) fixture = fixture_new(&config);
  fixture_cache(fixture, 512, 0);
  fixture_cache(fixture, 24 * MIB, 3);
  fixture_cache(fixture, 16 * MIB, 1);
  /* All 42 MiB are cached.  Stream 2 has none of it: the large pool goes first, by stream. */
  fixture_malloc(fixture, 30 * MIB, 2);
  ck_assert_str_eq(fixture->log->str,
                   "alloc 2M, alloc 24M, alloc 16M, free 16M, free 24M, free 2M, alloc 30M");
  ck_assert_int_eq(caching_allocator_stats(fixture->allocator)->num_alloc_retries, 1);
  ck_assert_int_eq(caching_allocator_stats(fixture->allocator)->num_ooms, 0);
  ck_assert_int_eq(caching_allocator_stats(fixture->allocator)->num_device_free, 3);
}
END_TEST

START_TEST(a_partly_used_segment_cannot_be_given_back)
{
  AllocatorConfig config = allocator_config_default();
  config.memory_limit = 40 * MIB;
  g_autoptr(Fixture) fixture = fixture_new(&config);
  fixture_malloc(fixture, 2 * MIB, 0);
  fixture_cache(fixture, 20 * MIB, 1);
  AllocatorFailure failure;
  BlockHandle block = caching_allocator_malloc(fixture->allocator, 21 * MIB, 2, &failure);
  ck_assert_int_eq(block, BLOCK_NONE);
  caching_allocator_check(fixture->allocator);
  ck_assert_str_eq(fixture->log->str, "alloc 20M, alloc 20M, free 20M");
  ck_assert_int_eq(failure.requested_bytes, 21 * MIB);
  ck_assert_int_eq(failure.segment_bytes, 22 * MIB);
  ck_assert_int_eq(failure.limit_bytes, 40 * MIB);
  ck_assert_int_eq(failure.allocated_bytes, 2 * MIB);
  ck_assert_int_eq(failure.reserved_bytes, 20 * MIB);
  const AllocatorStats *stats = caching_allocator_stats(fixture->allocator);
  ck_assert_int_eq(stats->num_ooms, 1);
  ck_assert_int_eq(stats->num_alloc_retries, 1);
  fixture_malloc(fixture, 20 * MIB, 2); /* life goes on: this fits */
}
END_TEST

START_TEST(a_full_device_waits_for_frees_that_are_under_way)
{
  AllocatorConfig config = allocator_config_default();
  config.memory_limit = 20 * MIB;
  g_autoptr(Fixture) fixture = fixture_new(&config);
  BlockHandle a = fixture_malloc(fixture, 20 * MIB, 0);
  caching_allocator_record_stream(fixture->allocator, a, 1);
  fixture_release(fixture, a);
  fixture_malloc(fixture, 12 * MIB, 0);
  ck_assert_uint_eq(fixture->n_waits, 1);
  ck_assert_str_eq(fixture->log->str, "alloc 20M, free 20M, alloc 12M");
}
END_TEST

START_TEST(the_device_can_shrink)
{
  const AllocatorConfig config = allocator_config_default();
  g_autoptr(Fixture) fixture = fixture_new(&config);
  fixture_malloc(fixture, 40 * MIB, 0);
  caching_allocator_set_limit(fixture->allocator, 30 * MIB);
  ck_assert_int_eq(caching_allocator_malloc(fixture->allocator, 512, 0, NULL), BLOCK_NONE);
  caching_allocator_set_limit(fixture->allocator, 42 * MIB);
  fixture_malloc(fixture, 512, 0);
}
END_TEST

static const gint64 absurd[] = {(gint64) 1 << 52, (gint64) 1 << 56, G_MAXINT64 - 511, G_MAXINT64};

START_TEST(a_request_beyond_any_device_fails_and_does_not_overflow)
{
  AllocatorConfig config = allocator_config_default();
  config.expandable_segments = _i % 2;
  config.roundup_power2_divisions = _i / 8 ? 8 : 0;
  g_autoptr(Fixture) fixture = fixture_new(&config);
  AllocatorFailure failure;
  gint64 bytes = absurd[_i / 2 % 4];
  ck_assert_int_eq(caching_allocator_malloc(fixture->allocator, bytes, 0, &failure), BLOCK_NONE);
  ck_assert_int_eq(failure.requested_bytes, bytes);
  caching_allocator_check(fixture->allocator);
  fixture_malloc(fixture, 10 * MIB, 0);
}
END_TEST

START_TEST(emptying_the_cache_waits_and_keeps_what_is_in_use)
{
  const AllocatorConfig config = allocator_config_default();
  g_autoptr(Fixture) fixture = fixture_new(&config);
  fixture_malloc(fixture, 512, 0);
  fixture_cache(fixture, 20 * MIB, 1);
  BlockHandle a = fixture_malloc(fixture, 12 * MIB, 0);
  caching_allocator_record_stream(fixture->allocator, a, 1);
  fixture_release(fixture, a);
  caching_allocator_empty_cache(fixture->allocator);
  caching_allocator_check(fixture->allocator);
  ck_assert_uint_eq(fixture->n_waits, 1);
  ck_assert_str_eq(fixture->log->str, "alloc 2M, alloc 20M, alloc 12M, free 12M, free 20M");
  ck_assert_int_eq(caching_allocator_stats(fixture->allocator)->reserved_bytes.current, 2 * MIB);
  ck_assert_int_eq(caching_allocator_stats(fixture->allocator)->num_alloc_retries, 0);
}
END_TEST

/* ---- max_split_size */

START_TEST(an_oversize_block_is_neither_split_nor_given_to_small_requests)
{
  AllocatorConfig config = allocator_config_default();
  config.max_split_size = 32 * MIB;
  g_autoptr(Fixture) fixture = fixture_new(&config);
  fixture_cache(fixture, 60 * MIB, 0);
  fixture_malloc(fixture, 29 * MIB, 0);
  ck_assert_str_eq(fixture->log->str, "alloc 60M, alloc 30M");
  /* 33 MiB may be rounded up by less than 20 MiB: not to 60.  Its own segment is not cut. */
  BlockHandle odd = fixture_malloc(fixture, 32 * MIB + 512, 0);
  ck_assert_str_eq(fixture->log->str, "alloc 60M, alloc 30M, alloc 34M");
  ck_assert_int_eq(caching_allocator_block_size(fixture->allocator, odd), 34 * MIB);
  /* 41 MiB may. */
  BlockHandle block = fixture_malloc(fixture, 41 * MIB, 0);
  ck_assert_int_eq(caching_allocator_block_size(fixture->allocator, block), 60 * MIB);
  ck_assert_int_eq(caching_allocator_stats(fixture->allocator)->num_device_alloc, 3);
}
END_TEST

START_TEST(one_large_enough_oversize_block_is_released_before_all_else)
{
  AllocatorConfig config = allocator_config_default();
  config.max_split_size = 20 * MIB;
  config.memory_limit = 100 * MIB;
  g_autoptr(Fixture) fixture = fixture_new(&config);
  fixture_cache(fixture, 80 * MIB, 0);
  fixture_cache(fixture, 10 * MIB, 0);
  /* 80 MiB are too much for 50; 90 reserved and 50 are too much for the device. */
  fixture_malloc(fixture, 50 * MIB, 0);
  ck_assert_str_eq(fixture->log->str, "alloc 80M, alloc 10M, free 80M, alloc 50M");
  ck_assert_int_eq(caching_allocator_stats(fixture->allocator)->num_alloc_retries, 0);
}
END_TEST

static const struct {
  gint64 request;
  const char *log;
  int retries;
} oversize_releases[] = {
    /* 40 and 30 are enough for 60 and are found by going down. */
    {60, "free 40M, free 30M, alloc 60M", 0},
    /* All three are not enough for 95: released all the same, then the whole cache, which is empty.
     */
    {95, "free 40M, free 30M, free 22M, alloc 96M", 1},
};

START_TEST(several_oversize_blocks_are_released_from_the_largest_down)
{
  AllocatorConfig config = allocator_config_default();
  config.max_split_size = 20 * MIB;
  config.memory_limit = 100 * MIB;
  g_autoptr(Fixture) fixture = fixture_new(&config);
  static const gint64 mebibytes[] = {22, 30, 40};
  BlockHandle held[3];
  for (int i = 0; i < 3; i++)
    held[i] = fixture_malloc(fixture, mebibytes[i] * MIB, 0);
  for (int i = 0; i < 3; i++)
    fixture_release(fixture, held[i]);
  g_string_truncate(fixture->log, 0);
  fixture_malloc(fixture, oversize_releases[_i].request * MIB, 0);
  ck_assert_str_eq(fixture->log->str, oversize_releases[_i].log);
  ck_assert_int_eq(caching_allocator_stats(fixture->allocator)->num_alloc_retries,
                   oversize_releases[_i].retries);
}
END_TEST

/* ---- Limit of the process and garbage collection */

START_TEST(the_process_has_a_limit_of_its_own)
{
  AllocatorConfig config = allocator_config_default();
  config.process_limit = 30 * MIB;
  g_autoptr(Fixture) fixture = fixture_new(&config);
  fixture_malloc(fixture, 20 * MIB, 0);
  AllocatorFailure failure;
  ck_assert_int_eq(caching_allocator_malloc(fixture->allocator, 12 * MIB, 0, &failure), BLOCK_NONE);
  ck_assert_int_eq(failure.limit_bytes, 30 * MIB);
  fixture_malloc(fixture, 10 * MIB, 0);
}
END_TEST

static AllocatorConfig
collecting(double threshold)
{
  AllocatorConfig config = allocator_config_default();
  config.process_limit = 200 * MIB;
  config.garbage_collection_threshold = threshold;
  return config;
}

START_TEST(garbage_older_than_the_average_is_collected)
{
  const AllocatorConfig config = collecting(0.5);
  g_autoptr(Fixture) fixture = fixture_new(&config);
  /* Searches 1 to 4: four segments of 30 MiB.  Before the fourth 90 MiB are below the threshold of
   * 100. */
  BlockHandle blocks[4];
  for (int i = 0; i < 4; i++)
    blocks[i] = fixture_malloc(fixture, 30 * MIB, 0);
  fixture_release(fixture, blocks[0]);
  fixture_release(fixture, blocks[1]);
  /* Search 5 takes the first of the two, which is free again afterwards: idle since 5. */
  const guint64 address = caching_allocator_address(fixture->allocator, blocks[0]);
  fixture_cache(fixture, 30 * MIB, 0);
  /* Search 6 misses with 120 MiB reserved, 20 too many.  Ages are 1 and 2, the average 1.5: the
   * second block goes, and that is enough. */
  fixture_malloc(fixture, 40 * MIB, 0);
  ck_assert_str_eq(fixture->log->str,
                   "alloc 30M, alloc 30M, alloc 30M, alloc 30M, free 30M, alloc 40M");
  BlockHandle kept = fixture_malloc(fixture, 30 * MIB, 0);
  ck_assert_uint_eq(caching_allocator_address(fixture->allocator, kept), address);
}
END_TEST

START_TEST(garbage_below_the_threshold_stays)
{
  const AllocatorConfig config = collecting(0.5);
  g_autoptr(Fixture) fixture = fixture_new(&config);
  fixture_cache(fixture, 100 * MIB, 0);
  fixture_malloc(fixture, 40 * MIB, 1);
  ck_assert_str_eq(fixture->log->str, "alloc 100M, alloc 40M");
  /* Now there are 140; only the large pool is collected. */
  fixture_cache(fixture, 512, 0);
  ck_assert_str_eq(fixture->log->str, "alloc 100M, alloc 40M, free 100M, alloc 2M");
}
END_TEST

START_TEST(garbage_is_collected_only_under_a_limit_of_the_process)
{
  AllocatorConfig config = collecting(0.1);
  config.process_limit = G_MAXINT64;
  config.memory_limit = 200 * MIB;
  g_autoptr(Fixture) fixture = fixture_new(&config);
  fixture_cache(fixture, 100 * MIB, 0);
  fixture_malloc(fixture, 40 * MIB, 1);
  ck_assert_str_eq(fixture->log->str, "alloc 100M, alloc 40M");
}
END_TEST

/* ---- What others see */

START_TEST(the_outlook_says_what_the_next_malloc_will_do)
{
  AllocatorConfig config = allocator_config_default();
  config.memory_limit = 40 * MIB;
  g_autoptr(Fixture) fixture = fixture_new(&config);
  fixture_cache(fixture, 20 * MIB, 0);
  ck_assert_int_eq(caching_allocator_outlook(fixture->allocator, 20 * MIB, 0), MALLOC_REUSES);
  ck_assert_int_eq(caching_allocator_outlook(fixture->allocator, 20 * MIB, 1), MALLOC_GROWS);
  ck_assert_int_eq(caching_allocator_outlook(fixture->allocator, 21 * MIB, 1), MALLOC_WAITS);
  const AllocatorConfig other = collecting(0.1);
  g_autoptr(Fixture) collector = fixture_new(&other);
  fixture_cache(collector, 30 * MIB, 0);
  ck_assert_int_eq(caching_allocator_outlook(collector->allocator, 40 * MIB, 0), MALLOC_COLLECTS);
}
END_TEST

static void
describe_block(const BlockInfo *info, gpointer user)
{
  static const char *const states[] = {
      [BLOCK_INACTIVE] = "free", [BLOCK_ALLOCATED] = "live", [BLOCK_PENDING_FREE] = "waits"};
  g_string_append_printf(user, "%s%d+%d of %d on %d %s", info->small_pool ? "small " : "",
                         (int) ((info->address - info->segment_address) / KIB),
                         (int) (info->bytes / KIB), (int) (info->segment_bytes / KIB), info->stream,
                         states[info->state]);
  g_string_append(user, "\n");
}

START_TEST(all_blocks_can_be_visited_in_order_of_addresses)
{
  const AllocatorConfig config = allocator_config_default();
  g_autoptr(Fixture) fixture = fixture_new(&config);
  BlockHandle a = fixture_malloc(fixture, 4 * MIB, 1);
  fixture_malloc(fixture, 512 * KIB, 0);
  BlockHandle b = fixture_malloc(fixture, 6 * MIB, 1);
  fixture_release(fixture, a);
  caching_allocator_record_stream(fixture->allocator, b, 0);
  fixture_release(fixture, b);
  g_autoptr(GString) text = g_string_new(NULL);
  caching_allocator_visit(fixture->allocator, describe_block, text);
  ck_assert_str_eq(text->str, "0+4096 of 20480 on 1 free\n"
                              "4096+6144 of 20480 on 1 waits\n"
                              "10240+10240 of 20480 on 1 free\n"
                              "small 0+512 of 2048 on 0 live\n"
                              "small 512+1536 of 2048 on 0 free\n");
}
END_TEST

static TCase *
case_of(Suite *suite, const char *name)
{
  TCase *tcase = tcase_create(name);
  suite_add_tcase(suite, tcase);
  return tcase;
}

static void
add_reuse_tests(TCase *tcase)
{
  tcase_add_test(tcase, small_and_large_requests_share_no_segment);
  tcase_add_test(tcase, best_fit_takes_the_smallest_block_and_the_lowest_address);
  tcase_add_test(tcase, a_split_hands_out_the_low_part);
  tcase_add_loop_test(tcase, free_neighbours_merge_in_any_order, 0, G_N_ELEMENTS(orders));
  tcase_add_test(tcase, inactive_split_bytes_are_the_free_parts_of_split_segments);
  tcase_add_test(tcase, a_free_block_serves_only_its_own_stream);
  tcase_add_test(tcase, statistics_keep_peaks_and_sums);
  tcase_add_test(tcase, the_outlook_says_what_the_next_malloc_will_do);
  tcase_add_test(tcase, all_blocks_can_be_visited_in_order_of_addresses);
}

static void
add_event_tests(TCase *tcase)
{
  tcase_add_test(tcase, a_block_used_on_another_stream_waits_for_it);
  tcase_add_test(tcase, recording_the_owners_stream_changes_nothing);
  tcase_add_test(tcase, a_block_used_on_two_streams_waits_for_both);
  tcase_add_test(tcase, events_are_looked_at_in_order_on_each_stream_alone);
  tcase_add_test(tcase, without_a_host_events_are_over_at_the_next_call);
}

static void
add_release_tests(TCase *tcase)
{
  tcase_add_test(tcase, a_full_device_gives_back_what_is_cached_on_all_streams);
  tcase_add_test(tcase, a_partly_used_segment_cannot_be_given_back);
  tcase_add_test(tcase, a_full_device_waits_for_frees_that_are_under_way);
  tcase_add_test(tcase, the_device_can_shrink);
  tcase_add_loop_test(tcase, a_request_beyond_any_device_fails_and_does_not_overflow, 0, 16);
  tcase_add_test(tcase, emptying_the_cache_waits_and_keeps_what_is_in_use);
  tcase_add_test(tcase, an_oversize_block_is_neither_split_nor_given_to_small_requests);
  tcase_add_test(tcase, one_large_enough_oversize_block_is_released_before_all_else);
  tcase_add_loop_test(tcase, several_oversize_blocks_are_released_from_the_largest_down, 0,
                      G_N_ELEMENTS(oversize_releases));
  tcase_add_test(tcase, the_process_has_a_limit_of_its_own);
  tcase_add_test(tcase, garbage_older_than_the_average_is_collected);
  tcase_add_test(tcase, garbage_below_the_threshold_stays);
  tcase_add_test(tcase, garbage_is_collected_only_under_a_limit_of_the_process);
}

Suite *
test_suite(void)
{
  Suite *suite = suite_create("caching_allocator");
  TCase *sizes_case = case_of(suite, "sizes");
  tcase_add_loop_test(sizes_case, a_request_is_rounded_and_cut_from_a_segment_of_its_size_class, 0,
                      G_N_ELEMENTS(sizes));
  tcase_add_test(sizes_case, the_large_segment_size_can_be_set);
  tcase_add_loop_test(sizes_case, sizes_can_be_rounded_to_divisions_of_powers_of_two, 0,
                      G_N_ELEMENTS(divided));
  add_reuse_tests(case_of(suite, "reuse"));
  add_event_tests(case_of(suite, "events"));
  add_release_tests(case_of(suite, "release"));
  return suite;
}
