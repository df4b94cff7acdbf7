/* op_moe.c - recipes of what mixtures of experts are made of: choice of experts, sorting, indexing
 * and grouped matrix products. */
#include "base/units.h"
#include "network/cub.h"
#include "network/op_recipe.h"

static void
scratch(OpCase *c, gint64 bytes, const char *what)
{
  recipe_release(c, recipe_temp(c, bytes, what));
}

/* ---- topk: size[0] is k, of the last dimension; values and indices ---- */

void
shape_topk(OpCase *c)
{
  c->outs = 2;
  c->out[0] = c->in[0];
  c->out[0].shape[c->out[0].dims - 1] = c->at.size[0];
  value_set_contiguous(&c->out[0]);
  c->out[1] = value_like(&c->out[0], DTYPE_INT64);
}

/* Zeros, and the gradients scattered into them (value_selecting_reduction_backward). */
void
backward_topk(OpCase *c)
{
  recipe_grad(c, 0, ORDER_DENSE);
  recipe_launch(c, "topk_backward", KERNEL_MEMORY, 0, "g0 o1 >d0");
}

/* ---- sort of one row of int64; values and positions ---- */

void
shape_sort(OpCase *c)
{
  c->outs = 2;
  c->out[0] = c->out[1] = c->in[0];
}

/* Rows of at most 4096 are sorted by one block in place, longer ones by cub's radix sort; both
 * start from positions (aten/src/ATen/native/cuda/Sort.cpp). */
void
forward_sort(OpCase *c)
{
  enum { SMALL = 4096 };
  gint64 n = value_elements(&c->in[0]);
  recipe_out(c, 0, "sorted values");
  recipe_out(c, 1, "sorted positions");
  int positions = recipe_temp(c, 8 * n, "positions");
  if (n > SMALL)
    scratch(c, cub_sort_pairs_bytes(n, 64), "sort workspace");
  recipe_launch(c, "sort", KERNEL_MEMORY, 0, "i0 >o0 >o1");
  recipe_release(c, positions);
}

/* ---- x[i] and x[i, j]: the first dimensions of input 0 by equally long index vectors ---- */

void
shape_index(OpCase *c)
{
  const ValueInfo *x = &c->in[0], *index = &c->in[1];
  int indexed = c->ins - 1;
  c->outs = 1;
  c->out[0] = *index;
  c->out[0].dtype = x->dtype;
  for (int i = indexed; i < x->dims; i++)
    c->out[0].shape[c->out[0].dims++] = x->shape[i];
  value_set_contiguous(&c->out[0]);
}

/* Indices of int32 become int64 for the kernel's time; 0: they are. */
static int
wide_indices(OpCase *c)
{
  if (c->in[1].dtype != DTYPE_INT32)
    return 0;
  return recipe_temp(c, 8 * value_elements(&c->in[1]), "int64 indices");
}

static void
release_indices(OpCase *c, int wide)
{
  if (wide != 0)
    recipe_release(c, wide);
}

void
forward_index(OpCase *c)
{
  int wide = wide_indices(c);
  forward_outputs(c);
  release_indices(c, wide);
}

/* index_put_ with accumulation: positions as one number (remainder, times the stride, added up),
 * sorted with where they came from (aten/src/ATen/native/cuda/Indexing.cu, index_put_with_sort). */
static void
put_scratch(OpCase *c)
{
  gint64 n = value_elements(&c->in[1]), rows = 1;
  int linear = 0, wide = wide_indices(c);
  for (int i = 1; i < c->ins; i++) {
    int remainder = recipe_temp(c, 8 * n, "wrapped indices");
    int product = recipe_temp(c, 8 * n, "linear indices");
    recipe_release(c, remainder);
    if (linear != 0)
      recipe_release(c, product);
    else
      linear = product;
    rows *= c->in[0].shape[i - 1];
  }
  release_indices(c, wide);
  int sorted = recipe_temp(c, 8 * n, "sorted indices");
  int origin = recipe_temp(c, 8 * n, "original positions");
  int range = recipe_temp(c, 8 * n, "positions");
  scratch(c, cub_sort_pairs_bytes(n, cub_bits(rows - 1)), "sort workspace");
  recipe_launch(c, "index_put", KERNEL_MEMORY, 0, "g0 i1 i2 >d0");
  const int held[] = {range, origin, sorted, linear};
  for (guint i = 0; i < G_N_ELEMENTS(held); i++)
    recipe_release(c, held[i]);
}

void
backward_index(OpCase *c)
{
  recipe_grad(c, 0, ORDER_DENSE);
  put_scratch(c);
}

/* ---- self.index_add_(0, index, source): the output is self ---- */

void
forward_index_add(OpCase *c)
{
  recipe_alias(c, 0, 0);
  recipe_launch(c, "index_add", KERNEL_MEMORY, 0, "i1 i2 i2 +o0");
}

/* The gradient of source is a selection of rows, expanded to the shape of source, which is saved
 * for that; that of self passes through. */
void
backward_index_add(OpCase *c)
{
  recipe_pass(c, 0);
  recipe_grad(c, 2, ORDER_DENSE);
  recipe_launch(c, "index_select", KERNEL_MEMORY, 0, "i1 >d2");
}

/* ---- self[index] = source: the output is self, whose rows at the index get no gradient ---- */

void
forward_index_put(OpCase *c)
{
  int wide = wide_indices(c);
  recipe_alias(c, 0, 0);
  recipe_launch(c, "index_put", KERNEL_MEMORY, 0, "i1 i2 >o0");
  release_indices(c, wide);
}

void
backward_index_put(OpCase *c)
{
  int wide = wide_indices(c);
  recipe_grad(c, 2, ORDER_DENSE);
  recipe_launch(c, "index", KERNEL_MEMORY, 0, "g0 i1 >d2");
  release_indices(c, wide);
}

/* ---- gather(x, -1, index): elements of each row ---- */

void
shape_gather(OpCase *c)
{
  c->outs = 1;
  c->out[0] = value_like(&c->in[1], (DType) c->in[0].dtype);
  value_set_contiguous(&c->out[0]);
}

/* Zeros, scatter_add. */
void
backward_gather(OpCase *c)
{
  recipe_grad(c, 0, ORDER_DENSE);
  recipe_launch(c, "scatter_add", KERNEL_MEMORY, 0, "g0 i1 >d0");
}

/* ---- self /= other: what backward needs of self is cloned, output 1 ---- */

void
shape_divide_in_place(OpCase *c)
{
  c->outs = 2;
  c->out[0] = c->out[1] = c->in[0];
}

void
forward_divide_in_place(OpCase *c)
{
  recipe_out(c, 1, "dividend");
  recipe_alias(c, 0, 0);
  recipe_launch(c, "div", KERNEL_MEMORY, 0, "i0 i1 >o0 >o1");
}

/* other: -grad * ((self / other) / other); self: grad / other. */
void
backward_divide_in_place(OpCase *c)
{
  if (recipe_wants(c, 1)) {
    gint64 bytes = value_bytes(&c->out[0]);
    int quotient = recipe_temp(c, bytes, "quotient");
    int twice = recipe_temp(c, bytes, "quotient");
    int negative = recipe_temp(c, bytes, "negative gradient");
    recipe_grad_full(c, 1);
    recipe_launch(c, "div_backward", KERNEL_MEMORY, 0, "g0 o1 i1 >d1");
    recipe_release(c, negative);
    recipe_release(c, twice);
    recipe_release(c, quotient);
  }
  recipe_grad(c, 0, ORDER_LIKE_INCOMING);
  recipe_launch(c, "div", KERNEL_MEMORY, 0, "g0 i1 >d0");
}

/* ---- _grouped_mm: rows sorted by expert [s, k] x [experts, k, n], offsets of the experts; size[0]
 * is the busiest one's rows, size[1] those of all, if behind them there are more ---- */

typedef struct {
  gint64 experts, rows, k, n;
  gint64 busiest;
} Groups;

static Groups
groups_of(const OpCase *c)
{
  const ValueInfo *x = &c->in[0], *w = &c->in[1];
  gint64 rows = c->at.size[1] > 0 ? c->at.size[1] : x->shape[0];
  return (Groups){w->shape[0], rows, w->shape[1], w->shape[2], c->at.size[0]};
}

void
shape_grouped_mm(OpCase *c)
{
  c->outs = 1;
  c->out[0] = c->in[0];
  c->out[0].shape[1] = c->in[1].shape[2];
  value_set_contiguous(&c->out[0]);
}

/* CUTLASS' grouped kernel, for bf16 on sm_90 and sm_100, needs pointers, strides and sizes of every
 * problem and tensor maps for every SM; elsewhere products run one after the other into the result
 * (aten/src/ATen/native/cuda/GroupMM.cu, GroupedBlas.cpp). */
static void
grouped_scratch(OpCase *c)
{
  enum { PROBLEM = 60, TENSOR_MAPS = 512 };
  int generation = c->device.compute_capability / 10;
  if (c->out[0].dtype != DTYPE_BF16 || (generation != 9 && generation != 10))
    return;
  int problems = recipe_temp(c, PROBLEM * c->in[1].shape[0], "problems");
  scratch(c, (gint64) TENSOR_MAPS * c->device.sms, "tensor maps");
  recipe_release(c, problems);
}

enum { TILE_ROWS = 128, TILE_COLUMNS = 256 };

/* A tile belongs to one expert, so that every expert's rows are rounded up to tiles. */
static GemmSize
rows_size(const Groups *g, gint64 n, gint64 k)
{
  gint64 others = g->experts > 1 ? ceil_div(g->rows - g->busiest, g->experts - 1) : 0;
  gint64 rows = round_up(g->busiest, TILE_ROWS) + (g->experts - 1) * round_up(others, TILE_ROWS);
  return (GemmSize){1, rows, n, k};
}

/* Gradients of weights: experts' tiles are as deep as they have rows.  The kernel takes as long as
 * an SM's share of all of it, or as the deepest tile if that is longer. */
static GemmSize
weights_size(const Groups *g, int sms)
{
  gint64 tiles = g->experts * ceil_div(g->k, TILE_ROWS) * ceil_div(g->n, TILE_COLUMNS);
  gint64 waves = ceil_div(tiles, MAX(sms, 1));
  gint64 depth = MAX(ceil_div(g->rows, g->experts), g->busiest / waves);
  return (GemmSize){g->experts, g->k, g->n, depth};
}

static double
asked_flops(const Groups *g)
{
  return 2.0 * (double) g->rows * (double) g->n * (double) g->k;
}

void
forward_grouped_mm(OpCase *c)
{
  Groups g = groups_of(c);
  recipe_out(c, 0, "grouped linear");
  grouped_scratch(c);
  recipe_padded_gemm(c, "grouped_mm", rows_size(&g, g.n, g.k), asked_flops(&g), "i0 i1 i2 >o0");
}

/* mat2, then self. */
void
backward_grouped_mm(OpCase *c)
{
  Groups g = groups_of(c);
  if (recipe_wants(c, 1)) {
    recipe_grad(c, 1, ORDER_DENSE);
    grouped_scratch(c);
    recipe_padded_gemm(c, "grouped_mm", weights_size(&g, c->device.sms), asked_flops(&g),
                       "g0 i0 i2 >d1");
  }
  if (recipe_wants(c, 0)) {
    recipe_grad(c, 0, ORDER_DENSE);
    grouped_scratch(c);
    recipe_padded_gemm(c, "grouped_mm", rows_size(&g, g.k, g.n), asked_flops(&g), "g0 i1 i2 >d0");
  }
}
