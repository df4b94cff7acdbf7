/* op_attention.c - recipes of attention kernels: flash, memory-efficient, and the softmaxes of
 * composed attention. */
#include <math.h>

#include "base/units.h"
#include "network/op_recipe.h"
#include "program/meaning.h"

/* Values may be wider or narrower than queries and keys. */
static gint64
value_head_dim(const OpCase *c)
{
  return c->in[2].shape[c->in[2].dims - 1];
}

/* Multiply-adds count two; the causal half of the square is what the kernels do, and all of it
 * under an explicit mask, which they only add. */
static gint64
key_length(const OpCase *c)
{
  return c->at.keys > 0 ? c->at.keys : c->at.length;
}

static gboolean
is_whole(const OpCase *c)
{
  return c->ins > 3 || c->at.whole;
}

static KernelKind
forward_kind(const OpCase *c)
{
  return is_whole(c) ? KERNEL_WHOLE_ATTENTION_FORWARD : KERNEL_ATTENTION_FORWARD;
}

static KernelKind
backward_kind(const OpCase *c)
{
  return is_whole(c) ? KERNEL_WHOLE_ATTENTION_BACKWARD : KERNEL_ATTENTION_BACKWARD;
}

static double
forward_flops(const OpCase *c)
{
  return (is_whole(c) ? 4.0 : 2.0) * (double) c->at.batch * (double) c->at.heads *
         (double) c->at.length * (double) key_length(c) * 0.5 *
         (double) (c->at.head_dim + value_head_dim(c));
}

enum { ALL_WANTED = 7 };

/* Which of the operands' gradients a backward kernel gives, as bits. */
static int
wanted_gradients(OpCase *c)
{
  int bits = 0;
  for (int i = 0; i < 3; i++)
    bits |= recipe_wants(c, i) << i;
  return bits;
}

/* The scale of the scores, where it is not that of the head dim (which may be padded).  What nobody
 * has said yet: queries that see all keys, other lengths or widths of values. */
static void
attention_means(OpCase *c, const char *formula, int wanted)
{
  gboolean plain =
      !c->at.whole && key_length(c) == c->at.length && value_head_dim(c) == c->at.head_dim;
  if (!plain) {
    recipe_means(c, "attention_of_another_kind", NULL, 0);
    return;
  }
  GString *text = g_string_new(formula);
  if (c->at.key != NULL)
    meaning_append(text, c->at.key, c->at.number);
  if (c->at.window > 0)
    meaning_append(text, "window", (double) c->at.window);
  if (c->at.dropout > 0)
    meaning_append(text, "dropout", c->at.dropout);
  if (wanted != ALL_WANTED)
    meaning_append(text, "wanted", wanted);
  recipe_means_text(c, g_string_free(text, FALSE));
}

/* ---- flash attention (FlashAttention-2 as vendored:
 * aten/src/ATen/native/transformers/cuda/flash_attn) ---- */

/* How well n splits fill the device: whole waves of blocks over blocks. */
static double
split_efficiency(double blocks_per_wave, int n)
{
  double waves = blocks_per_wave * n;
  return waves / ceil(waves);
}

/* A number of splits is worth trying only if it makes blocks of another size than one split less.
 */
static gboolean
split_differs(gint64 blocks, int n)
{
  return n == 1 || ceil_div(blocks, n) != ceil_div(blocks, n - 1);
}

/* Head dim of the kernels' fp32 accumulators: a multiple of 32, of 64 when wide (flash_api.cpp,
 * head_size_rounded). */
static gint64
kernel_head_dim(const OpCase *c)
{
  return round_up(c->at.head_dim, c->at.head_dim <= 128 ? 32 : 64);
}

/* flash_api.cpp, num_splits_heuristic: with too few blocks for the device, keys are split and
 * partial results kept. */
static int
flash_splits(const OpCase *c)
{
  gint64 block_keys = c->at.head_dim <= 64 ? 256 : c->at.head_dim <= 128 ? 128 : 64;
  gint64 key_blocks = ceil_div(key_length(c), block_keys);
  gint64 query_blocks = c->at.batch * c->at.heads * ceil_div(c->at.length, 64);
  int slots = c->device.sms * 2;
  if ((double) query_blocks >= 0.8 * slots)
    return 1;
  int most = (int) MIN(MIN(128, slots), key_blocks);
  double per_wave = (double) query_blocks / slots, best = 0;
  for (int n = 1; n <= most; n++)
    if (split_differs(key_blocks, n))
      best = MAX(best, split_efficiency(per_wave, n));
  for (int n = 1; n <= most; n++)
    if (split_differs(key_blocks, n) && split_efficiency(per_wave, n) >= 0.85 * best)
      return n;
  return 1;
}

/* Operands and output are [batch, heads, length, head_dim]; kernels see them transposed, [batch,
 * length, heads, head_dim].  What empty_like makes there, seen from here. */
static ValueInfo
like_operand(const ValueInfo *operand)
{
  ValueInfo inside = *operand, made;
  value_swap(&inside, 1, 2);
  made = inside;
  value_order_like(&made, 1, &inside);
  value_swap(&made, 1, 2);
  return made;
}

/* A row-major tensor of the operand's shape there, seen from here. */
static ValueInfo
heads_inside(const ValueInfo *operand)
{
  ValueInfo made = *operand;
  value_swap(&made, 1, 2);
  value_set_contiguous(&made);
  value_swap(&made, 1, 2);
  return made;
}

static gboolean
is_row_major_inside(const ValueInfo *operand)
{
  ValueInfo inside = *operand;
  value_swap(&inside, 1, 2);
  return value_is_contiguous(&inside);
}

void
shape_flash_attention(OpCase *c)
{
  c->outs = 4;
  c->out[0] = like_operand(&c->in[0]);
  c->out[1] = value_vector(c->at.batch * c->at.heads * c->at.length, DTYPE_FP32); /* logsumexp */
  c->out[2] = value_vector(2, DTYPE_INT64);                                       /* rng_state */
  c->out[3] = value_vector(1, DTYPE_INT64);                                       /* unused */
}

void
forward_flash_attention(OpCase *c)
{
  gboolean dropout = c->at.flag;
  gint64 rows = c->at.batch * c->at.heads * c->at.length;
  int splits = dropout ? 1 : flash_splits(c);
  int lse_parts = 0, out_parts = 0;
  recipe_out(c, 0, "attention");
  recipe_out(c, 1, "logsumexp");
  if (splits > 1) {
    lse_parts = recipe_temp(c, 4 * splits * rows, "split logsumexp");
    out_parts = recipe_temp(c, 4 * splits * rows * kernel_head_dim(c), "split outputs");
  }
  int seed = dropout ? recipe_temp(c, 16, "dropout seed") : 0;
  if (dropout) { /* the generator's state is copied out after the unused scalar */
    recipe_out(c, 3, "unused");
    recipe_out(c, 2, "rng_state");
    recipe_release(c, seed);
  } else {
    recipe_out(c, 2, "rng_state");
    recipe_out(c, 3, "unused");
  }
  attention_means(c, "flash_attention", ALL_WANTED);
  recipe_launch(c, "flash_attention", forward_kind(c), forward_flops(c),
                "i0 i1 i2 >o0 >o1 >o2 >o3");
  if (splits > 1) {
    recipe_release(c, lse_parts);
    recipe_release(c, out_parts);
  }
}

/* _flash_attention_backward makes the gradient and the output contiguous; then the workspaces of
 * mha_bwd: row sums, the fp32 accumulator of dq, and per-head dk, dv when heads share keys. */
void
backward_flash_attention(OpCase *c)
{
  const OpAttributes *at = &c->at;
  gint64 padded_length = round_up(at->length, 128), padded_dim = kernel_head_dim(c);
  int gradient = recipe_contiguous_inside(c, "contiguous gradient");
  int output = is_row_major_inside(&c->out[0])
                   ? 0
                   : recipe_temp(c, value_bytes(&c->out[0]), "contiguous output");
  int unwanted[3];
  recipe_grads_together(c, 3, ORDER_LIKE_OPERAND, unwanted);
  int row_sums = recipe_temp(c, 4 * at->batch * at->heads * padded_length, "softmax_d");
  int dq = recipe_temp(c, 4 * at->batch * padded_length * at->heads * padded_dim, "dq_accum");
  if (at->kv_heads != at->heads) {
    gint64 bytes = value_bytes(&c->in[0]);
    int dk = recipe_temp(c, bytes, "dk_expanded"), dv = recipe_temp(c, bytes, "dv_expanded");
    recipe_release(c, dv);
    recipe_release(c, dk);
  }
  attention_means(c, "flash_attention_backward", wanted_gradients(c));
  recipe_launch(c, "flash_attention_backward", backward_kind(c), 2.5 * forward_flops(c),
                "g0 i0 i1 i2 o0 o1 >d0 >d1 >d2");
  recipe_release(c, dq);
  recipe_release(c, row_sums);
  if (output != 0)
    recipe_release(c, output);
  recipe_release(c, gradient);
  recipe_release_unwanted(c, 3, unwanted);
}

/* ---- memory-efficient attention (aten/src/ATen/native/transformers/cuda/mem_eff_attention) ----
 */

void
shape_efficient_attention(OpCase *c)
{
  ValueInfo out = c->in[0]; /* as many rows as queries, as wide as values */
  out.shape[out.dims - 1] = value_head_dim(c);
  c->outs = 2;
  c->out[0] = heads_inside(&out);
  c->out[1] = value_vector(c->at.batch * c->at.heads * round_up(c->at.length, 32), DTYPE_FP32);
}

/* 16-bit kernels keep head dims up to 128 in registers; wider outputs are accumulated in memory, in
 * fp32 (kNeedsOutputAccumulatorBuffer, mem_eff_attention/kernel_forward.h). */
void
forward_efficient_attention(OpCase *c)
{
  enum { WIDEST_IN_REGISTERS = 128 };
  gboolean half = dtype_size((DType) c->in[0].dtype) == 2;
  int accumulator = 0;
  recipe_out(c, 0, "attention");
  recipe_out(c, 1, "logsumexp");
  if (half && MAX(c->at.head_dim, value_head_dim(c)) > WIDEST_IN_REGISTERS)
    accumulator = recipe_temp(c, 4 * value_elements(&c->out[0]), "output accumulator");
  attention_means(c, "efficient_attention", ALL_WANTED);
  recipe_launch(c, "efficient_attention", forward_kind(c), forward_flops(c), "i0 i1 i2 i3 >o0 >o1");
  if (accumulator != 0)
    recipe_release(c, accumulator);
}

/* A backward kernel's tile.  The first row of the dtype that is wide enough runs: the order of
 * dispatch_cutlassB_*_sm80 (mem_eff_attention/kernels/cutlassB.h), given a device with enough
 * shared memory for each. */
typedef struct {
  gint64 widest;             /* head dim */
  gint64 queries, keys;      /* kBlockSizeI, kBlockSizeJ */
  gboolean accumulates_keys; /* dk, dv of 16-bit kernels do not fit in registers */
} EfficientTile;

static const EfficientTile half_tiles[] = {
    {64, 64, 64, FALSE}, {128, 128, 128, FALSE}, {G_MAXINT64, 128, 64, TRUE}};
static const EfficientTile float_tiles[] = {{64, 64, 64, FALSE}, {G_MAXINT64, 128, 64, FALSE}};

/* Into how many parts keys are split (_efficient_attention_backward, attention_backward.cu). */
static gint64
key_splits(const OpCase *c, const EfficientTile *tile)
{
  gint64 rows = c->at.batch * c->at.heads, splits = ceil_div(key_length(c), tile->keys);
  if (rows >= 256 && key_length(c) <= 2 * tile->keys)
    splits = 1;
  if (tile->accumulates_keys)
    splits = MIN(splits, 200 / rows);
  return MAX(splits, 1);
}

/* Accumulators in fp32: of dq, one tile and its lock per block of queries and of columns; of dk and
 * dv, one block of keys per split (Params::workspace_size, kernel_backward.h). */
static gint64
efficient_workspace(const OpCase *c)
{
  enum { LOCK_BYTES = 16 };
  const EfficientTile *tile = dtype_size((DType) c->in[0].dtype) == 2 ? half_tiles : float_tiles;
  gint64 values = value_head_dim(c);
  while (tile->widest < MAX(c->at.head_dim, values))
    tile++;
  gint64 blocks = ceil_div(c->at.length, tile->queries) * ceil_div(c->at.head_dim, tile->keys);
  gint64 bytes = blocks * (LOCK_BYTES + 4 * tile->queries * tile->keys);
  if (tile->accumulates_keys)
    bytes += 4 * key_splits(c, tile) * tile->keys *
             (round_up(c->at.head_dim, tile->queries) + round_up(values, tile->queries));
  return c->at.batch * c->at.heads * round_up(bytes, 16);
}

/* Row sums of grad * out.  fp32 kernels do not compute them: a product and a sum, [batch, length,
 * heads], made contiguous as [batch, heads, length]. */
static int
efficient_delta(OpCase *c)
{
  gint64 rows = c->at.batch * c->at.heads * c->at.length;
  if (dtype_size((DType) c->in[0].dtype) == 2)
    return recipe_temp(c, 4 * rows, "delta");
  int product = recipe_temp(c, 4 * rows * value_head_dim(c), "grad * out");
  int delta = recipe_temp(c, 4 * rows, "delta");
  if (c->at.heads > 1 && c->at.length > 1) {
    int sum = delta;
    delta = recipe_temp(c, 4 * rows, "delta");
    recipe_release(c, sum);
  }
  recipe_release(c, product);
  return delta;
}

void
backward_efficient_attention(OpCase *c)
{
  int unwanted[3];
  recipe_grads_together(c, 3, ORDER_HEADS_INSIDE, unwanted);
  recipe_grad(c, 3, ORDER_DENSE);
  int delta = efficient_delta(c);
  int workspace = recipe_temp(c, efficient_workspace(c), "efficient attention workspace");
  attention_means(c, "efficient_attention_backward", wanted_gradients(c));
  recipe_launch(c, "efficient_attention_backward", backward_kind(c), 2.5 * forward_flops(c),
                "g0 i0 i1 i2 i3 o0 o1 >d0 >d1 >d2 >d3");
  recipe_release(c, delta);
  recipe_release(c, workspace);
  recipe_release_unwanted(c, 3, unwanted);
}

/* ---- softmaxes ---- */

/* softmax and log_softmax along the last dimension: row-major, as their kernels want the input
 * (aten/src/ATen/native/cuda/SoftMax.cu, host_softmax). */
void
shape_softmax(OpCase *c)
{
  c->outs = 1;
  c->out[0] = c->in[0];
  value_set_contiguous(&c->out[0]);
}

void
forward_softmax(OpCase *c)
{
  recipe_out(c, 0, c->at.what != NULL ? c->at.what : c->info->name);
  int copy = recipe_contiguous_input(c);
  if (c->at.formula != NULL || c->at.key != NULL)
    recipe_means(c, c->at.formula != NULL ? c->at.formula : c->info->name, c->at.key, c->at.number);
  recipe_launch(c, c->info->name, KERNEL_MEMORY, 0, "i0 >o0");
  if (copy != 0)
    recipe_release(c, copy);
}

void
backward_softmax(OpCase *c)
{
  recipe_grad(c, 0, ORDER_DENSE);
  recipe_release(c, recipe_temp(c, value_bytes(&c->in[0]), "grad * output"));
  recipe_means(c, "softmax_backward", NULL, 0);
  recipe_launch(c, c->info->name, KERNEL_MEMORY, 0, "g0 o0 >d0");
}

/* _safe_softmax looks for rows that are masked whole: where(all(isneginf)). */
void
forward_safe_softmax(OpCase *c)
{
  gint64 elements = value_elements(&c->in[0]);
  recipe_out(c, 0, "attention probabilities");
  int infinite = recipe_temp(c, elements, "isneginf");
  int all = recipe_temp(c, elements / c->in[0].shape[c->in[0].dims - 1], "all(isneginf)");
  int zero = recipe_temp(c, 4, "zero");
  if (c->at.formula != NULL)
    recipe_means(c, c->at.formula, c->at.key, c->at.number);
  recipe_launch(c, "safe_softmax", KERNEL_MEMORY, 0, "i0 ~i1 >o0");
  recipe_release(c, zero);
  recipe_release(c, all);
  recipe_release(c, infinite);
}
