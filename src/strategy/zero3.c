/* zero3.c - DeepSpeed's ZeRO stage 3: parameters, gradients and optimizer state sharded; each
 * module's parameters are gathered when it is called. */
#include "strategy/zero3_private.h"
#include "strategy/zero_load.h"
#include "strategy/zero_state.h"

#include "base/units.h"

enum { STAGE = 3 };

/* ---- small things ---- */

guint8
zero3_user_bit(const StrategyContext *x, int module, int parameter)
{
  enum { OWN = 1, FIRST_TIED = 2, OTHERS_TIED = 8 };
  const Network *n = x->network;
  guint8 bit = FIRST_TIED;
  if (network_parameter(n, parameter)->module == module ||
      leaf_of_parameter(x, parameter) == module)
    return OWN;
  for (guint i = 0; i < n->ties->len && network_tie(n, (int) i)->module != module; i++)
    if (network_tie(n, (int) i)->parameter == parameter)
      bit = bit == FIRST_TIED ? OTHERS_TIED : (guint8) (bit << 1);
  return bit;
}

void
zero3_wait_stream(StrategyContext *x, StreamId waiter, StreamId other)
{
  if (waiter == other)
    return;
  gint32 event = program_builder_event(x->builder);
  program_builder_record(x->builder, other, event);
  program_builder_wait(x->builder, waiter, event);
}

void
zero3_operand(StrategyContext *x, StorageId storage, DType dtype, Role role)
{
  program_builder_operand(x->builder, live_storage_tensor(x->live, storage, dtype), role);
}

void
zero3_part(StrategyContext *x, StorageId storage, gint64 first, gint64 elements, DType dtype,
           Role role)
{
  gint32 tensor = program_builder_flat_tensor(x->builder, storage, first, elements, dtype);
  program_builder_operand(x->builder, tensor, role);
}

gint64
zero3_shard_elements(const Zero3 *z, int parameter, gboolean secondary)
{
  return secondary ? secondary_elements(z, parameter) : z->parameter[parameter].shard;
}

StorageId
zero3_shard_storage(const StrategyContext *x, int parameter, gint64 *first)
{
  const Zero3 *z = zero3_of(x);
  const Zero3Parameter *p = &z->parameter[parameter];
  *first = p->trains ? p->first : 0;
  return p->trains ? z->shards : x->parameters[parameter].sharded;
}

void
zero3_shard(StrategyContext *x, int parameter, gboolean secondary)
{
  Zero3 *z = zero3_of(x);
  const Zero3Parameter *p = &z->parameter[parameter];
  gint64 first = 0;
  StorageId own = zero3_shard_storage(x, parameter, &first); /* before `first` is read */
  if (secondary)
    zero3_operand(x, p->secondary, z->ds.model, ROLE_READ);
  else
    zero3_part(x, own, first, p->shard, z->ds.model, ROLE_READ);
}

/* ---- setup ---- */

static gboolean
accept(const PlanSpec *plan, const Network *network, GError **error)
{
  if (plan_spec_number(plan, "stage3_module_granularity_threshold") != 0)
    return plan_spec_refuse(plan, error, "deepspeed.stage3_module_granularity_threshold",
                            "not yet supported");
  gint64 secondary = plan_spec_number(plan, "zero_hpz_partition_size");
  if (secondary > 1 && plan->shard % secondary != 0)
    return plan_spec_refuse(plan, error, "deepspeed.zero_hpz_partition_size",
                            "%" G_GINT64_FORMAT " does not divide mesh.shard %d", secondary,
                            plan->shard);
  return deepspeed_accept(plan, network, STAGE, error) && leaf_accept(plan, network, error);
}

/* mark_persistent_parameters: small ones, in order, while the model's limit allows. */
static void
mark_persistent(Zero3 *z)
{
  gint64 total = 0;
  for (int i = 0; i < z->count; i++) {
    Zero3Parameter *p = &z->parameter[i];
    p->persistent = p->elements <= z->ds.persistence_threshold &&
                    p->elements <= z->ds.model_persistence_threshold - total;
    if (p->persistent)
      total += p->elements;
  }
}

static void
set_parameters(StrategyContext *x)
{
  Zero3 *z = zero3_of(x);
  z->count = (int) x->network->parameters->len;
  z->parameter = g_new0(Zero3Parameter, z->count);
  z->trained = g_new(int, z->count);
  for (int i = 0; i < z->count; i++) {
    Zero3Parameter *p = &z->parameter[i];
    p->elements = network_parameter(x->network, i)->elements;
    p->shard = ceil_div(p->elements, z->ds.ranks);
    p->owned = CLAMP(p->elements - z->ds.rank * p->shard, 0, p->shard);
    p->trains = network_parameter(x->network, i)->trainable;
    p->first = z->shard_elements;
    p->recomputed_for = -1;
    p->state = PARAMETER_RELEASED;
    p->fetched_for = -1;
    p->norm = p->secondary = NO_STORAGE;
    *(p->trains ? &z->shard_elements : &z->frozen_elements) += p->shard;
    if (p->trains)
      z->trained[z->trained_count++] = i;
    x->parameters[i].local_elements = p->owned;
  }
  mark_persistent(z);
}

/* _create_fp16_sub_groups: one closes when it has reached its size. */
static void
make_groups(Zero3 *z)
{
  GArray *groups = g_array_new(FALSE, FALSE, sizeof(SubGroup));
  SubGroup group = {
      .master = NO_STORAGE, .gradient = NO_STORAGE, .optimized = OPTIMIZED_TENSOR_INIT};
  for (int i = 0; i < z->trained_count; i++) {
    Zero3Parameter *p = &z->parameter[z->trained[i]];
    p->group = (int) groups->len;
    group.count++;
    group.elements += p->shard;
    if (group.elements < z->ds.sub_group && i + 1 < z->trained_count)
      continue;
    group.optimized.elements = group.elements;
    g_array_append_val(groups, group);
    group.first = i + 1;
    group.first_element += group.elements;
    group.count = 0;
    group.elements = 0;
  }
  z->groups = (int) groups->len;
  /* the last part of the sub-groups is on the host: stage3.py, subgroup_to_device */
  int on_device = (int) ((1 - z->ds.offload_ratio) * z->groups);
  for (int i = on_device; i < z->groups && offload_is_optimizer(z); i++)
    g_array_index(groups, SubGroup, i).on_host = TRUE;
  z->group = (SubGroup *) (void *) g_array_free(groups, FALSE);
}

/* What the report calls a group: a block, or a module outside of blocks that has parameters. */
static void
make_units(StrategyContext *x)
{
  Zero3 *z = zero3_of(x);
  int last = -1;
  Unit *unit = NULL;
  for (int i = 0; i < z->count; i++) {
    int module = network_parameter(x->network, i)->module;
    int block = network_module(x->network, module)->block;
    int of = block >= 0 ? network_block(x->network, block)->module : module;
    if (of != last) {
      unit = g_new0(Unit, 1);
      unit->name = g_strdup(network_module(x->network, of)->path);
      unit->parameters = g_array_new(FALSE, FALSE, sizeof(int));
      unit->modules = g_array_new(FALSE, FALSE, sizeof(int));
      g_array_append_val(unit->modules, of);
      g_ptr_array_add(x->units, unit);
      last = of;
    }
    z->parameter[i].unit = (int) x->units->len - 1;
    g_array_append_val(unit->parameters, i);
    unit->elements += z->parameter[i].elements;
    unit->unsharded_bytes += z->parameter[i].shard * z->ds.ranks * z->ds.element;
    unit->shard_bytes += z->parameter[i].shard * z->ds.element;
  }
}

static void
setup(StrategyContext *x)
{
  Zero3 *z = x->state = g_new0(Zero3, 1);
  deepspeed_begin(&z->ds, x, STAGE);
  if (z->ds.allgather_sequential) /* the engine says so */
    z->ds.prefetch_bucket = 1;
  if (z->ds.secondary_ranks > 1)
    z->secondary_communicator =
        program_builder_communicator(x->builder, "secondary", z->ds.secondary_ranks, 1);
  z->stream = z->ds.overlap_comm ? STREAM_COPY_IN : STREAM_COMPUTE;
  z->shards = z->gradients = z->bucket = NO_STORAGE;
  z->overflow = z->norm = NO_STORAGE;
  z->entered = g_array_new(FALSE, FALSE, sizeof(int));
  z->bucketed = g_array_new(FALSE, FALSE, sizeof(Bucketed));
  z->norms = g_array_new(FALSE, FALSE, sizeof(int));
  z->fetch_events = g_array_new(FALSE, FALSE, sizeof(gint32));
  z->reduce_events = g_array_new(FALSE, FALSE, sizeof(gint32));
  trace_init(&z->trace);
  leaf_init(x);
  set_parameters(x);
  make_groups(z);
  make_units(x);
}

static void
teardown(StrategyContext *x)
{
  Zero3 *z = zero3_of(x);
  trace_clear(&z->trace);
  g_array_unref(z->entered);
  g_array_unref(z->bucketed);
  g_array_unref(z->norms);
  g_array_unref(z->fetch_events);
  g_array_unref(z->reduce_events);
  for (int i = 0; i < z->count; i++)
    gather_forget(&z->parameter[i]);
  g_free(z->group);
  g_free(z->leaf);
  g_free(z->trained);
  g_free(z->parameter);
  g_free(z);
}

static LossScaling
loss(const PlanSpec *plan)
{
  return deepspeed_loss(plan, STAGE);
}

static void
shape(const PlanSpec *plan, NetworkShape *network)
{
  network->zero3_linear = plan_spec_number(plan, "memory_efficient_linear") != 0;
}

/* ---- hooks ---- */

static void
begin_step(StrategyContext *x)
{
  Zero3 *z = zero3_of(x);
  z->gathered_elements = z->reduced_elements = 0;
}

static void
before_module(StrategyContext *x, int module)
{
  fetch_module(x, module, TRUE);
}

static void
after_module(StrategyContext *x, int module)
{
  release_module(x, module, TRUE);
}

static void
before_module_backward(StrategyContext *x, int module)
{
  fetch_module(x, module, FALSE);
}

static void
after_module_backward(StrategyContext *x, int module)
{
  leaf_reduce(x, module);
  release_module(x, module, FALSE);
}

/* Gradients in a leaf module wait for the end of its backward. */
static void
gradient_ready(StrategyContext *x, int parameter)
{
  if (leaf_of_parameter(x, parameter) < 0)
    gradients_add(x, parameter);
}

static void
after_graph(StrategyContext *x)
{
  gradients_finish(x);
  release_leftovers(x);
}

static int
zero_stage(StrategyContext *x)
{
  return zero3_of(x)->ds.ranks > 1 ? STAGE : 0;
}

/* hpZ's secondary shards are a second copy of the parameters, within neighbours. */
static StateSpread
spread(const StrategyContext *x)
{
  const DeepSpeed *d = &((const Zero3 *) x->state)->ds;
  return (StateSpread){d->secondary_ranks > 1 ? d->secondary_ranks : d->ranks, d->ranks};
}

const Strategy strategy_zero3 = {
    .name = "zero3",
    .summary = "DeepSpeed ZeRO stage 3: parameters, gradients and optimizer state sharded",
    .section = &deepspeed_section,
    .batch_tensors = DEEPSPEED_BATCH_TENSORS,
    .accept = accept,
    .setup = setup,
    .construct = zero3_construct,
    .initialize = zero3_initialize,
    .teardown = teardown,
    .loss = loss,
    .shape = shape,
    .begin_step = begin_step,
    .begin_forward = fetch_begin,
    .before_module = before_module,
    .after_module = after_module,
    .before_module_backward = before_module_backward,
    .after_module_backward = after_module_backward,
    .gradient_ready = gradient_ready,
    .hooks_module = leaf_hooks_module,
    .after_graph = after_graph,
    .optimizer_step = zero3_optimizer_step,
    .swaps_parameters = TRUE,
    .zero_stage = zero_stage,
    .spread = spread,
    .expected = zero3_expected,
    .initializes = INITIALIZES_ON_DEVICE,
    .state_ranks = zero_state_ranks,
    .state_ranges = zero3_state_ranges,
    .save_model = zero_save_state,
    .saves_with_engine = TRUE,
    .accept_load = zero_accept_load,
    .load_model = zero3_load,
};
