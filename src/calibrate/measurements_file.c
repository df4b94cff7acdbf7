/* measurements_file.c - measurements as JSON, there and back. */
#include "calibrate/measurements_file.h"

#include <math.h>
#include <string.h>

#include "base/json_output.h"
#include "base/json_reader.h"
#include "base/units.h"
#include "spec/dtype.h"
#include "spec/profile_fields.h"

#define MOST_BYTES ((gint64) 1 << 50)

/* ---- tables ---- */

typedef struct {
  const char *key;
  gsize offset;
} TextField;

static const TextField fact_texts[] = {
    {"device", offsetof(ProbeFacts, device)},
    {"cuda_driver", offsetof(ProbeFacts, driver)},
    {"cuda_runtime", offsetof(ProbeFacts, runtime)},
    {"nccl", offsetof(ProbeFacts, nccl)},
};

typedef struct {
  const char *key;
  gsize offset;
  gsize size; /* 4: gint32, 8: gint64 */
  gint64 most;
} IntField;

#define INT(type, field, most)                                                                     \
  {                                                                                                \
#field, offsetof(type, field), sizeof(((type *) 0)->field), most                               \
  }

static const IntField fact_numbers[] = {
    INT(ProbeFacts, ranks, G_MAXINT32),
    INT(ProbeFacts, ranks_of_node, G_MAXINT32),
    INT(ProbeFacts, sms, G_MAXINT32),
    INT(ProbeFacts, max_threads_per_sm, G_MAXINT32),
    INT(ProbeFacts, compute_capability, G_MAXINT32),
    INT(ProbeFacts, memory_bytes, MOST_BYTES),
    INT(ProbeFacts, context_bytes, MOST_BYTES),
    INT(ProbeFacts, cache_bytes, MOST_BYTES),
};

/* Left out of the file where they are 0. */
static const IntField experiment_numbers[] = {
    INT(Experiment, m, G_MAXINT32),      INT(Experiment, n, G_MAXINT32),
    INT(Experiment, k, G_MAXINT32),      INT(Experiment, bytes, MOST_BYTES),
    INT(Experiment, blocks, G_MAXINT32),
};

static const char *const experiment_names[] = {
#define X(name, text) text,
    EXPERIMENT_KINDS(X)
#undef X
        NULL};
static const char *const beside_names[] = {
#define X(name, text) text,
    BESIDE_KINDS(X)
#undef X
        NULL};
static const char *const collective_names[] = {
#define X(name, text) text,
    COLLECTIVE_KINDS(X)
#undef X
        NULL};

static gint64
get_number(gconstpointer base, const IntField *field)
{
  const char *place = (const char *) base + field->offset;
  return field->size == 8 ? *(const gint64 *) (const void *) place
                          : *(const gint32 *) (const void *) place;
}

static void
set_number(gpointer base, const IntField *field, gint64 value)
{
  char *place = (char *) base + field->offset;
  if (field->size == 8)
    *(gint64 *) (void *) place = value;
  else
    *(gint32 *) (void *) place = (gint32) value;
}

/* ---- printing ---- */

static void
add_call(cJSON *object, const char *key, const CollectiveCall *call)
{
  cJSON *section = cJSON_AddObjectToObject(object, key);
  json_add_text(section, "kind", program_collective_name(call->collective));
  cJSON_AddBoolToObject(section, "in_place", call->in_place);
  json_add_int(section, "ranks", call->group.ranks);
  json_add_int(section, "stride", call->group.stride);
  json_add_int(section, "bytes", call->bytes);
}

/* Microseconds with a nanosecond's thousandth: more is noise. */
static void
add_us(cJSON *object, const char *key, double ns)
{
  cJSON_AddNumberToObject(object, key, round(ns * 1e3) / 1e3 / NS_PER_US);
}

static void
add_series(cJSON *object, const char *key, const GArray *values)
{
  cJSON *list = cJSON_AddArrayToObject(object, key);
  for (guint i = 0; i < values->len; i++)
    cJSON_AddItemToArray(
        list, cJSON_CreateNumber(round(g_array_index(values, double, i) * 1e3) / 1e3 / NS_PER_US));
}

static void
add_experiment(cJSON *object, const Experiment *e)
{
  g_autofree char *text = experiment_text(e);
  json_add_text(object, "text", text);
  json_add_text(object, "kind", experiment_names[e->kind]);
  if (e->kind == EXPERIMENT_GEMM)
    json_add_text(object, "dtype", dtype_name(e->dtype));
  for (guint i = 0; i < G_N_ELEMENTS(experiment_numbers); i++) {
    gint64 value = get_number(e, &experiment_numbers[i]);
    if (value != 0)
      json_add_int(object, experiment_numbers[i].key, value);
  }
  cJSON_AddBoolToObject(object, "cold", e->cold);
  if (e->kind == EXPERIMENT_COLLECTIVE)
    add_call(object, "collective", &e->call);
  if (e->beside != BESIDE_NOTHING)
    json_add_text(object, "beside", beside_names[e->beside]);
  if (e->beside == BESIDE_COLLECTIVE)
    add_call(object, "second", &e->second);
}

static cJSON *
measurement_json(const Measurement *m)
{
  cJSON *object = cJSON_CreateObject();
  add_experiment(object, &m->experiment);
  if (m->failure != NULL)
    json_add_text(object, "failure", m->failure);
  if (m->samples->len > 0) {
    add_us(object, "median_us", m->median_ns);
    add_us(object, "least_us", m->stats.least);
    add_us(object, "p10_us", m->stats.p10);
    add_us(object, "p90_us", m->stats.p90);
    json_add_int(object, "outliers", m->stats.outliers);
    add_series(object, "round_medians_us", m->medians);
    add_series(object, "samples_us", m->samples);
  }
  return object;
}

static void
add_facts(cJSON *root, const ProbeFacts *facts)
{
  cJSON *section = cJSON_AddObjectToObject(root, "facts");
  for (guint i = 0; i < G_N_ELEMENTS(fact_texts); i++)
    json_add_text(section, fact_texts[i].key, (const char *) facts + fact_texts[i].offset);
  for (guint i = 0; i < G_N_ELEMENTS(fact_numbers); i++)
    json_add_int(section, fact_numbers[i].key, get_number(facts, &fact_numbers[i]));
}

char *
measurements_print(const Measurements *all, const char *date)
{
  cJSON *root = cJSON_CreateObject();
  json_add_text(root, "format", MEASUREMENTS_FORMAT);
  json_add_text(root, "date", date);
  cJSON_AddBoolToObject(root, "complete", all->complete);
  cJSON_AddNumberToObject(root, "elapsed_s", round(all->elapsed_s * 1e3) / 1e3);
  add_facts(root, &all->facts);
  json_add_text(root, "conditions_before", all->conditions_before);
  json_add_text(root, "conditions_after", all->conditions_after);
  cJSON *list = cJSON_AddArrayToObject(root, "experiments");
  for (guint i = 0; i < all->measurements->len; i++)
    cJSON_AddItemToArray(list, measurement_json(g_ptr_array_index(all->measurements, i)));
  return json_finish(root);
}

/* ---- reading ---- */

gboolean
measurements_recognized(const char *text, gsize length)
{
  return g_strstr_len(text, (gssize) MIN(length, 200), MEASUREMENTS_FORMAT) != NULL;
}

static void
read_call(JsonReader *parent, const char *key, CollectiveCall *call)
{
  json_reader_require(parent, key);
  g_autoptr(JsonReader) reader = json_reader_section(parent, key);
  json_reader_require(reader, "kind");
  call->collective = (guint8) json_reader_enum(reader, "kind", collective_names, 0);
  call->in_place = json_reader_bool(reader, "in_place", FALSE);
  call->group.ranks = (gint32) json_reader_required_int(reader, "ranks", 1, 1 << 24);
  call->group.stride = (gint32) json_reader_required_int(reader, "stride", 1, 1 << 24);
  call->bytes = json_reader_required_int(reader, "bytes", 0, MOST_BYTES);
  json_reader_finish(reader, NULL);
}

static void
read_dtype(JsonReader *reader, Experiment *e)
{
  int dtype = dtype_from_name(json_reader_required_string(reader, "dtype"));
  if (dtype < 0)
    json_reader_fail(reader, "dtype", "not a dtype");
  e->dtype = (guint8) MAX(dtype, 0);
}

static void
read_experiment(JsonReader *reader, Experiment *e)
{
  json_reader_string(reader, "text", NULL);
  json_reader_require(reader, "kind");
  e->kind = (guint8) json_reader_enum(reader, "kind", experiment_names, 0);
  for (guint i = 0; i < G_N_ELEMENTS(experiment_numbers); i++) {
    const IntField *field = &experiment_numbers[i];
    set_number(e, field, json_reader_int(reader, field->key, 0, 0, field->most));
  }
  e->cold = json_reader_bool(reader, "cold", FALSE);
  e->beside = (guint8) json_reader_enum(reader, "beside", beside_names, BESIDE_NOTHING);
  if (e->kind == EXPERIMENT_GEMM)
    read_dtype(reader, e);
  if (e->kind == EXPERIMENT_COLLECTIVE)
    read_call(reader, "collective", &e->call);
  if (e->beside == BESIDE_COLLECTIVE)
    read_call(reader, "second", &e->second);
}

/* A week and more. */
#define MOST_US 1e12

/* Durations are positive. */
static void
read_series(JsonReader *reader, const char *key, GArray *values)
{
  const cJSON *list = json_reader_raw(reader, key), *item;
  if (list == NULL)
    return;
  if (!cJSON_IsArray(list)) {
    json_reader_fail(reader, key, "not a list");
    return;
  }
  cJSON_ArrayForEach(item, list)
  {
    double ns = cJSON_IsNumber(item) ? item->valuedouble * NS_PER_US : 0;
    if (!(ns > 0 && ns <= MOST_US * NS_PER_US)) {
      json_reader_fail(reader, key, "not durations: numbers above 0, at most 1e12");
      return;
    }
    g_array_append_val(values, ns);
  }
}

static void
read_measurement(JsonReader *reader, Measurement *m)
{
  read_experiment(reader, &m->experiment);
  m->failure = g_strdup(json_reader_string(reader, "failure", NULL));
  read_series(reader, "samples_us", m->samples);
  read_series(reader, "round_medians_us", m->medians);
  if (m->samples->len > 0 && m->medians->len == 0)
    json_reader_fail(reader, "round_medians_us", "missing beside samples_us");
  /* They follow from the samples. */
  static const char *const derived[] = {"median_us", "least_us", "p10_us", "p90_us", "outliers"};
  for (guint i = 0; i < G_N_ELEMENTS(derived); i++)
    json_reader_double(reader, derived[i], 0, 0, MOST_US);
  json_reader_finish(reader, NULL);
}

static void
read_facts(JsonReader *root, ProbeFacts *facts)
{
  g_autoptr(JsonReader) reader = json_reader_section(root, "facts");
  for (guint i = 0; i < G_N_ELEMENTS(fact_texts); i++)
    g_strlcpy((char *) facts + fact_texts[i].offset,
              json_reader_string(reader, fact_texts[i].key, ""), PROBE_TEXT);
  for (guint i = 0; i < G_N_ELEMENTS(fact_numbers); i++) {
    const IntField *field = &fact_numbers[i];
    set_number(facts, field, json_reader_int(reader, field->key, 0, 0, field->most));
  }
  json_reader_finish(reader, NULL);
}

static void
read_all(JsonReader *reader, Measurements *all)
{
  if (strcmp(json_reader_required_string(reader, "format"), MEASUREMENTS_FORMAT) != 0)
    json_reader_fail(reader, "format", "not '%s'", MEASUREMENTS_FORMAT);
  json_reader_string(reader, "date", NULL);
  all->complete = json_reader_bool(reader, "complete", FALSE);
  all->elapsed_s = json_reader_double(reader, "elapsed_s", 0, 0, 1e12);
  read_facts(reader, &all->facts);
  all->conditions_before = g_strdup(json_reader_string(reader, "conditions_before", NULL));
  all->conditions_after = g_strdup(json_reader_string(reader, "conditions_after", NULL));
  guint count = json_reader_array_length(reader, "experiments");
  for (guint i = 0; i < count; i++) {
    g_autoptr(JsonReader) element = json_reader_element(reader, "experiments", i);
    Measurement *m = measurements_add(all, &(Experiment){0});
    read_measurement(element, m);
    measurement_conclude(m);
  }
}

Measurements *
measurements_parse(const char *name, const char *text, gsize length, GError **error)
{
  g_autoptr(JsonDocument) document = json_document_parse(name, text, length, error);
  if (document == NULL)
    return NULL;
  g_autoptr(JsonReader) reader = json_reader_new(document);
  g_autoptr(Measurements) all = measurements_new();
  read_all(reader, all);
  if (!json_reader_finish(reader, error))
    return NULL;
  return g_steal_pointer(&all);
}
