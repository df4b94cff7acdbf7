/* fsdp2_group.c - a parameter group's all-gather, copy-out, reshard and gradient reduction, in the
 * order, on the streams and with the lifetimes of
 * torch/distributed/fsdp/_fully_shard/_fsdp_param_group.py and _fsdp_collectives.py. */
#include <math.h>

#include "base/units.h"
#include "program/meaning.h"
#include "strategy/fsdp2_private.h"

/* Bytes that one block of threads moves in the multi-tensor copies of
 * aten/src/ATen/native/cuda/TensorShape.cu: 128 threads of 16 bytes. */
enum { BLOCK_THREADS = 128, BLOCK_BYTES = 2048 };

/* ---- small steps ---- */

static StoragePurpose
group_purpose(const StrategyContext *x, const Group *g, Category category, const char *what)
{
  int module = g->unit->modules->len > 0 ? g_array_index(g->unit->modules, int, 0) : 0;
  return (StoragePurpose){category, module, program_builder_name(x->builder, what)};
}

StorageId
group_allocate(StrategyContext *x, const Group *g, gint64 bytes, StreamId stream, Category category,
               const char *what)
{
  return live_storage_alloc(x->live, bytes, stream, group_purpose(x, g, category, what));
}

void
group_operand(StrategyContext *x, StorageId storage, DType dtype, Role role)
{
  if (storage != NO_STORAGE)
    program_builder_operand(x->builder, live_storage_tensor(x->live, storage, dtype), role);
}

static gint32
record(StrategyContext *x, StreamId stream)
{
  gint32 event = program_builder_event(x->builder);
  program_builder_record(x->builder, stream, event);
  return event;
}

void
wait_stream(StrategyContext *x, StreamId waiter, StreamId other)
{
  program_builder_wait(x->builder, waiter, record(x, other));
}

/* A table of a multi-tensor copy, made for the kernel and dropped when the host returns from it. */
static void
kernel_table(StrategyContext *x, const Group *g, gint64 entries, const char *what)
{
  StorageId table = group_allocate(x, g, 8 * entries, STREAM_COMPUTE, CATEGORY_TEMPORARY, what);
  live_storage_drop(x->live, table);
}

/* ---- unshard: cast and copy-in on the copy-in stream, all-gather on its own ---- */

/* What is gathered of the group's parameters: present memory, or made for it. */
typedef struct {
  StorageId *storage;
  int count;
  gboolean is_made;
} Inputs;

/* The parameters' memory as it is; cast, all into one buffer; or fetched from the host and cast one
 * by one (_get_param_all_gather_inputs). */
static Inputs
make_inputs(StrategyContext *x, const Group *g, gint64 elements)
{
  const Fsdp2 *f = fsdp2_of(x);
  int stored = dtype_size(f->stored), size = dtype_size(f->gathered);
  gboolean fetches = x->offloads && !g->sliced, casts = f->stored != f->gathered && !x->offloads;
  Inputs inputs = {g_new(StorageId, g->count), casts ? 1 : g->count, casts || fetches};
  for (int i = 0; i < g->count; i++)
    inputs.storage[i] = fetches     ? offload_fetch(x, g, i, STREAM_COPY_IN)
                        : g->sliced ? g->slice[i]
                                    : x->parameters[g->parameter[i]].sharded;
  if (!casts)
    return inputs;
  StorageId cast = group_allocate(x, g, elements * size, STREAM_COPY_IN, CATEGORY_ALL_GATHER_BUFFER,
                                  "all-gather input");
  for (int i = 0; i < g->count; i++)
    group_operand(x, inputs.storage[i], g->sliced ? f->gathered : f->stored, ROLE_READ);
  group_operand(x, cast, f->gathered, ROLE_WRITE);
  strategy_launch_as(x, STREAM_COPY_IN, "foreach_copy", (double) elements * (stored + size), "cat");
  inputs.storage[0] = cast;
  return inputs;
}

static void
copy_in(StrategyContext *x, Group *g, gint64 elements)
{
  Fsdp2 *f = fsdp2_of(x);
  int size = dtype_size(f->gathered);
  Inputs inputs = make_inputs(x, g, elements);
  g->gathered = group_allocate(x, g, g->gathered_elements * size, STREAM_COPY_IN,
                               CATEGORY_ALL_GATHER_BUFFER, "all-gather output");
  for (int i = 0; i < inputs.count; i++)
    group_operand(x, inputs.storage[i], f->gathered, ROLE_READ);
  group_operand(x, g->gathered, f->gathered, ROLE_WRITE);
  int ranks = g->sliced ? g->slice_ranks : f->ranks;
  g_autofree char *meaning = meaning_text("place_slice", 1, "ranks", (double) ranks);
  strategy_launch_as(x, STREAM_COPY_IN, "foreach_copy", (double) elements * 2 * size, meaning);
  wait_stream(x, STREAM_ALL_GATHER, STREAM_COPY_IN);
  program_builder_host_work(x->builder, HOST_WORK_COLLECTIVE_CALL, 1);
  group_operand(x, g->gathered, f->gathered,
                ROLE_ACCUMULATE); /* in place: the input is this rank's slice of the output */
  Collective gather = {
      .kind = COLLECTIVE_ALL_GATHER,
      .dtype = (guint8) f->gathered,
      .communicator = g->sliced ? f->slice_communicator : f->shard_communicator,
      .name = program_builder_name(x->builder, g->unit->name),
      .bytes = g->gathered_elements * size,
  };
  program_builder_collective(x->builder, STREAM_ALL_GATHER, &gather);
  g->unit->all_gathers++;
  g->gather_event = record(x, STREAM_ALL_GATHER);
  for (int i = inputs.count - 1; i >= 0 && inputs.is_made; i--)
    live_storage_drop(x->live, inputs.storage[i]);
  g_free(inputs.storage);
}

void
group_unshard(StrategyContext *x, Group *g)
{
  if (g->gather_pending || g->unsharded || g->count == 0)
    return;
  program_builder_push(x->builder, RANGE_HOOK, "unshard", 0);
  if (g->reshard_event >= 0) {
    program_builder_wait(x->builder, STREAM_COPY_IN, g->reshard_event);
    program_builder_wait(x->builder, STREAM_ALL_GATHER, g->reshard_event);
    g->reshard_event = -1;
  }
  g->gather_pending = TRUE;
  if (fsdp2_of(x)->ranks > 1)
    copy_in(x, g, g->sliced ? g->gathered_elements / g->slice_ranks : g->shard_elements);
  program_builder_pop(x->builder);
}

/* ---- wait_for_unshard: copy-out on the compute stream ---- */

/* Entries of split_with_sizes_copy's table (split_with_sizes_copy_out_contiguous_no_cast_kernel):
 * blocks of a chunk may do several iterations, so that the grid stays within two full waves. */
static gint64
split_table_entries(const StrategyContext *x, const Group *g, int ranks)
{
  int size = dtype_size(fsdp2_of(x)->gathered);
  gint64 most_blocks = (gint64) x->device->sms * x->device->max_threads_per_sm / BLOCK_THREADS * 2;
  gint64 blocks = 0, entries = 4 * (gint64) g->count + 1;
  for (int i = 0; i < g->count; i++)
    blocks += ceil_div(g->shard[i].full_elements / ranks * size, BLOCK_BYTES);
  gint64 iterations = ceil_div(blocks * ranks, most_blocks);
  gint64 chunks_per_block = MIN((gint64) ceil(sqrt((double) iterations)), ranks);
  gint64 iterations_per_chunk = ceil_div(iterations, chunks_per_block);
  for (int i = 0; i < g->count; i++)
    entries +=
        ceil_div(g->shard[i].full_elements / ranks * size, BLOCK_BYTES * iterations_per_chunk);
  return entries;
}

static void
copy_out(StrategyContext *x, Group *g)
{
  Fsdp2 *f = fsdp2_of(x);
  int size = dtype_size(f->gathered);
  for (int i = 0; i < g->count; i++) {
    ParameterState *p = &x->parameters[g->parameter[i]];
    StoragePurpose purpose = parameter_purpose(x, g->parameter[i], CATEGORY_UNSHARDED_PARAMETER);
    p->unsharded = g->full[i] =
        live_storage_alloc(x->live, g->shard[i].full_elements * size, STREAM_COMPUTE, purpose);
  }
  kernel_table(x, g, split_table_entries(x, g, g->sliced ? g->slice_ranks : f->ranks),
               "copy-out table");
  group_operand(x, g->gathered, f->gathered, ROLE_READ);
  for (int i = 0; i < g->count; i++)
    group_operand(x, g->full[i], f->gathered, ROLE_WRITE);
  int ranks = g->sliced ? g->slice_ranks : f->ranks;
  g_autofree char *meaning = meaning_text("split_gathered", 1, "ranks", (double) ranks);
  strategy_launch_as(x, STREAM_COMPUTE, "split_with_sizes_copy",
                     2.0 * (double) g->gathered_elements * size, meaning);
  for (int i = 0; i < g->count && g->sliced; i++)
    live_storage_clear(x->live, &g->slice[i]);
  g->sliced = FALSE;
}

/* A shard group of one: parameters are copied one by one, cast through a temporary if need be. */
static void
copy_local(StrategyContext *x, Group *g)
{
  Fsdp2 *f = fsdp2_of(x);
  int size = dtype_size(f->gathered);
  gboolean casts = f->stored != f->gathered && !x->offloads, makes = casts || x->offloads;
  StorageId previous = NO_STORAGE; /* the loop's variable keeps a cast until the next one exists */
  for (int i = 0; i < g->count; i++) {
    ParameterState *p = &x->parameters[g->parameter[i]];
    gint64 bytes = g->shard[i].full_elements * size;
    StorageId cast = x->offloads ? offload_fetch(x, g, i, STREAM_COMPUTE) : NO_STORAGE;
    if (casts) {
      cast = group_allocate(x, g, bytes, STREAM_COMPUTE, CATEGORY_TEMPORARY, "cast parameter");
      group_operand(x, p->sharded, f->stored, ROLE_READ);
      group_operand(x, cast, f->gathered, ROLE_WRITE);
      strategy_launch(x, STREAM_COMPUTE, "to_copy", (double) bytes * 3);
    }
    live_storage_clear(x->live, &previous);
    StoragePurpose purpose = parameter_purpose(x, g->parameter[i], CATEGORY_UNSHARDED_PARAMETER);
    p->unsharded = g->full[i] = live_storage_alloc(x->live, bytes, STREAM_COMPUTE, purpose);
    group_operand(x, makes ? cast : p->sharded, f->gathered, ROLE_READ);
    group_operand(x, g->full[i], f->gathered, ROLE_WRITE);
    strategy_launch(x, STREAM_COMPUTE, "copy", (double) bytes * 2);
    previous = cast;
  }
  live_storage_clear(x->live, &previous);
}

void
group_wait_for_unshard(StrategyContext *x, Group *g, gboolean forward)
{
  Fsdp2 *f = fsdp2_of(x);
  if (!g->gather_pending)
    return;
  program_builder_push(x->builder, RANGE_HOOK, "wait_for_unshard", 0);
  StorageId previous = NO_STORAGE;
  if (forward && f->previous_gather != NO_STORAGE) {
    program_builder_wait(x->builder, STREAM_COPY_IN, f->previous_copy_event);
    program_builder_wait(x->builder, STREAM_ALL_GATHER, f->previous_copy_event);
    previous = f->previous_gather; /* still held by this frame */
    f->previous_gather = NO_STORAGE;
  }
  g->gather_pending = FALSE;
  g->unsharded = TRUE;
  if (f->ranks == 1) {
    copy_local(x, g);
    program_builder_pop(x->builder);
    return;
  }
  program_builder_wait(x->builder, STREAM_COMPUTE, g->gather_event);
  copy_out(x, g);
  gint32 copied = record(x, STREAM_COMPUTE);
  if (forward) {
    f->previous_gather = g->gathered;
    f->previous_copy_event = copied;
    g->gathered = NO_STORAGE;
  } else {
    program_builder_wait(x->builder, STREAM_COPY_IN, copied);
    program_builder_wait(x->builder, STREAM_ALL_GATHER, copied);
    live_storage_clear(x->live, &g->gathered);
  }
  live_storage_drop(x->live, previous);
  program_builder_pop(x->builder);
}

void
group_drop_gather(StrategyContext *x, Group *g)
{
  if (!g->gather_pending)
    return;
  if (fsdp2_of(x)->ranks > 1)
    program_builder_wait(x->builder, STREAM_COMPUTE, g->gather_event);
  live_storage_clear(x->live, &g->gathered);
  g->gather_pending = FALSE;
}

/* ---- reshard ---- */

static void
drop_full(StrategyContext *x, Group *g, int i)
{
  x->parameters[g->parameter[i]].unsharded = NO_STORAGE;
  live_storage_clear(x->live, &g->full[i]);
}

void
group_reshard(StrategyContext *x, Group *g)
{
  g->sliced = FALSE; /* what backward did not come to: the slices are forgotten, but not freed */
  if (!g->unsharded || g->held)
    return;
  for (int i = 0; i < g->count; i++)
    drop_full(x, g, i);
  g->unsharded = FALSE;
}

void
group_reshard_to_slice(StrategyContext *x, Group *g)
{
  Fsdp2 *f = fsdp2_of(x);
  for (int i = 0; i < g->count; i++) {
    gint64 bytes = g->shard[i].full_elements / g->slice_ranks * dtype_size(f->gathered);
    StoragePurpose purpose = parameter_purpose(x, g->parameter[i], CATEGORY_PARAMETER);
    StorageId old = g->slice[i];
    g->slice[i] = live_storage_alloc(x->live, bytes, STREAM_COMPUTE, purpose);
    group_operand(x, g->full[i], f->gathered, ROLE_READ);
    group_operand(x, g->slice[i], f->gathered, ROLE_WRITE);
    g_autofree char *meaning = meaning_text("take_slice", 1, "ranks", (double) g->slice_ranks);
    strategy_launch_as(x, STREAM_COMPUTE, "clone", 2.0 * (double) bytes, meaning);
    live_storage_drop(x->live, old);
    drop_full(x, g, i);
  }
  g->unsharded = FALSE;
  g->sliced = TRUE;
  g->reshard_event = record(x, STREAM_COMPUTE);
}

/* ---- post_backward ---- */

/* A gradient kept over micro-batches takes in the new one, which goes. */
static void
add_to_accumulated(StrategyContext *x, ParameterState *p)
{
  Fsdp2 *f = fsdp2_of(x);
  group_operand(x, p->gradient, f->gathered, ROLE_READ);
  group_operand(x, p->accumulated, f->reduce, ROLE_ACCUMULATE);
  gint64 bytes = live_storage_bytes(x->live, p->accumulated);
  strategy_launch(x, STREAM_COMPUTE, "add", 2.5 * (double) bytes);
  live_storage_clear(x->live, &p->gradient);
  p->has_gradient = FALSE;
}

/* No synchronization: a gradient in a narrower dtype than the reduction's is kept in the latter. */
static void
keep_gradient(StrategyContext *x, int index)
{
  Fsdp2 *f = fsdp2_of(x);
  ParameterState *p = &x->parameters[index];
  if (!p->has_gradient || p->accumulated != NO_STORAGE || f->reduce == f->gathered)
    return;
  gint64 bytes = network_parameter(x->network, index)->elements * dtype_size(f->reduce);
  StoragePurpose purpose = parameter_purpose(x, index, CATEGORY_UNSHARDED_GRADIENT);
  p->accumulated = live_storage_alloc(x->live, bytes, STREAM_COMPUTE, purpose);
  group_operand(x, p->gradient, f->gathered, ROLE_READ);
  group_operand(x, p->accumulated, f->reduce, ROLE_WRITE);
  strategy_launch(x, STREAM_COMPUTE, "to_copy", 1.5 * (double) bytes);
  live_storage_clear(x->live, &p->gradient);
  p->has_gradient = FALSE;
}

/* Entries of chunk_cat's table: one for each block of a rank's chunk. */
static gint64
cat_table_entries(const Group *g, const Reduction *r, DType reduce)
{
  gint64 entries = 4 * (gint64) r->count + 2 * ((gint64) r->count + 1);
  for (int i = 0; i < r->count; i++)
    entries += ceil_div(g->shard[r->position[i]].padded_elements * dtype_size(reduce), BLOCK_BYTES);
  return entries;
}

/* Takes the unsharded gradients out of the parameters. */
static Reduction
take_gradients(StrategyContext *x, Group *g)
{
  Reduction r = {.position = g_new(int, g->count),
                 .gradients = g_new(StorageId, g->count),
                 .gradient_offset = g_new(gint64, g->count),
                 .is_wide = g_new(gboolean, g->count)};
  for (int i = 0; i < g->count; i++) {
    ParameterState *p = &x->parameters[g->parameter[i]];
    if (p->accumulated == NO_STORAGE && !p->has_gradient)
      continue;
    r.position[r.count] = i;
    r.is_wide[r.count] = p->accumulated != NO_STORAGE;
    r.gradient_offset[r.count] = p->accumulated != NO_STORAGE ? 0 : p->gradient_offset;
    r.gradients[r.count++] = p->accumulated != NO_STORAGE ? p->accumulated : p->gradient;
    r.shard_elements += g->shard[i].padded_elements;
    p->accumulated = p->gradient = NO_STORAGE;
    p->has_gradient = FALSE;
  }
  return r;
}

/* The dtype of the gradient at this position. */
static DType
gradient_dtype(const Fsdp2 *f, const Reduction *r, int i)
{
  return r->is_wide[i] ? f->reduce : f->gathered;
}

/* An unsharded gradient in its parameter's shape, whose rows are cut into chunks; accumulated ones
 * are in the reduce dtype. */
static void
gradient_operand(StrategyContext *x, const Group *g, const Reduction *r, int i)
{
  const Fsdp2 *f = fsdp2_of(x);
  const Parameter *p = network_parameter(x->network, g->parameter[r->position[i]]);
  Layout layout = {.dtype = (guint8) gradient_dtype(f, r, i), .dims = (guint8) p->dims};
  gint64 stride = 1;
  for (int k = p->dims - 1; k >= 0; k--) {
    layout.shape[k] = p->shape[k];
    layout.stride[k] = stride;
    stride *= p->shape[k];
  }
  if (r->gradients[i] != NO_STORAGE)
    program_builder_operand(
        x->builder,
        program_builder_tensor(x->builder, r->gradients[i], r->gradient_offset[i], &layout),
        ROLE_READ);
}

/* _chunk_cat has a kernel of its own for equal dtypes, and for bf16 into fp32 (_chunk_cat_out_cuda
 * of aten/src/ATen/native/cuda/TensorShape.cu). */
static gboolean
cats_chunks_at_once(const Fsdp2 *f, const Reduction *r)
{
  for (int i = 0; i < r->count; i++) {
    DType dtype = gradient_dtype(f, r, i);
    if (dtype != f->reduce && !(dtype == DTYPE_BF16 && f->reduce == DTYPE_FP32))
      return FALSE;
  }
  return TRUE;
}

/* Else it is a cat() of views, and of padded copies of what does not divide evenly (_pad_chunk of
 * aten/src/ATen/native/TensorShape.cpp). */
static GArray *
pad_gradients(StrategyContext *x, const Group *g, const Reduction *r)
{
  const Fsdp2 *f = fsdp2_of(x);
  GArray *padded = g_array_new(FALSE, FALSE, sizeof(StorageId));
  for (int i = 0; i < r->count; i++) {
    int position = r->position[i];
    gint64 elements = f->ranks * g->shard[position].padded_elements;
    if (elements == network_parameter(x->network, g->parameter[position])->elements)
      continue;
    StorageId copy = group_allocate(x, g, elements * dtype_size(gradient_dtype(f, r, i)),
                                    STREAM_COMPUTE, CATEGORY_TEMPORARY, "padded gradient");
    g_array_append_val(padded, copy);
  }
  return padded;
}

/* Copies gradients into the reduce-scatter's input; then the list of them is cleared, from its end.
 * The last one lives on: with more than one rank, a loop over shard dimensions leaves its variable
 * bound until foreach_reduce returns. */
static StorageId
copy_gradients_in(StrategyContext *x, Group *g, Reduction *r)
{
  Fsdp2 *f = fsdp2_of(x);
  gint64 elements = f->ranks * r->shard_elements, bytes = elements * dtype_size(f->reduce);
  StorageId input = group_allocate(x, g, bytes, STREAM_COMPUTE, CATEGORY_REDUCE_SCATTER_BUFFER,
                                   "reduce-scatter input");
  gboolean at_once = cats_chunks_at_once(f, r);
  g_autoptr(GArray) padded = at_once ? NULL : pad_gradients(x, g, r);
  if (at_once)
    kernel_table(x, g, cat_table_entries(g, r, f->reduce), "copy-in table");
  for (int i = 0; i < r->count; i++)
    gradient_operand(x, g, r, i);
  group_operand(x, input, f->reduce, ROLE_WRITE);
  g_autofree char *meaning = meaning_text("chunk_cat", 1, "ranks", (double) f->ranks);
  strategy_launch_as(x, STREAM_COMPUTE, "chunk_cat",
                     (double) elements * (dtype_size(f->gathered) + dtype_size(f->reduce)),
                     meaning);
  for (guint i = 0; padded != NULL && i < padded->len; i++)
    live_storage_drop(x->live, g_array_index(padded, StorageId, i));
  for (int i = f->ranks > 1 ? r->count - 2 : r->count - 1; i >= 0; i--)
    live_storage_clear(x->live, &r->gradients[i]);
  return input;
}

static void
issue_collective(StrategyContext *x, const Group *g, CollectiveKind kind, gint32 communicator,
                 StreamId stream, gint64 elements)
{
  Fsdp2 *f = fsdp2_of(x);
  Collective collective = {
      .kind = (guint8) kind,
      .dtype = (guint8) f->reduce,
      .communicator = communicator,
      .name = program_builder_name(x->builder, g->unit->name),
      .bytes = elements * dtype_size(f->reduce),
      .meaning = meaning_of(x->builder, "avg"), /* ReduceOp.AVG of both */
  };
  program_builder_collective(x->builder, stream, &collective);
}

/* The parameter's gradient is a view of the flat one, at its offset; so is that of the one that it
 * has its shard of. */
static void
show_gradient(StrategyContext *x, int parameter, StorageId flat, gint64 offset)
{
  int shard_of = network_parameter(x->network, parameter)->shard_of;
  ParameterState *p = &x->parameters[parameter];
  p->sharded_gradient = flat;
  p->sharded_offset = offset;
  live_storage_hold(x->live, flat);
  if (shard_of >= 0 && x->parameters[shard_of].sharded_gradient == NO_STORAGE)
    show_gradient(x, shard_of, flat, offset);
}

/* The reduced shard becomes (or is added to) the sharded gradient, cast to the parameters' dtype
 * first.  Takes the output; returns the flat result, still held by this frame. */
static StorageId
store_gradient(StrategyContext *x, Group *g, const Reduction *r, StorageId output, StreamId stream)
{
  Fsdp2 *f = fsdp2_of(x);
  StorageId flat = output;
  gint64 bytes = r->shard_elements * dtype_size(f->stored);
  if (f->reduce != f->stored) {
    flat = group_allocate(x, g, bytes, stream, CATEGORY_SHARDED_GRADIENT, "sharded gradient");
    group_operand(x, output, f->reduce, ROLE_READ);
    group_operand(x, flat, f->stored, ROLE_WRITE);
    strategy_launch(x, stream, "to_copy",
                    (double) r->shard_elements * dtype_size(f->reduce) + (double) bytes);
    live_storage_drop(x->live, output);
  }
  live_storage_set_purpose(x->live, flat,
                           group_purpose(x, g, CATEGORY_SHARDED_GRADIENT, "sharded gradient"));
  if (x->offloads) {
    offload_store(x, g, r, flat, stream);
    return flat;
  }
  StorageId present = x->parameters[g->parameter[r->position[0]]].sharded_gradient;
  if (present != NO_STORAGE) {
    group_operand(x, flat, f->stored, ROLE_READ);
    group_operand(x, present, f->stored, ROLE_ACCUMULATE);
    strategy_launch(x, stream, "add", 3.0 * (double) bytes);
  }
  gint64 offset = 0;
  for (int i = 0; i < r->count && present == NO_STORAGE; i++) {
    show_gradient(x, g->parameter[r->position[i]], flat, offset);
    offset += g->shard[r->position[i]].padded_elements;
  }
  return flat;
}

void
group_wait_for_post_backward(StrategyContext *x, Group *g)
{
  if (g->reduce_event >= 0)
    program_builder_wait(x->builder, STREAM_COMPUTE, g->reduce_event);
  if (g->all_reduce_event >= 0)
    program_builder_wait(x->builder, STREAM_COMPUTE, g->all_reduce_event);
  g->reduce_event = g->all_reduce_event = -1;
  live_storage_clear(x->live, &g->all_reduce_input);
}

/* HSDP: the shards are summed over the replicas, in place. */
static void
all_reduce(StrategyContext *x, Group *g, const Reduction *r, StorageId output)
{
  Fsdp2 *f = fsdp2_of(x);
  wait_stream(x, STREAM_ALL_REDUCE, STREAM_REDUCE_SCATTER);
  program_builder_host_work(x->builder, HOST_WORK_COLLECTIVE_CALL, 1);
  group_operand(x, output, f->reduce, ROLE_ACCUMULATE);
  issue_collective(x, g, COLLECTIVE_ALL_REDUCE, f->replicate_communicator, STREAM_ALL_REDUCE,
                   r->shard_elements);
  g->all_reduce_event = record(x, STREAM_ALL_REDUCE);
  g->all_reduce_input = output; /* AllReduceState */
  live_storage_hold(x->live, output);
}

/* set_requires_all_reduce: every n-th micro-batch and the last one. */
static gboolean
sums_over_replicas(const StrategyContext *x)
{
  return x->last_micro_batch || (x->micro_batch + 1) % x->plan->accumulation.all_reduce_every == 0;
}

static void
add_partial(StrategyContext *x, const Reduction *r, StorageId from, StorageId to)
{
  DType reduce = fsdp2_of(x)->reduce;
  group_operand(x, from, reduce, ROLE_READ);
  group_operand(x, to, reduce, ROLE_ACCUMULATE);
  strategy_launch(x, STREAM_REDUCE_SCATTER, "add",
                  3.0 * (double) r->shard_elements * dtype_size(reduce));
}

/* Without an all-reduce the shard is kept, or added to what is kept.  Takes the output. */
static void
keep_partial(StrategyContext *x, Group *g, const Reduction *r, StorageId output,
             StorageId *last_gradient)
{
  if (g->partial != NO_STORAGE)
    add_partial(x, r, output, g->partial);
  else
    live_storage_hold(x->live, g->partial = output);
  g->reduce_event = record(x, STREAM_REDUCE_SCATTER);
  live_storage_clear(x->live, last_gradient);
  live_storage_drop(x->live, output);
}

/* With the shards kept in earlier micro-batches, summed over the replicas, it is the sharded
 * gradient.  Takes the output. */
static void
finish_gradient(StrategyContext *x, Group *g, const Reduction *r, StorageId output,
                StorageId *last_gradient)
{
  Fsdp2 *f = fsdp2_of(x);
  StreamId stream = f->replicas > 1 ? STREAM_ALL_REDUCE : STREAM_REDUCE_SCATTER;
  if (g->partial != NO_STORAGE)
    add_partial(x, r, g->partial, output);
  if (f->replicas > 1)
    all_reduce(x, g, r, output);
  StorageId flat = store_gradient(x, g, r, output, stream);
  g->reduce_event = record(x, stream);
  live_storage_clear(x->live, last_gradient);
  live_storage_drop(x->live, flat);
  live_storage_clear(x->live, &g->partial);
}

/* Sums the input over the shard group; a group of one copies. */
static void
scatter(StrategyContext *x, Group *g, const Reduction *r, StorageId input, StorageId output)
{
  Fsdp2 *f = fsdp2_of(x);
  program_builder_host_work(x->builder, HOST_WORK_COLLECTIVE_CALL, 1);
  group_operand(x, input, f->reduce, ROLE_READ);
  group_operand(x, output, f->reduce, ROLE_WRITE);
  if (f->ranks > 1) {
    issue_collective(x, g, COLLECTIVE_REDUCE_SCATTER, f->shard_communicator, STREAM_REDUCE_SCATTER,
                     f->ranks * r->shard_elements);
    g->unit->reduce_scatters++;
  } else {
    strategy_launch(x, STREAM_REDUCE_SCATTER, "copy",
                    2.0 * (double) r->shard_elements * dtype_size(f->reduce));
  }
}

/* foreach_reduce: reduce-scatter on its stream, with HSDP an all-reduce on another.  Takes the
 * gradients. */
static void
reduce(StrategyContext *x, Group *g, Reduction *r)
{
  Fsdp2 *f = fsdp2_of(x);
  if (f->reduce_input != NO_STORAGE) {
    program_builder_wait(x->builder, STREAM_COMPUTE, f->reduce_input_event);
    live_storage_clear(x->live, &f->reduce_input);
  }
  group_wait_for_post_backward(x, g);
  StorageId input = copy_gradients_in(x, g, r);
  wait_stream(x, STREAM_REDUCE_SCATTER, STREAM_COMPUTE);
  StorageId output =
      group_allocate(x, g, r->shard_elements * dtype_size(f->reduce), STREAM_REDUCE_SCATTER,
                     CATEGORY_REDUCE_SCATTER_BUFFER, "reduce-scatter output");
  scatter(x, g, r, input, output);
  gint32 scattered = record(x, STREAM_REDUCE_SCATTER);
  if (f->replicas == 1 || sums_over_replicas(x))
    finish_gradient(x, g, r, output, &r->gradients[r->count - 1]);
  else
    keep_partial(x, g, r, output, &r->gradients[r->count - 1]);
  f->reduce_input = input;
  f->reduce_input_event = scattered;
}

void
group_post_backward(StrategyContext *x, Group *g)
{
  Fsdp2 *f = fsdp2_of(x);
  program_builder_push(x->builder, RANGE_HOOK, "post_backward", 0);
  program_builder_host_work(x->builder, HOST_WORK_HOOK, 1);
  g->reduced = TRUE;
  for (int i = 0; i < g->count; i++) {
    ParameterState *p = &x->parameters[g->parameter[i]];
    if (p->accumulated != NO_STORAGE && p->has_gradient)
      add_to_accumulated(x, p);
  }
  if (!x->synchronize) {
    if (!f->keep_unsharded)
      group_reshard(x, g);
    for (int i = 0; i < g->count; i++)
      keep_gradient(x, g->parameter[i]);
  } else {
    Reduction r = take_gradients(x, g);
    if (!f->keep_unsharded)
      group_reshard(x, g);
    if (r.count > 0)
      reduce(x, g, &r);
    g_free(r.position);
    g_free(r.gradient_offset);
    g_free(r.is_wide);
    g_free(r.gradients);
  }
  program_builder_pop(x->builder);
}
