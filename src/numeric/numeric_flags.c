/* numeric_flags.c - looking for what is no number: extremes, comparisons, and what is chosen by
 * them. */
#include <math.h>

#include "numeric/numeric_kernel.h"

typedef double (*Test)(double x);

static void
apply(KernelCall *c, Test test)
{
  const NumericTensor *x = numeric_read(c, 0);
  NumericTensor *y = numeric_written(c, 0);
  for (gint64 i = 0; numeric_same_size(c, x, y) && i < y->elements; i++)
    y->data[i] = test(x->data[i]);
}

static double
is_not_infinite(double x)
{
  return !isinf(x);
}

static double
is_infinite(double x)
{
  return isinf(x) != 0;
}

static double
is_number(double x)
{
  return !isnan(x);
}

static double
is_nan(double x)
{
  return isnan(x) != 0;
}

static double
is_negative(double x)
{
  return x < 0;
}

static double not(double x)
{
  return x == 0;
}

static void
run_is_less(KernelCall *c)
{
  const NumericTensor *x = numeric_read(c, 0);
  NumericTensor *y = numeric_written(c, 0);
  double value = numeric_number(c, "value");
  for (gint64 i = 0; numeric_same_size(c, x, y) && i < y->elements; i++)
    y->data[i] = x->data[i] < value;
}

static void
run_abs(KernelCall *c)
{
  apply(c, fabs);
}

static void
run_is_not_infinite(KernelCall *c)
{
  apply(c, is_not_infinite);
}

static void
run_is_infinite(KernelCall *c)
{
  apply(c, is_infinite);
}

static void
run_is_number(KernelCall *c)
{
  apply(c, is_number);
}

static void
run_is_nan(KernelCall *c)
{
  apply(c, is_nan);
}

static void
run_is_negative(KernelCall *c)
{
  apply(c, is_negative);
}

static void
run_not(KernelCall *c)
{
  apply(c, not );
}

/* ---- of two ---- */

static void
run_and(KernelCall *c)
{
  const NumericTensor *a = numeric_read(c, 0), *b = numeric_read(c, 1);
  NumericTensor *y = numeric_written(c, 0);
  for (gint64 i = 0; numeric_same_size(c, a, y) && numeric_same_size(c, b, y) && i < y->elements;
       i++)
    y->data[i] = a->data[i] != 0 && b->data[i] != 0;
}

static void
run_or(KernelCall *c)
{
  const NumericTensor *a = numeric_read(c, 0), *b = numeric_read(c, 1);
  NumericTensor *y = numeric_written(c, 0);
  for (gint64 i = 0; numeric_same_size(c, a, y) && numeric_same_size(c, b, y) && i < y->elements;
       i++)
    y->data[i] = a->data[i] != 0 || b->data[i] != 0;
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

static void
run_fill(KernelCall *c)
{
  NumericTensor *y = numeric_written(c, 0);
  double value = numeric_number(c, "value");
  for (gint64 i = 0; y != NULL && i < y->elements; i++)
    y->data[i] = value;
}

const NumericKernel numeric_flags[] = {
    {"abs", run_abs},
    {"is_not_infinite", run_is_not_infinite},
    {"is_infinite", run_is_infinite},
    {"is_number", run_is_number},
    {"is_nan", run_is_nan},
    {"is_negative", run_is_negative},
    {"is_less", run_is_less},
    {"not", run_not},
    {"and", run_and},
    {"or", run_or},
    {"amax", run_amax},
    {"amin", run_amin},
    {"any", run_any},
    {"unless", run_unless},
    {"where", run_where},
    {"masked_fill", run_masked_fill},
    {"fill", run_fill},
    {0},
};
