/* op_matmul.c - recipes of matrix products: mm, addmm, bmm, and DeepSpeed's linear layer. */
#include "network/op_recipe.h"

/* Sizes of in[self] [m,k] x in[mat2] [k,n]. */
static GemmSize
gemm_size(const OpCase *c, int self, int mat2)
{
  const ValueInfo *a = &c->in[self], *b = &c->in[mat2];
  GemmSize size = {.batch = 1, .k = a->shape[a->dims - 1], .n = b->shape[b->dims - 1]};
  if (b->dims > 2)
    size.batch = value_elements(b) / (size.k * size.n);
  size.m = value_elements(a) / (size.batch * size.k);
  return size;
}

void
shape_mm(OpCase *c)
{
  const ValueInfo *mat2 = &c->in[c->ins - 1];
  c->outs = 1;
  c->out[0] = c->in[c->ins - 2];
  c->out[0].shape[c->out[0].dims - 1] = mat2->shape[mat2->dims - 1];
  value_set_contiguous(&c->out[0]);
}

/* The gradients of the two factors, in ATen's order of derivatives (alphabetical by argument: rule
 * L4). */
static void
factor_gradients(OpCase *c, int self, int mat2, gboolean self_first)
{
  GemmSize size = gemm_size(c, self, mat2);
  GemmSize to_self = {size.batch, size.m, size.k, size.n},
           to_mat2 = {size.batch, size.k, size.n, size.m};
  g_autofree char *self_operands = g_strdup_printf("g0 i%d >d%d", mat2, self);
  g_autofree char *mat2_operands = g_strdup_printf("g0 i%d >d%d", self, mat2);
  for (int turn = 0; turn < 2; turn++) {
    gboolean is_self = (turn == 0) == self_first;
    if (!recipe_wants(c, is_self ? self : mat2))
      continue;
    recipe_grad(c, is_self ? self : mat2, size.batch == 1 ? ORDER_LIKE_INPUT : ORDER_DENSE);
    recipe_means(c, is_self ? "mm_grad_first" : "mm_grad_second", NULL, 0);
    recipe_gemm(c, c->info->name, is_self ? to_self : to_mat2,
                is_self ? self_operands : mat2_operands);
    if (size.batch == 1)
      recipe_workspace(c, WORKSPACE_CUBLAS); /* made after the first product's result */
  }
}

void
forward_mm(OpCase *c)
{
  recipe_out(c, 0, "linear");
  recipe_gemm(c, "mm", gemm_size(c, 0, 1), "i0 i1 >o0");
  recipe_workspace(c, WORKSPACE_CUBLAS);
}

void
backward_mm(OpCase *c)
{
  factor_gradients(c, 0, 1, FALSE); /* mat2, self */
}

void
forward_addmm(OpCase *c)
{
  recipe_out(c, 0, "linear");
  recipe_gemm(c, "addmm", gemm_size(c, 1, 2), "i0 i1 i2 >o0");
  recipe_workspace(c, WORKSPACE_CUBLAS);
  recipe_workspace(c, WORKSPACE_CUBLASLT); /* the bias is an epilogue of cublasLt */
}

void
backward_addmm(OpCase *c)
{
  factor_gradients(c, 1, 2, TRUE); /* mat1, mat2, self */
  recipe_pass(c, 0);
}

void
forward_bmm(OpCase *c)
{
  recipe_out(c, 0, c->at.what != NULL ? c->at.what : "bmm");
  recipe_gemm(c, "bmm", gemm_size(c, 0, 1), "i0 i1 >o0");
}

void
backward_bmm(OpCase *c)
{
  factor_gradients(c, 0, 1, FALSE); /* mat2, self */
}

/* input + alpha * batch1 batch2 */
void
forward_baddbmm(OpCase *c)
{
  recipe_out(c, 0, c->at.what != NULL ? c->at.what : "baddbmm");
  recipe_gemm(c, "baddbmm", gemm_size(c, 1, 2), "i0 i1 i2 >o0");
}

/* batch1, batch2: each a product, and then a product with alpha.  The input is a table without a
 * gradient. */
void
backward_baddbmm(OpCase *c)
{
  GemmSize size = gemm_size(c, 1, 2);
  const GemmSize sizes[] = {{size.batch, size.m, size.k, size.n},
                            {size.batch, size.k, size.n, size.m}};
  static const char *const products[] = {"g0 i2 >t0", "g0 i1 >t0"};
  static const char *const scaled[] = {"t0 >d1", "t0 >d2"};
  for (int i = 0; i < 2; i++) {
    if (!recipe_wants(c, 1 + i))
      continue;
    int product = recipe_temp(c, value_bytes(&c->in[1 + i]), "product");
    recipe_gemm(c, "bmm", sizes[i], products[i]);
    recipe_grad(c, 1 + i, ORDER_DENSE);
    recipe_launch(c, "mul", KERNEL_MEMORY, 0, scaled[i]);
    recipe_release(c, product);
  }
}

/* ---- LinearFunctionForZeroStage3 (deepspeed/runtime/zero/linear.py): input [.., k], weight [n,
 * k], bias [n] ---- */

void
shape_zero3_linear(OpCase *c)
{
  c->outs = 1;
  c->out[0] = c->in[0];
  c->out[0].shape[c->out[0].dims - 1] = c->in[1].shape[0];
  value_set_contiguous(&c->out[0]);
}

static GemmSize
zero3_linear_size(const OpCase *c)
{
  gint64 k = c->in[1].shape[1];
  return (GemmSize){.batch = 1, .m = value_elements(&c->in[0]) / k, .n = c->in[1].shape[0], .k = k};
}

/* output = input.matmul(weight.t()); output += bias */
void
forward_zero3_linear(OpCase *c)
{
  recipe_out(c, 0, "linear");
  recipe_means(c, "mm_grad_first", NULL, 0); /* times the transposed weight */
  recipe_gemm(c, "mm", zero3_linear_size(c), "i0 i1 >o0");
  recipe_workspace(c, WORKSPACE_CUBLAS);
  if (c->ins > 2)
    recipe_launch(c, "add", KERNEL_MEMORY, 0, "i2 +o0");
}

/* The input's gradient comes first, then the weight's, then the column sums of the bias. */
void
backward_zero3_linear(OpCase *c)
{
  GemmSize size = zero3_linear_size(c);
  if (recipe_wants(c, 0)) {
    recipe_grad(c, 0, ORDER_DENSE);
    recipe_gemm(c, "mm", (GemmSize){1, size.m, size.k, size.n}, "g0 i1 >d0");
    recipe_workspace(c, WORKSPACE_CUBLAS);
  }
  if (recipe_wants(c, 1)) {
    recipe_grad(c, 1, ORDER_DENSE);
    recipe_means(c, "mm_grad_weight", NULL, 0);
    recipe_gemm(c, "mm", (GemmSize){1, size.n, size.k, size.m}, "g0 i0 >d1");
    recipe_workspace(c, WORKSPACE_CUBLAS);
  }
  if (recipe_wants(c, 2))
    recipe_replace(c, 2, recipe_column_sum(c, size.m, 2, BUFFER_INCOMING), ORDER_DENSE);
}
