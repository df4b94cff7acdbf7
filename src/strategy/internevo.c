/* internevo.c - ZeRO stage 1 as InternEvo has it (internlm/solver/optimizer/hybrid_zero_optim.py,
 * HybridZeroOptimizer): every parameter belongs to one rank of the zero group, gradients are
 * all-reduced whole in buckets, and each owner broadcasts what it has updated. */
#include <stdlib.h>

#include "base/units.h"
#include "program/meaning.h"
#include "strategy/torch_optimizer.h"
#include "strategy/zero_scalars.h"

#define BUCKET_DEFAULT "536870912" /* 512 * 1024 * 1024 in its configs */

static const OptionInfo options[] = {
    {"reduce_bucket_size", OPTION_INT, BUCKET_DEFAULT, 1, (gint64) 1 << 50, NULL,
     "gradients are reduced together up to so many elements"},
    {"overlap_sync_grad", OPTION_BOOL, "true", 0, 0, NULL,
     "gradients are reduced behind backward; false: in the step"},
    {0},
};

static const OptionSection section = {"internevo", options};

typedef struct {
  gint32 data, zero; /* communicators: all ranks, and those that share the optimizer's state */
  int owners;        /* ranks of the zero group */
  DType dtype;       /* of parameters and gradients */
  int element;
  int *order;      /* parameters as they were given away: so they lie in the buffers */
  int *owner;      /* by parameter */
  gint64 *offset;  /* by parameter: where it begins in its owner's buffer */
  gint64 *owned;   /* by owner: elements */
  StorageId *flat; /* by owner: its parameters in a row */
  OptimizedTensor master;
  gboolean overlap;
  StreamId stream; /* of reductions and broadcasts */
  GArray *bucket;  /* int: parameters to be reduced */
  gint64 bucket_elements;
  GArray *reduced; /* int: parameters of the reduction before */
} InternEvo;

static InternEvo *
of(const StrategyContext *x)
{
  return x->state;
}

static gint64
elements_of(const StrategyContext *x, int parameter)
{
  return network_parameter(x->network, parameter)->elements;
}

static gboolean
accept(const PlanSpec *plan, const Network *network, GError **error)
{
  (void) network;
  if (plan->trainable != NULL || plan->lora != NULL)
    return plan_spec_refuse(plan, error, plan->trainable != NULL ? "trainable" : "lora",
                            "not yet supported under internevo");
  if (plan->precision.autocast)
    return plan_spec_refuse(plan, error, "precision.autocast",
                            "internevo computes in the parameters' dtype");
  if (plan->optimizer.name == OPTIMIZER_NONE)
    return plan_spec_refuse(plan, error, "optimizer.name",
                            "HybridZeroOptimizer needs an optimizer: adamw, adam or sgd");
  if (plan->accumulation.sync_every_step_given && plan->accumulation.sync_every_step)
    return plan_spec_refuse(plan, error, "accumulation.sync_every_step",
                            "internevo reduces at the last micro-batch only");
  return strategy_accept_unsharded(plan, error);
}

/* ---- who owns what ---- */

/* The first of the owners with the fewest elements. */
static int
least_loaded(const gint64 *owned, int owners)
{
  int least = 0;
  for (int i = 1; i < owners; i++)
    if (owned[i] < owned[least])
      least = i;
  return least;
}

/* A parameter to be given away. */
typedef struct {
  int parameter;
  gint64 elements;
} Sized;

/* The largest first; of equal ones the earlier. */
static int
compare_sizes(const void *a, const void *b)
{
  const Sized *first = a, *second = b;
  if (first->elements != second->elements)
    return first->elements > second->elements ? -1 : 1;
  return first->parameter - second->parameter;
}

/* _partition_param_list: the largest parameter first, each to the owner that has least.  As long as
 * some owner has nothing the next one is such. */
static void
partition(InternEvo *e, const Network *network, int owners)
{
  int n = (int) network->parameters->len;
  g_autofree Sized *sized = g_new(Sized, MAX(n, 1));
  e->owners = owners;
  e->order = g_new(int, MAX(n, 1));
  e->owner = g_new(int, MAX(n, 1));
  e->offset = g_new(gint64, MAX(n, 1));
  e->owned = g_new0(gint64, owners);
  for (int i = 0; i < n; i++)
    sized[i] = (Sized){i, network_parameter(network, i)->elements};
  qsort(sized, (gsize) n, sizeof(Sized), compare_sizes);
  for (int i = 0; i < n; i++) {
    int to = i < owners ? i : least_loaded(e->owned, owners);
    e->order[i] = sized[i].parameter;
    e->owner[sized[i].parameter] = to;
    e->offset[sized[i].parameter] = e->owned[to];
    e->owned[to] += sized[i].elements;
  }
}

static void
partition_clear(InternEvo *e)
{
  g_free(e->order);
  g_free(e->owner);
  g_free(e->offset);
  g_free(e->owned);
}

/* The largest parameter goes to the first rank, but what that gets in all need not be the most. */
static int
heaviest_rank(const PlanSpec *plan, const Network *network)
{
  InternEvo e = {0};
  int heaviest = 0;
  if (plan->shard == 1)
    return -1;
  partition(&e, network, plan->shard);
  for (int i = 1; i < plan->shard; i++)
    if (e.owned[i] > e.owned[heaviest])
      heaviest = i;
  partition_clear(&e);
  return heaviest;
}

static void
setup(StrategyContext *x)
{
  InternEvo *e = x->state = g_new0(InternEvo, 1);
  const PlanSpec *plan = x->plan;
  e->data = program_builder_communicator(x->builder, "data", plan->shard * plan->replicate, 1);
  e->zero = program_builder_communicator(x->builder, "shard", plan->shard, 1);
  e->dtype = plan->precision.parameters;
  e->element = dtype_size(e->dtype);
  partition(e, x->network, plan->shard);
  e->flat = g_new(StorageId, e->owners);
  e->master = (OptimizedTensor) OPTIMIZED_TENSOR_INIT;
  e->overlap = plan_spec_number(plan, "overlap_sync_grad") != 0;
  e->stream = e->overlap ? STREAM_ALL_REDUCE : STREAM_COMPUTE;
  e->bucket = g_array_new(FALSE, FALSE, sizeof(int));
  e->reduced = g_array_new(FALSE, FALSE, sizeof(int));
}

static void
teardown(StrategyContext *x)
{
  InternEvo *e = of(x);
  partition_clear(e);
  g_free(e->flat);
  g_array_unref(e->bucket);
  g_array_unref(e->reduced);
  g_free(e);
}

/* Owners hold whole parameters, in the order in which they got them. */
static int
state_ranks(const StrategyContext *x)
{
  return of(x)->owners;
}

static void
state_ranges(const StrategyContext *x, StateLayout *layout)
{
  const InternEvo *e = of(x);
  for (guint i = 0; i < x->network->parameters->len; i++)
    state_layout_add(layout, e->owner[e->order[i]],
                     (StateRange){e->order[i], 0, elements_of(x, e->order[i])});
}

/* ---- small steps ---- */

static StorageId
new_tensor(StrategyContext *x, StreamId stream, gint64 bytes, Category category, const char *what)
{
  StoragePurpose purpose = {category, -1, program_builder_name(x->builder, what)};
  return live_storage_alloc(x->live, bytes, stream, purpose);
}

static void
operand(StrategyContext *x, StorageId storage, DType dtype, Role role)
{
  if (storage != NO_STORAGE)
    program_builder_operand(x->builder, live_storage_tensor(x->live, storage, dtype), role);
}

static gint64
owned_here(const StrategyContext *x)
{
  return of(x)->owned[x->rank];
}

/* One stream goes on behind what another has been given. */
static void
order_streams(StrategyContext *x, StreamId before, StreamId after)
{
  if (before == after)
    return;
  gint32 event = program_builder_event(x->builder);
  program_builder_record(x->builder, before, event);
  program_builder_wait(x->builder, after, event);
}

/* ---- construction ---- */

/* Parameters leave for the host one by one; each owner's come back in a row. */
static void
make_flat_buffers(StrategyContext *x)
{
  InternEvo *e = of(x);
  guint n = x->network->parameters->len;
  for (guint i = 0; i < n; i++) {
    ParameterState *p = &x->parameters[i];
    operand(x, p->sharded, e->dtype, ROLE_READ);
    strategy_copy(x, STREAM_COMPUTE, "to_host", (double) (p->local_elements * e->element));
    program_builder_stream_sync(x->builder, STREAM_COMPUTE);
    live_storage_clear(x->live, &p->sharded);
  }
  for (int i = 0; i < e->owners; i++) {
    gint64 bytes = e->owned[i] * e->element;
    e->flat[i] = new_tensor(x, STREAM_COMPUTE, bytes, CATEGORY_PARAMETER, "flat parameters");
    if (e->flat[i] == NO_STORAGE)
      continue;
    operand(x, e->flat[i], e->dtype, ROLE_WRITE);
    strategy_copy(x, STREAM_COMPUTE, "to_device", (double) bytes);
    program_builder_stream_sync(x->builder, STREAM_COMPUTE);
  }
  for (guint i = 0; i < n; i++) {
    x->parameters[i].unsharded = e->flat[e->owner[i]];
    x->parameters[i].offset = e->offset[i];
    strategy_holds(x, e->flat[e->owner[i]], e->dtype,
                   (StateRange){(gint32) i, 0, elements_of(x, (int) i)}, e->offset[i]);
  }
}

/* fp32 weights of what this rank owns; of an fp32 model they are the parameters themselves. */
static void
initialize(StrategyContext *x)
{
  InternEvo *e = of(x);
  gint64 elements = owned_here(x);
  make_flat_buffers(x);
  e->master.value = e->flat[x->rank];
  e->master.elements = elements;
  e->master.stepped = elements > 0;
  if (e->dtype == DTYPE_FP32 || elements == 0)
    return;
  e->master.value =
      new_tensor(x, STREAM_COMPUTE, elements * 4, CATEGORY_OPTIMIZER_STATE, "fp32 master weights");
  for (guint i = 0; i < x->network->parameters->len; i++)
    if (e->owner[i] == x->rank)
      strategy_holds(x, e->master.value, DTYPE_FP32,
                     (StateRange){(gint32) i, 0, elements_of(x, (int) i)}, e->offset[i]);
  operand(x, e->flat[x->rank], e->dtype, ROLE_READ);
  operand(x, e->master.value, DTYPE_FP32, ROLE_WRITE);
  strategy_launch(x, STREAM_COMPUTE, "to_copy", (double) (elements * (4 + e->element)));
}

/* ---- gradients ---- */

/* clear_grads_of_previous_reduced_params: the host has waited for the reduction, and gradients that
 * others own go. */
static void
clear_reduced(StrategyContext *x)
{
  InternEvo *e = of(x);
  for (guint i = 0; i < e->reduced->len; i++) {
    int parameter = g_array_index(e->reduced, int, i);
    ParameterState *p = &x->parameters[parameter];
    if (e->owner[parameter] == x->rank)
      continue;
    live_storage_clear(x->live, &p->gradient);
    p->has_gradient = FALSE;
  }
  g_array_set_size(e->reduced, 0);
}

static void
wait_for_reduction(StrategyContext *x)
{
  if (!of(x)->overlap)
    return;
  program_builder_stream_sync(x->builder, of(x)->stream);
  clear_reduced(x);
}

static void
all_reduce(StrategyContext *x, StorageId buffer, gint64 bytes)
{
  InternEvo *e = of(x);
  if (x->plan->shard * x->plan->replicate == 1)
    return;
  program_builder_host_work(x->builder, HOST_WORK_COLLECTIVE_CALL, 1);
  operand(x, buffer, e->dtype, ROLE_ACCUMULATE);
  program_builder_collective(x->builder, e->stream,
                             &(Collective){.kind = COLLECTIVE_ALL_REDUCE,
                                           .dtype = (guint8) e->dtype,
                                           .communicator = e->data,
                                           .name = program_builder_name(x->builder, "bucket"),
                                           .meaning = meaning_of(x->builder, "avg"),
                                           .bytes = bytes});
}

/* The bucket's gradients in a row, reduced, and copied back one by one. */
static void
reduce_together(StrategyContext *x)
{
  InternEvo *e = of(x);
  gint64 bytes = e->bucket_elements * e->element;
  StorageId flat = new_tensor(x, e->stream, bytes, CATEGORY_REDUCE_SCATTER_BUFFER, "bucket");
  for (guint i = 0; i < e->bucket->len; i++)
    operand(x, x->parameters[g_array_index(e->bucket, int, i)].gradient, e->dtype, ROLE_READ);
  operand(x, flat, e->dtype, ROLE_WRITE);
  strategy_launch(x, e->stream, "cat", 2.0 * (double) bytes);
  all_reduce(x, flat, bytes);
  gint64 offset = 0;
  for (guint i = 0; i < e->bucket->len; i++) {
    int parameter = g_array_index(e->bucket, int, i);
    gint64 elements = elements_of(x, parameter);
    program_builder_operand(
        x->builder, program_builder_flat_tensor(x->builder, flat, offset, elements, e->dtype),
        ROLE_READ);
    offset += elements;
    operand(x, x->parameters[parameter].gradient, e->dtype, ROLE_WRITE);
    strategy_launch(x, e->stream, "copy", 2.0 * (double) (elements * e->element));
  }
  live_storage_drop(x->live, flat);
}

/* _reduce_and_copy.  The stream of reductions waits for the gradients, as it must. */
static void
reduce_bucket(StrategyContext *x)
{
  InternEvo *e = of(x);
  wait_for_reduction(x);
  if (e->bucket->len == 0)
    return;
  order_streams(x, STREAM_COMPUTE, e->stream);
  if (e->bucket->len == 1)
    all_reduce(x, x->parameters[g_array_index(e->bucket, int, 0)].gradient,
               e->bucket_elements * e->element);
  else
    reduce_together(x);
  g_array_append_vals(e->reduced, e->bucket->data, e->bucket->len);
  g_array_set_size(e->bucket, 0);
  e->bucket_elements = 0;
}

/* A gradient that does not fit sends the bucket away before it is put into the next one. */
static void
add_to_bucket(StrategyContext *x, int parameter)
{
  InternEvo *e = of(x);
  gint64 elements = elements_of(x, parameter);
  if (e->bucket_elements + elements > plan_spec_number(x->plan, "reduce_bucket_size"))
    reduce_bucket(x);
  g_array_append_val(e->bucket, parameter);
  e->bucket_elements += elements;
}

static void
gradient_ready(StrategyContext *x, int parameter)
{
  if (x->last_micro_batch && of(x)->overlap)
    add_to_bucket(x, parameter);
}

/* ---- the step ---- */

/* What is left is reduced; without overlap that is everything. */
static void
finish_reduction(StrategyContext *x)
{
  InternEvo *e = of(x);
  for (guint i = 0; i < x->network->parameters->len && !e->overlap; i++)
    if (x->parameters[i].has_gradient)
      add_to_bucket(x, (int) i);
  reduce_bucket(x);
  wait_for_reduction(x);
  clear_reduced(x);
}

/* compute_norm: squares of own gradients are summed over the owners, and the host asks for the sum.
 */
static void
take_norm(StrategyContext *x)
{
  InternEvo *e = of(x);
  StorageId norm = new_tensor(x, STREAM_COMPUTE, 4, CATEGORY_TEMPORARY, "norm");
  double bytes = 4;
  for (guint i = 0; i < x->network->parameters->len; i++) {
    if (e->owner[i] != x->rank || x->parameters[i].gradient == NO_STORAGE)
      continue;
    operand(x, x->parameters[i].gradient, e->dtype, ROLE_READ);
    bytes += (double) (elements_of(x, (int) i) * e->element);
  }
  operand(x, norm, DTYPE_FP32, ROLE_WRITE);
  strategy_launch_as(x, STREAM_COMPUTE, "multi_tensor_l2norm", bytes, "sum_of_squares");
  zero_all_reduce_scalar(x, e->zero, norm, DTYPE_FP32);
  zero_read_back(x, STREAM_COMPUTE);
  double scale = network_loss_scale(e->dtype);
  g_autofree char *unscales = meaning_text("number_over", 2, "value", scale, "global", 1.0),
                  *clips = meaning_text("number_clips", 2, "most",
                                        x->plan->optimizer.clip_grad_norm, "scale", scale);
  operand(x, norm, DTYPE_FP32, ROLE_READ);
  strategy_compute_on_host(x, "item", "number_root_of");
  strategy_compute_on_host(x, "div", unscales);
  strategy_compute_on_host(x, "clip", clips);
  live_storage_drop(x->live, norm);
}

/* Own gradients in a row; they go, and the row is cast to fp32. */
static StorageId
own_gradient(StrategyContext *x)
{
  InternEvo *e = of(x);
  gint64 bytes = owned_here(x) * e->element;
  StorageId flat = new_tensor(x, STREAM_COMPUTE, bytes, CATEGORY_TEMPORARY, "flat gradient");
  for (guint i = 0; i < x->network->parameters->len; i++)
    if (e->owner[e->order[i]] == x->rank)
      operand(x, x->parameters[e->order[i]].gradient, e->dtype, ROLE_READ);
  operand(x, flat, e->dtype, ROLE_WRITE);
  strategy_launch(x, STREAM_COMPUTE, "cat", 2.0 * (double) bytes);
  for (guint i = 0; i < x->network->parameters->len; i++) {
    live_storage_clear(x->live, &x->parameters[i].gradient);
    x->parameters[i].has_gradient = FALSE;
  }
  if (e->dtype == DTYPE_FP32)
    return flat;
  StorageId wide =
      new_tensor(x, STREAM_COMPUTE, owned_here(x) * 4, CATEGORY_TEMPORARY, "fp32 gradient");
  operand(x, flat, e->dtype, ROLE_READ);
  operand(x, wide, DTYPE_FP32, ROLE_WRITE);
  strategy_launch(x, STREAM_COMPUTE, "to_copy", (double) (owned_here(x) * (4 + e->element)));
  live_storage_drop(x->live, flat);
  return wide;
}

/* Unscaled and clipped by one factor, updated, and written back in the model's dtype. */
static void
update(StrategyContext *x)
{
  InternEvo *e = of(x);
  gint64 elements = owned_here(x);
  e->master.gradient = own_gradient(x);
  operand(x, e->master.gradient, DTYPE_FP32, ROLE_ACCUMULATE);
  g_autofree char *unscales = zero_unscaling(e->dtype);
  strategy_launch_as(x, STREAM_COMPUTE, "mul_", 8.0 * (double) elements,
                     x->plan->optimizer.clip_grad_norm > 0 ? "scale_by_number" : unscales);
  torch_optimizer_step(x, DTYPE_FP32, 1, &e->master);
  live_storage_clear(x->live, &e->master.gradient);
  if (e->master.value == e->flat[x->rank])
    return;
  operand(x, e->master.value, DTYPE_FP32, ROLE_READ);
  operand(x, e->flat[x->rank], e->dtype, ROLE_WRITE);
  strategy_launch(x, STREAM_COMPUTE, "copy", (double) (elements * (4 + e->element)));
}

/* broadcast_params: one for each owner that has any, in a row. */
static void
broadcast(StrategyContext *x)
{
  InternEvo *e = of(x);
  if (e->owners == 1)
    return;
  order_streams(x, STREAM_COMPUTE, e->stream);
  for (int i = 0; i < e->owners; i++) {
    if (e->flat[i] == NO_STORAGE)
      continue;
    program_builder_host_work(x->builder, HOST_WORK_COLLECTIVE_CALL, 1);
    operand(x, e->flat[i], e->dtype, i == x->rank ? ROLE_READ : ROLE_WRITE);
    program_builder_collective(
        x->builder, e->stream,
        &(Collective){.kind = COLLECTIVE_BROADCAST,
                      .dtype = (guint8) e->dtype,
                      .communicator = e->zero,
                      .name = program_builder_name(x->builder, "flat parameters"),
                      .bytes = e->owned[i] * e->element});
  }
  order_streams(x, e->stream, STREAM_COMPUTE);
}

static void
optimizer_step(StrategyContext *x)
{
  finish_reduction(x);
  if (x->plan->optimizer.clip_grad_norm > 0)
    take_norm(x);
  if (owned_here(x) > 0)
    update(x);
  broadcast(x);
}

static LossScaling
loss(const PlanSpec *plan)
{
  (void) plan;
  return LOSS_DIVIDED_AND_SCALED;
}

static int
zero_stage(StrategyContext *x)
{
  return of(x)->owners > 1 ? 1 : 0;
}

/* Whole parameters everywhere; owners of the optimizer's state within the zero group. */
static StateSpread
spread(const StrategyContext *x)
{
  return (StateSpread){1, ((const InternEvo *) x->state)->owners};
}

static ExpectedTotals
expected(StrategyContext *x)
{
  gint64 n = network_parameter_count(x->network);
  gboolean norm = x->plan->optimizer.clip_grad_norm > 0 && of(x)->owners > 1;
  ExpectedTotals total = {.parameter_bytes = n * of(x)->element, .elements_all_reduced = norm};
  if (x->plan->shard * x->plan->replicate > 1)
    total.elements_all_reduced += n;
  if (of(x)->owners > 1)
    total.elements_broadcast = n;
  return total;
}

const Strategy strategy_internevo = {
    .name = "internevo",
    .summary = "InternEvo's ZeRO stage 1: gradients all-reduced, owners broadcast parameters",
    .section = &section,
    .accept = accept,
    .loss = loss,
    .setup = setup,
    .construct = strategy_construct_whole,
    .initialize = initialize,
    .teardown = teardown,
    .gradient_ready = gradient_ready,
    .state_ranks = state_ranks,
    .state_ranges = state_ranges,
    .optimizer_step = optimizer_step,
    .zero_stage = zero_stage,
    .spread = spread,
    .expected = expected,
    .heaviest_rank = heaviest_rank,
};
