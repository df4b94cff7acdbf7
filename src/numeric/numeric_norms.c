/* numeric_norms.c - RMSNorm and LayerNorm over the last dimension, forward and backward. */
#include <math.h>
#include <string.h>

#include "numeric/numeric_kernel.h"

/* What is added to a variance where the kernel's meaning does not say it. */
#define DEFAULT_EPSILON 1e-5

static double
epsilon_of(const KernelCall *c)
{
  return numeric_number_or(c, "eps", DEFAULT_EPSILON);
}

/* Reads x, gain (and bias); writes y, rstd. */
static void
run_rms_norm(KernelCall *c)
{
  const NumericTensor *x = numeric_read(c, 0), *gain = numeric_read(c, 1);
  NumericTensor *y = numeric_written(c, 0), *rstd = numeric_written(c, 1);
  if (!numeric_same_size(c, x, y) || gain == NULL || rstd == NULL)
    return;
  gint64 width = numeric_width(x);
  for (gint64 row = 0; row < x->elements / width; row++) {
    const double *in = x->data + row * width;
    double sum = 0;
    for (gint64 i = 0; i < width; i++)
      sum += in[i] * in[i];
    rstd->data[row] = 1 / sqrt(sum / (double) width + epsilon_of(c));
    for (gint64 i = 0; i < width; i++)
      y->data[row * width + i] = in[i] * rstd->data[row] * gain->data[i];
  }
}

/* Reads g, x, gain, rstd; writes dx, and dgain where it is wanted. */
static void
run_rms_norm_backward(KernelCall *c)
{
  const NumericTensor *g = numeric_read(c, 0), *x = numeric_read(c, 1), *gain = numeric_read(c, 2),
                      *rstd = numeric_read(c, 3);
  if (!numeric_same_size(c, g, x) || rstd == NULL)
    return;
  gint64 width = numeric_width(x);
  NumericTensor *dx = NULL, *dgain = NULL;
  for (int i = 0; i < c->operands; i++)
    if (c->operand[i].role != ROLE_READ) {
      if (c->operand[i].elements == width && x->elements != width)
        dgain = &c->operand[i];
      else if (dx == NULL)
        dx = &c->operand[i];
      else
        dgain = &c->operand[i];
    }
  if (dgain != NULL)
    memset(dgain->data, 0, sizeof(double) * (gsize) width);
  for (gint64 row = 0; row < x->elements / width; row++) {
    const double *in = x->data + row * width, *up = g->data + row * width;
    double r = rstd->data[row], dot = 0;
    for (gint64 i = 0; i < width; i++)
      dot += up[i] * gain->data[i] * in[i];
    for (gint64 i = 0; i < width; i++) {
      if (dx != NULL)
        dx->data[row * width + i] =
            r * up[i] * gain->data[i] - r * r * r * in[i] * dot / (double) width;
      if (dgain != NULL)
        dgain->data[i] += up[i] * in[i] * r;
    }
  }
}

/* Reads x, gain, bias; writes y, mean, rstd. */
static void
run_layer_norm(KernelCall *c)
{
  const NumericTensor *x = numeric_read(c, 0), *gain = numeric_read(c, 1),
                      *bias = numeric_reads(c) > 2 ? numeric_read(c, 2) : NULL;
  NumericTensor *y = numeric_written(c, 0), *mean = numeric_written(c, 1),
                *rstd = numeric_written(c, 2);
  if (!numeric_same_size(c, x, y) || gain == NULL || mean == NULL || rstd == NULL)
    return;
  gint64 width = numeric_width(x);
  for (gint64 row = 0; row < x->elements / width; row++) {
    const double *in = x->data + row * width;
    double sum = 0, squares = 0;
    for (gint64 i = 0; i < width; i++)
      sum += in[i];
    mean->data[row] = sum / (double) width;
    for (gint64 i = 0; i < width; i++)
      squares += (in[i] - mean->data[row]) * (in[i] - mean->data[row]);
    rstd->data[row] = 1 / sqrt(squares / (double) width + epsilon_of(c));
    for (gint64 i = 0; i < width; i++)
      y->data[row * width + i] = (in[i] - mean->data[row]) * rstd->data[row] * gain->data[i] +
                                 (bias != NULL ? bias->data[i] : 0);
  }
}

/* Reads g, x, gain, mean, rstd; writes dx, dgain, dbias. */
static void
run_layer_norm_backward(KernelCall *c)
{
  const NumericTensor *g = numeric_read(c, 0), *x = numeric_read(c, 1), *gain = numeric_read(c, 2),
                      *mean = numeric_read(c, 3), *rstd = numeric_read(c, 4);
  NumericTensor *dx = numeric_written(c, 0), *dgain = numeric_written(c, 1),
                *dbias = numeric_written(c, 2);
  if (!numeric_same_size(c, g, x) || !numeric_same_size(c, x, dx) || dbias == NULL || rstd == NULL)
    return;
  gint64 width = numeric_width(x);
  memset(dgain->data, 0, sizeof(double) * (gsize) width);
  memset(dbias->data, 0, sizeof(double) * (gsize) width);
  for (gint64 row = 0; row < x->elements / width; row++) {
    const double *in = x->data + row * width, *up = g->data + row * width;
    double r = rstd->data[row], sum = 0, dot = 0;
    for (gint64 i = 0; i < width; i++) {
      double normed = (in[i] - mean->data[row]) * r;
      sum += up[i] * gain->data[i];
      dot += up[i] * gain->data[i] * normed;
      dgain->data[i] += up[i] * normed;
      dbias->data[i] += up[i];
    }
    for (gint64 i = 0; i < width; i++) {
      double normed = (in[i] - mean->data[row]) * r;
      dx->data[row * width + i] =
          r * (up[i] * gain->data[i] - sum / (double) width - normed * dot / (double) width);
    }
  }
}

const NumericKernel numeric_norms[] = {
    {.formula = "fused_rms_norm", .run = run_rms_norm},
    {.formula = "rms_norm_backward", .run = run_rms_norm_backward},
    {.formula = "native_layer_norm", .run = run_layer_norm},
    {.formula = "layer_norm_backward", .run = run_layer_norm_backward},
    {0},
};
