/* plan_export.c - writes a plan in another program's format, and reads it again to see what that
 * cannot say. */
#include "import/plan_export.h"

#include <string.h>

#include "base/json_output.h"
#include "base/units.h"
#include "import/plan_format.h"
#include "import/plan_values.h"
#include "import/training_config.h"

static const PlanFormat *const formats[] = {&plan_format_accelerate, &plan_format_deepspeed,
                                            &plan_format_torchtitan};

const char *const *
plan_export_formats(void)
{
  static const char *const names[] = {"accelerate", "deepspeed", "torchtitan", NULL};
  return names;
}

static const PlanFormat *
find_format(const char *name)
{
  for (guint i = 0; i < G_N_ELEMENTS(formats); i++)
    if (g_str_equal(formats[i]->name, name))
      return formats[i];
  return NULL;
}

/* ---- text ---- */

static void
put_scalar(GString *text, const cJSON *item, ConfigLanguage language)
{
  g_autofree char *json = json_line(item);
  /* Words need no quotes in YAML, unless they mean something else there. */
  cJSON *read = cJSON_IsString(item) ? config_tree_scalar(item->valuestring) : NULL;
  gboolean bare = language == CONFIG_YAML && cJSON_IsString(read);
  g_string_append(text, bare ? item->valuestring : json);
  cJSON_Delete(read);
}

static void
put_yaml(GString *text, const cJSON *object, int indent)
{
  for (const cJSON *item = object->child; item != NULL; item = item->next) {
    g_string_append_printf(text, "%*s%s:", indent, "", item->string);
    if (cJSON_IsObject(item)) {
      g_string_append_c(text, '\n');
      put_yaml(text, item, indent + 2);
      continue;
    }
    g_string_append_c(text, ' ');
    put_scalar(text, item, CONFIG_YAML);
    g_string_append_c(text, '\n');
  }
}

static void
put_toml(GString *text, const cJSON *root)
{
  for (const cJSON *section = root->child; section != NULL; section = section->next) {
    g_string_append_printf(text, "%s[%s]\n", section == root->child ? "" : "\n", section->string);
    for (const cJSON *item = section->child; item != NULL; item = item->next) {
      g_string_append_printf(text, "%s = ", item->string);
      put_scalar(text, item, CONFIG_TOML);
      g_string_append_c(text, '\n');
    }
  }
}

/* The configuration's text, with what is left to the script: in a comment, or under a key where
 * there are none. */
static char *
print(const PlanFormat *format, const cJSON *root, const cJSON *script)
{
  if (format->language == CONFIG_JSON) {
    cJSON *whole = cJSON_Duplicate(root, TRUE);
    if (script->child != NULL)
      cJSON_AddItemToObject(whole, CONFIG_SCRIPT_KEY, cJSON_Duplicate(script, TRUE));
    return json_finish(whole);
  }
  GString *text = g_string_new("# Written by highwater export.\n");
  if (script->child != NULL) {
    g_autofree char *json = json_line(script);
    g_string_append_printf(text, "# The training script, or its environment, has to say:\n%s%s\n",
                           CONFIG_SCRIPT_COMMENT, json);
  }
  if (format->language == CONFIG_YAML)
    put_yaml(text, root, 0);
  else
    put_toml(text, root);
  return g_string_free(text, FALSE);
}

/* ---- what is left to the script ---- */

static gboolean
is_of_script(const PlanFormat *format, const char *key)
{
  for (const char *const *s = format->script; *s != NULL; s++) {
    gsize length = strlen(*s);
    if (strncmp(key, *s, length) == 0 && (key[length] == '\0' || key[length] == '.'))
      return TRUE;
  }
  return FALSE;
}

/* Nobody has to say what the frameworks do anyway. */
static gboolean
is_default(const PlanSpec *spec, const char *key)
{
  gsize length = spec->section != NULL ? strlen(spec->section->name) : 0;
  const struct {
    const char *key;
    gboolean is_default;
  } others[] = {{"compile", !spec->compile_per_block},
                {"loop", spec->loop == LOOP_PLAIN},
                {"precision.autocast", !spec->precision.autocast},
                {"precision.grad_scaler", !spec->precision.grad_scaler},
                {"precision.output", !spec->precision.has_output}};
  for (guint i = 0; i < G_N_ELEMENTS(others); i++)
    if (g_str_equal(key, others[i].key))
      return others[i].is_default;
  if (length == 0 || strncmp(key, spec->section->name, length) != 0 || key[length] != '.')
    return FALSE;
  return !plan_spec_option(spec, key + length + 1)->given;
}

static void
leave_to_script(const cJSON *item, cJSON *script, GString *words)
{
  json_replace_path(script, item->string, cJSON_Duplicate(item, TRUE));
  g_autofree char *json = json_line(item);
  g_string_append_printf(words, "%s%s = %s", words->len > 0 ? ", " : "", item->string, json);
}

static cJSON *
script_part(const PlanFormat *format, const PlanSpec *spec, const cJSON *values, GString *words)
{
  cJSON *script = cJSON_CreateObject();
  for (const cJSON *item = values->child; item != NULL; item = item->next)
    if (is_of_script(format, item->string) && !is_default(spec, item->string))
      leave_to_script(item, script, words);
  return script;
}

/* ---- what cannot be said ---- */

/* The values of the plan that the text is read as; NULL and error. */
static cJSON *
read_again(const char *text, const PlanStrategy *strategies, GError **error)
{
  const TrainingConfigSettings settings = {0};
  g_autoptr(TrainingConfig) config =
      training_config_read("export", text, strlen(text), &settings, error);
  if (config == NULL)
    return NULL;
  g_autofree char *plan = training_config_plan(config);
  g_autoptr(PlanSpec) spec = plan_spec_parse("export", plan, strlen(plan), NULL, strategies, error);
  return spec != NULL ? plan_values(spec, config->plan) : NULL;
}

/* "fsdp.head = \"own\", ...": what differs; empty if nothing does. */
static void
append_differences(const cJSON *wanted, const cJSON *got, GString *text)
{
  for (const cJSON *item = wanted->child; item != NULL; item = item->next) {
    const cJSON *other = cJSON_GetObjectItemCaseSensitive(got, item->string);
    if (other != NULL && cJSON_Compare(item, other, TRUE))
      continue;
    g_autofree char *json = json_line(item), *instead = json_line(other);
    g_string_append_printf(text, "%s%s = %s", text->len > 0 ? ", " : "", item->string, json);
    if (instead != NULL)
      g_string_append_printf(text, " (there it is %s)", instead);
  }
}

static gboolean
check_again(const PlanFormat *format, const PlanSpec *spec, const char *text, const cJSON *values,
            const PlanStrategy *strategies, GError **error)
{
  cJSON *again = read_again(text, strategies, error);
  if (again == NULL) {
    g_prefix_error(error, "%s: %s cannot run this plan: ", spec->file, format->title);
    return FALSE;
  }
  g_autoptr(GString) differences = g_string_new(NULL);
  append_differences(values, again, differences);
  cJSON_Delete(again);
  if (differences->len == 0)
    return TRUE;
  g_set_error(error, HIGHWATER_ERROR, HIGHWATER_ERROR_INPUT,
              "%s: a configuration of %s cannot say %s", spec->file, format->title,
              differences->str);
  return FALSE;
}

/* What the other program does unless its script says otherwise: where that is not what the plan
 * says, the script has to. */
static void
leave_other_defaults(const PlanFormat *format, const char *text, const cJSON *values,
                     const PlanStrategy *strategies, cJSON *script, GString *words)
{
  cJSON *again = read_again(text, strategies, NULL);
  for (const cJSON *item = values->child; again != NULL && item != NULL; item = item->next) {
    const cJSON *other = cJSON_GetObjectItemCaseSensitive(again, item->string);
    gboolean same = other != NULL && cJSON_Compare(item, other, TRUE);
    if (!same && is_of_script(format, item->string))
      leave_to_script(item, script, words);
  }
  cJSON_Delete(again);
}

static gboolean
check_strategy(const PlanFormat *format, const PlanSpec *spec, GError **error)
{
  if (g_strv_contains(format->strategies, spec->strategy))
    return TRUE;
  g_autofree char *all = g_strjoinv(", ", (char **) (gsize) format->strategies);
  return plan_spec_refuse(spec, error, "strategy", "%s does not run %s, only %s", format->title,
                          spec->strategy, all);
}

PlanExport *
plan_export(const char *name, const PlanSpec *spec, const cJSON *document,
            const PlanStrategy *strategies, GError **error)
{
  const PlanFormat *format = find_format(name);
  if (format == NULL) {
    g_set_error(error, HIGHWATER_ERROR, HIGHWATER_ERROR_USAGE,
                "--as: '%.60s' is not one of accelerate, deepspeed, torchtitan", name);
    return NULL;
  }
  if (!check_strategy(format, spec, error))
    return NULL;
  cJSON *values = plan_values(spec, document);
  g_autoptr(GString) words = g_string_new(NULL);
  cJSON *script = script_part(format, spec, values, words), *root = format->write(spec, values);
  g_autofree char *first = print(format, root, script);
  leave_other_defaults(format, first, values, strategies, script, words);
  g_autofree char *text = print(format, root, script);
  PlanExport *export = NULL;
  if (check_again(format, spec, text, values, strategies, error)) {
    export = g_new0(PlanExport, 1);
    export->text = g_steal_pointer(&text);
    export->script = g_strdup(words->str);
  }
  cJSON_Delete(root);
  cJSON_Delete(script);
  cJSON_Delete(values);
  return export;
}

void
plan_export_free(PlanExport *export)
{
  if (export == NULL)
    return;
  g_free(export->text);
  g_free(export->script);
  g_free(export);
}
