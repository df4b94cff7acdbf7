/* fsdp1_gradient.c - the gradient of a flat parameter: flattened, reduced or kept, dropped
 * (_runtime_utils.py, _post_backward_hook; _flat_param.py). */
#include "base/units.h"
#include "strategy/fsdp1_private.h"

/* A kernel that adds one storage to another of as many elements. */
static void
launch_add(StrategyContext *x, StreamId stream, StorageId from, DType from_dtype, StorageId to,
           DType to_dtype)
{
  double bytes =
      (double) live_storage_bytes(x->live, from) + 2.0 * (double) live_storage_bytes(x->live, to);
  fsdp1_operand(x, from, from_dtype, ROLE_READ);
  fsdp1_operand(x, to, to_dtype, ROLE_ACCUMULATE);
  strategy_launch(x, stream, "add", bytes);
}

/* Gradients that autograd did not make: padding, and parameters that were not used
 * (split_with_sizes_backward, torch/csrc/autograd/FunctionsManual.cpp). */
static void
make_zeros(StrategyContext *x, Handle *h, StorageId *gradients, GArray *zeros)
{
  const Fsdp1 *f = fsdp1_of(x);
  for (guint i = 0; i < h->pieces->len; i++) {
    const Piece *piece = &g_array_index(h->pieces, Piece, i);
    if (piece->position >= 0 && gradients[piece->position] != NO_STORAGE)
      continue;
    StorageId zero = handle_allocate(x, h, piece->elements * dtype_size(f->gathered),
                                     STREAM_UNSHARD, CATEGORY_TEMPORARY, "zeros");
    fsdp1_operand(x, zero, f->gathered, ROLE_WRITE);
    strategy_launch(x, STREAM_UNSHARD, "zeros", (double) live_storage_bytes(x->live, zero));
    g_array_append_val(zeros, zero);
  }
}

void
handle_flatten(StrategyContext *x, Handle *h, const StorageId *gradients)
{
  Fsdp1 *f = fsdp1_of(x);
  gint64 bytes = h->flat_elements * dtype_size(f->gathered);
  g_autofree StorageId *given = g_memdup2(gradients, sizeof(StorageId) * (gsize) MAX(h->count, 1));
  g_autoptr(GArray) zeros = g_array_new(FALSE, FALSE, sizeof(StorageId));
  make_zeros(x, h, given, zeros);
  StorageId flat = handle_allocate(x, h, bytes, STREAM_UNSHARD, CATEGORY_UNSHARDED_GRADIENT,
                                   "unsharded flat gradient");
  for (guint i = 0, next = 0; i < h->pieces->len; i++) {
    int position = g_array_index(h->pieces, Piece, i).position;
    gboolean made = position >= 0 && given[position] != NO_STORAGE;
    fsdp1_operand(x, made ? given[position] : g_array_index(zeros, StorageId, next++), f->gathered,
                  ROLE_READ);
  }
  fsdp1_operand(x, flat, f->gathered, ROLE_WRITE);
  strategy_launch(x, STREAM_UNSHARD, "cat", 2.0 * (double) bytes);
  for (guint i = 0; i < zeros->len; i++)
    live_storage_drop(x->live, g_array_index(zeros, StorageId, i));
  if (h->gradient == NO_STORAGE) {
    h->gradient = flat;
    h->gradient_dtype = f->gathered;
  } else {
    launch_add(x, STREAM_UNSHARD, flat, f->gathered, h->gradient, h->gradient_dtype);
    h->incoming = flat;
  }
}

typedef struct {
  DType from, to;
  StreamId stream;
  Category category; /* of the result */
} Cast;

/* The gradient in another dtype, if it is another.  Takes it; the result's reference is the
 * caller's. */
static StorageId
cast_gradient(StrategyContext *x, Handle *h, StorageId gradient, const Cast *cast)
{
  if (cast->from == cast->to)
    return gradient;
  gint64 elements = live_storage_bytes(x->live, gradient) / dtype_size(cast->from);
  StorageId result = handle_allocate(x, h, elements * dtype_size(cast->to), cast->stream,
                                     cast->category, "cast flat gradient");
  fsdp1_launch_copy(x, cast->stream, gradient, cast->from, result, cast->to);
  live_storage_drop(x->live, gradient);
  return result;
}

/* .grad of the original parameters: what the optimizer reads. */
static void
show_gradients(StrategyContext *x, Handle *h, StorageId gradient)
{
  for (int i = 0; i < h->count; i++) {
    ParameterState *p = &x->parameters[h->parameter[i]];
    gboolean trains = network_parameter(x->network, h->parameter[i])->trainable;
    p->sharded_gradient = p->local_elements > 0 && trains ? gradient : NO_STORAGE;
  }
  h->has_gradients = gradient != NO_STORAGE && h->local_trained > 0;
}

/* In place. */
static void
sum_over_replicas(StrategyContext *x, Handle *h, StorageId gradient, StreamId stream,
                  gint64 elements)
{
  Fsdp1 *f = fsdp1_of(x);
  if (f->replicas == 1)
    return;
  program_builder_host_work(x->builder, HOST_WORK_COLLECTIVE_CALL, 1);
  fsdp1_operand(x, gradient, f->reduce, ROLE_ACCUMULATE);
  handle_collective(x, h, COLLECTIVE_ALL_REDUCE, f->replicate_communicator, stream, f->reduce,
                    elements);
}

/* The flat gradient with zeros behind it, where ranks would have unequal shares, else NO_STORAGE
 * (_get_reduce_scatter_tensors). */
static StorageId
pad_gradient(StrategyContext *x, Handle *h, StorageId gradient)
{
  const Fsdp1 *f = fsdp1_of(x);
  if (h->unsharded_elements == h->flat_elements)
    return NO_STORAGE;
  StorageId padded =
      handle_allocate(x, h, h->unsharded_elements * dtype_size(f->reduce), STREAM_POST_BACKWARD,
                      CATEGORY_REDUCE_SCATTER_BUFFER, "padded flat gradient");
  double bytes =
      (double) live_storage_bytes(x->live, gradient) + (double) live_storage_bytes(x->live, padded);
  fsdp1_operand(x, gradient, f->reduce, ROLE_READ);
  fsdp1_operand(x, padded, f->reduce, ROLE_WRITE);
  strategy_launch_as(x, STREAM_POST_BACKWARD, "copy", bytes, "constant_pad_nd");
  return padded;
}

/* _reduce_grad: reduce-scatter, with replicas an all-reduce behind it; `input` is borrowed. */
static void
reduce_sharded(StrategyContext *x, Handle *h, StorageId input)
{
  Fsdp1 *f = fsdp1_of(x);
  StreamId stream = STREAM_POST_BACKWARD;
  Category category =
      f->reduce == f->stored ? CATEGORY_SHARDED_GRADIENT : CATEGORY_REDUCE_SCATTER_BUFFER;
  StorageId padded = pad_gradient(x, h, input);
  StorageId output = handle_allocate(x, h, h->shard_elements * dtype_size(f->reduce), stream,
                                     category, "sharded flat gradient");
  program_builder_host_work(x->builder, HOST_WORK_COLLECTIVE_CALL, 1);
  fsdp1_operand(x, padded != NO_STORAGE ? padded : input, f->reduce, ROLE_READ);
  fsdp1_operand(x, output, f->reduce, ROLE_WRITE);
  handle_collective(x, h, COLLECTIVE_REDUCE_SCATTER, f->shard_communicator, stream, f->reduce,
                    h->unsharded_elements);
  h->unit->reduce_scatters++;
  if (f->strategy == HYBRID_SHARD || f->strategy == HYBRID_SHARD_ZERO2) {
    fsdp1_wait_stream(x, STREAM_ALL_REDUCE, stream);
    stream = STREAM_ALL_REDUCE;
    live_storage_record_stream(x->live, output, stream);
    sum_over_replicas(x, h, output, stream, h->shard_elements);
  }
  Cast cast = {f->reduce, f->stored, stream, CATEGORY_SHARDED_GRADIENT};
  output = cast_gradient(x, h, output, &cast);
  if (h->sharded_gradient == NO_STORAGE) {
    h->sharded_gradient = output;
    output = NO_STORAGE;
  } else {
    launch_add(x, stream, output, f->stored, h->sharded_gradient, f->stored);
  }
  if (x->offloads)
    handle_offload_gradient(x, h, stream);
  show_gradients(x, h, x->offloads ? h->host_gradient : h->sharded_gradient);
  live_storage_drop(x->live, input);
  live_storage_drop(x->live, padded);
  live_storage_drop(x->live, output);
}

/* _reduce_grad_no_shard: all-reduced in place; the result is .grad. */
static void
reduce_whole(StrategyContext *x, Handle *h, StorageId gradient)
{
  Fsdp1 *f = fsdp1_of(x);
  sum_over_replicas(x, h, gradient, STREAM_POST_BACKWARD, h->flat_elements);
  Cast cast = {f->reduce, f->stored, STREAM_POST_BACKWARD, CATEGORY_SHARDED_GRADIENT};
  h->gradient = cast_gradient(x, h, gradient, &cast);
  StoragePurpose purpose = {CATEGORY_SHARDED_GRADIENT, g_array_index(h->unit->modules, int, 0),
                            program_builder_name(x->builder, "flat gradient")};
  live_storage_set_purpose(x->live, h->gradient, purpose);
  h->gradient_dtype = f->stored;
  show_gradients(x, h, h->gradient);
}

/* no_sync: .grad of the parameters becomes views of the unsharded gradient.  Where those have
 * another shape or dtype, a .grad that is not there yet is made first, for its type, where the
 * shard is
 * (_use_unsharded_grad_views). */
static void
keep_unsharded(StrategyContext *x, Handle *h)
{
  const Fsdp1 *f = fsdp1_of(x);
  for (int i = 0; i < h->count && !h->has_gradients && !x->offloads && f->uses_original; i++) {
    const ParameterState *p = &x->parameters[h->parameter[i]];
    const Parameter *info = network_parameter(x->network, h->parameter[i]);
    gboolean same_shape =
        !fsdp1_shards(f) || (info->dims == 1 && p->local_elements == info->elements);
    if (p->local_elements == 0 || (same_shape && !fsdp1_is_mixed(f)))
      continue;
    live_storage_drop(x->live,
                      handle_allocate(x, h, p->local_elements * dtype_size(f->stored),
                                      STREAM_UNSHARD, CATEGORY_TEMPORARY, "gradient's type"));
  }
  h->has_gradients = TRUE;
}

void
handle_reduce(StrategyContext *x, Handle *h)
{
  Fsdp1 *f = fsdp1_of(x);
  if (!x->synchronize) {
    keep_unsharded(x, h);
    live_storage_clear(x->live, &h->incoming);
    return;
  }
  fsdp1_wait_stream(x, STREAM_POST_BACKWARD, STREAM_UNSHARD);
  StorageId computed = h->gradient; /* held by the hook's frame, and by the engine */
  live_storage_hold(x->live, computed);
  h->gradient = NO_STORAGE;
  Cast cast = {h->gradient_dtype, f->reduce, STREAM_POST_BACKWARD, CATEGORY_REDUCE_SCATTER_BUFFER};
  StorageId gradient = cast_gradient(x, h, computed, &cast);
  if (fsdp1_shards(f))
    reduce_sharded(x, h, gradient);
  else
    reduce_whole(x, h, gradient);
  live_storage_record_stream(x->live, computed, STREAM_POST_BACKWARD);
  live_storage_drop(x->live, computed);
  live_storage_clear(x->live, &h->incoming);
}

void
handle_reset_gradient(StrategyContext *x, Handle *h)
{
  if (h->has_gradients)
    return;
  live_storage_clear(x->live, &h->gradient);
  live_storage_clear(x->live, &h->sharded_gradient);
  show_gradients(x, h, NO_STORAGE);
}
