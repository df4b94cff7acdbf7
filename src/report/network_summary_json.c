/* network_summary_json.c - the summary of a network as JSON. */
#include "base/json_output.h"
#include "report/network_summary.h"

static cJSON *
shape_array(const Parameter *p)
{
  cJSON *array = cJSON_CreateArray();
  for (int i = 0; i < p->dims; i++)
    cJSON_AddItemToArray(array, cJSON_CreateNumber((double) p->shape[i]));
  return array;
}

/* A module's own parameters, by the last part of their names. */
static void
add_weights(cJSON *object, const Network *network, const Module *module)
{
  cJSON *weights = cJSON_AddArrayToObject(object, "weights");
  for (int i = 0; i < module->parameter_count; i++) {
    const Parameter *p = network_parameter(network, module->first_parameter + i);
    cJSON *weight = cJSON_CreateObject();
    json_add_text(weight, "name", parameter_short_name(p));
    cJSON_AddItemToObject(weight, "shape", shape_array(p));
    cJSON_AddItemToArray(weights, weight);
  }
}

static void
add_modules(cJSON *root, const NetworkSummary *s)
{
  cJSON *modules = cJSON_AddArrayToObject(root, "modules");
  for (guint i = 0; i < s->modules->len; i++) {
    const ModuleLine *line = &g_array_index(s->modules, ModuleLine, i);
    const Module *module = network_module(s->network, line->module);
    cJSON *object = cJSON_CreateObject();
    json_add_text(object, "path", line->path);
    json_add_text(object, "type", module->type);
    json_add_int(object, "count", line->count);
    json_add_int(object, "parameters", line->parameters);
    json_add_int(object, "own_parameters", line->own_parameters);
    add_weights(object, s->network, module);
    cJSON_AddItemToArray(modules, object);
  }
}

static void
add_tied(cJSON *root, const Network *n)
{
  cJSON *others = NULL;
  for (guint i = 0; i < n->ties->len; i++) {
    const Tie *tie = network_tie(n, (int) i);
    if (tie->module < 0)
      continue;
    if (cJSON_GetObjectItemCaseSensitive(root, "tied") != NULL && others == NULL)
      others = cJSON_AddArrayToObject(root, "tied_too");
    cJSON *tied = others != NULL ? cJSON_CreateObject() : cJSON_AddObjectToObject(root, "tied");
    if (others != NULL)
      cJSON_AddItemToArray(others, tied);
    json_add_text(tied, "module", network_module(n, tie->module)->path);
    json_add_text(tied, "weight", network_parameter(n, tie->parameter)->name);
  }
  if (cJSON_GetObjectItemCaseSensitive(root, "tied") == NULL)
    cJSON_AddNullToObject(root, "tied");
}

static void
add_plan(cJSON *root, const NetworkSummary *s)
{
  cJSON *plan = cJSON_AddObjectToObject(root, "plan");
  json_add_text(plan, "strategy", s->plan->strategy);
  json_add_int(plan, "micro_batch", s->plan->micro_batch);
  json_add_int(plan, "sequence_length", s->plan->sequence_length);
  json_add_text(plan, "compute", dtype_name(s->network->shape.precision.matmul));
}

/* Whose code computes it: an exported network's is its own. */
static const char *
network_implementation(const NetworkSummary *s)
{
  gboolean recorded = g_str_equal(s->network->family, "ops");
  return recorded ? "recorded" : implementation_code_name(s->spec->implementation.code);
}

static void
add_flops(cJSON *root, const NetworkSummary *s)
{
  cJSON *flops = cJSON_AddObjectToObject(root, "flops_per_token");
  cJSON_AddNumberToObject(flops, "forward", s->flops_per_token.forward);
  cJSON_AddNumberToObject(flops, "backward", s->flops_per_token.backward);
  cJSON_AddNumberToObject(flops, "convention", s->model_flops_per_token);
}

static void
add_activations(cJSON *object, const char *key, const gint64 bytes[SUMMARY_POLICIES])
{
  cJSON *policies = cJSON_AddObjectToObject(object, key);
  for (int policy = 0; policy < SUMMARY_POLICIES; policy++)
    json_add_int(policies, checkpoint_policy_name((CheckpointPolicy) policy), bytes[policy]);
}

static void
add_blocks(cJSON *root, const NetworkSummary *s)
{
  cJSON *blocks = cJSON_AddArrayToObject(root, "blocks");
  for (guint i = 0; i < s->blocks->len; i++) {
    const BlockLine *line = &g_array_index(s->blocks, BlockLine, i);
    cJSON *object = cJSON_CreateObject();
    json_add_text(object, "path", line->path);
    json_add_int(object, "count", line->count);
    json_add_int(object, "parameters", line->parameters);
    add_activations(object, "activation_bytes", line->activation_bytes);
    cJSON_AddItemToArray(blocks, object);
  }
}

static void
add_groups(cJSON *root, const NetworkSummary *s)
{
  cJSON *groups = cJSON_AddArrayToObject(root, "groups");
  for (guint i = 0; i < s->lowered->units->len; i++) {
    const Unit *unit = g_ptr_array_index(s->lowered->units, i);
    if (unit->parameters->len == 0)
      continue;
    cJSON *object = cJSON_CreateObject();
    json_add_text(object, "name", unit->name);
    cJSON *modules = cJSON_AddArrayToObject(object, "modules");
    for (guint k = 0; k < unit->modules->len; k++) {
      int module = g_array_index(unit->modules, int, k);
      cJSON_AddItemToArray(modules, cJSON_CreateString(network_module(s->network, module)->path));
    }
    json_add_int(object, "parameters", unit->elements);
    json_add_int(object, "tensors", unit->parameters->len);
    json_add_int(object, "unsharded_bytes", unit->unsharded_bytes);
    json_add_int(object, "padding_bytes", unit_padding_bytes(s, unit));
    json_add_int(object, "shard_bytes", unit->shard_bytes);
    cJSON_AddItemToArray(groups, object);
  }
}

char *
network_summary_json(const NetworkSummary *s)
{
  cJSON *root = cJSON_CreateObject();
  json_add_text(root, "format", "highwater-show-1");
  json_add_text(root, "name", s->network->name);
  json_add_text(root, "family", s->network->family);
  json_add_text(root, "implementation", network_implementation(s));
  gint64 base = s->network->base_parameters;
  json_add_int(root, "parameters", network_usual_count(s->network));
  if (base > 0) {
    json_add_text(root, "parameters_of", s->network->base_class);
    json_add_text(root, "trained_class", s->network->trained_class);
    json_add_int(root, "trained_parameters", s->parameters);
  }
  json_add_int(root, "trainable_parameters", s->trainable_parameters);
  add_plan(root, s);
  add_flops(root, s);
  add_activations(root, "activation_bytes_per_block", s->activation_bytes);
  json_add_int(root, "planned_activation_bytes", s->planned_bytes);
  add_blocks(root, s);
  add_tied(root, s->network);
  add_modules(root, s);
  add_groups(root, s);
  return json_finish(root);
}
