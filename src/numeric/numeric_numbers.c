/* numeric_numbers.c - the numbers that a host has in hand: what it read of the device, and hands to
 * kernels as arguments.  Which of them a formula is about its meaning says: of=1; else the first.
 */
#include <math.h>

#include "numeric/numeric_kernel.h"

static double *
number_of(KernelCall *c)
{
  double of = numeric_number_or(c, "of", 0);
  if (of >= 0 && of < HOST_NUMBERS)
    return &c->place.number[(int) of];
  numeric_fail(c, "the host has not so many numbers");
  return &c->place.number[0];
}

/* ---- what the host makes of what it reads ---- */

static void
run_number_of(KernelCall *c)
{
  const NumericTensor *x = numeric_read(c, 0);
  if (x != NULL)
    *number_of(c) = x->data[0];
}

static void
run_number_zero(KernelCall *c)
{
  *number_of(c) = 0;
}

/* The root of what it reads, a sum of squares. */
static void
run_number_root_of(KernelCall *c)
{
  const NumericTensor *x = numeric_read(c, 0);
  if (x != NULL)
    *number_of(c) = sqrt(x->data[0]);
}

/* The norm of the number and all that it reads. */
static void
run_number_norm_with(KernelCall *c)
{
  double *number = number_of(c), sum = *number * *number;
  for (int i = 0; i < c->operands; i++)
    for (gint64 k = 0; k < c->operand[i].elements; k++)
      sum += c->operand[i].data[k] * c->operand[i].data[k];
  *number = sqrt(sum);
}

static void
run_number_power(KernelCall *c)
{
  double *number = number_of(c);
  *number = pow(*number, numeric_number(c, "power"));
}

static void
run_number_over(KernelCall *c)
{
  *number_of(c) /= numeric_number(c, "value");
}

/* What gradients of a norm are multiplied by so that it is `most` at most
 * (torch/nn/utils/clip_grad.py), and what they were multiplied by is gone. */
static void
run_number_clips(KernelCall *c)
{
  double *number = number_of(c);
  double most = numeric_number(c, "most"), scale = numeric_number_or(c, "scale", 1);
  *number = fmin(1, most / (*number + 1e-6)) / scale;
}

/* ---- handed to kernels ---- */

static void
run_fill_number(KernelCall *c)
{
  NumericTensor *y = numeric_written(c, 0);
  double value = pow(*number_of(c), numeric_number_or(c, "power", 1));
  for (gint64 i = 0; y != NULL && i < y->elements; i++)
    y->data[i] = value;
}

static void
run_scale_by_number(KernelCall *c)
{
  double factor = *number_of(c);
  for (int i = 0; i < c->operands; i++)
    for (gint64 k = 0; c->operand[i].role != ROLE_READ && k < c->operand[i].elements; k++)
      c->operand[i].data[k] *= factor;
}

const NumericKernel numeric_numbers[] = {
    {.formula = "number_of", .run = run_number_of},
    {.formula = "number_zero", .run = run_number_zero},
    {.formula = "number_root_of", .run = run_number_root_of},
    {.formula = "number_norm_with", .run = run_number_norm_with},
    {.formula = "number_power", .run = run_number_power},
    {.formula = "number_over", .run = run_number_over},
    {.formula = "number_clips", .run = run_number_clips},
    {.formula = "fill_number", .run = run_fill_number},
    {.formula = "scale_by_number", .run = run_scale_by_number},
    {0},
};
