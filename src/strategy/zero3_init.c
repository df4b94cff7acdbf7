/* zero3_init.c - from a model to shards, master weights and buffers (deepspeed.initialize;
 * partition_parameters.py, Init; stage3.py, _create_fp16_partitions_with_defragmentation to
 * create_reduce_and_remove_grad_hooks). */
#include "strategy/zero3_private.h"

static StorageId
allocate(StrategyContext *x, gint64 bytes, Category category, const char *what)
{
  StoragePurpose purpose = {category, -1, program_builder_name(x->builder, what)};
  return live_storage_alloc(x->live, bytes, STREAM_COMPUTE, purpose);
}

static gint64
shard_bytes(const Zero3 *z, int parameter)
{
  return z->parameter[parameter].shard * z->ds.element;
}

/* A buffer holds shards of parameters that train, trained[first] .. trained[first + count - 1], one
 * after the other. */
static void
holds_shards(StrategyContext *x, StorageId buffer, DType dtype, int first, int count)
{
  Zero3 *z = zero3_of(x);
  gint64 offset = 0;
  for (int i = first; i < first + count; i++) {
    const Zero3Parameter *p = &z->parameter[z->trained[i]];
    strategy_holds(x, buffer, dtype, (StateRange){z->trained[i], z->ds.rank * p->shard, p->owned},
                   offset);
    offset += p->shard;
  }
}

/* ---- the model ---- */

/* The whole parameter; a tied layer makes one of its own and gives it up. */
static StorageId
make_whole(StrategyContext *x, int parameter)
{
  Zero3 *z = zero3_of(x);
  return live_storage_alloc(x->live, z->parameter[parameter].elements * z->ds.element,
                            STREAM_COMPUTE, parameter_purpose(x, parameter, CATEGORY_PARAMETER));
}

static void
construct_parameter(StrategyContext *x, int parameter)
{
  StorageId made = make_whole(x, parameter);
  strategy_holds(x, made, zero3_of(x)->ds.model,
                 (StateRange){parameter, 0, zero3_of(x)->parameter[parameter].elements}, 0);
  if (x->parameters[parameter].unsharded != NO_STORAGE)
    live_storage_drop(x->live, made);
  else
    x->parameters[parameter].unsharded = made;
}

static StorageId
make_shard(StrategyContext *x, int parameter)
{
  Zero3 *z = zero3_of(x);
  if (offload_is_parameters(z))
    return offload_allocate(x, z->ds.parameter_pinned, shard_bytes(z, parameter),
                            CATEGORY_PARAMETER, "parameter shard");
  return live_storage_alloc(x->live, shard_bytes(z, parameter), STREAM_COMPUTE,
                            parameter_purpose(x, parameter, CATEGORY_PARAMETER));
}

/* The parameter's shard is copied out of it, and it goes. */
static void
partition(StrategyContext *x, int parameter)
{
  Zero3 *z = zero3_of(x);
  ParameterState *state = &x->parameters[parameter];
  const Zero3Parameter *p = &z->parameter[parameter];
  gint64 bytes = p->owned * z->ds.element;
  secondary_keep(x, parameter);
  StorageId shard = make_shard(x, parameter);
  if (p->owned > 0) {
    zero3_part(x, state->unsharded, z->ds.rank * p->shard, p->owned, z->ds.model, ROLE_READ);
    zero3_operand(x, shard, z->ds.model, ROLE_WRITE);
    if (offload_is_parameters(z))
      strategy_copy(x, STREAM_COMPUTE, "shard to host", (double) bytes);
    else
      strategy_launch(x, STREAM_COMPUTE, "copy", 2.0 * (double) bytes);
  }
  live_storage_clear(x->live, &state->unsharded);
  if (state->sharded != NO_STORAGE)
    live_storage_drop(x->live, shard);
  else
    state->sharded = shard;
  strategy_holds(x, shard, z->ds.model, (StateRange){parameter, z->ds.rank * p->shard, p->owned},
                 0);
}

/* zero.Init: when a module's __init__ ends, its own parameters are partitioned. */
static void
construct_module_end(StrategyContext *x, int module)
{
  for (int i = 0; i < network_module_parameters(x->network, module); i++)
    partition(x, network_module_parameter(x->network, module, i));
}

void
zero3_construct(StrategyContext *x)
{
  strategy_visit_whole(x, construct_parameter,
                       zero3_of(x)->ds.zero_init ? construct_module_end : NULL);
}

/* ---- shards, flat ---- */

/* defragment: shards of parameters that train go to the host, the cache is emptied, and they come
 * back as one buffer. */
static void
make_flat(StrategyContext *x)
{
  Zero3 *z = zero3_of(x);
  for (int i = 0; i < z->trained_count; i++) {
    int p = z->trained[i];
    zero3_operand(x, x->parameters[p].sharded, z->ds.model, ROLE_READ);
    strategy_copy(x, STREAM_COMPUTE, "shard to host", (double) shard_bytes(z, p));
    program_builder_stream_sync(x->builder, STREAM_COMPUTE);
    live_storage_clear(x->live, &x->parameters[p].sharded);
  }
  program_builder_empty_cache(x->builder);
  z->shards =
      allocate(x, z->shard_elements * z->ds.element, CATEGORY_PARAMETER, "parameter shards");
  holds_shards(x, z->shards, z->ds.model, 0, z->trained_count);
  zero3_operand(x, z->shards, z->ds.model, ROLE_WRITE);
  strategy_copy(x, STREAM_COMPUTE, "shards to device",
                (double) (z->shard_elements * z->ds.element));
}

/* Shards that are on the host anyway move into one buffer there. */
static void
make_flat_on_host(StrategyContext *x)
{
  Zero3 *z = zero3_of(x);
  gint64 bytes = z->shard_elements * z->ds.element;
  z->shards = offload_allocate(x, TRUE, bytes, CATEGORY_PARAMETER, "parameter shards");
  holds_shards(x, z->shards, z->ds.model, 0, z->trained_count);
  for (int i = 0; i < z->trained_count; i++)
    live_storage_clear(x->live, &x->parameters[z->trained[i]].sharded);
}

/* Shards of a sub-group in fp32: a conversion, or the shards themselves (NO_STORAGE). */
static StorageId
convert(StrategyContext *x, const SubGroup *g)
{
  Zero3 *z = zero3_of(x);
  if (z->ds.model == DTYPE_FP32)
    return NO_STORAGE;
  StorageId made = allocate(x, 4 * g->elements, CATEGORY_TEMPORARY, "shards in fp32");
  zero3_part(x, z->shards, g->first_element, g->elements, z->ds.model, ROLE_READ);
  zero3_operand(x, made, DTYPE_FP32, ROLE_WRITE);
  strategy_launch(x, STREAM_COMPUTE, "to_copy", (double) (g->elements * (4 + z->ds.element)));
  return made;
}

/* The master weights of a sub-group are a copy of the converted shards, which the loop's variable
 * holds until the next ones are made. */
static void
make_masters(StrategyContext *x)
{
  Zero3 *z = zero3_of(x);
  StorageId converted = NO_STORAGE;
  for (int i = 0; i < z->groups; i++) {
    SubGroup *g = &z->group[i];
    if (g->on_host) {
      g->master =
          offload_allocate(x, FALSE, 4 * g->elements, CATEGORY_OPTIMIZER_STATE, "master weights");
      holds_shards(x, g->master, DTYPE_FP32, g->first, g->count);
      continue;
    }
    StorageId made = convert(x, g);
    live_storage_drop(x->live, converted);
    converted = made;
    g->master = allocate(x, 4 * g->elements, CATEGORY_OPTIMIZER_STATE, "master weights");
    holds_shards(x, g->master, DTYPE_FP32, g->first, g->count);
    if (made != NO_STORAGE)
      zero3_operand(x, made, DTYPE_FP32, ROLE_READ);
    else
      zero3_part(x, z->shards, g->first_element, g->elements, DTYPE_FP32, ROLE_READ);
    zero3_operand(x, g->master, DTYPE_FP32, ROLE_WRITE);
    strategy_launch(x, STREAM_COMPUTE, "clone", 8.0 * (double) g->elements);
  }
  live_storage_drop(x->live, converted);
}

/* Gradients of an offloaded optimizer stay, where its sub-group is. */
static void
make_fp32_gradients(StrategyContext *x)
{
  Zero3 *z = zero3_of(x);
  for (int i = 0; i < z->groups; i++) {
    SubGroup *g = &z->group[i];
    if (g->on_host)
      g->gradient = offload_allocate(x, z->ds.optimizer_pinned, 4 * g->elements,
                                     CATEGORY_SHARDED_GRADIENT, "fp32 gradients");
    else
      g->gradient = allocate(x, 4 * g->elements, CATEGORY_SHARDED_GRADIENT, "fp32 gradients");
  }
}

/* initialize_optimizer_states: gradients of zeros, as large as those of the largest sub-group. */
static void
make_zero_gradients(StrategyContext *x)
{
  Zero3 *z = zero3_of(x);
  gint64 largest = 0;
  for (int i = 0; i < z->groups; i++)
    largest = MAX(largest, z->group[i].elements);
  StorageId zeros = allocate(x, 4 * largest, CATEGORY_TEMPORARY, "gradients of zeros");
  zero3_operand(x, zeros, DTYPE_FP32, ROLE_WRITE);
  strategy_launch(x, STREAM_COMPUTE, "zero", 4.0 * (double) largest);
  live_storage_drop(x->live, zeros);
}

static void
make_buffers(StrategyContext *x)
{
  Zero3 *z = zero3_of(x);
  gint64 bytes = z->shard_elements * dtype_size(z->ds.accumulation);
  if (z->ds.contiguous_gradients)
    z->bucket = allocate(x, z->ds.reduce_bucket * z->ds.element, CATEGORY_REDUCE_SCATTER_BUFFER,
                         "gradient bucket");
  if (offload_is_optimizer(z)) {
    z->gradients = offload_allocate(x, z->ds.optimizer_pinned, bytes, CATEGORY_SHARDED_GRADIENT,
                                    "gradient partitions");
    return;
  }
  z->gradients = allocate(x, bytes, CATEGORY_SHARDED_GRADIENT, "gradient partitions");
  zero3_operand(x, z->gradients, z->ds.accumulation, ROLE_WRITE);
  strategy_launch(x, STREAM_COMPUTE, "zero", (double) bytes);
}

/* Every parameter that trains is gathered for a moment, so that a hook can be hung on its gradient.
 */
static void
register_hooks(StrategyContext *x)
{
  Zero3 *z = zero3_of(x);
  g_autoptr(GArray) one = g_array_new(FALSE, FALSE, sizeof(int));
  g_array_set_size(one, 1);
  for (int i = 0; i < z->trained_count; i++) {
    int p = z->trained[i];
    g_array_index(one, int, 0) = p;
    gather_now(x, one);
    gather_release(x, p);
  }
  z->shards_settled = TRUE;
}

void
zero3_initialize(StrategyContext *x)
{
  Zero3 *z = zero3_of(x);
  for (int p = 0; p < z->count && !z->ds.zero_init; p++)
    partition(x, p);
  if (!offload_is_optimizer(z)) {
    z->overflow = allocate(x, 1, CATEGORY_OTHER, "overflow flag");
    zero3_operand(x, z->overflow, DTYPE_BOOL, ROLE_WRITE);
    strategy_launch(x, STREAM_COMPUTE, "zero", 1);
  }
  if (offload_is_parameters(z))
    make_flat_on_host(x);
  else
    make_flat(x);
  make_masters(x);
  if (offload_is_optimizer(z))
    make_fp32_gradients(x);
  else
    make_zero_gradients(x);
  make_buffers(x);
  register_hooks(x);
}
