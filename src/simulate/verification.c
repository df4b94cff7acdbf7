/* verification.c - runs a plan and its reference on numbers and compares them. */
#include "simulate/verification.h"

#include <math.h>
#include <string.h>

#include "base/json_document.h"
#include "base/json_output.h"
#include "base/units.h"
#include "simulate/scaled_network.h"
#include "simulate/verified_state.h"

/* ---- the reference ---- */

/* What the reference does not take over from the plan, besides the strategies' sections: how it is
 * cut up, and what comes beside training. */
static const char *const not_taken[] = {
    "mesh",      "accumulation", "precision", "activation_checkpointing",
    "phases",    "ranks",        "failure",   "retain",
    "allocator", "compile",      NULL};

/* The plan of an unsharded run over the same samples, one micro-batch after the other: the given
 * one, of which all that is about sharding has gone.  NULL and error; caller frees. */
static char *
reference_plan(const ScenarioInputs *in, const PlanSpec *plan, GError **error)
{
  int micro_batches = plan->shard * plan->replicate * plan->accumulation.steps;
  g_autoptr(JsonDocument) document =
      json_document_parse(in->plan.name, in->plan.text, in->plan.length, error);
  if (document == NULL)
    return NULL;
  for (char **a = in->assignments; a != NULL && *a != NULL; a++)
    if (!json_document_set(document, *a, error))
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

/* A weight that is tied and that the plan's strategy makes two of is two there as well. */
static Scenario *
reference_scenario(const VerificationRequest *request, const Scenario *s, GError **error)
{
  ScenarioInputs inputs = request->inputs;
  g_autofree char *text = reference_plan(&inputs, s->plan, error);
  if (text == NULL)
    return NULL;
  inputs.plan.name = (char *) (gsize) "the reference's plan";
  inputs.plan.text = text;
  inputs.plan.length = strlen(text);
  inputs.assignments = NULL;
  inputs.splits_tied = s->network->split;
  return scenario_new(&inputs, 0, error);
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
  if (plan->compile_per_block)
    return plan_spec_refuse(plan, error, "compile", "verify cannot look into compiled kernels");
  return TRUE;
}

/* FALSE and error: nothing that the optimizer does is in the Programs. */
static gboolean
check_updates(const Network *network, const Program *const *programs, int ranks, GError **error)
{
  for (int rank = 0; rank < ranks; rank++)
    if (numeric_program_updates(programs[rank]))
      return TRUE;
  g_set_error(error, HIGHWATER_ERROR, HIGHWATER_ERROR_INPUT,
              "%s: verify: the optimizer works in the host's memory, and a Program does not name "
              "what it does there",
              network->name);
  return FALSE;
}

/* ---- a run ---- */

/* All ranks' Programs of a scenario, and who holds what. */
typedef struct {
  const Scenario *scenario;
  StateLayout *layout;
  GPtrArray *lowered;
  const Program **programs;
  int ranks;
} Lowering;

static void
lowering_clear(Lowering *l)
{
  g_clear_pointer(&l->layout, state_layout_free);
  g_clear_pointer(&l->lowered, g_ptr_array_unref);
  g_clear_pointer(&l->programs, g_free);
}

static gboolean
lower_all(const Scenario *s, int steps, Lowering *l, GError **error)
{
  LowerInput input = scenario_lower_input(s);
  *l = (Lowering){.scenario = s, .ranks = s->plan->shard * s->plan->replicate};
  l->lowered = g_ptr_array_new_with_free_func((GDestroyNotify) lowered_free);
  l->programs = g_new0(const Program *, l->ranks);
  l->layout = lower_state_layout(&input, error);
  if (l->layout == NULL)
    return FALSE;
  for (int rank = 0; rank < l->ranks; rank++) {
    Lowered *lowered = scenario_lower(s, rank, steps, error);
    if (lowered == NULL)
      return FALSE;
    g_ptr_array_add(l->lowered, lowered);
    l->programs[rank] = lowered->program;
  }
  return TRUE;
}

static VerifiedState *
execute(const Lowering *l, const VerificationRequest *request, guint64 order, GError **error)
{
  const PlanSpec *plan = l->scenario->plan;
  VerifiedState *state = verified_state_new(l->scenario, l->layout, request->steps, request->seed);
  NumericConfig config = {.ranks = l->ranks,
                          .programs = l->programs,
                          .allocator = allocator_config_default(),
                          .hooks = verified_state_hooks(state),
                          .seed = request->seed,
                          .order = order,
                          .micro_batch = plan->micro_batch,
                          .micro_batches = plan->accumulation.steps};
  NumericOutcome outcome = {0};
  gboolean ok = numeric_run(&config, &outcome, error);
  state->peaks = g_steal_pointer(&outcome.peaks);
  state->first_unknown = g_steal_pointer(&outcome.first_unknown);
  numeric_outcome_clear(&outcome);
  if (!ok)
    g_clear_pointer(&state, verified_state_free);
  return state;
}

/* ---- comparison ---- */

static const char *const compared_names[COMPARED] = {"gradient", "value", "first state",
                                                     "second state"};

static void G_GNUC_PRINTF(2, 3) fault(VerificationReport *report, const char *format, ...)
{
  va_list arguments;
  if (report->fault != NULL)
    return;
  va_start(arguments, format);
  report->fault = g_strdup_vprintf(format, arguments);
  va_end(arguments);
}

/* Largest difference, relative to the largest element of the reference; NaN counts as infinite. */
static double
difference_of(const double *a, const double *b, gint64 n)
{
  double largest = 0, difference = 0;
  for (gint64 i = 0; i < n; i++) {
    largest = MAX(largest, fabs(b[i]));
    double d = fabs(a[i] - b[i]);
    if (!isfinite(d))
      return INFINITY;
    difference = MAX(difference, d);
  }
  return difference == 0 ? 0 : difference / MAX(largest, 1e-300);
}

/* The first element that differs by more than is allowed: which rank's it is. */
static gint64
first_different(const double *a, const double *b, gint64 n, double allowed)
{
  double largest = 0;
  for (gint64 i = 0; i < n; i++)
    largest = MAX(largest, fabs(b[i]));
  for (gint64 i = 0; i < n; i++)
    if (!(fabs(a[i] - b[i]) <= allowed * largest))
      return i;
  return 0;
}

static int
owner_of(const StateLayout *layout, int parameter, gint64 element)
{
  for (int rank = 0; rank < layout->ranks; rank++) {
    const GArray *held = g_ptr_array_index(layout->held, (guint) rank);
    for (guint i = 0; i < held->len; i++) {
      const StateRange *range = &g_array_index(held, StateRange, i);
      if (range->parameter == parameter && element >= range->first &&
          element < range->first + range->elements)
        return rank;
    }
  }
  return 0;
}

static void
compare_parameter(VerificationReport *report, const VerifiedState *state,
                  const VerifiedState *reference, int step, int parameter)
{
  const VerifiedTensor *t = verified_state_tensor(state, step, parameter),
                       *r = verified_state_tensor(reference, step, parameter);
  VerifiedParameter *p = &g_array_index(report->parameters, VerifiedParameter, parameter);
  VerifiedStep *s = &g_array_index(report->steps, VerifiedStep, step - 1);
  for (int k = 0; k < COMPARED; k++) {
    if (r->values[k] == NULL && t->values[k] == NULL)
      continue;
    gboolean both = r->values[k] != NULL && t->values[k] != NULL;
    double d = both ? difference_of(t->values[k], r->values[k], p->elements) : INFINITY;
    p->worst.difference[k] = MAX(p->worst.difference[k], d);
    s->worst.difference[k] = MAX(s->worst.difference[k], d);
    if (!both)
      fault(report, "step %d: %s is not updated by %s", step, p->name,
            t->values[k] == NULL ? "any rank" : "the reference");
    else if (d > report->tolerance) {
      gint64 i = first_different(t->values[k], r->values[k], p->elements, report->tolerance);
      int owner = owner_of(state->layout, parameter, i);
      const char *op = t->written_by[owner];
      g_autofree char *writer = op != NULL ? g_strdup_printf("written by %s", op) : NULL;
      fault(report,
            "step %d, rank %d: %s of %s differs from the unsharded run's, first in element "
            "%" G_GINT64_FORMAT ": %.9g, not %.9g; %s",
            step, owner, compared_names[k], p->name, i, t->values[k][i], r->values[k][i],
            state->first_unknown != NULL               ? state->first_unknown
            : k == COMPARED_GRADIENT && writer != NULL ? writer
                                                       : "the optimizer wrote it");
    }
  }
  for (gint64 i = 0; t->writers != NULL && i < p->elements; i++)
    if (t->writers[i] == 0) {
      fault(report, "step %d: nobody updates element %" G_GINT64_FORMAT " of %s", step, i, p->name);
      break;
    }
}

static void
compare_step(VerificationReport *report, const VerifiedState *state, const VerifiedState *reference,
             int step)
{
  VerifiedStep *s = &g_array_index(report->steps, VerifiedStep, step - 1);
  s->loss = state->losses[step] / state->ranks;
  s->reference_loss = reference->losses[step];
  s->norm = verified_state_norm(state, step);
  s->reference_norm = verified_state_norm(reference, step);
  if (!(fabs(s->loss - s->reference_loss) <= report->tolerance * fabs(s->reference_loss)))
    fault(report, "step %d: the loss is %.12g, in the unsharded run %.12g%s%s", step, s->loss,
          s->reference_loss, state->first_unknown != NULL ? "; " : "",
          state->first_unknown != NULL ? state->first_unknown : "");
  if (report->scenario->plan->optimizer.clip_grad_norm > 0 && state->norms[step] != 0 &&
      !(fabs(s->norm - s->reference_norm) <= report->tolerance * s->reference_norm) &&
      state->first_unknown == NULL)
    fault(report, "step %d: the norm of all gradients is %.12g, in the unsharded run %.12g", step,
          s->norm, s->reference_norm);
  for (guint i = 0; i < report->parameters->len; i++)
    compare_parameter(report, state, reference, step, (int) i);
}

static void
compare(VerificationReport *report, const VerifiedState *state, const VerifiedState *reference)
{
  if (state->fault != NULL)
    fault(report, "%s", state->fault);
  for (guint i = 0; i < report->steps->len; i++)
    compare_step(report, state, reference, (int) i + 1);
}

/* ---- all ---- */

static void
begin_report(VerificationReport *report, const VerificationRequest *request, Scenario *s)
{
  const PlanSpec *plan = s->plan;
  *report = (VerificationReport){.ranks = plan->shard * plan->replicate,
                                 .micro_batches = plan->accumulation.steps,
                                 .network = g_strdup(s->network->name),
                                 .strategy = g_strdup(plan->strategy),
                                 .tolerance = request->tolerance,
                                 .orders = request->orders,
                                 .steps = g_array_new(FALSE, TRUE, sizeof(VerifiedStep)),
                                 .parameters = g_array_new(FALSE, TRUE, sizeof(VerifiedParameter)),
                                 .scenario = s};
  report->samples = (gint64) report->ranks * report->micro_batches * plan->micro_batch;
  report->peaks = g_new0(gint64, report->ranks);
  g_array_set_size(report->steps, (guint) request->steps);
  for (guint i = 0; i < s->network->parameters->len; i++) {
    const Parameter *p = network_parameter(s->network, (int) i);
    VerifiedParameter v = {.name = p->name, .elements = p->elements};
    g_array_append_val(report->parameters, v);
  }
}

/* Shrinks network and length: the assignments, one more than before, and the network's text are the
 * caller's. */
static gboolean
scale(VerificationRequest *request, GString *changes, char ***assignments, char **network,
      GError **error)
{
  g_autofree PlanStrategy *table = strategy_plan_table();
  ScenarioInputs *in = &request->inputs;
  g_autoptr(PlanSpec) plan = plan_spec_parse(in->plan.name, in->plan.text, in->plan.length,
                                             (const char *const *) in->assignments, table, error);
  char *text = plan != NULL ? scaled_network(&in->network, request->scale, changes, error) : NULL;
  if (text == NULL)
    return FALSE;
  in->network.text = *network = text;
  in->network.length = strlen(text);
  gint64 length = scaled_length(plan->sequence_length, request->scale);
  guint n = in->assignments != NULL ? g_strv_length(in->assignments) : 0;
  *assignments = g_new0(char *, n + 2);
  for (guint i = 0; i < n; i++)
    (*assignments)[i] = g_strdup(in->assignments[i]);
  (*assignments)[n] = g_strdup_printf("batch.sequence_length=%" G_GINT64_FORMAT, length);
  in->assignments = *assignments;
  g_string_append_printf(changes,
                         "%sbatch.sequence_length %" G_GINT64_FORMAT " -> %" G_GINT64_FORMAT,
                         changes->len > 0 ? ", " : "", (gint64) plan->sequence_length, length);
  return TRUE;
}

static void
count_owners(VerificationReport *report, const StateLayout *layout)
{
  for (int rank = 0; rank < report->ranks; rank++) {
    const GArray *held = g_ptr_array_index(layout->held, (guint) (rank % layout->ranks));
    for (guint i = 0; i < held->len; i++)
      g_array_index(report->parameters, VerifiedParameter,
                    g_array_index(held, StateRange, i).parameter)
          .owners++;
  }
}

static gboolean
run_orders(const VerificationRequest *request, const Lowering *l, const VerifiedState *reference,
           VerificationReport *report, GError **error)
{
  for (int i = 0; i <= request->orders && report->fault == NULL; i++) {
    VerifiedState *state = execute(l, request, (guint64) i, error);
    if (state == NULL)
      return FALSE;
    compare(report, state, reference);
    if (i == 0)
      memcpy(report->peaks, state->peaks, sizeof(gint64) * (gsize) report->ranks);
    verified_state_free(state);
    if (report->fault != NULL && i > 0) {
      char *in_order = g_strdup_printf("in random order %d, %s", i, report->fault);
      g_free(report->fault);
      report->fault = in_order;
    }
  }
  return TRUE;
}

gboolean
verify(const VerificationRequest *given, VerificationReport *report, GError **error)
{
  Lowering plan = {0}, unsharded = {0};
  VerifiedState *reference = NULL;
  *report = (VerificationReport){0};
  g_autoptr(GString) changes = g_string_new(NULL);
  VerificationRequest scaled = *given, *request = &scaled;
  g_auto(GStrv) assignments = NULL;
  g_autofree char *network = NULL;
  if (given->scale > 1 && !scale(&scaled, changes, &assignments, &network, error))
    return FALSE;
  Scenario *s = scenario_new(&request->inputs, 0, error);
  if (s == NULL)
    return FALSE;
  begin_report(report, request, s);
  if (changes->len > 0)
    report->scaled = g_strdup(changes->str);
  g_autoptr(Scenario) other = NULL;
  gboolean ok = accept(s->plan, s->network, error);
  if (ok)
    other = reference_scenario(request, s, error);
  ok = other != NULL && lower_all(s, request->steps, &plan, error) &&
       check_updates(s->network, plan.programs, plan.ranks, error) &&
       lower_all(other, request->steps, &unsharded, error);
  for (int rank = 0; ok && request->change != NULL && rank < plan.ranks; rank++)
    request->change(((Lowered *) g_ptr_array_index(plan.lowered, (guint) rank))->program, rank,
                    request->how);
  if (ok) {
    count_owners(report, plan.layout);
    reference = execute(&unsharded, request, 0, error);
  }
  ok = reference != NULL && run_orders(request, &plan, reference, report, error);
  verified_state_free(reference);
  lowering_clear(&plan);
  lowering_clear(&unsharded);
  return ok;
}

void
verification_report_clear(VerificationReport *report)
{
  g_clear_pointer(&report->steps, g_array_unref);
  g_clear_pointer(&report->parameters, g_array_unref);
  g_clear_pointer(&report->fault, g_free);
  g_clear_pointer(&report->network, g_free);
  g_clear_pointer(&report->strategy, g_free);
  g_clear_pointer(&report->scaled, g_free);
  g_clear_pointer(&report->peaks, g_free);
  g_clear_pointer(&report->scenario, scenario_free);
}
