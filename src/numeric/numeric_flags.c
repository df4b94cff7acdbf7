/* numeric_flags.c - looking for what is no number: extremes, comparisons, and what is chosen by
 * them. */
#include <math.h>

#include "numeric/numeric_kernel.h"

static double
is_not_infinite(double x, double number)
{
  (void) number;
  return !isinf(x);
}

static double
is_infinite(double x, double number)
{
  (void) number;
  return isinf(x) != 0;
}

static double
is_not(double x, double number)
{
  return x != number;
}

static double
is_number(double x, double number)
{
  (void) number;
  return !isnan(x);
}

static double
is_nan(double x, double number)
{
  (void) number;
  return isnan(x) != 0;
}

static double
is_negative(double x, double number)
{
  (void) number;
  return x < 0;
}

static double
is_zero(double x, double number)
{
  (void) number;
  return x == 0;
}

static double
is_less(double x, double number)
{
  return x < number;
}

static double
absolute(double x, double number)
{
  (void) number;
  return fabs(x);
}

/* ---- of two ---- */

/* Is so many of both set at least? */
static void
count_both(KernelCall *c, int least)
{
  const NumericTensor *a = numeric_read(c, 0), *b = numeric_read(c, 1);
  NumericTensor *y = numeric_written(c, 0);
  for (gint64 i = 0; numeric_same_size(c, a, y) && numeric_same_size(c, b, y) && i < y->elements;
       i++)
    y->data[i] = (a->data[i] != 0) + (b->data[i] != 0) >= least;
}

static void
run_and(KernelCall *c)
{
  count_both(c, 2);
}

static void
run_or(KernelCall *c)
{
  count_both(c, 1);
}

/* ---- of all elements ---- */

/* The largest (1) or smallest (-1); NaN if there is one. */
static void
extreme(KernelCall *c, double sign)
{
  const NumericTensor *x = numeric_read(c, 0);
  NumericTensor *y = numeric_written(c, 0);
  if (x == NULL || y == NULL)
    return;
  double found = -INFINITY;
  for (gint64 i = 0; i < x->elements; i++)
    found = isnan(x->data[i]) || sign * x->data[i] > found ? sign * x->data[i] : found;
  y->data[0] = sign * found;
}

static void
run_amax(KernelCall *c)
{
  extreme(c, 1);
}

static void
run_amin(KernelCall *c)
{
  extreme(c, -1);
}

static void
run_any(KernelCall *c)
{
  const NumericTensor *x = numeric_read(c, 0);
  NumericTensor *y = numeric_written(c, 0);
  if (x == NULL || y == NULL)
    return;
  y->data[0] = 0;
  for (gint64 i = 0; i < x->elements; i++)
    y->data[0] = y->data[0] != 0 || x->data[i] != 0;
}

/* ---- choices ---- */

/* The first, unless the second says that it is the third. */
static void
run_unless(KernelCall *c)
{
  const NumericTensor *value = numeric_read(c, 0), *flag = numeric_read(c, 1),
                      *other = numeric_read(c, 2);
  NumericTensor *y = numeric_written(c, 0);
  for (gint64 i = 0; other != NULL && numeric_same_size(c, value, y) && i < y->elements; i++)
    y->data[i] = flag->data[0] != 0 ? other->data[0] : value->data[i];
}

/* The second where the first says so, else the third. */
static void
run_where(KernelCall *c)
{
  const NumericTensor *flag = numeric_read(c, 0), *a = numeric_read(c, 1), *b = numeric_read(c, 2);
  NumericTensor *y = numeric_written(c, 0);
  for (gint64 i = 0; numeric_same_size(c, a, y) && numeric_same_size(c, b, y) && i < y->elements;
       i++)
    y->data[i] = flag->data[0] != 0 ? a->data[i] : b->data[i];
}

/* What is there becomes the second where the first says so. */
static void
run_masked_fill(KernelCall *c)
{
  const NumericTensor *mask = numeric_read(c, 0), *value = numeric_read(c, 1);
  NumericTensor *y = numeric_written(c, 0);
  for (gint64 i = 0; value != NULL && numeric_same_size(c, mask, y) && i < y->elements; i++)
    if (mask->data[i] != 0)
      y->data[i] = value->data[0];
}

const NumericKernel numeric_flags[] = {
    {.formula = "abs", .run = numeric_apply, .f = absolute},
    {.formula = "is_not_infinite", .run = numeric_apply, .f = is_not_infinite},
    {.formula = "is_infinite", .run = numeric_apply, .f = is_infinite},
    {.formula = "is_not", .run = numeric_apply, .f = is_not, .key = "value", .otherwise = NAN},
    {.formula = "is_number", .run = numeric_apply, .f = is_number},
    {.formula = "is_nan", .run = numeric_apply, .f = is_nan},
    {.formula = "is_negative", .run = numeric_apply, .f = is_negative},
    {.formula = "is_less", .run = numeric_apply, .f = is_less, .key = "value", .otherwise = NAN},
    {.formula = "not", .run = numeric_apply, .f = is_zero},
    {.formula = "and", .run = run_and},
    {.formula = "or", .run = run_or},
    {.formula = "amax", .run = run_amax},
    {.formula = "amin", .run = run_amin},
    {.formula = "any", .run = run_any},
    {.formula = "unless", .run = run_unless},
    {.formula = "where", .run = run_where},
    {.formula = "masked_fill", .run = run_masked_fill},
    {0},
};
