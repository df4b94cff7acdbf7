/* check_vary.c - what a sweep varies: how keys and values are written, the order of the product,
 * names of variants. */
#include <string.h>

#include "search/vary.h"
#include "tap_main.h"

static Vary *
parse(const char *first, const char *second)
{
  char *texts[] = {(char *) (gsize) first, (char *) (gsize) second, NULL};
  g_autoptr(GError) error = NULL;
  Vary *vary = vary_parse(texts, &error);
  ck_assert_msg(vary != NULL, "%s", error ? error->message : "no error");
  return vary;
}

/* ---- values ---- */

static const struct {
  const char *text, *values; /* values: separated by blanks */
} lists[] = {
    {"k=1,2,4", "1 2 4"},
    {"a.b=true,false,null", "true false null"},
    {"k=full, none ,x", "full none x"},
    {"k=7", "7"},
    {"k=[1,2],[3],{\"a\":1,\"b\":[2,3]}", "[1,2] [3] {\"a\":1,\"b\":[2,3]}"},
    {"k=\"a,b\",\"c\\\",d\"", "\"a,b\" \"c\\\",d\""},
    {"k=a=b,c", "a=b c"},
    {"k=1..4", "1 2 3 4"},
    {"k=-2..1", "-2 -1 0 1"},
    {"k=1..64*2", "1 2 4 8 16 32 64"},
    {"k=1..100*3", "1 3 9 27 81"},
    {"k=2048..8192+2048", "2048 4096 6144 8192"},
    {"k=0,1..3,8", "0 1 2 3 8"},
    {"k=5..5", "5"},
    {"k=1..2x", "1..2x"},
    {"k=1.5,2.5", "1.5 2.5"},
};

START_TEST(values_are_separated_by_commas_and_ranges_are_written_out)
{
  g_autoptr(Vary) vary = parse(lists[_i].text, NULL);
  const VaryAxis *axis = g_ptr_array_index(vary->axes, 0);
  g_autoptr(GString) values = g_string_new(NULL);
  for (guint i = 0; i < axis->values->len; i++)
    g_string_append_printf(values, "%s%s", i > 0 ? " " : "",
                           (char *) g_ptr_array_index(axis->values, i));
  ck_assert_str_eq(values->str, lists[_i].values);
  ck_assert_uint_eq(vary->count, axis->values->len);
}
END_TEST

static const struct {
  const char *first, *second, *says;
} refusals[] = {
    {"k", NULL, "KEY=VALUE,VALUE,... is expected"},
    {"=1", NULL, "KEY=VALUE,VALUE,... is expected"},
    {"k=", NULL, "a value is empty"},
    {"k=1,,2", NULL, "a value is empty"},
    {"k=1,2,", NULL, "a value is empty"},
    {"k=1,2,1", NULL, "the value 1 is given twice"},
    {"k=1..3,2", NULL, "the value 2 is given twice"},
    {"k=1,2", "k=3", "the key k is varied twice"},
    {"k=4..1", NULL, "a range goes up"},
    {"k=0..8*2", NULL, "a range goes up"},
    {"k=1..8*1", NULL, "a range goes up"},
    {"k=1..8+0", NULL, "a range goes up"},
    {"k=1..8+-1", NULL, "a range goes up"},
    {"k=1..100001", NULL, "more than 100000 values"},
    {"k=1..1000", "l=1..101", "101000 variants are more than 100000"},
    {"k=\xff", NULL, "KEY=VALUE,VALUE,... is expected"},
};

START_TEST(what_is_not_a_list_is_refused)
{
  char *texts[] = {(char *) (gsize) refusals[_i].first, (char *) (gsize) refusals[_i].second, NULL};
  g_autoptr(GError) error = NULL;
  ck_assert_ptr_null(vary_parse(texts, &error));
  ck_assert(test_error_says(error, refusals[_i].says));
  ck_assert(test_error_says(error, "--vary"));
}
END_TEST

/* ---- product ---- */

START_TEST(the_last_key_changes_fastest)
{
  static const char *const order[] = {"1,a", "1,b", "1,c", "2,a", "2,b", "2,c"};
  g_autoptr(Vary) vary = parse("x=1,2", "y=a,b,c");
  ck_assert_uint_eq(vary->count, G_N_ELEMENTS(order));
  for (guint i = 0; i < vary->count; i++) {
    g_autofree char *values = g_strjoin(",", vary_value(vary, i, 0), vary_value(vary, i, 1), NULL);
    g_autofree char *label = vary_label(vary, i);
    ck_assert_str_eq(values, order[i]);
    ck_assert_str_eq(label, order[i]);
  }
}
END_TEST

START_TEST(nothing_varied_is_one_variant)
{
  g_autoptr(GError) error = NULL;
  g_autoptr(Vary) vary = vary_parse(NULL, &error);
  ck_assert_uint_eq(vary->count, 1);
  g_autofree char *label = vary_label(vary, 0);
  ck_assert_str_eq(label, "base");
}
END_TEST

/* ---- labels ---- */

static const char *const strange[] = {
    "k=.,..,/,//,../x,a b,a_b,\"a b\",[[\"layers.0\"],[\"layers.1\"]],\xc3\xa4,\t x,~1,-",
    "k={\"policy\":\"full\"},{\"policy\":\"none\"},null",
};

static gboolean
is_word(const char *label)
{
  return label[0] != '\0' && label[0] != '.' && label[strcspn(label, " \t\n/\\\"'")] == '\0' &&
         g_str_is_ascii(label) && strlen(label) < 200;
}

START_TEST(labels_are_words_that_can_name_folders_and_differ)
{
  g_autoptr(Vary) vary = parse(strange[_i], "other=1..3");
  g_autoptr(GHashTable) seen = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, NULL);
  for (guint i = 0; i < vary->count; i++) {
    char *label = vary_label(vary, i);
    ck_assert_msg(is_word(label), "%s", label);
    ck_assert_msg(g_hash_table_add(seen, label), "%s twice", label);
  }
}
END_TEST

START_TEST(long_values_have_short_labels_that_differ)
{
  g_autofree char *much = g_strnfill(300, 'x');
  g_autofree char *text = g_strdup_printf("k=%sa,%sb", much, much);
  g_autoptr(Vary) vary = parse(text, NULL);
  g_autofree char *first = vary_label(vary, 0), *second = vary_label(vary, 1);
  ck_assert(is_word(first) && is_word(second));
  ck_assert_str_ne(first, second);
}
END_TEST

Suite *
test_suite(void)
{
  Suite *suite = suite_create("vary");
  TCase *values = tcase_create("values");
  tcase_add_loop_test(values, values_are_separated_by_commas_and_ranges_are_written_out, 0,
                      G_N_ELEMENTS(lists));
  tcase_add_loop_test(values, what_is_not_a_list_is_refused, 0, G_N_ELEMENTS(refusals));
  suite_add_tcase(suite, values);
  TCase *product = tcase_create("product");
  tcase_add_test(product, the_last_key_changes_fastest);
  tcase_add_test(product, nothing_varied_is_one_variant);
  tcase_add_loop_test(product, labels_are_words_that_can_name_folders_and_differ, 0,
                      G_N_ELEMENTS(strange));
  tcase_add_test(product, long_values_have_short_labels_that_differ);
  suite_add_tcase(suite, product);
  return suite;
}
