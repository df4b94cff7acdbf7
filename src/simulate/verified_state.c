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

VerifiedState *
verified_state_new(const Scenario *scenario, const StateLayout *layout, int steps, guint64 seed)
{
  VerifiedState *s = g_new0(VerifiedState, 1);
  s->scenario = scenario;
  s->layout = layout;
  s->seed = seed;
  s->steps = steps;
  s->ranks = scenario->plan->shard * scenario->plan->replicate;
  s->parameters = g_hash_table_new(g_str_hash, g_str_equal);
  for (guint i = 0; i < parameters_of(s); i++)
    g_hash_table_insert(s->parameters,
                        (gpointer) (gsize) network_parameter(network_of(s), (int) i)->name,
                        GUINT_TO_POINTER(i + 1));
  s->tensors = g_new0(VerifiedTensor, MAX((gsize) steps * parameters_of(s), 1));
  s->losses = g_new0(double, steps + 1);
  s->norms = g_new0(double, steps + 1);
  s->pooled = g_new0(gint64, s->ranks * (steps + 1));
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
  g_free(s->pooled);
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

/* ---- whose elements ---- */

static int
parameter_named(const VerifiedState *s, const char *name)
{
  return GPOINTER_TO_INT(g_hash_table_lookup(s->parameters, name)) - 1;
}

static const GArray *
ranges_of(const VerifiedState *s, int rank)
{
  return g_ptr_array_index(s->layout->held, (guint) (rank % s->layout->ranks));
}

/* The part of a parameter that a rank holds; of memory that is as large as the parameter, all. */
static StateRange
range_in(const VerifiedState *s, int rank, int parameter, gint64 elements)
{
  const Parameter *p = network_parameter(network_of(s), parameter);
  const GArray *held = ranges_of(s, rank);
  if (elements >= p->elements && s->layout->ranks == 1)
    return (StateRange){parameter, 0, p->elements};
  for (guint i = 0; i < held->len; i++)
    if (g_array_index(held, StateRange, i).parameter == parameter)
      return g_array_index(held, StateRange, i);
  return (StateRange){parameter, 0, 0};
}

/* How much room a parameter has in memory where all ranks' parts are as large as the largest. */
static gint64
room_of(const VerifiedState *s, int parameter)
{
  gint64 room = 0;
  for (int rank = 0; rank < s->layout->ranks; rank++)
    room = MAX(room, range_in(s, rank, parameter, 0).elements);
  return room;
}

/* Elements from `first` on of what a rank holds, in a buffer of so many. */
typedef struct {
  int rank;
  gint64 first, elements;
} Window;

/* Calls f for each range in it, with the element of the buffer at which it begins.  Ranges lie one
 * behind the other; or each in a room of its own, if rooms fill the buffer, or several buffers. */
typedef void (*RangeFunction)(gpointer user, StateRange range, gint64 at);
static void
for_ranges(const VerifiedState *s, Window w, RangeFunction f, gpointer user)
{
  const GArray *held = ranges_of(s, w.rank);
  gint64 rooms = 0, at = -w.first;
  for (guint i = 0; i < parameters_of(s); i++)
    rooms += room_of(s, (int) i);
  gboolean padded = rooms == w.elements ||
                    state_layout_elements(s->layout, w.rank % s->layout->ranks) > w.elements ||
                    w.first > 0;
  for (guint i = 0, next = 0; i < (padded ? parameters_of(s) : held->len); i++) {
    StateRange range = {(gint32) i, 0, 0};
    if (!padded)
      range = g_array_index(held, StateRange, i);
    else if (next < held->len && g_array_index(held, StateRange, next).parameter == (gint32) i)
      range = g_array_index(held, StateRange, next++);
    if (at >= 0 && at < w.elements)
      f(user, range, at);
    at += padded ? room_of(s, (int) i) : range.elements;
  }
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

/* Adapters may have another dtype than what the plan says of the rest: seen in a whole parameter.
 */
static int
element_size(const VerifiedState *s, const Storage *storage, int parameter)
{
  gint64 elements = network_parameter(network_of(s), parameter)->elements;
  int size = elements > 0 ? (int) (storage->bytes / elements) : 0;
  if ((size == 2 || size == 4) && size * elements == storage->bytes && s->layout->ranks == 1)
    return (int) (storage->bytes / elements);
  return dtype_size(s->scenario->plan->precision.parameters);
}

typedef struct {
  const VerifiedState *state;
  double *slots;
  int size;
} Filling;

static void
fill_range(gpointer user, StateRange range, gint64 at)
{
  const Filling *f = user;
  for (gint64 i = 0; i < range.elements; i++)
    f->slots[(at + i) * f->size] = first_value(f->state, range.parameter, range.first + i);
}

/* All that a rank holds, in one buffer. */
static void
fill_shards(const VerifiedState *s, int rank, const Storage *storage, double *slots)
{
  int size = dtype_size(s->scenario->plan->precision.parameters);
  Filling filling = {s, slots, size};
  for (gint64 i = 0; i < storage->bytes / size; i++)
    slots[i * size] = 0;
  for_ranges(s, (Window){rank, 0, storage->bytes / size}, fill_range, &filling);
}

static void
initialize(gpointer user, int rank, const Storage *storage, const char *name, double *slots)
{
  const VerifiedState *s = user;
  int parameter = parameter_named(s, name);
  if (storage->category == CATEGORY_PARAMETER && strcmp(name, "parameter shards") == 0)
    fill_shards(s, rank, storage, slots);
  if (storage->category != CATEGORY_PARAMETER || parameter < 0)
    return;
  int size = element_size(s, storage, parameter);
  gint64 elements = storage->bytes / size;
  gint64 whole = network_parameter(network_of(s), parameter)->elements;
  StateRange range = elements == whole ? (StateRange){parameter, 0, whole}
                                       : range_in(s, rank, parameter, elements);
  for (gint64 i = 0; i < elements; i++)
    slots[i * size] = i < range.elements ? first_value(s, parameter, range.first + i) : 0;
}

/* A part that is known only by what updates it, of a buffer that has no name of its own. */
static void
initialize_part(gpointer user, int rank, const char *name, gint64 elements, int size, double *slots)
{
  const VerifiedState *s = user;
  int parameter = parameter_named(s, name);
  if (parameter < 0 || !isnan(slots[0]))
    return;
  StateRange range = range_in(s, rank, parameter, elements);
  for (gint64 i = 0; i < MIN(elements, range.elements); i++)
    slots[i * size] = first_value(s, parameter, range.first + i);
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

/* A range of a parameter from what was updated, from element `at` of it on. */
static void
take(VerifiedState *s, const NumericUpdate *u, StateRange range, gint64 at)
{
  VerifiedTensor *t = verified_state_tensor(s, u->step, range.parameter);
  gint64 n = network_parameter(network_of(s), range.parameter)->elements;
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
  if (at + range.elements <= t->update->elements)
    take(t->state, t->update, range, at);
  else
    fail(t->state, t->update, "is smaller than what the rank holds");
}

static void
updated(gpointer user, const NumericUpdate *u)
{
  VerifiedState *s = user;
  int parameter = parameter_named(s, u->name);
  if (parameter < 0 && u->state_name != NULL)
    parameter = parameter_named(s, u->state_name);
  if (parameter >= 0) {
    StateRange range = range_in(s, u->rank, parameter, u->elements);
    if (u->elements < range.elements)
      fail(s, u, "is updated in part");
    else
      take(s, u, range, 0);
    return;
  }
  /* buffers of many come one after the other */
  Taking taking = {s, u};
  gint64 *seen = &s->pooled[u->rank * (s->steps + 1) + u->step];
  for_ranges(s, (Window){u->rank, *seen, u->elements}, take_range, &taking);
  *seen += u->elements;
}

NumericHooks
verified_state_hooks(VerifiedState *s)
{
  return (NumericHooks){.user = s,
                        .initialize = initialize,
                        .initialize_part = initialize_part,
                        .batch = batch,
                        .loss = loss,
                        .norm = norm,
                        .updated = updated};
}
