/* zero_load.c - a checkpoint of DeepSpeed's engine is read into the engine that wrote it, or one
 * like it (deepspeed 0.19.8, runtime/engine.py, load_checkpoint).  torch.load maps everything to
 * the host's memory: first the model's file, then this rank's part of the optimizer. */
#include "strategy/zero_load.h"

#include "strategy/state_dict.h"
#include "strategy/zero_offload.h"
#include "strategy/zero_state.h"

/* ---- what the engine can read ---- */

/* Stages 1 and 2 write the same partitions, but for BF16_Optimizer's. */
static gboolean
reads_from(const PlanSpec *plan, const Network *network, const char *source)
{
  DeepSpeed d;
  if (source == NULL || g_str_equal(source, plan->strategy))
    return TRUE;
  int stage = deepspeed_stage(plan);
  deepspeed_read(&d, plan, network, stage, 0);
  return (stage == 1 && g_str_equal(source, "zero2") && !deepspeed_is_bf16_optimizer(&d)) ||
         (stage == 2 && g_str_equal(source, "zero1"));
}

gboolean
zero_accept_load(const PlanSpec *plan, const Network *network, GError **error)
{
  const PhaseSpec *phases = &plan->phases;
  int ranks = plan->shard * plan->replicate;
  if (phases->load.state == STATE_FULL)
    return plan_spec_refuse(plan, error, "phases.load.state",
                            "DeepSpeed's engine reads what its ranks wrote, not a full state");
  if (phases->load.shard != 0 && phases->load.shard != ranks)
    return plan_spec_refuse(plan, error, "phases.load.from.shard",
                            "DeepSpeed reads a checkpoint of %d ranks with as many only, not with "
                            "%d; universal checkpoints are not yet supported",
                            phases->load.shard, ranks);
  if (!reads_from(plan, network, phases->load.strategy))
    return plan_spec_refuse(plan, error, "phases.load.from.strategy",
                            "strategy %s does not read what %s wrote; only zero1 and zero2 read "
                            "each other's, without fp32 accumulation in bf16",
                            plan->strategy, phases->load.strategy);
  if (strategy_freezes(network))
    return plan_spec_refuse(plan, error, "phases.load",
                            "parameters that do not train are not yet restored under strategy %s",
                            plan->strategy);
  if (!phases->load.optimizer && g_str_equal(plan->strategy, "zero3"))
    return plan_spec_refuse(plan, error, "phases.load.optimizer",
                            "stage 3 without the optimizer (weights put together from all ranks' "
                            "files) is not yet supported: set it true");
  if (plan->optimizer.implementation == OPTIMIZER_COMPOSER)
    return plan_spec_refuse(plan, error, "phases.load",
                            "not yet supported with Composer's optimizers under strategy %s",
                            plan->strategy);
  return TRUE;
}

/* ---- small steps ---- */

static StorageId
read_to_host(StrategyContext *x, gint64 bytes, Category category)
{
  StoragePurpose purpose = {category, -1, program_builder_name(x->builder, "read from checkpoint")};
  return live_storage_alloc_in(x->live, SPACE_HOST, bytes, STREAM_COMPUTE, purpose);
}

/* What was read is pageable: the host waits. */
static void
copy_to_device(StrategyContext *x, gint64 bytes)
{
  strategy_copy(x, STREAM_COMPUTE, "copy to the device", (double) bytes);
  program_builder_stream_sync(x->builder, STREAM_COMPUTE);
}

static gboolean
is_on_host(const StrategyContext *x, StorageId storage)
{
  return storage != NO_STORAGE && live_storage_space(x->live, storage) != SPACE_DEVICE;
}

/* tensor.copy_() of what was read; within the host it costs the device nothing. */
static void
copy_into(StrategyContext *x, StorageId from, StorageId into, DType dtype)
{
  if (into == NO_STORAGE || is_on_host(x, into))
    return;
  state_copy(x, from, into, dtype, live_storage_bytes(x->live, from));
}

/* ---- the model's file ---- */

static void
load_weight(StrategyContext *x, const DeepSpeed *d, const ZeroFlat *flat, int parameter)
{
  gint64 elements = network_parameter(x->network, parameter)->elements;
  if (flat != NULL)
    zero_operand(x, flat->storage, flat->offset[parameter], elements, d->model, ROLE_WRITE);
  else
    program_builder_operand(
        x->builder, live_storage_tensor(x->live, x->parameters[parameter].sharded, d->model),
        ROLE_WRITE);
  copy_to_device(x, elements * d->element);
}

gint64
zero_load_weights(StrategyContext *x, const DeepSpeed *d, const ZeroFlat *flat)
{
  gint64 bytes = network_parameter_count(x->network) * d->element;
  StorageId file = read_to_host(x, bytes, CATEGORY_OTHER);
  g_autoptr(GArray) order = network_state_order(x->network);
  for (guint i = 0; i < order->len; i++)
    load_weight(x, d, flat, g_array_index(order, int, i));
  live_storage_drop(x->live, file);
  return bytes;
}

/* ---- the optimizer ---- */

/* What was read for one tensor, or what it has until then. */
typedef struct {
  StorageId master, step, moment[OPTIMIZER_MOMENTS];
} States;

static States
read_states(StrategyContext *x, const OptimizedTensor *t, gboolean master)
{
  States read = {NO_STORAGE, NO_STORAGE, {NO_STORAGE, NO_STORAGE}};
  gint64 bytes = t->elements * dtype_size(DTYPE_FP32);
  if (master)
    read.master = read_to_host(x, bytes, CATEGORY_OTHER);
  for (int k = 0; k < optimizer_moments(x->plan); k++)
    read.moment[k] = read_to_host(x, bytes, CATEGORY_OPTIMIZER_STATE);
  return read;
}

/* value.to(dtype, device) of a state: a new tensor, or, on the host, what was read itself. */
static StorageId
place(StrategyContext *x, const OptimizedTensor *t, StorageId read)
{
  if (read == NO_STORAGE || is_on_host(x, t->value)) {
    live_storage_hold(x->live, read);
    return read;
  }
  StoragePurpose purpose = {CATEGORY_OPTIMIZER_STATE, -1,
                            program_builder_name(x->builder, "optimizer state")};
  if (t->parameter >= 0)
    purpose = parameter_purpose(x, t->parameter, CATEGORY_OPTIMIZER_STATE);
  StorageId state =
      live_storage_alloc(x->live, live_storage_bytes(x->live, read), STREAM_COMPUTE, purpose);
  copy_into(x, read, state, DTYPE_FP32);
  return state;
}

/* A fused optimizer's step counter goes to the device too (torch/optim/optimizer.py,
 * _process_value_according_to_param_policy). */
static StorageId
place_step(StrategyContext *x, const OptimizedTensor *t)
{
  gboolean adam = x->plan->optimizer.name != OPTIMIZER_SGD;
  if (!adam || x->plan->optimizer.implementation != OPTIMIZER_FUSED || is_on_host(x, t->value))
    return NO_STORAGE;
  StorageId read = read_to_host(x, 4, CATEGORY_OTHER);
  StorageId step = place(x, t, read);
  live_storage_drop(x->live, read);
  return step;
}

/* Takes the new states; returns the old ones. */
static States
replace(StrategyContext *x, OptimizedTensor *t, const States *read)
{
  States old = {NO_STORAGE, t->step, {t->moment[0], t->moment[1]}};
  t->step = place_step(x, t);
  for (int k = 0; k < OPTIMIZER_MOMENTS; k++)
    t->moment[k] = place(x, t, read->moment[k]);
  t->made = TRUE;
  return old;
}

static void
forget(StrategyContext *x, const States *states)
{
  live_storage_drop(x->live, states->step);
  for (int k = 0; k < OPTIMIZER_MOMENTS; k++)
    live_storage_drop(x->live, states->moment[k]);
  live_storage_drop(x->live, states->master);
}

void
zero_load_optimizer(StrategyContext *x, int n, OptimizedTensor *const *tensors, gboolean masters)
{
  g_autofree States *read = g_new(States, MAX(n, 1));
  g_autofree States *old = g_new(States, MAX(n, 1));
  for (int i = 0; i < n; i++)
    read[i] = read_states(x, tensors[i], masters);
  for (int i = 0; i < n; i++)
    old[i] = replace(x, tensors[i], &read[i]);
  for (int i = 0; i < n; i++)
    forget(x, &old[i]);
  for (int i = 0; i < n; i++)
    copy_into(x, read[i].master, tensors[i]->value, DTYPE_FP32);
  for (int i = 0; i < n; i++)
    forget(x, &read[i]);
}

/* ---- stages 1 and 2 ---- */

/* _restore_from_bit16_weights: this rank's partition of what was read, in fp32. */
static void
restore_master(StrategyContext *x, const Zero *z)
{
  gint64 elements = z->flat.partition;
  gboolean leaves = zero_is_offloaded(z);
  program_builder_operand(x->builder, zero_flat_partition_tensor(&z->flat, x, &z->d), ROLE_READ);
  zero_operand(x, z->master.value, 0, elements, DTYPE_FP32, ROLE_WRITE);
  if (!leaves) {
    strategy_launch(x, STREAM_COMPUTE, "copy", (double) (elements * (4 + z->d.element)));
    return;
  }
  strategy_copy(x, STREAM_COMPUTE, "copy to the host", (double) (elements * z->d.element));
  program_builder_stream_sync(x->builder, STREAM_COMPUTE);
}

gint64
zero_stage12_load(StrategyContext *x)
{
  Zero *z = zero_of(x);
  OptimizedTensor *const tensors[] = {&z->master};
  gint64 bytes = zero_load_weights(x, &z->d, &z->flat);
  if (!x->plan->phases.load.optimizer) {
    restore_master(x, z);
    return bytes;
  }
  zero_load_optimizer(x, 1, tensors, TRUE);
  return bytes + zero_owned_bytes(x, x->global_rank);
}
