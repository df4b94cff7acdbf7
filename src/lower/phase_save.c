/* phase_save.c - a checkpoint is made: the model's state dict and the optimizer's
 * (torch/distributed/checkpoint/state_dict.py), then what is still on the device goes to the host's
 * memory for being written. */
#include "lower/phase_save.h"

#include "strategy/state_dict.h"

/* DeepSpeed's engine writes both, sharded, or the weights in the model's dtype, whole. */
static gboolean
accept_engine(const PlanSpec *plan, GError **error)
{
  const PhaseSpec *spec = &plan->phases;
  gboolean full = spec->save.state == STATE_FULL;
  if (spec->save.cpu_offload)
    return plan_spec_refuse(plan, error, "phases.save.cpu_offload",
                            "DeepSpeed makes no state dict on the host");
  if (full == spec->save.optimizer)
    return plan_spec_refuse(plan, error, "phases.save.optimizer",
                            full ? "DeepSpeed's full weights come without: set it false"
                                 : "DeepSpeed's checkpoints have it: set it true");
  return TRUE;
}

gboolean
phase_save_accept(const PlanSpec *plan, const Strategy *strategy, GError **error)
{
  const PhaseSpec *spec = &plan->phases;
  if (!spec->save.given || strategy->saves_states)
    return TRUE;
  if (strategy->saves_with_engine)
    return accept_engine(plan, error);
  if (strategy->save_model == NULL)
    return plan_spec_refuse(plan, error, "phases.save", "not yet supported under strategy %s",
                            plan->strategy);
  if (spec->save.optimizer && strategy->save_optimizer == NULL)
    return plan_spec_refuse(plan, error, "phases.save.optimizer",
                            "states of the optimizer are not yet saved under strategy %s",
                            plan->strategy);
  if (spec->save.optimizer && (plan_spec_number(plan, "cpu_offload") != 0 ||
                               plan_spec_number(plan, "use_orig_params") == 0))
    return plan_spec_refuse(plan, error, "phases.save.optimizer",
                            "states of the optimizer are not yet saved under strategy %s with "
                            "cpu_offload or without use_orig_params",
                            plan->strategy);
  return TRUE;
}

/* ---- the state dict ---- */

static DType
stored_dtype(const StrategyContext *x)
{
  return x->plan->precision.parameters;
}

/* A tensor that is sharded like a parameter: gathered if the state dict is full. */
static void
add_sharded(StepWalk *w, StateDict *dict, int parameter, StorageId local, Category category)
{
  StrategyContext *x = w->x;
  DType dtype = stored_dtype(x);
  gint64 elements = x->parameters[parameter].local_elements;
  StateTensor tensor = {.storage = local, .dtype = dtype, .parameter = parameter};
  if (dict->full)
    elements = network_parameter(x->network, parameter)->elements;
  if (dict->full && w->strategy->full_tensor != NULL)
    tensor.storage = w->strategy->full_tensor(x, parameter, local, dtype, category);
  else
    live_storage_hold(x->live, local);
  tensor.bytes = elements * dtype_size(dtype);
  state_dict_add(x, dict, &tensor);
}

/* model.state_dict() */
static void
add_model(StepWalk *w, StateDict *dict)
{
  StrategyContext *x = w->x;
  g_autoptr(GArray) order = network_state_order(x->network);
  for (guint i = 0; i < order->len; i++) {
    int p = g_array_index(order, int, i);
    add_sharded(w, dict, p, x->parameters[p].sharded, CATEGORY_UNSHARDED_PARAMETER);
  }
}

/* The step counter is a tensor of its own: on the device when the optimizer is fused. */
static void
add_step(StrategyContext *x, StateDict *dict, const OptimizedTensor *t)
{
  StateTensor step = {
      .storage = t->step, .bytes = 4, .dtype = DTYPE_FP32, .parameter = t->parameter};
  live_storage_hold(x->live, t->step);
  state_dict_add(x, dict, &step);
}

static void
add_optimizer(StepWalk *w, StateDict *dict)
{
  StrategyContext *x = w->x;
  gboolean adam = x->plan->optimizer.name != OPTIMIZER_SGD;
  int moments = optimizer_moments(x->plan);
  for (guint i = 0; i < x->network->parameters->len; i++) {
    const OptimizedTensor *t = optimizer_state_tensor(w->optimizer, (int) i);
    if (!t->made)
      continue;
    if (adam)
      add_step(x, dict, t);
    for (int k = 0; k < moments; k++)
      add_sharded(w, dict, (int) i, t->moment[k], CATEGORY_OPTIMIZER_STATE);
  }
}

/* The strategy's own way: step counters come to the host (_allgather_state_info). */
static void
add_optimizer_by_strategy(StepWalk *w, StateDict *dict)
{
  StrategyContext *x = w->x;
  gboolean adam = x->plan->optimizer.name != OPTIMIZER_SGD;
  int moments = optimizer_moments(x->plan);
  if (x->plan->optimizer.name == OPTIMIZER_NONE)
    return;
  guint n = x->network->parameters->len;
  g_autofree StorageId *states = g_new(StorageId, MAX(n, 1) * OPTIMIZER_MOMENTS);
  const StorageId *by_moment[OPTIMIZER_MOMENTS] = {states, states + n};
  for (guint i = 0; i < n; i++) {
    const OptimizedTensor *t = optimizer_state_tensor(w->optimizer, (int) i);
    for (int k = 0; k < OPTIMIZER_MOMENTS; k++)
      states[(guint) k * n + i] = t->made ? t->moment[k] : NO_STORAGE;
    StateTensor step = {
        .storage = NO_STORAGE, .bytes = 4, .dtype = DTYPE_FP32, .parameter = (gint32) i};
    if (adam && network_parameter(x->network, (int) i)->trainable)
      state_dict_add(x, dict, &step);
    if (!t->made || t->step == NO_STORAGE)
      continue;
    program_builder_operand(x->builder, live_storage_tensor(x->live, t->step, DTYPE_FP32),
                            ROLE_READ);
    strategy_copy(x, STREAM_COMPUTE, "copy to the host", 4);
    program_builder_stream_sync(x->builder, STREAM_COMPUTE);
  }
  w->strategy->save_optimizer(x, dict, moments, by_moment);
}

/* ---- writing ---- */

/* torch.save and the file system writer of torch.distributed.checkpoint take one tensor after the
 * other to the host. */
static void
copy_out(StrategyContext *x, const StateDict *dict)
{
  gint32 what = program_builder_name(x->builder, "tensor being written");
  StoragePurpose purpose = {CATEGORY_OTHER, -1, what};
  for (guint i = 0; i < dict->kept->len; i++) {
    StorageId storage = g_array_index(dict->kept, StateTensor, i).storage;
    if (storage == NO_STORAGE || live_storage_space(x->live, storage) != SPACE_DEVICE)
      continue;
    gint64 bytes = live_storage_bytes(x->live, storage);
    StorageId copy = live_storage_alloc_in(x->live, SPACE_HOST, bytes, STREAM_COMPUTE, purpose);
    state_copy(x, storage, copy, DTYPE_UINT8, bytes);
    live_storage_drop(x->live, copy);
  }
}

static gboolean
is_whole(const StepWalk *w)
{
  const Strategy *strategy = w->strategy;
  return w->x->plan->phases.save.state == STATE_FULL ||
         (strategy->saves_states && strategy->full_tensor == NULL) ||
         (strategy->state_is_whole != NULL && strategy->state_is_whole(w->x));
}

LoweredPhase
phase_save(StepWalk *w)
{
  StrategyContext *x = w->x;
  const PhaseSpec *spec = &x->plan->phases;
  gboolean whole = is_whole(w), gathers = spec->save.state == STATE_FULL;
  StateDict *dict = state_dict_new(whole, spec->save.cpu_offload, x->global_rank);
  dict->keeps |= !gathers; /* ranks_only=(0,) comes with full_state_dict */
  program_builder_set_module(x->builder, -1);
  program_builder_push(x->builder, RANGE_BEYOND, "save", -1);
  if (w->strategy->begin_state != NULL)
    w->strategy->begin_state(x);
  if (w->strategy->save_model != NULL)
    w->strategy->save_model(x, dict);
  else
    add_model(w, dict);
  if (spec->save.optimizer && w->strategy->save_optimizer != NULL)
    add_optimizer_by_strategy(w, dict);
  else if (spec->save.optimizer && !w->strategy->saves_with_engine)
    add_optimizer(w, dict);
  gboolean writes = !whole || x->global_rank == 0;
  if (writes)
    copy_out(x, dict);
  program_builder_pop(x->builder);
  LoweredPhase moved = {.name = "save",
                        .state_bytes = writes ? dict->bytes : 0,
                        .rank_0_bytes = -1,
                        .others_bytes = -1};
  if (whole) {
    moved.rank_0_bytes = dict->bytes;
    moved.others_bytes =
        (gathers && dict->offload) || w->strategy->saves_with_engine ? 0 : dict->bytes;
  }
  state_dict_free(x, dict);
  return moved;
}
