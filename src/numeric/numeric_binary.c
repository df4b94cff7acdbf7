/* numeric_binary.c - sums, differences, products and quotients of tensors that broadcast. */
#include <math.h>
#include <string.h>

#include "numeric/numeric_kernel.h"

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

static double
product(double a, double b)
{
  return a * b;
}

static double
difference(double a, double b)
{
  return a - b;
}

static double
quotient(double a, double b)
{
  return a / b;
}

static double
least(double a, double b)
{
  return isnan(a) ? a : fmin(a, b);
}

/* The row's function of the two that are read. */
static void
combine(KernelCall *c)
{
  NumericTensor *y = numeric_written(c, 0);
  g_autofree double *a = numeric_broadcast(c, numeric_read(c, 0), y);
  g_autofree double *b = numeric_broadcast(c, numeric_read(c, 1), y);
  for (gint64 i = 0; a != NULL && b != NULL && i < y->elements; i++)
    y->data[i] = c->row->f(a[i], b[i]);
}

/* The divisor's gradient: reads g, a and b of a / b. */
static void
run_div_grad_second(KernelCall *c)
{
  NumericTensor *d = numeric_written(c, 0);
  g_autofree double *g = numeric_broadcast(c, numeric_read(c, 0), d);
  g_autofree double *a = numeric_broadcast(c, numeric_read(c, 1), d);
  g_autofree double *b = numeric_broadcast(c, numeric_read(c, 2), d);
  for (gint64 i = 0; g != NULL && a != NULL && b != NULL && i < d->elements; i++)
    d->data[i] = -g[i] * (a[i] / b[i] / b[i]);
}

/* x [batch, length, .., pairs] times a table [length, pairs] of complex numbers, or their
 * conjugates: 1 or -1. */
static void
multiply_complex(KernelCall *c, double sign)
{
  const NumericTensor *x = numeric_read(c, 0), *table = numeric_read(c, 1);
  NumericTensor *y = numeric_written(c, 0);
  if (!numeric_same_size(c, x, y) || table == NULL)
    return;
  gint64 length = x->dims > 3 ? x->shape[1] : 1, pairs = x->shape[MAX(x->dims - 2, 0)];
  gint64 heads = x->elements / MAX(2 * x->shape[0] * length * pairs, 1);
  if (x->dims < 3 || table->dims < 3 || table->shape[table->dims - 3] < length ||
      table->shape[table->dims - 2] != pairs || table->elements > 2 * length * pairs) {
    numeric_fail(c, "the table is not one of positions and pairs");
    return;
  }
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

const NumericKernel numeric_binary[] = {
    {.formula = "add", .run = run_add},
    {.formula = "add_", .run = run_add},
    {.formula = "add_scalar_backward", .run = run_add},
    {.formula = "sub", .run = combine, .f = difference},
    {.formula = "mul", .run = combine, .f = product},
    {.formula = "div", .run = combine, .f = quotient},
    {.formula = "min", .run = combine, .f = least},
    {.formula = "div_grad_second", .run = run_div_grad_second},
    {.formula = "mul_complex", .run = run_mul_complex},
    {.formula = "mul_conjugate", .run = run_mul_conjugate},
    {0},
};
