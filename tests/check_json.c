/* check_json.c - reading JSON: what is refused and with which line or key, typed getters, --set,
 * nearest names. Not pinned: wordings beyond what a user needs to find the place and what is
 * allowed there. */
#include "base/json_reader.h"
#include "base/json_scan.h"
#include "base/units.h"
#include "tap_main.h"
#include <math.h>
#include <string.h>

static JsonDocument *
parse(const char *text, GError **error)
{
  return json_document_parse("f.json", text, strlen(text), error);
}

static const struct {
  const char *text, *message;
} refused_texts[] = {
    {"", "f.json: line 1: the text ends"},
    {" \n\n", "f.json: line 3: the text ends"},
    {"{\"a\": 1,\n\"b\": [1, 2", "f.json: line 2: the text ends where ',' or ']' is expected"},
    {"{\"a\": \"xy", "f.json: line 1: the text ends inside a string"},
    {"{\"a\": \"x\ny\"}", "f.json: line 1: the line ends inside a string"},
    {"{\"a\": 1}\n}", "f.json: line 2: '}' stands where the end of the text"},
    {"{\"a\": 1,}", "a key in double quotes"},
    {"{'a': 1}", "''' stands where a key in double quotes"},
    {"{\"a\" 1}", "':' after a key"},
    {"{\"a\": [1 2]}", "'2' stands where ',' or ']'"},
    {"{\"a\": 1]", "']' stands where ',' or '}'"},
    {"{\"a\": tru}", "'t' stands where a value"},
    {"{\"a\": nan}", "'n' stands where a value"},
    {"{\"a\": 01}", "'1' stands where"},
    {"{\"a\": 1.}", "a digit"},
    {"{\"a\": .5}", "a value"},
    {"{\"a\": +5}", "a value"},
    {"{\"a\": -}", "a digit"},
    {"{\"a\": 1e}", "a digit"},
    {"{\"a\": 0x10}", "'x' stands where"},
    {"{\"a\": \"\\q\"}", "after a backslash"},
    {"{\"a\": \"\\u12g4\"}", "hexadecimal"},
    {"{\"a\": \"\\u0000\"}", "NUL character"},
    {"{\"a\": \"\\ud800\"}", "line 1: not JSON"},
    {"{\"a\": \"\t\"}", "control character"},
    {"{\n\"a\": \"\xff\"}", "f.json: line 2: not UTF-8"},
    {"[1]", "f.json: line 1: an object"},
    {"3", "f.json: line 1: an object"},
    {"{\"a\": 1,\n \"b\": {\"x\": 1,\n\"c\": 2, \"x\": 3}}",
     "f.json: line 3: key 'x' stands twice in its object"},
    {"{\"a\": 1,\n \"b\": 2,\n\"\\u0061\": 3}", "f.json: line 3: key 'a' stands twice"},
    {"{\"l\": [{\"a\": 1},\n{\"a\": 1,\n \"a\": 1}]}", "f.json: line 3: key 'a' stands twice"},
    {"{\"a\": 1234567890123456789012345678901234567890123456789012345678901234}",
     "too many digits"},
};

START_TEST(text_that_is_not_strict_json_is_refused_with_its_line)
{
  g_autoptr(GError) error = NULL;
  ck_assert_ptr_null(parse(refused_texts[_i].text, &error));
  ck_assert(test_error_says(error, refused_texts[_i].message));
}
END_TEST

START_TEST(every_truncation_of_a_good_text_is_refused)
{
  static const char good[] =
      "{\"a\": [1.5e+3, {\"b\": \"x\\u00e9\\\"\", \"c\": null}], \"d\": false}";
  for (gsize length = 0; length < sizeof good - 1; length++) {
    g_autofree char *exact =
        g_memdup2(good, length); /* no byte behind it: over-reads show under ASan */
    g_autoptr(GError) error = NULL;
    ck_assert_ptr_null(json_document_parse("f.json", exact, length, &error));
    ck_assert(test_error_says(error, "f.json: line 1: "));
  }
  g_autoptr(JsonDocument) doc = parse(good, NULL);
  ck_assert_ptr_nonnull(doc);
}
END_TEST

START_TEST(a_duplicate_among_many_keys_is_found_on_its_line)
{
  g_autoptr(GString) text = g_string_new("{");
  for (int i = 0; i < 1000; i++)
    g_string_append_printf(text, "\"k%d\": {\"x\": %d},\n", i, i);
  g_string_append(text, "\"k500\": 0}");
  g_autoptr(GError) error = NULL;
  ck_assert_ptr_null(parse(text->str, &error));
  ck_assert(test_error_says(error, "line 1001: key 'k500' stands twice"));
}
END_TEST

static char *
nested(int depth)
{
  GString *text = g_string_new("{\"a\": ");
  for (int i = 1; i < depth; i++)
    g_string_append_c(text, '[');
  for (int i = 1; i < depth; i++)
    g_string_append_c(text, ']');
  return g_string_free(g_string_append_c(text, '}'), FALSE);
}

START_TEST(nesting_is_limited)
{
  g_autofree char *deepest = nested(JSON_MAX_DEPTH), *too_deep = nested(JSON_MAX_DEPTH + 1);
  g_autofree char *absurd = nested(1000000);
  g_autoptr(JsonDocument) doc = parse(deepest, NULL);
  ck_assert_ptr_nonnull(doc);
  g_autoptr(GError) error = NULL;
  ck_assert_ptr_null(parse(too_deep, &error));
  ck_assert(test_error_says(error, "nested more than 64 levels"));
  ck_assert_ptr_null(parse(absurd, NULL));
}
END_TEST

START_TEST(files_that_cannot_be_read_or_are_enormous_are_refused)
{
  g_autoptr(GError) missing = NULL, folder = NULL, endless = NULL;
  ck_assert_ptr_null(json_document_load("/nonexistent/x.json", &missing));
  ck_assert(test_error_says(missing, "/nonexistent/x.json: cannot be read: No such file"));
  ck_assert_ptr_null(json_document_load("/", &folder));
  ck_assert(test_error_says(folder, "/: cannot be read: Is a directory"));
  ck_assert_ptr_null(json_document_load("/dev/zero", &endless));
  ck_assert(test_error_says(endless, "/dev/zero: larger than 64 MiB"));
}
END_TEST

/* ---- getters */

static const char *const fruits[] = {"apple", "pear", NULL};

static const char sample[] =
    "{\"int\": 7, \"real\": 2.5, \"yes\": true, \"name\": \"pear\", \"size\": \"2KiB\", \"plain\": "
    "4096,"
    " \"nothing\": null, \"mesh\": {\"shard\": 8}, \"rows\": [{\"n\": 1}, {\"n\": 2}, {\"n\": 3}]}";

START_TEST(getters_give_what_is_written_and_defaults_for_absent_and_null)
{
  g_autoptr(JsonDocument) doc = parse(sample, NULL);
  g_autoptr(JsonReader) reader = json_reader_new(doc);
  ck_assert_int_eq(json_reader_int(reader, "int", 1, 0, 10), 7);
  ck_assert_int_eq(json_reader_required_int(reader, "int", 0, 10), 7);
  ck_assert_int_eq(json_reader_int(reader, "nothing", 5, 0, 1), 5);
  ck_assert_int_eq(json_reader_int(reader, "absent", 5, 0, 1), 5);
  ck_assert_double_eq(json_reader_double(reader, "real", 0, 0, 10), 2.5);
  ck_assert(json_reader_bool(reader, "yes", FALSE));
  ck_assert(json_reader_bool(reader, "nothing", TRUE));
  ck_assert_str_eq(json_reader_string(reader, "name", NULL), "pear");
  ck_assert_str_eq(json_reader_required_string(reader, "name"), "pear");
  ck_assert_int_eq(json_reader_enum(reader, "name", fruits, 0), 1);
  ck_assert_int_eq(json_reader_enum(reader, "absent", fruits, 0), 0);
  ck_assert_int_eq(json_reader_size(reader, "size", 0), 2048);
  ck_assert_int_eq(json_reader_size(reader, "plain", 0), 4096);
  ck_assert(json_reader_has(reader, "int") && !json_reader_has(reader, "nothing"));
  ck_assert(!json_reader_has(reader, "absent"));
  g_autoptr(JsonReader) mesh = json_reader_section(reader, "mesh");
  ck_assert_int_eq(json_reader_int(mesh, "shard", 1, 1, 8), 8);
  ck_assert(json_reader_finish(mesh, NULL));
  g_autoptr(JsonReader) absent = json_reader_section(reader, "section");
  ck_assert_int_eq(json_reader_int(absent, "x", 3, 0, 9), 3);
  ck_assert(json_reader_finish(absent, NULL));
  ck_assert_uint_eq(json_reader_array_length(reader, "none"), 0);
  ck_assert_uint_eq(json_reader_array_length(reader, "rows"), 3);
  static const guint order[] = {0, 1, 2, 1, 0, 2};
  for (guint i = 0; i < G_N_ELEMENTS(order); i++) {
    g_autoptr(JsonReader) row = json_reader_element(reader, "rows", order[i]);
    ck_assert_int_eq(json_reader_int(row, "n", 0, 0, 9), order[i] + 1);
  }
  g_autoptr(GError) error = NULL;
  ck_assert(json_reader_finish(reader, &error));
  ck_assert_ptr_null(error);
}
END_TEST

/* Reads every key that the refused values below use. */
static void
read_all(JsonReader *reader)
{
  json_reader_int(reader, "int", 1, 0, 10);
  json_reader_double(reader, "real", 0, -1, 1);
  json_reader_bool(reader, "yes", FALSE);
  json_reader_string(reader, "name", NULL);
  json_reader_enum(reader, "fruit", fruits, 0);
  json_reader_size(reader, "size", 0);
  g_autoptr(JsonReader) mesh = json_reader_section(reader, "mesh");
  json_reader_int(mesh, "shard", 1, 1, 8);
  json_reader_finish(mesh, NULL);
  for (guint i = 0; i < json_reader_array_length(reader, "rows"); i++) {
    g_autoptr(JsonReader) row = json_reader_element(reader, "rows", i);
    json_reader_required_int(row, "n", 1, 9);
    json_reader_finish(row, NULL);
  }
}

static const struct {
  const char *text, *message;
} refused_values[] = {
    {"{\"int\": \"7\"}", "f.json: key 'int': a whole number is needed, not a string"},
    {"{\"int\": 1.5}", "key 'int': 1.5 is not a whole number"},
    {"{\"int\": 11}", "key 'int': 11 is not in 0..10"},
    {"{\"int\": -1}", "key 'int': -1 is not in 0..10"},
    {"{\"int\": 9007199254740993000}", "key 'int': 9.0071992547409"},
    {"{\"int\": 1e999}", "key 'int': inf is beyond 2^53"},
    {"{\"real\": 1e999}", "key 'real': inf is not in -1..1"},
    {"{\"real\": true}", "key 'real': a number is needed, not true or false"},
    {"{\"real\": -1.25}", "key 'real': -1.25 is not in -1..1"},
    {"{\"yes\": 1}", "key 'yes': true or false is needed, not a number"},
    {"{\"name\": []}", "key 'name': a string is needed, not an array"},
    {"{\"fruit\": \"plum\"}", "key 'fruit': 'plum' is not one of apple, pear"},
    {"{\"size\": -4096}", "key 'size': -4096 is negative"},
    {"{\"size\": 0.5}", "key 'size': 0.5 is not a whole number"},
    {"{\"size\": 1e18}", "key 'size': 1e+18 is beyond 2^53"},
    {"{\"size\": \"80Gi\"}", "key 'size': '80Gi' is not a size"},
    {"{\"size\": {}}", "key 'size': a size is needed, not an object"},
    {"{\"mesh\": 8}", "key 'mesh': an object is needed, not a number"},
    {"{\"mesh\": {\"shard\": 0}}", "key 'mesh.shard': 0 is not in 1..8"},
    {"{\"mesh\": {\"shrad\": 2}}", "unknown key 'mesh.shrad'; did you mean 'shard'?"},
    {"{\"fruits\": 0}", "unknown key 'fruits'; did you mean 'fruit'?"},
    {"{\"zzzzzz\": 0}", "unknown key 'zzzzzz'; known are: int, real, yes, name, fruit, size, mesh"},
    {"{\"INT\": 0}", "unknown key 'INT'"},
    {"{\"rows\": {}}", "key 'rows': an array is needed, not an object"},
    {"{\"rows\": [{\"n\": 1}, 5]}", "key 'rows[1]': an object is needed, not a number"},
    {"{\"rows\": [{\"n\": 1}, {}]}", "key 'rows[1].n' is missing"},
    {"{\"rows\": [{\"n\": null}]}", "key 'rows[0].n' is missing"},
    {"{\"rows\": [{\"n\": 1, \"m\": 1}]}", "unknown key 'rows[0].m'"},
    {"{\"int\": 11, \"real\": 5, \"zzz\": 1}", "key 'int'"},
};

START_TEST(a_wrong_value_is_refused_naming_file_key_and_what_is_allowed)
{
  g_autoptr(GError) error = NULL;
  g_autoptr(JsonDocument) doc = parse(refused_values[_i].text, NULL);
  ck_assert_ptr_nonnull(doc);
  g_autoptr(JsonReader) reader = json_reader_new(doc);
  read_all(reader);
  ck_assert(!json_reader_finish(reader, &error));
  ck_assert(test_error_says(error, refused_values[_i].message));
  ck_assert(g_str_has_prefix(error->message, "f.json: "));
}
END_TEST

START_TEST(after_an_error_getters_give_defaults_and_the_first_error_stays)
{
  g_autoptr(JsonDocument) doc = parse("{\"int\": 99, \"name\": \"x\", \"rows\": [{}]}", NULL);
  g_autoptr(JsonReader) reader = json_reader_new(doc);
  ck_assert_int_eq(json_reader_int(reader, "int", 4, 0, 10), 4);
  ck_assert_str_eq(json_reader_string(reader, "name", "default"), "default");
  ck_assert_uint_eq(json_reader_array_length(reader, "rows"), 0);
  json_reader_fail(reader, "name", "%s", "of the caller's own");
  g_autoptr(GError) error = NULL;
  ck_assert(!json_reader_finish(reader, &error));
  ck_assert(test_error_says(error, "key 'int'"));
}
END_TEST

START_TEST(a_callers_own_error_is_reported_with_the_path)
{
  g_autoptr(JsonDocument) doc = parse("{\"mesh\": {\"shard\": 3}}", NULL);
  g_autoptr(JsonReader) reader = json_reader_new(doc);
  g_autoptr(JsonReader) mesh = json_reader_section(reader, "mesh");
  json_reader_fail(mesh, "shard", "%d does not divide %d", 3, 8);
  g_autoptr(GError) error = NULL;
  ck_assert(!json_reader_finish(reader, &error));
  ck_assert_str_eq(error->message, "f.json: key 'mesh.shard': 3 does not divide 8");
}
END_TEST

START_TEST(unknown_keys_pass_where_they_are_allowed)
{
  g_autoptr(JsonDocument) doc = parse("{\"anything\": 1}", NULL);
  g_autoptr(JsonReader) reader = json_reader_new(doc);
  json_reader_allow_unknown(reader);
  ck_assert(json_reader_finish(reader, NULL));
}
END_TEST

START_TEST(reading_a_long_array_in_order_is_fast)
{
  g_autoptr(GString) text = g_string_new("{\"rows\": [{}");
  for (int i = 1; i < 200000; i++)
    g_string_append(text, ",{}");
  g_string_append(text, "]}");
  g_autoptr(JsonDocument) doc = parse(text->str, NULL);
  g_autoptr(JsonReader) reader = json_reader_new(doc);
  for (guint i = 0; i < 200000; i++) /* minutes if each started from the first */
    json_reader_free(json_reader_element(reader, "rows", i));
  ck_assert(json_reader_finish(reader, NULL));
}
END_TEST

/* ---- --set */

static const struct {
  const char *before, *assignment, *after;
} assignments[] = {
    {"{}", "a=1", "{\"a\":1}"},
    {"{\"a\":2}", "a=1", "{\"a\":1}"},
    {"{}", "a.b.c=true", "{\"a\":{\"b\":{\"c\":true}}}"},
    {"{\"a\":{\"x\":1}}", "a.b=[1,2]", "{\"a\":{\"x\":1,\"b\":[1,2]}}"},
    {"{\"a\":null}", "a.b=1", "{\"a\":{\"b\":1}}"},
    {"{}", "a=fsdp2", "{\"a\":\"fsdp2\"}"},
    {"{}", "a=", "{\"a\":\"\"}"},
    {"{}", "a=x=y", "{\"a\":\"x=y\"}"},
    {"{}", "a=\"1\"", "{\"a\":\"1\"}"},
    {"{}", "a=null", "{\"a\":null}"},
    {"{}", "a=80GiB", "{\"a\":\"80GiB\"}"},
    {"{}", "a={\"b\":1}", "{\"a\":{\"b\":1}}"},
};

START_TEST(set_puts_a_json_value_or_a_string_under_the_path)
{
  g_autoptr(GError) error = NULL;
  g_autoptr(JsonDocument) doc = parse(assignments[_i].before, NULL);
  ck_assert(json_document_set(doc, assignments[_i].assignment, &error));
  char *text = cJSON_PrintUnformatted(json_document_root(doc));
  ck_assert_str_eq(text, assignments[_i].after);
  cJSON_free(text);
}
END_TEST

static const struct {
  const char *assignment, *message;
} refused_assignments[] = {
    {"", "key=value"},
    {"a", "key=value"},
    {"=1", "key=value"},
    {"a..b=1", "key=value"},
    {".a=1", "key=value"},
    {"a.=1", "key=value"},
    {"n.x=1", "'n' in f.json is not a section"},
    {"a=\xff", "key=value"},
    {"a={", "--set 'a={': line 1: "},
    {"a=[1", "--set 'a=[1': line 1: "},
    {"a=\"b", "--set 'a=\"b': line 1: "},
    {"a={\"b\":1,\"b\":2}", "key 'b' stands twice"},
};

START_TEST(a_malformed_assignment_is_refused)
{
  g_autoptr(GError) error = NULL;
  g_autoptr(JsonDocument) doc = parse("{\"n\": 3}", NULL);
  ck_assert(!json_document_set(doc, refused_assignments[_i].assignment, &error));
  ck_assert(test_error_says(error, refused_assignments[_i].message));
  ck_assert_int_eq(error->code, HIGHWATER_ERROR_USAGE);
}
END_TEST

START_TEST(an_absurdly_deep_assignment_is_refused)
{
  g_autoptr(GString) text = g_string_new("a");
  for (int i = 0; i < 100000; i++)
    g_string_append(text, ".a");
  g_string_append(text, "=1");
  g_autoptr(JsonDocument) doc = parse("{}", NULL);
  ck_assert(!json_document_set(doc, text->str, NULL));
}
END_TEST

START_TEST(the_nearest_name_is_at_most_half_the_word_away)
{
  static const char *const names[] = {"run", "lower", "list", "plot", NULL};
  ck_assert_str_eq(nearest_name("lits", names), "list");
  ck_assert_str_eq(nearest_name("rum", names), "run");
  ck_assert_str_eq(nearest_name("lowr", names), "lower");
  ck_assert_ptr_null(nearest_name("xyz", names));
  ck_assert_ptr_null(nearest_name("", names));
  g_autofree char *endless = g_strnfill(100000, 'l');
  ck_assert_ptr_null(nearest_name(endless, names));
}
END_TEST

Suite *
test_suite(void)
{
  Suite *suite = suite_create("json");
  TCase *text = tcase_create("text"), *getters = tcase_create("getters");
  TCase *set = tcase_create("set");
  suite_add_tcase(suite, text);
  suite_add_tcase(suite, getters);
  suite_add_tcase(suite, set);
  tcase_add_loop_test(text, text_that_is_not_strict_json_is_refused_with_its_line, 0,
                      G_N_ELEMENTS(refused_texts));
  tcase_add_test(text, every_truncation_of_a_good_text_is_refused);
  tcase_add_test(text, a_duplicate_among_many_keys_is_found_on_its_line);
  tcase_add_test(text, nesting_is_limited);
  tcase_add_test(text, files_that_cannot_be_read_or_are_enormous_are_refused);
  tcase_add_test(getters, getters_give_what_is_written_and_defaults_for_absent_and_null);
  tcase_add_loop_test(getters, a_wrong_value_is_refused_naming_file_key_and_what_is_allowed, 0,
                      G_N_ELEMENTS(refused_values));
  tcase_add_test(getters, after_an_error_getters_give_defaults_and_the_first_error_stays);
  tcase_add_test(getters, a_callers_own_error_is_reported_with_the_path);
  tcase_add_test(getters, unknown_keys_pass_where_they_are_allowed);
  tcase_add_test(getters, reading_a_long_array_in_order_is_fast);
  tcase_add_loop_test(set, set_puts_a_json_value_or_a_string_under_the_path, 0,
                      G_N_ELEMENTS(assignments));
  tcase_add_loop_test(set, a_malformed_assignment_is_refused, 0, G_N_ELEMENTS(refused_assignments));
  tcase_add_test(set, an_absurdly_deep_assignment_is_refused);
  tcase_add_test(set, the_nearest_name_is_at_most_half_the_word_away);
  return suite;
}
