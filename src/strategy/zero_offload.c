/* zero_offload.c - ZeRO stages 1 and 2 with the optimizer in the host's memory (deepspeed 0.19.8,
 * runtime/zero/stage_1_and_2.py, "CPU Offload Methods" and what step() does with cpu_offload).
 *
 * The device keeps the flat parameters and a buffer as large as the largest parameter; gradients
 * leave it right after their reduction. */
#include "strategy/zero_offload.h"

#include "program/meaning.h"
#include "strategy/zero_reduce.h"
#include "strategy/zero_scalars.h"

enum { NORM_BYTES = 8, FP32_BYTES = 4 };

gboolean
zero_is_offloaded(const Zero *z)
{
  return z->d.optimizer_place == DEEPSPEED_ON_HOST;
}

/* ---- memory and copies ---- */

static StorageId
on_host(StrategyContext *x, const Zero *z, gint64 bytes, Category category, const char *what)
{
  StoragePurpose purpose = {category, -1, program_builder_name(x->builder, what)};
  Space space = z->d.optimizer_pinned ? SPACE_PINNED : SPACE_HOST;
  return live_storage_alloc_in(x->live, space, bytes, STREAM_COMPUTE, purpose);
}

/* A copy between device and host on a stream; from or to pageable memory the host waits for it. */
static void
copy(StrategyContext *x, const Zero *z, StreamId stream, const char *what, gint64 bytes)
{
  strategy_copy(x, stream, what, (double) bytes);
  if (!z->d.optimizer_pinned)
    program_builder_stream_sync(x->builder, stream);
}

static gint64
largest_parameter(const StrategyContext *x, const Zero *z)
{
  gint64 largest = 0;
  for (int k = 0; k < z->flat.count; k++)
    largest = MAX(largest, network_parameter(x->network, z->flat.order[k])->elements);
  return largest;
}

/* ---- construction ---- */

/* The partition is cloned on the device and leaves it; the host has it in fp32, once more in 16
 * bits for the way back, and its gradient. */
void
zero_offload_initialize(StrategyContext *x, Zero *z)
{
  gint64 elements = z->flat.partition, half = elements * z->d.element;
  StoragePurpose purpose = {CATEGORY_TEMPORARY, -1, program_builder_name(x->builder, "clone")};
  StorageId clone = live_storage_alloc(x->live, half, STREAM_COMPUTE, purpose);
  program_builder_operand(x->builder, zero_flat_partition_tensor(&z->flat, x, &z->d), ROLE_READ);
  zero_operand(x, clone, 0, elements, z->d.model, ROLE_WRITE);
  strategy_launch(x, STREAM_COMPUTE, "clone", 2.0 * (double) half);
  z->master.value =
      on_host(x, z, elements * FP32_BYTES, CATEGORY_OPTIMIZER_STATE, "fp32 master partition");
  zero_flat_partition_holds(&z->flat, x, z->master.value, DTYPE_FP32);
  zero_operand(x, clone, 0, elements, z->d.model, ROLE_READ);
  zero_operand(x, z->master.value, 0, elements, DTYPE_FP32, ROLE_WRITE);
  copy(x, z, STREAM_COMPUTE, "to_host", half);
  program_builder_stream_sync(x->builder, STREAM_COMPUTE);
  live_storage_drop(x->live, clone);
  z->master.elements = elements;
  z->master.stepped = TRUE;
  z->host_parameters = on_host(x, z, half, CATEGORY_PARAMETER, "16-bit partition");
  gint64 staging = largest_parameter(x, z) * z->d.element;
  z->host_staging = on_host(x, z, staging, CATEGORY_TEMPORARY, "gradient staging");
  z->device_staging =
      live_storage_alloc(x->live, staging, STREAM_COMPUTE,
                         (StoragePurpose){CATEGORY_REDUCE_SCATTER_BUFFER, -1,
                                          program_builder_name(x->builder, "gradient staging")});
  zero_operand(x, z->device_staging, 0, staging / z->d.element, z->d.model, ROLE_WRITE);
  strategy_launch(x, STREAM_COMPUTE, "zeros", (double) staging);
  z->master.gradient =
      on_host(x, z, elements * FP32_BYTES, CATEGORY_SHARDED_GRADIENT, "fp32 gradient");
  z->host_gradients = g_new(StorageId, x->network->parameters->len);
  for (guint i = 0; i < x->network->parameters->len; i++)
    z->host_gradients[i] = NO_STORAGE;
  z->norms = g_array_new(FALSE, FALSE, sizeof(StorageId));
}

void
zero_offload_clear(Zero *z)
{
  g_clear_pointer(&z->host_gradients, g_free);
  g_clear_pointer(&z->norms, g_array_unref);
}

/* ---- gradients ---- */

/* async_accumulate_grad_in_cpu_via_gpu: what earlier micro-batches left comes to the device and is
 * added; the sum goes back, whole. */
static void
accumulate_on_host(StrategyContext *x, Zero *z, int parameter, gboolean first)
{
  StreamId stream = z->d.reduce_stream;
  gint64 elements = network_parameter(x->network, parameter)->elements;
  gint64 bytes = elements * z->d.element, offset = z->gradient_offset[parameter];
  StorageId gradient = *zero_gradient_slot(x, z, parameter);
  if (z->host_gradients[parameter] == NO_STORAGE)
    z->host_gradients[parameter] =
        on_host(x, z, bytes, CATEGORY_SHARDED_GRADIENT, "accumulated gradient");
  StorageId kept = z->host_gradients[parameter];
  program_builder_stream_sync(x->builder, stream); /* the copies before this one */
  if (!first) {
    zero_operand(x, kept, 0, elements, z->d.model, ROLE_READ);
    zero_operand(x, z->device_staging, 0, elements, z->d.model, ROLE_WRITE);
    copy(x, z, stream, "to_device", bytes);
    zero_operand(x, z->device_staging, 0, elements, z->d.model, ROLE_READ);
    zero_operand(x, gradient, offset, elements, z->d.model, ROLE_ACCUMULATE);
    strategy_launch(x, stream, "add", 3.0 * (double) bytes);
  }
  zero_operand(x, gradient, offset, elements, z->d.model, ROLE_READ);
  zero_operand(x, kept, 0, elements, z->d.model, ROLE_WRITE);
  copy(x, z, stream, "to_host", bytes);
}

/* What is handed to the optimizer: a view of elements of some dtype. */
typedef struct {
  StorageId storage;
  gint64 offset, elements;
  DType dtype;
} View;

/* The norm of a slice, through a copy in fp64; it is kept until the step. */
static void
keep_norm(StrategyContext *x, Zero *z, const View *v)
{
  StreamId stream = z->d.reduce_stream;
  gint32 view =
      program_builder_flat_tensor(x->builder, v->storage, v->offset, v->elements, v->dtype);
  StorageId wide = zero_widened(x, stream, v->elements, NORM_BYTES, view,
                                (double) (v->elements * dtype_size(v->dtype)));
  StorageId norm = zero_make(x, stream, &(SmallTensor){NORM_BYTES, 1, "norm", NULL}, 1,
                             &(Scalars){wide, v->elements});
  zero_reduction_scratch(x, stream, v->elements, NORM_BYTES);
  live_storage_drop(x->live, wide);
  live_storage_set_purpose(x->live, norm, zero_norm_purpose(x));
  g_array_append_val(z->norms, norm);
}

/* The host asks for each gradient. */
static void
test_overflow(StrategyContext *x, const Zero *z, const View *v)
{
  gint32 tensor =
      program_builder_flat_tensor(x->builder, v->storage, v->offset, v->elements, v->dtype);
  StorageId bad = zero_has_inf_or_nan(x, z->d.reduce_stream, tensor,
                                      &(ReducedTensor){v->elements, dtype_size(v->dtype)});
  zero_read_back(x, z->d.reduce_stream);
  live_storage_drop(x->live, bad);
}

/* The slice in fp32, into the optimizer's gradient. */
static StorageId
send_slice(StrategyContext *x, Zero *z, const View *slice, gint64 place)
{
  StreamId stream = z->d.reduce_stream;
  View sent = *slice;
  StorageId cast = NO_STORAGE;
  if (slice->dtype != DTYPE_FP32) {
    StoragePurpose purpose = {CATEGORY_TEMPORARY, -1,
                              program_builder_name(x->builder, "slice in fp32")};
    cast = live_storage_alloc(x->live, slice->elements * FP32_BYTES, stream, purpose);
    zero_operand(x, slice->storage, slice->offset, slice->elements, slice->dtype, ROLE_READ);
    zero_operand(x, cast, 0, slice->elements, DTYPE_FP32, ROLE_WRITE);
    strategy_launch(x, stream, "to_copy",
                    (double) (slice->elements * (FP32_BYTES + dtype_size(slice->dtype))));
    sent = (View){cast, 0, slice->elements, DTYPE_FP32};
  }
  zero_operand(x, sent.storage, sent.offset, sent.elements, DTYPE_FP32, ROLE_READ);
  zero_operand(x, z->master.gradient, place, sent.elements, DTYPE_FP32, ROLE_WRITE);
  copy(x, z, stream, "to_host", sent.elements * FP32_BYTES);
  return cast;
}

void
zero_offload_gradient(StrategyContext *x, Zero *z, int parameter)
{
  FlatSlice own = zero_flat_own_slice(&z->flat, x->network, parameter, z->d.rank);
  gint64 place = z->flat.offset[parameter] + own.first - z->flat.first;
  gint64 elements = network_parameter(x->network, parameter)->elements;
  gboolean compact = zero_is_compact(z), first = z->d.stage == 1 || x->micro_batch == 0;
  View whole = {*zero_gradient_slot(x, z, parameter), z->gradient_offset[parameter], elements,
                z->waiting};
  View slice = {whole.storage, whole.offset + own.first, own.elements, z->waiting};
  if (compact)
    whole = slice = (View){z->compact, place, own.elements, DTYPE_FP32};
  else if (!first || !x->last_micro_batch)
    accumulate_on_host(x, z, parameter, first);
  if (!x->last_micro_batch)
    return;
  keep_norm(x, z, &slice);
  test_overflow(x, z, &whole);
  StorageId cast = send_slice(x, z, &slice, place);
  if (z->d.overlap_comm && !compact)
    program_builder_record_stream(x->builder, whole.storage, z->d.reduce_stream);
  zero_gradient_drop(x, z, parameter);
  live_storage_drop(x->live, cast);
}

/* ---- the step ---- */

/* A scalar that the host makes, all ranks reduce, and the host reads. */
static void
agree(StrategyContext *x, const Zero *z, DType dtype, const char *meaning)
{
  StorageId scalar = zero_scalar(x, dtype_size(dtype), "copy", meaning, NO_STORAGE);
  zero_all_reduce_scalar(x, z->d.communicator, scalar, dtype);
  zero_read_back(x, STREAM_COMPUTE);
  if (dtype == DTYPE_FP32) {
    zero_operand(x, scalar, 0, 1, dtype, ROLE_READ);
    strategy_compute_on_host(x, "item", "number_root_of");
  }
  live_storage_drop(x->live, scalar);
}

/* The norm over all ranks, of all norms of slices: the host asks for each. */
static void
take_norm(StrategyContext *x, const Zero *z)
{
  g_autofree char *unscales =
      meaning_text("number_over", 2, "value", network_loss_scale(z->d.model), "global", 1.0);
  strategy_compute_on_host(x, "zero", "number_zero");
  for (guint i = 0; i < z->norms->len; i++) { /* .item() of each */
    zero_read_back(x, STREAM_COMPUTE);
    zero_operand(x, g_array_index(z->norms, StorageId, i), 0, 1, DTYPE_INT64, ROLE_READ);
    strategy_compute_on_host(x, "item", "number_norm_with");
  }
  agree(x, z, DTYPE_FP32, "fill_number power=2");
  strategy_compute_on_host(x, "div", unscales);
}

/* unscale_and_clip_grads, in the host's memory. */
static void
clip_on_host(StrategyContext *x, const Zero *z)
{
  double scale = network_loss_scale(z->d.model);
  g_autofree char *clips = meaning_text("number_clips", 2, "most", z->d.clip, "scale", scale);
  g_autofree char *unscales = zero_unscaling(z->d.model);
  if (z->d.clip > 0)
    strategy_compute_on_host(x, "clip", clips);
  zero_operand(x, z->master.gradient, 0, z->flat.partition, DTYPE_FP32, ROLE_ACCUMULATE);
  strategy_compute_on_host(x, "mul", z->d.clip > 0 ? "scale_by_number" : unscales);
}

/* Adam's two moments, on the host from the first step on. */
static void
make_states(StrategyContext *x, Zero *z)
{
  if (z->master.made)
    return;
  z->master.made = TRUE;
  for (int k = 0; k < optimizer_moments(x->plan); k++) {
    z->master.moment[k] =
        on_host(x, z, z->flat.partition * FP32_BYTES, CATEGORY_OPTIMIZER_STATE, "optimizer state");
    zero_operand(x, z->master.moment[k], 0, z->flat.partition, DTYPE_FP32, ROLE_WRITE);
    strategy_compute_on_host(x, "zeros_like", NULL);
  }
}

/* The partition's update, and its copy in the model's dtype for the way back. */
static void
update_on_host(StrategyContext *x, Zero *z)
{
  gint64 elements = z->flat.partition;
  make_states(x, z);
  strategy_update_on_host(x, elements);
  torch_optimizer_compute_on_host(x, DTYPE_FP32, &z->master);
  zero_operand(x, z->master.value, 0, elements, DTYPE_FP32, ROLE_READ);
  zero_operand(x, z->host_parameters, 0, elements, z->d.model, ROLE_WRITE);
  strategy_compute_on_host(x, "to_copy", NULL);
}

void
zero_offload_step(StrategyContext *x, Zero *z)
{
  gint64 half = z->flat.partition * z->d.element;
  program_builder_stream_sync(x->builder, z->d.reduce_stream);
  if (z->d.checks_overflow)
    agree(x, z, DTYPE_UINT8, "zeros");
  take_norm(x, z);
  clip_on_host(x, z);
  program_builder_host_work(x->builder, HOST_WORK_OPTIMIZER, 1);
  update_on_host(x, z);
  zero_operand(x, z->host_parameters, 0, z->flat.partition, z->d.model, ROLE_READ);
  program_builder_operand(x->builder, zero_flat_partition_tensor(&z->flat, x, &z->d), ROLE_WRITE);
  copy(x, z, STREAM_COMPUTE, "to_device", half);
  live_storage_clear(x->live, &z->compact);
  for (guint i = 0; i < z->norms->len; i++)
    live_storage_drop(x->live, g_array_index(z->norms, StorageId, i));
  g_array_set_size(z->norms, 0);
  zero_flat_gather(&z->flat, x, &z->d);
}
