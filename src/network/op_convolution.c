/* op_convolution.c - recipe of convolutions as cuDNN computes them, without the workspace that it
 * asks for: how much that is depends on the algorithm that it chooses. */
#include "network/op_recipe.h"

/* As a matrix product: positions of the output x channels out, over what a kernel sees. */
static GemmSize
convolution_size(const OpCase *c)
{
  gint64 channels = c->in[1].shape[0];
  return (GemmSize){.batch = 1,
                    .m = value_elements(&c->out[0]) / channels,
                    .n = channels,
                    .k = value_elements(&c->in[1]) / channels};
}

/* cudnn_convolution, then output.add_(bias) (aten/src/ATen/native/Convolution.cpp, _convolution).
 */
void
forward_convolution(OpCase *c)
{
  recipe_out(c, 0, "convolution");
  recipe_gemm(c, "convolution", convolution_size(c), "i0 i1 >o0");
  if (c->ins > 2)
    recipe_launch(c, "add", KERNEL_MEMORY, 0, "i2 +o0");
}

/* flag: the gradient comes with channels inside.  Input and weight from the contiguous gradient
 * (native/cudnn/ConvShared.cpp, cudnn_convolution_backward), then sums for the bias from the one
 * that came. */
void
backward_convolution(OpCase *c)
{
  GemmSize size = convolution_size(c);
  int gradient = recipe_contiguous_incoming(c, "contiguous gradient");
  if (recipe_wants(c, 0)) {
    recipe_grad(c, 0, ORDER_DENSE);
    recipe_gemm(c, "convolution", (GemmSize){1, size.m, size.k, size.n}, "g0 i1 >d0");
  }
  if (recipe_wants(c, 1)) {
    recipe_grad(c, 1, ORDER_DENSE);
    recipe_gemm(c, "convolution", (GemmSize){1, size.n, size.k, size.m}, "g0 i0 >d1");
  }
  recipe_release(c, gradient);
  if (!recipe_wants(c, 2))
    return;
  if (c->at.flag) {
    recipe_replace(c, 2, recipe_column_sum(c, size.m, 2, BUFFER_INCOMING), ORDER_DENSE);
    return;
  }
  recipe_grad(c, 2, ORDER_DENSE); /* positions of a channel are contiguous: one block sums them */
  recipe_launch(c, "sum", KERNEL_MEMORY, 0, "g0 >d2");
}
