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

/* Reads x, perhaps a gain, perhaps a bias; writes y, mean, rstd. */
static void
run_layer_norm(KernelCall *c)
{
  const NumericTensor *x = numeric_read(c, 0),
                      *gain = numeric_reads(c) > 1 ? numeric_read(c, 1) : NULL,
                      *bias = numeric_reads(c) > 2 ? numeric_read(c, 2) : NULL;
  NumericTensor *y = numeric_written(c, 0), *mean = numeric_written(c, 1),
                *rstd = numeric_written(c, 2);
  if (!numeric_same_size(c, x, y) || mean == NULL || rstd == NULL)
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
      y->data[row * width + i] =
          (in[i] - mean->data[row]) * rstd->data[row] * (gain != NULL ? gain->data[i] : 1) +
          (bias != NULL ? bias->data[i] : 0);
  }
}

/* Operands of a backward kernel that may be missing: its meaning says which there are, as bits. */
enum { HAS_GAIN = 1, HAS_DX = 2, HAS_DGAIN = 4, HAS_DBIAS = 8, HAS_ALL = 15 };

typedef struct {
  const NumericTensor *g, *x, *gain, *mean, *rstd;
  NumericTensor *dx, *dgain, *dbias;
  gint64 width;
} NormBackward;

/* Reads g, x, the gain, the mean if there is one, rstd; writes gradients of the input, the gain and
 * the bias. */
static gboolean
read_backward(KernelCall *c, gboolean centred, NormBackward *n)
{
  int has = (int) numeric_number_or(c, "has", centred ? HAS_ALL : HAS_ALL & ~HAS_DBIAS);
  int reads = 2, writes = 0;
  *n = (NormBackward){.g = numeric_read(c, 0), .x = numeric_read(c, 1)};
  if (has & HAS_GAIN)
    n->gain = numeric_read(c, reads++);
  if (centred)
    n->mean = numeric_read(c, reads++);
  n->rstd = numeric_read(c, reads);
  if (has & HAS_DX)
    n->dx = numeric_written(c, writes++);
  if (has & HAS_DGAIN)
    n->dgain = numeric_written(c, writes++);
  if (has & HAS_DBIAS)
    n->dbias = numeric_written(c, writes);
  if (c->fault != NULL || !numeric_same_size(c, n->g, n->x))
    return FALSE;
  n->width = numeric_width(n->x);
  if (n->rstd->elements * n->width != n->x->elements ||
      (n->dx != NULL && n->dx->elements != n->x->elements) ||
      (n->dgain != NULL && n->dgain->elements != n->width) ||
      (n->dbias != NULL && n->dbias->elements != n->width)) {
    numeric_fail(c, "its operands are not those of a norm over the last dimension");
    return FALSE;
  }
  if (n->dgain != NULL)
    memset(n->dgain->data, 0, sizeof(double) * (gsize) n->width);
  if (n->dbias != NULL)
    memset(n->dbias->data, 0, sizeof(double) * (gsize) n->width);
  return TRUE;
}

/* y = (x - mean) rstd; dx = rstd (up - mean(up) - y mean(up y)), up being g times the gain; without
 * a mean the second term is missing. */
static void
norm_backward_row(const NormBackward *n, gint64 row)
{
  const double *in = n->x->data + row * n->width, *g = n->g->data + row * n->width;
  double r = n->rstd->data[row], mean = n->mean != NULL ? n->mean->data[row] : 0, sum = 0, dot = 0;
  for (gint64 i = 0; i < n->width; i++) {
    double normed = (in[i] - mean) * r, up = n->gain != NULL ? g[i] * n->gain->data[i] : g[i];
    sum += up;
    dot += up * normed;
    if (n->dgain != NULL)
      n->dgain->data[i] += g[i] * normed;
    if (n->dbias != NULL)
      n->dbias->data[i] += g[i];
  }
  sum = n->mean != NULL ? sum / (double) n->width : 0;
  dot /= (double) n->width;
  for (gint64 i = 0; n->dx != NULL && i < n->width; i++) {
    double normed = (in[i] - mean) * r, up = n->gain != NULL ? g[i] * n->gain->data[i] : g[i];
    n->dx->data[row * n->width + i] = r * (up - sum - normed * dot);
  }
}

static void
norm_backward(KernelCall *c, gboolean centred)
{
  NormBackward n;
  if (!read_backward(c, centred, &n))
    return;
  for (gint64 row = 0; row < n.x->elements / n.width; row++)
    norm_backward_row(&n, row);
}

static void
run_rms_norm_backward(KernelCall *c)
{
  norm_backward(c, FALSE);
}

static void
run_layer_norm_backward(KernelCall *c)
{
  norm_backward(c, TRUE);
}

const NumericKernel numeric_norms[] = {
    {.formula = "fused_rms_norm", .run = run_rms_norm},
    {.formula = "rms_norm_backward", .run = run_rms_norm_backward},
    {.formula = "native_layer_norm", .run = run_layer_norm},
    {.formula = "layer_norm_backward", .run = run_layer_norm_backward},
    {0},
};
