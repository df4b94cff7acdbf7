/* verified_state.c - whole parameters put together from what ranks update, and what each rank has.
 */
#include "simulate/verified_state.h"

#include <math.h>

#include "simulate/verified_start.h"

/* Replicas compute the same sums in the same order, but for their collectives. */
#define REPLICAS_DIFFER 1e-9

static guint
parameters_of(const VerifiedState *s)
{
  return s->plan->scenario->network->parameters->len;
}

int
verified_state_parameter(const VerifiedState *s, const char *name)
{
  return GPOINTER_TO_INT(g_hash_table_lookup(s->parameters, name)) - 1;
}

/* What the loss is multiplied by before backward. */
static double
loss_scale_of(const Scenario *scenario)
{
  const Strategy *strategy = scenario->strategy;
  if (scenario->plan->precision.grad_scaler)
    return network_loss_scale(DTYPE_FP16);
  if (strategy->loss == NULL || strategy->loss(scenario->plan) != LOSS_DIVIDED_AND_SCALED)
    return 1;
  return network_loss_scale(scenario->plan->precision.parameters);
}

VerifiedState *
verified_state_new(const VerifiedPlan *plan, const VerifiedRun *run)
{
  VerifiedState *s = g_new0(VerifiedState, 1);
  int steps = run->steps;
  s->plan = plan;
  s->run = *run;
  s->loss_scale = loss_scale_of(plan->scenario);
  s->parameters = g_hash_table_new(g_str_hash, g_str_equal);
  for (guint i = 0; i < parameters_of(s); i++)
    g_hash_table_insert(
        s->parameters,
        (gpointer) (gsize) network_parameter(s->plan->scenario->network, (int) i)->name,
        GUINT_TO_POINTER(i + 1));
  s->tensors = g_new0(VerifiedTensor, MAX((gsize) steps * parameters_of(s), 1));
  s->losses = g_new0(double, steps + 1);
  s->norms = g_new0(double, steps + 1);
  s->held = state_image_new(s->plan->layout, s->plan->ranks);
  verified_start_image(s, s->held);
  if (run->save_after > 0)
    s->saved = state_image_copy(s->held);
  return s;
}

void
verified_state_free(VerifiedState *s)
{
  if (s == NULL)
    return;
  for (guint i = 0; i < (guint) s->run.steps * parameters_of(s); i++) {
    for (int k = 0; k < COMPARED; k++)
      g_free(s->tensors[i].values[k]);
    for (int k = 0; s->tensors[i].written_by != NULL && k < s->plan->ranks; k++)
      g_free(s->tensors[i].written_by[k]);
    g_free(s->tensors[i].written_by);
    g_free(s->tensors[i].writers);
  }
  g_hash_table_unref(s->parameters);
  g_free(s->tensors);
  g_free(s->losses);
  g_free(s->norms);
  state_image_free(s->held);
  state_image_free(s->saved);
  g_free(s->peaks);
  g_free(s->first_unknown);
  g_free(s->fault);
  g_free(s);
}

VerifiedTensor *
verified_state_tensor(const VerifiedState *s, int step, int parameter)
{
  return &s->tensors[(guint) (step - 1) * parameters_of(s) + (guint) parameter];
}

double
verified_state_norm(const VerifiedState *s, int step)
{
  double sum = 0;
  if (s->norms[step] != 0)
    return s->norms[step];
  for (guint i = 0; i < parameters_of(s); i++) {
    const VerifiedTensor *t = verified_state_tensor(s, step, (int) i);
    gint64 n = network_parameter(s->plan->scenario->network, (int) i)->elements;
    for (gint64 k = 0; t->values[COMPARED_GRADIENT] != NULL && k < n; k++)
      sum += t->values[COMPARED_GRADIENT][k] * t->values[COMPARED_GRADIENT][k];
  }
  return sqrt(sum);
}

/* ---- results ---- */

static void
loss(gpointer user, int rank, int step, double value)
{
  VerifiedState *s = user;
  (void) rank;
  s->losses[step] += value / s->loss_scale;
}

/* All ranks take the same one; of different ones, none. */
static void
norm(gpointer user, int rank, int step, double value)
{
  VerifiedState *s = user;
  if (rank == 0 || fabs(value - s->norms[step]) <= REPLICAS_DIFFER * value)
    s->norms[step] = value;
  else
    s->norms[step] = NAN;
}

static void
fail(VerifiedState *s, const NumericUpdate *u, const char *what)
{
  if (s->fault == NULL)
    s->fault = g_strdup_printf("rank %d, step %d: %s %s", u->rank, u->step, u->parameter, what);
}

/* A value of an element that so many ranks have written already.  FALSE: replicas have others; then
 * it is no number. */
static gboolean
merge(double *held, int writers, double value)
{
  if (writers == 0) {
    *held = value;
    return TRUE;
  }
  if (fabs(value - *held) <= REPLICAS_DIFFER * fabs(*held))
    return TRUE;
  gboolean known = isfinite(value) && isfinite(*held);
  *held = NAN;
  return !known;
}

/* What the rank itself holds now; and what a checkpoint takes. */
static void
hold(VerifiedState *s, const NumericUpdate *u, StateRange range)
{
  const double *from[IMAGE_KINDS] = {
      [IMAGE_VALUE] = u->value, [IMAGE_FIRST] = u->state[0], [IMAGE_SECOND] = u->state[1]};
  gboolean is_saved = s->saved != NULL && u->step <= s->run.save_after;
  for (int k = 0; k < IMAGE_KINDS; k++) {
    if (from[k] == NULL)
      continue;
    state_image_write(s->held, u->rank, range, (ImageKind) k, from[k], u->step);
    if (is_saved)
      state_image_write(s->saved, u->rank, range, (ImageKind) k, from[k], u->step);
  }
  s->held->updates = MAX(s->held->updates, u->count);
  if (is_saved)
    s->saved->updates = MAX(s->saved->updates, u->count);
}

static void
take(VerifiedState *s, const NumericUpdate *u, StateRange range)
{
  VerifiedTensor *t = verified_state_tensor(s, u->step, range.parameter);
  gint64 n = network_parameter(s->plan->scenario->network, range.parameter)->elements;
  const double *from[COMPARED] = {[COMPARED_GRADIENT] = u->gradient,
                                  [COMPARED_VALUE] = u->value,
                                  [COMPARED_FIRST] = u->state[0],
                                  [COMPARED_SECOND] = u->state[1]};
  if (t->writers == NULL) {
    t->writers = g_new0(guint8, n);
    t->written_by = g_new0(char *, s->plan->ranks);
  }
  g_free(t->written_by[u->rank]);
  t->written_by[u->rank] = g_strdup(u->written_by);
  for (int k = 0; k < COMPARED; k++) {
    if (from[k] == NULL)
      continue;
    if (t->values[k] == NULL)
      t->values[k] = g_new0(double, n);
    for (gint64 i = 0; i < range.elements; i++)
      if (!merge(&t->values[k][range.first + i], t->writers[range.first + i], from[k][i]))
        fail(s, u,
             k == COMPARED_GRADIENT ? "has another gradient than its replica"
                                    : "has other values than its replica");
  }
  for (gint64 i = 0; i < range.elements; i++)
    t->writers[range.first + i]++;
}

static void
updated(gpointer user, const NumericUpdate *u)
{
  VerifiedState *s = user;
  StateRange range = {verified_state_parameter(s, u->parameter), u->first, u->elements};
  if (range.parameter < 0) {
    fail(s, u, "is no parameter of the network");
    return;
  }
  take(s, u, range);
  hold(s, u, range);
}

NumericHooks
verified_state_hooks(VerifiedState *s)
{
  NumericHooks hooks = {.user = s, .loss = loss, .norm = norm, .updated = updated};
  verified_start_hooks(&hooks);
  if (s->run.start == NULL)
    hooks.updating = NULL;
  return hooks;
}
