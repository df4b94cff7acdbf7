/* ddp.c - torch.nn.parallel.DistributedDataParallel: whole replicas, gradients all-reduced in
 * buckets (torch/csrc/distributed/c10d/reducer.cpp). */
#include "base/units.h"
#include "strategy/strategy.h"

static const OptionInfo options[] = {
    {"bucket_cap_mb", OPTION_INT, "25", 1, 1 << 20, NULL,
     "a bucket closes when it holds this many MiB"},
    {"gradient_as_bucket_view", OPTION_BOOL, "false", 0, 0, NULL,
     "gradients are views of the buckets"},
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
  int *bucket_of; /* by parameter */
  DType dtype;
} Ddp;

static gboolean
accept(const PlanSpec *plan, const Network *network, GError **error)
{
  (void) network;
  if (plan->shard != 1)
    return plan_spec_refuse(plan, error, "mesh.shard", "ddp does not shard: use mesh.replicate");
  return strategy_accept_unsharded(plan, error);
}

static void
setup(StrategyContext *x)
{
  Ddp *d = x->state = g_new0(Ddp, 1);
  d->communicator = program_builder_communicator(x->builder, "replicate", x->plan->replicate, 1);
  d->buckets = g_array_new(FALSE, FALSE, sizeof(Bucket));
  d->ready_order = g_array_new(FALSE, FALSE, sizeof(int));
  d->bucket_of = g_new0(int, x->network->parameters->len);
  d->dtype = x->plan->precision.parameters;
}

static void
teardown(StrategyContext *x)
{
  Ddp *d = x->state;
  g_array_unref(d->buckets);
  g_array_unref(d->ready_order);
  g_free(d->bucket_of);
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

/* The reducer knows the parameters that require a gradient.  The first one ignores the cap: it
 * cannot know the order, so one bucket holds everything. */
static void
construct(StrategyContext *x)
{
  Ddp *d = x->state;
  strategy_construct_whole(x);
  add_bucket(d, network_trainable_count(x->network) * dtype_size(d->dtype),
             network_trainable_tensors(x->network));
  allocate_buckets(x);
}

/* Buckets follow the order in which gradients became ready; one closes when it has reached the cap.
 */
static void
plan_buckets(StrategyContext *x)
{
  Ddp *d = x->state;
  gint64 cap = plan_spec_number(x->plan, "bucket_cap_mb") * MIB, bytes = 0;
  int parameters = 0;
  g_array_set_size(d->buckets, 0);
  for (guint i = 0; i < d->ready_order->len; i++) {
    int p = g_array_index(d->ready_order, int, i);
    bytes += network_parameter(x->network, p)->elements * dtype_size(d->dtype);
    parameters++;
    d->bucket_of[p] = (int) d->buckets->len;
    if (bytes < cap && i + 1 < d->ready_order->len)
      continue;
    add_bucket(d, bytes, parameters);
    bytes = parameters = 0;
  }
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
}

/* A copy of a gradient's elements between two storages. */
static void
launch_copy(StrategyContext *x, int parameter, StorageId from, StorageId to, Role role)
{
  DType dtype = ((Ddp *) x->state)->dtype;
  gint64 bytes = network_parameter(x->network, parameter)->elements * dtype_size(dtype);
  program_builder_operand(x->builder, live_storage_tensor(x->live, from, dtype), ROLE_READ);
  program_builder_operand(x->builder, live_storage_tensor(x->live, to, dtype), role);
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
    StorageId bucket = g_array_index(d->buckets, Bucket, d->bucket_of[parameter]).storage;
    launch_copy(x, parameter, old, bucket, ROLE_WRITE);
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
  plan_buckets(x);
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
  if (x->no_grad)
    return;
  if (!d->rebuilt && d->ready_order->len > 0)
    rebuild(x);
  for (guint i = 0; i < d->buckets->len; i++)
    g_array_index(d->buckets, Bucket, i).ready = 0;
}

/* A full bucket is all-reduced behind backward, in place. */
static void
reduce_bucket(StrategyContext *x, Bucket *bucket)
{
  Ddp *d = x->state;
  gint32 filled = program_builder_event(x->builder);
  program_builder_record(x->builder, STREAM_COMPUTE, filled);
  program_builder_wait(x->builder, STREAM_ALL_REDUCE, filled);
  program_builder_host_work(x->builder, HOST_WORK_COLLECTIVE_CALL, 1);
  program_builder_operand(x->builder, live_storage_tensor(x->live, bucket->storage, d->dtype),
                          ROLE_ACCUMULATE);
  program_builder_collective(x->builder, STREAM_ALL_REDUCE,
                             &(Collective){.kind = COLLECTIVE_ALL_REDUCE,
                                           .dtype = (guint8) d->dtype,
                                           .communicator = d->communicator,
                                           .name = program_builder_name(x->builder, "bucket"),
                                           .bytes = bucket->bytes});
  bucket->reduced = program_builder_event(x->builder);
  program_builder_record(x->builder, STREAM_ALL_REDUCE, bucket->reduced);
}

/* The gradient goes into its bucket; with bucket views it is the bucket from now on. */
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
    launch_copy(x, parameter, p->gradient, bucket->storage,
                bucket->ready == 0 ? ROLE_WRITE : ROLE_ACCUMULATE);
  if (p->gradient != NO_STORAGE && plan_spec_number(x->plan, "gradient_as_bucket_view"))
    become_view(x, parameter);
  if (++bucket->ready == bucket->parameters)
    reduce_bucket(x, bucket);
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
  for (guint i = 0; i < x->network->parameters->len && x->synchronize; i++) {
    StorageId gradient = x->parameters[i].gradient;
    StorageId bucket = g_array_index(d->buckets, Bucket, d->bucket_of[i]).storage;
    if (gradient != NO_STORAGE && gradient != bucket)
      launch_copy(x, (int) i, bucket, gradient, ROLE_WRITE);
  }
}

static ExpectedTotals
expected(StrategyContext *x)
{
  const PlanSpec *plan = x->plan;
  gint64 n = network_parameter_count(x->network);
  return (ExpectedTotals){
      .elements_all_reduced = network_trainable_count(x->network) *
                              (plan->accumulation.sync_every_step ? plan->accumulation.steps : 1),
      .parameter_bytes = n * dtype_size(plan->precision.parameters),
  };
}

const Strategy strategy_ddp = {
    .name = "ddp",
    .summary = "PyTorch DistributedDataParallel: whole replicas, gradients all-reduced in buckets",
    .section = &section,
    .accept = accept,
    .setup = setup,
    .construct = construct,
    .teardown = teardown,
    .begin_forward = begin_forward,
    .gradient_ready = gradient_ready,
    .end_backward = end_backward,
    .expected = expected,
};
