/* zero_step.c - the optimizer's step of ZeRO stages 1 and 2 (deepspeed 0.19.8,
 * runtime/zero/stage_1_and_2.py, step and what it calls): overflow test, norm, this rank's gradient
 * in fp32, clipping, the update of its partition, and the gather. */
#include "program/meaning.h"
#include "strategy/zero_offload.h"
#include "strategy/zero_reduce.h"
#include "strategy/zero_scalars.h"

enum { NORM_BYTES = 8 }; /* get_norm_dtype(): norms are taken in fp64 */

/* Element size of averaged gradients. */
static DType
averaged_dtype(const Zero *z)
{
  return zero_is_compact(z) ? DTYPE_FP32 : z->d.model;
}

/* In compact mode the pieces are views of the fp32 partition: one for each own parameter, and the
 * padding. */
static void
view_compact(StrategyContext *x, Zero *z)
{
  gint64 filled = 0;
  for (guint i = 0; i <= z->flat.own->len; i++) {
    gint64 begin = z->flat.partition, elements = 0;
    if (i < z->flat.own->len) {
      int parameter = g_array_index(z->flat.own, int, i);
      FlatSlice slice = zero_flat_own_slice(&z->flat, x->network, parameter, z->d.rank);
      begin = z->flat.offset[parameter] + slice.first - z->flat.first;
      elements = slice.elements;
    }
    GradientPiece padding = {z->compact, filled, begin - filled};
    GradientPiece piece = {z->compact, begin, elements};
    if (padding.elements > 0)
      g_array_append_val(z->averaged, padding);
    if (elements > 0)
      g_array_append_val(z->averaged, piece);
    filled = begin + elements;
  }
  for (guint i = 0; i < z->averaged->len; i++)
    live_storage_hold(x->live, z->compact);
}

static gint32
piece_tensor(StrategyContext *x, const Zero *z, const GradientPiece *piece)
{
  return program_builder_flat_tensor(x->builder, piece->storage, piece->offset, piece->elements,
                                     averaged_dtype(z));
}

/* ---- overflow ---- */

/* has_overflow_partitioned_grads_serial, agreed on by all ranks. */
static void
check_overflow(StrategyContext *x, Zero *z)
{
  StorageId count = zero_small(x, STREAM_COMPUTE, 4, "zeros", NO_STORAGE);
  for (guint i = 0; i < z->averaged->len; i++) {
    const GradientPiece *piece = &g_array_index(z->averaged, GradientPiece, i);
    StorageId bad =
        zero_has_inf_or_nan(x, STREAM_COMPUTE, piece_tensor(x, z, piece),
                            &(ReducedTensor){piece->elements, dtype_size(averaged_dtype(z))});
    live_storage_drop(x->live, bad);
  }
  StorageId any = zero_scalar(x, 1, "to_copy", NULL, count);
  live_storage_drop(x->live, count);
  StorageId byte = zero_small(x, STREAM_COMPUTE, 1, "to_copy", any);
  live_storage_drop(x->live, any);
  zero_all_reduce_scalar(x, z->d.communicator, byte, DTYPE_UINT8);
  zero_read_back(x, STREAM_COMPUTE);
  live_storage_drop(x->live, byte);
}

/* ---- norm ---- */

/* Of one own slice: through a copy in fp64. */
static StorageId
slice_norm(StrategyContext *x, const Zero *z, const GradientPiece *piece)
{
  int element = dtype_size(averaged_dtype(z));
  StorageId wide = zero_widened(x, STREAM_COMPUTE, piece->elements, NORM_BYTES,
                                piece_tensor(x, z, piece), (double) (piece->elements * element));
  StorageId norm = zero_make(x, STREAM_COMPUTE, &(SmallTensor){NORM_BYTES, 1, "vector_norm", NULL},
                             1, &(Scalars){wide, piece->elements});
  zero_reduction_scratch(x, STREAM_COMPUTE, piece->elements, NORM_BYTES);
  live_storage_drop(x->live, wide);
  return norm;
}

/* Is this piece a parameter's slice?  Those are as many as own parameters; the others are zeros. */
static gboolean
is_slice(StrategyContext *x, const Zero *z, guint own, gint64 filled)
{
  if (own >= z->flat.own->len)
    return FALSE;
  int parameter = g_array_index(z->flat.own, int, own);
  FlatSlice slice = zero_flat_own_slice(&z->flat, x->network, parameter, z->d.rank);
  return z->flat.offset[parameter] + slice.first - z->flat.first == filled;
}

static GArray *
slice_norms(StrategyContext *x, const Zero *z)
{
  GArray *norms = g_array_new(FALSE, FALSE, sizeof(StorageId));
  gint64 filled = 0;
  for (guint i = 0; i < z->averaged->len; i++) {
    const GradientPiece *piece = &g_array_index(z->averaged, GradientPiece, i);
    if (is_slice(x, z, norms->len, filled)) {
      StorageId norm = slice_norm(x, z, piece);
      g_array_append_val(norms, norm);
    }
    filled += piece->elements;
  }
  return norms;
}

/* torch.stack(norms).pow(2).sum().float(). */
static StorageId
sum_of_squares(StrategyContext *x, const GArray *norms)
{
  gint64 n = norms->len;
  if (n == 0)
    return zero_scalar(x, 4, "copy", "zeros", NO_STORAGE);
  g_autofree Scalars *all = g_new(Scalars, n);
  for (guint i = 0; i < norms->len; i++)
    all[i] = (Scalars){g_array_index(norms, StorageId, i), 1};
  StorageId stacked =
      zero_make(x, STREAM_COMPUTE, &(SmallTensor){NORM_BYTES * n, n, "stack", NULL}, (int) n, all);
  StorageId squares = zero_make(x, STREAM_COMPUTE, &(SmallTensor){NORM_BYTES * n, n, "pow", NULL},
                                1, &(Scalars){stacked, n});
  live_storage_drop(x->live, stacked);
  StorageId wide = zero_make(x, STREAM_COMPUTE, &(SmallTensor){NORM_BYTES, 1, "sum", NULL}, 1,
                             &(Scalars){squares, n});
  live_storage_drop(x->live, squares);
  StorageId sum = zero_scalar(x, 4, "to_copy", NULL, wide);
  live_storage_drop(x->live, wide);
  return sum;
}

/* get_grad_norm_direct: over all ranks. */
static StorageId
group_norm(StrategyContext *x, const Zero *z)
{
  g_autoptr(GArray) norms = slice_norms(x, z);
  StorageId sum = sum_of_squares(x, norms);
  zero_all_reduce_scalar(x, z->d.communicator, sum, DTYPE_FP32);
  StorageId norm = zero_scalar(x, 4, "pow", "pow power=0.5", sum);
  live_storage_drop(x->live, sum);
  zero_mask_invalid(x, norm, 4);
  for (guint i = 0; i < norms->len; i++)
    live_storage_drop(x->live, g_array_index(norms, StorageId, i));
  return norm;
}

/* combine_grad_norm_groups of the one parameter group. */
static StorageId
combine(StrategyContext *x, StorageId norm)
{
  StorageId stacked = zero_small(x, STREAM_COMPUTE, 4, "stack", norm);
  StorageId invalid = zero_any_invalid(x, stacked, 1);
  StorageId combined = zero_small(x, STREAM_COMPUTE, 4, "vector_norm", stacked);
  StorageId infinity = zero_scalar(x, 4, "full_like", "fill value=inf", NO_STORAGE);
  const Scalars choice[] = {{combined, 1}, {invalid, 1}, {infinity, 1}};
  StorageId result =
      zero_make(x, STREAM_COMPUTE, &(SmallTensor){4, 1, "where", "unless"}, 3, choice);
  live_storage_drop(x->live, infinity);
  live_storage_drop(x->live, combined);
  live_storage_drop(x->live, invalid);
  live_storage_drop(x->live, stacked);
  return result;
}

void
zero_test_norm(StrategyContext *x, StorageId norm)
{
  StorageId invalid = zero_any_invalid(x, norm, 1);
  zero_read_back(x, STREAM_COMPUTE);
  live_storage_drop(x->live, invalid);
}

StoragePurpose
zero_norm_purpose(const StrategyContext *x)
{
  return (StoragePurpose){CATEGORY_OTHER, -1,
                          program_builder_name(x->builder, "global gradient norm")};
}

/* The scaled norm, which is the caller's; the unscaled one replaces the engine's, whose old one is
 * returned in *old. */
static StorageId
global_norm(StrategyContext *x, Zero *z, StorageId *old)
{
  StorageId group = group_norm(x, z);
  StorageId total = combine(x, group);
  live_storage_drop(x->live, group);
  zero_test_norm(x, total);
  *old = z->global_norm;
  g_autofree char *unscaled =
      meaning_text("div_scalar", 2, "value", network_loss_scale(z->d.model), "global", 1.0);
  z->global_norm = zero_scalar(x, 4, "div", unscaled, total);
  live_storage_set_purpose(x->live, z->global_norm, zero_norm_purpose(x));
  return total;
}

/* ---- gradient and update ---- */

/* All of this rank's gradient as one tensor. */
static GradientPiece
flatten_averaged(StrategyContext *x, Zero *z)
{
  GradientPiece flat = g_array_index(z->averaged, GradientPiece, 0);
  if (z->averaged->len == 1) {
    live_storage_hold(x->live, flat.storage);
    return flat;
  }
  gint64 bytes = z->flat.partition * z->d.element;
  StoragePurpose purpose = {CATEGORY_SHARDED_GRADIENT, -1,
                            program_builder_name(x->builder, "flat gradient")};
  flat = (GradientPiece){live_storage_alloc(x->live, bytes, STREAM_COMPUTE, purpose), 0,
                         z->flat.partition};
  for (guint i = 0; i < z->averaged->len; i++)
    program_builder_operand(
        x->builder, piece_tensor(x, z, &g_array_index(z->averaged, GradientPiece, i)), ROLE_READ);
  zero_operand(x, flat.storage, 0, flat.elements, z->d.model, ROLE_WRITE);
  strategy_launch(x, STREAM_COMPUTE, "cat", 2.0 * (double) bytes);
  return flat;
}

/* The gradient in fp32, which begins at the master's gradient_offset.  Averaged gradients, in the
 * model's dtype, go. */
static StorageId
fp32_gradient(StrategyContext *x, Zero *z)
{
  z->master.gradient_offset = 0;
  if (zero_is_compact(z)) {
    zero_pieces_drop(x, z->averaged);
    StorageId gradient = z->compact;
    z->compact = NO_STORAGE;
    return gradient;
  }
  GradientPiece flat = flatten_averaged(x, z);
  StorageId gradient = flat.storage;
  if (z->d.model == DTYPE_FP32)
    z->master.gradient_offset = flat.offset;
  else {
    StoragePurpose purpose = {CATEGORY_SHARDED_GRADIENT, -1,
                              program_builder_name(x->builder, "fp32 gradient")};
    gint64 bytes = z->flat.partition * dtype_size(DTYPE_FP32);
    gradient = live_storage_alloc(x->live, bytes, STREAM_COMPUTE, purpose);
    zero_operand(x, flat.storage, flat.offset, flat.elements, z->d.model, ROLE_READ);
    zero_operand(x, gradient, 0, z->flat.partition, DTYPE_FP32, ROLE_WRITE);
    strategy_launch(x, STREAM_COMPUTE, "to_copy",
                    (double) (z->flat.partition * (4 + z->d.element)));
    live_storage_drop(x->live, flat.storage);
  }
  zero_pieces_drop(x, z->averaged);
  return gradient;
}

/* What gradients are multiplied by: a product, its reciprocal and locals of unscale_and_clip_grads.
 */
typedef struct {
  StorageId clamped, value, inverse, factor;
} ClipFactor;

/* clamp((norm / scale + eps) / clip, min=1) * scale, and its reciprocal. */
static ClipFactor
clip_factor(StrategyContext *x, const Zero *z, StorageId total)
{
  static const char *const steps[] = {"div", "add", "div", "clamp", "mul"};
  g_autofree char *over = meaning_text("div_scalar", 1, "value", z->d.clip);
  g_autofree char *unscales = zero_by_loss_scale(z->d.model, "div_scalar"),
                  *scales = zero_by_loss_scale(z->d.model, "mul_scalar");
  const char *const meanings[] = {unscales, "add_scalar value=1e-06", over, "clamp least=1",
                                  scales};
  ClipFactor f = {NO_STORAGE, NO_STORAGE, NO_STORAGE, NO_STORAGE};
  zero_test_norm(x, total);
  for (guint i = 0; i < G_N_ELEMENTS(steps); i++) {
    StorageId next = zero_scalar(x, 4, steps[i], meanings[i], i == 0 ? total : f.value);
    if (i + 1 == G_N_ELEMENTS(steps))
      f.clamped = f.value;
    else
      live_storage_drop(x->live, f.value);
    f.value = next;
  }
  f.inverse = zero_scalar(x, 4, "reciprocal", "pow power=-1", f.value);
  f.factor = zero_scalar(x, 4, "mul", "mul_scalar value=1", f.inverse);
  return f;
}

static void
unscale_and_clip(StrategyContext *x, const Zero *z, StorageId gradient, StorageId total)
{
  gboolean scaled = z->d.model == DTYPE_FP16;
  ClipFactor f = {NO_STORAGE, NO_STORAGE, NO_STORAGE, NO_STORAGE};
  if (z->d.clip <= 0 && !scaled)
    return;
  if (z->d.clip > 0) {
    f = clip_factor(x, z, total);
    zero_operand(x, f.factor, 0, 1, DTYPE_FP32, ROLE_READ);
  }
  zero_operand(x, gradient, z->master.gradient_offset, z->flat.partition, DTYPE_FP32,
               ROLE_ACCUMULATE);
  g_autofree char *unscales = zero_unscaling(z->d.model);
  strategy_launch_as(x, STREAM_COMPUTE, "mul", 8.0 * (double) z->flat.partition,
                     z->d.clip > 0 ? "foreach_mul" : unscales);
  live_storage_drop(x->live, f.inverse);
  live_storage_drop(x->live, f.factor);
  live_storage_drop(x->live, f.clamped);
  live_storage_drop(x->live, f.value);
}

void
zero_write_back(StrategyContext *x, const Zero *z)
{
  zero_operand(x, z->master.value, 0, z->flat.partition, DTYPE_FP32, ROLE_READ);
  program_builder_operand(x->builder, zero_flat_partition_tensor(&z->flat, x, &z->d), ROLE_WRITE);
  strategy_launch(x, STREAM_COMPUTE, "copy", (double) (z->flat.partition * (4 + z->d.element)));
}

/* free_grad_in_param_list of params_not_in_partition: what the other attribute still holds. */
static void
free_others_gradients(StrategyContext *x, Zero *z)
{
  for (int k = 0; k < z->flat.count && z->apart; k++) {
    FlatSlice own = zero_flat_own_slice(&z->flat, x->network, z->flat.order[k], z->d.rank);
    if (own.elements == 0)
      zero_gradient_drop(x, z, z->flat.order[k]);
  }
}

void
zero_optimizer_step(StrategyContext *x)
{
  Zero *z = zero_of(x);
  StorageId total = NO_STORAGE, old = NO_STORAGE;
  program_builder_set_module(x->builder, -1);
  if (zero_is_offloaded(z)) {
    zero_offload_step(x, z);
    zero_forget_gradients(x);
    deepspeed_end_step(x);
    return;
  }
  if (zero_is_compact(z))
    view_compact(x, z);
  if (z->d.checks_overflow)
    check_overflow(x, z);
  if (z->d.compute_grad_norm)
    total = global_norm(x, z, &old);
  free_others_gradients(x, z);
  z->master.gradient = fp32_gradient(x, z);
  unscale_and_clip(x, z, z->master.gradient, total);
  torch_optimizer_step(x, DTYPE_FP32, 1, &z->master);
  live_storage_clear(x->live, &z->master.gradient);
  zero_write_back(x, z);
  zero_flat_gather(&z->flat, x, &z->d);
  live_storage_drop(x->live, total);
  zero_forget_gradients(x);
  live_storage_drop(x->live, old);
  deepspeed_end_step(x);
}
