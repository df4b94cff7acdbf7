/* numeric_losses.c - look-ups by index: embeddings and cross-entropy, forward and backward. */
#include <math.h>
#include <string.h>

#include "numeric/numeric_kernel.h"

/* An index below n; a fault where it is none (memory that nobody wrote holds NaN). */
static gint64
index_at(KernelCall *c, const NumericTensor *indices, gint64 i, gint64 n)
{
  double value = indices->data[i];
  if (value >= 0 && value < (double) n)
    return (gint64) value;
  numeric_fail(c, "index %" G_GINT64_FORMAT " is %g, not one of 0..%" G_GINT64_FORMAT, i, value,
               n - 1);
  return 0;
}

/* Reads the table and the indices. */
static void
run_embedding(KernelCall *c)
{
  const NumericTensor *table = numeric_read(c, 0), *indices = numeric_read(c, 1);
  NumericTensor *y = numeric_written(c, 0);
  if (table == NULL || indices == NULL || y == NULL)
    return;
  gint64 width = numeric_width(table), rows = table->elements / MAX(width, 1);
  if (y->elements != indices->elements * width) {
    numeric_fail(c, "its result has not one row for each index");
    return;
  }
  for (gint64 i = 0; i < indices->elements; i++)
    memcpy(y->data + i * width, table->data + index_at(c, indices, i, rows) * width,
           sizeof(double) * (gsize) width);
}

/* Reads the gradient and the indices. */
static void
run_embedding_backward(KernelCall *c)
{
  const NumericTensor *g = numeric_read(c, 0), *indices = numeric_read(c, 1);
  NumericTensor *d = numeric_written(c, 0);
  if (g == NULL || indices == NULL || d == NULL)
    return;
  gint64 width = numeric_width(d), rows = d->elements / MAX(width, 1);
  memset(d->data, 0, sizeof(double) * (gsize) d->elements);
  for (gint64 i = 0; i < indices->elements && g->elements == indices->elements * width; i++) {
    double *row = d->data + index_at(c, indices, i, rows) * width;
    for (gint64 k = 0; k < width; k++)
      row[k] += g->data[i * width + k];
  }
}

/* ---- cross-entropy ---- */

static double
log_sum_exp(const double *x, gint64 n)
{
  double most = -INFINITY, sum = 0;
  for (gint64 i = 0; i < n; i++)
    most = MAX(most, x[i]);
  for (gint64 i = 0; i < n; i++)
    sum += exp(x[i] - most);
  return most + log(sum);
}

static void
run_log_softmax(KernelCall *c)
{
  const NumericTensor *x = numeric_read(c, 0);
  NumericTensor *y = numeric_written(c, 0);
  if (!numeric_same_size(c, x, y))
    return;
  gint64 width = numeric_width(x);
  for (gint64 row = 0; row < x->elements; row += width) {
    double sum = log_sum_exp(x->data + row, width);
    for (gint64 i = row; i < row + width; i++)
      y->data[i] = x->data[i] - sum;
  }
}

static void
run_log_softmax_backward(KernelCall *c)
{
  const NumericTensor *g = numeric_read(c, 0), *y = numeric_read(c, 1);
  NumericTensor *d = numeric_written(c, 0);
  if (!numeric_same_size(c, g, d) || !numeric_same_size(c, y, d))
    return;
  gint64 width = numeric_width(y);
  for (gint64 row = 0; row < y->elements; row += width) {
    double sum = 0;
    for (gint64 i = row; i < row + width; i++)
      sum += g->data[i];
    for (gint64 i = row; i < row + width; i++)
      d->data[i] = g->data[i] - exp(y->data[i]) * sum;
  }
}

/* A target that does not count: ignore_index. */
#define IGNORED -100.0

/* The mean over all rows that count, or (sum=1) their sum: reads logarithms and targets; writes the
 * loss and how many they are. */
static void
run_nll_loss(KernelCall *c)
{
  const NumericTensor *x = numeric_read(c, 0), *targets = numeric_read(c, 1);
  NumericTensor *loss = numeric_written(c, 0), *weight = numeric_written(c, 1);
  if (x == NULL || targets == NULL || loss == NULL || weight == NULL)
    return;
  gint64 width = numeric_width(x), rows = x->elements / MAX(width, 1);
  double sum = 0, counted = 0;
  if (targets->elements != rows) {
    numeric_fail(c, "not one target for each row");
    return;
  }
  for (gint64 i = 0; i < rows; i++) {
    if (targets->data[i] == IGNORED)
      continue;
    sum -= x->data[i * width + index_at(c, targets, i, width)];
    counted++;
  }
  loss->data[0] = numeric_number_or(c, "sum", 0) != 0 ? sum : sum / counted;
  weight->data[0] = counted;
}

/* Reads the gradient, the targets and how many rows. */
static void
run_nll_loss_backward(KernelCall *c)
{
  const NumericTensor *g = numeric_read(c, 0), *targets = numeric_read(c, 1),
                      *weight = numeric_read(c, 2);
  NumericTensor *d = numeric_written(c, 0);
  if (g == NULL || targets == NULL || weight == NULL || d == NULL)
    return;
  gint64 width = numeric_width(d);
  double rows = numeric_number_or(c, "sum", 0) != 0 ? 1 : weight->data[0];
  memset(d->data, 0, sizeof(double) * (gsize) d->elements);
  for (gint64 i = 0; i < targets->elements && targets->elements * width == d->elements; i++)
    if (targets->data[i] != IGNORED)
      d->data[i * width + index_at(c, targets, i, width)] = -g->data[0] / rows;
}

/* Reads the logits (twice) and the targets; writes a loss and a logsumexp for each row. */
static void
run_fused(KernelCall *c)
{
  const NumericTensor *x = numeric_read(c, 0), *targets = numeric_read(c, 2);
  NumericTensor *losses = numeric_written(c, 0), *sums = numeric_written(c, 1);
  if (x == NULL || targets == NULL || !numeric_same_size(c, losses, sums) ||
      !numeric_same_size(c, targets, losses))
    return;
  gint64 width = numeric_width(x);
  for (gint64 i = 0; i < losses->elements; i++) {
    sums->data[i] = log_sum_exp(x->data + i * width, width);
    losses->data[i] = sums->data[i] - x->data[i * width + index_at(c, targets, i, width)];
  }
}

/* Reads the gradient, the logits, their logsumexp and the targets. */
static void
run_fused_backward(KernelCall *c)
{
  const NumericTensor *g = numeric_read(c, 0), *x = numeric_read(c, 1), *sums = numeric_read(c, 2),
                      *targets = numeric_read(c, 3);
  NumericTensor *d = numeric_written(c, 0);
  if (g == NULL || sums == NULL || targets == NULL || !numeric_same_size(c, x, d) ||
      !numeric_same_size(c, targets, sums))
    return;
  g_autofree double *up = numeric_broadcast(c, g, sums);
  gint64 width = numeric_width(x);
  for (gint64 i = 0; up != NULL && i < sums->elements; i++) {
    for (gint64 k = i * width; k < (i + 1) * width; k++)
      d->data[k] = up[i] * exp(x->data[k] - sums->data[i]);
    d->data[i * width + index_at(c, targets, i, width)] -= up[i];
  }
}

const NumericKernel numeric_losses[] = {
    {.formula = "embedding", .run = run_embedding},
    {.formula = "embedding_dense_backward", .run = run_embedding_backward},
    {.formula = "log_softmax", .run = run_log_softmax},
    {.formula = "log_softmax_backward", .run = run_log_softmax_backward},
    {.formula = "nll_loss", .run = run_nll_loss},
    {.formula = "nll_loss_backward", .run = run_nll_loss_backward},
    {.formula = "fused_cross_entropy", .run = run_fused},
    {.formula = "fused_cross_entropy_backward", .run = run_fused_backward},
    {0},
};
