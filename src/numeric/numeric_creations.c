/* numeric_creations.c - what is made from nothing: zeros and ones, positions, rotary tables. */
#include <math.h>
#include <string.h>

#include "numeric/numeric_kernel.h"

static void
fill(KernelCall *c, double value)
{
  for (int i = 0; i < c->operands; i++)
    for (gint64 k = 0; c->operand[i].role != ROLE_READ && k < c->operand[i].elements; k++)
      c->operand[i].data[k] = value;
}

static void
run_fill(KernelCall *c)
{
  fill(c, numeric_number(c, "value"));
}

static void
run_zeros(KernelCall *c)
{
  fill(c, 0);
}

static void
run_ones(KernelCall *c)
{
  fill(c, 1);
}

/* A tensor of which nobody has said what is in it: whoever reads it gets nothing good. */
static void
run_create(KernelCall *c)
{
  fill(c, NAN);
}

/* A scan of what nobody has said. */
static void
run_cumsum(KernelCall *c)
{
  fill(c, NAN);
}

static void
run_arange(KernelCall *c)
{
  NumericTensor *y = numeric_written(c, 0);
  for (gint64 i = 0; y != NULL && i < y->elements; i++)
    y->data[i] = (double) i;
}

/* The angle of a position for the i-th of n pairs. */
static double
angle(double theta, gint64 position, gint64 i, gint64 n)
{
  return (double) position * pow(theta, -(double) i / (double) n);
}

/* [length, pairs] of cos + i sin. */
static void
run_rotary_complex(KernelCall *c)
{
  NumericTensor *y = numeric_written(c, 0);
  double theta = numeric_number(c, "theta");
  if (y == NULL || y->dims != 3)
    return;
  gint64 pairs = y->shape[1];
  for (gint64 i = 0; i < y->elements / 2; i++) {
    double a = angle(theta, i / pairs, i % pairs, pairs);
    y->data[2 * i] = cos(a);
    y->data[2 * i + 1] = sin(a);
  }
}

/* [length, head dim]: the angles twice. */
static void
rotary(KernelCall *c, double (*f)(double))
{
  NumericTensor *y = numeric_written(c, 0);
  double theta = numeric_number(c, "theta");
  if (y == NULL)
    return;
  gint64 width = numeric_width(y), pairs = MAX(width / 2, 1);
  for (gint64 i = 0; i < y->elements; i++)
    y->data[i] = f(angle(theta, i / width, i % width % pairs, pairs));
}

static void
run_rotary_cos(KernelCall *c)
{
  rotary(c, cos);
}

static void
run_rotary_sin(KernelCall *c)
{
  rotary(c, sin);
}

const NumericKernel numeric_creations[] = {
    {.formula = "fill", .run = run_fill},
    {.formula = "zeros", .run = run_zeros},
    {.formula = "zeros_like", .run = run_zeros},
    {.formula = "zero", .run = run_zeros},
    {.formula = "foreach_zero", .run = run_zeros},
    {.formula = "ones_like", .run = run_ones},
    {.formula = "create", .run = run_create},
    {.formula = "cumsum", .run = run_cumsum},
    {.formula = "arange", .run = run_arange},
    {.formula = "rotary_complex", .run = run_rotary_complex},
    {.formula = "rotary_cos", .run = run_rotary_cos},
    {.formula = "rotary_sin", .run = run_rotary_sin},
    {0},
};
