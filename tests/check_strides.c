/* check_strides.c - memory order of tensors: contiguity, which shapes are views of which, the order
 * of what element-wise ops make, swapped and broadcast dimensions.  Expectations are worked out by
 * hand from ATen's rules, named in strides.h. */
#include "network/strides.h"

#include "tap_main.h"

#define TENSOR(n, sizes, strides)                                                                  \
  {                                                                                                \
    .dtype = DTYPE_BF16, .dims = n, .shape = {sizes}, .stride = { strides }                        \
  }
#define OF(...) __VA_ARGS__

static char *
numbers_text(int n, const gint64 *numbers)
{
  GString *text = g_string_new(NULL);
  for (int i = 0; i < n; i++)
    g_string_append_printf(text, "%s%" G_GINT64_FORMAT, i > 0 ? "," : "", numbers[i]);
  return g_string_free(text, FALSE);
}

static void
assert_strides(const char *what, const ValueInfo *is, const char *expected)
{
  g_autofree char *text = numbers_text(is->dims, is->stride);
  ck_assert_msg(g_strcmp0(text, expected) == 0, "%s: strides are %s, not %s", what, text, expected);
}

/* ---- row-major ---- */

START_TEST(row_major_strides_count_the_elements_of_all_inner_dimensions)
{
  ValueInfo value = TENSOR(4, OF(2, 3, 4, 5), OF(0));
  value_set_contiguous(&value);
  assert_strides("[2,3,4,5]", &value, "60,20,5,1");
}
END_TEST

START_TEST(contiguous_is_row_major_without_gaps_whatever_sizes_of_one_say)
{
  static const struct {
    const char *what;
    ValueInfo value;
    gboolean expected;
  } cases[] = {
      {"row-major", TENSOR(3, OF(2, 3, 4), OF(12, 4, 1)), TRUE},
      {"a number", TENSOR(0, OF(0), OF(0)), TRUE},
      {"dimensions of size one", TENSOR(4, OF(1, 3, 1, 4), OF(7, 4, 9, 1)), TRUE},
      {"transposed", TENSOR(2, OF(4, 5), OF(1, 4)), FALSE},
      {"transposed, but there is one row", TENSOR(2, OF(1, 5), OF(1, 1)), TRUE},
      {"a part of wider rows", TENSOR(2, OF(3, 4), OF(8, 1)), FALSE},
      {"every second element", TENSOR(1, OF(4), OF(2)), FALSE},
      {"broadcast", TENSOR(2, OF(3, 4), OF(0, 1)), FALSE},
  };
  for (guint i = 0; i < G_N_ELEMENTS(cases); i++)
    ck_assert_msg(value_is_contiguous(&cases[i].value) == cases[i].expected, "%s", cases[i].what);
}
END_TEST

/* ---- views: at::detail::computeStride ---- */

/* A run is a group of dimensions that lie in memory like one: each stride is the next one's times
 * its size.  A shape can be viewed if each run is cut into whole dimensions of it. */
static const struct {
  const char *what;
  ValueInfo value, as;
  const char *expected; /* NULL: only a copy has that shape */
} views[] = {
    {"one run: merged", TENSOR(3, OF(2, 3, 4), OF(12, 4, 1)), TENSOR(2, OF(6, 4), OF(0)), "4,1"},
    {"one run: flat", TENSOR(3, OF(2, 3, 4), OF(12, 4, 1)), TENSOR(1, OF(24), OF(0)), "1"},
    {"one run: cut elsewhere", TENSOR(3, OF(2, 3, 4), OF(12, 4, 1)), TENSOR(3, OF(4, 3, 2), OF(0)),
     "6,2,1"},
    {"transposed: two runs cannot be merged", TENSOR(2, OF(4, 5), OF(1, 4)),
     TENSOR(1, OF(20), OF(0)), NULL},
    {"transposed: the first run is cut in two", TENSOR(2, OF(4, 5), OF(1, 4)),
     TENSOR(3, OF(2, 2, 5), OF(0)), "2,1,4"},
    {"transposed: sizes that span both runs", TENSOR(2, OF(4, 6), OF(1, 4)),
     TENSOR(2, OF(8, 3), OF(0)), NULL},
    {"a new dimension of one", TENSOR(2, OF(4, 5), OF(1, 4)), TENSOR(3, OF(4, 1, 5), OF(0)),
     "1,20,4"},
    {"a slice of the last dimension: outer ones merge", TENSOR(3, OF(2, 3, 4), OF(24, 8, 1)),
     TENSOR(2, OF(6, 4), OF(0)), "8,1"},
    {"a slice of the last dimension: it is cut", TENSOR(3, OF(2, 3, 4), OF(36, 12, 1)),
     TENSOR(4, OF(2, 3, 2, 2), OF(0)), "36,12,2,1"},
    {"a slice of the last dimension: it has gaps", TENSOR(3, OF(2, 3, 4), OF(24, 8, 1)),
     TENSOR(2, OF(2, 12), OF(0)), NULL},
    {"every second element is a run", TENSOR(1, OF(6), OF(2)), TENSOR(2, OF(2, 3), OF(0)), "6,2"},
    /* [batch, heads, length, dim] made as [batch, length, heads, dim] */
    {"heads inside tokens: not as rows of heads", TENSOR(4, OF(2, 3, 5, 4), OF(60, 4, 12, 1)),
     TENSOR(3, OF(6, 5, 4), OF(0)), NULL},
    {"one batch of heads inside tokens", TENSOR(4, OF(1, 3, 5, 4), OF(60, 4, 12, 1)),
     TENSOR(3, OF(3, 5, 4), OF(0)), "4,12,1"},
    {"one head inside tokens", TENSOR(4, OF(2, 1, 5, 4), OF(20, 4, 4, 1)),
     TENSOR(3, OF(2, 5, 4), OF(0)), "20,4,1"},
    {"a dimension of one ends no run, whatever its stride", TENSOR(3, OF(3, 1, 4), OF(4, 99, 1)),
     TENSOR(1, OF(12), OF(0)), "1"},
    {"broadcast heads cannot be merged", TENSOR(4, OF(2, 3, 5, 4), OF(12, 4, 0, 1)),
     TENSOR(3, OF(2, 15, 4), OF(0)), NULL},
    {"one head that is broadcast is a run of its own", TENSOR(4, OF(2, 1, 5, 4), OF(4, 4, 0, 1)),
     TENSOR(3, OF(2, 5, 4), OF(0)), "4,0,1"},
    {"a number as a vector", TENSOR(0, OF(0), OF(0)), TENSOR(1, OF(1), OF(0)), "1"},
    {"a vector of one as a number", TENSOR(1, OF(1), OF(1)), TENSOR(0, OF(0), OF(0)), ""},
};

START_TEST(a_view_needs_whole_dimensions_in_each_run_of_memory)
{
  ValueInfo as = views[_i].as;
  gboolean possible = value_view(&views[_i].value, &as);
  ck_assert_msg(possible == (views[_i].expected != NULL), "%s", views[_i].what);
  if (possible)
    assert_strides(views[_i].what, &as, views[_i].expected);
}
END_TEST

/* ---- order of results: TensorIterator, infer_dense_strides ---- */

static const struct {
  const char *what;
  int n;
  ValueInfo operands[2], value;
  const char *expected;
} orders[] = {
    {"row-major",
     1,
     {TENSOR(3, OF(2, 3, 4), OF(12, 4, 1))},
     TENSOR(3, OF(2, 3, 4), OF(0)),
     "12,4,1"},
    {"transposed", 1, {TENSOR(2, OF(6, 4), OF(1, 6))}, TENSOR(2, OF(6, 4), OF(0)), "1,6"},
    /* innermost is dimension 1, then 2, then 0 */
    {"three dimensions in another order, with gaps",
     1,
     {TENSOR(3, OF(2, 3, 4), OF(99, 1, 7))},
     TENSOR(3, OF(2, 3, 4), OF(0)),
     "12,1,3"},
    {"heads inside tokens",
     1,
     {TENSOR(4, OF(2, 3, 5, 4), OF(60, 4, 12, 1))},
     TENSOR(4, OF(2, 3, 5, 4), OF(0)),
     "60,4,12,1"},
    {"the first operand decides",
     2,
     {TENSOR(2, OF(6, 4), OF(1, 6)), TENSOR(2, OF(6, 4), OF(4, 1))},
     TENSOR(2, OF(6, 4), OF(0)),
     "1,6"},
    {"the second, where the first is broadcast",
     2,
     {TENSOR(1, OF(4), OF(1)), TENSOR(2, OF(6, 4), OF(1, 6))},
     TENSOR(2, OF(6, 4), OF(0)),
     "1,6"},
    {"the second, where the first has one row",
     2,
     {TENSOR(2, OF(1, 4), OF(4, 1)), TENSOR(2, OF(6, 4), OF(1, 6))},
     TENSOR(2, OF(6, 4), OF(0)),
     "1,6"},
    {"nobody: row-major", 1, {TENSOR(2, OF(6, 4), OF(0, 1))}, TENSOR(2, OF(6, 4), OF(0)), "4,1"},
    /* dimension 1 cannot be told from others; 0 and 2 change places around it: 1, 1 * 2, 2 * 3 */
    {"a broadcast dimension keeps its place",
     1,
     {TENSOR(3, OF(2, 3, 4), OF(1, 0, 8))},
     TENSOR(3, OF(2, 3, 4), OF(0)),
     "1,2,6"},
    {"equal strides: the smaller dimension goes inside",
     1,
     {TENSOR(2, OF(1, 3), OF(1, 1))},
     TENSOR(2, OF(1, 3), OF(0)),
     "1,1"},
};

START_TEST(results_are_dense_in_the_order_of_the_operands)
{
  ValueInfo value = orders[_i].value;
  value_order_like(&value, orders[_i].n, orders[_i].operands);
  assert_strides(orders[_i].what, &value, orders[_i].expected);
}
END_TEST

/* ---- swapped and broadcast dimensions ---- */

START_TEST(swapped_dimensions_take_their_strides_along)
{
  ValueInfo value = TENSOR(4, OF(2, 5, 3, 4), OF(60, 12, 4, 1));
  value_swap(&value, 1, 2);
  g_autofree char *sizes = numbers_text(value.dims, value.shape);
  ck_assert_str_eq(sizes, "2,3,5,4");
  assert_strides("swapped", &value, "60,4,12,1");
}
END_TEST

START_TEST(broadcast_dimensions_have_stride_zero_and_others_keep_theirs)
{
  static const struct {
    const char *what;
    ValueInfo value, wide;
    const char *expected;
  } cases[] = {
      {"a size of one is repeated", TENSOR(4, OF(2, 3, 1, 4), OF(12, 4, 4, 1)),
       TENSOR(4, OF(2, 3, 5, 4), OF(0)), "12,4,0,1"},
      {"dimensions are added in front", TENSOR(2, OF(3, 1), OF(1, 1)),
       TENSOR(3, OF(2, 3, 4), OF(0)), "0,1,0"},
      {"a number becomes a matrix", TENSOR(0, OF(0), OF(0)), TENSOR(2, OF(6, 4), OF(0)), "0,0"},
      {"nothing is repeated", TENSOR(2, OF(1, 4), OF(9, 2)), TENSOR(2, OF(1, 4), OF(0)), "9,2"},
  };
  for (guint i = 0; i < G_N_ELEMENTS(cases); i++) {
    ValueInfo wide = cases[i].wide;
    value_expand(&cases[i].value, &wide);
    assert_strides(cases[i].what, &wide, cases[i].expected);
  }
}
END_TEST

Suite *
test_suite(void)
{
  Suite *suite = suite_create("strides");
  TCase *order = tcase_create("order"), *view = tcase_create("view");
  tcase_add_test(order, row_major_strides_count_the_elements_of_all_inner_dimensions);
  tcase_add_test(order, contiguous_is_row_major_without_gaps_whatever_sizes_of_one_say);
  tcase_add_loop_test(order, results_are_dense_in_the_order_of_the_operands, 0,
                      G_N_ELEMENTS(orders));
  tcase_add_loop_test(view, a_view_needs_whole_dimensions_in_each_run_of_memory, 0,
                      G_N_ELEMENTS(views));
  tcase_add_test(view, swapped_dimensions_take_their_strides_along);
  tcase_add_test(view, broadcast_dimensions_have_stride_zero_and_others_keep_theirs);
  suite_add_tcase(suite, order);
  suite_add_tcase(suite, view);
  return suite;
}
