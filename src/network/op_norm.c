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

void
shape_rms_norm(OpCase *c)
{
  c->outs = 2;
  c->out[0] = c->in[0];
  value_set_contiguous(&c->out[0]);
  c->out[1] = value_vector(norm_rows(c), DTYPE_FP32); /* rstd */
}

/* Gradient of a gain: many narrow rows are first summed 32 at a time, then by columns
 * (aten/src/ATen/native/cuda/layer_norm_kernel.cu, the launch of GammaBetaBackward). */
static void
gain_gradient(OpCase *c, int i)
{
  enum { MANY_ROWS = 65536, ROWS_PER_PARTIAL = 32 };
  recipe_grad(c, i, ORDER_DENSE);
  gint64 rows = norm_rows(c), width = norm_width(c);
  if (!recipe_wants(c, i) || rows <= MANY_ROWS || width / 32 >= c->device.sms / 2)
    return;
  gint64 partials = ceil_div(rows, ROWS_PER_PARTIAL);
  int partial = recipe_temp(c, partials * value_bytes(&c->in[i]), "partial sums");
  int sum = recipe_column_sum(c, partials, &c->in[i], partial);
  recipe_replace(c, i, sum, ORDER_DENSE);
  recipe_release(c, partial);
}

void
backward_rms_norm(OpCase *c)
{
  recipe_grad(c, 0, ORDER_DENSE);
  gain_gradient(c, 1);
  recipe_launch(c, "rms_norm_backward", KERNEL_MEMORY, 0, "g0 i0 i1 o1 >d0 >d1");
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
  recipe_grad(c, 0, ORDER_DENSE);
  recipe_grad(c, 1, ORDER_DENSE);
  recipe_grad(c, 2, ORDER_DENSE);
  recipe_launch(c, "layer_norm_backward", KERNEL_MEMORY, 0, "g0 i0 i1 o1 o2 >d0 >d1 >d2");
}
