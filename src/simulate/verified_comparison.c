/* verified_comparison.c - what ranks computed beside what the unsharded run did: how far apart, and
 * the first thing that is not the same. */
#include "simulate/verified_comparison.h"

#include <math.h>

static const char *const compared_names[COMPARED] = {"gradient", "value", "first state",
                                                     "second state"};

void
verified_fault(VerificationReport *report, const VerifiedState *state, const char *format, ...)
{
  va_list arguments;
  if (report->fault != NULL)
    return;
  va_start(arguments, format);
  g_autofree char *what = g_strdup_vprintf(format, arguments);
  va_end(arguments);
  const char *unknown = state != NULL ? state->first_unknown : NULL;
  report->fault =
      g_strdup_printf("%s%s%s", what, unknown != NULL ? "; " : "", unknown != NULL ? unknown : "");
}

/* What made a NaN first, for a number that is one: others are wrong for another reason. */
static const char *
unknown_behind(const VerifiedState *state, double number)
{
  return isfinite(number) ? NULL : state->first_unknown;
}

/* In other dtypes than the reference's a difference is no fault, but what is no number is. */
static double
allowed_of(const VerificationReport *report)
{
  return report->rounded ? 1e300 : report->tolerance;
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
    const GArray *held = state_layout_held(layout, rank);
    for (guint i = 0; i < held->len; i++)
      if (state_range_has(&g_array_index(held, StateRange, i), parameter, element))
        return rank;
  }
  return 0;
}

void
verified_fault_of_element(VerificationReport *report, const VerifiedState *state,
                          const VerifiedTensor *t, const VerifiedElement *e)
{
  int owner = owner_of(state->plan->layout, e->parameter, e->element);
  const char *op = t->written_by[owner];
  if (report->fault == NULL)
    verified_fault(
        report, state,
        "step %d, rank %d: the gradient of %s differs from the mean of the ranks' own by "
        "more than rounding explains, first in element %" G_GINT64_FORMAT
        ": %.9g, not %.9g within %.2g%s%s",
        e->step, owner, g_array_index(report->parameters, VerifiedParameter, e->parameter).name,
        e->element, e->made, e->expected, e->allowed, op != NULL ? "; written by " : "",
        op != NULL ? op : "");
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
      verified_fault(report, NULL, "step %d: %s is not updated by %s", step, p->name,
                     t->values[k] == NULL ? "any rank" : "the reference");
    else if (d > allowed_of(report)) {
      gint64 i = first_different(t->values[k], r->values[k], p->elements, allowed_of(report));
      int owner = owner_of(state->plan->layout, parameter, i);
      const char *op = t->written_by[owner], *unknown = unknown_behind(state, t->values[k][i]);
      g_autofree char *writer = op != NULL ? g_strdup_printf("written by %s", op) : NULL;
      verified_fault(
          report, NULL,
          "step %d, rank %d: %s of %s differs from the unsharded run's, first in element "
          "%" G_GINT64_FORMAT ": %.9g, not %.9g; %s",
          step, owner, compared_names[k], p->name, i, t->values[k][i], r->values[k][i],
          unknown != NULL                            ? unknown
          : k == COMPARED_GRADIENT && writer != NULL ? writer
                                                     : "the optimizer wrote it");
    }
  }
  for (gint64 i = 0; t->writers != NULL && i < p->elements; i++)
    if (t->writers[i] == 0) {
      verified_fault(report, NULL, "step %d: nobody updates element %" G_GINT64_FORMAT " of %s",
                     step, i, p->name);
      break;
    }
}

/* Tensors come first: what differs there has a name, a rank and an op. */
static void
compare_step(VerificationReport *report, const VerifiedState *state, const VerifiedState *reference,
             int step)
{
  VerifiedStep *s = &g_array_index(report->steps, VerifiedStep, step - 1);
  s->loss = state->losses[step] / state->plan->ranks;
  s->reference_loss = reference->losses[step];
  s->norm = verified_state_norm(state, step);
  s->reference_norm = verified_state_norm(reference, step);
  for (guint i = 0; i < report->parameters->len; i++)
    compare_parameter(report, state, reference, step, (int) i);
  if (!(fabs(s->loss - s->reference_loss) <= allowed_of(report) * fabs(s->reference_loss)))
    verified_fault(report, isfinite(s->loss) ? NULL : state,
                   "step %d: the loss is %.12g, in the unsharded run %.12g", step, s->loss,
                   s->reference_loss);
  if (state->plan->scenario->plan->optimizer.clip_grad_norm > 0 && state->norms[step] != 0 &&
      !(fabs(s->norm - s->reference_norm) <= allowed_of(report) * s->reference_norm) &&
      unknown_behind(state, s->norm) == NULL)
    verified_fault(report, NULL,
                   "step %d: the norm of all gradients is %.12g, in the unsharded run %.12g", step,
                   s->norm, s->reference_norm);
}

void
verified_compare(VerificationReport *report, const VerifiedState *state,
                 const VerifiedState *reference)
{
  if (state->fault != NULL)
    verified_fault(report, NULL, "%s", state->fault);
  for (int step = state->run.before + 1; step <= state->run.steps; step++)
    compare_step(report, state, reference, step);
}

/* ---- bit by bit ---- */

gboolean
verified_same_bits(double a, double b)
{
  return a == b || (isnan(a) && isnan(b));
}

/* The first element whose bits are others; n: there is no such. */
static gint64
first_other(const double *a, const double *b, gint64 n)
{
  gint64 i = 0;
  while (i < n && verified_same_bits(a[i], b[i]))
    i++;
  return i;
}

static gint64
elements_of(const VerifiedState *state, int parameter)
{
  return network_parameter(state->plan->scenario->network, parameter)->elements;
}

/* Of a parameter in a step, something compared; n: nothing is other. */
static gint64
first_other_of(const VerifiedState *a, const VerifiedState *b, int step, int parameter, int kind)
{
  const double *x = verified_state_tensor(a, step, parameter)->values[kind],
               *y = verified_state_tensor(b, step, parameter)->values[kind];
  gint64 n = elements_of(a, parameter);
  return x != NULL && y != NULL ? first_other(x, y, n) : x == y ? n : 0;
}

gboolean
verified_same_gradients(const VerifiedState *a, const VerifiedState *b, int step)
{
  for (int i = 0; i < (int) a->plan->scenario->network->parameters->len; i++)
    if (first_other_of(a, b, step, i, COMPARED_GRADIENT) < elements_of(a, i))
      return FALSE;
  return TRUE;
}

static gboolean
compare_bits_of_step(VerificationReport *report, const VerifiedState *state,
                     const VerifiedState *right, int step)
{
  if (first_other(&state->losses[step], &right->losses[step], 1) == 0)
    verified_fault(report, state, "step %d: the loss is %.17g, without interruption %.17g", step,
                   state->losses[step] / state->plan->ranks,
                   right->losses[step] / right->plan->ranks);
  if (!verified_same_gradients(state, right, step))
    return FALSE;
  for (int i = 0; i < (int) report->parameters->len; i++)
    for (int k = 0; k < COMPARED; k++) {
      gint64 at = first_other_of(state, right, step, i, k);
      if (at < elements_of(state, i))
        verified_fault(report, state,
                       "step %d, rank %d: %s of %s is not, bit by bit, the one without "
                       "interruption, first in element %" G_GINT64_FORMAT,
                       step, owner_of(state->plan->layout, i, at), compared_names[k],
                       g_array_index(report->parameters, VerifiedParameter, i).name, at);
    }
  return TRUE;
}

gboolean
verified_compare_bits(VerificationReport *report, const VerifiedState *state,
                      const VerifiedState *right)
{
  for (int step = state->run.before + 1; step <= state->run.steps; step++)
    if (!compare_bits_of_step(report, state, right, step))
      return FALSE;
  return TRUE;
}
