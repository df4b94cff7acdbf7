/* json_reader.c - typed getters on one JSON object; the first wrong value is kept in the document.
 */
#include "base/json_reader.h"
#include "base/units.h"
#include <math.h>
#include <string.h>

/* Whole numbers up to here are exact in a double, which is what cJSON keeps. */
#define LARGEST_WHOLE ((double) ((gint64) 1 << 53))

/* JSON has no comments; our files put them in keys that nobody reads ("_source"). */
#define COMMENT_PREFIX '_'

struct _JsonReader {
  JsonDocument *doc;
  const cJSON *object; /* NULL: an absent section */
  char *path;          /* "mesh." or "" */
  GPtrArray *known;    /* keys asked for */
  gboolean allow_unknown;
  /* Where the last json_reader_element() stands, so that reading an array in order is linear. */
  const cJSON *array, *element;
  guint element_index;
};

static JsonReader *
reader_new(JsonDocument *doc, const cJSON *object, char *path)
{
  JsonReader *reader = g_new0(JsonReader, 1);
  reader->doc = doc;
  reader->object = object;
  reader->path = path;
  reader->known = g_ptr_array_new_with_free_func(g_free);
  return reader;
}

JsonReader *
json_reader_new(JsonDocument *doc)
{
  return reader_new(doc, json_document_root(doc), g_strdup(""));
}

void
json_reader_free(JsonReader *reader)
{
  if (!reader)
    return;
  g_ptr_array_free(reader->known, TRUE);
  g_free(reader->path);
  g_free(reader);
}

static gboolean
is_known(const JsonReader *reader, const char *key)
{
  for (guint i = 0; i < reader->known->len; i++)
    if (g_str_equal(g_ptr_array_index(reader->known, i), key))
      return TRUE;
  return FALSE;
}

const cJSON *
json_reader_raw(JsonReader *reader, const char *key)
{
  if (!is_known(reader, key))
    g_ptr_array_add(reader->known, g_strdup(key));
  return cJSON_GetObjectItemCaseSensitive(reader->object, key);
}

void
json_reader_fail(JsonReader *reader, const char *key, const char *format, ...)
{
  va_list arguments;
  va_start(arguments, format);
  g_autofree char *what = g_strdup_vprintf(format, arguments);
  va_end(arguments);
  json_document_fail(reader->doc, "key '%s%s': %s", reader->path, key, what);
}

static const char *
type_name(const cJSON *value)
{
  return cJSON_IsString(value)   ? "a string"
         : cJSON_IsNumber(value) ? "a number"
         : cJSON_IsBool(value)   ? "true or false"
         : cJSON_IsArray(value)  ? "an array"
         : cJSON_IsObject(value) ? "an object"
                                 : "null";
}

static void
fail_type(JsonReader *reader, const char *key, const char *needed, const cJSON *value)
{
  json_reader_fail(reader, key, "%s is needed, not %s", needed, type_name(value));
}

/* The value under key unless it is absent, null or of another type (an error): then NULL, and the
 * caller gives its default.  NULL as well once anything went wrong, so that nothing is computed
 * from half a document. */
static const cJSON *
typed_value(JsonReader *reader, const char *key, cJSON_bool (*is_type)(const cJSON *value),
            const char *needed)
{
  const cJSON *value = json_reader_raw(reader, key);
  if (!value || cJSON_IsNull(value) || json_document_error(reader->doc))
    return NULL;
  if (is_type(value))
    return value;
  fail_type(reader, key, needed, value);
  return NULL;
}

JsonReader *
json_reader_section(JsonReader *reader, const char *key)
{
  const cJSON *object = typed_value(reader, key, cJSON_IsObject, "an object");
  return reader_new(reader->doc, object, g_strdup_printf("%s%s.", reader->path, key));
}

guint
json_reader_array_length(JsonReader *reader, const char *key)
{
  const cJSON *array = typed_value(reader, key, cJSON_IsArray, "an array");
  return array ? (guint) cJSON_GetArraySize(array) : 0;
}

static const cJSON *
element_at(JsonReader *reader, const cJSON *array, guint i)
{
  if (reader->array != array || reader->element_index > i) {
    reader->array = array;
    reader->element = array->child;
    reader->element_index = 0;
  }
  for (; reader->element && reader->element_index < i; reader->element_index++)
    reader->element = reader->element->next;
  return reader->element;
}

JsonReader *
json_reader_element(JsonReader *reader, const char *key, guint i)
{
  const cJSON *array = typed_value(reader, key, cJSON_IsArray, "an array");
  const cJSON *element = array ? element_at(reader, array, i) : NULL;
  if (element && !cJSON_IsObject(element)) {
    json_document_fail(reader->doc, "key '%s%s[%u]': an object is needed, not %s", reader->path,
                       key, i, type_name(element));
    element = NULL;
  }
  return reader_new(reader->doc, element, g_strdup_printf("%s%s[%u].", reader->path, key, i));
}

gboolean
json_reader_has(JsonReader *reader, const char *key)
{
  const cJSON *value = json_reader_raw(reader, key);
  return value && !cJSON_IsNull(value);
}

/* Reads a number as a whole one; FALSE after an error. */
static gboolean
whole_number(JsonReader *reader, const char *key, const cJSON *value, gint64 *whole)
{
  double number = value->valuedouble;
  if (!(fabs(number) <= LARGEST_WHOLE)) {
    json_reader_fail(reader, key, "%.17g is beyond 2^53", number);
    return FALSE;
  }
  if (number != floor(number)) {
    json_reader_fail(reader, key, "%.17g is not a whole number", number);
    return FALSE;
  }
  *whole = (gint64) number;
  return TRUE;
}

gint64
json_reader_int(JsonReader *reader, const char *key, gint64 fallback, gint64 min, gint64 max)
{
  const cJSON *value = typed_value(reader, key, cJSON_IsNumber, "a whole number");
  gint64 number;
  if (!value || !whole_number(reader, key, value, &number))
    return fallback;
  if (number >= min && number <= max)
    return number;
  json_reader_fail(reader, key,
                   "%" G_GINT64_FORMAT " is not in %" G_GINT64_FORMAT "..%" G_GINT64_FORMAT, number,
                   min, max);
  return fallback;
}

double
json_reader_double(JsonReader *reader, const char *key, double fallback, double min, double max)
{
  const cJSON *value = typed_value(reader, key, cJSON_IsNumber, "a number");
  if (!value)
    return fallback;
  double number = value->valuedouble;
  if (isfinite(number) && number >= min && number <= max)
    return number;
  json_reader_fail(reader, key, "%.17g is not in %g..%g", number, min, max);
  return fallback;
}

gboolean
json_reader_bool(JsonReader *reader, const char *key, gboolean fallback)
{
  const cJSON *value = typed_value(reader, key, cJSON_IsBool, "true or false");
  return value ? cJSON_IsTrue(value) : fallback;
}

const char *
json_reader_string(JsonReader *reader, const char *key, const char *fallback)
{
  const cJSON *value = typed_value(reader, key, cJSON_IsString, "a string");
  return value ? value->valuestring : fallback;
}

int
json_reader_enum(JsonReader *reader, const char *key, const char *const *names, int fallback)
{
  const char *name = json_reader_string(reader, key, NULL);
  if (!name)
    return fallback;
  g_autoptr(GString) allowed = g_string_new(NULL);
  for (int i = 0; names[i]; i++) {
    if (g_str_equal(names[i], name))
      return i;
    g_string_append_printf(allowed, "%s%s", i > 0 ? ", " : "", names[i]);
  }
  json_reader_fail(reader, key, "'%.60s' is not one of %s", name, allowed->str);
  return fallback;
}

gint64
json_reader_size(JsonReader *reader, const char *key, gint64 fallback)
{
  const cJSON *value = json_reader_raw(reader, key);
  if (!value || cJSON_IsNull(value) || json_document_error(reader->doc))
    return fallback;
  gint64 bytes;
  if (cJSON_IsNumber(value)) {
    if (!whole_number(reader, key, value, &bytes))
      return fallback;
    if (bytes >= 0)
      return bytes;
    json_reader_fail(reader, key, "%" G_GINT64_FORMAT " is negative", bytes);
    return fallback;
  }
  if (!cJSON_IsString(value)) {
    fail_type(reader, key, "a size", value);
    return fallback;
  }
  g_autoptr(GError) wrong = NULL;
  if (parse_size(value->valuestring, &bytes, &wrong))
    return bytes;
  json_reader_fail(reader, key, "%s", wrong->message);
  return fallback;
}

gint64
json_reader_size_between(JsonReader *reader, const char *key, gint64 fallback, gint64 min,
                         gint64 max)
{
  const cJSON *value = json_reader_raw(reader, key);
  gint64 bytes = json_reader_size(reader, key, fallback);
  /* A fallback may lie outside the range; the same size in the file may not. */
  gboolean given = value && !cJSON_IsNull(value) && !json_document_error(reader->doc);
  if (!given || (bytes >= min && bytes <= max))
    return bytes;
  json_reader_fail(reader, key,
                   "%" G_GINT64_FORMAT " bytes is not in %" G_GINT64_FORMAT "..%" G_GINT64_FORMAT,
                   bytes, min, max);
  return fallback;
}

gboolean
json_reader_require(JsonReader *reader, const char *key)
{
  if (json_reader_has(reader, key))
    return TRUE;
  json_document_fail(reader->doc, "key '%s%s' is missing", reader->path, key);
  return FALSE;
}

gint64
json_reader_required_int(JsonReader *reader, const char *key, gint64 min, gint64 max)
{
  json_reader_require(reader, key);
  return json_reader_int(reader, key, min, min, max);
}

const char *
json_reader_required_string(JsonReader *reader, const char *key)
{
  json_reader_require(reader, key);
  return json_reader_string(reader, key, "");
}

void
json_reader_allow_unknown(JsonReader *reader)
{
  reader->allow_unknown = TRUE;
}

static void
refuse_unknown(JsonReader *reader, const char *key)
{
  GPtrArray *known = reader->known;
  g_ptr_array_add(known, NULL);
  const char *const *names = (const char *const *) (gpointer) known->pdata;
  const char *nearest = nearest_name(key, names);
  g_autofree char *all = g_strjoinv(", ", (char **) known->pdata);
  if (nearest)
    json_document_fail(reader->doc, "unknown key '%s%.60s'; did you mean '%s'?", reader->path, key,
                       nearest);
  else
    json_document_fail(reader->doc, "unknown key '%s%.60s'; known are: %s", reader->path, key,
                       known->len > 1 ? all : "none");
  g_ptr_array_remove_index(known, known->len - 1);
}

gboolean
json_reader_finish(JsonReader *reader, GError **error)
{
  const cJSON *item = reader->object && !reader->allow_unknown ? reader->object->child : NULL;
  for (; item && !json_document_error(reader->doc); item = item->next)
    if (item->string[0] != COMMENT_PREFIX && !is_known(reader, item->string))
      refuse_unknown(reader, item->string);
  const GError *first = json_document_error(reader->doc);
  if (first)
    g_propagate_error(error, g_error_copy(first));
  return first == NULL;
}
