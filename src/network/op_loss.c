/* op_loss.c - recipes of losses. */
#include "network/op_recipe.h"

/* Row-major, whatever the gradient's order (_log_softmax_backward_data, SoftMax.cpp). */
void
backward_log_softmax(OpCase *c)
{
  recipe_grad(c, 0, ORDER_DENSE);
  recipe_means(c, "log_softmax_backward", NULL, 0);
  recipe_launch(c, c->info->name, KERNEL_MEMORY, 0, "g0 o0 >d0");
}

void
shape_nll_loss(OpCase *c)
{
  c->outs = 2;
  c->out[0] = value_vector(1, (DType) c->in[0].dtype); /* loss */
  c->out[0].dims = 0;
  c->out[1] = c->out[0]; /* total_weight */
}

/* The mean of all rows that count, or (flag) their sum. */
void
forward_nll_loss(OpCase *c)
{
  recipe_out(c, 0, "loss");
  recipe_out(c, 1, "total_weight");
  if (c->at.flag)
    recipe_means(c, "nll_loss", "sum", 1);
  recipe_launch(c, "nll_loss", KERNEL_MEMORY, 0, "~i0 i1 >o0 >o1");
}

void
backward_nll_loss(OpCase *c)
{
  recipe_grad(c, 0, ORDER_DENSE);
  if (c->at.flag)
    recipe_means(c, "nll_loss_backward", "sum", 1);
  recipe_launch(c, "nll_loss_backward", KERNEL_MEMORY, 0, "g0 i1 o1 >d0");
}

/* csrc/xentropy of flash-attn: a loss and a logsumexp for each row. */
void
shape_fused_cross_entropy(OpCase *c)
{
  c->outs = 2;
  c->out[0] = value_vector(c->in[0].shape[0], DTYPE_FP32);
  c->out[1] = c->out[0];
}

/* A row is read twice: for its sum of exponentials, and before it for its largest element. */
void
forward_fused_cross_entropy(OpCase *c)
{
  recipe_out(c, 0, "losses");
  recipe_out(c, 1, "logsumexp");
  recipe_launch(c, "fused_cross_entropy", KERNEL_MEMORY, 0, "i0 i0 i1 >o0 >o1");
}

void
backward_fused_cross_entropy(OpCase *c)
{
  recipe_grad(c, 0, ORDER_DENSE);
  recipe_launch(c, "fused_cross_entropy_backward", KERNEL_MEMORY, 0, "g0 i0 o1 i1 >d0");
}
