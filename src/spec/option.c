/* option.c - options that a strategy declares in a table: parsed and described from it. */
#include "spec/option.h"

#include <string.h>

#include "base/units.h"

guint
option_section_length(const OptionSection *section)
{
  guint n = 0;
  while (section->options[n].key)
    n++;
  return n;
}

int
option_section_index(const OptionSection *section, const char *key)
{
  for (int i = 0; section->options[i].key; i++)
    if (g_str_equal(section->options[i].key, key))
      return i;
  return -1;
}

static int
name_index(const char *const *names, const char *name, gsize length)
{
  for (int i = 0; names[i]; i++)
    if (strlen(names[i]) == length && strncmp(names[i], name, length) == 0)
      return i;
  return -1;
}

/* The text between the quotes of a JSON string without escapes: tables hold nothing else. */
static char *
unquote(const char *json)
{
  gsize length = strlen(json);
  g_assert(length >= 2 && json[0] == '"' && json[length - 1] == '"');
  return g_strndup(json + 1, length - 2);
}

static gint64
fallback_size(const char *json)
{
  if (json[0] != '"')
    return g_ascii_strtoll(json, NULL, 10);
  g_autofree char *text = unquote(json);
  gint64 bytes = 0;
  g_assert(parse_size(text, &bytes, NULL));
  return bytes;
}

static gint64
fallback_name(const OptionInfo *option)
{
  g_autofree char *name = unquote(option->fallback);
  int index = name_index(option->names, name, strlen(name));
  g_assert(index >= 0);
  return index;
}

/* The default, from its JSON text.  A malformed one is a mistake in the table, hence the
 * assertions. */
static OptionValue
fallback_value(const OptionInfo *option)
{
  OptionValue value = {0};
  const char *json = option->fallback;
  if (g_str_equal(json, "null")) {
    value.is_null = TRUE;
  } else if (g_str_equal(json, "true") || g_str_equal(json, "false")) {
    value.is_bool = TRUE;
    value.number = json[0] == 't';
  } else if (option->type == OPTION_ENUM) {
    value.number = fallback_name(option);
  } else if (option->type == OPTION_REAL) {
    value.real = g_ascii_strtod(json, NULL);
  } else {
    value.number = fallback_size(json);
  }
  return value;
}

static void
read_bool_or_int(JsonReader *reader, const OptionInfo *option, const char *key, OptionValue *value)
{
  const cJSON *raw = json_reader_raw(reader, key);
  value->is_null = cJSON_IsNull(raw);
  value->is_bool = cJSON_IsBool(raw);
  if (value->is_null)
    value->number = 0;
  else if (value->is_bool)
    value->number = cJSON_IsTrue(raw);
  else if (cJSON_IsNumber(raw))
    value->number = json_reader_int(reader, key, 0, option->min, option->max);
  else
    json_reader_fail(reader, key,
                     "must be true, false, null or a whole number in %" G_GINT64_FORMAT
                     "..%" G_GINT64_FORMAT,
                     option->min, option->max);
}

static void
read_name_or_int(JsonReader *reader, const OptionInfo *option, const char *key, OptionValue *value)
{
  value->is_name = cJSON_IsString(json_reader_raw(reader, key));
  value->number = value->is_name
                      ? json_reader_enum(reader, key, option->names, 0)
                      : json_reader_int(reader, key, value->number, option->min, option->max);
}

static void
read_int_or_auto(JsonReader *reader, const OptionInfo *option, const char *key, OptionValue *value)
{
  const cJSON *raw = json_reader_raw(reader, key);
  value->is_auto = cJSON_IsString(raw) && g_str_equal(raw->valuestring, "auto");
  if (value->is_auto)
    value->number = 0;
  else if (cJSON_IsNumber(raw))
    value->number = json_reader_int(reader, key, value->number, option->min, option->max);
  else
    json_reader_fail(reader, key,
                     "must be \"auto\" or a whole number in %" G_GINT64_FORMAT
                     "..%" G_GINT64_FORMAT,
                     option->min, option->max);
}

static void
name_list_free(gpointer data)
{
  NameList *list = data;
  g_strfreev(list->names);
  g_free(list);
}

/* FALSE unless it is a name, or a list of at least one name. */
static gboolean
add_name_list(GPtrArray *lists, const cJSON *item)
{
  g_autoptr(GStrvBuilder) names = g_strv_builder_new();
  const cJSON *name;
  if (cJSON_IsString(item))
    g_strv_builder_add(names, item->valuestring);
  else if (!cJSON_IsArray(item) || cJSON_GetArraySize(item) == 0)
    return FALSE;
  cJSON_ArrayForEach(name, item)
  {
    if (!cJSON_IsString(name))
      return FALSE;
    g_strv_builder_add(names, name->valuestring);
  }
  NameList *list = g_new(NameList, 1);
  *list = (NameList){g_strv_builder_end(names), cJSON_IsString(item)};
  g_ptr_array_add(lists, list);
  return TRUE;
}

static void
read_name_lists(JsonReader *reader, const char *key, OptionValue *value)
{
  const cJSON *raw = json_reader_raw(reader, key), *item;
  gboolean right = cJSON_IsArray(raw) && cJSON_GetArraySize(raw) > 0;
  value->lists = g_ptr_array_new_with_free_func(name_list_free);
  cJSON_ArrayForEach(item, raw) right = right && add_name_list(value->lists, item);
  if (!right)
    json_reader_fail(reader, key,
                     "must be a list of names and of lists of names, none of them empty");
}

/* The key inside its object: what follows the dot. */
static const char *
inner_key(const char *key)
{
  const char *dot = strchr(key, '.');
  return dot ? dot + 1 : key;
}

static OptionValue
read_option(JsonReader *reader, const OptionInfo *option)
{
  OptionValue value = fallback_value(option);
  const char *key = inner_key(option->key);
  const cJSON *raw = json_reader_raw(reader, key);
  if (!raw || (cJSON_IsNull(raw) && option->type != OPTION_BOOL_OR_INT))
    return value;
  value.given = TRUE;
  value.is_null = FALSE;
  switch (option->type) {
  case OPTION_BOOL:
    value.number = json_reader_bool(reader, key, value.number != 0);
    break;
  case OPTION_INT:
    value.number = json_reader_int(reader, key, value.number, option->min, option->max);
    break;
  case OPTION_SIZE:
    value.number = json_reader_size_between(reader, key, value.number, option->min,
                                            option->max > 0 ? option->max : G_MAXINT64);
    break;
  case OPTION_ENUM:
    value.number = json_reader_enum(reader, key, option->names, (int) value.number);
    break;
  case OPTION_BOOL_OR_INT:
    read_bool_or_int(reader, option, key, &value);
    break;
  case OPTION_INT_OR_AUTO:
    read_int_or_auto(reader, option, key, &value);
    break;
  case OPTION_REAL:
    value.real =
        json_reader_double(reader, key, value.real, (double) option->min, (double) option->max);
    break;
  case OPTION_TEXT:
    json_reader_string(reader, key, NULL);
    break;
  case OPTION_NAME_LISTS:
    read_name_lists(reader, key, &value);
    break;
  case OPTION_ABSENT:
    json_reader_fail(reader, key, "not yet supported");
    break;
  case OPTION_NAME_OR_INT:
    read_name_or_int(reader, option, key, &value);
    break;
  }
  return value;
}

static guint
read_plain(JsonReader *reader, const OptionInfo *option, OptionValue *value)
{
  *value = read_option(reader, option);
  return 1;
}

/* Options from the first one on that belong to the same object; returns how many. */
static guint
read_object(JsonReader *reader, const OptionInfo *options, OptionValue *values)
{
  guint n = 0;
  gsize length = (gsize) (inner_key(options->key) - options->key); /* with the dot */
  g_autofree char *name = g_strndup(options->key, length - 1);
  g_autoptr(JsonReader) object = json_reader_section(reader, name);
  for (; options[n].key && strncmp(options[n].key, options->key, length) == 0; n++)
    values[n] = read_option(object, &options[n]);
  json_reader_finish(object, NULL);
  return n;
}

OptionValue *
option_section_read(JsonReader *reader, const OptionSection *section)
{
  guint n = option_section_length(section);
  OptionValue *values = g_new0(OptionValue, n + 1);
  for (guint i = 0; i < n;)
    i += strchr(section->options[i].key, '.')
             ? read_object(reader, &section->options[i], &values[i])
             : read_plain(reader, &section->options[i], &values[i]);
  return values;
}

void
option_values_free(OptionValue *values, const OptionSection *section)
{
  for (guint i = 0; values != NULL && i < option_section_length(section); i++)
    g_clear_pointer(&values[i].lists, g_ptr_array_unref);
  g_free(values);
}

static char *
join_names(const char *const *names)
{
  GString *text = g_string_new(NULL);
  for (int i = 0; names[i]; i++)
    g_string_append_printf(text, "%s%s", i > 0 ? " | " : "", names[i]);
  return g_string_free(text, FALSE);
}

char *
option_allowed(const OptionInfo *option)
{
  switch (option->type) {
  case OPTION_BOOL:
    return g_strdup("true | false");
  case OPTION_INT:
    return g_strdup_printf("%" G_GINT64_FORMAT "..%" G_GINT64_FORMAT, option->min, option->max);
  case OPTION_SIZE:
    return g_strdup("bytes, or \"25MiB\"");
  case OPTION_ENUM:
    return join_names(option->names);
  case OPTION_BOOL_OR_INT:
    return g_strdup_printf("true | false | null | %" G_GINT64_FORMAT "..%" G_GINT64_FORMAT,
                           option->min, option->max);
  case OPTION_NAME_OR_INT: {
    g_autofree char *names = join_names(option->names);
    return g_strdup_printf("%s | %" G_GINT64_FORMAT "..%" G_GINT64_FORMAT, names, option->min,
                           option->max);
  }
  case OPTION_INT_OR_AUTO:
    return g_strdup_printf("%" G_GINT64_FORMAT "..%" G_GINT64_FORMAT " | auto", option->min,
                           option->max);
  case OPTION_REAL:
    return g_strdup_printf("%" G_GINT64_FORMAT "..%" G_GINT64_FORMAT ", fractions too", option->min,
                           option->max);
  case OPTION_TEXT:
    return g_strdup("text");
  case OPTION_NAME_LISTS:
    return g_strdup("null | list of names and of lists of names");
  case OPTION_ABSENT:
    return g_strdup("null");
  }
  g_assert_not_reached();
}
