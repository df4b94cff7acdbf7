/* check_expandable_segments.c - the caching allocator with expandable segments: pages, growth,
 * choice of blocks, unmapping, limits.  Not pinned: where reservations lie. */
#include "allocator_fixture.h"
#include "tap_main.h"

static AllocatorConfig
expandable(void)
{
  AllocatorConfig config = allocator_config_default();
  config.expandable_segments = TRUE;
  config.device_total_bytes = 80 * GIB;
  return config;
}

static guint64
address_of(const Fixture *fixture, BlockHandle block)
{
  return caching_allocator_address(fixture->allocator, block);
}

START_TEST(memory_grows_by_pages_of_its_pool)
{
  const AllocatorConfig config = expandable();
  g_autoptr(Fixture) fixture = fixture_new(&config);
  fixture_malloc(fixture, 512, 0);
  fixture_malloc(fixture, 3 * MIB, 0);
  /* 17 MiB of the page are left: 17 - 15 remain, then 25 need two pages more less 2. */
  fixture_malloc(fixture, 15 * MIB, 0);
  fixture_malloc(fixture, 25 * MIB, 0);
  ck_assert_str_eq(fixture->log->str, "map 2M, map 20M, map 40M");
  const AllocatorStats *stats = caching_allocator_stats(fixture->allocator);
  ck_assert_int_eq(stats->reserved_bytes.current, 62 * MIB);
  ck_assert_int_eq(stats->segments.current, 0);
  ck_assert_int_eq(stats->inactive_split_bytes.peak, 0);
  ck_assert_int_eq(stats->num_device_alloc, 3);
}
END_TEST

START_TEST(blocks_follow_each_other_in_one_reservation)
{
  const AllocatorConfig config = expandable();
  g_autoptr(Fixture) fixture = fixture_new(&config);
  BlockHandle a = fixture_malloc(fixture, 15 * MIB, 0);
  BlockHandle b = fixture_malloc(fixture, 25 * MIB, 0);
  BlockHandle c = fixture_malloc(fixture, 2 * MIB, 0);
  ck_assert_uint_eq(address_of(fixture, b), address_of(fixture, a) + 15 * MIB);
  ck_assert_uint_eq(address_of(fixture, c), address_of(fixture, a) + 40 * MIB);
  /* Even 512 bytes are cut off, in the large pool too. */
  BlockHandle d = fixture_malloc(fixture, 20 * MIB - 2 * MIB - 512, 0);
  ck_assert_int_eq(caching_allocator_block_size(fixture->allocator, d), 18 * MIB - 512);
}
END_TEST

START_TEST(streams_and_pools_have_reservations_of_their_own)
{
  const AllocatorConfig config = expandable();
  g_autoptr(Fixture) fixture = fixture_new(&config);
  BlockHandle blocks[4] = {
      fixture_malloc(fixture, 3 * MIB, 0),
      fixture_malloc(fixture, 3 * MIB, 1),
      fixture_malloc(fixture, 512, 0),
      fixture_malloc(fixture, 512, 1),
  };
  /* Each is 90 GiB long: 1 1/8 of the device. */
  for (int i = 0; i < 4; i++) {
    for (int k = 0; k < i; k++) {
      guint64 a = address_of(fixture, blocks[i]), b = address_of(fixture, blocks[k]);
      ck_assert_uint_ge(MAX(a, b) - MIN(a, b), 90 * (guint64) GIB);
    }
  }
}
END_TEST

START_TEST(the_block_that_can_grow_least_is_the_best_fit)
{
  const AllocatorConfig config = expandable();
  g_autoptr(Fixture) fixture = fixture_new(&config);
  /* 0..10 x, 10..12 kept, 12..20 the growing end: smaller, but it can grow without bounds. */
  BlockHandle x = fixture_malloc(fixture, 10 * MIB, 0);
  const guint64 base = address_of(fixture, x);
  fixture_malloc(fixture, 2 * MIB, 0);
  fixture_release(fixture, x);
  ck_assert_uint_eq(address_of(fixture, fixture_malloc(fixture, 7 * MIB, 0)), base);
  /* The next one of 7 MiB fits only at the end. */
  ck_assert_uint_eq(address_of(fixture, fixture_malloc(fixture, 7 * MIB, 0)),
                    base + 12 * (guint64) MIB);
  ck_assert_str_eq(fixture->log->str, "map 20M");
}
END_TEST

START_TEST(emptying_the_cache_unmaps_whole_pages_only)
{
  const AllocatorConfig config = expandable();
  g_autoptr(Fixture) fixture = fixture_new(&config);
  /* 0..5 kept, 5..85 x, 85..90 kept, 90..100 left over: pages 1, 2 and 3 are all in x. */
  fixture_malloc(fixture, 5 * MIB, 0);
  BlockHandle x = fixture_malloc(fixture, 80 * MIB, 0);
  const guint64 middle = address_of(fixture, x);
  BlockHandle last = fixture_malloc(fixture, 5 * MIB, 0);
  fixture_release(fixture, x);
  g_string_truncate(fixture->log, 0);
  caching_allocator_empty_cache(fixture->allocator);
  caching_allocator_check(fixture->allocator);
  ck_assert_str_eq(fixture->log->str, "unmap 60M");
  ck_assert_int_eq(caching_allocator_stats(fixture->allocator)->reserved_bytes.current, 40 * MIB);
  /* 15, 5 and 10 MiB are left, mapped and free. */
  ck_assert_int_eq(caching_allocator_cached_bytes(fixture->allocator, 0), 30 * MIB);

  /* 50 MiB: 15 are there, 35 are mapped into the hole, in whole pages. */
  BlockHandle y = fixture_malloc(fixture, 50 * MIB, 0);
  ck_assert_uint_eq(address_of(fixture, y), middle);
  ck_assert_str_eq(fixture->log->str, "unmap 60M, map 40M");
  ck_assert_uint_lt(address_of(fixture, y), address_of(fixture, last));
}
END_TEST

START_TEST(a_reservation_goes_when_nothing_of_it_is_mapped)
{
  const AllocatorConfig config = expandable();
  g_autoptr(Fixture) fixture = fixture_new(&config);
  fixture_cache(fixture, 50 * MIB, 0);
  fixture_cache(fixture, 512, 0);
  caching_allocator_empty_cache(fixture->allocator);
  caching_allocator_check(fixture->allocator);
  ck_assert_str_eq(fixture->log->str, "map 60M, map 2M, unmap 60M, unmap 2M");
  ck_assert_int_eq(caching_allocator_stats(fixture->allocator)->reserved_bytes.current, 0);
  fixture_malloc(fixture, 50 * MIB, 0);
}
END_TEST

START_TEST(a_full_device_unmaps_what_is_free_and_maps_again)
{
  AllocatorConfig config = expandable();
  config.memory_limit = 100 * MIB;
  g_autoptr(Fixture) fixture = fixture_new(&config);
  fixture_cache(fixture, 60 * MIB, 1);
  fixture_malloc(fixture, 30 * MIB, 0);
  /* 100 MiB are mapped: 60 for stream 1, 40 for stream 0 with 10 left over.  25 MiB more are 15
   * beyond these, a page that stream 1 must give. */
  fixture_malloc(fixture, 25 * MIB, 0);
  ck_assert_str_eq(fixture->log->str, "map 60M, map 40M, unmap 60M, map 20M");
  ck_assert_int_eq(caching_allocator_stats(fixture->allocator)->num_alloc_retries, 1);
}
END_TEST

START_TEST(what_was_mapped_before_the_device_was_full_stays)
{
  AllocatorConfig config = expandable();
  config.memory_limit = 100 * MIB;
  g_autoptr(Fixture) fixture = fixture_new(&config);
  AllocatorFailure failure;
  fixture_malloc(fixture, 10 * MIB, 0);
  /* 10 are left, 120 missing: nothing is mapped in part. */
  ck_assert_int_eq(caching_allocator_malloc(fixture->allocator, 130 * MIB, 0, &failure),
                   BLOCK_NONE);
  caching_allocator_check(fixture->allocator);
  ck_assert_str_eq(fixture->log->str, "map 20M");
  ck_assert_int_eq(failure.reserved_bytes, 20 * MIB);
  ck_assert_int_eq(failure.segment_bytes, 130 * MIB);
  fixture_malloc(fixture, 90 * MIB, 0);
}
END_TEST

START_TEST(the_limit_of_the_process_counts_whole_segments)
{
  AllocatorConfig config = expandable();
  config.process_limit = 50 * MIB;
  g_autoptr(Fixture) fixture = fixture_new(&config);
  fixture_malloc(fixture, 19 * MIB, 0);
  /* Only 11 - 1 are missing, but a segment for it would be 12: 20 + 12 fit, 20 + 32 do not. */
  fixture_malloc(fixture, 11 * MIB, 0);
  ck_assert_str_eq(fixture->log->str, "map 20M, map 20M");
  ck_assert_int_eq(caching_allocator_malloc(fixture->allocator, 12 * MIB, 0, NULL), BLOCK_NONE);
}
END_TEST

START_TEST(a_request_beyond_a_reservation_fails)
{
  AllocatorConfig config = expandable();
  config.device_total_bytes = 160 * MIB; /* reservations of 180 */
  g_autoptr(Fixture) fixture = fixture_new(&config);
  ck_assert_int_eq(caching_allocator_malloc(fixture->allocator, 181 * MIB, 0, NULL), BLOCK_NONE);
  fixture_malloc(fixture, 180 * MIB, 0);
  /* It is full now: the next request gets another. */
  fixture_malloc(fixture, 60 * MIB, 0);
  ck_assert_str_eq(fixture->log->str, "map 180M, map 60M");
}
END_TEST

START_TEST(page_and_segment_size_of_the_large_pool_are_one_option)
{
  AllocatorConfig config = expandable();
  config.large_segment_size = 40 * MIB;
  g_autoptr(Fixture) fixture = fixture_new(&config);
  fixture_malloc(fixture, 3 * MIB, 0);
  fixture_malloc(fixture, 50 * MIB, 0);
  ck_assert_str_eq(fixture->log->str, "map 40M, map 40M");
}
END_TEST

START_TEST(frees_that_wait_are_not_unmapped_but_waited_for)
{
  AllocatorConfig config = expandable();
  config.memory_limit = 40 * MIB;
  g_autoptr(Fixture) fixture = fixture_new(&config);
  BlockHandle a = fixture_malloc(fixture, 40 * MIB, 0);
  caching_allocator_record_stream(fixture->allocator, a, 1);
  fixture_release(fixture, a);
  fixture_malloc(fixture, 20 * MIB, 1);
  ck_assert_uint_eq(fixture->n_waits, 1);
  ck_assert_str_eq(fixture->log->str, "map 40M, unmap 40M, map 20M");
}
END_TEST

Suite *
test_suite(void)
{
  Suite *suite = suite_create("expandable_segments");
  TCase *tcase = tcase_create("expandable_segments");
  suite_add_tcase(suite, tcase);
  tcase_add_test(tcase, memory_grows_by_pages_of_its_pool);
  tcase_add_test(tcase, blocks_follow_each_other_in_one_reservation);
  tcase_add_test(tcase, streams_and_pools_have_reservations_of_their_own);
  tcase_add_test(tcase, the_block_that_can_grow_least_is_the_best_fit);
  tcase_add_test(tcase, emptying_the_cache_unmaps_whole_pages_only);
  tcase_add_test(tcase, a_reservation_goes_when_nothing_of_it_is_mapped);
  tcase_add_test(tcase, a_full_device_unmaps_what_is_free_and_maps_again);
  tcase_add_test(tcase, what_was_mapped_before_the_device_was_full_stays);
  tcase_add_test(tcase, the_limit_of_the_process_counts_whole_segments);
  tcase_add_test(tcase, a_request_beyond_a_reservation_fails);
  tcase_add_test(tcase, page_and_segment_size_of_the_large_pool_are_one_option);
  tcase_add_test(tcase, frees_that_wait_are_not_unmapped_but_waited_for);
  return suite;
}
