/* config_reader.c - walks a training configuration by its table of keys; collects plan and note. */
#include "import/config_reader.h"

#include <math.h>
#include <string.h>

#include "base/json_output.h"
#include "base/nearest_name.h"
#include "base/units.h"

#define VALUE_SHOWN 48 /* characters of a value in the note */

ConfigReader
config_reader_part(const ConfigReader *r, const char *prefix, const cJSON *root,
                   const ConfigRow *rows)
{
  return (ConfigReader){
      .tree = r->tree, .root = root, .prefix = prefix, .rows = rows, .result = r->result};
}

/* ---- notes and errors ---- */

static char *
value_text(const cJSON *item)
{
  if (cJSON_IsString(item))
    return g_strdup(item->valuestring);
  return item != NULL ? json_line(item) : g_strdup("");
}

static char *
shown_value(const cJSON *item)
{
  g_autofree char *text = value_text(item);
  g_autofree char *line = g_strescape(text, "\"\\");
  if (strlen(line) <= VALUE_SHOWN)
    return g_steal_pointer(&line);
  return g_strdup_printf("%.*s...", VALUE_SHOWN - 3, line);
}

/* As the file has it, with the prefix that the reader does not need. */
static char *
shown_key(const ConfigReader *r, const char *key, const cJSON *item)
{
  gboolean stripped = r->strip != NULL && item != NULL && item->string != NULL &&
                      g_str_has_prefix(item->string, r->strip) && !g_str_has_prefix(key, r->strip);
  return g_strconcat(r->prefix, stripped ? r->strip : "", key, NULL);
}

static void
add_note(ConfigReader *r, ConfigNoteKind kind, const char *key, const cJSON *item, char *text)
{
  ConfigNote *note = g_new0(ConfigNote, 1);
  *note = (ConfigNote){
      .kind = kind,
      .file = g_strdup(r->tree->name),
      .line = config_tree_line(r->tree, item),
      .key = shown_key(r, key, item),
      .value = shown_value(item),
      .text = text,
  };
  g_ptr_array_add(r->result->notes, note);
  if (r->left != NULL)
    g_hash_table_remove(r->left, item);
}

void
config_note(ConfigReader *r, ConfigNoteKind kind, const char *key, const char *format, ...)
{
  va_list arguments;
  va_start(arguments, format);
  add_note(r, kind, key, config_get(r, key), g_strdup_vprintf(format, arguments));
  va_end(arguments);
}

gboolean
config_failed(const ConfigReader *r)
{
  return r->result->error != NULL;
}

/* The nearest key above that has a line: what is missing is missed there. */
static guint
line_of_key(const ConfigReader *r, const char *key)
{
  guint line = config_tree_line(r->tree, config_get(r, key));
  return line > 0 ? line : config_tree_line(r->tree, r->root);
}

void
config_fail(ConfigReader *r, const char *key, const char *format, ...)
{
  if (config_failed(r))
    return;
  va_list arguments;
  va_start(arguments, format);
  g_autofree char *message = g_strdup_vprintf(format, arguments);
  va_end(arguments);
  guint line = line_of_key(r, key);
  g_autofree char *shown = shown_key(r, key, config_get(r, key));
  g_autofree char *place = line > 0 ? g_strdup_printf("line %u: ", line) : g_strdup("");
  r->result->error = g_error_new(HIGHWATER_ERROR, HIGHWATER_ERROR_INPUT, "%s: %skey '%.80s': %s",
                                 r->tree->name, place, shown, message);
}

/* ---- the plan ---- */

static const cJSON *
plan_get(const cJSON *plan, const char *ours)
{
  g_auto(GStrv) parts = g_strsplit(ours, ".", 2);
  const cJSON *item = cJSON_GetObjectItemCaseSensitive(plan, parts[0]);
  /* Options of the section deepspeed have dots of their own. */
  return item == NULL || parts[1] == NULL ? item : plan_get(item, parts[1]);
}

gboolean
config_is_set(const ConfigReader *r, const char *ours)
{
  return plan_get(r->result->plan, ours) != NULL;
}

void
config_set(ConfigReader *r, const char *ours, cJSON *value)
{
  json_replace_path(r->result->plan, ours, value);
}

/* Takes the value. */
static gboolean
set_once(ConfigReader *r, const char *key, const char *ours, cJSON *value)
{
  const cJSON *there = plan_get(r->result->plan, ours);
  if (there == NULL) {
    config_set(r, ours, value);
    g_hash_table_insert(r->result->origin, g_strdup(ours),
                        g_strdup_printf("key '%s%s'", r->prefix, key)); /* for contradictions */
    return TRUE;
  }
  gboolean same = cJSON_Compare(there, value, TRUE);
  if (!same) {
    g_autofree char *old = value_text(there), *new = value_text(value);
    const char *origin = g_hash_table_lookup(r->result->origin, ours);
    config_fail(r, key, "contradicts %s: %s would be %s and %s",
                origin != NULL ? origin : "what an export wrote", ours, old, new);
  }
  cJSON_Delete(value);
  return same;
}

void
config_use(ConfigReader *r, const char *key, const char *ours, cJSON *value, const char *format,
           ...)
{
  g_autofree char *text = shown_value(value), *remark = NULL;
  if (format != NULL) {
    va_list arguments;
    va_start(arguments, format);
    remark = g_strdup_vprintf(format, arguments);
    va_end(arguments);
  }
  if (set_once(r, key, ours, value))
    add_note(r, CONFIG_USED, key, config_get(r, key),
             g_strdup_printf("%s = %s%s%s%s", ours, text, remark != NULL ? " (" : "",
                             remark != NULL ? remark : "", remark != NULL ? ")" : ""));
}

void
config_default(ConfigReader *r, const char *ours, cJSON *value, const char *reason)
{
  if (config_is_set(r, ours)) {
    cJSON_Delete(value);
    return;
  }
  ConfigNote *note = g_new0(ConfigNote, 1);
  *note = (ConfigNote){.kind = CONFIG_DEFAULTED,
                       .file = g_strdup(r->tree->name),
                       .key = g_strdup(ours),
                       .value = shown_value(value),
                       .text = g_strdup(reason)};
  g_ptr_array_add(r->result->notes, note);
  config_set(r, ours, value);
}

/* ---- values ---- */

static const cJSON *
get_path(const cJSON *object, const char *key, const char *strip)
{
  const cJSON *whole = cJSON_GetObjectItemCaseSensitive(object, key);
  if (whole == NULL && strip != NULL) {
    g_autofree char *long_key = g_strconcat(strip, key, NULL);
    whole = cJSON_GetObjectItemCaseSensitive(object, long_key);
  }
  const char *dot = strchr(key, '.');
  if (whole != NULL || dot == NULL)
    return whole;
  g_autofree char *first = g_strndup(key, (gsize) (dot - key));
  const cJSON *section = cJSON_GetObjectItemCaseSensitive(object, first);
  return cJSON_IsObject(section) ? get_path(section, dot + 1, NULL) : NULL;
}

const cJSON *
config_get(const ConfigReader *r, const char *key)
{
  return get_path(r->root, key, r->strip);
}

gboolean
config_has(const ConfigReader *r, const char *key)
{
  const cJSON *item = config_get(r, key);
  return item != NULL && !cJSON_IsNull(item);
}

static gboolean
is_auto(const cJSON *item)
{
  return cJSON_IsString(item) && g_ascii_strcasecmp(item->valuestring, "auto") == 0;
}

gboolean
config_is_auto(const ConfigReader *r, const char *key)
{
  return is_auto(config_get(r, key));
}

/* What a text means where a number, true or false is wanted: as YAML would read it. */
static cJSON *
plain_value(const cJSON *item)
{
  return cJSON_IsString(item) ? config_tree_scalar(item->valuestring) : cJSON_Duplicate(item, TRUE);
}

gboolean
config_bool(ConfigReader *r, const char *key, gboolean fallback)
{
  if (!config_has(r, key) || config_is_auto(r, key))
    return fallback;
  cJSON *value = plain_value(config_get(r, key));
  gboolean number = cJSON_IsNumber(value) && (value->valuedouble == 0 || value->valuedouble == 1);
  if (!cJSON_IsBool(value) && !number)
    config_fail(r, key, "true or false is needed");
  gboolean result = cJSON_IsTrue(value) || (number && value->valuedouble == 1);
  cJSON_Delete(value);
  return result;
}

double
config_number(ConfigReader *r, const char *key, double fallback)
{
  if (!config_has(r, key) || config_is_auto(r, key))
    return fallback;
  cJSON *value = plain_value(config_get(r, key));
  double number = cJSON_IsNumber(value) ? value->valuedouble : fallback;
  if (!cJSON_IsNumber(value))
    config_fail(r, key, "a number is needed");
  cJSON_Delete(value);
  return number;
}

int
config_int(ConfigReader *r, const char *key, int fallback, int min, int max)
{
  double number = config_number(r, key, fallback);
  if (config_failed(r) || !config_has(r, key) || config_is_auto(r, key))
    return fallback;
  if (number == floor(number) && number >= min && number <= max)
    return (int) number;
  config_fail(r, key, "%.17g is not a whole number in %d..%d", number, min, max);
  return fallback;
}

const char *
config_text(ConfigReader *r, const char *key, const char *fallback)
{
  const cJSON *item = config_get(r, key);
  if (!config_has(r, key))
    return fallback;
  if (cJSON_IsString(item))
    return item->valuestring;
  if (cJSON_IsFalse(item)) /* YAML's plain no */
    return "no";
  if (cJSON_IsNumber(item) || cJSON_IsBool(item)) {
    g_autofree char *text = value_text(item);
    return g_intern_string(text);
  }
  config_fail(r, key, "a text is needed");
  return fallback;
}

/* ---- actions ---- */

void
config_later(ConfigReader *r, const ConfigRow *row, const char *key, const cJSON *item)
{
  (void) row, (void) key;
  g_hash_table_add(r->left, (gpointer) (gsize) item);
}

void
config_ignore(ConfigReader *r, const ConfigRow *row, const char *key, const cJSON *item)
{
  add_note(r, CONFIG_IGNORED, key, item, g_strdup(row->note));
}

static gboolean
is_on(const cJSON *item)
{
  cJSON *value = plain_value(item);
  gboolean off =
      cJSON_IsNull(value) || cJSON_IsFalse(value) ||
      (cJSON_IsNumber(value) && value->valuedouble <= 1) ||
      ((cJSON_IsArray(value) || cJSON_IsObject(value)) && value->child == NULL) ||
      (cJSON_IsString(value) && (g_ascii_strcasecmp(value->valuestring, "none") == 0 ||
                                 g_ascii_strcasecmp(value->valuestring, "disabled") == 0 ||
                                 g_ascii_strcasecmp(value->valuestring, "auto") == 0));
  cJSON_Delete(value);
  return !off;
}

void
config_refuse_on(ConfigReader *r, const ConfigRow *row, const char *key, const cJSON *item)
{
  if (is_on(item))
    config_fail(r, key, "%s: not supported", row->note);
  else
    add_note(r, CONFIG_IGNORED, key, item, g_strdup_printf("off: %s", row->note));
}

void
config_refuse_positive(ConfigReader *r, const ConfigRow *row, const char *key, const cJSON *item)
{
  if (config_number(r, key, 0) > 0)
    config_fail(r, key, "%s: not supported", row->note);
  else if (!config_failed(r))
    add_note(r, CONFIG_IGNORED, key, item, g_strdup_printf("off: %s", row->note));
}

void
config_refuse_enabled(ConfigReader *r, const ConfigRow *row, const char *key, const cJSON *item)
{
  gboolean is_switch = g_str_has_suffix(key, ".enabled") || g_str_has_suffix(key, ".enable");
  if (is_switch && is_on(item))
    config_fail(r, key, "%s: not supported", row->note);
  else
    add_note(r, CONFIG_IGNORED, key, item, g_strdup_printf("off: %s", row->note));
}

void
config_copy(ConfigReader *r, const ConfigRow *row, const char *key, const cJSON *item)
{
  config_use(r, key, row->ours, plain_value(item), row->note != NULL ? "%s" : NULL, row->note);
}

void
config_copy_bool(ConfigReader *r, const ConfigRow *row, const char *key, const cJSON *item)
{
  (void) item;
  config_use(r, key, row->ours, cJSON_CreateBool(config_bool(r, key, FALSE)),
             row->note != NULL ? "%s" : NULL, row->note);
}

/* ---- the walk ---- */

static const ConfigRow *
find_row(const ConfigReader *r, const char *key)
{
  for (const ConfigRow *row = r->rows; row->key != NULL; row++) {
    gsize length = strlen(row->key);
    gboolean below = length > 1 && row->key[length - 1] == '*';
    if (below ? strncmp(key, row->key, length - 1) == 0 : g_str_equal(key, row->key))
      return row;
  }
  if (r->strip == NULL || !g_str_has_prefix(key, r->strip))
    return NULL;
  ConfigReader plain = *r;
  plain.strip = NULL;
  return find_row(&plain, key + strlen(r->strip));
}

/* Does a row lie below the key? */
static gboolean
is_section(const ConfigReader *r, const char *key)
{
  gsize length = strlen(key);
  for (const ConfigRow *row = r->rows; row->key != NULL; row++)
    if (strncmp(row->key, key, length) == 0 && row->key[length] == '.')
      return TRUE;
  return FALSE;
}

/* The key of a row, or a section of one, that the key is hardly different from; NULL.  Interned. */
static const char *
find_misspelt(const ConfigReader *r, const char *key)
{
  g_autoptr(GPtrArray) names = g_ptr_array_new();
  guint depth = 0;
  for (const char *c = key; *c != '\0'; c++)
    depth += *c == '.';
  for (const ConfigRow *row = r->rows; row->key != NULL; row++) {
    const char *end = row->key;
    for (guint dots = 0; *end != '\0' && (*end != '.' || dots < depth); end++)
      dots += *end == '.';
    g_autofree char *name = g_strndup(row->key, (gsize) (end - row->key));
    if (!g_str_has_suffix(name, "*"))
      g_ptr_array_add(names, (gpointer) (gsize) g_intern_string(name));
  }
  g_ptr_array_add(names, NULL);
  return misspelt_name(key, (const char *const *) names->pdata);
}

/* FALSE after an error. */
static gboolean
check_spelling(ConfigReader *r, const char *key)
{
  gboolean has_prefix = r->strip != NULL && g_str_has_prefix(key, r->strip);
  const char *plain = has_prefix ? key + strlen(r->strip) : key;
  const char *near = find_misspelt(r, plain);
  if (near != NULL)
    config_fail(r, key, "unknown; did you mean '%s%.*s%s'?", r->prefix, (int) (plain - key), key,
                near);
  return near == NULL;
}

static void
unknown_key(ConfigReader *r, const char *key, const cJSON *item)
{
  if (check_spelling(r, key))
    add_note(r, CONFIG_IGNORED, key, item,
             g_strdup("not known to highwater: taken to change neither memory nor time"));
}

static void
walk(ConfigReader *r, const cJSON *object, const char *path)
{
  for (const cJSON *item = object->child; item != NULL && !config_failed(r); item = item->next) {
    g_autofree char *key = g_strconcat(path, item->string, NULL);
    const ConfigRow *row = find_row(r, key);
    gboolean exact = row != NULL && !g_str_has_suffix(row->key, "*") && !is_section(r, key);
    if (cJSON_IsNull(item)) {
      add_note(r, CONFIG_IGNORED, key, item, g_strdup("null, as if it were left out"));
    } else if (cJSON_IsObject(item) && !exact && item->child != NULL) {
      g_autofree char *below = g_strconcat(key, ".", NULL);
      if (row != NULL || is_section(r, key) || check_spelling(r, key))
        walk(r, item, below);
    } else if (row != NULL) {
      row->action(r, row, key, item);
    } else if (is_section(r, key) && cJSON_IsObject(item)) {
      add_note(r, CONFIG_IGNORED, key, item, g_strdup("empty"));
    } else if (is_section(r, key)) {
      config_fail(r, key, "a section with keys of its own is needed");
    } else {
      unknown_key(r, key, item);
    }
  }
}

void
config_reader_walk(ConfigReader *r)
{
  r->left = g_hash_table_new(NULL, NULL);
  walk(r, r->root, "");
}

static void
end_object(ConfigReader *r, const cJSON *object, const char *path)
{
  for (const cJSON *item = object->child; item != NULL; item = item->next) {
    if (item->string == NULL)
      continue;
    g_autofree char *key = g_strconcat(path, item->string, NULL);
    if (g_hash_table_contains(r->left, item)) {
      add_note(r, CONFIG_IGNORED, key, item, g_strdup("has no effect with the other settings"));
    } else if (cJSON_IsObject(item)) {
      g_autofree char *below = g_strconcat(key, ".", NULL);
      end_object(r, item, below);
    }
  }
}

void
config_reader_end(ConfigReader *r)
{
  end_object(r, r->root, "");
  g_clear_pointer(&r->left, g_hash_table_unref);
}
