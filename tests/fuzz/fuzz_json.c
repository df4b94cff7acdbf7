/* fuzz_json.c - any bytes as a JSON file, as a --set assignment and as a size; every key read with
 * every getter. */
#include "base/json_reader.h"
#include "base/units.h"
#include "fuzz.h"
#include <string.h>

static const char *const choices[] = {"a", "b", NULL};

static void read_object(JsonReader *reader, const cJSON *object);

static void
read_key(JsonReader *reader, const cJSON *item)
{
  const char *key = item->string;
  json_reader_has(reader, key);
  json_reader_int(reader, key, 0, G_MININT64, G_MAXINT64);
  json_reader_double(reader, key, 0, -1e300, 1e300);
  json_reader_bool(reader, key, FALSE);
  json_reader_string(reader, key, NULL);
  json_reader_enum(reader, key, choices, 0);
  gint64 bytes = json_reader_size(reader, key, 0);
  g_assert(bytes >= 0);
  if (cJSON_IsObject(item)) {
    g_autoptr(JsonReader) section = json_reader_section(reader, key);
    read_object(section, item);
  }
  guint length = json_reader_array_length(reader, key);
  for (guint i = 0; i < length; i++) {
    g_autoptr(JsonReader) element = json_reader_element(reader, key, i);
    json_reader_finish(element, NULL);
  }
}

static void
read_object(JsonReader *reader, const cJSON *object)
{
  for (const cJSON *item = object->child; item; item = item->next)
    read_key(reader, item);
  json_reader_required_int(reader, "a", 0, 9);
  json_reader_required_string(reader, "b");
  json_reader_finish(reader, NULL);
}

/* What was read is written as JSON that can be read again. */
static void
check_round_trip(JsonDocument *doc)
{
  char *text = cJSON_PrintUnformatted(json_document_root(doc));
  g_autoptr(JsonDocument) again = json_document_parse("again", text, strlen(text), NULL);
  g_assert(again != NULL);
  cJSON_free(text);
}

int
LLVMFuzzerTestOneInput(const guint8 *data, gsize size)
{
  g_autofree char *text = g_strndup(size > 0 ? (const char *) data : "", size);
  gint64 bytes;
  if (parse_size(text, &bytes, NULL))
    g_assert(bytes >= 0);

  g_autoptr(JsonDocument) edited = json_document_parse("edited", "{\"a\": {\"b\": 1}}", 15, NULL);
  json_document_set(edited, text, NULL); /* may nest deeper than a file: no round trip */

  g_autoptr(GError) error = NULL;
  g_autoptr(JsonDocument) doc = json_document_parse("input", (const char *) data, size, &error);
  g_assert((doc == NULL) == (error != NULL));
  if (!doc)
    return 0;
  check_round_trip(doc);
  g_autoptr(JsonReader) reader = json_reader_new(doc);
  read_object(reader, json_document_root(doc));
  return 0;
}
