/* recording_load.c - reads a Recording's file and refuses what a report could stumble over. */
#include <string.h>

#include "base/json_reader.h"
#include "record/recording_columns.h"

/* Whole numbers are exact in JSON's doubles up to here. */
#define WHOLE_MAX ((gint64) 1 << 53)

typedef struct {
  JsonReader *reader; /* of the document */
  Recording *recording;
  /* The file's numbers of enumerations -> ours. */
  GArray *enums[COLUMN_NAMES_COUNT]; /* gint64 */
} Loader;

static gboolean
whole_number(const cJSON *value, gint64 *number)
{
  if (!cJSON_IsNumber(value) || !(value->valuedouble >= -WHOLE_MAX) ||
      !(value->valuedouble <= WHOLE_MAX))
    return FALSE;
  *number = (gint64) value->valuedouble;
  return (double) *number == value->valuedouble;
}

/* The list of the file that a column's numbers index, or NULL: they are our own. */
static const GArray *
enum_map(const Loader *loader, int type)
{
  for (guint i = 0; i < COLUMN_NAMES_COUNT; i++)
    if ((int) column_names[i].type == type)
      return loader->enums[i];
  return NULL;
}

/* Upper bound (exclusive) of a whole number in a column of that type. */
static gint64
column_bound(const Loader *loader, int type)
{
  const GArray *map = enum_map(loader, type);
  if (map != NULL)
    return map->len;
  if (type == COLUMN_STRING)
    return loader->recording->strings->len;
  if (type == COLUMN_STREAM)
    return loader->recording->streams->len;
  return WHOLE_MAX + 1;
}

static gint64
column_least(int type)
{
  return type == COLUMN_SIGNED ? -WHOLE_MAX : type == COLUMN_STRING ? -1 : 0;
}

/* Stores the value in the struct at base.  NULL, or what it should have been. */
static const char *
read_value(const Loader *loader, const Column *column, const cJSON *value, gpointer base)
{
  if (column->type == COLUMN_DOUBLE) {
    if (!cJSON_IsNumber(value) || !(value->valuedouble >= 0) || value->valuedouble > G_MAXDOUBLE)
      return "is not a number >= 0";
    column_set_double(column, base, value->valuedouble);
    return NULL;
  }
  gint64 number;
  if (column->type == COLUMN_LIMIT && cJSON_IsNull(value)) {
    column_set(column, base, G_MAXINT64);
    return NULL;
  }
  if (!whole_number(value, &number))
    return "is not a whole number";
  if (number < column_least(column->type) || number >= column_bound(loader, column->type) ||
      !column_fits(column, number))
    return "is out of range";
  const GArray *map = enum_map(loader, column->type);
  column_set(column, base, map != NULL ? g_array_index(map, gint64, number) : number);
  return NULL;
}

static void
read_members(Loader *loader, JsonReader *reader, const Column *columns, gpointer base)
{
  for (const Column *column = columns; column->name != NULL; column++) {
    const cJSON *value = json_reader_raw(reader, column->name);
    const char *wrong = value == NULL ? "is missing" : read_value(loader, column, value, base);
    if (wrong != NULL)
      json_reader_fail(reader, column->name, "%s", wrong);
  }
}

/* Fills texts with the strings of an array. */
static void
read_texts(Loader *loader, const char *key, GPtrArray *texts)
{
  const cJSON *array = json_reader_raw(loader->reader, key);
  if (!cJSON_IsArray(array)) {
    json_reader_fail(loader->reader, key, "is not an array of strings");
    return;
  }
  const cJSON *element;
  cJSON_ArrayForEach(element, array)
  {
    if (!cJSON_IsString(element)) {
      json_reader_fail(loader->reader, key, "is not an array of strings");
      return;
    }
    g_ptr_array_add(texts, g_strdup(element->valuestring));
  }
}

static void
read_strings(Loader *loader)
{
  g_autoptr(GPtrArray) texts = g_ptr_array_new_with_free_func(g_free);
  read_texts(loader, "strings", texts);
  for (guint i = 0; i < texts->len; i++) {
    const char *text = g_ptr_array_index(texts, i);
    if (recording_string(loader->recording, text) != (gint32) i) {
      json_reader_fail(loader->reader, "strings", "has '%.40s' twice", text);
      return;
    }
  }
}

/* The file's list of one enumeration: each name must be ours. */
static void
read_enum(JsonReader *reader, const ColumnNames *ours, GArray *map)
{
  const cJSON *array = json_reader_raw(reader, ours->key), *element;
  if (!cJSON_IsArray(array))
    json_reader_fail(reader, ours->key, "is not an array of names");
  cJSON_ArrayForEach(element, array)
  {
    gint64 number = 0;
    while (number < ours->n_names &&
           !(cJSON_IsString(element) && strcmp(element->valuestring, ours->names[number]) == 0))
      number++;
    if (number == ours->n_names) {
      json_reader_fail(reader, ours->key, "has an unknown name");
      return;
    }
    g_array_append_val(map, number);
  }
}

static void
read_enums(Loader *loader)
{
  JsonReader *section = json_reader_section(loader->reader, "names");
  for (guint i = 0; i < COLUMN_NAMES_COUNT; i++)
    read_enum(section, &column_names[i], loader->enums[i]);
  json_reader_finish(section, NULL);
  json_reader_free(section);
}

static void
read_cached(Loader *loader)
{
  static const Column column = {.name = "cached_bytes", .size = 8, .type = COLUMN_COUNT};
  const cJSON *array = json_reader_raw(loader->reader, column.name), *element;
  if (!cJSON_IsArray(array))
    json_reader_fail(loader->reader, column.name, "is not an array");
  cJSON_ArrayForEach(element, array)
  {
    gint64 bytes = 0;
    const char *wrong = read_value(loader, &column, element, &bytes);
    if (wrong != NULL) {
      json_reader_fail(loader->reader, column.name, "an element %s", wrong);
      return;
    }
    g_array_append_val(loader->recording->cached, bytes);
  }
  if (loader->recording->cached->len != loader->recording->streams->len)
    json_reader_fail(loader->reader, column.name, "needs one element a stream");
}

static void
read_out_of_memory(Loader *loader)
{
  if (!json_reader_has(loader->reader, "out_of_memory"))
    return;
  OutOfMemoryRecord *record = &loader->recording->out_of_memory;
  JsonReader *section = json_reader_section(loader->reader, "out_of_memory");
  record->happened = TRUE;
  read_members(loader, section, out_of_memory_columns, record);
  json_reader_finish(section, NULL);
  json_reader_free(section);
}

static void
read_peak(Loader *loader)
{
  PeakRecord *peak = &loader->recording->peak;
  JsonReader *section = json_reader_section(loader->reader, "peak");
  read_members(loader, section, peak_columns, peak);
  JsonReader *categories = json_reader_section(section, "categories");
  gint64 sum = 0;
  for (int i = 0; i < CATEGORY_COUNT; i++) {
    peak->categories[i] = json_reader_int(categories, category_name((Category) i), 0, 0, WHOLE_MAX);
    sum += peak->categories[i];
  }
  json_reader_finish(categories, NULL);
  json_reader_free(categories);
  if (sum != peak->allocated)
    json_reader_fail(section, "categories", "do not add up to allocated_bytes");
  json_reader_finish(section, NULL);
  json_reader_free(section);
}

static gboolean
columns_match(const Column *columns, const cJSON *array)
{
  const cJSON *element;
  cJSON_ArrayForEach(element, array)
  {
    if (columns->name == NULL || !cJSON_IsString(element) ||
        strcmp(element->valuestring, columns->name) != 0)
      return FALSE;
    columns++;
  }
  return columns->name == NULL;
}

/* One row into the struct at base; FALSE when it has the wrong length or a wrong value, which is
 * reported. */
static gboolean
read_row(Loader *loader, const RecordTable *table, const cJSON *row, gpointer base, guint i)
{
  const Column *column = table->columns;
  const cJSON *value = cJSON_IsArray(row) ? row->child : NULL;
  for (; column->name != NULL && value != NULL; column++, value = value->next) {
    const char *wrong = read_value(loader, column, value, base);
    if (wrong != NULL) {
      json_reader_fail(loader->reader, table->key, "row %u: %s %s", i + 1, column->name, wrong);
      return FALSE;
    }
  }
  if (column->name == NULL && value == NULL)
    return TRUE;
  json_reader_fail(loader->reader, table->key, "row %u has not one value a column", i + 1);
  return FALSE;
}

static void
read_table(Loader *loader, const RecordTable *table)
{
  if (table->only_if_any && !json_reader_has(loader->reader, table->key))
    return;
  JsonReader *section = json_reader_section(loader->reader, table->key);
  const cJSON *columns = json_reader_raw(section, "columns");
  const cJSON *rows = json_reader_raw(section, "rows"), *row;
  json_reader_finish(section, NULL);
  json_reader_free(section);
  if (!cJSON_IsArray(columns) || !columns_match(table->columns, columns) || !cJSON_IsArray(rows)) {
    json_reader_fail(loader->reader, table->key,
                     "needs the columns of format " RECORDING_FORMAT " and rows");
    return;
  }
  GArray *array = record_table_array(table, loader->recording);
  g_autofree gpointer element = g_malloc0(table->element_size);
  cJSON_ArrayForEach(row, rows)
  {
    if (!read_row(loader, table, row, element, array->len))
      return;
    g_array_append_vals(array, element, 1);
  }
}

static void
read_document(Loader *loader)
{
  static const char *const formats[] = {RECORDING_FORMAT, NULL};
  JsonReader *reader = loader->reader;
  Recording *recording = loader->recording;
  if (!json_reader_has(reader, "format"))
    json_reader_fail(reader, "format", "is missing: not a recording");
  json_reader_enum(reader, "format", formats, 0);
  g_free(recording->title);
  recording->title = g_strdup(json_reader_string(reader, "title", ""));
  recording->stuck = g_strdup(json_reader_string(reader, "stuck", NULL));
  read_enums(loader);
  read_strings(loader);
  read_texts(loader, "streams", recording->streams);
  read_cached(loader);
  read_members(loader, reader, recording_columns, recording);
  read_out_of_memory(loader);
  read_peak(loader);
  for (guint i = 0; i < RECORDING_TABLES; i++)
    read_table(loader, &recording_tables[i]);
  const char *key;
  g_autofree char *wrong = recording_check(recording, &key);
  if (wrong != NULL)
    json_reader_fail(reader, key, "%s", wrong);
}

static Recording *
read_recording(JsonDocument *doc, GError **error)
{
  g_autoptr(Recording) recording = recording_new();
  Loader loader = {.reader = json_reader_new(doc), .recording = recording};
  for (guint i = 0; i < COLUMN_NAMES_COUNT; i++)
    loader.enums[i] = g_array_new(FALSE, FALSE, sizeof(gint64));
  read_document(&loader);
  gboolean ok = json_reader_finish(loader.reader, error);
  for (guint i = 0; i < COLUMN_NAMES_COUNT; i++)
    g_array_unref(loader.enums[i]);
  json_reader_free(loader.reader);
  return ok ? g_steal_pointer(&recording) : NULL;
}

Recording *
recording_load(const char *path, GError **error)
{
  g_autoptr(JsonDocument) doc = json_document_load(path, error);
  return doc == NULL ? NULL : read_recording(doc, error);
}

Recording *
recording_parse(const char *name, const char *text, gsize length, GError **error)
{
  g_autoptr(JsonDocument) doc = json_document_parse(name, text, length, error);
  return doc == NULL ? NULL : read_recording(doc, error);
}
