/* verification.c - runs plans and their reference on numbers and compares them. */
#include "simulate/verification.h"

#include <math.h>
#include <string.h>

#include "base/units.h"
#include "simulate/scaled_network.h"
#include "simulate/verification_report.h"
#include "simulate/verified_failure.h"

typedef struct {
  VerificationRequest request; /* with the steps and the restart that it comes to */
  ScenarioInputs inputs[2]; /* of the plan, and of the other one; borrowed, but for what follows */
  char *network;            /* the scaled text; NULL: nothing is scaled */
  char **assignments[2];    /* with the scaled length */
  VerifiedPlan *plan, *other, *unsharded;
  VerifiedState *reference;
} Work;

static void
work_clear(Work *w)
{
  verified_state_free(w->reference);
  verified_plan_free(w->plan);
  verified_plan_free(w->other);
  verified_plan_free(w->unsharded);
  g_strfreev(w->assignments[0]);
  g_strfreev(w->assignments[1]);
  g_free(w->network);
}

/* ---- inputs ---- */

/* Shrinks the length of a plan. */
static gboolean
scale_plan(Work *w, int side, GString *changes, GError **error)
{
  g_autofree PlanStrategy *table = strategy_plan_table();
  ScenarioInputs *in = &w->inputs[side];
  g_autoptr(PlanSpec) plan = plan_spec_parse(in->plan.name, in->plan.text, in->plan.length,
                                             (const char *const *) in->assignments, table, error);
  if (plan == NULL)
    return FALSE;
  gint64 length = scaled_length(plan->sequence_length, w->request.scale);
  guint n = in->assignments != NULL ? g_strv_length(in->assignments) : 0;
  char **all = w->assignments[side] = g_new0(char *, n + 2);
  for (guint i = 0; i < n; i++)
    all[i] = g_strdup(in->assignments[i]);
  all[n] = g_strdup_printf("batch.sequence_length=%" G_GINT64_FORMAT, length);
  in->assignments = all;
  if (side == 0)
    g_string_append_printf(changes,
                           "%sbatch.sequence_length %" G_GINT64_FORMAT " -> %" G_GINT64_FORMAT,
                           changes->len > 0 ? ", " : "", (gint64) plan->sequence_length, length);
  return TRUE;
}

/* Shrinks network and lengths. */
static gboolean
scale(Work *w, int sides, GString *changes, GError **error)
{
  if (w->request.scale <= 1)
    return TRUE;
  const NetworkScale by = {w->request.scale, w->request.layers};
  w->network = scaled_network(&w->inputs[0].network, &by, changes, error);
  if (w->network == NULL)
    return FALSE;
  for (int side = 0; side < sides; side++) {
    w->inputs[side].network.text = w->network;
    w->inputs[side].network.length = strlen(w->network);
    if (!scale_plan(w, side, changes, error))
      return FALSE;
  }
  return TRUE;
}

/* A failure is of one plan, and says where it goes on. */
static gboolean
check_failure(Work *w, GError **error)
{
  VerificationRequest *request = &w->request;
  const PlanSpec *plan = w->plan->scenario->plan, *other = NULL;
  if (w->other != NULL)
    other = w->other->scenario->plan;
  if (plan->failure.given && request->restart_after > 0)
    return plan_spec_refuse(plan, error, "failure",
                            "says itself where it goes on (last_save): no --restart-after");
  if (other != NULL && other->failure.given)
    return plan_spec_refuse(other, error, "failure",
                            "of two plans only the first can fail (--set-a says it of that alone)");
  if (!plan->failure.given) {
    if (request->restart_after == RESTART_ANYWHERE)
      request->restart_after = request->steps / 2;
    return TRUE;
  }
  if (other != NULL && request->restart_after == 0)
    return plan_spec_refuse(plan, error, "failure", "plans that are compared do not fail");
  if (plan->failure.step > request->steps)
    return plan_spec_refuse(plan, error, "failure.at", "step %d is beyond the %d steps of this run",
                            plan->failure.step, request->steps);
  request->steps = verified_failure_steps(plan, request->steps);
  return TRUE;
}

static gboolean
read_plans(Work *w, GString *changes, GError **error)
{
  const VerificationRequest *request = &w->request;
  w->inputs[0] = request->inputs;
  if (request->other != NULL)
    w->inputs[1] = *request->other;
  if (!scale(w, request->other != NULL ? 2 : 1, changes, error))
    return FALSE;
  w->plan = verified_plan_new(&w->inputs[0], error);
  if (w->plan != NULL && request->other != NULL)
    w->other = verified_plan_new(&w->inputs[1], error);
  return w->plan != NULL && (request->other == NULL || w->other != NULL) &&
         check_failure(w, error) &&
         (w->other == NULL || verified_plans_compare(w->plan, w->other, error));
}

static gboolean
prepare(Work *w, GString *changes, GError **error)
{
  const VerificationRequest *request = &w->request;
  if (!read_plans(w, changes, error) || !verified_plan_lower(w->plan, request->steps, error) ||
      (w->other != NULL && !verified_plan_lower(w->other, request->steps, error)))
    return FALSE;
  w->unsharded = verified_plan_reference(&w->inputs[0], w->plan, request->steps, error);
  for (int rank = 0; w->unsharded != NULL && request->change != NULL && rank < w->plan->ranks;
       rank++)
    request->change(((Lowered *) g_ptr_array_index(w->plan->lowered, (guint) rank))->program, rank,
                    request->how);
  return w->unsharded != NULL;
}

/* ---- runs ---- */

static gboolean
fails(const Work *w)
{
  return w->plan->scenario->plan->failure.given;
}

static gboolean
goes_on(const Work *w)
{
  return fails(w) || w->request.restart_after > 0;
}

static VerifiedRun
run_of(const Work *w, int order)
{
  const VerificationRequest *request = &w->request;
  return (VerifiedRun){.steps = request->steps,
                       .seed = request->seed,
                       .order = (guint64) (order == 0 ? 0 : order + request->skipped),
                       .rounds = request->rounds,
                       .starts_rounded = request->rounds,
                       .starts_as = w->plan->scenario->plan->precision.parameters};
}

static gboolean
run_whole(const Work *w, const VerifiedJudgement *judgement, int order, VerificationReport *report,
          GError **error)
{
  const VerifiedRun run = run_of(w, order);
  g_autoptr(VerifiedState) state = verified_run(verified_judgement_plan(judgement), &run, error);
  if (state == NULL)
    return FALSE;
  verified_judge(judgement, state, report);
  verified_keep_peaks(state, order, report->peaks);
  return TRUE;
}

/* Some steps under one plan, whose state is saved, and the others under the other plan. */
static gboolean
run_restarted(const Work *w, const VerifiedJudgement *judgement, int order,
              VerificationReport *report, GError **error)
{
  const VerificationRequest *request = &w->request;
  const StateReading reading = {-1, request->change_reads, request->how};
  VerifiedRun first = run_of(w, order), second = first;
  first.steps = first.save_after = second.before = request->restart_after;
  g_autoptr(VerifiedState) saved = verified_run(w->plan, &first, error);
  if (saved == NULL)
    return FALSE;
  verified_judge(judgement, saved, report);
  if (request->change_state != NULL)
    request->change_state(saved->saved, request->how);
  g_autoptr(RestoredState) start = restored_state_new(w->other, saved->saved, &reading);
  second.start = start;
  g_autoptr(VerifiedState) state = verified_run(w->other, &second, error);
  if (state == NULL)
    return FALSE;
  verified_judge_rest(judgement, start, state, report);
  verified_keep_peaks(saved, order, report->peaks);
  verified_keep_peaks(state, order, report->restart.peaks);
  return TRUE;
}

/* The plan fails, and goes on under the other one if there is one. */
static gboolean
run_failing(const Work *w, const VerifiedJudgement *judgement, int order,
            VerificationReport *report, GError **error)
{
  const FailureRequest request = {.request = &w->request,
                                  .plan = w->plan,
                                  .goes_on = w->other != NULL ? w->other : w->plan,
                                  .judgement = judgement,
                                  .run = run_of(w, order)};
  return verified_failure(&request, order, report, error);
}

static gboolean
run_once(const Work *w, const VerifiedJudgement *judgement, int order, VerificationReport *report,
         GError **error)
{
  if (fails(w))
    return run_failing(w, judgement, order, report, error);
  if (w->request.restart_after > 0)
    return run_restarted(w, judgement, order, report, error);
  return run_whole(w, judgement, order, report, error);
}

/* What the first plan, or the second one that is compared with it, must come to. */
static VerifiedJudgement *
judgement_of(const Work *w, const VerifiedPlan *plan, GError **error)
{
  gboolean is_second = plan == w->other;
  JudgedRuns runs = {.request = &w->request,
                     .reference = w->reference,
                     .plan = plan,
                     .inputs = &w->inputs[is_second],
                     .after = w->request.restart_after,
                     .fails = fails(w),
                     .run = run_of(w, 0)};
  if (goes_on(w)) {
    runs.goes_on = w->other != NULL ? w->other : w->plan;
    runs.goes_on_inputs = &w->inputs[w->other != NULL];
  }
  if (runs.fails && !verified_failure_after(plan, &runs.after, error))
    return NULL;
  return verified_judgement_new(&runs, error);
}

static gboolean
run_orders(const Work *w, const VerifiedPlan *plan, VerificationReport *report, GError **error)
{
  g_autoptr(VerifiedJudgement) judgement = judgement_of(w, plan, error);
  if (judgement == NULL)
    return FALSE;
  report->restart.in_bits = verified_judgement_is_of_bits(judgement);
  for (int i = 0; i <= w->request.orders && report->fault == NULL; i++) {
    if (!run_once(w, judgement, i, report, error))
      return FALSE;
    if (report->fault != NULL && i > 0) {
      char *in_order = g_strdup_printf("in order %d, %s", i + w->request.skipped, report->fault);
      g_free(report->fault);
      report->fault = in_order;
    }
  }
  return TRUE;
}

/* ---- two plans ---- */

double
verification_losses_apart(double a, double b)
{
  double difference = a == b ? 0 : fabs(a - b) / fabs(a); /* both may be zero */
  return isfinite(difference) ? difference : INFINITY;
}

/* Their losses, beside each other. */
static void
compare_losses(VerificationReport *report)
{
  for (guint i = 0; i < report->steps->len; i++) {
    double a = g_array_index(report->steps, VerifiedStep, i).loss;
    double b = g_array_index(report->other->steps, VerifiedStep, i).loss;
    report->loss_difference = MAX(report->loss_difference, verification_losses_apart(a, b));
  }
}

static gboolean
run_other(const Work *w, const char *scaled, VerificationReport *report, GError **error)
{
  report->other = g_new0(VerificationReport, 1);
  verification_report_begin(report->other, &w->request, w->other, scaled);
  if (!run_orders(w, w->other, report->other, error))
    return FALSE;
  compare_losses(report);
  return TRUE;
}

/* ---- all ---- */

static void
note_restart(const Work *w, VerificationReport *report)
{
  const VerifiedPlan *other = w->other != NULL ? w->other : w->plan;
  report->restart = (VerifiedRestart){.after = w->request.restart_after,
                                      .strategy = g_strdup(other->scenario->plan->strategy),
                                      .ranks = other->ranks,
                                      .micro_batches = other->scenario->plan->accumulation.steps,
                                      .peaks = g_new0(gint64, other->ranks)};
}

/* With what is not a number in the unsharded run itself nothing can be equal: a loss over no
 * labels, say, which is 0 / 0. */
static gboolean
check_reference(const VerifiedState *reference, GError **error)
{
  for (int step = 1; step <= reference->run.steps; step++) {
    double loss = reference->losses[step], norm = verified_state_norm(reference, step);
    const char *why = reference->first_unknown;
    if (isfinite(loss) && isfinite(norm))
      continue;
    g_set_error(error, HIGHWATER_ERROR, HIGHWATER_ERROR_INPUT,
                "the unsharded run's %s of step %d is no number, so nothing can equal it%s%s",
                isfinite(loss) ? "gradient norm" : "loss", step, why != NULL ? ": " : "",
                why != NULL ? why : "");
    return FALSE;
  }
  return TRUE;
}

static gboolean
verify_all(Work *w, VerificationReport *report, GError **error)
{
  g_autoptr(GString) changes = g_string_new(NULL);
  if (!prepare(w, changes, error))
    return FALSE;
  verification_report_begin(report, &w->request, w->plan, changes->str);
  if (goes_on(w))
    note_restart(w, report);
  VerifiedRun run = run_of(w, 0);
  run.rounds = FALSE;
  w->reference = verified_run(w->unsharded, &run, error);
  return w->reference != NULL && check_reference(w->reference, error) &&
         run_orders(w, w->plan, report, error) &&
         (w->other == NULL || goes_on(w) || run_other(w, changes->str, report, error));
}

gboolean
verify(const VerificationRequest *request, VerificationReport *report, GError **error)
{
  Work work = {.request = *request};
  *report = (VerificationReport){0};
  gboolean ok = verify_all(&work, report, error);
  work_clear(&work);
  return ok;
}
