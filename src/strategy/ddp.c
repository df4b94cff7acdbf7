/* ddp.c - torch.nn.parallel.DistributedDataParallel: whole replicas, gradients all-reduced in
 * buckets (torch/csrc/distributed/c10d/reducer.cpp). */
#include "base/units.h"
#include "program/meaning.h"
#include "strategy/ddp_buffers.h"
#include "strategy/zero_redundancy.h"

static const OptionInfo options[] = {
    {"bucket_cap_mb", OPTION_INT, "25", 1, 1 << 20, NULL,
     "a bucket closes when it holds this many MiB"},
    {"first_bucket_mb", OPTION_INT, "null", 1, 1 << 20, NULL,
     "the first bucket's own; DDP itself takes 1 where nobody gives it bucket_cap_mb"},
    {"gradient_as_bucket_view", OPTION_BOOL, "false", 0, 0, NULL,
     "gradients are views of the buckets"},
    {"find_unused_parameters", OPTION_BOOL, "false", 0, 0, NULL,
     "each forward searches the graph for parameters without a gradient, and clones its outputs"},
    {"broadcast_buffers", OPTION_BOOL, "true", 0, 0, NULL,
     "forward begins with rank 0's buffers for all, after a backward that synchronized"},
    {"static_graph", OPTION_BOOL, "false", 0, 0, NULL,
     "the graph never changes: not yet supported"},
    {"zero_redundancy_optimizer", OPTION_BOOL, "false", 0, 0, NULL,
     "ZeroRedundancyOptimizer: each rank updates some of the parameters and sends them to all"},
    {"parameters_as_bucket_view", OPTION_BOOL, "false", 0, 0, NULL,
     "of that optimizer: parameters lie in one buffer for each rank, sent at once"},
    {"overlap_with_ddp", OPTION_BOOL, "false", 0, 0, NULL,
     "of that optimizer: in DDP's communication hook; not yet supported"},
    {0},
};

static const OptionSection section = {"ddp", options};

typedef struct {
  StorageId storage;
  gint64 bytes;
  int parameters; /* how many it waits for */
  int ready;
  gint32 reduced; /* event */
} Bucket;

typedef struct {
  gint32 communicator;
  GArray *buckets;     /* Bucket */
  GArray *ready_order; /* int: parameters in the order in which the first synchronized backward made
                          gradients */
  gboolean rebuilt;
  int *bucket_of;    /* by parameter */
  gint64 *offset_of; /* by parameter: elements into its bucket at which its gradient begins */
  DType dtype;
  guint next_bucket;      /* buckets are reduced in order */
  gboolean finds_unused;  /* find_unused_parameters */
  int search;             /* ops that take the host as long as searching the graph does */
  StorageId used_map;     /* local_used_map_dev_ */
  gint32 map_reduced;     /* event, or -1 */
  GArray *buffers;        /* BufferBucket: none unless they are broadcast */
  gboolean sends_buffers; /* require_forward_param_sync */
  ZeroRedundancy *zero;   /* NULL: a plain optimizer */
} Ddp;

static gboolean
accept(const PlanSpec *plan, const Network *network, GError **error)
{
  (void) network;
  if (plan->shard != 1)
    return plan_spec_refuse(plan, error, "mesh.shard", "ddp does not shard: use mesh.replicate");
  static const char *const unsupported[] = {"static_graph", "overlap_with_ddp"};
  for (guint i = 0; i < G_N_ELEMENTS(unsupported); i++) {
    g_autofree char *key = g_strconcat("ddp.", unsupported[i], NULL);
    if (plan_spec_number(plan, unsupported[i]))
      return plan_spec_refuse(plan, error, key, "not yet supported");
  }
  gboolean partitions = plan_spec_number(plan, "zero_redundancy_optimizer") != 0;
  if (plan_spec_number(plan, "parameters_as_bucket_view") && !partitions)
    return plan_spec_refuse(plan, error, "ddp.parameters_as_bucket_view",
                            "needs \"zero_redundancy_optimizer\": true");
  if (partitions && plan->precision.grad_scaler)
    return plan_spec_refuse(plan, error, "precision.grad_scaler",
                            "not yet supported with ddp.zero_redundancy_optimizer");
  if (partitions && plan->optimizer.name == OPTIMIZER_NONE)
    return plan_spec_refuse(plan, error, "ddp.zero_redundancy_optimizer", "needs an optimizer");
  if (partitions && plan->phases.save.given && plan->phases.save.optimizer)
    return plan_spec_refuse(plan, error, "phases.save.optimizer",
                            "states that ZeroRedundancyOptimizer has partitioned are not yet "
                            "saved");
  return strategy_accept_unsharded(plan, error);
}

/* _DDPSink clones what the model gives back (torch/nn/parallel/distributed.py). */
static void
shape(const PlanSpec *plan, NetworkShape *shape)
{
  shape->clones_outputs = plan_spec_number(plan, "find_unused_parameters") != 0;
}

/* search_unused_parameters walks the graph that a forward has made, about a node for each op; a
 * checkpointed block makes none.  A node took 50 to 70 ns (PyTorch 2.11, graphs of 130 and 1300
 * nodes, one core of a server), a hundredth of what issuing an op does. */
static int
search_in_ops(const StrategyContext *x)
{
  enum { NODES_PER_OP = 100 };
  const Network *n = x->network;
  gint64 nodes = network_function(n, n->main)->ops->len;
  for (int i = 0; i < (int) n->blocks->len; i++)
    if (!plan_spec_checkpoints(x->plan, i))
      nodes += network_function(n, network_block(n, i)->function)->ops->len;
  return (int) ceil_div(nodes, NODES_PER_OP);
}

static void
setup(StrategyContext *x)
{
  Ddp *d = x->state = g_new0(Ddp, 1);
  d->communicator = program_builder_communicator(x->builder, "replicate", x->plan->replicate, 1);
  d->buckets = g_array_new(FALSE, FALSE, sizeof(Bucket));
  d->ready_order = g_array_new(FALSE, FALSE, sizeof(int));
  d->bucket_of = g_new0(int, x->network->parameters->len);
  d->offset_of = g_new0(gint64, x->network->parameters->len);
  d->dtype = x->plan->precision.parameters;
  d->finds_unused = plan_spec_number(x->plan, "find_unused_parameters") != 0;
  d->search = search_in_ops(x);
  d->buffers = ddp_buffer_buckets(x->network);
  if (!plan_spec_number(x->plan, "broadcast_buffers"))
    g_array_set_size(d->buffers, 0);
  d->sends_buffers = TRUE;
  d->used_map = NO_STORAGE;
  d->map_reduced = -1;
  if (plan_spec_number(x->plan, "zero_redundancy_optimizer"))
    d->zero = zero_redundancy_new(x, d->communicator,
                                  plan_spec_number(x->plan, "parameters_as_bucket_view") != 0);
}

static void
teardown(StrategyContext *x)
{
  Ddp *d = x->state;
  g_array_unref(d->buckets);
  g_array_unref(d->ready_order);
  g_array_unref(d->buffers);
  g_free(d->bucket_of);
  g_free(d->offset_of);
  zero_redundancy_free(d->zero);
  g_free(d);
}

static void
add_bucket(Ddp *d, gint64 bytes, int parameters)
{
  Bucket bucket = {.storage = NO_STORAGE, .bytes = bytes, .parameters = parameters, .reduced = -1};
  g_array_append_val(d->buckets, bucket);
}

static void
allocate_buckets(StrategyContext *x)
{
  Ddp *d = x->state;
  StoragePurpose purpose = {CATEGORY_REDUCE_SCATTER_BUFFER, -1,
                            program_builder_name(x->builder, "gradient bucket")};
  for (guint i = 0; i < d->buckets->len; i++) {
    Bucket *bucket = &g_array_index(d->buckets, Bucket, i);
    bucket->storage = live_storage_alloc(x->live, bucket->bytes, STREAM_COMPUTE, purpose);
  }
}

/* Bytes at which the first bucket closes, and the others. */
typedef struct {
  gint64 first, others;
} BucketCaps;

/* Buckets of parameters in this order; one closes when it has reached its cap
 * (compute_bucket_assignment_by_size). */
static void
plan_buckets(StrategyContext *x, const GArray *order, BucketCaps caps)
{
  Ddp *d = x->state;
  gint64 bytes = 0;
  int parameters = 0;
  g_array_set_size(d->buckets, 0);
  for (guint i = 0; i < order->len; i++) {
    int p = g_array_index(order, int, i);
    bytes += network_parameter(x->network, p)->elements * dtype_size(d->dtype);
    parameters++;
    d->bucket_of[p] = (int) d->buckets->len;
    d->offset_of[p] = bytes / dtype_size(d->dtype) - network_parameter(x->network, p)->elements;
    if (bytes < (d->buckets->len == 0 ? caps.first : caps.others) && i + 1 < order->len)
      continue;
    add_bucket(d, bytes, parameters);
    bytes = parameters = 0;
  }
}

/* Gradients come in the reverse of the order in which parameters were defined, more or less: so do
 * the buckets that the constructor makes. */
static void
reverse_buckets(StrategyContext *x)
{
  Ddp *d = x->state;
  guint n = d->buckets->len;
  for (guint i = 0; i < n / 2; i++) {
    Bucket *a = &g_array_index(d->buckets, Bucket, i),
           *b = &g_array_index(d->buckets, Bucket, n - 1 - i), kept = *a;
    *a = *b;
    *b = kept;
  }
  for (guint i = 0; i < x->network->parameters->len; i++)
    d->bucket_of[i] = (int) n - 1 - d->bucket_of[i];
}

static BucketCaps
bucket_caps(const StrategyContext *x)
{
  gint64 usual = plan_spec_number(x->plan, "bucket_cap_mb") * MIB;
  const OptionValue *first = plan_spec_option(x->plan, "first_bucket_mb");
  return (BucketCaps){first->is_null ? usual : first->number * MIB, usual};
}

static void
make_used_map(StrategyContext *x)
{
  Ddp *d = x->state;
  StoragePurpose purpose = {CATEGORY_OTHER, -1,
                            program_builder_name(x->builder, "map of used parameters")};
  gint64 bytes = (gint64) network_trainable_tensors(x->network) * dtype_size(DTYPE_INT32);
  d->used_map = live_storage_alloc(x->live, bytes, STREAM_COMPUTE, purpose);
}

/* The reducer knows the parameters that require a gradient.  One that will rebuild its buckets
 * ignores the cap at first: it cannot know the order, so
 * one bucket holds everything.  With find_unused_parameters it never rebuilds. */
static void
construct(StrategyContext *x)
{
  Ddp *d = x->state;
  g_autoptr(GArray) defined = g_array_new(FALSE, FALSE, sizeof(int));
  strategy_construct_whole(x);
  for (int i = 0; i < (int) x->network->parameters->len; i++)
    if (network_parameter(x->network, i)->trainable)
      g_array_append_val(defined, i);
  plan_buckets(x, defined, d->finds_unused ? bucket_caps(x) : (BucketCaps){G_MAXINT64, G_MAXINT64});
  reverse_buckets(x);
  allocate_buckets(x);
  if (d->finds_unused)
    make_used_map(x);
}

static void
construct_optimizer(StrategyContext *x)
{
  Ddp *d = x->state;
  if (d->zero != NULL)
    zero_redundancy_construct(x, d->zero);
}

/* .grad becomes a view of its bucket, of which it is one more holder. */
static void
become_view(StrategyContext *x, int parameter)
{
  Ddp *d = x->state;
  ParameterState *p = &x->parameters[parameter];
  StorageId bucket = g_array_index(d->buckets, Bucket, d->bucket_of[parameter]).storage;
  live_storage_hold(x->live, bucket);
  live_storage_drop(x->live, p->gradient);
  p->gradient = bucket;
  p->gradient_offset = d->offset_of[parameter];
}

/* Where a gradient's elements are: in a storage of their own, or in a bucket. */
typedef struct {
  StorageId storage;
  gint64 offset;
} GradientPlace;

static GradientPlace
place_in_bucket(const StrategyContext *x, int parameter)
{
  const Ddp *d = x->state;
  return (GradientPlace){g_array_index(d->buckets, Bucket, d->bucket_of[parameter]).storage,
                         d->offset_of[parameter]};
}

/* A copy of a gradient's elements between two places. */
static void
launch_copy(StrategyContext *x, int parameter, GradientPlace from, GradientPlace to, Role role)
{
  DType dtype = ((Ddp *) x->state)->dtype;
  gint64 elements = network_parameter(x->network, parameter)->elements;
  gint64 bytes = elements * dtype_size(dtype);
  ProgramBuilder *b = x->builder;
  program_builder_operand(
      b, program_builder_flat_tensor(b, from.storage, from.offset, elements, dtype), ROLE_READ);
  program_builder_operand(b, program_builder_flat_tensor(b, to.storage, to.offset, elements, dtype),
                          role);
  strategy_launch(x, STREAM_COMPUTE, "copy", 2.0 * (double) bytes);
}

/* Gradients that are views of the old bucket, which the last of them lets go, move to the new ones
 * (Reducer::initialize_bucket_views). */
static void
move_views(StrategyContext *x, StorageId old)
{
  Ddp *d = x->state;
  for (guint i = 0; i < d->ready_order->len; i++) {
    int parameter = g_array_index(d->ready_order, int, i);
    if (x->parameters[parameter].gradient != old)
      continue;
    GradientPlace from = {old, x->parameters[parameter].gradient_offset};
    launch_copy(x, parameter, from, place_in_bucket(x, parameter), ROLE_WRITE);
    become_view(x, parameter);
  }
}

/* _rebuild_buckets, at the first forward after a synchronized backward: ranks agree on the order
 * first. */
static void
rebuild(StrategyContext *x)
{
  Ddp *d = x->state;
  StorageId old = g_array_index(d->buckets, Bucket, 0).storage;
  plan_buckets(x, d->ready_order, bucket_caps(x));
  StoragePurpose purpose = {CATEGORY_TEMPORARY, -1,
                            program_builder_name(x->builder, "bucket indices")};
  StorageId indices = live_storage_alloc(
      x->live, 4 * ((gint64) network_trainable_tensors(x->network) + 1), STREAM_COMPUTE, purpose);
  StorageId sizes =
      live_storage_alloc(x->live, 4 * (gint64) d->buckets->len, STREAM_COMPUTE, purpose);
  live_storage_drop(x->live, sizes);
  live_storage_drop(x->live, indices);
  live_storage_drop(x->live, old);
  allocate_buckets(x);
  move_views(x, old);
  d->rebuilt = TRUE;
}

static void
begin_forward(StrategyContext *x)
{
  Ddp *d = x->state;
  if (!x->no_grad && !d->rebuilt && !d->finds_unused && d->ready_order->len > 0)
    rebuild(x);
  if (d->sends_buffers)
    ddp_buffers_broadcast(x, d->buffers, d->communicator);
  d->sends_buffers = x->synchronize && !x->no_grad;
  if (x->no_grad)
    return;
  d->next_bucket = 0;
  for (guint i = 0; i < d->buckets->len; i++)
    g_array_index(d->buckets, Bucket, i).ready = 0;
}

static void
end_forward(StrategyContext *x)
{
  const Ddp *d = x->state;
  if (d->finds_unused && x->synchronize && !x->no_grad)
    program_builder_host_work(x->builder, HOST_WORK_OP_FORWARD, d->search);
}

/* An all-reduce in place behind what compute has issued; returns the event of its end. */
static gint32
all_reduce(StrategyContext *x, StorageId storage, DType dtype, const char *what,
           const char *reduction)
{
  Ddp *d = x->state;
  gint32 filled = program_builder_event(x->builder), reduced = program_builder_event(x->builder);
  program_builder_record(x->builder, STREAM_COMPUTE, filled);
  program_builder_wait(x->builder, STREAM_ALL_REDUCE, filled);
  program_builder_host_work(x->builder, HOST_WORK_COLLECTIVE_CALL, 1);
  program_builder_operand(x->builder, live_storage_tensor(x->live, storage, dtype),
                          ROLE_ACCUMULATE);
  program_builder_collective(x->builder, STREAM_ALL_REDUCE,
                             &(Collective){.kind = COLLECTIVE_ALL_REDUCE,
                                           .dtype = (guint8) dtype,
                                           .communicator = d->communicator,
                                           .name = program_builder_name(x->builder, what),
                                           .meaning = meaning_of(x->builder, reduction),
                                           .bytes = live_storage_bytes(x->live, storage)});
  program_builder_record(x->builder, STREAM_ALL_REDUCE, reduced);
  return reduced;
}

/* The map of parameters that had a gradient comes from the host, and is summed over the ranks
 * (all_reduce_local_used_map). */
static void
reduce_used_map(StrategyContext *x)
{
  Ddp *d = x->state;
  StoragePurpose purpose = {CATEGORY_OTHER, -1,
                            program_builder_name(x->builder, "map of used parameters")};
  gint64 bytes = live_storage_bytes(x->live, d->used_map);
  StorageId pinned = live_storage_alloc_in(x->live, SPACE_PINNED, bytes, STREAM_COMPUTE, purpose);
  program_builder_operand(x->builder, live_storage_tensor(x->live, d->used_map, DTYPE_INT32),
                          ROLE_WRITE);
  strategy_copy(x, STREAM_COMPUTE, "map to device", (double) bytes);
  live_storage_drop(x->live, pinned);
  d->map_reduced = all_reduce(x, d->used_map, DTYPE_INT32, "map of used parameters", NULL);
}

/* The gradient goes into its bucket; with bucket views it is the bucket from now on. */
static void
reduce_full_buckets(StrategyContext *x)
{
  Ddp *d = x->state;
  guint before = d->next_bucket;
  while (d->next_bucket < d->buckets->len) {
    Bucket *bucket = &g_array_index(d->buckets, Bucket, d->next_bucket);
    if (bucket->ready < bucket->parameters)
      return;
    bucket->reduced = all_reduce(x, bucket->storage, d->dtype, "bucket", "avg");
    d->next_bucket++;
  }
  if (d->finds_unused && before < d->next_bucket)
    reduce_used_map(x);
}

static void
gradient_ready(StrategyContext *x, int parameter)
{
  Ddp *d = x->state;
  ParameterState *p = &x->parameters[parameter];
  if (!d->rebuilt && x->synchronize)
    g_array_append_val(d->ready_order, parameter);
  if (!x->synchronize)
    return;
  Bucket *bucket = &g_array_index(d->buckets, Bucket, d->bucket_of[parameter]);
  if (p->gradient != NO_STORAGE && p->gradient != bucket->storage)
    launch_copy(x, parameter, (GradientPlace){p->gradient, p->gradient_offset},
                place_in_bucket(x, parameter), ROLE_WRITE);
  if (p->gradient != NO_STORAGE && plan_spec_number(x->plan, "gradient_as_bucket_view"))
    become_view(x, parameter);
  bucket->ready++;
  reduce_full_buckets(x);
}

/* Reduced buckets are waited for and, unless gradients are their views, copied back. */
static void
end_backward(StrategyContext *x)
{
  Ddp *d = x->state;
  for (guint i = 0; i < d->buckets->len; i++) {
    Bucket *bucket = &g_array_index(d->buckets, Bucket, i);
    if (bucket->reduced >= 0)
      program_builder_wait(x->builder, STREAM_COMPUTE, bucket->reduced);
    bucket->reduced = -1;
  }
  if (d->map_reduced >= 0)
    program_builder_wait(x->builder, STREAM_COMPUTE, d->map_reduced);
  d->map_reduced = -1;
  for (guint i = 0; i < x->network->parameters->len && x->synchronize; i++) {
    StorageId gradient = x->parameters[i].gradient;
    StorageId bucket = g_array_index(d->buckets, Bucket, d->bucket_of[i]).storage;
    if (gradient != NO_STORAGE && gradient != bucket)
      launch_copy(x, (int) i, place_in_bucket(x, (int) i),
                  (GradientPlace){gradient, x->parameters[i].gradient_offset}, ROLE_WRITE);
  }
}

static gboolean
update(StrategyContext *x)
{
  Ddp *d = x->state;
  if (d->zero == NULL)
    return FALSE;
  zero_redundancy_step(x, d->zero);
  return TRUE;
}

/* A partitioned optimizer is stage 1: gradients stay whole. */
static int
zero_stage(StrategyContext *x)
{
  return ((Ddp *) x->state)->zero != NULL && x->plan->replicate > 1 ? 1 : 0;
}

/* ZeroRedundancyOptimizer keeps the states of each parameter on one rank. */
static StateSpread
spread(const StrategyContext *x)
{
  gboolean partitions = plan_spec_number(x->plan, "zero_redundancy_optimizer") != 0;
  return (StateSpread){1, partitions ? x->plan->replicate : 1};
}

static int
heaviest_rank(const PlanSpec *plan, const Network *network)
{
  if (!plan_spec_number(plan, "zero_redundancy_optimizer"))
    return -1;
  return zero_redundancy_heaviest_rank(network, plan->replicate);
}

static ExpectedTotals
expected(StrategyContext *x)
{
  const Ddp *d = x->state;
  const PlanSpec *plan = x->plan;
  gint64 n = network_parameter_count(x->network);
  gint64 map = d->finds_unused ? (gint64) network_trainable_tensors(x->network) : 0;
  int synchronized = plan->accumulation.sync_every_step ? plan->accumulation.steps : 1;
  return (ExpectedTotals){
      .elements_all_reduced = (network_trainable_count(x->network) + map) * synchronized,
      .elements_broadcast =
          (d->zero != NULL ? zero_redundancy_elements_sent(d->zero, x->network) : 0) +
          ddp_buffers_elements(d->buffers) * synchronized,
      .parameter_bytes = n * dtype_size(plan->precision.parameters),
  };
}

const Strategy strategy_ddp = {
    .name = "ddp",
    .summary = "PyTorch DistributedDataParallel: whole replicas, gradients all-reduced in buckets",
    .section = &section,
    .only_replicas = TRUE,
    .grad_scaler = GRAD_SCALER_LOCAL,
    .accept = accept,
    .shape = shape,
    .setup = setup,
    .construct = construct,
    .construct_optimizer = construct_optimizer,
    .teardown = teardown,
    .begin_forward = begin_forward,
    .end_forward = end_forward,
    .gradient_ready = gradient_ready,
    .end_backward = end_backward,
    .update = update,
    .zero_stage = zero_stage,
    .spread = spread,
    .heaviest_rank = heaviest_rank,
    .expected = expected,
    .saves_states = TRUE,
    .initializes = INITIALIZES_META | INITIALIZES_ON_DEVICE | INITIALIZES_ON_CPU,
    .state_ranges = strategy_state_whole,
};
