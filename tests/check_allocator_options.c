/* check_allocator_options.c - PYTORCH_ALLOC_CONF: what each option sets, what is refused. */
#include "base/units.h"
#include "memory/allocator_options.h"
#include "tap_main.h"
#include <string.h>

START_TEST(every_option_sets_its_value)
{
  AllocatorConfig config = allocator_config_default();
  config.device_total_bytes = 80 * GIB;
  ck_assert(allocator_options_parse(&config,
                                    "max_split_size_mb:128, max_non_split_rounding_mb:30,"
                                    "garbage_collection_threshold:0.8,large_segment_size_mb:64,"
                                    "expandable_segments:True,per_process_memory_fraction:0.25,"
                                    "roundup_power2_divisions:4,backend:native",
                                    NULL));
  ck_assert_int_eq(config.max_split_size, 128 * MIB);
  ck_assert_int_eq(config.max_non_split_rounding, 30 * MIB);
  ck_assert_double_eq(config.garbage_collection_threshold, 0.8);
  ck_assert_int_eq(config.large_segment_size, 64 * MIB);
  ck_assert(config.expandable_segments);
  ck_assert_int_eq(config.process_limit, 20 * GIB);
  ck_assert_int_eq(config.roundup_power2_divisions, 4);
  ck_assert(allocator_options_parse(&config, "expandable_segments:False", NULL));
  ck_assert(!config.expandable_segments);
}
END_TEST

START_TEST(options_without_an_effect_on_device_memory_are_accepted)
{
  AllocatorConfig config = allocator_config_default();
  const AllocatorConfig before = config;
  ck_assert(allocator_options_parse(&config, "", NULL));
  ck_assert(allocator_options_parse(&config,
                                    "pinned_use_background_threads:True,"
                                    "release_lock_on_cudamalloc:True,"
                                    "graph_capture_record_stream_reuse:[a:b]",
                                    NULL));
  ck_assert(memcmp(&config, &before, sizeof config) == 0);
}
END_TEST

/* Sizes from 64 MiB are class 6 of the table, whose first class is 1 MiB and all below. */
START_TEST(divisions_may_differ_by_size)
{
  AllocatorConfig config = allocator_config_default();
  ck_assert(
      allocator_options_parse(&config, "roundup_power2_divisions:[64:8,256:4,1024:2,>:1]", NULL));
  static const int expected[ALLOCATOR_SIZE_CLASSES] = {8, 8, 8, 8, 8, 8, 8, 0,
                                                       4, 0, 2, 1, 1, 1, 1, 1};
  ck_assert_int_eq(config.roundup_power2_divisions, -1);
  for (int i = 0; i < ALLOCATOR_SIZE_CLASSES; i++)
    ck_assert_int_eq(config.roundup_power2_by_size[i], expected[i]);

  g_autoptr(CachingAllocator) allocator = caching_allocator_new(&config, NULL);
  static const struct {
    gint64 bytes, block;
  } rounded[] = {
      /* 64 to 128 MiB in steps of 8. */
      {65 * MIB, 72 * MIB},
      /* 128 to 256: plain, and its segment of 130 MiB is not cut for less than 1 MiB. */
      {129 * MIB, 130 * MIB},
      /* 256 to 512 in steps of 64. */
      {257 * MIB, 320 * MIB},
      {8 * KIB + 1, 9 * KIB},
  };
  for (guint i = 0; i < G_N_ELEMENTS(rounded); i++) {
    BlockHandle block = caching_allocator_malloc(allocator, rounded[i].bytes, 0, NULL);
    ck_assert_int_eq(caching_allocator_block_size(allocator, block), rounded[i].block);
  }
}
END_TEST

static const struct {
  const char *text, *message;
} refused[] = {
    {"max_split_size_mb:19", "allocator option 'max_split_size_mb': '19' is not allowed"},
    {"max_split_size_mb:-1", "'-1' is not allowed"},
    {"max_split_size_mb:1e3", "'1e3' is not allowed"},
    {"max_split_size_mb:", "'' is not allowed"},
    {"max_non_split_rounding_mb:0", "'0' is not allowed"},
    {"large_segment_size_mb:9", "'9' is not allowed"},
    {"garbage_collection_threshold:0", "'0' is not allowed: between 0 and 1"},
    {"garbage_collection_threshold:1", "'1' is not allowed"},
    {"garbage_collection_threshold:nan", "'nan' is not allowed"},
    {"per_process_memory_fraction:1.5", "'1.5' is not allowed"},
    {"expandable_segments:true", "'true' is not allowed: True or False"},
    {"roundup_power2_divisions:3", "'3' is not allowed"},
    {"roundup_power2_divisions:[3:4]", "'[3:4]' is not allowed"},
    {"roundup_power2_divisions:[4]", "'[4]' is not allowed"},
    {"roundup_power2_divisions:[4:2", "expected KEY:VALUE"},
    {"roundup_power2_divisions:[", "expected KEY:VALUE"},
    {"backend:cudaMallocAsync", "only 'native' is simulated"},
    {"expandable_segment:True", "did you mean 'expandable_segments'?"},
    {"expandable_segments", "expected KEY:VALUE"},
    {"a,b:c", "allocator option 'a,b' is unknown"},
    {":", "allocator option '' is unknown"},
    {",", "expected KEY:VALUE"},
};

START_TEST(what_pytorch_refuses_is_refused)
{
  AllocatorConfig config = allocator_config_default();
  g_autoptr(GError) error = NULL;
  ck_assert(!allocator_options_parse(&config, refused[_i].text, &error));
  ck_assert(test_error_says(error, refused[_i].message));
}
END_TEST

Suite *
test_suite(void)
{
  Suite *suite = suite_create("allocator_options");
  TCase *tcase = tcase_create("allocator_options");
  suite_add_tcase(suite, tcase);
  tcase_add_test(tcase, every_option_sets_its_value);
  tcase_add_test(tcase, options_without_an_effect_on_device_memory_are_accepted);
  tcase_add_test(tcase, divisions_may_differ_by_size);
  tcase_add_loop_test(tcase, what_pytorch_refuses_is_refused, 0, G_N_ELEMENTS(refused));
  return suite;
}
