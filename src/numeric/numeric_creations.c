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

/* Positions along the last dimension. */
static void
run_arange(KernelCall *c)
{
  NumericTensor *y = numeric_written(c, 0);
  double first = numeric_number_or(c, "first", 0);
  for (gint64 i = 0; y != NULL && i < y->elements; i++)
    y->data[i] = first + (double) (i % numeric_width(y));
}

/* The angle of a position for the i-th of n pairs. */
static double
angle(double theta, gint64 position, gint64 i, gint64 n)
{
  return (double) position * pow(theta, -(double) i / (double) n);
}

/* [.., length, pairs] of cos + i sin. */
static void
run_rotary_complex(KernelCall *c)
{
  NumericTensor *y = numeric_written(c, 0);
  double theta = numeric_number(c, "theta");
  if (y == NULL || y->dims < 3)
    return;
  gint64 pairs = y->shape[y->dims - 2];
  for (gint64 i = 0; i < y->elements / 2; i++) {
    double a = angle(theta, i / pairs, i % pairs, pairs);
    y->data[2 * i] = cos(a);
    y->data[2 * i + 1] = sin(a);
  }
}

/* How a pair's angle stands in a row. */
typedef enum { HALVES, NEIGHBOURS, ONCE } Pairs;

static double
cosine(double angle, double number)
{
  (void) number;
  return cos(angle);
}

static double
sine(double angle, double number)
{
  (void) number;
  return sin(angle);
}

/* [length, elements], other dimensions of size one: the row's function of each angle. */
static void
rotary(KernelCall *c, Pairs how)
{
  NumericTensor *y = numeric_written(c, 0);
  double theta = numeric_number(c, "theta");
  if (y == NULL)
    return;
  gint64 width = numeric_width(y), pairs = MAX(how == ONCE ? width : width / 2, 1);
  for (gint64 i = 0; i < y->elements; i++) {
    gint64 element = i % width, pair = how == NEIGHBOURS ? element / 2 : element % pairs;
    y->data[i] = c->row->f(angle(theta, i / width, pair, pairs), 0);
  }
}

static void
run_rotary(KernelCall *c)
{
  rotary(c, HALVES);
}

static void
run_rotary_neighbours(KernelCall *c)
{
  rotary(c, NEIGHBOURS);
}

static void
run_rotary_once(KernelCall *c)
{
  rotary(c, ONCE);
}

/* Sines of a row's pairs, then their cosines. */
static void
run_rotary_sin_cos(KernelCall *c)
{
  NumericTensor *y = numeric_written(c, 0);
  double theta = numeric_number(c, "theta");
  gint64 width = y != NULL ? numeric_width(y) : 0, pairs = MAX(width / 2, 1);
  for (gint64 i = 0; y != NULL && i < y->elements; i++) {
    double a = angle(theta, i / width, i % width % pairs, pairs);
    y->data[i] = i % width < pairs ? sin(a) : cos(a);
  }
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
    {.formula = "rotary_cos", .run = run_rotary, .f = cosine},
    {.formula = "rotary_sin", .run = run_rotary, .f = sine},
    {.formula = "rotary_sin_cos", .run = run_rotary_sin_cos},
    {.formula = "rotary_cos_neighbours", .run = run_rotary_neighbours, .f = cosine},
    {.formula = "rotary_sin_neighbours", .run = run_rotary_neighbours, .f = sine},
    {.formula = "rotary_cos_once", .run = run_rotary_once, .f = cosine},
    {.formula = "rotary_sin_once", .run = run_rotary_once, .f = sine},
    {0},
};
