/* verified_rounding.c - ranks alone, the mean of their gradients, and how far from it a sum in
 * another order may be. */
#include "simulate/verified_rounding.h"

#include <math.h>
#include <string.h>

#include "base/units.h"
#include "simulate/verified_comparison.h"

/* Ranks compute the same losses, and their mean is taken exactly. */
#define LOSSES_DIFFER 1e-9

/* Of a parameter in a step: the mean of all ranks' gradients, and of their absolute values, those
 * of micro-batches one by one. */
typedef struct {
  double *mean, *size;
} Addends;

struct _VerifiedRounding {
  const VerifiedPlan *plan;
  VerifiedRun run;
  const StateImage *from; /* what it begins with; NULL: first values */
  RestoredState *start;   /* the same as the plan's ranks hold it */
  VerifiedPlan *alone;    /* on one rank */
  VerifiedPlan *single;   /* and with one micro-batch; NULL: it has one */
  double roundoff;        /* of the widest rounding between them and the optimizer */
  double roundings;       /* how many there are at most */
  Addends *addends;       /* by step and parameter */
  double *losses;         /* by step */
};

static guint
parameters_of(const VerifiedRounding *r)
{
  return r->plan->scenario->network->parameters->len;
}

static gint64
elements_of(const VerifiedRounding *r, guint parameter)
{
  return network_parameter(r->plan->scenario->network, (int) parameter)->elements;
}

static Addends *
addends_at(const VerifiedRounding *r, int step, guint parameter)
{
  return &r->addends[(guint) (step - 1) * parameters_of(r) + parameter];
}

void
verified_rounding_free(VerifiedRounding *r)
{
  if (r == NULL)
    return;
  for (guint i = 0; r->addends != NULL && i < (guint) r->run.steps * parameters_of(r); i++) {
    g_free(r->addends[i].mean);
    g_free(r->addends[i].size);
  }
  g_free(r->addends);
  g_free(r->losses);
  restored_state_free(r->start);
  verified_plan_free(r->alone);
  verified_plan_free(r->single);
  g_free(r);
}

/* ---- how much is rounded ---- */

static gboolean
reduces(const Program *program, const ProgramOp *op)
{
  if (op->kind != PROGRAM_COLLECTIVE)
    return FALSE;
  guint8 kind = g_array_index(program->collectives, Collective, op->a).kind;
  return kind == COLLECTIVE_ALL_REDUCE || kind == COLLECTIVE_REDUCE_SCATTER;
}

/* The largest of the parameters' dtype, of that in which gradients are kept, which may be another
 * (DeepSpeed's grad_accum_dtype), and of those that reductions add up in. */
static double
largest_roundoff(const VerifiedPlan *plan)
{
  double largest = numeric_roundoff(plan->scenario->plan->precision.parameters);
  const Program *program = plan->programs[0];
  for (guint i = 0; i < program->tensors->len; i++) {
    const Tensor *tensor = &g_array_index(program->tensors, Tensor, i);
    const Storage *storage = &g_array_index(program->storages, Storage, tensor->storage);
    const Layout *layout = &g_array_index(program->layouts, Layout, tensor->layout);
    if (storage->category == CATEGORY_SHARDED_GRADIENT)
      largest = MAX(largest, numeric_roundoff((DType) layout->dtype));
  }
  for (guint l = 1; l < program->lists->len; l++) {
    const OpList *list = g_ptr_array_index(program->lists, l);
    for (guint i = 0; i < list->ops->len; i++) {
      const ProgramOp *op = &g_array_index(list->ops, ProgramOp, i);
      for (int k = 0; reduces(program, op) && k < op->operands; k++) {
        gint32 layout = program_operand_tensor(program, op, k)->layout;
        DType dtype = (DType) g_array_index(program->layouts, Layout, layout).dtype;
        largest = MAX(largest, numeric_roundoff(dtype));
      }
    }
  }
  return largest;
}

/* N - 1 additions over ranks, twice m - 1 over micro-batches, a divisor and a cast on each side of
 * a reduction and of a second one, the factor of clipping. */
static double
count_roundings(const VerifiedPlan *plan)
{
  return plan->ranks + 2 * plan->scenario->plan->accumulation.steps + 2;
}

/* ---- runs ---- */

static gboolean
add_run(VerifiedRounding *r, const VerifiedPlan *plan, VerifiedRun run, double share,
        GError **error)
{
  g_autoptr(VerifiedState) state = verified_run(plan, &run, error);
  gboolean sizes = plan == r->single || r->single == NULL;
  if (state == NULL)
    return FALSE;
  if (plan == r->alone)
    r->losses[run.steps] += state->losses[run.steps] * share;
  for (guint i = 0; i < parameters_of(r); i++) {
    const double *gradient =
        verified_state_tensor(state, run.steps, (int) i)->values[COMPARED_GRADIENT];
    Addends *a = addends_at(r, run.steps, i);
    if (gradient == NULL)
      continue;
    if (a->mean == NULL) {
      a->mean = g_new0(double, MAX(elements_of(r, i), 1));
      a->size = g_new0(double, MAX(elements_of(r, i), 1));
    }
    for (gint64 k = 0; k < elements_of(r, i); k++) {
      a->mean[k] += plan == r->alone ? gradient[k] * share : 0;
      a->size[k] += sizes ? fabs(gradient[k]) * share : 0;
    }
  }
  return TRUE;
}

/* Nothing can equal what is no number.  FALSE and error. */
static gboolean
check_known(const VerifiedRounding *r, int step, GError **error)
{
  const char *what = isfinite(r->losses[step]) ? NULL : "the loss";
  for (guint i = 0; what == NULL && i < parameters_of(r); i++) {
    const double *mean = addends_at(r, step, i)->mean;
    for (gint64 k = 0; mean != NULL && k < elements_of(r, i) && what == NULL; k++)
      if (!isfinite(mean[k]))
        what = network_parameter(r->plan->scenario->network, (int) i)->name;
  }
  if (what != NULL)
    g_set_error(error, HIGHWATER_ERROR, HIGHWATER_ERROR_INPUT,
                "%s: in the plan's dtypes %s%s of step %d overflows on ranks alone, so nothing can "
                "equal it",
                r->plan->scenario->plan->file, isfinite(r->losses[step]) ? "the gradient of " : "",
                what, step);
  return what == NULL;
}

/* All ranks alone in a step, and all their micro-batches. */
static gboolean
run_ranks(VerifiedRounding *r, int step, const RestoredState *start, GError **error)
{
  const PlanSpec *plan = r->plan->scenario->plan;
  int ranks = r->plan->ranks, batches = plan->accumulation.steps;
  VerifiedRun run = r->run;
  run.steps = step;
  run.before = step - 1;
  run.start = start;
  run.order = 0;
  for (int i = 0; i < ranks * batches; i++) {
    run.samples_before = (gint64) i * plan->micro_batch;
    if (i % batches == 0 && !add_run(r, r->alone, run, 1.0 / ranks, error))
      return FALSE;
    if (r->single != NULL && !add_run(r, r->single, run, 1.0 / (ranks * batches), error))
      return FALSE;
  }
  return check_known(r, step, error);
}

static RestoredState *
read_by(const VerifiedPlan *plan, const StateImage *image)
{
  return restored_state_new(plan, image, &(StateReading){.lost = -1});
}

/* What the plan has after so many steps, more than it begins with, as one rank holds it. */
static RestoredState *
state_after(const VerifiedRounding *r, int steps, GError **error)
{
  VerifiedRun run = r->run;
  run.steps = steps;
  run.order = 0;
  g_autoptr(VerifiedState) state = verified_run(r->plan, &run, error);
  return state != NULL ? read_by(r->alone, state->held) : NULL;
}

static gboolean
run_steps(VerifiedRounding *r, GError **error)
{
  int before = r->run.before;
  g_autoptr(RestoredState) first = r->from != NULL ? read_by(r->alone, r->from) : NULL;
  gboolean ok = run_ranks(r, before + 1, first, error);
  for (int step = before + 2; ok && step <= r->run.steps; step++) {
    g_autoptr(RestoredState) start = state_after(r, step - 1, error);
    ok = start != NULL && run_ranks(r, step, start, error);
  }
  return ok;
}

VerifiedRounding *
verified_rounding_new(const ScenarioInputs *inputs, const VerifiedPlan *plan,
                      const VerifiedRun *run, const StateImage *from, GError **error)
{
  g_autoptr(VerifiedRounding) r = g_new0(VerifiedRounding, 1);
  int batches = plan->scenario->plan->accumulation.steps;
  r->plan = plan;
  r->from = from;
  r->run = *run;
  r->run.start = r->start = from != NULL ? read_by(plan, from) : NULL;
  r->roundoff = largest_roundoff(plan);
  r->roundings = count_roundings(plan);
  r->losses = g_new0(double, run->steps + 1);
  r->addends = g_new0(Addends, MAX((guint) run->steps * parameters_of(r), 1));
  r->alone = verified_plan_alone(inputs, plan, batches, error);
  if (r->alone != NULL && batches > 1)
    r->single = verified_plan_alone(inputs, plan, 1, error);
  if (r->alone == NULL || (batches > 1 && r->single == NULL) || !run_steps(r, error))
    return NULL;
  return g_steal_pointer(&r);
}

/* ---- comparison ---- */

/* Roundings of numbers that add up to one of this size are so far from it at most (Higham, Accuracy
 * and Stability, 4.2); tiny ones are rounded to multiples of the smallest. */
static double
bound_of(const VerifiedRounding *r, double size)
{
  const double smallest = 0x1p-24; /* of fp16 */
  double nu = r->roundings * r->roundoff;
  gboolean half = r->roundoff == numeric_roundoff(DTYPE_FP16);
  return nu / (1 - MIN(nu, 0.5)) * size + (half ? r->roundings * smallest : 1e-37);
}

/* What all gradients are multiplied by, and by how much of itself it may differ. */
typedef struct {
  double norm, norm_differs, factor, differs;
} Clipping;

static Clipping
clipping_of(const VerifiedRounding *r, int step)
{
  const double most = r->plan->scenario->plan->optimizer.clip_grad_norm;
  Clipping c = {.factor = 1};
  double squares = 0, bounds = 0;
  for (guint i = 0; i < parameters_of(r); i++) {
    const Addends *a = addends_at(r, step, i);
    for (gint64 k = 0; a->mean != NULL && k < elements_of(r, i); k++) {
      double bound = bound_of(r, a->size[k]);
      squares += a->mean[k] * a->mean[k];
      bounds += bound * bound;
    }
  }
  /* a norm of norms, a sum, a quotient */
  c.norm = sqrt(squares);
  c.norm_differs = sqrt(bounds) + 4 * r->roundoff * c.norm;
  if (most > 0 && most < c.norm + c.norm_differs + 1e-6) {
    c.factor = MIN(1, most / (c.norm + 1e-6));
    c.differs = c.norm_differs / c.norm + 2 * r->roundoff;
  }
  return c;
}

/* A gradient in a step beside its mean. */
typedef struct {
  double largest;       /* element of the mean */
  double most, allowed; /* difference, and bound */
  double used;
  VerifiedElement beyond; /* the first one */
  gboolean is_beyond;
} Gradient;

static Gradient
gradient_of(const VerifiedRounding *r, const VerifiedState *state, int step, guint i,
            const Clipping *clipping)
{
  const double *read = verified_state_tensor(state, step, (int) i)->values[COMPARED_GRADIENT];
  const Addends *a = addends_at(r, step, i);
  Gradient g = {.largest = 1e-300};
  if (read == NULL || a->mean == NULL)
    return g;
  for (gint64 k = 0; k < elements_of(r, i); k++) {
    double made = read[k], mean = clipping->factor * a->mean[k], bound = bound_of(r, a->size[k]);
    bound = clipping->factor * (bound + clipping->differs * (fabs(a->mean[k]) + bound));
    double difference = isfinite(made) ? fabs(made - mean) : INFINITY;
    g.largest = MAX(g.largest, fabs(mean));
    g.most = MAX(g.most, difference);
    g.allowed = MAX(g.allowed, bound);
    g.used = MAX(g.used, difference / bound);
    if (difference <= bound || g.is_beyond)
      continue;
    g.is_beyond = TRUE;
    g.beyond = (VerifiedElement){.step = step,
                                 .parameter = (int) i,
                                 .element = k,
                                 .made = made,
                                 .expected = mean,
                                 .allowed = bound};
  }
  return g;
}

static void
compare_gradient(const VerifiedState *state, int step, const Gradient *g,
                 VerificationReport *report)
{
  RoundingDifference *rounding = &g_array_index(report->steps, VerifiedStep, step - 1).rounding;
  rounding->used = MAX(rounding->used, g->used);
  rounding->difference = MAX(rounding->difference, g->most / g->largest);
  rounding->bound = MAX(rounding->bound, g->allowed / g->largest);
  if (g->is_beyond)
    verified_fault_of_element(report, state,
                              verified_state_tensor(state, step, g->beyond.parameter), &g->beyond);
}

static void
compare_step(const VerifiedRounding *r, const VerifiedState *state, int step,
             VerificationReport *report)
{
  const Clipping clipping = clipping_of(r, step);
  VerifiedStep *s = &g_array_index(report->steps, VerifiedStep, step - 1);
  double loss = state->losses[step] / state->plan->ranks;
  s->rounding.loss = r->losses[step];
  if (!(fabs(loss - r->losses[step]) <= LOSSES_DIFFER * fabs(loss)))
    verified_fault(report, state, "step %d: the loss is %.12g, of the ranks alone %.12g", step,
                   loss, r->losses[step]);
  if (r->plan->scenario->plan->optimizer.clip_grad_norm > 0 && state->norms[step] != 0 &&
      !(fabs(state->norms[step] - clipping.norm) <= clipping.norm_differs))
    verified_fault(report, state,
                   "step %d: the norm of all gradients is %.9g, of the ranks alone %.9g, and "
                   "rounding explains %.2g",
                   step, state->norms[step], clipping.norm, clipping.norm_differs);
  for (guint i = 0; i < parameters_of(r); i++) {
    const Gradient gradient = gradient_of(r, state, step, i, &clipping);
    compare_gradient(state, step, &gradient, report);
  }
}

void
verified_rounding_compare(const VerifiedRounding *r, const VerifiedState *state,
                          VerificationReport *report)
{
  int before = MAX(r->run.before, state->run.before);
  for (int step = before + 1; step <= MIN(r->run.steps, state->run.steps); step++)
    compare_step(r, state, step, report);
}

const char *
verified_rounding_unexplained(const VerifiedRounding *r, const VerifiedState *state, int step)
{
  const Clipping clipping = clipping_of(r, step);
  for (guint i = 0; i < parameters_of(r); i++)
    if (gradient_of(r, state, step, i, &clipping).is_beyond)
      return network_parameter(r->plan->scenario->network, (int) i)->name;
  return NULL;
}
