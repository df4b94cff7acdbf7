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

/* The argument of the tanh that approximates it: sqrt(2 / pi) (x + 0.044715 x^3). */
static double
gelu_argument(double x)
{
  return M_2_SQRTPI * M_SQRT1_2 * (x + 0.044715 * x * x * x);
}

/* Its number: is it the approximation? */
static double
gelu(double x, double number)
{
  return 0.5 * x * (1 + (number != 0 ? tanh(gelu_argument(x)) : erf(x * M_SQRT1_2)));
}

static double
gelu_derivative(double x, double number)
{
  if (number != 0) {
    double t = tanh(gelu_argument(x));
    return 0.5 * (1 + t) +
           0.5 * x * (1 - t * t) * M_2_SQRTPI * M_SQRT1_2 * (1 + 3 * 0.044715 * x * x);
  }
  return 0.5 * (1 + erf(x * M_SQRT1_2)) + x * exp(-0.5 * x * x) / sqrt(2 * M_PI);
}

static double
sigmoid_of(double x, double number)
{
  (void) number;
  return sigmoid(x);
}

/* Of the result. */
static double
sigmoid_derivative(double y, double number)
{
  (void) number;
  return y * (1 - y);
}

static double
relu(double x, double number)
{
  (void) number;
  return MAX(x, 0);
}

/* Of the result. */
static double
relu_derivative(double y, double number)
{
  (void) number;
  return y > 0;
}

static double
exponential(double x, double number)
{
  (void) number;
  return exp(x);
}

/* Of the result. */
static double
exponential_derivative(double y, double number)
{
  (void) number;
  return y;
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

static double
within(double x, double number)
{
  return CLAMP(x, -number, number);
}

/* On both sides, or from below if its meaning says so, else from above. */
static void
run_clamp(KernelCall *c)
{
  static const NumericKernel least = {.formula = "clamp",
                                      .run = numeric_apply,
                                      .f = at_least,
                                      .key = "least",
                                      .otherwise = NAN},
                             both = {.formula = "clamp",
                                     .run = numeric_apply,
                                     .f = within,
                                     .key = "limit",
                                     .otherwise = NAN},
                             most = {.formula = "clamp",
                                     .run = numeric_apply,
                                     .f = at_most,
                                     .key = "most",
                                     .otherwise = NAN};
  c->row = !isnan(numeric_number_or(c, "limit", NAN))   ? &both
           : !isnan(numeric_number_or(c, "least", NAN)) ? &least
                                                        : &most;
  numeric_apply(c);
}

/* ---- dropout ---- */

guint64
numeric_dropout_key(const NumericPlace *place)
{
  guint64 key = numeric_key_add(numeric_key(place->seed, "dropout"), (guint64) place->step);
  return numeric_key_add(key, (guint64) place->module);
}

/* What an element is multiplied by: where all are dropped nothing is divided by zero
 * (native_dropout_cuda gives zeros, aten/src/ATen/native/cuda/Dropout.cu). */
static double
kept_scale(double mask, double p)
{
  return p < 1 ? mask / (1 - p) : 0;
}

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
  guint64 key = numeric_dropout_key(&c->place);
  for (gint64 i = 0; i < x->elements; i++) {
    mask->data[i] = numeric_uniform(key, (guint64) (first + i)) >= p;
    y->data[i] = x->data[i] * kept_scale(mask->data[i], p);
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
    d->data[i] = g->data[i] * kept_scale(mask->data[i], p);
}

const NumericKernel numeric_elementwise[] = {
    {.formula = "add_scalar", .run = numeric_apply, .f = plus, .key = "value", .otherwise = NAN},
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
    {.formula = "gelu", .run = numeric_apply, .f = gelu, .key = "tanh"},
    {.formula = "gelu_backward",
     .run = numeric_apply_backward,
     .f = gelu_derivative,
     .key = "tanh"},
    {.formula = "sigmoid", .run = numeric_apply, .f = sigmoid_of},
    {.formula = "sigmoid_backward", .run = numeric_apply_backward, .f = sigmoid_derivative},
    {.formula = "relu", .run = numeric_apply, .f = relu},
    {.formula = "relu_backward", .run = numeric_apply_backward, .f = relu_derivative},
    {.formula = "exp", .run = numeric_apply, .f = exponential},
    {.formula = "exp_backward", .run = numeric_apply_backward, .f = exponential_derivative},
    {.formula = "clamp", .run = run_clamp},
    {.formula = "native_dropout", .run = run_dropout},
    {.formula = "native_dropout_backward", .run = run_dropout_backward},
    {0},
};
