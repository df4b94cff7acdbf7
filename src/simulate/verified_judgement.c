/* verified_judgement.c - runs beside those that say what they must come to. */
#include "simulate/verified_judgement.h"

#include <math.h>

#include "simulate/verified_comparison.h"
#include "simulate/verified_rounding.h"

struct _VerifiedJudgement {
  JudgedRuns runs;
  gboolean is_same;             /* the plan that goes on is the first one */
  VerifiedState *uninterrupted; /* of the plan in its dtypes; NULL: nothing goes on, or in fp64 */
  VerifiedState *resumed;       /* the same from the consistent state; NULL: no failure */
  VerifiedRounding *rounding;   /* of the plan; NULL: in fp64 */
  VerifiedRounding *rest;       /* of what goes on; NULL: nothing does */
  VerifiedRounding *again;      /* of the plan resumed, where another one goes on */
  RestoredState *start;         /* that it is resumed from; NULL: first values */
};

void
verified_judgement_free(VerifiedJudgement *j)
{
  if (j == NULL)
    return;
  verified_rounding_free(j->again);
  verified_rounding_free(j->rest);
  verified_rounding_free(j->rounding);
  verified_state_free(j->resumed);
  verified_state_free(j->uninterrupted);
  restored_state_free(j->start);
  g_free(j);
}

const VerifiedPlan *
verified_judgement_plan(const VerifiedJudgement *j)
{
  return j->runs.plan;
}

gboolean
verified_judgement_is_of_bits(const VerifiedJudgement *j)
{
  return j->is_same && j->uninterrupted != NULL;
}

/* ---- what is compared with ---- */

/* What the run that nothing interrupts has where another one goes on; NULL: first values. */
static const StateImage *
consistent(const VerifiedJudgement *j)
{
  return j->runs.after > 0 ? j->uninterrupted->saved : NULL;
}

static VerifiedRounding *
rounding_of_rest(const VerifiedJudgement *j, const ScenarioInputs *inputs, const VerifiedPlan *plan,
                 GError **error)
{
  VerifiedRun run = j->runs.run;
  run.before = j->runs.after;
  return verified_rounding_new(inputs, plan, &run, consistent(j), error);
}

/* The plan that fails, as a new process goes on with it. */
static gboolean
resume(VerifiedJudgement *j, GError **error)
{
  VerifiedRun run = j->runs.run;
  run.before = j->runs.after;
  if (consistent(j) != NULL)
    j->start = restored_state_new(j->runs.plan, consistent(j), &(StateReading){.lost = -1});
  run.start = j->start;
  j->resumed = verified_run(j->runs.plan, &run, error);
  if (j->resumed != NULL && !j->is_same)
    j->again = rounding_of_rest(j, j->runs.inputs, j->runs.plan, error);
  return j->resumed != NULL && (j->is_same || j->again != NULL);
}

static gboolean
run_rest(VerifiedJudgement *j, VerifiedRun run, GError **error)
{
  run.save_after = j->runs.after;
  j->uninterrupted = verified_run(j->runs.plan, &run, error);
  if (j->uninterrupted == NULL)
    return FALSE;
  j->rest = rounding_of_rest(j, j->runs.goes_on_inputs, j->runs.goes_on, error);
  return j->rest != NULL && (!j->runs.fails || resume(j, error));
}

/* As many steps of the plan as something is compared with. */
static gboolean
run_all(VerifiedJudgement *j, GError **error)
{
  VerifiedRun run = j->runs.run;
  gboolean goes_on = j->runs.goes_on != NULL;
  if (goes_on &&
      !verified_plans_are_same(j->runs.inputs, j->runs.goes_on_inputs, &j->is_same, error))
    return FALSE;
  if (goes_on && !j->is_same && !j->runs.fails)
    run.steps = j->runs.after;
  j->rounding = verified_rounding_new(j->runs.inputs, j->runs.plan, &run, NULL, error);
  return j->rounding != NULL && (!goes_on || run_rest(j, run, error));
}

VerifiedJudgement *
verified_judgement_new(const JudgedRuns *runs, GError **error)
{
  g_autoptr(VerifiedJudgement) j = g_new0(VerifiedJudgement, 1);
  j->runs = *runs;
  return !runs->request->rounds || run_all(j, error) ? g_steal_pointer(&j) : NULL;
}

/* ---- what goes on ---- */

/* The part in which an element is, of the rank that has updated it last; NULL: nobody has it. */
static const StatePart *
part_of_any(const StateImage *image, int parameter, gint64 element)
{
  const StatePart *last = NULL;
  for (int rank = 0; rank < (int) image->parts->len; rank++) {
    const StatePart *part = state_image_part(image, rank, parameter, element);
    if (part != NULL && (last == NULL || part->written > last->written))
      last = part;
  }
  return last;
}

/* What a rank reads of one range, beside what was there. */
static void
compare_part(const VerifiedJudgement *j, int rank, const StatePart *part,
             VerificationReport *report)
{
  static const char *const kinds[IMAGE_KINDS] = {"value", "first state", "second state"};
  const StateRange *range = &part->range;
  const StatePart *from = NULL;
  for (gint64 i = 0; i < range->elements && report->fault == NULL; i++) {
    gint64 element = range->first + i;
    if (from == NULL || !state_range_has(&from->range, range->parameter, element))
      from = part_of_any(consistent(j), range->parameter, element);
    for (int k = 0; from != NULL && k < IMAGE_KINDS; k++) {
      double there = from->values[k][element - from->range.first];
      if (!verified_same_bits(part->values[k][i], there))
        verified_fault(report, NULL,
                       "rank %d goes on with another %s of %s than step %d left, first in element "
                       "%" G_GINT64_FORMAT ": %.9g, not %.9g",
                       rank, kinds[k],
                       g_array_index(report->parameters, VerifiedParameter, range->parameter).name,
                       j->runs.after, element, part->values[k][i], there);
    }
  }
}

static void
compare_start(const VerifiedJudgement *j, const StateImage *held, VerificationReport *report)
{
  if (held->updates != consistent(j)->updates)
    verified_fault(report, NULL, "the optimizer goes on counting from %d steps, and has made %d",
                   held->updates, consistent(j)->updates);
  for (int rank = 0; rank < (int) held->parts->len; rank++) {
    const GArray *parts = g_ptr_array_index(held->parts, (guint) rank);
    for (guint i = 0; i < parts->len && report->fault == NULL; i++)
      compare_part(j, rank, &g_array_index(parts, StatePart, i), report);
  }
}

/* ---- runs ---- */

void
verified_judge(const VerifiedJudgement *j, const VerifiedState *state, VerificationReport *report)
{
  if (j->rounding != NULL)
    verified_rounding_compare(j->rounding, state, report);
  verified_compare(report, state, j->runs.reference);
}

void
verified_judge_rest(const VerifiedJudgement *j, const RestoredState *start,
                    const VerifiedState *state, VerificationReport *report)
{
  if (j->uninterrupted != NULL && start != NULL)
    compare_start(j, start->held, report);
  if (j->rounding != NULL)
    verified_rounding_compare(j->rest, state, report);
  if (report->restart.in_bits)
    report->restart.in_bits = verified_compare_bits(report, state, j->uninterrupted);
  verified_compare(report, state, j->runs.reference);
}

/* ---- invalid states ---- */

static gboolean
is_other_loss(const VerifiedJudgement *j, double loss, double right)
{
  return !(fabs(loss - right) <= j->runs.request->tolerance * fabs(right));
}

/* Up to the first step whose gradients are others both have the same parameters or another loss;
 * if rounding explains those gradients, it may explain whatever follows. */
static gboolean
is_explained(const VerifiedJudgement *j, const VerifiedState *state, const VerifiedState *right,
             int step, VerifiedTrial *trial)
{
  const VerifiedRounding *rounding = right == j->uninterrupted ? j->rounding
                                     : j->is_same              ? j->rest
                                                               : j->again;
  if (trial->gradient != NULL)
    return FALSE;
  trial->gradient = g_strdup(verified_rounding_unexplained(rounding, state, step));
  trial->gradient_step = step;
  return trial->gradient == NULL && !verified_same_gradients(state, right, step);
}

/* What was interrupted in the middle of a run is compared with the whole one, what a new process
 * goes on with with what it should. */
void
verified_judge_trial(const VerifiedJudgement *j, const VerifiedState *state, VerifiedTrial *trial)
{
  const VerifiedState *right = j->rounding == NULL               ? j->runs.reference
                               : state->run.interruption != NULL ? j->uninterrupted
                                                                 : j->resumed;
  gboolean explained = FALSE;
  for (int step = state->run.before + 1; step <= state->run.steps && !explained; step++) {
    double loss = state->losses[step] / state->plan->ranks;
    double expected = right->losses[step] / right->plan->ranks;
    if (is_other_loss(j, loss, expected)) {
      trial->step = step;
      trial->loss = loss;
      trial->right_loss = expected;
      return;
    }
    explained = j->rounding != NULL && is_explained(j, state, right, step, trial);
  }
}
