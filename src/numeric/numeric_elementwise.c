/* numeric_elementwise.c - element-wise formulas and their derivatives. */
#include <math.h>
#include <string.h>

#include "numeric/numeric_kernel.h"
#include "numeric/numeric_random.h"

/* ---- functions of one number ---- */

static double
sigmoid(double x)
{
  return 1 / (1 + exp(-x));
}

static double
silu(double x, double number)
{
  (void) number;
  return x * sigmoid(x);
}

static double
silu_derivative(double x, double number)
{
  (void) number;
  double s = sigmoid(x);
  return s * (1 + x * (1 - s));
}

static double
gelu(double x, double number)
{
  (void) number;
  return 0.5 * x * (1 + erf(x * M_SQRT1_2));
}

static double
gelu_derivative(double x, double number)
{
  (void) number;
  return 0.5 * (1 + erf(x * M_SQRT1_2)) + x * exp(-0.5 * x * x) / sqrt(2 * M_PI);
}

static double
tanh_of(double x, double number)
{
  (void) number;
  return tanh(x);
}

/* Of the result. */
static double
tanh_derivative(double y, double number)
{
  (void) number;
  return 1 - y * y;
}

static double
plus(double x, double number)
{
  return x + number;
}

static double
times(double x, double number)
{
  return x * number;
}

static double
negative(double x, double number)
{
  (void) number;
  return -x;
}

static double
over(double x, double number)
{
  return x / number;
}

static double
power(double x, double number)
{
  return pow(x, number);
}

static double
power_derivative(double x, double number)
{
  return number * pow(x, number - 1);
}

static double
rsqrt(double x, double number)
{
  (void) number;
  return 1 / sqrt(x);
}

/* Of the result. */
static double
rsqrt_derivative(double y, double number)
{
  (void) number;
  return -0.5 * y * y * y;
}

static double
at_most(double x, double number)
{
  return MIN(x, number);
}

static double
at_least(double x, double number)
{
  return MAX(x, number);
}

/* From below if its meaning says so, else from above. */
static void
run_clamp(KernelCall *c)
{
  static const NumericKernel least = {.formula = "clamp",
                                      .run = numeric_apply,
                                      .f = at_least,
                                      .key = "least",
                                      .otherwise = NAN},
                             most = {.formula = "clamp",
                                     .run = numeric_apply,
                                     .f = at_most,
                                     .key = "most",
                                     .otherwise = NAN};
  c->row = isnan(numeric_number_or(c, "least", NAN)) ? &most : &least;
  numeric_apply(c);
}

/* ---- of several ---- */

/* All that is read, and what was there if it accumulates. */
static void
run_add(KernelCall *c)
{
  NumericTensor *y = numeric_written(c, 0);
  int n = numeric_reads(c);
  if (y == NULL)
    return;
  if (y->role != ROLE_ACCUMULATE)
    memset(y->data, 0, sizeof(double) * (gsize) y->elements);
  for (int i = 0; i < n; i++) {
    g_autofree double *x = numeric_broadcast(c, numeric_read(c, i), y);
    for (gint64 k = 0; x != NULL && k < y->elements; k++)
      y->data[k] += x[k];
  }
}

static void
run_mul(KernelCall *c)
{
  NumericTensor *y = numeric_written(c, 0);
  g_autofree double *a = numeric_broadcast(c, numeric_read(c, 0), y);
  g_autofree double *b = numeric_broadcast(c, numeric_read(c, 1), y);
  for (gint64 i = 0; a != NULL && b != NULL && i < y->elements; i++)
    y->data[i] = a[i] * b[i];
}

static void
run_div(KernelCall *c)
{
  NumericTensor *y = numeric_written(c, 0);
  g_autofree double *a = numeric_broadcast(c, numeric_read(c, 0), y);
  g_autofree double *b = numeric_broadcast(c, numeric_read(c, 1), y);
  for (gint64 i = 0; a != NULL && b != NULL && i < y->elements; i++)
    y->data[i] = a[i] / b[i];
}

static void
run_min(KernelCall *c)
{
  NumericTensor *y = numeric_written(c, 0);
  g_autofree double *a = numeric_broadcast(c, numeric_read(c, 0), y);
  g_autofree double *b = numeric_broadcast(c, numeric_read(c, 1), y);
  for (gint64 i = 0; a != NULL && b != NULL && i < y->elements; i++)
    y->data[i] = isnan(a[i]) ? a[i] : fmin(a[i], b[i]);
}

/* x [batch, length, heads, pairs] times a table [length, pairs] of complex numbers, or their
 * conjugates: 1 or -1. */
static void
multiply_complex(KernelCall *c, double sign)
{
  const NumericTensor *x = numeric_read(c, 0), *table = numeric_read(c, 1);
  NumericTensor *y = numeric_written(c, 0);
  if (!numeric_same_size(c, x, y) || table == NULL)
    return;
  if (x->dims != 5 || table->dims != 3 || table->shape[0] < x->shape[1] ||
      table->shape[1] != x->shape[3]) {
    numeric_fail(c, "the table is not one of positions and pairs");
    return;
  }
  gint64 length = x->shape[1], heads = x->shape[2], pairs = x->shape[3];
  for (gint64 i = 0; i < x->elements / 2; i++) {
    gint64 pair = i % pairs, position = i / (pairs * heads) % length;
    const double *a = x->data + 2 * i, *t = table->data + 2 * (position * pairs + pair);
    y->data[2 * i] = a[0] * t[0] - sign * a[1] * t[1];
    y->data[2 * i + 1] = a[1] * t[0] + sign * a[0] * t[1];
  }
}

static void
run_mul_complex(KernelCall *c)
{
  multiply_complex(c, 1);
}

static void
run_mul_conjugate(KernelCall *c)
{
  multiply_complex(c, -1);
}

/* -inf above the diagonal of the last two dimensions. */
static void
run_add_causal_mask(KernelCall *c)
{
  const NumericTensor *x = numeric_read(c, 0);
  NumericTensor *y = numeric_written(c, 0);
  if (!numeric_same_size(c, x, y))
    return;
  gint64 columns = numeric_width(x), rows = x->shape[x->dims - 2];
  for (gint64 i = 0; i < x->elements; i++)
    y->data[i] = i % columns > i / columns % rows ? -INFINITY : x->data[i];
}

/* ---- dropout ---- */

/* What is kept depends on the step, the sample among all ranks' and the module: so it is the same
 * whoever computes it, and when it is computed again. */
static void
run_dropout(KernelCall *c)
{
  const NumericTensor *x = numeric_read(c, 0);
  NumericTensor *y = numeric_written(c, 0), *mask = numeric_written(c, 1);
  double p = numeric_number(c, "p");
  if (!numeric_same_size(c, x, y) || !numeric_same_size(c, x, mask))
    return;
  gint64 first = c->place.sample * (x->elements / MAX(c->place.samples, 1));
  guint64 key = numeric_key(c->place.seed, "dropout");
  key = numeric_key_add(numeric_key_add(key, (guint64) c->place.step), (guint64) c->place.module);
  for (gint64 i = 0; i < x->elements; i++) {
    mask->data[i] = numeric_uniform(key, (guint64) (first + i)) >= p;
    y->data[i] = x->data[i] * mask->data[i] / (1 - p);
  }
}

static void
run_dropout_backward(KernelCall *c)
{
  const NumericTensor *g = numeric_read(c, 0), *mask = numeric_read(c, 1);
  NumericTensor *d = numeric_written(c, 0);
  double p = numeric_number(c, "p");
  if (!numeric_same_size(c, g, d) || !numeric_same_size(c, mask, d))
    return;
  for (gint64 i = 0; i < d->elements; i++)
    d->data[i] = g->data[i] * mask->data[i] / (1 - p);
}

const NumericKernel numeric_elementwise[] = {
    {.formula = "add", .run = run_add},
    {.formula = "add_scalar", .run = numeric_apply, .f = plus, .key = "value", .otherwise = NAN},
    {.formula = "add_scalar_backward", .run = run_add},
    {.formula = "mul", .run = run_mul},
    {.formula = "div", .run = run_div},
    {.formula = "min", .run = run_min},
    {.formula = "mul_scalar", .run = numeric_apply, .f = times, .key = "value", .otherwise = NAN},
    {.formula = "div_scalar", .run = numeric_apply, .f = over, .key = "value", .otherwise = NAN},
    {.formula = "neg", .run = numeric_apply, .f = negative},
    {.formula = "pow", .run = numeric_apply, .f = power, .key = "power", .otherwise = 2},
    {.formula = "pow_backward",
     .run = numeric_apply_backward,
     .f = power_derivative,
     .key = "power",
     .otherwise = 2},
    {.formula = "rsqrt", .run = numeric_apply, .f = rsqrt},
    {.formula = "rsqrt_backward", .run = numeric_apply_backward, .f = rsqrt_derivative},
    {.formula = "tanh", .run = numeric_apply, .f = tanh_of},
    {.formula = "tanh_backward", .run = numeric_apply_backward, .f = tanh_derivative},
    {.formula = "silu", .run = numeric_apply, .f = silu},
    {.formula = "silu_backward", .run = numeric_apply_backward, .f = silu_derivative},
    {.formula = "gelu", .run = numeric_apply, .f = gelu},
    {.formula = "gelu_backward", .run = numeric_apply_backward, .f = gelu_derivative},
    {.formula = "clamp", .run = run_clamp},
    {.formula = "mul_complex", .run = run_mul_complex},
    {.formula = "mul_conjugate", .run = run_mul_conjugate},
    {.formula = "add_causal_mask", .run = run_add_causal_mask},
    {.formula = "native_dropout", .run = run_dropout},
    {.formula = "native_dropout_backward", .run = run_dropout_backward},
    {0},
};
