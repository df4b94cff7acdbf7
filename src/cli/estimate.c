/* estimate.c - model states of a network: by ZeRO's accounting, as each strategy keeps them, and by
 * DeepSpeed's estimators. */
#include "cli/estimate.h"

#include <string.h>

#include "base/units.h"
#include "program/program_totals.h"
#include "simulate/scenario.h"

/* ---- strategies, lowered ---- */

/* States do not depend on the sequence: a short one is lowered fast. */
#define SEQUENCE_LENGTH 16
/* Adam's states exist from the first step on; the second repeats for ever, except where a strategy
 * still learns. */
enum { STEPS = 3 };

/* The mixed precision that each framework is used with: DeepSpeed's 16-bit models, FSDP's casts of
 * fp32 shards, autocast around fp32 replicas. */
static const char *
precision_of(const char *strategy)
{
  if (g_str_has_prefix(strategy, "zero"))
    return "{\"parameters\": \"bf16\"}";
  if (g_str_has_prefix(strategy, "fsdp"))
    return "{\"parameters\": \"fp32\", \"compute\": \"bf16\", \"reduce\": \"fp32\"}";
  return "{\"parameters\": \"fp32\", \"compute\": \"bf16\", \"reduce\": \"fp32\", \"autocast\": "
         "true}";
}

/* Strategies without shards take all ranks as replicas; one of them takes no ranks at all. */
static char *
plan_text(const char *strategy, int ranks)
{
  gboolean replicas = g_str_equal(strategy, "ddp"), alone = g_str_equal(strategy, "none");
  return g_strdup_printf(
      "{\"strategy\": \"%s\", \"mesh\": {\"shard\": %d, \"replicate\": %d}, \"batch\": "
      "{\"sequence_length\": %d}, \"precision\": %s, \"optimizer\": {\"implementation\": "
      "\"fused\", \"zero_grad\": \"end\"}}",
      strategy, replicas || alone ? 1 : ranks, replicas ? ranks : 1, SEQUENCE_LENGTH,
      precision_of(strategy));
}

/* FALSE when the network or the mesh is not for this strategy. */
static gboolean
lower_strategy(ScenarioInputs *inputs, const Strategy *strategy, int ranks, StrategyStates *states)
{
  input_text_clear(&inputs->plan);
  inputs->plan.name = g_strdup("estimate's own plan");
  inputs->plan.text = plan_text(strategy->name, ranks);
  inputs->plan.length = strlen(inputs->plan.text);
  g_autoptr(Scenario) s = scenario_new(inputs, 0, NULL);
  g_autoptr(Lowered) lowered = s != NULL ? scenario_lower(s, 0, STEPS, NULL) : NULL;
  if (lowered == NULL)
    return FALSE;
  const OpList *last = program_step(lowered->program, STEPS - 1);
  *states = (StrategyStates){.strategy = strategy->name, .stage = lowered->zero_stage};
  program_bytes_alive(lowered->program, states->bytes);
  states->sent =
      program_elements_sent(lowered->program, last) / (double) network_parameter_count(s->network);
  return TRUE;
}

/* ---- the network ---- */

/* estimate_zero3_model_states_mem_needs_all_live: the most that one module has itself. */
static gint64
largest_layer(const Network *network)
{
  gint64 largest = 0;
  for (guint i = 0; i < network->modules->len; i++) {
    const Module *m = network_module(network, (int) i);
    gint64 own = 0;
    for (int k = 0; k < m->parameter_count; k++)
      own += network_parameter(network, m->first_parameter + k)->elements;
    largest = MAX(largest, own);
  }
  return largest;
}

static gboolean
fill_from_network(Estimate *e, const char *network, GError **error)
{
  ScenarioInputs inputs = {0};
  gboolean read = input_text_read("network", network, &inputs.network, error) &&
                  input_text_read("cluster", "h100-8", &inputs.cluster, error);
  inputs.plan.name = g_strdup("estimate's own plan");
  inputs.plan.text = plan_text("none", 1);
  inputs.plan.length = strlen(inputs.plan.text);
  g_autoptr(Scenario) s = read ? scenario_new(&inputs, 0, error) : NULL;
  if (s != NULL) {
    e->model = g_strdup(s->network->name);
    e->size.parameters = network_parameter_count(s->network);
    e->size.largest_layer = largest_layer(s->network);
    for (const Strategy *const *strategy = strategies(); *strategy != NULL; strategy++) {
      StrategyStates states;
      if (lower_strategy(&inputs, *strategy, e->ranks, &states))
        g_array_append_val(e->strategies, states);
    }
  }
  input_text_clear(&inputs.network);
  input_text_clear(&inputs.plan);
  input_text_clear(&inputs.cluster);
  return s != NULL;
}

Estimate *
estimate_new(const EstimateRequest *request, const char *network, GError **error)
{
  g_autoptr(Estimate) e = g_new0(Estimate, 1);
  int per_node = MIN(request->gpus_per_node, request->ranks);
  e->ranks = request->ranks;
  e->strategies = g_array_new(FALSE, FALSE, sizeof(StrategyStates));
  e->size = (EstimatedModel){
      .parameters = request->parameters,
      .largest_layer = request->largest_layer,
      .gpus_per_node = per_node,
      .nodes = (int) ceil_div(request->ranks, per_node),
  };
  if (network != NULL && !fill_from_network(e, network, error))
    return NULL;
  return g_steal_pointer(&e);
}

void
estimate_free(Estimate *e)
{
  if (e == NULL)
    return;
  g_array_unref(e->strategies);
  g_free(e->model);
  g_free(e);
}
