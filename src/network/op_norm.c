/* op_norm.c - recipes of fused norms: _fused_rms_norm and native_layer_norm. */
#include "base/units.h"
#include "network/op_recipe.h"

/* Rows that are normalised: everything but the last dimension. */
static gint64
norm_width(const OpCase *c)
{
  return c->in[0].shape[c->in[0].dims - 1];
}

static gint64
norm_rows(const OpCase *c)
{
  return value_elements(&c->in[0]) / norm_width(c);
}

/* The outputs, with such a copy around them. */
void
forward_norm(OpCase *c)
{
  int copy = recipe_contiguous_input(c);
  forward_outputs(c);
  if (copy != 0)
    recipe_release(c, copy);
}

void
shape_rms_norm(OpCase *c)
{
  c->outs = 2;
  c->out[0] = c->in[0];
  value_set_contiguous(&c->out[0]);
  c->out[1] = value_vector(norm_rows(c), DTYPE_FP32); /* rstd */
}

/* Rows of partial sums for gradients of gains, 0: none.  Many narrow rows are summed by a grid in
 * two dimensions, 32 rows at a time or more so that its blocks are not too many
 * (aten/src/ATen/native/cuda/layer_norm_kernel.cu, LaunchGammaBetaBackwardCUDAKernel). */
static gint64
partial_rows(const OpCase *c)
{
  enum { MANY_ROWS = 65536, ROWS = 32, COLUMNS = 32, MOST_BLOCKS = 32768 };
  gint64 rows = norm_rows(c), width = norm_width(c);
  if (rows <= MANY_ROWS || width / COLUMNS >= c->device.sms / 2)
    return 0;
  return MIN(ceil_div(rows, ROWS), MOST_BLOCKS / ceil_div(width, COLUMNS));
}

/* Which of the operands that may be missing there are, as bits: the gain, then gradients of the
 * input, the gain, the bias. */
static double
norm_operands(const OpCase *c, int n)
{
  int bits = c->ins > 1;
  for (int i = 0; i <= n; i++)
    bits |= recipe_wants(c, i) << (1 + i);
  return bits;
}

/* The kernel with the gradients of input 0, of the gain and, with n = 2, of the bias after it:
 * inputs 1 and 2.  It reads a row-major gradient (LayerNormBackwardKernelImpl and
 * RMSNormBackwardKernelImpl, dY.contiguous()).  Partial sums are what it writes in place of the
 * last two, and are summed after it. */
static void
norm_backward(OpCase *c, const char *name, const char *reads, int n)
{
  gint64 rows = partial_rows(c);
  int partial[2] = {0, 0};
  g_autoptr(GString) operands = g_string_new(reads);
  recipe_grad(c, 0, ORDER_DENSE);
  for (int i = 0; i < n; i++)
    recipe_grad(c, 1 + i, ORDER_DENSE);
  int copy = recipe_contiguous_incoming(c, "contiguous gradient");
  for (int i = 0; i < n; i++)
    if (rows > 0 && recipe_wants(c, 1 + i)) {
      partial[i] = recipe_temp(c, rows * value_bytes(&c->in[1 + i]), "partial sums");
      g_string_append_printf(operands, " >t%x", (guint) (partial[i] - BUFFER_TEMP));
    } else {
      g_string_append_printf(operands, " >d%d", 1 + i);
    }
  recipe_means(c, name, "has", norm_operands(c, n));
  recipe_launch(c, name, KERNEL_MEMORY, 0, operands->str);
  for (int i = 0; i < n; i++)
    if (partial[i] != 0) {
      int sum = recipe_column_sum(c, rows, 1 + i, partial[i]);
      recipe_replace(c, 1 + i, sum, ORDER_DENSE);
    }
  for (int i = n - 1; i >= 0; i--)
    if (partial[i] != 0)
      recipe_release(c, partial[i]);
  recipe_release(c, copy);
}

void
backward_rms_norm(OpCase *c)
{
  int copy = recipe_contiguous_input(c);
  norm_backward(c, "rms_norm_backward", "g0 i0 i1 o1 >d0", 1);
  if (copy != 0)
    recipe_release(c, copy);
}

void
shape_layer_norm(OpCase *c)
{
  c->outs = 3;
  c->out[0] = c->in[0];
  value_set_contiguous(&c->out[0]);
  c->out[1] = value_vector(norm_rows(c), DTYPE_FP32); /* mean */
  c->out[2] = c->out[1];                              /* rstd */
}

void
backward_layer_norm(OpCase *c)
{
  int copy = recipe_contiguous_input(c);
  norm_backward(c, "layer_norm_backward", "g0 i0 i1 o1 o2 >d0", 2);
  if (copy != 0)
    recipe_release(c, copy);
}
