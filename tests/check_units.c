/* check_units.c - sizes, counts and times: reading, refusing, printing; products that would wrap;
 * category names. */
#include "base/category.h"
#include "base/sorted_times.h"
#include "base/units.h"
#include "tap_main.h"

static const struct {
  const char *text;
  gint64 bytes;
} good_sizes[] = {
    {"0", 0},
    {"4096", 4096},
    {"80GiB", 80LL * 1024 * 1024 * 1024},
    {"1.5 GiB", 1610612736},
    {"512 B", 512},
    {"25MB", 25000000},
    {"0.5KiB", 512},
    {"9223372036854775807", G_MAXINT64},
    {"8388607TiB", 8388607LL << 40},
};

START_TEST(a_size_is_bytes_or_a_number_with_a_unit)
{
  gint64 bytes = -1;
  g_autoptr(GError) error = NULL;
  ck_assert(parse_size(good_sizes[_i].text, &bytes, &error));
  ck_assert_int_eq(bytes, good_sizes[_i].bytes);
}
END_TEST

static const char *const bad_sizes[] = {
    "",
    "-1",
    "80Gi",
    "80 gib",
    "GiB",
    "1.5",
    "0.3KiB",
    "1e9",
    "0x10",
    " 5",
    "5 GiB ",
    "1..5GiB",
    "1.GiB",
    ".",
    "nan",
    "inf",
    "+5",
    "1,000",
    "8388608TiB",
    "9223372036854775808",
    "99999999999999999999999999",
    "0.00000000000000000001GiB",
    "--5GiB",
};

START_TEST(a_size_that_is_negative_too_large_fractional_or_malformed_is_refused)
{
  gint64 bytes = 77;
  g_autoptr(GError) error = NULL;
  ck_assert(!parse_size(bad_sizes[_i], &bytes, &error));
  ck_assert(test_error_says(error, bad_sizes[_i]));
  ck_assert_int_eq(bytes, 77);
}
END_TEST

START_TEST(a_product_beyond_63_bits_is_refused)
{
  gint64 product = 0;
  ck_assert(checked_multiply(G_MAXINT64, 1, &product) && product == G_MAXINT64);
  ck_assert(checked_multiply(0, G_MAXINT64, &product) && product == 0);
  ck_assert(checked_multiply(3037000499, 3037000499, &product));
  ck_assert_int_eq(product, 9223372030926249001);
  ck_assert(!checked_multiply(3037000500, 3037000500, &product));
  ck_assert(!checked_multiply((gint64) 1 << 32, (gint64) 1 << 31, &product));
}
END_TEST

START_TEST(rounding_up_keeps_multiples)
{
  ck_assert_int_eq(ceil_div(0, 512), 0);
  ck_assert_int_eq(ceil_div(513, 512), 2);
  ck_assert_int_eq(round_up(512, 512), 512);
  ck_assert_int_eq(round_up(513, 512), 1024);
}
END_TEST

typedef char *(*Formatter)(gint64 value);

static const struct {
  Formatter format;
  gint64 value;
  const char *text;
} printed[] = {
    {format_bytes, 0, "0 B"},
    {format_bytes, 512, "512 B"},
    {format_bytes, 1023, "1023 B"},
    {format_bytes, 1024, "1.00 KiB"},
    {format_bytes, 416 * MIB, "416 MiB"},
    {format_bytes, 1023 * KIB + 1000, "1.00 MiB"},
    {format_bytes, 40050137989, "37.3 GiB"},
    {format_bytes, 10 * GIB, "10.0 GiB"},
    {format_bytes, -2 * MIB, "-2.00 MiB"},
    {format_bytes, G_MAXINT64, "8.00 EiB"},
    {format_bytes, G_MININT64, "-8.00 EiB"},
    {format_duration, 0, "0 ns"},
    {format_duration, 999, "999 ns"},
    {format_duration, 13000, "13.0 us"},
    {format_duration, 40200000, "40.2 ms"},
    {format_duration, 1310000000, "1.31 s"},
    {format_duration, 999999, "1.00 ms"},
    {format_duration, 6250000000000, "6250 s"},
    {format_count, 512, "512"},
    {format_count, 8030261248, "8.03 B"},
    {format_count, 137000000, "137 M"},
    {format_count, 999999, "1.00 M"},
    {format_count, -12, "-12"},
    {format_grouped, 0, "0"},
    {format_grouped, 999, "999"},
    {format_grouped, 6250, "6,250"},
    {format_grouped, -1234567, "-1,234,567"},
    {format_grouped, G_MININT64, "-9,223,372,036,854,775,808"},
};

START_TEST(numbers_print_with_about_three_digits)
{
  g_autofree char *text = printed[_i].format(printed[_i].value);
  ck_assert_str_eq(text, printed[_i].text);
}
END_TEST

START_TEST(category_names_are_unique_and_read_back)
{
  for (int i = 0; i < CATEGORY_COUNT; i++)
    ck_assert_int_eq(category_from_name(category_name((Category) i)), i);
  ck_assert_int_eq(category_from_name("nothing"), -1);
  ck_assert_int_eq(category_from_name(""), -1);
}
END_TEST

/* ---- moments among rows in order of time */

typedef struct {
  int name;
  SimTime time;
} Row;

START_TEST(the_first_row_at_or_after_a_moment_is_found)
{
  const Row rows[] = {{0, 10}, {1, 20}, {2, 20}, {3, 30}};
  const guint odd[] = {1, 3};
  g_autoptr(GArray) all = g_array_new(FALSE, FALSE, sizeof(Row));
  g_autoptr(GArray) order = g_array_new(FALSE, FALSE, sizeof(guint));
  gsize offset = G_STRUCT_OFFSET(Row, time);
  ck_assert_uint_eq(sorted_times_find(all, offset, NULL, 0), 0);
  g_array_append_vals(all, rows, G_N_ELEMENTS(rows));
  g_array_append_vals(order, odd, G_N_ELEMENTS(odd));
  ck_assert_uint_eq(sorted_times_find(all, offset, NULL, 10), 0);
  ck_assert_uint_eq(sorted_times_find(all, offset, NULL, 11), 1);
  ck_assert_uint_eq(sorted_times_find(all, offset, NULL, 20), 1);
  ck_assert_uint_eq(sorted_times_find(all, offset, NULL, 21), 3);
  ck_assert_uint_eq(sorted_times_find(all, offset, NULL, 31), 4);
  /* Of the rows at 20 and 30 alone. */
  ck_assert_uint_eq(sorted_times_find(all, offset, order, 20), 0);
  ck_assert_uint_eq(sorted_times_find(all, offset, order, 21), 1);
  ck_assert_uint_eq(sorted_times_find(all, offset, order, 31), 2);
}
END_TEST

Suite *
test_suite(void)
{
  Suite *suite = suite_create("units");
  TCase *tcase = tcase_create("units");
  suite_add_tcase(suite, tcase);
  tcase_add_loop_test(tcase, a_size_is_bytes_or_a_number_with_a_unit, 0, G_N_ELEMENTS(good_sizes));
  tcase_add_loop_test(tcase, a_size_that_is_negative_too_large_fractional_or_malformed_is_refused,
                      0, G_N_ELEMENTS(bad_sizes));
  tcase_add_test(tcase, a_product_beyond_63_bits_is_refused);
  tcase_add_test(tcase, rounding_up_keeps_multiples);
  tcase_add_loop_test(tcase, numbers_print_with_about_three_digits, 0, G_N_ELEMENTS(printed));
  tcase_add_test(tcase, category_names_are_unique_and_read_back);
  tcase_add_test(tcase, the_first_row_at_or_after_a_moment_is_found);
  return suite;
}
