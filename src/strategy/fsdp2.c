/* fsdp2.c - torch.distributed.fsdp.fully_shard: groups, hooks and options (_fsdp_state.py,
 * _fully_shard.py). */
#include <string.h>

#include "strategy/fsdp2_private.h"
#include "strategy/fsdp_groups.h"
#include "strategy/fsdp_ignored.h"
#include "strategy/fsdp_options.h"

static void
fill_group(StrategyContext *x, Fsdp2 *f, int index)
{
  Group *g = &f->groups[index];
  Unit *unit = g_ptr_array_index(x->units, (guint) index);
  g->unit = unit;
  g->index = index;
  g->count = (int) unit->parameters->len;
  g->parameter = (const int *) (const void *) unit->parameters->data;
  g->shard = g_new(Shard, MAX(g->count, 1));
  g->full = g_new(StorageId, MAX(g->count, 1));
  g->slice = g_new(StorageId, MAX(g->count, 1));
  g->on_host_event = g_new(gint32, MAX(g->count, 1));
  for (int i = 0; i < g->count; i++) {
    int p = g->parameter[i];
    f->shards[p] = g->shard[i] = shard_of(network_parameter(x->network, p), f->ranks, x->rank);
    g->full[i] = g->slice[i] = NO_STORAGE;
    g->on_host_event[i] = -1;
    g->shard_elements += g->shard[i].padded_elements;
    if (network_parameter(x->network, p)->trainable)
      g->reduced_elements += g->shard[i].padded_elements;
    x->parameters[p].local_elements = g->shard[i].local_elements;
  }
  for (guint i = 0; i < unit->modules->len; i++)
    f->group_of_module[g_array_index(unit->modules, int, i)] = index;
  g->gathered_elements = f->ranks * g->shard_elements;
  g->gathered = g->all_reduce_input = g->partial = NO_STORAGE;
  g->reshard_event = g->reduce_event = g->all_reduce_event = -1;
  unit->unsharded_bytes = g->gathered_elements * dtype_size(f->gathered);
  unit->shard_bytes = g->shard_elements * dtype_size(f->stored);
}

/* Which groups stay gathered after forward. */
static ReshardAfterForward
reshard_policy(const StrategyContext *x, const Fsdp2 *f, int index)
{
  const OptionValue *v = plan_spec_option(x->plan, "reshard_after_forward");
  const Group *g = &f->groups[index];
  int first = g->unit->modules->len > 0 ? g_array_index(g->unit->modules, int, 0) : 0;
  gboolean is_block = network_module(x->network, first)->block >= 0 && !fsdp_groups_given(x->plan);
  gboolean is_head = !is_block && !fsdp_groups_given(x->plan) &&
                     x->network->head_modules->len > 0 &&
                     first == g_array_index(x->network->head_modules, int, 0) && index > 0;
  if (index == 0 && !plan_spec_number(x->plan, "reshard_root"))
    return RESHARD_NO;
  if (is_head && !plan_spec_number(x->plan, "reshard_head"))
    return RESHARD_NO;
  int last_block = network_block(x->network, (int) x->network->blocks->len - 1)->module;
  if (is_block && !plan_spec_number(x->plan, "reshard_last_block") &&
      g_array_index(g->unit->modules, int, g->unit->modules->len - 1) == last_block)
    return RESHARD_NO;
  if (v->is_null)
    return index == 0 ? RESHARD_NO : RESHARD_YES; /* the library's default: all but the root */
  if (v->is_bool)
    return v->number ? RESHARD_YES : RESHARD_NO;
  if (v->number == 1)
    return RESHARD_NO;
  return v->number == f->ranks ? RESHARD_YES : RESHARD_SLICE;
}

static void
mark_ignored(StrategyContext *x)
{
  for (guint i = 0; i < x->network->parameters->len; i++) {
    const Parameter *p = network_parameter(x->network, (int) i);
    x->parameters[i].ignored = fsdp_ignores(x->plan, p->name);
    if (x->parameters[i].ignored)
      x->parameters[i].local_elements = p->elements;
  }
}

static void
setup(StrategyContext *x)
{
  Fsdp2 *f = x->state = g_new0(Fsdp2, 1);
  const PlanSpec *plan = x->plan;
  f->ranks = plan->shard;
  f->replicas = plan->replicate;
  f->stored = plan->precision.parameters;
  f->gathered = plan->precision.compute;
  f->reduce = plan->precision.reduce;
  x->offloads = plan_spec_number(plan, "cpu_offload") != 0;
  f->pins = x->offloads && plan_spec_number(plan, "pin_memory") != 0;
  f->previous_gather = f->reduce_input = NO_STORAGE;
  f->forward_root = -1;
  f->forward_order = g_array_new(FALSE, FALSE, sizeof(int));
  f->shard_communicator = program_builder_communicator(x->builder, "shard", f->ranks, 1);
  if (f->replicas > 1)
    f->replicate_communicator =
        program_builder_communicator(x->builder, "replicate", f->replicas, f->ranks);
  mark_ignored(x);
  fsdp2_make_units(x);
  f->count = (int) x->units->len;
  f->groups = g_new0(Group, f->count);
  f->shards = g_new0(Shard, x->network->parameters->len);
  f->group_of_module = g_new(int, x->network->modules->len);
  memset(f->group_of_module, -1, sizeof(int) * x->network->modules->len);
  fsdp2_order_parameters(x);
  for (int i = 0; i < f->count; i++)
    fill_group(x, f, i);
  const OptionValue *reshard = plan_spec_option(plan, "reshard_after_forward");
  for (int i = 0; i < f->count; i++) {
    Group *g = &f->groups[i];
    g->reshard_after_forward = reshard_policy(x, f, i);
    g->slice_ranks = g->reshard_after_forward == RESHARD_SLICE ? (int) reshard->number : f->ranks;
    if (g->reshard_after_forward == RESHARD_SLICE)
      f->slice_communicator = program_builder_communicator(x->builder, "slice", g->slice_ranks, 1);
  }
  fsdp2_set_prefetch(x, f);
}

static void
teardown(StrategyContext *x)
{
  Fsdp2 *f = fsdp2_of(x);
  for (int i = 0; i < f->count; i++) {
    Group *g = &f->groups[i];
    g_free(g->shard);
    g_free(g->full);
    g_free(g->slice);
    g_free(g->on_host_event);
    g_clear_pointer(&g->forward_prefetch, g_array_unref);
    g_clear_pointer(&g->backward_prefetch, g_array_unref);
  }
  g_free(f->groups);
  g_free(f->shards);
  g_free(f->group_of_module);
  g_array_unref(f->forward_order);
  g_free(f);
}

/* ---- construction: to_empty() on a sharded meta model ---- */

/* reset_sharded_param: a short shard is replaced by a padded one, one on the host by a page-locked
 * one. */
static void
reset_shard(StrategyContext *x, int parameter, const Shard *shard)
{
  if (shard->local_elements == shard->padded_elements && !fsdp2_of(x)->pins)
    return;
  StoragePurpose purpose = parameter_purpose(x, parameter, CATEGORY_PARAMETER);
  gint64 bytes = shard->padded_elements * dtype_size(fsdp2_of(x)->stored);
  StorageId old = x->parameters[parameter].sharded;
  x->parameters[parameter].sharded =
      live_storage_alloc_in(x->live, offload_space(x), bytes, STREAM_COMPUTE, purpose);
  fsdp2_holds(x, parameter);
  live_storage_drop(x->live, old);
}

/* to_empty() where the policy says: on the host what it makes is pageable. */
static void
construct_parameter(StrategyContext *x, int parameter)
{
  ParameterState *state = &x->parameters[parameter];
  gint64 bytes = state->local_elements * dtype_size(fsdp2_of(x)->stored);
  StorageId old = state->sharded; /* a tied weight is visited twice */
  state->sharded =
      live_storage_alloc_in(x->live, x->offloads ? SPACE_HOST : SPACE_DEVICE, bytes, STREAM_COMPUTE,
                            parameter_purpose(x, parameter, CATEGORY_PARAMETER));
  fsdp2_holds(x, parameter);
  live_storage_drop(x->live, old);
  if (state->ignored)
    state->unsharded = state->sharded;
}

/* A module that fully_shard was called on ends its _apply: its short shards are padded then.  The
 * root's last. */
static void
construct_module_end(StrategyContext *x, int module)
{
  const Fsdp2 *f = fsdp2_of(x);
  int index = f->group_of_module[module];
  if (index < 0)
    return;
  const Group *g = &f->groups[index];
  for (int i = 0; i < g->count; i++)
    if (strategy_module_contains(x->network, module,
                                 network_parameter(x->network, g->parameter[i])->module))
      reset_shard(x, g->parameter[i], &g->shard[i]);
}

static void
construct(StrategyContext *x)
{
  if (x->plan->phases.initialize.from == INITIALIZE_FULL) {
    fsdp2_construct_from_full(x);
    return;
  }
  strategy_visit_construction(x, construct_parameter, construct_module_end);
}

/* ---- hooks ---- */

static void
begin_micro_batch(StrategyContext *x)
{
  Fsdp2 *f = fsdp2_of(x);
  f->keep_unsharded = !x->plan->accumulation.reshard_after_backward && !x->last_micro_batch;
  for (int i = 0; i < f->count; i++)
    f->groups[i].reduced = FALSE;
}

static void
begin_step(StrategyContext *x)
{
  for (guint i = 0; i < x->units->len; i++) {
    Unit *unit = g_ptr_array_index(x->units, i);
    unit->all_gathers = unit->reduce_scatters = 0;
  }
}

/* _root_pre_forward, of the first module of a forward: gathers may not overtake the optimizer step.
 */
static void
root_pre_forward(StrategyContext *x, int unit)
{
  Fsdp2 *f = fsdp2_of(x);
  if (f->forward_root >= 0)
    return;
  f->forward_root = unit;
  wait_stream(x, STREAM_COPY_IN, STREAM_COMPUTE);
  wait_stream(x, STREAM_ALL_GATHER, STREAM_COMPUTE);
}

/* Its end lets the last all-gather output go (_post_forward). */
static void
root_post_forward(StrategyContext *x, int unit)
{
  Fsdp2 *f = fsdp2_of(x);
  if (f->forward_root != unit)
    return;
  f->forward_root = -1;
  if (f->previous_gather == NO_STORAGE)
    return;
  program_builder_wait(x->builder, STREAM_COPY_IN, f->previous_copy_event);
  program_builder_wait(x->builder, STREAM_ALL_GATHER, f->previous_copy_event);
  live_storage_clear(x->live, &f->previous_gather);
}

/* lazy_init() of the first forward finds that a weight was tied after it had been sharded, and
 * takes the other's shard in place of its own (FSDPParam.reset_sharded_param). */
static void
tie_shards(StrategyContext *x)
{
  for (guint i = 0; i < x->network->parameters->len; i++) {
    int other = network_parameter(x->network, (int) i)->shard_of;
    StorageId old = x->parameters[i].sharded;
    if (other < 0 || old == x->parameters[other].sharded)
      continue;
    x->parameters[i].sharded = x->parameters[other].sharded;
    live_storage_hold(x->live, x->parameters[i].sharded);
    live_storage_drop(x->live, old);
  }
}

static void
begin_forward(StrategyContext *x)
{
  begin_micro_batch(x);
  tie_shards(x);
  root_pre_forward(x, 0);
}

static void
before_forward(StrategyContext *x, int unit)
{
  Fsdp2 *f = fsdp2_of(x);
  Group *g = &f->groups[unit];
  program_builder_host_work(x->builder, HOST_WORK_HOOK, 1);
  if (g->count == 0) /* a root whose parameters all are in other groups */
    return;
  group_unshard(x, g);
  group_wait_for_unshard(x, g, TRUE);
  for (guint i = 0; g->forward_prefetch != NULL && i < g->forward_prefetch->len; i++)
    group_unshard(x, &f->groups[g_array_index(g->forward_prefetch, int, i)]);
}

static int
after_forward(StrategyContext *x, int unit)
{
  Fsdp2 *f = fsdp2_of(x);
  Group *g = &f->groups[unit];
  program_builder_host_work(x->builder, HOST_WORK_HOOK, 1);
  if (g->count == 0)
    return -1;
  g->held = strategy_retain(x, unit, g->count, g->full);
  if (g->reshard_after_forward == RESHARD_SLICE && !g->held)
    group_reshard_to_slice(x, g);
  else if (g->reshard_after_forward == RESHARD_YES)
    group_reshard(x, g);
  g_array_append_val(f->forward_order, unit);
  return (int) f->forward_order->len - 1;
}

/* The root's post-forward lets the last all-gather output go. */
static void
end_forward(StrategyContext *x)
{
  root_post_forward(x, 0);
}

/* A group around the checkpoint's region is in backward already, which gathered its parameters.
 * One inside of the region knows nothing of that: it begins a forward, from which its parameters
 * stay until its backward. */
static void
before_recompute(StrategyContext *x, int unit)
{
  Group *g = &fsdp2_of(x)->groups[unit];
  if (!g->in_backward) {
    root_pre_forward(x, unit);
    before_forward(x, unit);
    return;
  }
  group_unshard(x, g);
  group_wait_for_unshard(x, g, FALSE);
}

static void
after_recompute(StrategyContext *x, int unit)
{
  if (!fsdp2_of(x)->groups[unit].in_backward)
    root_post_forward(x, unit);
}

static void
before_backward(StrategyContext *x, int unit, int token)
{
  Fsdp2 *f = fsdp2_of(x);
  Group *g = &f->groups[unit];
  gboolean before = g->in_backward;
  g->in_backward = TRUE;
  program_builder_host_work(x->builder, HOST_WORK_HOOK, 1);
  if (g->count == 0 || before) /* of another output */
    return;
  group_unshard(x, g);
  group_wait_for_unshard(x, g, FALSE);
  if (g->backward_prefetch != NULL && g->backward_prefetch->len > 0) {
    for (guint i = 0; i < g->backward_prefetch->len; i++)
      group_unshard(x, &f->groups[g_array_index(g->backward_prefetch, int, i)]);
  } else if (token > 0) {
    group_unshard(x, &f->groups[g_array_index(f->forward_order, int, token - 1)]);
  }
}

static void
after_backward(StrategyContext *x, int unit)
{
  group_post_backward(x, &fsdp2_of(x)->groups[unit]);
}

/* FSDPState._root_post_backward_final_callback: state by state, a post_backward that has not run
 * (inputs that want no gradient have no node for it) and then finalize_backward. */
static void
end_backward(StrategyContext *x)
{
  Fsdp2 *f = fsdp2_of(x);
  gboolean last = x->last_micro_batch || !x->plan->accumulation.set_last_backward;
  for (int i = 0; i < f->count; i++) {
    Group *g = &f->groups[i];
    g->in_backward = FALSE;
    if (!g->reduced && g->count > 0)
      group_post_backward(x, g);
    if (!last)
      continue;
    group_wait_for_post_backward(x, g);
    offload_wait(x, g);
    group_drop_gather(x, g);
  }
  if (!last)
    return;
  g_array_set_size(f->forward_order, 0);
  if (f->reduce_input == NO_STORAGE)
    return;
  program_builder_wait(x->builder, STREAM_COMPUTE, f->reduce_input_event);
  live_storage_clear(x->live, &f->reduce_input);
}

static void
release(StrategyContext *x, int unit)
{
  Group *g = &fsdp2_of(x)->groups[unit];
  g->held = FALSE;
  group_reshard(x, g);
}

static StateSpread
spread(const StrategyContext *x)
{
  const Fsdp2 *f = x->state;
  return (StateSpread){f->ranks, f->ranks};
}

const Strategy strategy_fsdp2 = {
    .name = "fsdp2",
    .summary = "PyTorch fully_shard: parameters, gradients and optimizer state sharded by groups",
    .section = &fsdp_section,
    .sharded_norms = TRUE,
    .splits_tied = fsdp2_splits_tied,
    .casts_inputs = TRUE,
    .marks_inputs = TRUE,
    .grad_scaler = GRAD_SCALER_OF_DTENSORS,
    .accept = fsdp2_accept,
    .setup = setup,
    .construct = construct,
    .teardown = teardown,
    .begin_step = begin_step,
    .begin_forward = begin_forward,
    .before_forward = before_forward,
    .after_forward = after_forward,
    .end_forward = end_forward,
    .before_recompute = before_recompute,
    .after_recompute = after_recompute,
    .before_backward = before_backward,
    .after_backward = after_backward,
    .end_backward = end_backward,
    .release = release,
    .saves_states = TRUE,
    .begin_state = fsdp2_begin_state,
    .full_tensor = fsdp2_full_tensor,
    .state_ranks = fsdp2_state_ranks,
    .state_ranges = fsdp2_state_ranges,
    .zero_stage = fsdp2_zero_stage,
    .spread = spread,
    .expected = fsdp2_expected,
    .initializes = INITIALIZES_META | INITIALIZES_ON_DEVICE | INITIALIZES_ON_CPU,
};
