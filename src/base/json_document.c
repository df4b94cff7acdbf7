/* json_document.c - loads JSON text into a tree, refusing what our formats do not have. */
#include "base/json_document.h"
#include "base/json_scan.h"
#include "base/units.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>

struct _JsonDocument {
  char *name;
  cJSON *root;
  GError *first_error;
};

/* Objects up to this size are searched for duplicate keys pair by pair, larger ones by hashing. */
#define FEW_KEYS 16

static cJSON *
find_duplicate_by_pairs(const cJSON *object)
{
  for (cJSON *item = object->child; item; item = item->next)
    for (const cJSON *other = object->child; other != item; other = other->next)
      if (g_str_equal(other->string, item->string))
        return item;
  return NULL;
}

static cJSON *
find_duplicate_by_hash(const cJSON *object)
{
  g_autoptr(GHashTable) seen = g_hash_table_new(g_str_hash, g_str_equal);
  for (cJSON *item = object->child; item; item = item->next)
    if (!g_hash_table_add(seen, item->string))
      return item;
  return NULL;
}

/* The first key under item that its object already has, or NULL.  *key counts keys in the order of
 * the text, up to the one found: its index in the scan's list of lines. */
static const cJSON *
find_duplicate(const cJSON *item, guint *key)
{
  const cJSON *duplicate = NULL;
  if (cJSON_IsObject(item)) {
    int count = cJSON_GetArraySize(item);
    duplicate = count <= FEW_KEYS ? find_duplicate_by_pairs(item) : find_duplicate_by_hash(item);
  }
  for (const cJSON *child = item->child; child; child = child->next) {
    if (child == duplicate)
      return duplicate;
    *key += child->string != NULL;
    const cJSON *inner = find_duplicate(child, key);
    if (inner)
      return inner;
  }
  return NULL;
}

/* The line at which text[offset] stands. */
static guint
line_of(const char *text, gsize offset)
{
  guint line = 1;
  for (gsize i = 0; i < offset; i++)
    line += text[i] == '\n';
  return line;
}

/* Any JSON value; NULL and error "NAME: line L: ...". */
static cJSON *
parse_value(const char *name, const char *text, gsize length, GError **error)
{
  if (length > JSON_MAX_BYTES) {
    g_set_error(error, HIGHWATER_ERROR, HIGHWATER_ERROR_INPUT, "%s: larger than 64 MiB", name);
    return NULL;
  }
  g_autoptr(GArray) key_lines = g_array_new(FALSE, FALSE, sizeof(guint));
  if (!json_scan(name, text, length, key_lines, error))
    return NULL;

  /* What is left for cJSON to refuse are halves of surrogate pairs. */
  const char *end = text;
  cJSON *value = cJSON_ParseWithLengthOpts(text, length, &end, FALSE);
  if (!value) {
    guint line = line_of(text, CLAMP(end - text, 0, (gssize) length));
    g_set_error(error, HIGHWATER_ERROR, HIGHWATER_ERROR_INPUT, "%s: line %u: not JSON", name, line);
    return NULL;
  }
  guint key = 0;
  const cJSON *duplicate = find_duplicate(value, &key);
  if (duplicate) {
    g_set_error(error, HIGHWATER_ERROR, HIGHWATER_ERROR_INPUT,
                "%s: line %u: key '%.60s' stands twice in its object", name,
                g_array_index(key_lines, guint, key), duplicate->string);
    cJSON_Delete(value);
    return NULL;
  }
  return value;
}

JsonDocument *
json_document_parse(const char *name, const char *text, gsize length, GError **error)
{
  cJSON *root = parse_value(name, text ? text : "", length, error);
  if (!root)
    return NULL;
  if (!cJSON_IsObject(root)) {
    g_set_error(error, HIGHWATER_ERROR, HIGHWATER_ERROR_INPUT,
                "%s: line 1: an object ({...}) is expected at the top", name);
    cJSON_Delete(root);
    return NULL;
  }
  JsonDocument *doc = g_new0(JsonDocument, 1);
  doc->name = g_strdup(name);
  doc->root = root;
  return doc;
}

/* Reads up to one byte more than is allowed, so that an endless input ends too.  errno says why it
 * failed. */
static GString *
read_stream(FILE *stream)
{
  GString *text = g_string_new(NULL);
  char buffer[1 << 16];
  gsize n;
  while (text->len <= JSON_MAX_BYTES && (n = fread(buffer, 1, sizeof buffer, stream)) > 0)
    g_string_append_len(text, buffer, n);
  if (ferror(stream)) {
    g_string_free(text, TRUE);
    return NULL;
  }
  return text;
}

char *
json_text_load(const char *path, gsize *length, GError **error)
{
  gboolean is_stdin = g_str_equal(path, "-");
  FILE *stream = is_stdin ? stdin : fopen(path, "rb");
  GString *text = stream ? read_stream(stream) : NULL;
  int reason = errno;
  if (stream && !is_stdin)
    fclose(stream);
  if (!text) {
    g_set_error(error, HIGHWATER_ERROR, HIGHWATER_ERROR_INPUT, "%s: cannot be read: %s",
                json_text_name(path), g_strerror(reason));
    return NULL;
  }
  *length = text->len;
  return g_string_free(text, FALSE);
}

const char *
json_text_name(const char *path)
{
  return g_str_equal(path, "-") ? "standard input" : path;
}

JsonDocument *
json_document_load(const char *path, GError **error)
{
  gsize length;
  g_autofree char *text = json_text_load(path, &length, error);
  return text ? json_document_parse(json_text_name(path), text, length, error) : NULL;
}

const char *
json_document_name(const JsonDocument *doc)
{
  return doc->name;
}

cJSON *
json_document_root(JsonDocument *doc)
{
  return doc->root;
}

void
json_document_free(JsonDocument *doc)
{
  if (!doc)
    return;
  g_clear_error(&doc->first_error);
  cJSON_Delete(doc->root);
  g_free(doc->name);
  g_free(doc);
}

void
json_document_fail(JsonDocument *doc, const char *format, ...)
{
  if (doc->first_error)
    return;
  va_list arguments;
  va_start(arguments, format);
  g_autofree char *what = g_strdup_vprintf(format, arguments);
  va_end(arguments);
  g_set_error(&doc->first_error, HIGHWATER_ERROR, HIGHWATER_ERROR_INPUT, "%s: %s", doc->name, what);
}

const GError *
json_document_error(const JsonDocument *doc)
{
  return doc->first_error;
}

/* Puts value (taken) under key, in place of what was there. */
static void
object_put(cJSON *object, const char *key, cJSON *value)
{
  if (cJSON_GetObjectItemCaseSensitive(object, key))
    cJSON_ReplaceItemInObjectCaseSensitive(object, key, value);
  else
    cJSON_AddItemToObject(object, key, value);
}

/* The object under key, created when it is missing or null; NULL when something else is there. */
static cJSON *
object_section(cJSON *object, const char *key)
{
  cJSON *section = cJSON_GetObjectItemCaseSensitive(object, key);
  if (section && !cJSON_IsNull(section))
    return cJSON_IsObject(section) ? section : NULL;
  section = cJSON_CreateObject();
  object_put(object, key, section);
  return section;
}

/* The keys of "a.b.c", or NULL when the path is empty, too deep or has an empty key. */
static char **
split_path(const char *path, gsize length)
{
  g_autofree char *copy = g_strndup(path, length);
  g_auto(GStrv) keys = g_strsplit(copy, ".", JSON_MAX_DEPTH + 1);
  guint count = g_strv_length(keys);
  if (count == 0 || count > JSON_MAX_DEPTH || !g_utf8_validate(copy, -1, NULL))
    return NULL;
  for (guint i = 0; i < count; i++)
    if (!*keys[i])
      return NULL;
  return g_steal_pointer(&keys);
}

/* JSON, or a string where it is none; what begins like an object, an array or a string is meant as
 * one. */
static cJSON *
assigned_value(const char *assignment, const char *text, GError **error)
{
  g_autoptr(GError) wrong = NULL;
  g_autofree char *name = g_strdup_printf("--set '%.80s'", assignment);
  cJSON *value = parse_value(name, text, strlen(text), &wrong);
  if (value)
    return value;
  if (!*text || !strchr("{[\"", *text))
    return cJSON_CreateString(text);
  g_set_error_literal(error, HIGHWATER_ERROR, HIGHWATER_ERROR_USAGE, wrong->message);
  return NULL;
}

gboolean
json_document_set(JsonDocument *doc, const char *assignment, GError **error)
{
  const char *equals = strchr(assignment, '=');
  g_auto(GStrv) keys = equals ? split_path(assignment, equals - assignment) : NULL;
  if (!keys || !g_utf8_validate(equals, -1, NULL)) {
    g_set_error(error, HIGHWATER_ERROR, HIGHWATER_ERROR_USAGE,
                "--set '%.80s': key=value or section.key=value is expected", assignment);
    return FALSE;
  }
  cJSON *value = assigned_value(assignment, equals + 1, error);
  if (!value)
    return FALSE;
  cJSON *object = doc->root;
  guint last = g_strv_length(keys) - 1;
  for (guint i = 0; i < last; i++) {
    object = object_section(object, keys[i]);
    if (!object) {
      g_set_error(error, HIGHWATER_ERROR, HIGHWATER_ERROR_USAGE,
                  "--set '%.80s': '%.60s' in %s is not a section", assignment, keys[i], doc->name);
      cJSON_Delete(value);
      return FALSE;
    }
  }
  object_put(object, keys[last], value);
  return TRUE;
}
