/* op_matmul.c - recipes of matrix products: mm, addmm, bmm. */
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
    recipe_grad(c, is_self ? self : mat2, ORDER_DENSE);
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
