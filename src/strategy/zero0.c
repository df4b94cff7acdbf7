/* zero0.c - DeepSpeed without ZeRO: whole replicas, gradients all-reduced after the last backward
 * (deepspeed 0.19.8, runtime/engine.py, buffered_allreduce_fallback).  16-bit models get fp32
 * copies of everything (runtime/fp16/unfused_optimizer.py, which serves bf16 too); fp32 models have
 * the client's optimizer as it is. */
#include "program/meaning.h"
#include "strategy/deepspeed.h"
#include "strategy/torch_optimizer.h"
#include "strategy/zero_load.h"
#include "strategy/zero_scalars.h"
#include "strategy/zero_state.h"

/* MEMORY_OPT_ALLREDUCE_SIZE of runtime/engine.py, which no option changes. */
enum { BUCKET_ELEMENTS = 500000000 };

typedef struct {
  DeepSpeed d;
  int count;                /* trainable parameters, in order */
  int *parameter;           /* their indices */
  OptimizedTensor *masters; /* fp32 copies, or the parameters of an fp32 model */
} Zero0;

static Zero0 *
zero0_of(const StrategyContext *x)
{
  return x->state;
}

static gboolean
accept(const PlanSpec *plan, const Network *network, GError **error)
{
  return deepspeed_accept(plan, network, 0, error);
}

static LossScaling
loss(const PlanSpec *plan)
{
  return deepspeed_loss(plan, 0);
}

static void
setup(StrategyContext *x)
{
  Zero0 *z = x->state = g_new0(Zero0, 1);
  guint n = x->network->parameters->len;
  deepspeed_begin(&z->d, x, 0);
  z->parameter = g_new(int, n);
  z->masters = g_new(OptimizedTensor, n);
  for (guint i = 0; i < n; i++) {
    const Parameter *p = network_parameter(x->network, (int) i);
    if (!p->trainable)
      continue;
    OptimizedTensor *master = &z->masters[z->count];
    *master = (OptimizedTensor) OPTIMIZED_TENSOR_INIT;
    master->parameter = (gint32) i;
    master->elements = p->elements;
    master->stepped = TRUE;
    z->parameter[z->count++] = (int) i;
  }
}

static void
teardown(StrategyContext *x)
{
  Zero0 *z = zero0_of(x);
  g_free(z->parameter);
  g_free(z->masters);
  g_free(z);
}

/* ---- small steps ---- */

static void
operand(StrategyContext *x, StorageId storage, DType dtype, Role role)
{
  program_builder_operand(x->builder, live_storage_tensor(x->live, storage, dtype), role);
}

static StorageId
tensor_like(StrategyContext *x, int parameter, DType dtype, Category category)
{
  gint64 elements = network_parameter(x->network, parameter)->elements;
  return live_storage_alloc(x->live, elements * dtype_size(dtype), STREAM_COMPUTE,
                            parameter_purpose(x, parameter, category));
}

/* One kernel from a storage into another. */
static void
launch(StrategyContext *x, const char *name, StorageId from, DType from_dtype, StorageId to,
       DType to_dtype)
{
  if (from != NO_STORAGE)
    operand(x, from, from_dtype, ROLE_READ);
  operand(x, to, to_dtype, ROLE_WRITE);
  strategy_launch(x, STREAM_COMPUTE, name,
                  (double) (live_storage_bytes(x->live, from) + live_storage_bytes(x->live, to)));
}

static gboolean
has_masters(const Zero0 *z)
{
  return z->d.model != DTYPE_FP32;
}

/* ---- construction ---- */

static void
make_masters(StrategyContext *x, Zero0 *z)
{
  for (int i = 0; i < z->count; i++) {
    int parameter = z->parameter[i];
    StorageId whole = x->parameters[parameter].sharded;
    StorageId clone = tensor_like(x, parameter, z->d.model, CATEGORY_TEMPORARY);
    launch(x, "clone", whole, z->d.model, clone, z->d.model);
    z->masters[i].value = tensor_like(x, parameter, DTYPE_FP32, CATEGORY_OPTIMIZER_STATE);
    strategy_holds(x, z->masters[i].value, DTYPE_FP32,
                   (StateRange){parameter, 0, z->masters[i].elements}, 0);
    launch(x, "to_copy", clone, z->d.model, z->masters[i].value, DTYPE_FP32);
    live_storage_drop(x->live, clone);
  }
}

/* initialize_optimizer_states: gradients of zeros in both dtypes and a whole step with them, so
 * that construction peaks as high as training. */
static void
initialize(StrategyContext *x)
{
  Zero0 *z = zero0_of(x);
  if (!has_masters(z))
    return;
  make_masters(x, z);
  g_autofree StorageId *gradients = g_new(StorageId, MAX(z->count, 1));
  for (int i = 0; i < z->count; i++) {
    gradients[i] = tensor_like(x, z->parameter[i], z->d.model, CATEGORY_UNSHARDED_GRADIENT);
    launch(x, "zeros", NO_STORAGE, z->d.model, gradients[i], z->d.model);
  }
  for (int i = 0; i < z->count; i++) {
    z->masters[i].gradient =
        tensor_like(x, z->parameter[i], DTYPE_FP32, CATEGORY_UNSHARDED_GRADIENT);
    launch(x, "zeros", NO_STORAGE, DTYPE_FP32, z->masters[i].gradient, DTYPE_FP32);
  }
  torch_optimizer_step(x, DTYPE_FP32, z->count, z->masters);
  for (int i = 0; i < z->count; i++)
    live_storage_drop(x->live, gradients[i]);
  for (int i = 0; i < z->count; i++)
    live_storage_clear(x->live, &z->masters[i].gradient);
}

/* ---- reduction ---- */

/* One all-reduce over gradients first .. end-1: of a copy in a row, unless there is only one. */
static void
reduce(StrategyContext *x, const Zero0 *z, const GArray *gradients, guint first, guint end)
{
  gint64 bytes = 0;
  for (guint i = first; i < end; i++)
    bytes += live_storage_bytes(x->live, g_array_index(gradients, StorageId, i));
  StorageId sent = g_array_index(gradients, StorageId, first), copy = NO_STORAGE;
  if (end - first > 1) {
    StoragePurpose purpose = {CATEGORY_REDUCE_SCATTER_BUFFER, -1,
                              program_builder_name(x->builder, "flattened gradients")};
    sent = copy = live_storage_alloc(x->live, bytes, STREAM_COMPUTE, purpose);
    for (guint i = first; i < end; i++)
      operand(x, g_array_index(gradients, StorageId, i), z->d.model, ROLE_READ);
    operand(x, copy, z->d.model, ROLE_WRITE);
    strategy_launch(x, STREAM_COMPUTE, "cat", 2.0 * (double) bytes);
  }
  if (z->d.ranks > 1) {
    program_builder_host_work(x->builder, HOST_WORK_COLLECTIVE_CALL, 1);
    operand(x, sent, z->d.model, ROLE_ACCUMULATE);
    program_builder_collective(x->builder, STREAM_COMPUTE,
                               &(Collective){.kind = COLLECTIVE_ALL_REDUCE,
                                             .dtype = (guint8) z->d.model,
                                             .communicator = z->d.communicator,
                                             .name = program_builder_name(x->builder, "gradients"),
                                             .bytes = bytes});
    operand(x, sent, z->d.model, ROLE_ACCUMULATE);
    g_autofree char *averages = meaning_text("scale_by", 1, "factor", 1.0 / z->d.ranks);
    strategy_launch_as(x, STREAM_COMPUTE, "mul", 2.0 * (double) bytes, averages);
  }
  gint64 offset = 0;
  for (guint i = first; i < end; i++) {
    StorageId gradient = g_array_index(gradients, StorageId, i);
    gint64 size = live_storage_bytes(x->live, gradient);
    program_builder_operand(x->builder,
                            program_builder_flat_tensor(x->builder, sent, offset / z->d.element,
                                                        size / z->d.element, z->d.model),
                            sent == copy ? ROLE_READ : ROLE_ACCUMULATE);
    if (sent == copy)
      operand(x, gradient, z->d.model, ROLE_WRITE);
    strategy_launch_as(x, STREAM_COMPUTE, "copy", 2.0 * (double) size,
                       sent == copy ? NULL : "itself");
    offset += size;
  }
  live_storage_drop(x->live, copy);
}

static void
after_graph(StrategyContext *x)
{
  const Zero0 *z = zero0_of(x);
  g_autoptr(GArray) gradients = g_array_new(FALSE, FALSE, sizeof(StorageId));
  gint64 elements = 0;
  guint first = 0;
  if (!x->last_micro_batch)
    return;
  for (int i = 0; i < z->count; i++) {
    const ParameterState *p = &x->parameters[z->parameter[i]];
    if (p->gradient == NO_STORAGE)
      continue;
    g_array_append_val(gradients, p->gradient);
    elements += z->masters[i].elements;
    if (elements <= BUCKET_ELEMENTS)
      continue;
    reduce(x, z, gradients, first, gradients->len);
    first = gradients->len;
    elements = 0;
  }
  if (first < gradients->len)
    reduce(x, z, gradients, first, gradients->len);
}

/* ---- the step ---- */

/* CheckOverflow.check: the host reads one answer for each gradient. */
static void
check_overflow(StrategyContext *x, const Zero0 *z)
{
  for (int i = 0; i < z->count; i++) {
    StorageId gradient = x->parameters[z->parameter[i]].gradient;
    if (gradient == NO_STORAGE)
      continue;
    StorageId bad =
        zero_has_inf_or_nan(x, STREAM_COMPUTE, live_storage_tensor(x->live, gradient, z->d.model),
                            &(ReducedTensor){z->masters[i].elements, z->d.element});
    zero_read_back(x, STREAM_COMPUTE);
    live_storage_drop(x->live, bad);
  }
  StorageId overflow = zero_scalar(x, 1, "copy", "zeros", NO_STORAGE);
  zero_read_back(x, STREAM_COMPUTE);
  live_storage_drop(x->live, overflow);
}

/* What the host makes of a scalar that it has waited for. */
static void
read_number(StrategyContext *x, StorageId scalar, const char *meaning)
{
  if (scalar != NO_STORAGE)
    operand(x, scalar, DTYPE_FP32, ROLE_READ);
  strategy_compute_on_host(x, "item", meaning);
}

/* get_weight_norm of the gradients: each through an fp32 copy, squares summed one by one. */
static void
take_norm(StrategyContext *x, const Zero0 *z)
{
  StorageId total = NO_STORAGE, norm = NO_STORAGE;
  for (int i = 0; i < z->count; i++) {
    StorageId gradient = x->parameters[z->parameter[i]].gradient;
    if (gradient == NO_STORAGE)
      continue;
    StorageId wide = tensor_like(x, z->parameter[i], DTYPE_FP32, CATEGORY_TEMPORARY);
    launch(x, "to_copy", gradient, z->d.model, wide, DTYPE_FP32);
    StorageId new = zero_make(x, STREAM_COMPUTE, &(SmallTensor){4, 1, "norm", NULL}, 1,
                              &(Scalars){wide, z->masters[i].elements});
    zero_reduction_scratch(x, STREAM_COMPUTE, z->masters[i].elements, 4);
    live_storage_drop(x->live, wide);
    live_storage_drop(x->live, norm);
    norm = new;
    StorageId square = zero_small(x, STREAM_COMPUTE, 4, "pow", norm);
    if (total == NO_STORAGE)
      total = zero_small(x, STREAM_COMPUTE, 4, "add", square);
    else
      zero_add(x, STREAM_COMPUTE, 4, square, total);
    live_storage_drop(x->live, square);
  }
  zero_read_back(x, STREAM_COMPUTE);
  read_number(x, total, "number_of");
  StorageId copy = zero_scalar(x, 4, "copy", "fill_number", NO_STORAGE);
  zero_read_back(x, STREAM_COMPUTE);
  read_number(x, copy, "number_root_of global=1");
  live_storage_drop(x->live, copy);
  live_storage_drop(x->live, norm);
  live_storage_drop(x->live, total);
}

/* All gradients in fp32; unscaled and clipped by a factor that the host knows. */
static void
make_fp32_gradients(StrategyContext *x, Zero0 *z)
{
  for (int i = 0; i < z->count; i++) {
    StorageId gradient = x->parameters[z->parameter[i]].gradient;
    z->masters[i].gradient =
        tensor_like(x, z->parameter[i], DTYPE_FP32, CATEGORY_UNSHARDED_GRADIENT);
    launch(x, gradient != NO_STORAGE ? "to_copy" : "zeros", gradient, z->d.model,
           z->masters[i].gradient, DTYPE_FP32);
  }
  g_autofree char *clips = meaning_text("number_clips", 1, "most", z->d.clip);
  if (z->d.clip > 0)
    read_number(x, NO_STORAGE, clips);
  for (int i = 0; i < z->count; i++) {
    operand(x, z->masters[i].gradient, DTYPE_FP32, ROLE_ACCUMULATE);
    strategy_launch_as(x, STREAM_COMPUTE, "mul", 8.0 * (double) z->masters[i].elements,
                       z->d.clip > 0 ? "scale_by_number" : "scale_by factor=1");
  }
}

static void
step_masters(StrategyContext *x, Zero0 *z)
{
  check_overflow(x, z);
  take_norm(x, z);
  make_fp32_gradients(x, z);
  torch_optimizer_step(x, DTYPE_FP32, z->count, z->masters);
  for (int i = 0; i < z->count; i++) {
    live_storage_clear(x->live, &z->masters[i].gradient);
    launch(x, "copy", z->masters[i].value, DTYPE_FP32, x->parameters[z->parameter[i]].sharded,
           z->d.model);
  }
}

/* ---- the step of an fp32 model ---- */

/* The norms of all gradients, and their own; all scalars of clip_grad_norm_ (runtime/utils.py) that
 * live until it returns are left in `kept`. */
static StorageId
stacked_norm(StrategyContext *x, const Zero0 *z, GArray *kept)
{
  gint64 n = z->count;
  g_autofree Scalars *norms = g_new(Scalars, MAX(n, 1));
  for (int i = 0; i < z->count; i++) {
    StorageId gradient = x->parameters[z->parameter[i]].gradient;
    StorageId norm = zero_make(x, STREAM_COMPUTE, &(SmallTensor){4, 1, "norm", NULL}, 1,
                               &(Scalars){gradient, z->masters[i].elements});
    zero_reduction_scratch(x, STREAM_COMPUTE, z->masters[i].elements, 4);
    g_array_append_val(kept, norm);
    norms[i] = (Scalars){norm, 1};
  }
  StorageId stacked =
      zero_make(x, STREAM_COMPUTE, &(SmallTensor){4 * n, n, "stack", NULL}, z->count, norms);
  StorageId squares = zero_make(x, STREAM_COMPUTE, &(SmallTensor){4 * n, n, "pow", NULL}, 1,
                                &(Scalars){stacked, n});
  live_storage_drop(x->live, stacked);
  StorageId sum =
      zero_make(x, STREAM_COMPUTE, &(SmallTensor){4, 1, "sum", NULL}, 1, &(Scalars){squares, n});
  live_storage_drop(x->live, squares);
  StorageId norm = zero_scalar(x, 4, "pow", "pow power=0.5 global=1", sum);
  live_storage_drop(x->live, sum);
  return norm;
}

/* The norm averaged over ranks, which it is the same on, and min(1, clip / norm). */
static StorageId
clip_coefficient(StrategyContext *x, const Zero0 *z, StorageId norm, GArray *kept)
{
  g_autofree char *average = meaning_text("div_scalar", 1, "value", (double) z->d.ranks);
  g_autofree char *limit = meaning_text("fill", 1, "value", z->d.clip);
  StorageId copy = zero_scalar(x, 4, "mul", "mul_scalar value=1", norm);
  StorageId averaged = zero_scalar(x, 4, "div", average, copy);
  live_storage_drop(x->live, copy);
  zero_all_reduce_scalar(x, z->d.communicator, averaged, DTYPE_FP32);
  live_storage_drop(x->live, norm);
  StorageId most = zero_scalar(x, 4, "copy", limit, NO_STORAGE);
  StorageId positive = zero_scalar(x, 4, "add", "add_scalar value=1e-06", averaged);
  StorageId ratio = zero_make(x, STREAM_COMPUTE, &(SmallTensor){4, 1, "div", NULL}, 2,
                              (const Scalars[]){{most, 1}, {positive, 1}});
  live_storage_drop(x->live, positive);
  StorageId one = zero_scalar(x, 4, "copy", "fill value=1", NO_STORAGE);
  StorageId coefficient = zero_make(x, STREAM_COMPUTE, &(SmallTensor){4, 1, "min", NULL}, 2,
                                    (const Scalars[]){{ratio, 1}, {one, 1}});
  live_storage_drop(x->live, ratio);
  const StorageId locals[] = {averaged, most, one, coefficient};
  g_array_append_vals(kept, locals, G_N_ELEMENTS(locals));
  return coefficient;
}

static void
clip(StrategyContext *x, const Zero0 *z)
{
  g_autoptr(GArray) kept = g_array_new(FALSE, FALSE, sizeof(StorageId));
  StorageId coefficient = clip_coefficient(x, z, stacked_norm(x, z, kept), kept);
  for (int i = 0; i < z->count; i++) {
    operand(x, coefficient, DTYPE_FP32, ROLE_READ);
    operand(x, x->parameters[z->parameter[i]].gradient, DTYPE_FP32, ROLE_ACCUMULATE);
    strategy_launch_as(x, STREAM_COMPUTE, "mul", 8.0 * (double) z->masters[i].elements,
                       "foreach_mul");
  }
  for (guint i = 0; i < kept->len; i++)
    live_storage_drop(x->live, g_array_index(kept, StorageId, i));
}

static void
step_parameters(StrategyContext *x, Zero0 *z)
{
  if (z->d.clip > 0)
    clip(x, z);
  for (int i = 0; i < z->count; i++) {
    z->masters[i].value = x->parameters[z->parameter[i]].sharded;
    z->masters[i].gradient = x->parameters[z->parameter[i]].gradient;
  }
  torch_optimizer_step(x, DTYPE_FP32, z->count, z->masters);
}

static void
optimizer_step(StrategyContext *x)
{
  Zero0 *z = zero0_of(x);
  program_builder_set_module(x->builder, -1);
  if (has_masters(z))
    step_masters(x, z);
  else
    step_parameters(x, z);
  for (int i = 0; i < z->count; i++) {
    ParameterState *p = &x->parameters[z->parameter[i]];
    p->has_gradient = FALSE;
    live_storage_clear(x->live, &p->gradient);
  }
  deepspeed_end_step(x);
}

/* ---- a checkpoint ---- */

/* Every rank reads the whole file.  Without the optimizer the fp32 copies stay as they are. */
static gint64
load_model(StrategyContext *x)
{
  Zero0 *z = zero0_of(x);
  g_autofree OptimizedTensor **tensors = g_new(OptimizedTensor *, MAX(z->count, 1));
  gint64 bytes = zero_load_weights(x, &z->d, NULL) + zero_owned_bytes(x, 0);
  for (int i = 0; i < z->count; i++)
    tensors[i] = &z->masters[i];
  if (x->plan->phases.load.optimizer)
    zero_load_optimizer(x, z->count, tensors, has_masters(z));
  return bytes;
}

/* ---- closed form ---- */

static ExpectedTotals
expected(StrategyContext *x)
{
  const Zero0 *z = zero0_of(x);
  ExpectedTotals total = {.parameter_bytes = network_parameter_count(x->network) * z->d.element};
  for (int i = 0; i < z->count && z->d.ranks > 1; i++)
    total.elements_all_reduced += z->masters[i].elements;
  if (z->d.ranks > 1 && z->d.clip > 0 && !has_masters(z))
    total.elements_all_reduced++; /* the norm */
  return total;
}

const Strategy strategy_zero0 = {
    .name = "zero0",
    .summary = "DeepSpeed without ZeRO: whole replicas, gradients all-reduced after backward",
    .section = &deepspeed_section,
    .batch_tensors = DEEPSPEED_BATCH_TENSORS,
    .accept = accept,
    .loss = loss,
    .setup = setup,
    .construct = strategy_construct_whole,
    .initialize = initialize,
    .teardown = teardown,
    .begin_forward = deepspeed_begin_forward,
    .after_graph = after_graph,
    .optimizer_step = optimizer_step,
    .expected = expected,
    .initializes = INITIALIZES_ON_DEVICE,
    .state_ranges = strategy_state_whole,
    .save_model = zero_save_state,
    .saves_with_engine = TRUE,
    .accept_load = zero_accept_load,
    .load_model = load_model,
};
