/* phase_load.c - a checkpoint is read: sharded, each rank what it holds, into its tensors in place
 * (torch.distributed.checkpoint.load), or whole by rank 0, which sends one tensor after another to
 * all (torch/distributed/_state_dict_utils.py, _broadcast_state_dict).  The optimizer's states are
 * made before they are read (torch/distributed/checkpoint/state_dict.py, _init_optim_state). */
#include "lower/phase_load.h"

#include <string.h>

#include "strategy/state_dict.h"

struct _LoadMap {
  GArray *elements; /* gint64: that this rank reads, by rank of the source */
};

/* ---- the source's plan ---- */

/* A plan as little as its layout needs: strategy, ranks, groups, dtypes. */
static char *
source_text(const LowerInput *in)
{
  const PlanSpec *plan = in->plan;
  const char *given = plan->phases.load.strategy, *strategy = given ? given : plan->strategy;
  int ranks = plan->phases.load.shard > 0 ? plan->phases.load.shard : plan->shard;
  gboolean ddp = g_str_equal(strategy, "ddp"), zero = g_str_has_prefix(strategy, "zero");
  gboolean fsdp = g_str_has_prefix(strategy, "fsdp");
  GString *text = g_string_new(NULL);
  g_string_printf(text,
                  "{\"strategy\": \"%s\", \"mesh\": {\"%s\": %d}, \"batch\": {\"sequence_length\": "
                  "%d}, \"precision\": {\"parameters\": \"%s\"",
                  strategy, ddp ? "replicate" : "shard", ranks, plan->sequence_length,
                  dtype_name(zero ? plan->precision.compute : plan->precision.parameters));
  if (fsdp)
    g_string_append_printf(text, ", \"compute\": \"%s\"", dtype_name(plan->precision.compute));
  g_string_append_c(text, '}');
  if (fsdp)
    g_string_append_printf(text, ", \"fsdp\": {\"blocks_per_group\": %d}",
                           plan->phases.load.blocks_per_group);
  g_string_append_c(text, '}');
  return g_string_free(text, FALSE);
}

/* ---- the map ---- */

static LoadMap *
map_of(const StateLayout *source, const StateLayout *target, int rank)
{
  LoadMap *map = g_new0(LoadMap, 1);
  map->elements = g_array_sized_new(FALSE, TRUE, sizeof(gint64), (guint) source->ranks);
  g_array_set_size(map->elements, (guint) source->ranks);
  g_autoptr(GArray) reads = range_map(source, target, rank);
  for (guint i = 0; i < reads->len; i++) {
    const StateRead *read = &g_array_index(reads, StateRead, i);
    g_array_index(map->elements, gint64, read->source) += read->range.elements;
  }
  return map;
}

static gboolean
accept(const LowerInput *in, GError **error)
{
  const PhaseSpec *phases = &in->plan->phases;
  if (in->strategy->saves_states)
    return TRUE;
  if (in->strategy->accept_load != NULL)
    return in->strategy->accept_load(in->plan, in->network, error);
  if (in->strategy->load_model == NULL)
    return plan_spec_refuse(in->plan, error, "phases.load", "not yet supported under strategy %s",
                            in->plan->strategy);
  if (phases->load.optimizer)
    return plan_spec_refuse(in->plan, error, "phases.load.optimizer",
                            "states of the optimizer are not yet restored under strategy %s: set "
                            "it false",
                            in->plan->strategy);
  gboolean full = phases->load.state == STATE_FULL;
  if (full && in->plan->section != NULL && plan_spec_number(in->plan, "cpu_offload") != 0)
    return plan_spec_refuse(in->plan, error, "phases.load.state",
                            "a full state does not yet go with cpu_offload under strategy %s",
                            in->plan->strategy);
  return TRUE;
}

/* What this plan's ranks read.  A load_model of its own reads rows of what is sharded, an engine
 * what it holds. */
static StateLayout *
target_layout(const LowerInput *in, GError **error)
{
  StateLayout *held = lower_state_layout(in, error);
  if (held == NULL || held->ranks == 1 || in->strategy->load_model == NULL ||
      in->strategy->saves_with_engine)
    return held;
  state_layout_free(held);
  StateLayout *layout = state_layout_new(in->plan->shard);
  for (guint i = 0; i < in->network->parameters->len; i++)
    strategy_add_rows(in->network, (int) i, layout);
  return layout;
}

static StateLayout *
source_layout(const LowerInput *in, GError **error)
{
  const PhaseSpec *phases = &in->plan->phases;
  gboolean same = phases->load.strategy == NULL && phases->load.shard == 0;
  if (same || in->strategy->saves_with_engine) /* it reads no other ranges */
    return target_layout(in, error);
  g_autofree char *text = source_text(in);
  g_autofree PlanStrategy *table = strategy_plan_table();
  g_autoptr(PlanSpec) plan =
      plan_spec_parse("phases.load.from", text, strlen(text), NULL, table, error);
  if (plan == NULL)
    return NULL;
  LowerInput source = *in;
  source.plan = plan;
  source.strategy = strategy_find(plan->strategy);
  source.rank = 0;
  return lower_state_layout(&source, error);
}

gboolean
load_map_new(const LowerInput *in, LoadMap **map, GError **error)
{
  *map = NULL;
  if (!in->plan->phases.load.given)
    return TRUE;
  if (!accept(in, error))
    return FALSE;
  g_autoptr(StateLayout) source = source_layout(in, error);
  g_autoptr(StateLayout) target = source != NULL ? target_layout(in, error) : NULL;
  if (target == NULL)
    return FALSE;
  guint n = in->network->parameters->len;
  g_autofree gint64 *elements = g_new(gint64, MAX(n, 1));
  for (guint i = 0; i < n; i++)
    elements[i] = network_parameter(in->network, (int) i)->elements;
  g_autofree char *fault = range_map_fault(source, target, elements, n);
  if (fault != NULL)
    return plan_spec_refuse(in->plan, error, "phases.load", "%s", fault);
  *map = map_of(source, target, in->rank % target->ranks);
  return TRUE;
}

void
load_map_free(LoadMap *map)
{
  if (map == NULL)
    return;
  g_array_unref(map->elements);
  g_free(map);
}

/* ---- reading ---- */

typedef struct {
  StepWalk *w;
  StrategyContext *x;
  DType dtype;
  gint32 communicator; /* of all ranks: for a full state */
  gint64 bytes;        /* read by this rank */
  GArray *received;    /* Received: whole tensors that wait until all are there */
} Loading;

typedef struct {
  StorageId whole, into;
  gint64 bytes;
} Received;

static StorageId
allocate(const Loading *l, Space space, gint64 bytes, int parameter, Category category)
{
  return live_storage_alloc_in(l->x->live, space, bytes, STREAM_COMPUTE,
                               parameter_purpose(l->x, parameter, category));
}

/* From one storage to another. */
static void
copy(const Loading *l, StorageId from, StorageId to, gint64 bytes)
{
  if (from == NO_STORAGE || to == NO_STORAGE)
    return;
  gboolean crosses = live_storage_space(l->x->live, from) != live_storage_space(l->x->live, to);
  program_builder_operand(l->x->builder, live_storage_tensor(l->x->live, from, l->dtype),
                          ROLE_READ);
  program_builder_operand(l->x->builder, live_storage_tensor(l->x->live, to, l->dtype), ROLE_WRITE);
  if (!crosses) {
    strategy_launch(l->x, STREAM_COMPUTE, "copy", 2.0 * (double) bytes);
    return;
  }
  strategy_copy(l->x, STREAM_COMPUTE, "copy to the device", (double) bytes);
  program_builder_stream_sync(l->x->builder, STREAM_COMPUTE);
}

/* What has been read lies in the host's memory; it is copied into place. */
static void
read_part(Loading *l, int parameter, StorageId into, gint64 bytes)
{
  l->bytes += bytes;
  StorageId host = allocate(l, SPACE_HOST, bytes, parameter, CATEGORY_OTHER);
  if (into != NO_STORAGE && live_storage_space(l->x->live, into) == SPACE_DEVICE)
    copy(l, host, into, bytes);
  live_storage_drop(l->x->live, host);
}

/* Rank 0 has the whole tensor on the host and sends it to all. */
static StorageId
receive_whole(Loading *l, int parameter)
{
  StrategyContext *x = l->x;
  gint64 bytes = network_parameter(x->network, parameter)->elements * dtype_size(l->dtype);
  StorageId host = NO_STORAGE;
  if (x->global_rank == 0) {
    host = allocate(l, SPACE_HOST, bytes, parameter, CATEGORY_OTHER);
    l->bytes += bytes;
  }
  StorageId whole = allocate(l, SPACE_DEVICE, bytes, parameter, CATEGORY_UNSHARDED_PARAMETER);
  copy(l, host, whole, bytes);
  live_storage_drop(x->live, host);
  program_builder_host_work(x->builder, HOST_WORK_COLLECTIVE_CALL, 1);
  program_builder_operand(x->builder, live_storage_tensor(x->live, whole, l->dtype),
                          x->global_rank == 0 ? ROLE_READ : ROLE_WRITE);
  Collective broadcast = {
      .kind = COLLECTIVE_BROADCAST,
      .dtype = (guint8) l->dtype,
      .communicator = l->communicator,
      .name = x->parameter_names[parameter],
      .bytes = bytes,
  };
  program_builder_collective(x->builder, STREAM_COMPUTE, &broadcast);
  return whole;
}

/* Of a DTensor each rank takes its part at once (_distribute_tensors); another tensor waits in the
 * state dict until all are there (_broadcast_tensors). */
static void
load_tensor(Loading *l, int parameter, StorageId into)
{
  gint64 part = l->x->parameters[parameter].local_elements * dtype_size(l->dtype);
  if (l->x->plan->phases.load.state != STATE_FULL) {
    read_part(l, parameter, into, part);
    return;
  }
  Received received = {receive_whole(l, parameter), into, part};
  if (l->w->strategy->full_tensor == NULL || l->x->parameters[parameter].ignored) {
    g_array_append_val(l->received, received);
    return;
  }
  copy(l, received.whole, into, part);
  live_storage_drop(l->x->live, received.whole);
}

/* module.load_state_dict(), and then the state dict goes. */
static void
load_received(Loading *l)
{
  for (guint i = 0; i < l->received->len; i++) {
    const Received *r = &g_array_index(l->received, Received, i);
    copy(l, r->whole, r->into, r->bytes);
  }
  for (guint i = 0; i < l->received->len; i++)
    live_storage_drop(l->x->live, g_array_index(l->received, Received, i).whole);
  g_array_set_size(l->received, 0);
}

static void
receive_into(Loading *l, StateDict *dict, int parameter)
{
  StateTensor tensor = {
      .storage = receive_whole(l, parameter), .dtype = l->dtype, .parameter = parameter};
  tensor.bytes = network_parameter(l->x->network, parameter)->elements * dtype_size(l->dtype);
  state_dict_add(l->x, dict, &tensor);
}

/* Where parameters are no DTensors, the whole state dict is there on every rank before any of it is
 * loaded (_broadcast_tensors). */
static void
load_whole_model(Loading *l)
{
  StrategyContext *x = l->x;
  StateDict *dict = state_dict_new(TRUE, FALSE, x->global_rank);
  g_autoptr(GArray) order = network_state_order(x->network);
  for (guint i = 0; i < order->len; i++)
    receive_into(l, dict, g_array_index(order, int, i));
  l->w->strategy->load_full(x, dict);
  state_dict_free(x, dict);
}

/* ---- the phase ---- */

/* A step counter is a number in the state dict, 4 bytes wherever it is kept. */
static void
load_optimizer(Loading *l)
{
  gboolean adam = l->x->plan->optimizer.name != OPTIMIZER_SGD;
  int moments = optimizer_moments(l->x->plan);
  for (guint i = 0; i < l->x->network->parameters->len; i++) {
    const OptimizedTensor *t = optimizer_state_tensor(l->w->optimizer, (int) i);
    if (!t->made)
      continue;
    l->bytes += adam ? 4 : 0;
    for (int k = 0; k < moments; k++)
      load_tensor(l, (int) i, t->moment[k]);
  }
  load_received(l);
}

/* A tied weight comes under both of its names where it waits. */
static void
load_model(Loading *l)
{
  const Network *n = l->x->network;
  for (guint i = 0; i < n->parameters->len; i++)
    load_tensor(l, (int) i, l->x->parameters[i].sharded);
  for (guint i = 0; i < n->ties->len && l->received->len > 0; i++) {
    const Tie *tie = network_tie(n, (int) i);
    if (tie->module >= 0)
      load_tensor(l, tie->parameter, l->x->parameters[tie->parameter].sharded);
  }
  load_received(l);
}

static void
load_weights(Loading *l)
{
  const Strategy *strategy = l->w->strategy;
  if (l->x->plan->phases.load.state == STATE_FULL && strategy->load_full != NULL)
    load_whole_model(l);
  else if (strategy->load_model != NULL)
    l->bytes = strategy->load_model(l->x);
  else
    load_model(l);
}

static gint32
world_communicator(StrategyContext *x)
{
  int ranks = x->plan->shard * x->plan->replicate;
  gboolean one_group = x->plan->replicate == 1;
  return program_builder_communicator(x->builder, one_group ? "shard" : "world", ranks, 1);
}

LoweredPhase
phase_load(StepWalk *w, const LoadMap *map)
{
  StrategyContext *x = w->x;
  const PlanSpec *plan = x->plan;
  gboolean full = plan->phases.load.state == STATE_FULL;
  Loading l = {.w = w,
               .x = x,
               .dtype = plan->precision.parameters,
               .received = g_array_new(FALSE, FALSE, sizeof(Received))};
  if (full)
    l.communicator = world_communicator(x);
  program_builder_set_module(x->builder, -1);
  program_builder_push(x->builder, RANGE_BEYOND, "load", -1);
  gboolean engine = w->strategy->saves_with_engine;
  gboolean states =
      plan->phases.load.optimizer && plan->optimizer.name != OPTIMIZER_NONE && !engine;
  if (states && !full)
    optimizer_make_states(x, w->optimizer);
  load_weights(&l);
  if (states && full)
    optimizer_make_states(x, w->optimizer);
  if (states)
    load_optimizer(&l);
  g_array_unref(l.received);
  program_builder_pop(x->builder);
  LoweredPhase moved = {.name = "load", .state_bytes = l.bytes, .rank_0_bytes = -1};
  moved.others_bytes = -1;
  if (engine) /* partitions are of fp32 weights */
    l.dtype = DTYPE_FP32;
  for (guint i = 0; i < map->elements->len && i < G_N_ELEMENTS(moved.source_bytes) && !full; i++)
    moved.source_bytes[i] = g_array_index(map->elements, gint64, i) * dtype_size(l.dtype);
  moved.sources = full ? 0 : (int) map->elements->len;
  return moved;
}
