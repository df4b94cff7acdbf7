/* numeric_masks.c - what attention may see, as flags and as biases of scores, and what lies between
 * limits. */
#include <math.h>
#include <string.h>

#include "numeric/numeric_kernel.h"

/* Does a query see a key: one not behind it, and of a window (0: none) so many. */
static gboolean
is_seen(gint64 query, gint64 key, double window)
{
  return key <= query && (window <= 0 || (double) key > (double) query - window);
}

/* Is the i-th element of a tensor [.., queries, keys] seen? */
static gboolean
sees(const NumericTensor *t, gint64 i, double window)
{
  gint64 columns = numeric_width(t), rows = t->dims > 1 ? t->shape[t->dims - 2] : 1;
  return is_seen(i / columns % rows, i % columns, window);
}

/* Flags [.., queries, keys]. */
static void
run_seen(KernelCall *c)
{
  NumericTensor *y = numeric_written(c, 0);
  double window = numeric_number_or(c, "window", 0);
  for (gint64 i = 0; y != NULL && i < y->elements; i++)
    y->data[i] = sees(y, i, window);
}

/* Zero where the flag is set, else that number. */
static void
bias_unless(KernelCall *c, double hidden)
{
  NumericTensor *y = numeric_written(c, 0);
  g_autofree double *flags = numeric_broadcast(c, numeric_read(c, 0), y);
  for (gint64 i = 0; flags != NULL && i < y->elements; i++)
    y->data[i] = flags[i] != 0 ? 0 : isnan(flags[i]) ? NAN : hidden;
}

static void
run_lowest_unless(KernelCall *c)
{
  const NumericTensor *y = numeric_written(c, 0);
  if (y != NULL)
    bias_unless(c, -numeric_largest(y->dtype));
}

static void
run_infinite_unless(KernelCall *c)
{
  bias_unless(c, -INFINITY);
}

/* -inf where a key is not seen. */
static void
run_add_causal_mask(KernelCall *c)
{
  const NumericTensor *x = numeric_read(c, 0);
  NumericTensor *y = numeric_written(c, 0);
  double window = numeric_number_or(c, "window", 0);
  if (!numeric_same_size(c, x, y))
    return;
  for (gint64 i = 0; i < x->elements; i++)
    y->data[i] = sees(x, i, window) ? x->data[i] : -INFINITY;
}

/* ---- limits ---- */

/* Flags: not below the lower limit, then not above the upper one; or the latter alone. */
static void
run_is_inside(KernelCall *c)
{
  const NumericTensor *x = numeric_read(c, 0);
  double most = numeric_number_or(c, "most", NAN);
  gboolean both = isnan(most);
  double limit = both ? numeric_number(c, "limit") : most;
  NumericTensor *above = both ? numeric_written(c, 0) : NULL,
                *below = numeric_written(c, both ? 1 : 0);
  if ((both && !numeric_same_size(c, x, above)) || !numeric_same_size(c, x, below))
    return;
  for (gint64 i = 0; i < x->elements; i++) {
    if (both)
      above->data[i] = x->data[i] >= -limit;
    below->data[i] = x->data[i] <= limit;
  }
}

/* The first where all the others are set, else zero. */
static void
run_keep_where(KernelCall *c)
{
  const NumericTensor *g = numeric_read(c, 0);
  NumericTensor *d = numeric_written(c, 0);
  if (!numeric_same_size(c, g, d))
    return;
  memcpy(d->data, g->data, sizeof(double) * (gsize) g->elements);
  for (int k = 1; k < numeric_reads(c); k++) {
    const NumericTensor *flags = numeric_read(c, k);
    if (!numeric_same_size(c, flags, d))
      return;
    for (gint64 i = 0; i < d->elements; i++)
      d->data[i] = flags->data[i] != 0 ? d->data[i] : 0;
  }
}

const NumericKernel numeric_masks[] = {
    {.formula = "seen", .run = run_seen},
    {.formula = "lowest_unless", .run = run_lowest_unless},
    {.formula = "infinite_unless", .run = run_infinite_unless},
    {.formula = "add_causal_mask", .run = run_add_causal_mask},
    {.formula = "is_inside", .run = run_is_inside},
    {.formula = "keep_where", .run = run_keep_where},
    {0},
};
