/* verified_state.c - first values, batches, and whole parameters put together from what ranks
 * update. */
#include "simulate/verified_state.h"

#include <math.h>
#include <string.h>

#include "numeric/numeric_random.h"

/* Replicas compute the same sums in the same order, but for their collectives. */
#define REPLICAS_DIFFER 1e-9

static const Network *
network_of(const VerifiedState *s)
{
  return s->scenario->network;
}

static guint
parameters_of(const VerifiedState *s)
{
  return network_of(s)->parameters->len;
}

/* What the loss is multiplied by before backward. */
static double
loss_scale_of(const Scenario *scenario)
{
  const Strategy *strategy = scenario->strategy;
  if (strategy->loss == NULL || strategy->loss(scenario->plan) != LOSS_DIVIDED_AND_SCALED)
    return 1;
  return network_loss_scale(scenario->plan->precision.parameters);
}

VerifiedState *
verified_state_new(const Scenario *scenario, const StateLayout *layout, int steps, guint64 seed)
{
  VerifiedState *s = g_new0(VerifiedState, 1);
  s->scenario = scenario;
  s->layout = layout;
  s->seed = seed;
  s->steps = steps;
  s->ranks = scenario->plan->shard * scenario->plan->replicate;
  s->loss_scale = loss_scale_of(scenario);
  s->parameters = g_hash_table_new(g_str_hash, g_str_equal);
  for (guint i = 0; i < parameters_of(s); i++)
    g_hash_table_insert(s->parameters,
                        (gpointer) (gsize) network_parameter(network_of(s), (int) i)->name,
                        GUINT_TO_POINTER(i + 1));
  s->tensors = g_new0(VerifiedTensor, MAX((gsize) steps * parameters_of(s), 1));
  s->losses = g_new0(double, steps + 1);
  s->norms = g_new0(double, steps + 1);
  return s;
}

void
verified_state_free(VerifiedState *s)
{
  if (s == NULL)
    return;
  for (guint i = 0; i < (guint) s->steps * parameters_of(s); i++) {
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
    gint64 n = network_parameter(network_of(s), (int) i)->elements;
    for (gint64 k = 0; t->values[COMPARED_GRADIENT] != NULL && k < n; k++)
      sum += t->values[COMPARED_GRADIENT][k] * t->values[COMPARED_GRADIENT][k];
  }
  return sqrt(sum);
}

static int
parameter_named(const VerifiedState *s, const char *name)
{
  return GPOINTER_TO_INT(g_hash_table_lookup(s->parameters, name)) - 1;
}

/* ---- first values ---- */

/* Weights of variance 1 / width, gains around one, biases around zero. */
static double
first_value(const VerifiedState *s, int parameter, gint64 element)
{
  const Parameter *p = network_parameter(network_of(s), parameter);
  double number = numeric_normal(numeric_key(s->seed, p->name), (guint64) element);
  if (p->dims > 1)
    return number / sqrt((double) p->shape[p->dims - 1]);
  return g_str_has_suffix(p->name, "bias") ? 0.1 * number : 1 + 0.1 * number;
}

static void
initialize(gpointer user, const char *name, gint64 first, gint64 elements, int size, double *slots)
{
  const VerifiedState *s = user;
  int parameter = parameter_named(s, name);
  for (gint64 i = 0; parameter >= 0 && i < elements; i++)
    slots[i * size] = first_value(s, parameter, first + i);
}

/* ---- batches ---- */

static gint64
token(const VerifiedState *s, int step, gint64 sample, gint64 position)
{
  guint64 key = numeric_key_add(numeric_key(s->seed, "tokens"), (guint64) step);
  return numeric_choice(numeric_key_add(key, (guint64) sample), (guint64) position,
                        MAX(network_of(s)->vocabulary, 1));
}

/* Tokens, and as labels those that follow them; or numbers, where the network reads such. */
static void
batch(gpointer user, int rank, int step, const char *name, int n, gint64 bytes, double *slots)
{
  const VerifiedState *s = user;
  const PlanSpec *plan = s->scenario->plan;
  gboolean labels = strcmp(name, "labels") == 0;
  const GArray *inputs = network_of(s)->inputs;
  if (n >= plan->accumulation.steps || inputs->len == 0)
    return;
  const ValueInfo *info = &g_array_index(inputs, ValueInfo, labels && inputs->len > 1 ? 1 : 0);
  int size = dtype_size((DType) info->dtype);
  gint64 elements = bytes / size, samples = plan->micro_batch, each = elements / samples;
  gint64 first = ((gint64) rank * plan->accumulation.steps + n) * samples;
  guint64 key = numeric_key_add(numeric_key(s->seed, name), (guint64) step);
  for (gint64 i = 0; i < elements; i++) {
    gint64 sample = first + i / each, position = i % each;
    slots[i * size] = info->dtype == DTYPE_INT64
                          ? (double) token(s, step, sample, position + labels)
                          : numeric_normal(key, (guint64) (sample * each + position));
  }
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

static void
updated(gpointer user, const NumericUpdate *u)
{
  VerifiedState *s = user;
  int parameter = parameter_named(s, u->parameter);
  const double *from[COMPARED] = {[COMPARED_GRADIENT] = u->gradient,
                                  [COMPARED_VALUE] = u->value,
                                  [COMPARED_FIRST] = u->state[0],
                                  [COMPARED_SECOND] = u->state[1]};
  if (parameter < 0) {
    fail(s, u, "is no parameter of the network");
    return;
  }
  VerifiedTensor *t = verified_state_tensor(s, u->step, parameter);
  gint64 n = network_parameter(network_of(s), parameter)->elements;
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
    for (gint64 i = 0; i < u->elements; i++)
      if (!merge(&t->values[k][u->first + i], t->writers[u->first + i], from[k][i]))
        fail(s, u,
             k == COMPARED_GRADIENT ? "has another gradient than its replica"
                                    : "has other values than its replica");
  }
  for (gint64 i = 0; i < u->elements; i++)
    t->writers[u->first + i]++;
}

NumericHooks
verified_state_hooks(VerifiedState *s)
{
  return (NumericHooks){.user = s,
                        .initialize = initialize,
                        .batch = batch,
                        .loss = loss,
                        .norm = norm,
                        .updated = updated};
}
