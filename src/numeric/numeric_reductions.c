/* numeric_reductions.c - sums and means over dimensions, and what spreads a gradient over them. */
#include <math.h>
#include <string.h>

#include "numeric/numeric_kernel.h"

/* Adds x to y, whose shape broadcasts to x's. */
static void
add_reduced(KernelCall *c, const NumericTensor *x, NumericTensor *y, double factor)
{
  gint64 stride[TENSOR_MAX_DIMS + 1] = {0}, step = 1;
  if (x == NULL || y == NULL)
    return;
  gboolean fits = y->dims <= x->dims;
  for (int i = y->dims - 1, k = x->dims - 1; i >= 0 && fits; i--, k--) {
    fits = y->shape[i] == x->shape[k] || y->shape[i] == 1;
    stride[k] = y->shape[i] == 1 ? 0 : step;
    step *= y->shape[i];
  }
  if (!fits) {
    numeric_fail(c, "the sum's shape is no part of the addends'");
    return;
  }
  memset(y->data, 0, sizeof(double) * (gsize) y->elements);
  gint64 index[TENSOR_MAX_DIMS + 1] = {0}, at = 0;
  for (gint64 i = 0; i < x->elements; i++) {
    y->data[at] += x->data[i] * factor;
    for (int k = x->dims - 1; k >= 0; k--) {
      at += stride[k];
      if (++index[k] < x->shape[k])
        break;
      at -= stride[k] * x->shape[k];
      index[k] = 0;
    }
  }
}

/* A flat sum of rows: as many of them as make up the difference. */
static void
run_sum(KernelCall *c)
{
  const NumericTensor *x = numeric_read(c, 0);
  NumericTensor *y = numeric_written(c, 0);
  if (x == NULL || y == NULL)
    return;
  if (x->dims == 1 && y->dims == 1 && y->elements > 1 && x->elements % y->elements == 0) {
    memset(y->data, 0, sizeof(double) * (gsize) y->elements);
    for (gint64 i = 0; i < x->elements; i++)
      y->data[i % y->elements] += x->data[i];
    return;
  }
  add_reduced(c, x, y, 1);
}

static void
run_mean(KernelCall *c)
{
  const NumericTensor *x = numeric_read(c, 0);
  NumericTensor *y = numeric_written(c, 0);
  if (x != NULL && y != NULL)
    add_reduced(c, x, y, (double) y->elements / (double) MAX(x->elements, 1));
}

static void
run_mean_backward(KernelCall *c)
{
  const NumericTensor *g = numeric_read(c, 0);
  NumericTensor *d = numeric_written(c, 0);
  g_autofree double *wide = numeric_broadcast(c, g, d);
  for (gint64 i = 0; wide != NULL && i < d->elements; i++)
    d->data[i] = wide[i] * (double) g->elements / (double) d->elements;
}

static void
run_expand_backward(KernelCall *c)
{
  add_reduced(c, numeric_read(c, 0), numeric_written(c, 0), 1);
}

/* ---- norms of tensors ---- */

static double
norm_of(const NumericTensor *x)
{
  double sum = 0;
  for (gint64 i = 0; i < x->elements; i++)
    sum += x->data[i] * x->data[i];
  return sqrt(sum);
}

static void
run_vector_norm(KernelCall *c)
{
  const NumericTensor *x = numeric_read(c, 0);
  NumericTensor *y = numeric_written(c, 0);
  if (x != NULL && y != NULL)
    y->data[0] = norm_of(x);
}

/* Of all that is read, together: apex's multi_tensor_l2norm, squared. */
static void
run_sum_of_squares(KernelCall *c)
{
  NumericTensor *y = numeric_written(c, 0);
  double sum = 0;
  for (int i = 0; i < numeric_reads(c); i++) {
    double norm = norm_of(numeric_read(c, i));
    sum += norm * norm;
  }
  if (y != NULL)
    y->data[0] = sum;
}

/* Each tensor is followed by its norm; one without elements is not named. */
static void
run_foreach_norm(KernelCall *c)
{
  for (int i = 0; i < c->operands; i++) {
    NumericTensor *t = &c->operand[i];
    if (t->role == ROLE_READ)
      continue;
    t->data[0] = i > 0 && c->operand[i - 1].role == ROLE_READ ? norm_of(&c->operand[i - 1]) : 0;
  }
}

const NumericKernel numeric_reductions[] = {
    {.formula = "sum", .run = run_sum},
    {.formula = "mean", .run = run_mean},
    {.formula = "mean_backward", .run = run_mean_backward},
    {.formula = "expand_backward", .run = run_expand_backward},
    {.formula = "vector_norm", .run = run_vector_norm},
    {.formula = "norm", .run = run_vector_norm},
    {.formula = "foreach_norm", .run = run_foreach_norm},
    {.formula = "sum_of_squares", .run = run_sum_of_squares},
    {0},
};
