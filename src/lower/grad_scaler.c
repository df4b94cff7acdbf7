/* grad_scaler.c - torch.amp.GradScaler around backward and the optimizer's step.
 *
 * Nothing ever overflows here: no step is left out, and the scale stays what it begins with. */
#include "lower/grad_scaler.h"

#include "lower/optimizer_step.h"
#include "program/meaning.h"

/* ---- small tensors ---- */

static void
operand(StrategyContext *x, StorageId storage, Role role)
{
  program_builder_operand(x->builder, live_storage_tensor(x->live, storage, DTYPE_FP32), role);
}

static StorageId
allocate(StrategyContext *x, gint64 bytes, const char *what)
{
  StoragePurpose purpose = {CATEGORY_TEMPORARY, -1, program_builder_name(x->builder, what)};
  return live_storage_alloc(x->live, bytes, STREAM_COMPUTE, purpose);
}

/* ---- the scale ---- */

void
grad_scaler_init(GradScaler *s)
{
  *s = (GradScaler){NO_STORAGE, NO_STORAGE, NO_STORAGE, NO_STORAGE, NO_STORAGE};
}

StorageId
grad_scaler_scale(StrategyContext *x, GradScaler *s)
{
  if (s->scale != NO_STORAGE)
    return s->scale;
  g_autofree char *fill = meaning_text("fill", 1, "value", network_loss_scale(DTYPE_FP16));
  s->scale = strategy_scalar(x, NO_STORAGE, "loss scale", fill);
  s->growth_tracker = strategy_scalar(x, NO_STORAGE, "growth tracker", "fill value=0");
  live_storage_promote(x->live, s->scale, CATEGORY_OTHER);
  live_storage_promote(x->live, s->growth_tracker, CATEGORY_OTHER);
  return s->scale;
}

/* scale.double().reciprocal().float(): two of eight bytes on the way. */
static StorageId
inverse_scale(StrategyContext *x, const GradScaler *s)
{
  StorageId wide = allocate(x, 8, "scale in fp64"), inverse = allocate(x, 8, "inverse in fp64");
  live_storage_drop(x->live, wide);
  StorageId result = strategy_scalar(x, s->scale, "inverse scale", "pow power=-1");
  live_storage_drop(x->live, inverse);
  return result;
}

/* ---- unscaling ---- */

static void
all_reduce(StrategyContext *x, StorageId storage, const char *name, int ranks)
{
  program_builder_host_work(x->builder, HOST_WORK_COLLECTIVE_CALL, 1);
  operand(x, storage, ROLE_ACCUMULATE);
  program_builder_collective(
      x->builder, STREAM_COMPUTE,
      &(Collective){.kind = COLLECTIVE_ALL_REDUCE,
                    .dtype = DTYPE_FP32,
                    .communicator = program_builder_communicator(x->builder, name, ranks, 1),
                    .name = program_builder_name(x->builder, "found inf"),
                    .bytes = dtype_size(DTYPE_FP32)});
}

/* found_inf_reduce_handler of DTensors (torch/distributed/tensor/_dispatch.py): the largest of all
 * shards' comes into a copy.  Replicas have the same gradients. */
static void
reduce_found(StrategyContext *x, StorageId found)
{
  if (x->plan->shard == 1)
    return;
  StorageId largest = strategy_scalar(x, found, "found inf of all ranks", "to_copy");
  all_reduce(x, largest, "shard", x->plan->shard);
  operand(x, largest, ROLE_READ);
  operand(x, found, ROLE_WRITE);
  strategy_launch_as(x, STREAM_COMPUTE, "copy_", 8, "to_copy");
  live_storage_drop(x->live, largest);
}

/* _unscale_grads_ over all gradients: works on copies of both numbers, as it would for each device;
 * that of found_inf is kept, and there on a rank without gradients too.  Takes both. */
static void
unscale(StrategyContext *x, const Strategy *strategy, GradScaler *s, StorageId inverse)
{
  StorageId found = strategy_scalar(x, NO_STORAGE, "found inf", "fill value=0"), copy = NO_STORAGE;
  s->found_inf = strategy_scalar(x, found, "found inf of the device", "to_copy");
  if (optimizer_has_gradients(x)) {
    copy = strategy_scalar(x, inverse, "inverse scale of the device", "to_copy");
    double bytes = optimizer_gradients(x, ROLE_ACCUMULATE);
    operand(x, copy, ROLE_READ);
    operand(x, s->found_inf, ROLE_ACCUMULATE);
    strategy_launch_as(x, STREAM_COMPUTE, "amp_foreach_non_finite_check_and_unscale", 2 * bytes,
                       "foreach_mul");
  }
  if (strategy->grad_scaler == GRAD_SCALER_OF_DTENSORS)
    reduce_found(x, s->found_inf);
  live_storage_drop(x->live, copy);
  live_storage_drop(x->live, inverse);
  live_storage_drop(x->live, found);
}

void
grad_scaler_unscale(StrategyContext *x, const Strategy *strategy, GradScaler *s)
{
  program_builder_set_module(x->builder, -1);
  const PlanSpec *plan = x->plan;
  unscale(x, strategy, s, inverse_scale(x, s));
  if (strategy->grad_scaler == GRAD_SCALER_SHARDED)
    all_reduce(x, s->found_inf, plan->replicate > 1 ? "world" : "shard",
               plan->shard * plan->replicate);
}

/* ---- the step ---- */

/* A fused optimizer is given the scale, and whether there is an infinity, and decides on the
 * device. Of gradients that nobody has unscaled it is only looked for infinities: the kernel
 * unscales. */
static void
begin_fused(StrategyContext *x, const Strategy *strategy, GradScaler *s)
{
  gboolean unscaled = s->found_inf != NO_STORAGE;
  if (!unscaled)
    unscale(x, strategy, s, strategy_scalar(x, NO_STORAGE, "no scale", "fill value=1"));
  s->sum = strategy_scalar(x, s->found_inf, "sum of found infs", "add_scalar value=0");
  if (!unscaled) {
    s->gradient_scale = strategy_scalar(x, s->scale, "gradient scale", "mul_scalar value=1");
    x->gradient_scale = network_loss_scale(DTYPE_FP16);
  }
}

/* found_inf.item() */
static void
read_found(StrategyContext *x, StorageId found)
{
  operand(x, found, ROLE_READ);
  strategy_copy(x, STREAM_COMPUTE, "item", dtype_size(DTYPE_FP32));
  program_builder_stream_sync(x->builder, STREAM_COMPUTE);
}

static gboolean
is_fused(const PlanSpec *plan)
{
  return plan->optimizer.implementation == OPTIMIZER_FUSED && plan->optimizer.name != OPTIMIZER_SGD;
}

void
grad_scaler_begin_step(StrategyContext *x, const Strategy *strategy, GradScaler *s)
{
  program_builder_set_module(x->builder, -1);
  if (is_fused(x->plan)) {
    begin_fused(x, strategy, s);
    return;
  }
  if (s->found_inf == NO_STORAGE)
    grad_scaler_unscale(x, strategy, s);
  read_found(x, s->found_inf);
}

void
grad_scaler_end_step(StrategyContext *x, GradScaler *s)
{
  program_builder_set_module(x->builder, -1);
  if (is_fused(x->plan)) { /* steps that were left out are not counted */
    operand(x, s->sum, ROLE_READ);
    strategy_launch_as(x, STREAM_COMPUTE, "foreach_sub", 8, "itself");
  }
  x->gradient_scale = 0;
  live_storage_clear(x->live, &s->gradient_scale);
  live_storage_clear(x->live, &s->sum);
  operand(x, s->found_inf, ROLE_READ);
  operand(x, s->scale, ROLE_ACCUMULATE);
  operand(x, s->growth_tracker, ROLE_ACCUMULATE);
  strategy_launch_as(x, STREAM_COMPUTE, "amp_update_scale", 12, "itself");
  live_storage_clear(x->live, &s->found_inf);
}
