/* check_training_config.c - training configurations of other programs: languages, recognition, and
 * that every key is accounted for. */
#include "tap_main.h"

#include <string.h>

#include "import/config_tree.h"
#include "import/training_config.h"
#include "strategy/strategy.h"

/* ---- languages ---- */

static ConfigTree *
parse(const char *text)
{
  g_autoptr(GError) error = NULL;
  ConfigTree *tree = config_tree_parse("file", text, strlen(text), &error);
  ck_assert_msg(tree != NULL, "%s", error != NULL ? error->message : "");
  return tree;
}

static const cJSON *
get(const ConfigTree *tree, const char *key)
{
  return cJSON_GetObjectItemCaseSensitive(tree->root, key);
}

START_TEST(the_first_line_tells_the_language)
{
  static const struct {
    const char *text;
    ConfigLanguage language;
  } cases[] = {
      {"{\"a\": 1}", CONFIG_JSON},     {"\n  {}", CONFIG_JSON},
      {"a: 1", CONFIG_YAML},           {"# remark = 1\na: b = c\n", CONFIG_YAML},
      {"---\na: 1", CONFIG_YAML},      {"[a]\nb = 1", CONFIG_TOML},
      {"a.b = \"c: d\"", CONFIG_TOML}, {"", CONFIG_JSON},
      {"nonsense", CONFIG_JSON},
  };
  for (guint i = 0; i < G_N_ELEMENTS(cases); i++)
    ck_assert_msg(config_tree_language(cases[i].text, strlen(cases[i].text)) == cases[i].language,
                  "'%s'", cases[i].text);
}
END_TEST

START_TEST(words_of_yaml_are_read_as_the_frameworks_read_them)
{
  g_autoptr(ConfigTree) tree = parse("a: 5e8\nb: 'no'\nc: no\nd: ~\ne: 1_000\nf: 1.0.0\n"
                                     "g: -2.5e-3\nh: [x, 2]\ni:\n  j: True\n");
  ck_assert_double_eq(get(tree, "a")->valuedouble, 5e8);
  ck_assert_str_eq(get(tree, "b")->valuestring, "no");
  ck_assert(cJSON_IsFalse(get(tree, "c")) && cJSON_IsNull(get(tree, "d")));
  ck_assert_double_eq(get(tree, "e")->valuedouble, 1000);
  ck_assert_str_eq(get(tree, "f")->valuestring, "1.0.0");
  ck_assert_double_eq(get(tree, "g")->valuedouble, -0.0025);
  ck_assert_int_eq(cJSON_GetArraySize(get(tree, "h")), 2);
  const cJSON *j = cJSON_GetObjectItem(get(tree, "i"), "j");
  ck_assert(cJSON_IsTrue(j));
  ck_assert_uint_eq(config_tree_line(tree, j), 10);
}
END_TEST

START_TEST(values_of_toml_know_their_lines)
{
  g_autoptr(ConfigTree) tree = parse("a = 1_000\n[b]\nc = 3e-4\nd = 'x'\ne = [1, \"y\"]\n"
                                     "f = 1979-05-27\n[b.g]\nh = true\n");
  const cJSON *b = get(tree, "b"), *g = cJSON_GetObjectItem(b, "g");
  ck_assert_double_eq(get(tree, "a")->valuedouble, 1000);
  ck_assert_double_eq(cJSON_GetObjectItem(b, "c")->valuedouble, 3e-4);
  ck_assert_str_eq(cJSON_GetObjectItem(b, "f")->valuestring, "1979-05-27");
  ck_assert(cJSON_IsTrue(cJSON_GetObjectItem(g, "h")));
  ck_assert_uint_eq(config_tree_line(tree, cJSON_GetObjectItem(g, "h")), 8);
}
END_TEST

START_TEST(keys_of_json_know_their_lines)
{
  g_autoptr(ConfigTree) tree = parse("{\n \"a\": [{\"b\": 1}],\n \"c\": {\n \"d\": 2}}");
  ck_assert_uint_eq(config_tree_line(tree, get(tree, "a")), 2);
  ck_assert_uint_eq(config_tree_line(tree, get(tree, "c")), 3);
  ck_assert_uint_eq(config_tree_line(tree, cJSON_GetObjectItem(get(tree, "c"), "d")), 4);
}
END_TEST

static void
expect_error(const char *text, const char *message)
{
  g_autoptr(GError) error = NULL;
  ConfigTree *tree = config_tree_parse("file", text, strlen(text), &error);
  ck_assert(tree == NULL);
  ck_assert_str_eq(error->message, message);
}

START_TEST(what_no_tree_is_made_of_is_one_line)
{
  expect_error("a: 1\nb: {c: 1, c: 2}\n", "file: line 2: key 'c' stands twice in its object");
  expect_error("a: &x 1\n", "file: line 1: anchors and aliases (&, *) are not supported: write the "
                            "value out");
  expect_error("a: !!int 1\n", "file: line 1: tags (!) are not supported");
  expect_error("a: 1\n---\nb: 1\n",
               "file: line 2: a second document begins here: one is expected in a file");
  expect_error("a: 1\n? [b]\n: 1\n", "file: line 2: a key must be a word");
  expect_error("a = inf\n", "file: line 1: inf and nan are no values of a training configuration");
}
END_TEST

/* ---- recognition ---- */

START_TEST(configurations_are_told_from_plans_by_their_keys)
{
  static const struct {
    const char *text;
    gboolean foreign;
  } cases[] = {
      {"{}", FALSE},
      {"{\"strategy\": \"zero2\", \"deepspeed\": {\"stage\": 2}}", FALSE},
      {"{\"optimizer\": {\"name\": \"adamw\"}}", FALSE},
      {"{\"zero_optimization\": {}}", TRUE},
      {"{\"bf16\": {\"enabled\": true}}", TRUE},
      {"{\"per_device_train_batch_size\": 1, \"bf16\": true}", TRUE},
      {"{\"distributed_type\": \"NO\"}", TRUE},
      {"{\"distributed_type\": ", FALSE},
  };
  for (guint i = 0; i < G_N_ELEMENTS(cases); i++)
    ck_assert_msg(training_config_is_foreign(cases[i].text, strlen(cases[i].text)) ==
                      cases[i].foreign,
                  "%s", cases[i].text);
}
END_TEST

/* ---- the note ---- */

static guint
times_noted(const TrainingConfig *config, const char *key)
{
  guint n = 0;
  for (guint i = 0; i < config->notes->len; i++) {
    const ConfigNote *note = g_ptr_array_index(config->notes, i);
    n += note->line > 0 && g_str_equal(note->key, key);
  }
  return n;
}

/* Every key that has a value of its own, or one of the sections around it, is noted once. */
static void
check_noted(const TrainingConfig *config, const cJSON *object, const char *path, gboolean above)
{
  for (const cJSON *item = object->child; item != NULL; item = item->next) {
    g_autofree char *key = g_strconcat(path, item->string, NULL);
    g_autofree char *below = g_strconcat(key, ".", NULL);
    guint n = times_noted(config, key);
    ck_assert_msg(n <= 1, "%s: key '%s' is noted %u times", config->name, key, n);
    if (cJSON_IsObject(item) && item->child != NULL)
      check_noted(config, item, below, above || n > 0);
    else
      ck_assert_msg(n == 1 || above, "%s: key '%s' is not noted", config->name, key);
  }
}

/* Files of the fuzz targets' corpus, which are there anyway. */
START_TEST(every_key_of_real_configurations_is_accounted_for_once)
{
  const TrainingConfigSettings settings = {0};
  g_autofree PlanStrategy *table = strategy_plan_table();
  g_autofree char *folder = test_source_path("tests/fuzz/corpus/training_config");
  g_autoptr(GDir) files = g_dir_open(folder, 0, NULL);
  const char *name;
  guint read = 0;
  ck_assert(files != NULL);
  while ((name = g_dir_read_name(files)) != NULL) {
    if (!strpbrk(name, "_") || g_str_has_prefix(name, "yaml_") || g_str_has_prefix(name, "toml_") ||
        g_str_has_prefix(name, "script_"))
      continue;
    g_autofree char *path = g_build_filename(folder, name, NULL), *text = NULL;
    gsize length;
    g_autoptr(GError) error = NULL;
    ck_assert(g_file_get_contents(path, &text, &length, NULL));
    g_autoptr(TrainingConfig) config = training_config_read(name, text, length, &settings, &error);
    ck_assert_msg(config != NULL, "%s", error != NULL ? error->message : "");
    g_autoptr(ConfigTree) tree = config_tree_parse(name, text, length, NULL);
    check_noted(config, tree->root, "", FALSE);
    g_autofree char *plan = training_config_plan(config);
    g_autoptr(PlanSpec) spec = plan_spec_parse(name, plan, strlen(plan), NULL, table, &error);
    ck_assert_msg(spec != NULL, "%s", error != NULL ? error->message : "");
    read++;
  }
  ck_assert_uint_ge(read, 15);
}
END_TEST

Suite *
test_suite(void)
{
  Suite *suite = suite_create("training_config");
  TCase *tcase = tcase_create("training_config");
  suite_add_tcase(suite, tcase);
  tcase_add_test(tcase, the_first_line_tells_the_language);
  tcase_add_test(tcase, words_of_yaml_are_read_as_the_frameworks_read_them);
  tcase_add_test(tcase, values_of_toml_know_their_lines);
  tcase_add_test(tcase, keys_of_json_know_their_lines);
  tcase_add_test(tcase, what_no_tree_is_made_of_is_one_line);
  tcase_add_test(tcase, configurations_are_told_from_plans_by_their_keys);
  tcase_add_test(tcase, every_key_of_real_configurations_is_accounted_for_once);
  return suite;
}
