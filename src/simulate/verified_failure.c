/* verified_failure.c - a run that fails, one that goes on from what is consistent, and those that
 * go on from what is not. */
#include "simulate/verified_failure.h"

#include <math.h>

#include "base/units.h"
#include "report/failure.h"
#include "simulate/process_memory.h"
#include "simulate/run_failure.h"

/* What a trial works with. */
typedef struct {
  const FailureRequest *request;
  const Failure *failure;
  const StateImage *consistent; /* after failure->last_step */
  const StateImage *left;       /* what each rank has when all hang */
  VerificationReport *report;
} Work;

/* ---- the moment ---- */

int
verified_failure_steps(const PlanSpec *plan, int steps)
{
  return plan->failure.given ? MAX(steps, plan->failure.step + 2) : steps;
}

/* What the simulation says of it. */
static Failure *
simulate(const VerifiedPlan *plan, GError **error)
{
  const Scenario *s = plan->scenario;
  const FailureSpec *spec = &s->plan->failure;
  const Lowered *lowered = g_ptr_array_index(plan->lowered, (guint) spec->rank);
  ExecutorConfig config = {.cluster = s->cluster,
                           .allocator = allocator_config_default(),
                           .keeps_gradients = lowered->keeps_gradients,
                           .title = s->network->name};
  limit_memory(&config, lowered->program, 0);
  Failure *failure = NULL;
  g_autoptr(Recording) recording = run_failure(s, lowered, &config, &failure, error);
  if (recording != NULL && failure == NULL)
    g_set_error(error, HIGHWATER_ERROR, HIGHWATER_ERROR_INPUT,
                "%s: verify: memory runs out before rank %d fails", s->network->name, spec->rank);
  return failure;
}

static NumericInterruption
interruption(const Failure *failure, NumericInterruptionKind kind)
{
  NumericInterruption in = {kind, failure->spec.rank, failure->spec.step, {0}};
  for (int i = 0; i < STREAM_COUNT; i++)
    in.done[i] = failure->done[i];
  return in;
}

gboolean
verified_failure_after(const VerifiedPlan *plan, int *after, GError **error)
{
  g_autoptr(Failure) failure = simulate(plan, error);
  if (failure != NULL)
    *after = failure->last_step;
  return failure != NULL;
}

static VerifiedRun
run_from(const FailureRequest *request, int before, int steps)
{
  VerifiedRun run = request->run;
  run.before = before;
  run.steps = steps;
  run.order = 0;
  return run;
}

/* ---- invalid states ---- */

static void
add_trial(const Work *w, const char *what, const VerifiedState *state)
{
  VerifiedTrial trial = {.what = g_strdup(what)};
  verified_judge_trial(w->request->judgement, state, &trial);
  g_array_append_val(w->report->failure.trials, trial);
}

/* The whole run, but for what an interruption changes, if it changes anything. */
static gboolean
try_interruption(const Work *w, NumericInterruptionKind kind, const char *what, GError **error)
{
  const NumericInterruption in = interruption(w->failure, kind);
  VerifiedRun run = run_from(w->request, 0, w->request->request->steps);
  run.interruption = &in;
  g_autoptr(VerifiedState) state = verified_run(w->request->plan, &run, error);
  if (state == NULL)
    return FALSE;
  if (state->interrupted > 0)
    add_trial(w, what, state);
  return TRUE;
}

/* From a state on; forgets: what the failed rank does not get of it. */
static gboolean
try_state(const Work *w, const StateImage *image, int before, ForgottenState forgets,
          const char *what, GError **error)
{
  const StateReading reading = {-1, NULL, NULL};
  VerifiedRun run = run_from(w->request, before, w->request->request->steps);
  g_autoptr(RestoredState) start =
      image != NULL ? restored_state_new(w->request->plan, image, &reading) : NULL;
  run.start = start;
  run.forgets = forgets;
  g_autoptr(VerifiedState) state = verified_run(w->request->plan, &run, error);
  if (state == NULL)
    return FALSE;
  add_trial(w, what, state);
  return TRUE;
}

/* Does a part become another one, if only in one kind? */
static gboolean
take_kind(StatePart *to, const StatePart *from, int kind)
{
  gboolean differs = FALSE;
  for (gint64 i = 0; i < to->range.elements; i++) {
    differs |= to->values[kind][i] != from->values[kind][i] && !isnan(from->values[kind][i]);
    to->values[kind][i] = from->values[kind][i];
  }
  return differs;
}

/* States that nobody has made yet are those that an optimizer makes. */
static void
forget_unknown(StateImage *image)
{
  for (guint rank = 0; rank < image->parts->len; rank++) {
    const GArray *parts = g_ptr_array_index(image->parts, rank);
    for (guint i = 0; i < parts->len; i++) {
      StatePart *part = &g_array_index(parts, StatePart, i);
      for (int k = IMAGE_FIRST; k <= IMAGE_SECOND; k++)
        for (gint64 e = 0; e < part->range.elements; e++)
          if (isnan(part->values[k][e]))
            part->values[k][e] = 0;
    }
  }
}

/* The consistent state, with what the other ranks have of one kind; NULL: that is the same. */
static StateImage *
mix(const Work *w, ImageKind first, ImageKind last)
{
  g_autoptr(StateImage) image = state_image_copy(w->consistent);
  gboolean differs = FALSE;
  for (int rank = 0; rank < (int) image->parts->len; rank++) {
    const GArray *into = g_ptr_array_index(image->parts, (guint) rank);
    const GArray *from = g_ptr_array_index(w->left->parts, (guint) rank);
    for (guint i = 0; rank != w->failure->spec.rank && i < into->len; i++) {
      StatePart *to = &g_array_index(into, StatePart, i);
      const StatePart *left = &g_array_index(from, StatePart, i);
      to->written = left->written;
      for (int k = first; k <= (int) last; k++)
        differs |= take_kind(to, left, k);
    }
  }
  forget_unknown(image);
  return differs ? g_steal_pointer(&image) : NULL;
}

static gboolean
try_what_others_have(const Work *w, ImageKind first, ImageKind last, const char *what,
                     GError **error)
{
  g_autoptr(StateImage) image = mix(w, first, last);
  return image == NULL ||
         try_state(w, image, w->failure->last_step, (ForgottenState){0}, what, error);
}

/* Without the part that is gone; from the beginning there is none. */
static gboolean
try_without(const Work *w, HeldState held, const char *what, GError **error)
{
  const ForgottenState forgets = {.rank = w->failure->spec.rank,
                                  .values = held == HELD_PARAMETERS,
                                  .states = held == HELD_OPTIMIZER_STATE};
  if (w->failure->last_step == 0 || w->failure->held[held].lost_bytes == 0)
    return TRUE;
  return try_state(w, w->consistent, w->failure->last_step, forgets, what, error);
}

static gboolean
try_all(const Work *w, GError **error)
{
  const Failure *f = w->failure;
  int rank = f->spec.rank, step = f->spec.step;
  g_autofree char *gradients =
      g_strdup_printf("the gradients of step %d that were there stay, and are added to", step);
  g_autofree char *reductions =
      g_strdup_printf("the pending reductions of step %d are taken for done", step);
  g_autofree char *parameters = g_strdup_printf(
      "parameters as the other ranks have them, some newer than step %d", f->last_step);
  g_autofree char *states = g_strdup_printf(
      "optimizer states as the other ranks have them, some newer than step %d", f->last_step);
  g_autofree char *no_parameters =
      g_strdup_printf("rank %d's parameters as a new process makes them", rank);
  g_autofree char *no_states =
      g_strdup_printf("rank %d's optimizer states as a new process makes them", rank);
  g_autofree char *skipped = g_strdup_printf("step %d is not repeated", step);
  gboolean is_void = f->last_step < step; /* else all that the step has made counts */
  return (!is_void || (try_interruption(w, NUMERIC_GRADIENTS_STAY, gradients, error) &&
                       try_interruption(w, NUMERIC_REDUCTIONS_LOST, reductions, error))) &&
         try_what_others_have(w, IMAGE_VALUE, IMAGE_VALUE, parameters, error) &&
         try_what_others_have(w, IMAGE_FIRST, IMAGE_SECOND, states, error) &&
         try_without(w, HELD_PARAMETERS, no_parameters, error) &&
         try_without(w, HELD_OPTIMIZER_STATE, no_states, error) &&
         (!is_void || try_state(w, f->last_step > 0 ? w->consistent : NULL, step,
                                (ForgottenState){0}, skipped, error));
}

/* ---- the run ---- */

static void
note(VerificationReport *report, const Failure *failure)
{
  VerifiedFailure *f = &report->failure;
  verified_failure_clear(f);
  *f = (VerifiedFailure){.happened = TRUE,
                         .rank = failure->spec.rank,
                         .step = failure->spec.step,
                         .last_step = failure->last_step,
                         .from_others = failure->from_others,
                         .phase = failure_phase_name(failure->spec.phase),
                         .fraction = failure->spec.fraction,
                         .trials = g_array_new(FALSE, TRUE, sizeof(VerifiedTrial))};
}

void
verified_failure_clear(VerifiedFailure *f)
{
  for (guint i = 0; f->trials != NULL && i < f->trials->len; i++) {
    g_free(g_array_index(f->trials, VerifiedTrial, i).what);
    g_free(g_array_index(f->trials, VerifiedTrial, i).gradient);
  }
  g_clear_pointer(&f->trials, g_array_unref);
}

/* As far as all ranks come. */
static VerifiedState *
run_until_all_hang(const FailureRequest *request, const NumericInterruption *stop, GError **error)
{
  VerifiedRun run = run_from(request, 0, request->request->steps);
  run.interruption = stop;
  return verified_run(request->plan, &run, error);
}

/* Have the other ranks the step that the report says?  Nobody has begun the next one's update. */
static void
check_others(VerificationReport *report, const Failure *failure, const StateImage *left)
{
  for (int rank = 0; failure->others_agree && rank < (int) left->parts->len; rank++) {
    const GArray *parts = g_ptr_array_index(left->parts, (guint) rank);
    for (guint i = 0; rank != failure->spec.rank && i < parts->len; i++) {
      int written = g_array_index(parts, StatePart, i).written;
      if (written == 0 || written == failure->others_step || report->fault != NULL)
        continue;
      report->fault = g_strdup_printf(
          "rank %d has updated parameters in step %d when all hang, and the report of the failure "
          "says that it has the state of step %d",
          rank, written, failure->others_step);
    }
  }
}

/* The state to go on from, as the ranks of the plan that goes on hold it. */
static gboolean
go_on(const FailureRequest *request, const Failure *failure, const StateImage *consistent,
      int order, VerificationReport *report, GError **error)
{
  const StateReading reading = {failure->from_others ? failure->spec.rank : -1,
                                request->request->change_reads, request->request->how};
  VerifiedRun run = run_from(request, failure->last_step, request->request->steps);
  run.order = request->run.order;
  g_autoptr(RestoredState) start =
      failure->last_step > 0 ? restored_state_new(request->goes_on, consistent, &reading) : NULL;
  run.start = start;
  g_autoptr(VerifiedState) state = verified_run(request->goes_on, &run, error);
  if (state == NULL)
    return FALSE;
  verified_judge_rest(request->judgement, start, state, report);
  verified_keep_peaks(state, order, report->restart.peaks);
  return TRUE;
}

gboolean
verified_failure(const FailureRequest *request, int order, VerificationReport *report,
                 GError **error)
{
  g_autoptr(Failure) failure = simulate(request->plan, error);
  if (failure == NULL)
    return FALSE;
  if (order == 0)
    note(report, failure);
  const NumericInterruption stop = interruption(failure, NUMERIC_RANK_STOPS);
  VerifiedRun first = run_from(request, 0, failure->last_step);
  first.order = request->run.order;
  g_autoptr(VerifiedState) before = failure->last_step > 0
                                        ? verified_run(request->plan, &first, error)
                                        : verified_state_new(request->plan, &first);
  g_autoptr(VerifiedState) left = before != NULL ? run_until_all_hang(request, &stop, error) : NULL;
  if (left == NULL)
    return FALSE;
  verified_judge(request->judgement, before, report);
  check_others(report, failure, left->held);
  verified_keep_peaks(left, order, report->peaks);
  report->restart.after = failure->last_step;
  const StateImage *consistent = failure->from_others ? left->held : before->held;
  if (!go_on(request, failure, consistent, order, report, error))
    return FALSE;
  const Work work = {request, failure, before->held, left->held, report};
  return order > 0 || report->fault != NULL || try_all(&work, error);
}
