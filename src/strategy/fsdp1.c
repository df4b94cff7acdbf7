/* fsdp1.c - torch.distributed.fsdp.FullyShardedDataParallel: units, hooks and options
 * (_runtime_utils.py, _exec_order_utils.py, fully_sharded_data_parallel.py; one flat
 * parameter per wrapped block and one for the rest). */
#include <string.h>

#include "strategy/fsdp1_private.h"
#include "strategy/fsdp_groups.h"

/* ---- units ---- */

/* ModuleWrapPolicy({type(layers[0])}): a checkpoint wrapper inside FSDP is another class than a
 * bare block, so where only some blocks are checkpointed those unlike the first stay in the root,
 * unless checkpoints came in when all blocks were wrapped (apply_activation_checkpointing on an
 * FSDP model). */
static gboolean
is_wrapped(const PlanSpec *plan, int block)
{
  return plan->checkpointing.around == AROUND_FSDP || plan_spec_number(plan, "wrap") == 1 ||
         plan_spec_checkpoints(plan, block) == plan_spec_checkpoints(plan, 0);
}

/* The parameters of a group are views of its flat parameter: a number each, -1 for the root's. */
static void
flat_tensors(const PlanSpec *plan, const Network *network, int *tensor)
{
  gboolean listed = fsdp_groups_given(plan);
  gboolean wraps = plan_spec_number(plan, "blocks_per_group") > 0 && !listed;
  memset(tensor, -1, sizeof(int) * network->parameters->len);
  if (listed)
    fsdp_groups_owners(plan, network, tensor);
  for (guint i = 0; i < network->parameters->len && wraps; i++) {
    int block = network_module(network, network_parameter(network, (int) i)->module)->block;
    if (block >= 0 && is_wrapped(plan, block))
      tensor[i] = block;
  }
}

static gboolean
casts_buffers(const PlanSpec *plan)
{
  return plan_spec_number(plan, "cast_buffers") && dtype_size(plan->precision.compute) == 2;
}

static void
shape(const PlanSpec *plan, NetworkShape *shape)
{
  shape->casts_buffers = casts_buffers(plan);
  shape->flat_tensors = flat_tensors;
}

static gboolean
keeps_gradients(const PlanSpec *plan)
{
  return plan_spec_number(plan, "use_orig_params") != 0;
}

/* In the order of modules(): the root comes first, and has what no block has. */
static void
make_units(StrategyContext *x)
{
  const Network *n = x->network;
  g_autofree int *owner = g_new(int, n->parameters->len);
  memset(owner, -1, sizeof(int) * n->parameters->len);
  int root = strategy_new_unit(x, "root");
  gboolean listed = fsdp_groups_given(x->plan);
  gboolean wraps = plan_spec_number(x->plan, "blocks_per_group") > 0 && !listed;
  if (listed)
    fsdp_groups_make_units(x, owner);
  for (int i = 0; i < (int) n->blocks->len && wraps; i++) {
    const Block *b = network_block(n, i);
    if (!is_wrapped(x->plan, i))
      continue;
    int unit = strategy_new_unit(x, network_module(n, b->module)->path);
    strategy_add_module(x, unit, b->module, b->module + b->modules - 1, owner);
  }
  strategy_add_module(x, root, 0, (int) n->modules->len - 1, owner);
}

static void
set_groups(StrategyContext *x, Fsdp1 *f)
{
  const PlanSpec *plan = x->plan;
  f->strategy = (ShardingStrategy) plan_spec_number(plan, "sharding_strategy");
  f->ranks = plan->shard;
  f->replicas = plan->replicate;
  if (f->strategy == NO_SHARD) /* one group of all ranks */
    f->ranks = f->replicas = plan->shard * plan->replicate;
  if (f->ranks == 1)
    f->strategy = NO_SHARD; /* _init_core_state: one rank shards nothing */
  if (f->strategy != NO_SHARD)
    f->shard_communicator = program_builder_communicator(x->builder, "shard", f->ranks, 1);
  if (f->replicas > 1)
    f->replicate_communicator = program_builder_communicator(
        x->builder, "replicate", f->replicas, f->strategy == NO_SHARD ? 1 : f->ranks);
}

static void
setup(StrategyContext *x)
{
  Fsdp1 *f = x->state = g_new0(Fsdp1, 1);
  const PlanSpec *plan = x->plan;
  set_groups(x, f);
  f->stored = plan->precision.parameters;
  f->gathered = plan->precision.compute;
  f->reduce = plan->precision.reduce;
  f->backward_prefetch = (BackwardPrefetch) plan_spec_number(plan, "backward_prefetch");
  f->forward_prefetch = plan_spec_number(plan, "forward_prefetch") > 0;
  x->offloads = plan_spec_number(plan, "cpu_offload") != 0;
  f->uses_original = plan_spec_number(plan, "use_orig_params") != 0;
  f->limits = plan_spec_number(plan, "limit_all_gathers") != 0;
  f->free_events = g_array_new(FALSE, FALSE, sizeof(gint32));
  f->pre_forward_order = g_array_new(FALSE, FALSE, sizeof(int));
  f->post_forward_order = g_array_new(FALSE, FALSE, sizeof(int));
  f->is_first_iteration = TRUE;
  f->zero = NO_STORAGE;
  make_units(x);
  f->count = (int) x->units->len;
  f->handles = g_new0(Handle, f->count);
  for (int i = 0; i < f->count; i++)
    handle_init(x, &f->handles[i], i);
}

static void
teardown(StrategyContext *x)
{
  Fsdp1 *f = fsdp1_of(x);
  for (int i = 0; i < f->count; i++)
    handle_clear(&f->handles[i]);
  g_free(f->handles);
  g_array_unref(f->free_events);
  g_array_unref(f->pre_forward_order);
  g_array_unref(f->post_forward_order);
  g_free(f);
}

static int
depth_of(const Network *network, int parameter)
{
  int depth = 0;
  for (int m = network_parameter(network, parameter)->module; m > 0;
       m = network_module(network, m)->parent)
    depth++;
  return depth;
}

/* _move_module_to_device (_init_utils.py): breadth first. */
static void
move_unit(StrategyContext *x, const Handle *h)
{
  int deepest = 0;
  for (int i = 0; i < h->count; i++)
    deepest = MAX(deepest, depth_of(x->network, h->parameter[i]));
  for (int depth = 0; depth <= deepest; depth++)
    for (int i = 0; i < h->count; i++)
      if (depth_of(x->network, h->parameter[i]) == depth)
        strategy_move_to_device(x, h->parameter[i]);
}

/* A unit after those inside of it (_recursive_wrap).  Returns the first one outside. */
static int
construct_unit(StrategyContext *x, int index)
{
  Fsdp1 *f = fsdp1_of(x);
  int module = g_array_index(f->handles[index].unit->modules, int, 0), next = index + 1;
  while (next < f->count &&
         strategy_module_contains(x->network, module,
                                  g_array_index(f->handles[next].unit->modules, int, 0)))
    next = construct_unit(x, next);
  Handle *h = &f->handles[index];
  if (h->count > 0 && x->plan->phases.initialize.on == INITIALIZE_ON_CPU)
    move_unit(x, h);
  if (h->count > 0)
    handle_construct(x, h);
  return next;
}

/* The whole model is made on the device, or in the host's memory; then its blocks are wrapped one
 * after another, the root last. */
static void
construct(StrategyContext *x)
{
  if (x->plan->phases.initialize.on == INITIALIZE_ON_CPU)
    strategy_construct_on_host(x);
  else
    strategy_construct_whole(x);
  construct_unit(x, 0);
}

/* ---- prefetching ---- */

/* _get_handle_to_prefetch: the next one in the order of forward, or the one before in its reverse.
 */
static Handle *
prefetch_target(const Fsdp1 *f, const GArray *order, int index)
{
  if (index < 0 || index >= (int) order->len)
    return NULL;
  Handle *target = &f->handles[g_array_index(order, int, index)];
  return target->prefetched ? NULL : target;
}

static void
prefetch_forward(StrategyContext *x, const Handle *h)
{
  Fsdp1 *f = fsdp1_of(x);
  if (!f->forward_prefetch || h->pre_forward_index < 0)
    return;
  Handle *target = prefetch_target(f, f->pre_forward_order, h->pre_forward_index + 1);
  if (target == NULL || !target->needs_pre_forward_unshard)
    return;
  handle_unshard(x, target, TRUE);
  target->prefetched = TRUE;
}

static void
prefetch_backward(StrategyContext *x, const Handle *h, BackwardPrefetch moment)
{
  Fsdp1 *f = fsdp1_of(x);
  if (f->backward_prefetch != moment || h->post_forward_index < 0)
    return;
  Handle *target = prefetch_target(f, f->post_forward_order, h->post_forward_index - 1);
  if (target == NULL || !target->needs_pre_backward_unshard)
    return;
  handle_unshard(x, target, FALSE);
  target->prefetched = TRUE;
}

/* ---- hooks ---- */

static void
begin_step(StrategyContext *x)
{
  for (guint i = 0; i < x->units->len; i++) {
    Unit *unit = g_ptr_array_index(x->units, i);
    unit->all_gathers = unit->reduce_scatters = 0;
  }
}

/* .grad of original parameters are views: the flat gradient lives on until FSDP looks again. */
static void
zero_grad(StrategyContext *x)
{
  Fsdp1 *f = fsdp1_of(x);
  for (int i = 0; i < f->count; i++) {
    f->handles[i].has_gradients = FALSE;
    if (!f->uses_original)
      handle_reset_gradient(x, &f->handles[i]);
  }
}

static void
reset_gradients(StrategyContext *x)
{
  Fsdp1 *f = fsdp1_of(x);
  for (int i = 0; i < f->count; i++)
    handle_reset_gradient(x, &f->handles[i]);
}

/* _cast_buffers_to_dtype_and_device */
static void
cast_buffers(StrategyContext *x)
{
  for (guint i = 0; i < x->network->buffers->len; i++) {
    const Buffer *buffer = &g_array_index(x->network->buffers, Buffer, i);
    DType compute = x->plan->precision.compute;
    if (buffer->attribute || buffer->dtype != DTYPE_FP32)
      continue;
    StorageId made = strategy_make_buffer(x, (int) i, compute);
    strategy_launch(x, STREAM_COMPUTE, "to_copy",
                    (double) (buffer->elements * (dtype_size(DTYPE_FP32) + dtype_size(compute))));
    live_storage_drop(x->live, x->buffers[i]);
    x->buffers[i] = made;
  }
}

/* _root_pre_forward: gathers may not overtake the optimizer step. */
static void
begin_forward(StrategyContext *x)
{
  Fsdp1 *f = fsdp1_of(x);
  if (!f->initialized && casts_buffers(x->plan))
    cast_buffers(x);
  for (int i = 0; i < f->count; i++) {
    Handle *h = &f->handles[i];
    if (!f->initialized && h->count > 0)
      handle_lazy_init(x, h);
    if (f->forward_prefetch) {
      h->needs_pre_forward_unshard = TRUE;
      h->prefetched = FALSE;
    }
  }
  f->initialized = TRUE;
  fsdp1_wait_stream(x, STREAM_UNSHARD, STREAM_COMPUTE);
  fsdp1_wait_stream(x, STREAM_PRE_UNSHARD, STREAM_COMPUTE);
  reset_gradients(x);
}

/* _pre_forward */
static void
before_forward(StrategyContext *x, int unit)
{
  Fsdp1 *f = fsdp1_of(x);
  Handle *h = &f->handles[unit];
  program_builder_host_work(x->builder, HOST_WORK_HOOK, 1);
  if (h->count == 0) /* a root whose parameters all are in blocks */
    return;
  if (f->is_first_iteration && h->pre_forward_index < 0) {
    h->pre_forward_index = (int) f->pre_forward_order->len;
    g_array_append_val(f->pre_forward_order, unit);
  }
  if (!h->prefetched)
    handle_unshard(x, h, TRUE);
  h->needs_pre_forward_unshard = FALSE;
  fsdp1_wait_stream(x, STREAM_COMPUTE, STREAM_UNSHARD);
  prefetch_forward(x, h);
}

/* _post_forward.  The root's parameters are kept: backward begins with them. */
static int
after_forward(StrategyContext *x, int unit)
{
  Fsdp1 *f = fsdp1_of(x);
  Handle *h = &f->handles[unit];
  program_builder_host_work(x->builder, HOST_WORK_HOOK, 1);
  if (h->count == 0)
    return -1;
  if (h->post_forward_index <= 0) /* as in _ExecOrderData: the first one's 0 counts as none */
    h->post_forward_index = (int) f->post_forward_order->len;
  g_array_append_val(f->post_forward_order, unit);
  StorageId whole = x->parameters[h->parameter[0]].unsharded;
  h->held = strategy_retain(x, unit, 1, &whole);
  if (fsdp1_reshards_after_forward(f) || x->no_grad) /* else skip_use_sharded_views */
    handle_forget_fetched(x, h);
  handle_reshard(x, h, !h->is_root && fsdp1_reshards_after_forward(f), STREAM_COMPUTE);
  if (!x->no_grad) { /* _register_pre_backward_hooks */
    h->needs_pre_backward_unshard = x->output_requires_grad;
    h->ran_pre_backward_hook = FALSE;
  }
  return 0;
}

/* _pre_backward_hook, on each tensor that the module gave back: the first one counts. */
static void
before_backward(StrategyContext *x, int unit, int token)
{
  Handle *h = &fsdp1_of(x)->handles[unit];
  (void) token;
  if (h->ran_pre_backward_hook)
    return;
  program_builder_host_work(x->builder, HOST_WORK_HOOK, 1);
  if (h->is_root)
    reset_gradients(x);
  h->ran_pre_backward_hook = TRUE;
  if (h->count == 0)
    return;
  if (h->needs_pre_backward_unshard) {
    if (!h->prefetched)
      handle_unshard(x, h, FALSE);
    fsdp1_wait_stream(x, STREAM_COMPUTE, STREAM_UNSHARD);
  }
  h->needs_pre_backward_unshard = FALSE;
  prefetch_backward(x, h, PREFETCH_PRE);
}

static void
flatten(StrategyContext *x, int unit, const StorageId *gradients)
{
  handle_flatten(x, &fsdp1_of(x)->handles[unit], gradients);
}

/* _should_free_in_backward: under no_sync, strategies that keep parameters after forward keep them
 * after backward too. */
static gboolean
frees_in_backward(const StrategyContext *x)
{
  const Fsdp1 *f = fsdp1_of(x);
  return fsdp1_shards(f) && (x->synchronize || fsdp1_reshards_after_forward(f));
}

/* _post_backward_hook, on the flat parameter's AccumulateGrad: its stream is that of the unshard.
 */
static void
after_backward(StrategyContext *x, int unit)
{
  Handle *h = &fsdp1_of(x)->handles[unit];
  program_builder_push(x->builder, RANGE_HOOK, "post_backward", 0);
  program_builder_host_work(x->builder, HOST_WORK_HOOK, 1);
  h->ran_post_backward_hook = TRUE;
  handle_forget_fetched(x, h);
  handle_reshard(x, h, frees_in_backward(x), STREAM_UNSHARD);
  prefetch_backward(x, h, PREFETCH_POST);
  handle_reduce(x, h);
  program_builder_pop(x->builder);
}

/* _register_post_backward_reshard_only_hook, and that hook: a flat parameter without a gradient. */
static gboolean
wants_input_gradient(StrategyContext *x, int unit)
{
  const Handle *h = &fsdp1_of(x)->handles[unit];
  return h->count > 0 && !h->requires_grad;
}

static void
input_gradient(StrategyContext *x, int unit)
{
  Handle *h = &fsdp1_of(x)->handles[unit];
  h->ran_post_backward_hook = TRUE;
  handle_forget_fetched(x, h);
  handle_reshard(x, h, frees_in_backward(x), STREAM_COMPUTE);
  prefetch_backward(x, h, PREFETCH_POST);
}

/* _post_backward_final_callback */
static void
end_backward(StrategyContext *x)
{
  Fsdp1 *f = fsdp1_of(x);
  if (x->synchronize) {
    fsdp1_wait_stream(x, STREAM_COMPUTE, STREAM_POST_BACKWARD);
    if (fsdp1_is_hybrid(f->strategy))
      fsdp1_wait_stream(x, STREAM_COMPUTE, STREAM_ALL_REDUCE);
    if (x->offloads)
      program_builder_stream_sync(x->builder, STREAM_COMPUTE);
  }
  f->is_first_iteration = FALSE;
  g_array_set_size(f->post_forward_order, 0);
  for (int i = 0; i < f->count; i++) {
    Handle *h = &f->handles[i];
    gboolean whole = h->unsharded != NO_STORAGE ||
                     (!fsdp1_shards(f) && fsdp1_is_mixed(f) && h->low_precision != NO_STORAGE);
    if (!h->ran_post_backward_hook && whole) { /* _catch_all_reshard */
      handle_forget_fetched(x, h);
      handle_reshard(x, h, frees_in_backward(x), STREAM_COMPUTE);
    }
    h->ran_pre_backward_hook = h->ran_post_backward_hook = FALSE;
    h->needs_pre_backward_unshard = h->prefetched = FALSE;
    h->post_forward_index = -1;
    if (x->offloads)
      live_storage_clear(x->live, &h->sharded_gradient);
  }
}

static void
release(StrategyContext *x, int unit)
{
  Fsdp1 *f = fsdp1_of(x);
  Handle *h = &f->handles[unit];
  h->held = FALSE;
  if (h->owes_reshard)
    handle_reshard(x, h, fsdp1_shards(f), STREAM_COMPUTE);
  h->owes_reshard = FALSE;
}

/* ---- closed form ---- */

/* Parameters that are gathered again in backward: stage 3; kept from forward on: stage 2. */
static int
zero_stage(StrategyContext *x)
{
  const Fsdp1 *f = fsdp1_of(x);
  if (!fsdp1_shards(f))
    return 0;
  return fsdp1_reshards_after_forward(f) && f->count > 1 ? 3 : 2;
}

/* Is the block's forward run a second time, hooks and all? */
static gboolean
is_called_twice(const StrategyContext *x, const Handle *h)
{
  int module = g_array_index(h->unit->modules, int, 0);
  int block = network_module(x->network, module)->block;
  return block >= 0 && fsdp1_is_reentrant(x->plan, block);
}

/* Does backward come to it? */
static gboolean
is_reached(const StrategyContext *x, const Handle *h)
{
  return strategy_output_requires_grad(x->network, g_array_index(h->unit->modules, int, 0));
}

/* How often a flat parameter is gathered in a step.  The root keeps what forward gathered. */
static gint64
gathers(const StrategyContext *x, const Handle *h)
{
  const Fsdp1 *f = fsdp1_of(x);
  int steps = x->plan->accumulation.steps;
  if (fsdp1_reshards_after_forward(f))
    return h->is_root || !is_reached(x, h) ? steps : (is_called_twice(x, h) ? 3 : 2) * steps;
  return x->plan->accumulation.sync_every_step ? steps : 1;
}

static ExpectedTotals
expected(StrategyContext *x)
{
  const Fsdp1 *f = fsdp1_of(x);
  ExpectedTotals total = {0};
  gint64 synchronized = x->plan->accumulation.sync_every_step ? x->plan->accumulation.steps : 1;
  for (int i = 0; i < f->count; i++) {
    const Handle *h = &f->handles[i];
    if (fsdp1_shards(f)) {
      total.elements_gathered += gathers(x, h) * h->unsharded_elements;
      total.elements_reduced += h->requires_grad ? synchronized * h->unsharded_elements : 0;
    }
    if (f->replicas > 1 && h->requires_grad)
      total.elements_all_reduced += synchronized * h->shard_elements;
    *(x->offloads ? &total.host_parameter_bytes : &total.parameter_bytes) +=
        h->shard_elements * dtype_size(f->stored);
  }
  /* Modules inside of a block are not used in the order of their definition. */
  if (fsdp_groups_given(x->plan) && strategy_freezes(x->network))
    total.elements_gathered = EXPECTED_UNKNOWN;
  if (fsdp1_shards(f) && plan_spec_clips(x->plan))
    total.elements_all_reduced++; /* the norm */
  return total;
}

/* NO_SHARD keeps everything on all ranks of the mesh. */
static StateSpread
spread(const StrategyContext *x)
{
  const Fsdp1 *f = x->state;
  int ranks = fsdp1_shards(f) ? f->ranks : 1;
  return (StateSpread){ranks, ranks};
}

const Strategy strategy_fsdp1 = {
    .name = "fsdp1",
    .summary =
        "PyTorch FullyShardedDataParallel: flat parameters, sharded as sharding_strategy says",
    .section = &fsdp_section,
    .keeps_gradients = keeps_gradients,
    .reentrant_outside = TRUE,
    .casts_root_inputs = TRUE,
    .casts_parameters = TRUE,
    .grad_scaler = GRAD_SCALER_SHARDED,
    .accept = fsdp1_accept,
    .setup = setup,
    .construct = construct,
    .teardown = teardown,
    .begin_step = begin_step,
    .zero_grad = zero_grad,
    .begin_forward = begin_forward,
    .before_forward = before_forward,
    .after_forward = after_forward,
    .before_backward = before_backward,
    .wants_input_gradient = wants_input_gradient,
    .input_gradient = input_gradient,
    .shape = shape,
    .flatten = flatten,
    .after_backward = after_backward,
    .end_backward = end_backward,
    .clip = fsdp1_clip,
    .release = release,
    .zero_stage = zero_stage,
    .spread = spread,
    .expected = expected,
    .save_model = fsdp1_save_model,
    .save_optimizer = fsdp1_save_optimizer,
    .load_model = fsdp1_load_model,
    .load_full = fsdp1_load_full,
    .state_is_whole = fsdp1_state_is_whole,
    .state_ranks = fsdp1_state_ranks,
    .state_ranges = fsdp1_state_ranges,
    .initializes = INITIALIZES_ON_DEVICE | INITIALIZES_ON_CPU,
};
