/* verified_start.c - what memory holds at first: values of parameters, states that were before, and
 * batches. */
#include <math.h>
#include <string.h>

#include "numeric/numeric_random.h"
#include "simulate/verified_start.h"

/* ---- values ---- */

/* Weights of variance 1 / width, gains around one, biases around zero. */
static double
first_value(const VerifiedState *s, int parameter, gint64 element)
{
  const Parameter *p = network_parameter(s->plan->scenario->network, parameter);
  double number = numeric_normal(numeric_key(s->run.seed, p->name), (guint64) element);
  if (p->dims > 1)
    number /= sqrt((double) p->shape[p->dims - 1]);
  else
    number = g_str_has_suffix(p->name, "bias") ? 0.1 * number : 1 + 0.1 * number;
  return s->run.starts_rounded ? numeric_round(number, s->run.starts_as) : number;
}

/* The dtype of memory whose elements have so many bytes, if runs round; 1: of no memory. */
static DType
dtype_of(const VerifiedState *s, int bytes)
{
  if (!s->run.rounds || bytes == 1)
    return DTYPE_INT64;
  return bytes == 2 ? s->plan->scenario->plan->precision.parameters : DTYPE_FP32;
}

/* What a rank begins with: first values, or what a checkpoint has; of more than its part of the
 * state, from the whole.  What does not train is as it was made, also where an optimizer's state,
 * as of ZeRO's stages 1 and 2, says nothing of it: the model's own state dict does. */
static void
begin_with(const VerifiedState *s, int rank, StateRange range, double *slots, int stride)
{
  const ForgottenState *forgets = &s->run.forgets;
  gboolean is_new = forgets->values && forgets->rank == rank;
  const RestoredState *start = is_new ? NULL : s->run.start;
  const StatePart *part = NULL;
  const DType dtype = dtype_of(s, stride);
  gboolean trains = network_parameter(s->plan->scenario->network, range.parameter)->trainable;
  if (start != NULL)
    part = state_image_part(start->held, rank, range.parameter, range.first);
  if (start != NULL &&
      (part == NULL || range.first + range.elements > part->range.first + part->range.elements))
    part = state_image_part(start->whole, 0, range.parameter, range.first);
  for (gint64 i = 0; i < range.elements; i++) {
    gint64 element = range.first + i;
    double value = start == NULL || !trains ? first_value(s, range.parameter, element)
                   : part != NULL           ? part->values[IMAGE_VALUE][element - part->range.first]
                                            : NAN;
    slots[i * stride] = numeric_round(value, dtype);
  }
}

void
verified_start_image(const VerifiedState *s, StateImage *image)
{
  if (s->run.start != NULL)
    image->updates = s->run.start->held->updates;
  for (int rank = 0; rank < s->plan->ranks; rank++) {
    GArray *parts = g_ptr_array_index(image->parts, (guint) rank);
    for (guint i = 0; i < parts->len; i++) {
      StatePart *part = &g_array_index(parts, StatePart, i);
      begin_with(s, rank, part->range, part->values[IMAGE_VALUE], 1);
    }
  }
}

static void
initialize(gpointer user, const NumericFilling *f)
{
  const VerifiedState *s = user;
  int parameter = verified_state_parameter(s, f->parameter);
  if (parameter >= 0)
    begin_with(s, f->rank, (StateRange){parameter, f->first, f->elements}, f->slots, f->stride);
}

/* ---- states ---- */

/* What the optimizer kept before.  A copy that it keeps of parameters in a wider dtype is part of
 * that: a run that rounds makes it of the narrow ones at first. */
static void
updating(gpointer user, const NumericUpdate *u)
{
  const VerifiedState *s = user;
  const ForgottenState *forgets = &s->run.forgets;
  int parameter = verified_state_parameter(s, u->parameter);
  if (parameter < 0 || (forgets->states && forgets->rank == u->rank))
    return;
  const StatePart *part = state_image_part(s->run.start->held, u->rank, parameter, u->first);
  gboolean copies = s->run.rounds && !(forgets->values && forgets->rank == u->rank);
  for (gint64 i = 0; copies && part != NULL && i < u->elements; i++)
    u->value[i] = part->values[IMAGE_VALUE][u->first + i - part->range.first];
  for (int k = 0; k < 2; k++)
    for (gint64 i = 0; u->state[k] != NULL && i < u->elements; i++)
      u->state[k][i] =
          part != NULL ? part->values[IMAGE_FIRST + k][u->first + i - part->range.first] : NAN;
}

/* ---- batches ---- */

static gint64
token(const VerifiedState *s, int step, gint64 sample, gint64 position)
{
  guint64 key = numeric_key_add(numeric_key(s->run.seed, "tokens"), (guint64) step);
  return numeric_choice(numeric_key_add(key, (guint64) sample), (guint64) position,
                        MAX(s->plan->scenario->network->vocabulary, 1));
}

/* Tokens, and as labels those that follow them; or numbers, where the network reads such. */
static void
batch(gpointer user, int rank, int step, const char *name, int n, gint64 bytes, double *slots)
{
  const VerifiedState *s = user;
  const PlanSpec *plan = s->plan->scenario->plan;
  gboolean labels = strcmp(name, "labels") == 0;
  const GArray *inputs = s->plan->scenario->network->inputs;
  if (n >= plan->accumulation.steps || inputs->len == 0)
    return;
  const ValueInfo *info = &g_array_index(inputs, ValueInfo, labels && inputs->len > 1 ? 1 : 0);
  int size = dtype_size((DType) info->dtype);
  gint64 elements = bytes / size, samples = plan->micro_batch, each = elements / samples;
  gint64 first = s->run.samples_before + ((gint64) rank * plan->accumulation.steps + n) * samples;
  guint64 key = numeric_key_add(numeric_key(s->run.seed, name), (guint64) step);
  for (gint64 i = 0; i < elements; i++) {
    gint64 sample = first + i / each, position = i % each;
    slots[i * size] = info->dtype == DTYPE_INT64
                          ? (double) token(s, step, sample, position + labels)
                          : numeric_normal(key, (guint64) (sample * each + position));
  }
}

void
verified_start_hooks(NumericHooks *hooks)
{
  hooks->initialize = initialize;
  hooks->batch = batch;
  hooks->updating = updating;
}
