/* run_info_store.c - writes and reads a RunInfo by the table of its fields. */
#include "report/run_info_store.h"
#include "base/json_output.h"
#include "base/json_reader.h"
#include "report/run_info_fields.h"
#include <string.h>

/* Whole numbers are exact in JSON's doubles up to here. */
#define WHOLE_MAX ((gint64) 1 << 53)

#define ASKED(member, name_, type_)                                                                \
  {                                                                                                \
    .name = (name_), .offset = G_STRUCT_OFFSET(RunAsked, member),                                  \
    .size = sizeof(((RunAsked *) NULL)->member), .type = (type_)                                   \
  }

static const InfoField asked_fields[] = {
    ASKED(steps, "steps", INFO_COUNT),
    ASKED(rank, "rank", INFO_COUNT),
    ASKED(all_ranks, "all_ranks", INFO_FLAG),
    ASKED(memory_limit, "memory_limit_bytes", INFO_COUNT),
    {.name = NULL},
};

/* ---- writing ---- */

static void add_fields(cJSON *object, const InfoField *fields, gconstpointer base);

/* cJSON's own numbers have 15 digits. */
static void
add_number(cJSON *object, const char *key, double value)
{
  char text[G_ASCII_DTOSTR_BUF_SIZE];
  cJSON_AddRawToObject(object, key, g_ascii_dtostr(text, sizeof text, value));
}

static void
append_int(cJSON *array, gint64 value)
{
  char digits[24];
  g_snprintf(digits, sizeof digits, "%" G_GINT64_FORMAT, value);
  cJSON_AddItemToArray(array, cJSON_CreateRaw(digits));
}

static void
add_texts(cJSON *object, const char *key, const GPtrArray *texts)
{
  cJSON *array = cJSON_AddArrayToObject(object, key);
  for (guint i = 0; texts != NULL && i < texts->len; i++)
    cJSON_AddItemToArray(array, cJSON_CreateString(g_ptr_array_index(texts, i)));
}

static void
add_counts(cJSON *object, const InfoField *field, gconstpointer base)
{
  const gint64 *counts = *(gint64 *const *) info_field_in(field, base);
  int n = *(const int *) (gconstpointer) ((const char *) base + field->of.length_offset);
  if (counts == NULL) {
    cJSON_AddNullToObject(object, field->name);
    return;
  }
  cJSON *array = cJSON_AddArrayToObject(object, field->name);
  for (int i = 0; i < n; i++)
    append_int(array, counts[i]);
}

static void
add_ranks(cJSON *object, const char *key, const RankSet *set)
{
  cJSON *array = cJSON_AddArrayToObject(object, key);
  for (guint i = 0; set->runs != NULL && i < set->runs->len; i++) {
    const RankRun *run = &g_array_index(set->runs, RankRun, i);
    cJSON_AddItemToArray(array, cJSON_CreateIntArray((const int[]){run->first, run->last}, 2));
  }
}

static void
add_categories(cJSON *object, const char *key, const gint64 *bytes)
{
  cJSON *categories = cJSON_AddObjectToObject(object, key);
  for (int i = 0; i < CATEGORY_COUNT; i++)
    json_add_int(categories, category_name((Category) i), bytes[i]);
}

static void
add_rows(cJSON *object, const InfoField *field, const GArray *rows)
{
  cJSON *array = cJSON_AddArrayToObject(object, field->name);
  for (guint i = 0; i < rows->len; i++) {
    cJSON *row = cJSON_CreateObject();
    add_fields(row, field->of.fields, rows->data + (gsize) i * field->row_size);
    cJSON_AddItemToArray(array, row);
  }
}

static void
add_field(cJSON *object, const InfoField *field, gconstpointer base)
{
  gconstpointer at = info_field_in(field, base);
  switch ((InfoType) field->type) {
  case INFO_COUNT:
  case INFO_SIGNED:
    json_add_int(object, field->name, info_field_get(field, base));
    return;
  case INFO_FLAG:
    cJSON_AddBoolToObject(object, field->name, *(const gboolean *) at);
    return;
  case INFO_NUMBER:
    add_number(object, field->name, *(const double *) at);
    return;
  case INFO_TEXT:
  case INFO_NAME:
  case INFO_STATIC:
    json_add_text(object, field->name, *(const char *const *) at);
    return;
  case INFO_CHOICE:
    json_add_text(object, field->name, field->of.names[info_field_get(field, base)]);
    return;
  case INFO_TEXTS:
    add_texts(object, field->name, *(GPtrArray *const *) at);
    return;
  case INFO_COUNTS:
    add_counts(object, field, base);
    return;
  case INFO_RANKS:
    add_ranks(object, field->name, at);
    return;
  case INFO_CATEGORIES:
    add_categories(object, field->name, at);
    return;
  case INFO_OBJECT:
    add_fields(cJSON_AddObjectToObject(object, field->name), field->of.fields, at);
    return;
  case INFO_FAILURE:
    at = *(Failure *const *) at;
    if (at != NULL)
      add_fields(cJSON_AddObjectToObject(object, field->name), field->of.fields, at);
    else
      cJSON_AddNullToObject(object, field->name);
    return;
  case INFO_ROWS:
    add_rows(object, field, *(GArray *const *) at);
    return;
  }
}

static void
add_fields(cJSON *object, const InfoField *fields, gconstpointer base)
{
  for (const InfoField *field = fields; field->name != NULL; field++)
    add_field(object, field, base);
}

char *
run_info_print(const RunInfo *info, const RunAsked *asked)
{
  cJSON *root = cJSON_CreateObject();
  cJSON_AddStringToObject(root, "format", RUN_INFO_FORMAT);
  add_fields(cJSON_AddObjectToObject(root, "request"), asked_fields, asked);
  add_fields(cJSON_AddObjectToObject(root, "info"), run_info_fields, info);
  return json_finish(root);
}

/* ---- reading ---- */

static void read_fields(JsonReader *reader, const InfoField *fields, gpointer base);

static void
read_whole(JsonReader *reader, const InfoField *field, gpointer base)
{
  gint64 least = field->type == INFO_SIGNED ? -1 : 0;
  gint64 most = field->size == sizeof(gint32) ? G_MAXINT32 : WHOLE_MAX;
  gint64 known = info_field_get(field, base);
  info_field_set(field, base, json_reader_int(reader, field->name, known, least, most));
}

/* Replaces a text that the struct owns. */
static void
read_text(JsonReader *reader, const InfoField *field, gpointer at)
{
  char **text = at;
  g_free(*text);
  *text = g_strdup(field->type == INFO_NAME ? json_reader_required_string(reader, field->name)
                                            : json_reader_string(reader, field->name, NULL));
}

/* The elements of an array under the key, NULL when it is absent, null or no array. */
static const cJSON *
first_element(JsonReader *reader, const char *key)
{
  const cJSON *array = json_reader_raw(reader, key);
  if (array == NULL || cJSON_IsNull(array) || cJSON_IsArray(array))
    return array != NULL ? array->child : NULL;
  json_reader_fail(reader, key, "is not an array");
  return NULL;
}

static void
read_texts(JsonReader *reader, const char *key, GPtrArray **texts)
{
  if (*texts == NULL)
    *texts = g_ptr_array_new_with_free_func(g_free);
  for (const cJSON *text = first_element(reader, key); text != NULL; text = text->next) {
    if (cJSON_IsString(text))
      g_ptr_array_add(*texts, g_strdup(text->valuestring));
    else
      json_reader_fail(reader, key, "is not an array of strings");
  }
}

static gboolean
is_whole(const cJSON *value, double most)
{
  return cJSON_IsNumber(value) && value->valuedouble >= 0 && value->valuedouble <= most &&
         (double) (gint64) value->valuedouble == value->valuedouble;
}

static void
read_counts(JsonReader *reader, const InfoField *field, gpointer base)
{
  if (!json_reader_has(reader, field->name))
    return;
  g_autoptr(GArray) counts = g_array_new(FALSE, FALSE, sizeof(gint64));
  for (const cJSON *value = first_element(reader, field->name); value != NULL;
       value = value->next) {
    gint64 count = is_whole(value, (double) WHOLE_MAX) ? (gint64) value->valuedouble : 0;
    if (!is_whole(value, (double) WHOLE_MAX))
      json_reader_fail(reader, field->name, "is not an array of whole numbers >= 0");
    g_array_append_val(counts, count);
  }
  *(int *) (gpointer) ((char *) base + field->of.length_offset) = (int) counts->len;
  g_array_set_size(counts, MAX(counts->len, 1)); /* an empty array is not NULL */
  *(gint64 **) info_field_at(field, base) =
      (gint64 *) (gpointer) g_array_free(g_steal_pointer(&counts), FALSE);
}

/* A pair of ranks above `below`. */
static gboolean
is_run_above(const cJSON *pair, int below)
{
  if (!cJSON_IsArray(pair) || cJSON_GetArraySize(pair) != 2 ||
      !is_whole(pair->child, G_MAXINT32 - 1) || !is_whole(pair->child->next, G_MAXINT32 - 1))
    return FALSE;
  return pair->child->valueint > below && pair->child->next->valueint >= pair->child->valueint;
}

static void
read_ranks(JsonReader *reader, const char *key, RankSet *set)
{
  int below = -1;
  for (const cJSON *pair = first_element(reader, key); pair != NULL; pair = pair->next) {
    if (!is_run_above(pair, below)) {
      json_reader_fail(reader, key, "is not an array of [first, last], ascending, with gaps");
      return;
    }
    RankRun run = {pair->child->valueint, pair->child->next->valueint};
    rank_set_append_run(set, run);
    below = run.last + 1;
  }
}

static void
read_object(JsonReader *reader, const InfoField *field, gpointer base)
{
  JsonReader *section = json_reader_section(reader, field->name);
  read_fields(section, field->of.fields, base);
  json_reader_free(section);
}

static void
read_categories(JsonReader *reader, const char *key, gint64 *bytes)
{
  JsonReader *section = json_reader_section(reader, key);
  for (int i = 0; i < CATEGORY_COUNT; i++)
    bytes[i] = json_reader_int(section, category_name((Category) i), 0, 0, WHOLE_MAX);
  json_reader_finish(section, NULL);
  json_reader_free(section);
}

/* A row is in the array, empty, before it is read: whatever comes of it is freed with the array. */
static void
read_rows(JsonReader *reader, const InfoField *field, GArray *rows)
{
  guint n = json_reader_array_length(reader, field->name);
  for (guint i = 0; i < n; i++) {
    g_array_set_size(rows, rows->len + 1);
    gpointer row = rows->data + (gsize) i * field->row_size;
    memset(row, 0, field->row_size);
    JsonReader *element = json_reader_element(reader, field->name, i);
    read_fields(element, field->of.fields, row);
    json_reader_free(element);
  }
}

static void
read_field(JsonReader *reader, const InfoField *field, gpointer base)
{
  gpointer at = info_field_at(field, base);
  int choice;
  switch ((InfoType) field->type) {
  case INFO_COUNT:
  case INFO_SIGNED:
    read_whole(reader, field, base);
    return;
  case INFO_FLAG:
    *(gboolean *) at = json_reader_bool(reader, field->name, *(gboolean *) at);
    return;
  case INFO_NUMBER:
    *(double *) at = json_reader_double(reader, field->name, *(double *) at, 0, G_MAXDOUBLE);
    return;
  case INFO_TEXT:
  case INFO_NAME:
    read_text(reader, field, at);
    return;
  case INFO_CHOICE:
    choice = (int) info_field_get(field, base);
    info_field_set(field, base, json_reader_enum(reader, field->name, field->of.names, choice));
    return;
  case INFO_STATIC:
    choice = json_reader_has(reader, field->name)
                 ? json_reader_enum(reader, field->name, field->of.names, 0)
                 : -1;
    *(const char **) at = choice < 0 ? NULL : field->of.names[choice];
    return;
  case INFO_TEXTS:
    read_texts(reader, field->name, at);
    return;
  case INFO_COUNTS:
    read_counts(reader, field, base);
    return;
  case INFO_RANKS:
    read_ranks(reader, field->name, at);
    return;
  case INFO_CATEGORIES:
    read_categories(reader, field->name, at);
    return;
  case INFO_OBJECT:
    read_object(reader, field, at);
    return;
  case INFO_FAILURE:
    if (!json_reader_has(reader, field->name))
      return;
    *(Failure **) at = failure_empty();
    read_object(reader, field, *(Failure **) at);
    return;
  case INFO_ROWS:
    read_rows(reader, field, *(GArray **) at);
    return;
  }
}

static void
read_fields(JsonReader *reader, const InfoField *fields, gpointer base)
{
  for (const InfoField *field = fields; field->name != NULL; field++)
    read_field(reader, field, base);
  json_reader_finish(reader, NULL);
}

RunInfo *
run_info_parse(const char *name, const char *text, gsize length, RunAsked *asked, GError **error)
{
  static const char *const formats[] = {RUN_INFO_FORMAT, NULL};
  const InfoField sections[] = {
      {.name = "request", .type = INFO_OBJECT, .of.fields = asked_fields},
      {.name = "info", .type = INFO_OBJECT, .of.fields = run_info_fields},
  };
  g_autoptr(JsonDocument) document = json_document_parse(name, text, length, error);
  if (document == NULL)
    return NULL;
  g_autoptr(JsonReader) reader = json_reader_new(document);
  g_autoptr(RunInfo) info = run_info_new();
  *asked = (RunAsked){0};
  if (json_reader_require(reader, "format"))
    json_reader_enum(reader, "format", formats, 0);
  read_object(reader, &sections[0], asked);
  read_object(reader, &sections[1], info);
  if (info->equivalent_zero_stage > 3)
    json_reader_fail(reader, "info.equivalent_zero_stage", "is not in -1..3");
  return json_reader_finish(reader, error) ? g_steal_pointer(&info) : NULL;
}
