/* zero_flat.c - the flat buffer of all parameters, cut into one partition per rank wherever that
 * falls (deepspeed 0.19.8, runtime/zero/stage_1_and_2.py, __init__). */
#include "strategy/zero_flat.h"

#include "base/units.h"

/* Send buffers of NCCL's all-gather begin at multiples of 4 bytes (nccl_start_alignment_factor). */
enum { ALIGNMENT_FACTOR = 2, PARAMETER_ALIGNMENT_BYTES = 16 };
/* The allocator counts in blocks of this many bytes. */
enum { ALLOCATION_UNIT = 512 };

/* ---- layout ---- */

/* Trainable parameters in the order of model.parameters(); with round robin every ranks-th one
 * after another, so that gradients that become ready in a row belong to different ranks. */
static void
fill_order(ZeroFlat *flat, const DeepSpeed *d, const Network *network)
{
  guint n = network->parameters->len;
  g_autofree int *trainable = g_new(int, n);
  int count = 0;
  for (guint i = 0; i < n; i++)
    if (network_parameter(network, (int) i)->trainable)
      trainable[count++] = (int) i;
  int stride = d->round_robin_gradients ? d->ranks : 1, position = 0;
  flat->count = count;
  flat->order = g_new(int, MAX(count, 1));
  for (int first = 0; first < MIN(stride, count); first++)
    for (int i = first; i < count; i += stride)
      flat->order[position++] = trainable[i];
}

static void
fill_offsets(ZeroFlat *flat, const DeepSpeed *d, const Network *network)
{
  gint64 alignment = d->parameter_alignment ? PARAMETER_ALIGNMENT_BYTES / d->element : 1;
  gint64 end = 0;
  for (int k = 0; k < flat->count; k++) {
    int parameter = flat->order[k];
    flat->offset[parameter] = end;
    end += network_parameter(network, parameter)->elements;
    flat->padding[k] = k + 1 < flat->count ? ceil_div(end, alignment) * alignment - end : 0;
    end += flat->padding[k];
  }
  gint64 multiple = (gint64) ALIGNMENT_FACTOR * d->ranks;
  flat->elements = end;
  flat->padded = ceil_div(end, multiple) * multiple;
  flat->partition = flat->padded / d->ranks;
  flat->first = flat->partition * d->rank;
  flat->end = flat->first + flat->partition;
  flat->tail = MAX(0, flat->end - MAX(flat->first, flat->elements));
}

void
zero_flat_init(ZeroFlat *flat, const DeepSpeed *d, const Network *network)
{
  *flat = (ZeroFlat){.storage = NO_STORAGE};
  flat->offset = g_new0(gint64, network->parameters->len);
  flat->padding = g_new0(gint64, network->parameters->len);
  flat->own = g_array_new(FALSE, FALSE, sizeof(int));
  fill_order(flat, d, network);
  fill_offsets(flat, d, network);
  for (int k = 0; k < flat->count; k++) {
    int parameter = flat->order[k];
    if (zero_flat_own_slice(flat, network, parameter, d->rank).elements == 0)
      continue;
    g_array_append_val(flat->own, parameter);
    flat->own_whole += network_parameter(network, parameter)->elements;
  }
}

void
zero_flat_clear(ZeroFlat *flat)
{
  g_free(flat->order);
  g_free(flat->offset);
  g_free(flat->padding);
  g_array_unref(flat->own);
}

FlatSlice
zero_flat_own_slice(const ZeroFlat *flat, const Network *network, int parameter, int rank)
{
  gint64 begin = flat->offset[parameter];
  gint64 end = begin + network_parameter(network, parameter)->elements;
  gint64 first = MAX(begin, flat->first), last = MIN(end, flat->end);
  return (FlatSlice){rank, first - begin, MAX(0, last - first)};
}

gboolean
zero_flat_slice(const ZeroFlat *flat, const Network *network, int parameter, int i,
                FlatSlice *slice)
{
  gint64 begin = flat->offset[parameter];
  gint64 end = begin + network_parameter(network, parameter)->elements;
  gint64 rank = begin / flat->partition + i;
  gint64 first = MAX(begin, rank * flat->partition);
  gint64 last = MIN(end, (rank + 1) * flat->partition);
  if (first >= end)
    return FALSE;
  *slice = (FlatSlice){(int) rank, first - begin, last - first};
  return TRUE;
}

int
zero_flat_heaviest_rank(const ZeroFlat *flat, const Network *network)
{
  if (flat->count == 0)
    return 0;
  int ranks = (int) (flat->padded / flat->partition), heaviest = 0;
  g_autofree gint64 *whole = g_new0(gint64, ranks);
  for (int k = 0; k < flat->count; k++) {
    FlatSlice slice;
    for (int i = 0; zero_flat_slice(flat, network, flat->order[k], i, &slice); i++)
      whole[slice.rank] += network_parameter(network, flat->order[k])->elements;
  }
  for (int rank = 1; rank < ranks; rank++)
    if (whole[rank] > whole[heaviest])
      heaviest = rank;
  return heaviest;
}

void
zero_flat_partition_holds(const ZeroFlat *flat, StrategyContext *x, StorageId copy, DType dtype)
{
  for (guint i = 0; i < flat->own->len; i++) {
    int parameter = g_array_index(flat->own, int, i);
    FlatSlice own = zero_flat_own_slice(flat, x->network, parameter, 0);
    strategy_holds(x, copy, dtype, (StateRange){parameter, own.first, own.elements},
                   flat->offset[parameter] + own.first - flat->first);
  }
}

/* ---- flattening ---- */

static StorageId
new_storage(StrategyContext *x, gint64 bytes, Category category, const char *what)
{
  StoragePurpose purpose = {category, -1, program_builder_name(x->builder, what)};
  return live_storage_alloc(x->live, bytes, STREAM_COMPUTE, purpose);
}

/* Zeros for the flattening: behind each parameter that needs some, and after the last (at `count`).
 */
static StorageId *
make_padding(const ZeroFlat *flat, StrategyContext *x, const DeepSpeed *d)
{
  StorageId *zeros = g_new(StorageId, flat->count + 1);
  for (int k = 0; k <= flat->count; k++) {
    gint64 elements = k < flat->count ? flat->padding[k] : flat->padded - flat->elements;
    zeros[k] = new_storage(x, elements * d->element, CATEGORY_TEMPORARY, "padding");
    if (zeros[k] == NO_STORAGE)
      continue;
    program_builder_operand(x->builder, live_storage_tensor(x->live, zeros[k], d->model),
                            ROLE_WRITE);
    strategy_launch(x, STREAM_COMPUTE, "zeros", (double) (elements * d->element));
  }
  return zeros;
}

static void
part_operand(StrategyContext *x, const DeepSpeed *d, StorageId part)
{
  if (part != NO_STORAGE)
    program_builder_operand(x->builder, live_storage_tensor(x->live, part, d->model), ROLE_READ);
}

static void
flatten_on_device(ZeroFlat *flat, StrategyContext *x, const DeepSpeed *d)
{
  gint64 bytes = flat->padded * d->element;
  g_autofree StorageId *zeros = make_padding(flat, x, d);
  flat->storage = new_storage(x, bytes, CATEGORY_PARAMETER, "flat parameters");
  for (int k = 0; k <= flat->count; k++) {
    if (k < flat->count)
      part_operand(x, d, x->parameters[flat->order[k]].sharded);
    part_operand(x, d, zeros[k]);
  }
  program_builder_operand(x->builder, live_storage_tensor(x->live, flat->storage, d->model),
                          ROLE_WRITE);
  strategy_launch(x, STREAM_COMPUTE, "cat", 2.0 * (double) bytes);
  for (int k = 0; k <= flat->count; k++)
    live_storage_drop(x->live, zeros[k]);
}

/* Parameters leave for the host one by one, each behind a placeholder of one fp32 element; the
 * cache is emptied and the finished buffer comes back. */
static void
flatten_on_host(ZeroFlat *flat, StrategyContext *x, const DeepSpeed *d)
{
  for (int k = 0; k < flat->count; k++) {
    ParameterState *p = &x->parameters[flat->order[k]];
    gint64 bytes = live_storage_bytes(x->live, p->sharded);
    program_builder_operand(x->builder, live_storage_tensor(x->live, p->sharded, d->model),
                            ROLE_READ);
    strategy_copy(x, STREAM_COMPUTE, "to_host", (double) bytes);
    program_builder_stream_sync(x->builder, STREAM_COMPUTE);
    StorageId placeholder = new_storage(x, 4, CATEGORY_TEMPORARY, "placeholder");
    live_storage_drop(x->live, p->sharded);
    p->sharded = p->unsharded = placeholder;
  }
  program_builder_empty_cache(x->builder);
  gint64 bytes = flat->padded * d->element;
  flat->storage = new_storage(x, bytes, CATEGORY_PARAMETER, "flat parameters");
  program_builder_operand(x->builder, live_storage_tensor(x->live, flat->storage, d->model),
                          ROLE_WRITE);
  strategy_copy(x, STREAM_COMPUTE, "to_device", (double) bytes);
  program_builder_stream_sync(x->builder, STREAM_COMPUTE);
}

/* accelerator.available_memory(): what the device has beyond what is allocated. */
static gboolean
has_room(const ZeroFlat *flat, const StrategyContext *x, const DeepSpeed *d)
{
  gint64 allocated = live_storages_bytes(x->live, ALLOCATION_UNIT);
  return x->device_bytes - allocated >= flat->padded * d->element;
}

void
zero_flat_flatten(ZeroFlat *flat, StrategyContext *x, const DeepSpeed *d,
                  gboolean through_host_if_tight)
{
  if (!through_host_if_tight || has_room(flat, x, d))
    flatten_on_device(flat, x, d);
  else
    flatten_on_host(flat, x, d);
  for (int k = 0; k < flat->count; k++) {
    int parameter = flat->order[k];
    gint64 elements = network_parameter(x->network, parameter)->elements;
    ParameterState *p = &x->parameters[parameter];
    live_storage_clear(x->live, &p->sharded);
    p->unsharded = flat->storage;
    p->offset = flat->offset[parameter];
    strategy_holds(x, flat->storage, d->model, (StateRange){parameter, 0, elements}, p->offset);
  }
}

/* ---- the gather after the step ---- */

gint32
zero_flat_partition_tensor(const ZeroFlat *flat, StrategyContext *x, const DeepSpeed *d)
{
  return program_builder_flat_tensor(x->builder, flat->storage, flat->first, flat->partition,
                                     d->model);
}

void
zero_flat_gather(const ZeroFlat *flat, StrategyContext *x, const DeepSpeed *d)
{
  if (d->ranks == 1)
    return;
  program_builder_host_work(x->builder, HOST_WORK_COLLECTIVE_CALL, 1);
  program_builder_operand(x->builder, live_storage_tensor(x->live, flat->storage, d->model),
                          ROLE_ACCUMULATE); /* in place: the input is this rank's partition */
  program_builder_collective(
      x->builder, STREAM_COMPUTE,
      &(Collective){.kind = COLLECTIVE_ALL_GATHER,
                    .dtype = (guint8) d->model,
                    .communicator = d->communicator,
                    .name = program_builder_name(x->builder, "flat parameters"),
                    .bytes = flat->padded * d->element});
}
