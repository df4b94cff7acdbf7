/* zero_redundancy.c - torch.distributed.optim.ZeroRedundancyOptimizer without overlap_with_ddp
 * (torch/distributed/optim/zero_redundancy_optimizer.py). */
#include "strategy/zero_redundancy.h"

#include <stdlib.h>

#include "strategy/torch_optimizer.h"

struct _ZeroRedundancy {
  int ranks, rank;
  int count;    /* parameters that train */
  int *order;   /* parameters: the ranks' lists one after the other */
  int *first;   /* by rank, and one more: where its list begins */
  gint64 *size; /* by rank: elements */
  gboolean views;
  StorageId *buckets;       /* by rank, with views */
  OptimizedTensor *tensors; /* this rank's, in the order of its list */
  gint32 communicator;
};

/* ---- who updates what (_partition_parameters) ---- */

static gint64
elements_of(const Network *network, int parameter)
{
  return network_parameter(network, parameter)->elements;
}

typedef struct {
  gint64 elements;
  int index;
} Sized;

static int
compare_sizes(gconstpointer a, gconstpointer b)
{
  const Sized *one = a, *other = b;
  if (one->elements != other->elements)
    return one->elements < other->elements ? 1 : -1;
  return one->index - other->index; /* Python's sort is stable */
}

/* Those that the optimizer is given, the largest first; *count of them.  Caller frees. */
static int *
by_size(const Network *network, int *count)
{
  guint n = network->parameters->len;
  int *order = g_new(int, MAX(n, 1));
  g_autofree Sized *sized = g_new(Sized, MAX(n, 1));
  *count = 0;
  for (guint i = 0; i < n; i++)
    if (network_parameter(network, (int) i)->trainable)
      sized[(*count)++] = (Sized){elements_of(network, (int) i), (int) i};
  qsort(sized, (gsize) *count, sizeof(Sized), compare_sizes);
  for (int i = 0; i < *count; i++)
    order[i] = sized[i].index;
  return order;
}

/* Each goes to the first of the ranks that have least; beyond as many ranks as there are parameters
 * none gets any. */
int *
zero_redundancy_owners(const Network *network, int ranks)
{
  int n;
  g_autofree int *order = by_size(network, &n);
  int used = MIN(ranks, MAX(n, 1)), *owner = g_new(int, MAX(network->parameters->len, 1));
  g_autofree gint64 *sizes = g_new0(gint64, used);
  for (guint i = 0; i < network->parameters->len; i++)
    owner[i] = -1;
  for (int i = 0; i < n; i++) {
    int least = 0;
    for (int rank = 1; rank < used; rank++)
      least = sizes[rank] < sizes[least] ? rank : least;
    owner[order[i]] = least;
    sizes[least] += elements_of(network, order[i]);
  }
  return owner;
}

int
zero_redundancy_heaviest_rank(const Network *network, int ranks)
{
  int n = (int) network->parameters->len, used = MIN(ranks, MAX(n, 1)), heaviest = 0;
  g_autofree int *owner = zero_redundancy_owners(network, ranks);
  g_autofree gint64 *sizes = g_new0(gint64, used);
  for (int i = 0; i < n; i++)
    if (owner[i] >= 0)
      sizes[owner[i]] += elements_of(network, i);
  for (int rank = 1; rank < used; rank++)
    heaviest = sizes[rank] > sizes[heaviest] ? rank : heaviest;
  return heaviest;
}

/* ---- the optimizer ---- */

/* Each rank's parameters in the order in which they were dealt. */
static void
make_lists(ZeroRedundancy *z, const Network *network)
{
  g_autofree int *owner = zero_redundancy_owners(network, z->ranks);
  g_autofree int *order = by_size(network, &z->count);
  z->order = g_new(int, MAX(z->count, 1));
  z->first = g_new0(int, z->ranks + 1);
  z->size = g_new0(gint64, z->ranks);
  for (int i = 0; i < z->count; i++) {
    int rank = owner[order[i]];
    z->first[rank + 1]++;
    z->size[rank] += elements_of(network, order[i]);
  }
  for (int rank = 0; rank < z->ranks; rank++)
    z->first[rank + 1] += z->first[rank];
  g_autofree int *next = g_memdup2(z->first, sizeof(int) * (gsize) (z->ranks + 1));
  for (int i = 0; i < z->count; i++)
    z->order[next[owner[order[i]]]++] = order[i];
}

static int
own_count(const ZeroRedundancy *z)
{
  return z->first[z->rank + 1] - z->first[z->rank];
}

ZeroRedundancy *
zero_redundancy_new(StrategyContext *x, gint32 communicator, gboolean views)
{
  ZeroRedundancy *z = g_new0(ZeroRedundancy, 1);
  z->ranks = x->plan->replicate;
  z->rank = x->global_rank; /* there are only replicas */
  z->views = views;
  z->communicator = communicator;
  make_lists(z, x->network);
  z->tensors = g_new(OptimizedTensor, MAX(own_count(z), 1));
  for (int i = 0; i < own_count(z); i++) {
    z->tensors[i] = (OptimizedTensor) OPTIMIZED_TENSOR_INIT;
    z->tensors[i].parameter = z->order[z->first[z->rank] + i];
  }
  return z;
}

void
zero_redundancy_free(ZeroRedundancy *z)
{
  if (z == NULL)
    return;
  g_free(z->order);
  g_free(z->first);
  g_free(z->size);
  g_free(z->buckets);
  g_free(z->tensors);
  g_free(z);
}

static gint32
part_of(StrategyContext *x, StorageId storage, gint64 offset, gint64 elements)
{
  return program_builder_flat_tensor(x->builder, storage, offset, elements,
                                     x->plan->precision.parameters);
}

/* A parameter moves to its place in a bucket, and its own memory goes. */
static void
move_parameter(StrategyContext *x, int parameter, StorageId bucket, gint64 offset)
{
  ParameterState *p = &x->parameters[parameter];
  gint64 elements = elements_of(x->network, parameter);
  program_builder_operand(x->builder, part_of(x, p->sharded, 0, elements), ROLE_READ);
  program_builder_operand(x->builder, part_of(x, bucket, offset, elements), ROLE_WRITE);
  strategy_launch(x, STREAM_COMPUTE, "copy",
                  2.0 * (double) elements * dtype_size(x->plan->precision.parameters));
  live_storage_drop(x->live, p->sharded);
  p->sharded = p->unsharded = bucket;
  p->offset = offset;
  strategy_holds(x, bucket, x->plan->precision.parameters, (StateRange){parameter, 0, elements},
                 offset);
}

/* _build_param_buckets: a rank without parameters has a bucket of one zero, in fp32. */
void
zero_redundancy_construct(StrategyContext *x, ZeroRedundancy *z)
{
  if (!z->views)
    return;
  StoragePurpose zero = {CATEGORY_OTHER, -1, program_builder_name(x->builder, "empty bucket")};
  StoragePurpose full = {CATEGORY_PARAMETER, -1,
                         program_builder_name(x->builder, "bucket of parameters")};
  z->buckets = g_new(StorageId, z->ranks);
  for (int rank = 0; rank < z->ranks; rank++) {
    gint64 bytes = z->size[rank] * dtype_size(x->plan->precision.parameters), offset = 0;
    z->buckets[rank] = live_storage_alloc(x->live, MAX(bytes, dtype_size(DTYPE_FP32)),
                                          STREAM_COMPUTE, bytes > 0 ? full : zero);
    for (int i = z->first[rank]; i < z->first[rank + 1]; i++) {
      move_parameter(x, z->order[i], z->buckets[rank], offset);
      offset += elements_of(x->network, z->order[i]);
    }
  }
}

/* ---- the step ---- */

static void
update_own(StrategyContext *x, ZeroRedundancy *z)
{
  for (int i = 0; i < own_count(z); i++) {
    OptimizedTensor *t = &z->tensors[i];
    const ParameterState *p = &x->parameters[t->parameter];
    t->value = p->sharded;
    t->value_offset = p->offset;
    t->gradient = p->gradient;
    t->gradient_offset = p->gradient_offset;
    t->elements = p->local_elements;
    t->stepped = p->has_gradient;
  }
  if (own_count(z) > 0)
    torch_optimizer_step(x, x->plan->precision.parameters, own_count(z), z->tensors);
}

static void
broadcast(StrategyContext *x, const ZeroRedundancy *z, int owner, gint32 tensor, DType dtype,
          gint64 elements)
{
  program_builder_host_work(x->builder, HOST_WORK_COLLECTIVE_CALL, 1);
  program_builder_operand(x->builder, tensor, owner == z->rank ? ROLE_READ : ROLE_WRITE);
  program_builder_collective(x->builder, STREAM_ALL_REDUCE,
                             &(Collective){.kind = COLLECTIVE_BROADCAST,
                                           .dtype = (guint8) dtype,
                                           .communicator = z->communicator,
                                           .name = program_builder_name(x->builder, "parameters"),
                                           .bytes = elements * dtype_size(dtype)});
}

/* _broadcast_params_from_rank */
static void
broadcast_from(StrategyContext *x, const ZeroRedundancy *z, int owner)
{
  DType dtype = x->plan->precision.parameters;
  gint64 size = z->size[owner];
  if (z->views && size == 0)
    broadcast(x, z, owner, live_storage_tensor(x->live, z->buckets[owner], DTYPE_FP32), DTYPE_FP32,
              1);
  else if (z->views)
    broadcast(x, z, owner, live_storage_tensor(x->live, z->buckets[owner], dtype), dtype, size);
  for (int i = z->first[owner]; i < z->first[owner + 1] && !z->views; i++) {
    const ParameterState *p = &x->parameters[z->order[i]];
    gint64 elements = elements_of(x->network, z->order[i]);
    broadcast(x, z, owner, part_of(x, p->sharded, p->offset, elements), dtype, elements);
  }
}

static void
wait_stream(StrategyContext *x, StreamId waiter, StreamId other)
{
  gint32 event = program_builder_event(x->builder);
  program_builder_record(x->builder, other, event);
  program_builder_wait(x->builder, waiter, event);
}

/* All are issued, owner by owner, before the first is waited for. */
void
zero_redundancy_step(StrategyContext *x, ZeroRedundancy *z)
{
  program_builder_set_module(x->builder, -1);
  update_own(x, z);
  wait_stream(x, STREAM_ALL_REDUCE, STREAM_COMPUTE);
  for (int owner = 0; owner < z->ranks; owner++)
    broadcast_from(x, z, owner);
  wait_stream(x, STREAM_COMPUTE, STREAM_ALL_REDUCE);
}

gint64
zero_redundancy_elements_sent(const ZeroRedundancy *z, const Network *network)
{
  gint64 elements = network_trainable_count(network);
  for (int rank = 0; rank < z->ranks && z->views; rank++)
    elements += z->size[rank] == 0;
  return elements;
}
