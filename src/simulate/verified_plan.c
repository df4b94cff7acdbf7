/* verified_plan.c - a plan's Programs for all ranks, and those of the unsharded run beside it. */
#include "simulate/verified_plan.h"

#include <math.h>
#include <string.h>
#include <unistd.h>

#include "base/json_document.h"
#include "base/json_output.h"
#include "base/units.h"
#include "simulate/verification.h"

/* ---- what can be executed ---- */

/* What is compared of every parameter in every step is kept, of this run and of the one beside it:
 * this machine must hold at least one step's. */
static gboolean
check_memory(const Network *network, GError **error)
{
  const double kept = 2.0 * COMPARED * sizeof(double) * (double) network_parameter_count(network);
  const double memory = (double) sysconf(_SC_PHYS_PAGES) * (double) sysconf(_SC_PAGESIZE);
  if (kept <= memory)
    return TRUE;
  g_set_error(error, HIGHWATER_ERROR, HIGHWATER_ERROR_INPUT,
              "%s: verify: %" G_GINT64_FORMAT " parameters as numbers do not fit into this "
              "machine's memory: shrink the network (--scale)",
              network->name, network_parameter_count(network));
  return FALSE;
}

/* What has no reference, or nothing to compare. */
static gboolean
accept(const PlanSpec *plan, const Network *network, GError **error)
{
  if (network->loss_is_sum) {
    g_set_error(error, HIGHWATER_ERROR, HIGHWATER_ERROR_INPUT,
                "%s: verify: the loss is a sum: ranks average its gradients, so it depends on how "
                "many there are",
                network->name);
    return FALSE;
  }
  if (plan->optimizer.name == OPTIMIZER_NONE)
    return plan_spec_refuse(plan, error, "optimizer.name", "verify compares what it updates");
  if (plan->optimizer.implementation == OPTIMIZER_COMPOSER)
    return plan_spec_refuse(plan, error, "optimizer.implementation",
                            "verify does not know the loops of small ops that composer updates by");
  if (plan->phases.load.given)
    return plan_spec_refuse(plan, error, "phases.load",
                            "nobody has said which numbers are in that checkpoint: verify "
                            "--restart goes on from one");
  if (plan->compile_per_block)
    return plan_spec_refuse(plan, error, "compile", "verify cannot look into compiled kernels");
  return TRUE;
}

/* Both have the same parameters: one strategy may split what is tied, and another not. */
static gboolean
check_parameters(const Network *a, const Network *b, GError **error)
{
  gboolean same = a->parameters->len == b->parameters->len;
  for (guint i = 0; same && i < a->parameters->len; i++)
    same = g_str_equal(network_parameter(a, (int) i)->name, network_parameter(b, (int) i)->name);
  if (!same)
    g_set_error(error, HIGHWATER_ERROR, HIGHWATER_ERROR_INPUT,
                "verify: the plans do not train the same: one has %u parameters, the other %u: it "
                "splits what is tied",
                a->parameters->len, b->parameters->len);
  return same;
}

/* ---- lowering ---- */

/* Takes the scenario over; NULL: an error. */
static VerifiedPlan *
plan_of(Scenario *scenario)
{
  if (scenario == NULL)
    return NULL;
  VerifiedPlan *p = g_new0(VerifiedPlan, 1);
  p->scenario = scenario;
  p->ranks = scenario->plan->shard * scenario->plan->replicate;
  return p;
}

gboolean
verified_plan_lower(VerifiedPlan *p, int steps, GError **error)
{
  LowerInput input = scenario_lower_input(p->scenario);
  p->lowered = g_ptr_array_new_with_free_func((GDestroyNotify) lowered_free);
  p->programs = g_new0(const Program *, p->ranks);
  p->layout = lower_state_layout(&input, error);
  if (p->layout == NULL)
    return FALSE;
  for (int rank = 0; rank < p->ranks; rank++) {
    Lowered *lowered = scenario_lower(p->scenario, rank, steps, error);
    if (lowered == NULL)
      return FALSE;
    g_ptr_array_add(p->lowered, lowered);
    p->programs[rank] = lowered->program;
  }
  return TRUE;
}

void
verified_plan_free(VerifiedPlan *p)
{
  if (p == NULL)
    return;
  g_clear_pointer(&p->layout, state_layout_free);
  g_clear_pointer(&p->lowered, g_ptr_array_unref);
  g_clear_pointer(&p->programs, g_free);
  g_clear_pointer(&p->scenario, scenario_free);
  g_free(p);
}

VerifiedPlan *
verified_plan_new(const ScenarioInputs *inputs, GError **error)
{
  g_autoptr(VerifiedPlan) p = plan_of(scenario_new(inputs, 0, error));
  if (p == NULL || !check_memory(p->scenario->network, error) ||
      !accept(p->scenario->plan, p->scenario->network, error))
    return NULL;
  return g_steal_pointer(&p);
}

gint64
verified_plan_samples(const VerifiedPlan *p)
{
  const PlanSpec *plan = p->scenario->plan;
  return (gint64) p->ranks * plan->accumulation.steps * plan->micro_batch;
}

/* ---- the reference ---- */

/* What the reference does not take over from the plan, besides the strategies' sections: how it is
 * cut up, and what comes beside training. */
static const char *const not_taken[] = {
    "mesh",      "accumulation", "precision", "activation_checkpointing",
    "phases",    "ranks",        "failure",   "retain",
    "allocator", "compile",      NULL};

/* A plan's document with all assignments. */
static JsonDocument *
plan_document(const ScenarioInputs *in, GError **error)
{
  g_autoptr(JsonDocument) document =
      json_document_parse(in->plan.name, in->plan.text, in->plan.length, error);
  if (document == NULL)
    return NULL;
  for (char **a = in->assignments; a != NULL && *a != NULL; a++)
    if (!json_document_set(document, *a, error))
      return NULL;
  return g_steal_pointer(&document);
}

/* The plan of an unsharded run over the same samples, one micro-batch after the other: the given
 * one, of which all that is about sharding has gone.  NULL and error; caller frees. */
static char *
reference_plan(const ScenarioInputs *in, const PlanSpec *plan, GError **error)
{
  int micro_batches = plan->shard * plan->replicate * plan->accumulation.steps;
  g_autoptr(JsonDocument) document = plan_document(in, error);
  if (document == NULL)
    return NULL;
  cJSON *root = json_document_root(document);
  for (const char *const *key = not_taken; *key != NULL; key++)
    cJSON_DeleteItemFromObjectCaseSensitive(root, *key);
  for (const Strategy *const *s = strategies(); *s != NULL; s++)
    if ((*s)->section != NULL)
      cJSON_DeleteItemFromObjectCaseSensitive(root, (*s)->section->name);
  json_replace_text(root, "strategy", "none");
  cJSON_AddNumberToObject(json_section(root, "accumulation"), "steps", micro_batches);
  json_replace_text(json_section(root, "precision"), "parameters", "fp32");
  json_replace_text(json_section(root, "optimizer"), "implementation", "fused");
  return json_line(root);
}

/* The same inputs with a plan of another text, lowered for so many steps; no text: an error.  A
 * weight that is tied, and that the strategy makes two of, is two there as well. */
static VerifiedPlan *
lowered_with(ScenarioInputs inputs, const VerifiedPlan *of, const char *name, const char *text,
             int steps, GError **error)
{
  if (text == NULL)
    return NULL;
  inputs.plan.name = (char *) (gsize) name;
  inputs.plan.text = (char *) (gsize) text;
  inputs.plan.length = strlen(text);
  inputs.assignments = NULL;
  inputs.splits_tied = of->scenario->network->split;
  g_autoptr(VerifiedPlan) p = plan_of(scenario_new(&inputs, 0, error));
  return p != NULL && verified_plan_lower(p, steps, error) ? g_steal_pointer(&p) : NULL;
}

VerifiedPlan *
verified_plan_reference(const ScenarioInputs *inputs, const VerifiedPlan *of, int steps,
                        GError **error)
{
  g_autofree char *text = reference_plan(inputs, of->scenario->plan, error);
  return lowered_with(*inputs, of, "the reference's plan", text, steps, error);
}

/* ---- a rank alone ---- */

/* Keys that only several ranks have. */
static const struct {
  const char *section, *key;
} of_several[] = {{"optimizer", "clip_grad_norm"}, {"accumulation", "all_reduce_every"},
                  {"fsdp", "sharding_strategy"},   {"fsdp", "cpu_offload"},
                  {"fsdp", "pin_memory"},          {"deepspeed", "zero_hpz_partition_size"}};

static char *
alone_plan(const ScenarioInputs *in, int micro_batches, GError **error)
{
  static const char *const beside[] = {"mesh", "ranks", "failure", "phases", NULL};
  g_autoptr(JsonDocument) document = plan_document(in, error);
  if (document == NULL)
    return NULL;
  cJSON *root = json_document_root(document);
  for (const char *const *key = beside; *key != NULL; key++)
    cJSON_DeleteItemFromObjectCaseSensitive(root, *key);
  for (guint i = 0; i < G_N_ELEMENTS(of_several); i++)
    cJSON_DeleteItemFromObjectCaseSensitive(
        cJSON_GetObjectItemCaseSensitive(root, of_several[i].section), of_several[i].key);
  cJSON *fsdp = cJSON_GetObjectItemCaseSensitive(root, "fsdp");
  if (cJSON_IsNumber(cJSON_GetObjectItemCaseSensitive(fsdp, "reshard_after_forward")))
    cJSON_DeleteItemFromObjectCaseSensitive(fsdp, "reshard_after_forward");
  cJSON *accumulation = json_section(root, "accumulation"), *mesh = json_section(root, "mesh");
  cJSON_DeleteItemFromObjectCaseSensitive(accumulation, "steps");
  cJSON_AddNumberToObject(accumulation, "steps", micro_batches);
  cJSON_AddNumberToObject(mesh, "shard", 1);
  cJSON_AddNumberToObject(mesh, "replicate", 1);
  return json_line(root);
}

VerifiedPlan *
verified_plan_alone(const ScenarioInputs *inputs, const VerifiedPlan *of, int micro_batches,
                    GError **error)
{
  g_autofree char *text = alone_plan(inputs, micro_batches, error);
  return lowered_with(*inputs, of, "the plan on one rank", text, 1, error);
}

/* ---- two plans ---- */

/* What the same training has in common. */
static double
samples_of(const VerifiedPlan *p)
{
  return (double) verified_plan_samples(p);
}

static double
length_of(const VerifiedPlan *p)
{
  return p->scenario->plan->sequence_length;
}

static double
optimizer_of(const VerifiedPlan *p)
{
  return p->scenario->plan->optimizer.name;
}

static double
clipping_of(const VerifiedPlan *p)
{
  return p->scenario->plan->optimizer.clip_grad_norm;
}

static const struct {
  const char *what;
  double (*number)(const VerifiedPlan *p);
} common[] = {
    {"samples in a step of all ranks", samples_of},
    {"tokens in a sample (batch.sequence_length)", length_of},
    {"optimizer.name", optimizer_of},
    {"optimizer.clip_grad_norm", clipping_of},
};

gboolean
verified_plans_are_same(const ScenarioInputs *a, const ScenarioInputs *b, gboolean *same,
                        GError **error)
{
  g_autoptr(JsonDocument) first = plan_document(a, error);
  g_autoptr(JsonDocument) second = first != NULL ? plan_document(b, error) : NULL;
  if (second == NULL)
    return FALSE;
  cJSON *x = json_document_root(first), *y = json_document_root(second);
  cJSON_DeleteItemFromObjectCaseSensitive(x, "failure");
  cJSON_DeleteItemFromObjectCaseSensitive(y, "failure");
  *same = cJSON_Compare(x, y, TRUE) != 0;
  return TRUE;
}

/* Both update the same. */
static gboolean
check_trainable(const Scenario *a, const Scenario *b, GError **error)
{
  for (guint i = 0; i < a->network->parameters->len; i++) {
    const Parameter *first = network_parameter(a->network, (int) i);
    if (first->trainable == network_parameter(b->network, (int) i)->trainable)
      continue;
    g_set_error(error, HIGHWATER_ERROR, HIGHWATER_ERROR_INPUT,
                "verify: the plans do not train the same: only %s (%s) trains %s",
                first->trainable ? "A" : "B", first->trainable ? a->plan->name : b->plan->name,
                first->name);
    return FALSE;
  }
  return TRUE;
}

static char *
number_text(const VerifiedPlan *p, guint i)
{
  if (common[i].number == optimizer_of)
    return g_strdup(plan_optimizer_name(p->scenario->plan->optimizer.name));
  return g_strdup_printf("%g", common[i].number(p));
}

gboolean
verified_plans_compare(const VerifiedPlan *a, const VerifiedPlan *b, GError **error)
{
  for (guint i = 0; i < G_N_ELEMENTS(common); i++) {
    if (common[i].number(a) == common[i].number(b))
      continue;
    g_autofree char *first = number_text(a, i), *second = number_text(b, i);
    g_set_error(error, HIGHWATER_ERROR, HIGHWATER_ERROR_INPUT,
                "verify: the plans do not train the same: %s: %s in A (%s), %s in B (%s)",
                common[i].what, first, a->scenario->plan->name, second, b->scenario->plan->name);
    return FALSE;
  }
  return check_parameters(a->scenario->network, b->scenario->network, error) &&
         check_trainable(a->scenario, b->scenario, error);
}

char *
verified_plan_training(const VerifiedPlan *p)
{
  const PlanSpec *plan = p->scenario->plan;
  GString *text = g_string_new(NULL);
  g_string_append_printf(text, "%" G_GINT64_FORMAT " samples of %d tokens of %s, %s",
                         verified_plan_samples(p), plan->sequence_length,
                         p->scenario->network->name, plan_optimizer_name(plan->optimizer.name));
  if (plan->optimizer.clip_grad_norm > 0)
    g_string_append_printf(text, " clipped at %g", plan->optimizer.clip_grad_norm);
  if (strategy_freezes(p->scenario->network))
    g_string_append_printf(text, ", %d trained parameters",
                           network_trainable_tensors(p->scenario->network));
  return g_string_free(text, FALSE);
}
