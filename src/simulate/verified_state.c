/* verified_state.c - whole parameters put together from what ranks update, and what each rank has.
 */
#include "simulate/verified_state.h"

#include <math.h>

#include "simulate/verified_ranges.h"

/* Replicas compute the same sums in the same order, but for their collectives. */
#define REPLICAS_DIFFER 1e-9

VerifiedState *
verified_state_new(const VerifiedPlan *plan, const VerifiedRun *run)
{
  VerifiedState *s = g_new0(VerifiedState, 1);
  int steps = run->steps;
  s->run = run;
  s->scenario = plan->scenario;
  s->layout = plan->layout;
  s->seed = run->seed;
  s->steps = steps;
  s->ranks = plan->ranks;
  s->parameters = g_hash_table_new(g_str_hash, g_str_equal);
  for (guint i = 0; i < verified_parameters(s); i++)
    g_hash_table_insert(s->parameters,
                        (gpointer) (gsize) network_parameter(s->scenario->network, (int) i)->name,
                        GUINT_TO_POINTER(i + 1));
  s->tensors = g_new0(VerifiedTensor, MAX((gsize) steps * verified_parameters(s), 1));
  s->losses = g_new0(double, steps + 1);
  s->norms = g_new0(double, steps + 1);
  s->pooled = g_new0(gint64, s->ranks * (steps + 1));
  s->prepared = g_new0(gint64, s->ranks);
  s->held = state_image_new(s->layout, s->ranks);
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
  for (guint i = 0; i < (guint) s->steps * verified_parameters(s); i++) {
    for (int k = 0; k < COMPARED; k++)
      g_free(s->tensors[i].values[k]);
    for (int k = 0; s->tensors[i].written_by != NULL && k < s->ranks; k++)
      g_free(s->tensors[i].written_by[k]);
    g_free(s->tensors[i].written_by);
    g_free(s->tensors[i].writers);
  }
  g_hash_table_unref(s->parameters);
  g_free(s->tensors);
  g_free(s->losses);
  g_free(s->norms);
  g_free(s->pooled);
  g_free(s->prepared);
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
  return &s->tensors[(guint) (step - 1) * verified_parameters(s) + (guint) parameter];
}

double
verified_state_norm(const VerifiedState *s, int step)
{
  double sum = 0;
  if (s->norms[step] != 0)
    return s->norms[step];
  for (guint i = 0; i < verified_parameters(s); i++) {
    const VerifiedTensor *t = verified_state_tensor(s, step, (int) i);
    gint64 n = network_parameter(s->scenario->network, (int) i)->elements;
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
  s->losses[step] += value;
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
    s->fault = g_strdup_printf("rank %d, step %d: %s %s", u->rank, u->step, u->name, what);
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
hold(VerifiedState *s, const NumericUpdate *u, StateRange range, gint64 at)
{
  const double *from[IMAGE_KINDS] = {
      [IMAGE_VALUE] = u->value, [IMAGE_FIRST] = u->state[0], [IMAGE_SECOND] = u->state[1]};
  gboolean is_saved = s->saved != NULL && u->step <= s->run->save_after;
  for (int k = 0; k < IMAGE_KINDS; k++) {
    if (from[k] == NULL)
      continue;
    state_image_write(s->held, u->rank, range, (ImageKind) k, from[k] + at, u->step);
    if (is_saved)
      state_image_write(s->saved, u->rank, range, (ImageKind) k, from[k] + at, u->step);
  }
  s->held->updates = MAX(s->held->updates, u->count);
  if (is_saved)
    s->saved->updates = MAX(s->saved->updates, u->count);
}

/* A range of a parameter from what was updated, from element `at` of it on. */
static void
take(VerifiedState *s, const NumericUpdate *u, StateRange range, gint64 at)
{
  VerifiedTensor *t = verified_state_tensor(s, u->step, range.parameter);
  gint64 n = network_parameter(s->scenario->network, range.parameter)->elements;
  const double *from[COMPARED] = {[COMPARED_GRADIENT] = u->gradient,
                                  [COMPARED_VALUE] = u->value,
                                  [COMPARED_FIRST] = u->state[0],
                                  [COMPARED_SECOND] = u->state[1]};
  if (t->writers == NULL) {
    t->writers = g_new0(guint8, n);
    t->written_by = g_new0(char *, s->ranks);
  }
  g_free(t->written_by[u->rank]);
  t->written_by[u->rank] = g_strdup(u->written_by);
  for (int k = 0; k < COMPARED; k++) {
    if (from[k] == NULL)
      continue;
    if (t->values[k] == NULL)
      t->values[k] = g_new0(double, n);
    for (gint64 i = 0; i < range.elements; i++)
      if (!merge(&t->values[k][range.first + i], t->writers[range.first + i], from[k][at + i]))
        fail(s, u,
             k == COMPARED_GRADIENT ? "has another gradient than its replica"
                                    : "has other values than its replica");
  }
  for (gint64 i = 0; i < range.elements; i++)
    t->writers[range.first + i]++;
}

typedef struct {
  VerifiedState *state;
  const NumericUpdate *update;
} Taking;

static void
take_range(gpointer user, StateRange range, gint64 at)
{
  const Taking *t = user;
  if (at + range.elements <= t->update->elements) {
    take(t->state, t->update, range, at);
    hold(t->state, t->update, range, at);
  } else
    fail(t->state, t->update, "is smaller than what the rank holds");
}

static void
updated(gpointer user, const NumericUpdate *u)
{
  VerifiedState *s = user;
  Taking taking = {s, u};
  if (!verified_for_update(s, u, &s->pooled[u->rank * (s->steps + 1) + u->step], take_range,
                           &taking))
    fail(s, u, "is updated in part");
}

NumericHooks
verified_state_hooks(VerifiedState *s)
{
  NumericHooks hooks = {.user = s, .loss = loss, .norm = norm, .updated = updated};
  verified_start_hooks(&hooks);
  if (s->run->start == NULL)
    hooks.updating = NULL;
  return hooks;
}
