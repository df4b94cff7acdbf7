/* zero3_offload.c - what stage 3 keeps in the host's memory, and the copies to and from it
 * (stage3.py, partition_grads, _offload_grad_partition_at_boundary and
 * complete_grad_norm_calculation_for_cpu_offload; partition_parameters.py, ds_tensor.to()). */
#include "program/meaning.h"
#include "strategy/zero3_private.h"

#include "strategy/zero_scalars.h"

enum { NORM_BYTES = 8 };                        /* get_norm_dtype: fp64 */
#define NORM_PIECE G_GINT64_CONSTANT(250000000) /* elements: _constant_buffered_norm2 */

gboolean
offload_is_optimizer(const Zero3 *z)
{
  return z->ds.optimizer_place == DEEPSPEED_ON_HOST;
}

gboolean
offload_is_parameters(const Zero3 *z)
{
  return z->ds.parameter_place == DEEPSPEED_ON_HOST;
}

StorageId
offload_allocate(StrategyContext *x, gboolean pinned, gint64 bytes, Category category,
                 const char *what)
{
  StoragePurpose purpose = {category, -1, program_builder_name(x->builder, what)};
  Space space = pinned ? SPACE_PINNED : SPACE_HOST;
  return live_storage_alloc_in(x->live, space, bytes, STREAM_COMPUTE, purpose);
}

/* A copy to pageable memory is over when the call returns. */
static void
send_gradient(StrategyContext *x, StreamId stream, gint64 bytes, gboolean pinned,
              const char *meaning)
{
  strategy_copy_as(x, stream, "gradient to host", (double) bytes, meaning);
  if (!pinned)
    program_builder_stream_sync(x->builder, stream);
}

/* ---- shards ---- */

StorageId
offload_shard(StrategyContext *x, int parameter, gboolean secondary, StreamId stream)
{
  Zero3 *z = zero3_of(x);
  gint64 bytes = zero3_shard_elements(z, parameter, secondary) * z->ds.element;
  if (!offload_is_parameters(z))
    return NO_STORAGE;
  StoragePurpose purpose = parameter_purpose(x, parameter, CATEGORY_TEMPORARY);
  StorageId copy = live_storage_alloc(x->live, bytes, stream, purpose);
  zero3_shard(x, parameter, secondary);
  zero3_operand(x, copy, z->ds.model, ROLE_WRITE);
  strategy_copy(x, stream, "shard to device", (double) bytes);
  return copy;
}

void
offload_drop_shard(StrategyContext *x, StorageId copy, StreamId reader)
{
  if (copy == NO_STORAGE)
    return;
  if (live_storage_stream(x->live, copy) != reader)
    program_builder_record_stream(x->builder, copy, reader);
  live_storage_drop(x->live, copy);
}

/* ---- gradients ---- */

/* The norm of a gradient, piece by piece through a copy in fp64; a tensor that the optimizer's
 * dictionary keeps until the step ends. */
static void
keep_norm(StrategyContext *x, Zero3Parameter *p, StorageId gradient)
{
  Zero3 *z = zero3_of(x);
  StreamId stream = z->ds.reduce_stream;
  StoragePurpose purpose = {CATEGORY_TEMPORARY, -1,
                            program_builder_name(x->builder, "gradient in fp64")};
  StorageId sum = NO_STORAGE;
  for (gint64 first = 0; first < p->owned; first += NORM_PIECE) {
    gint64 n = MIN(NORM_PIECE, p->owned - first);
    StorageId wide = live_storage_alloc(x->live, NORM_BYTES * n, stream, purpose);
    zero3_part(x, gradient, first, n, z->ds.accumulation, ROLE_READ);
    zero3_operand(x, wide, DTYPE_INT64, ROLE_WRITE); /* eight bytes each: fp64 */
    strategy_launch(x, stream, "to_copy", (double) (n * (NORM_BYTES + z->ds.element)));
    StorageId norm =
        zero_make(x, stream, &(SmallTensor){NORM_BYTES, 1, "norm", NULL}, 1, &(Scalars){wide, n});
    zero_reduction_scratch(x, stream, n, NORM_BYTES);
    live_storage_drop(x->live, wide);
    StorageId square = zero_small(x, stream, NORM_BYTES, "pow", norm);
    live_storage_drop(x->live, norm);
    if (first == 0) {
      sum = square;
      continue;
    }
    zero_add(x, stream, NORM_BYTES, square, sum);
    live_storage_drop(x->live, square);
  }
  p->norm = zero_make(x, stream, &(SmallTensor){NORM_BYTES, 1, "pow", "pow power=0.5"}, 1,
                      &(Scalars){sum, 1});
  live_storage_drop(x->live, sum);
  int index = (int) (p - z->parameter);
  g_array_append_val(z->norms, index);
}

/* At the last micro-batch: the norm, then the gradient goes to the optimizer in fp32. */
static void
hand_over(StrategyContext *x, int parameter, StorageId gradient)
{
  Zero3 *z = zero3_of(x);
  Zero3Parameter *p = &z->parameter[parameter];
  StreamId stream = z->ds.reduce_stream;
  gboolean casts = z->ds.accumulation != DTYPE_FP32;
  StorageId wide = gradient;
  keep_norm(x, p, gradient);
  if (casts) {
    StoragePurpose purpose = parameter_purpose(x, parameter, CATEGORY_TEMPORARY);
    wide = live_storage_alloc(x->live, 4 * p->owned, stream, purpose);
    zero3_operand(x, gradient, z->ds.accumulation, ROLE_READ);
    zero3_operand(x, wide, DTYPE_FP32, ROLE_WRITE);
    strategy_launch(x, stream, "to_copy", (double) (p->owned * (4 + z->ds.element)));
  }
  const SubGroup *group = &z->group[p->group];
  zero3_operand(x, wide, DTYPE_FP32, ROLE_READ);
  zero3_part(x, group->gradient, p->first - group->first_element, p->owned, DTYPE_FP32, ROLE_WRITE);
  if (group->on_host)
    send_gradient(x, stream, 4 * p->owned, z->ds.optimizer_pinned, NULL);
  else
    strategy_launch(x, stream, "copy", 8.0 * (double) p->owned);
  if (casts)
    live_storage_drop(x->live, wide);
}

void
offload_gradient(StrategyContext *x, int parameter, gint32 reduced, const char *meaning,
                 HostGradients *locals)
{
  Zero3 *z = zero3_of(x);
  const Zero3Parameter *p = &z->parameter[parameter];
  StreamId stream = z->ds.reduce_stream;
  gint64 bytes = p->owned * dtype_size(z->ds.accumulation);
  StoragePurpose purpose = parameter_purpose(x, parameter, CATEGORY_SHARDED_GRADIENT);
  live_storage_clear(x->live, &locals->gradient);
  if (x->micro_batch == 0) { /* out, and back */
    program_builder_operand(x->builder, reduced, ROLE_READ);
    zero3_part(x, z->gradients, p->first, p->owned, z->ds.accumulation, ROLE_WRITE);
    send_gradient(x, stream, bytes, z->ds.optimizer_pinned, meaning);
    locals->gradient = live_storage_alloc(x->live, bytes, stream, purpose);
  } else { /* in, added to, and out */
    StorageId added = live_storage_alloc(x->live, bytes, stream, purpose);
    live_storage_clear(x->live, &locals->added);
    locals->gradient = locals->added = added;
    live_storage_hold(x->live, added);
  }
  zero3_part(x, z->gradients, p->first, p->owned, z->ds.accumulation, ROLE_READ);
  zero3_operand(x, locals->gradient, z->ds.accumulation, ROLE_WRITE);
  strategy_copy(x, stream, "gradient to device", (double) bytes);
  if (x->micro_batch > 0) {
    program_builder_operand(x->builder, reduced, ROLE_READ);
    zero3_operand(x, locals->gradient, z->ds.accumulation, ROLE_ACCUMULATE);
    strategy_launch_as(x, stream, "add", 3.0 * (double) bytes, meaning);
    zero3_operand(x, locals->gradient, z->ds.accumulation, ROLE_READ);
    zero3_part(x, z->gradients, p->first, p->owned, z->ds.accumulation, ROLE_WRITE);
    send_gradient(x, stream, bytes, z->ds.optimizer_pinned, NULL);
  }
  if (x->last_micro_batch)
    hand_over(x, parameter, locals->gradient);
}

/* ---- the step ---- */

/* The flag was set on the host; it comes to the device to be reduced. */
void
offload_check_overflow(StrategyContext *x)
{
  Zero3 *z = zero3_of(x);
  StreamId stream = z->ds.reduce_stream;
  StorageId flag = zero_make(x, stream, &(SmallTensor){1, 1, "to_copy", "zeros"}, 0, NULL);
  StorageId number = zero_small(x, stream, 1, "to_copy", flag);
  live_storage_drop(x->live, flag);
  zero3_wait_stream(x, STREAM_COMPUTE, stream);
  zero_all_reduce_scalar(x, z->ds.communicator, number, DTYPE_UINT8);
  zero_read_back(x, STREAM_COMPUTE);
  live_storage_drop(x->live, number);
}

/* Squares of the norms that this rank has, summed. */
static StorageId
sum_of_squares(StrategyContext *x, const SubGroup *group)
{
  Zero3 *z = zero3_of(x);
  StorageId total = NO_STORAGE;
  for (int i = 0; i < group->count; i++) {
    StorageId norm = z->parameter[z->trained[group->first + i]].norm;
    if (norm == NO_STORAGE)
      continue;
    StorageId square = zero_small(x, STREAM_COMPUTE, NORM_BYTES, "pow", norm);
    if (total == NO_STORAGE)
      total = zero_small(x, STREAM_COMPUTE, NORM_BYTES, "add", square);
    else
      zero_add(x, STREAM_COMPUTE, NORM_BYTES, square, total);
    live_storage_drop(x->live, square);
  }
  return total;
}

void
offload_group_norm(StrategyContext *x, const SubGroup *group)
{
  Zero3 *z = zero3_of(x);
  StorageId total = sum_of_squares(x, group);
  strategy_compute_on_host(x, "zero", "number_zero");
  if (total != NO_STORAGE) {
    zero_read_back(x, STREAM_COMPUTE);
    zero3_operand(x, total, DTYPE_INT64, ROLE_READ);
    strategy_compute_on_host(x, "item", "number_of");
  }
  StorageId sum = zero_scalar(x, 4, "copy", "fill_number", NO_STORAGE);
  zero_all_reduce_scalar(x, z->ds.communicator, sum, DTYPE_FP32);
  StorageId norm = zero_scalar(x, 4, "pow", "pow power=0.5", sum);
  live_storage_drop(x->live, total);
  zero_mask_invalid(x, norm, 4);
  zero_read_back(x, STREAM_COMPUTE);
  zero3_operand(x, norm, DTYPE_FP32, ROLE_READ);
  strategy_compute_on_host(x, "item", "number_norm_with of=1");
  live_storage_drop(x->live, norm);
  live_storage_drop(x->live, sum);
}

void
offload_clip(StrategyContext *x)
{
  const Zero3 *z = zero3_of(x);
  double scale = network_loss_scale(z->ds.model);
  g_autofree char *unscales =
      meaning_text("number_over", 3, "of", 1.0, "value", scale, "global", 1.0);
  g_autofree char *clips =
      meaning_text("number_clips", 3, "of", 1.0, "most", z->ds.clip, "scale", scale);
  strategy_compute_on_host(x, "div", unscales);
  if (z->ds.clip > 0)
    strategy_compute_on_host(x, "clip", clips);
}

char *
offload_unscaling(const Zero3 *z)
{
  return z->ds.clip > 0 ? g_strdup("scale_by_number of=1") : zero_unscaling(z->ds.model);
}

/* DeepSpeedCPUAdam's moments are pageable, and made in the first step. */
void
offload_update(StrategyContext *x, SubGroup *group)
{
  g_autofree char *unscales = offload_unscaling(zero3_of(x));
  OptimizedTensor *t = &group->optimized;
  for (int i = 0; i < optimizer_moments(x->plan) && !t->made; i++) {
    t->moment[i] = offload_allocate(x, FALSE, 4 * group->elements, CATEGORY_OPTIMIZER_STATE,
                                    "optimizer state");
    zero3_operand(x, t->moment[i], DTYPE_FP32, ROLE_WRITE);
    strategy_compute_on_host(x, "zeros_like", NULL);
  }
  t->made = TRUE;
  t->value = group->master;
  t->gradient = group->gradient;
  t->stepped = TRUE;
  strategy_update_on_host(x, group->elements);
  zero3_operand(x, group->gradient, DTYPE_FP32, ROLE_ACCUMULATE);
  strategy_compute_on_host(x, "mul", unscales);
  torch_optimizer_compute_on_host(x, DTYPE_FP32, t);
}

void
offload_forget_norms(StrategyContext *x)
{
  Zero3 *z = zero3_of(x);
  for (guint i = 0; i < z->norms->len; i++)
    live_storage_clear(x->live, &z->parameter[g_array_index(z->norms, int, i)].norm);
  g_array_set_size(z->norms, 0);
}
