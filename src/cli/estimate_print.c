/* estimate_print.c - the tables of an estimate, as text and as JSON. */
#include "base/json_output.h"
#include "base/text_table.h"
#include "base/units.h"
#include "cli/estimate.h"

/* What the estimators are asked. */
static const EstimatedOffload offloads[] = {
    {2, FALSE, FALSE, FALSE}, {2, TRUE, FALSE, FALSE}, {3, FALSE, FALSE, TRUE},
    {3, TRUE, FALSE, TRUE},   {3, TRUE, TRUE, TRUE},
};

/* Columns of what a strategy keeps, and the categories in them. */
static const struct {
  const char *name;
  Category categories[2];
} kept[] = {
    {"parameters", {CATEGORY_PARAMETER, CATEGORY_UNSHARDED_PARAMETER}},
    {"gradients", {CATEGORY_SHARDED_GRADIENT, CATEGORY_UNSHARDED_GRADIENT}},
    {"optimizer", {CATEGORY_OPTIMIZER_STATE, CATEGORY_COUNT}},
    {"buckets", {CATEGORY_REDUCE_SCATTER_BUFFER, CATEGORY_ALL_GATHER_BUFFER}},
};

/* Elements that data parallelism sends for each parameter: an all-reduce. */
enum { DATA_PARALLEL_VOLUME = 2 };

static gint64
kept_bytes(const StrategyStates *s, guint column)
{
  gint64 bytes = 0;
  for (guint i = 0; i < G_N_ELEMENTS(kept[column].categories); i++)
    if (kept[column].categories[i] != CATEGORY_COUNT)
      bytes += s->bytes[kept[column].categories[i]];
  return bytes;
}

static const char *
offload_name(const EstimatedOffload *o)
{
  return o->offload_parameters  ? "optimizer and parameters"
         : o->offload_optimizer ? "optimizer"
                                : "nothing";
}

/* Stage 3 gathers the largest layer. */
static gboolean
can_be_estimated(const Estimate *e, const EstimatedOffload *o)
{
  return o->stage < 3 || e->size.largest_layer > 0;
}

/* ---- text ---- */

/* A cell of GiB; strings live until the table has copied them. */
static char *
gib(double bytes)
{
  return g_strdup_printf("%.2f", bytes / (double) GIB);
}

static void
print_accounting(const Estimate *e, GString *out)
{
  g_autoptr(TextTable) table = text_table_new("lrrrrr");
  text_table_row(table, "stage", "parameters", "gradients", "optimizer", "sum", "traffic", NULL);
  for (int stage = 0; stage < ZERO_STAGES; stage++) {
    ZeroStates s = zero_states(stage, e->size.parameters, e->ranks);
    g_autofree char *name = g_strdup_printf("%d", stage);
    g_autofree char *parameters = gib(s.parameters), *gradients = gib(s.gradients);
    g_autofree char *optimizer = gib(s.optimizer);
    g_autofree char *sum = gib(s.parameters + s.gradients + s.optimizer);
    g_autofree char *traffic = g_strdup_printf("%.2f", s.sent / DATA_PARALLEL_VOLUME);
    text_table_row(table, name, parameters, gradients, optimizer, sum, traffic, NULL);
  }
  g_string_append(out, "By ZeRO's accounting: GiB per rank, traffic of a step relative to data"
                       " parallelism\n");
  text_table_print(table, 2, out);
}

static void
print_strategies(const Estimate *e, GString *out)
{
  enum { COLUMNS = 8 };
  if (e->strategies->len == 0)
    return;
  g_autoptr(TextTable) table = text_table_new("llrrrrrr");
  text_table_row(table, "strategy", "stage", kept[0].name, kept[1].name, kept[2].name, kept[3].name,
                 "sum", "traffic", NULL);
  for (guint i = 0; i < e->strategies->len; i++) {
    const StrategyStates *s = &g_array_index(e->strategies, StrategyStates, i);
    const char *row[COLUMNS] = {s->strategy};
    g_autoptr(GPtrArray) cells = g_ptr_array_new_with_free_func(g_free);
    gint64 sum = 0;
    g_ptr_array_add(cells, g_strdup_printf("%d", s->stage));
    for (guint k = 0; k < G_N_ELEMENTS(kept); k++) {
      sum += kept_bytes(s, k);
      g_ptr_array_add(cells, gib((double) kept_bytes(s, k)));
    }
    g_ptr_array_add(cells, gib((double) sum));
    g_ptr_array_add(cells, g_strdup_printf("%.2f", s->sent / DATA_PARALLEL_VOLUME));
    for (guint k = 0; k < cells->len; k++)
      row[1 + k] = g_ptr_array_index(cells, k);
    text_table_row_array(table, row);
  }
  g_string_append(out,
                  "\nWhat strategies keep after a step and zero_grad() with their defaults: GiB"
                  " per rank\n");
  text_table_print(table, 2, out);
  g_string_append(out, "Gradients are shards that a framework holds on to: FSDP1 to"
                       " the next forward, ZeRO-3 for ever\n");
}

static void
print_estimators(const Estimate *e, GString *out)
{
  g_autoptr(TextTable) table = text_table_new("llrr");
  text_table_row(table, "stage", "offloaded", "GPU", "host", NULL);
  for (guint i = 0; i < G_N_ELEMENTS(offloads); i++) {
    if (!can_be_estimated(e, &offloads[i]))
      continue;
    StateEstimate s = deepspeed_estimate(&e->size, &offloads[i]);
    g_autofree char *stage = g_strdup_printf("%d", offloads[i].stage);
    g_autofree char *device = gib((double) s.device), *host = gib((double) s.host);
    text_table_row(table, stage, offload_name(&offloads[i]), device, host, NULL);
  }
  g_string_append(out, "\nWhat DeepSpeed's estimators say: GiB of a GPU, and of a node's host"
                       " memory\n");
  text_table_print(table, 2, out);
  if (e->size.largest_layer == 0)
    g_string_append(out, "Stage 3 gathers the largest layer: --largest-layer says its size\n");
}

void
estimate_text(const Estimate *e, GString *out)
{
  g_autofree char *parameters = format_count(e->size.parameters);
  g_autofree char *largest = format_count(e->size.largest_layer);
  if (e->model != NULL)
    g_string_append_printf(out, "%s: ", e->model);
  g_string_append_printf(out, "%s parameters, ", parameters);
  if (e->size.largest_layer > 0)
    g_string_append_printf(out, "largest layer %s, ", largest);
  g_string_append_printf(out, "%d ranks, %d GPUs per node\n\n", e->ranks, e->size.gpus_per_node);
  print_accounting(e, out);
  print_strategies(e, out);
  print_estimators(e, out);
}

/* ---- JSON ---- */

static void
add_accounting(cJSON *root, const Estimate *e)
{
  cJSON *array = cJSON_AddArrayToObject(root, "zero_accounting");
  for (int stage = 0; stage < ZERO_STAGES; stage++) {
    ZeroStates s = zero_states(stage, e->size.parameters, e->ranks);
    cJSON *object = cJSON_CreateObject();
    cJSON_AddNumberToObject(object, "stage", stage);
    cJSON_AddNumberToObject(object, "parameter_bytes", s.parameters);
    cJSON_AddNumberToObject(object, "gradient_bytes", s.gradients);
    cJSON_AddNumberToObject(object, "optimizer_bytes", s.optimizer);
    cJSON_AddNumberToObject(object, "elements_sent_per_parameter", s.sent);
    cJSON_AddItemToArray(array, object);
  }
}

static void
add_strategies(cJSON *root, const Estimate *e)
{
  cJSON *array = cJSON_AddArrayToObject(root, "strategies");
  for (guint i = 0; i < e->strategies->len; i++) {
    const StrategyStates *s = &g_array_index(e->strategies, StrategyStates, i);
    cJSON *object = cJSON_CreateObject(), *categories = NULL;
    cJSON_AddStringToObject(object, "strategy", s->strategy);
    cJSON_AddNumberToObject(object, "equivalent_zero_stage", s->stage);
    categories = cJSON_AddObjectToObject(object, "categories");
    for (int k = 0; k < CATEGORY_COUNT; k++)
      cJSON_AddNumberToObject(categories, category_name((Category) k), (double) s->bytes[k]);
    cJSON_AddNumberToObject(object, "elements_sent_per_parameter", s->sent);
    cJSON_AddItemToArray(array, object);
  }
}

static void
add_estimators(cJSON *root, const Estimate *e)
{
  cJSON *array = cJSON_AddArrayToObject(root, "deepspeed_estimators");
  for (guint i = 0; i < G_N_ELEMENTS(offloads); i++) {
    if (!can_be_estimated(e, &offloads[i]))
      continue;
    StateEstimate s = deepspeed_estimate(&e->size, &offloads[i]);
    cJSON *object = cJSON_CreateObject();
    cJSON_AddNumberToObject(object, "stage", offloads[i].stage);
    cJSON_AddBoolToObject(object, "offload_optimizer", offloads[i].offload_optimizer);
    cJSON_AddBoolToObject(object, "offload_parameters", offloads[i].offload_parameters);
    cJSON_AddNumberToObject(object, "device_bytes", (double) s.device);
    cJSON_AddNumberToObject(object, "host_bytes", (double) s.host);
    cJSON_AddItemToArray(array, object);
  }
}

void
estimate_json(const Estimate *e, GString *out)
{
  cJSON *root = cJSON_CreateObject();
  cJSON_AddStringToObject(root, "format", "highwater-estimate-1");
  if (e->model != NULL)
    cJSON_AddStringToObject(root, "model", e->model);
  else
    cJSON_AddNullToObject(root, "model");
  cJSON_AddNumberToObject(root, "ranks", e->ranks);
  cJSON_AddNumberToObject(root, "gpus_per_node", e->size.gpus_per_node);
  cJSON_AddNumberToObject(root, "parameters", (double) e->size.parameters);
  if (e->size.largest_layer > 0)
    cJSON_AddNumberToObject(root, "largest_layer", (double) e->size.largest_layer);
  else
    cJSON_AddNullToObject(root, "largest_layer");
  add_accounting(root, e);
  add_strategies(root, e);
  add_estimators(root, e);
  g_autofree char *text = json_finish(root);
  g_string_append(out, text);
}
