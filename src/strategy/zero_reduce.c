/* zero_reduce.c - how ZeRO stages 1 and 2 reduce the gradients that wait in a bucket (deepspeed
 * 0.19.8, runtime/zero/stage_1_and_2.py, reduce_ipg_grads and what it calls).
 *
 * What is really sent by default is an all-reduce of the whole bucket, on a copy of it unless all
 * of it belongs to one rank; every rank then takes its own slices.  A reduce for each owner is the
 * other choice, a plain all-reduce in place the third. */
#include "strategy/zero_reduce.h"

#include "program/meaning.h"
#include "strategy/zero_offload.h"

/* A part of what is reduced at once. */
typedef struct {
  StorageId storage;
  gint64 offset, elements;
  int owner;            /* rank that takes the result; -1: every rank */
  gint64 compact;       /* own slice: elements into the fp32 partition that it is added to, or -1 */
  gint64 compact_first; /* where in the part the slice begins */
  gint64 compact_elements;
} Part;

/* ---- gradients as views ---- */

void
zero_gradient_becomes(StrategyContext *x, Zero *z, int parameter, StorageId storage, gint64 offset)
{
  StorageId *slot = zero_gradient_slot(x, z, parameter), old = *slot;
  live_storage_hold(x->live, storage);
  *slot = storage;
  z->gradient_offset[parameter] = offset;
  live_storage_drop(x->live, old);
}

void
zero_gradient_drop(StrategyContext *x, Zero *z, int parameter)
{
  if (!z->apart)
    x->parameters[parameter].has_gradient = FALSE;
  z->gradient_offset[parameter] = 0;
  live_storage_clear(x->live, zero_gradient_slot(x, z, parameter));
}

void
zero_drop_stale(StrategyContext *x, Zero *z)
{
  for (guint i = 0; i < z->stale->len; i++)
    zero_gradient_drop(x, z, g_array_index(z->stale, int, i));
  g_array_set_size(z->stale, 0);
}

void
zero_make_compact(StrategyContext *x, Zero *z, StreamId stream)
{
  if (z->compact != NO_STORAGE)
    return;
  StoragePurpose purpose = {CATEGORY_SHARDED_GRADIENT, -1,
                            program_builder_name(x->builder, "gradient partition")};
  gint64 bytes = z->flat.partition * dtype_size(DTYPE_FP32);
  z->compact = live_storage_alloc(x->live, bytes, stream, purpose);
  zero_operand(x, z->compact, 0, z->flat.partition, DTYPE_FP32, ROLE_WRITE);
  strategy_launch(x, stream, "zeros", (double) bytes);
}

/* ---- waits ---- */

static void
wait_for_stream(StrategyContext *x, StreamId waiter, StreamId other)
{
  gint32 event = program_builder_event(x->builder);
  program_builder_record(x->builder, other, event);
  program_builder_wait(x->builder, waiter, event);
}

/* The reduction follows what filled the bucket; what is computed from now on follows the reductions
 * before this one. */
static void
join_streams(StrategyContext *x, const Zero *z)
{
  if (!z->d.overlap_comm)
    return;
  wait_for_stream(x, z->d.reduce_stream, STREAM_COMPUTE);
  wait_for_stream(x, STREAM_COMPUTE, z->d.reduce_stream);
}

/* Reductions that are not contiguous synchronize the device first, so that what they replaced can
 * go. */
static void
synchronize(StrategyContext *x, Zero *z)
{
  if (!z->d.overlap_comm)
    return;
  program_builder_stream_sync(x->builder, STREAM_COMPUTE);
  program_builder_stream_sync(x->builder, z->d.reduce_stream);
  zero_drop_stale(x, z);
}

/* ---- one collective ---- */

static void
scale(StrategyContext *x, const Zero *z, StorageId storage, gint64 elements, const char *what)
{
  g_autofree char *meaning = meaning_text("scale_by", 1, "factor", 1.0 / z->d.ranks);
  zero_operand(x, storage, 0, elements, z->waiting, ROLE_ACCUMULATE);
  strategy_launch_as(x, z->d.reduce_stream, what, 2.0 * (double) (elements * z->waiting_size),
                     meaning);
}

/* What is sent, or what came back. */
typedef struct {
  StorageId storage;
  gint64 offset, elements;
  DType dtype;
} Sent;

typedef struct {
  CollectiveKind kind;
  int root; /* who gets it, of a reduce */
} Reduction;

static void
issue(StrategyContext *x, Zero *z, Reduction reduction, const Sent *sent)
{
  if (z->d.ranks == 1)
    return;
  g_autofree char *meaning = reduction.kind == COLLECTIVE_REDUCE
                                 ? meaning_text("sum", 1, "root", (double) reduction.root)
                                 : NULL;
  program_builder_host_work(x->builder, HOST_WORK_COLLECTIVE_CALL, 1);
  zero_operand(x, sent->storage, sent->offset, sent->elements, sent->dtype, ROLE_ACCUMULATE);
  program_builder_collective(x->builder, z->d.reduce_stream,
                             &(Collective){.kind = (guint8) reduction.kind,
                                           .dtype = (guint8) sent->dtype,
                                           .communicator = z->d.communicator,
                                           .name = program_builder_name(x->builder, "gradients"),
                                           .meaning = meaning_of(x->builder, meaning),
                                           .bytes = sent->elements * dtype_size(sent->dtype)});
}

/* A kernel from one view into another, whatever their dtypes. */
static void
convert(StrategyContext *x, const Zero *z, const char *name, const Sent *from, const Sent *to)
{
  gboolean in_place = from->storage == to->storage;
  if (!in_place)
    zero_operand(x, from->storage, from->offset, from->elements, from->dtype, ROLE_READ);
  zero_operand(x, to->storage, to->offset, to->elements, to->dtype,
               in_place ? ROLE_ACCUMULATE : ROLE_WRITE);
  strategy_launch_as(x, z->d.reduce_stream, name,
                     (double) (to->elements * (dtype_size(from->dtype) + dtype_size(to->dtype))),
                     in_place ? "itself" : NULL);
}

/* Reduces in the model's dtype: through a copy when gradients wait in another one.  The copy is
 * what comes back, and the caller's; else NO_STORAGE. */
static StorageId
reduce_in_model_dtype(StrategyContext *x, Zero *z, Reduction reduction, Sent *sent)
{
  StorageId cast = NO_STORAGE;
  Sent waiting = *sent;
  if (z->waiting != z->d.model) {
    StoragePurpose purpose = {CATEGORY_REDUCE_SCATTER_BUFFER, -1,
                              program_builder_name(x->builder, "gradients in 16 bits")};
    cast = live_storage_alloc(x->live, sent->elements * z->d.element, z->d.reduce_stream, purpose);
    *sent = (Sent){cast, 0, waiting.elements, z->d.model};
    convert(x, z, "to_copy", &waiting, sent);
  }
  issue(x, z, reduction, sent);
  if (cast != NO_STORAGE)
    convert(x, z, "copy", sent, &waiting);
  return cast;
}

/* The reduced slice in fp32 is added to this rank's partition. */
static void
add_to_compact(StrategyContext *x, Zero *z, const Sent *reduced, const Part *part)
{
  if (part->compact < 0)
    return;
  gint64 elements = part->compact_elements;
  StreamId stream = z->d.reduce_stream;
  zero_make_compact(x, z, stream);
  StoragePurpose purpose = {CATEGORY_TEMPORARY, -1,
                            program_builder_name(x->builder, "slice in fp32")};
  Sent from = {reduced->storage, reduced->offset + part->compact_first, elements, reduced->dtype};
  Sent cast = {live_storage_alloc(x->live, elements * 4, stream, purpose), 0, elements, DTYPE_FP32};
  convert(x, z, "to_copy", &from, &cast);
  zero_operand(x, cast.storage, 0, elements, DTYPE_FP32, ROLE_READ);
  zero_operand(x, z->compact, part->compact, elements, DTYPE_FP32, ROLE_ACCUMULATE);
  strategy_launch(x, stream, "add", 12.0 * (double) elements);
  live_storage_drop(x->live, cast.storage);
}

/* The owner takes its part of the result. */
static void
take(StrategyContext *x, Zero *z, const Sent *reduced, const Part *part)
{
  if (part->owner >= 0 && part->owner != z->d.rank)
    return;
  add_to_compact(x, z, reduced, part);
  Sent from = {reduced->storage, reduced->offset, part->elements, reduced->dtype};
  Sent to = {part->storage, part->offset, part->elements, z->waiting};
  convert(x, z, "copy", &from, &to);
  if (z->d.overlap_comm)
    program_builder_record_stream(x->builder, part->storage, z->d.reduce_stream);
}

/* torch's _flatten_dense_tensors: a copy of several parts in a row, a single one itself. */
static StorageId
flatten(StrategyContext *x, Zero *z, const Part *parts, guint n, gint64 elements)
{
  if (n == 1)
    return NO_STORAGE;
  StoragePurpose purpose = {CATEGORY_REDUCE_SCATTER_BUFFER, -1,
                            program_builder_name(x->builder, "flattened gradients")};
  gint64 bytes = elements * z->waiting_size;
  StorageId copy = live_storage_alloc(x->live, bytes, z->d.reduce_stream, purpose);
  /* Parts that lie behind each other are read as one: an op has so many operands and no more. */
  for (guint i = 0, next; i < n; i = next) {
    gint64 length = parts[i].elements;
    for (next = i + 1; next < n && parts[next].storage == parts[i].storage &&
                       parts[next].offset == parts[i].offset + length;
         next++)
      length += parts[next].elements;
    zero_operand(x, parts[i].storage, parts[i].offset, length, z->waiting, ROLE_READ);
  }
  zero_operand(x, copy, 0, elements, z->waiting, ROLE_WRITE);
  strategy_launch(x, z->d.reduce_stream, "cat", 2.0 * (double) bytes);
  return copy;
}

/* One collective over n parts. */
static void
send(StrategyContext *x, Zero *z, CollectiveKind kind, const Part *parts, guint n)
{
  gint64 elements = 0;
  for (guint i = 0; i < n; i++)
    elements += parts[i].elements;
  StorageId copy = flatten(x, z, parts, n, elements);
  Sent sent = {copy, 0, elements, z->waiting};
  if (copy == NO_STORAGE) {
    sent.storage = parts[0].storage;
    sent.offset = parts[0].offset;
  }
  if (!z->d.contiguous_gradients)
    scale(x, z, sent.storage, elements, "div");
  StorageId cast = reduce_in_model_dtype(x, z, (Reduction){kind, parts[0].owner}, &sent);
  if (cast != NO_STORAGE) /* what was flattened has served: the 16-bit copy is what came back */
    live_storage_clear(x->live, &copy);
  for (guint i = 0; i < n; i++) {
    take(x, z, &sent, &parts[i]);
    sent.offset += parts[i].elements;
  }
  live_storage_drop(x->live, cast);
  live_storage_drop(x->live, copy);
}

/* Parts in order, a collective whenever more than limit elements have come together. */
static void
send_all(StrategyContext *x, Zero *z, CollectiveKind kind, const GArray *parts, gint64 limit)
{
  const Part *all = (const Part *) (const void *) parts->data;
  gint64 elements = 0;
  guint first = 0;
  for (guint i = 0; i < parts->len; i++) {
    elements += all[i].elements;
    if (elements <= limit && i + 1 < parts->len)
      continue;
    if (!z->d.contiguous_gradients || kind == COLLECTIVE_REDUCE)
      synchronize(x, z);
    send(x, z, kind, all + first, i + 1 - first);
    first = i + 1;
    elements = 0;
  }
}

/* ---- a contiguous bucket ---- */

/* The tensor that is reduced: the bucket up to where it is filled, or the oversized gradient. */
static StorageId
bucket_storage(const StrategyContext *x, const Zero *z)
{
  return z->oversized >= 0 ? *zero_gradient_slot(x, z, z->oversized) : z->bucket[z->filling];
}

/* Slices of the listed parameters by owner; neighbours of one owner are one slice, except where
 * each is added to the fp32 partition. */
static GArray *
slices(StrategyContext *x, Zero *z)
{
  GArray *parts = g_array_new(FALSE, FALSE, sizeof(Part));
  StorageId storage = bucket_storage(x, z);
  gboolean compact = zero_is_compact(z), last_compact = FALSE;
  gint64 offset = 0;
  for (guint i = 0; i < z->listed->len; i++) {
    int parameter = g_array_index(z->listed, int, i);
    FlatSlice slice;
    for (int k = 0; zero_flat_slice(&z->flat, x->network, parameter, k, &slice); k++) {
      gboolean own = compact && slice.rank == z->d.rank;
      if (own)
        zero_make_compact(x, z, z->d.reduce_stream);
      gint64 place = z->flat.offset[parameter] + slice.first - z->flat.first;
      Part part = {storage,          offset, slice.elements, slice.rank,
                   own ? place : -1, 0,      slice.elements};
      Part *before = parts->len > 0 ? &g_array_index(parts, Part, parts->len - 1) : NULL;
      if (before != NULL && before->owner == part.owner && !own && !last_compact)
        before->elements += part.elements;
      else
        g_array_append_val(parts, part);
      last_compact = own;
      offset += slice.elements;
    }
  }
  return parts;
}

/* use_multi_rank_bucket_allreduce false: one reduce for each owner, in order of appearance. */
static void
send_to_owners(StrategyContext *x, Zero *z, const GArray *parts)
{
  g_autofree gboolean *sent = g_new0(gboolean, parts->len);
  for (guint i = 0; i < parts->len; i++) {
    if (sent[i])
      continue;
    g_autoptr(GArray) group = g_array_new(FALSE, FALSE, sizeof(Part));
    int owner = g_array_index(parts, Part, i).owner;
    for (guint k = i; k < parts->len; k++) {
      if (g_array_index(parts, Part, k).owner != owner)
        continue;
      sent[k] = TRUE;
      g_array_append_val(group, g_array_index(parts, Part, k));
    }
    send_all(x, z, COLLECTIVE_REDUCE, group, z->d.reduce_bucket);
  }
}

/* reduce_scatter false: all of it is all-reduced in place and divided. */
static void
reduce_in_place(StrategyContext *x, Zero *z)
{
  Sent all = {bucket_storage(x, z), 0, z->filled, z->waiting};
  StorageId cast = reduce_in_model_dtype(x, z, (Reduction){COLLECTIVE_ALL_REDUCE, -1}, &all);
  if (z->d.ranks > 1)
    scale(x, z, bucket_storage(x, z), z->filled, "mul");
  gint64 offset = 0;
  for (guint i = 0; i < z->listed->len && zero_is_compact(z); i++) {
    int parameter = g_array_index(z->listed, int, i);
    FlatSlice slice = zero_flat_own_slice(&z->flat, x->network, parameter, z->d.rank);
    Part part = {.compact = z->flat.offset[parameter] + slice.first - z->flat.first,
                 .compact_first = offset + slice.first,
                 .compact_elements = slice.elements};
    offset += network_parameter(x->network, parameter)->elements;
    if (slice.elements > 0)
      add_to_compact(x, z, &all, &part);
  }
  live_storage_drop(x->live, cast);
}

/* average_tensor. */
static void
average_bucket(StrategyContext *x, Zero *z)
{
  join_streams(x, z);
  if (!z->d.reduce_scatter) {
    reduce_in_place(x, z);
    return;
  }
  g_autoptr(GArray) parts = slices(x, z);
  if (parts->len == 0)
    return;
  scale(x, z, bucket_storage(x, z), z->filled, "div");
  if (z->d.multi_rank_allreduce)
    send_all(x, z, COLLECTIVE_ALL_REDUCE, parts, z->d.reduce_bucket);
  else
    send_to_owners(x, z, parts);
}

/* ---- gradients left where they are: contiguous_gradients false ---- */

static void
average_separately(StrategyContext *x, Zero *z)
{
  g_autoptr(GArray) parts = g_array_new(FALSE, FALSE, sizeof(Part));
  for (guint i = 0; i < z->listed->len; i++) {
    int parameter = g_array_index(z->listed, int, i);
    FlatSlice own = zero_flat_own_slice(&z->flat, x->network, parameter, z->d.rank);
    Part part = {
        .storage = *zero_gradient_slot(x, z, parameter),
        .offset = z->gradient_offset[parameter],
        .elements = network_parameter(x->network, parameter)->elements,
        .owner = -1,
        .compact = -1,
    };
    if (zero_is_compact(z) && own.elements > 0) {
      part.compact = z->flat.offset[parameter] + own.first - z->flat.first;
      part.compact_first = own.first;
      part.compact_elements = own.elements;
    }
    g_array_append_val(parts, part);
  }
  send_all(x, z, COLLECTIVE_ALL_REDUCE, parts, z->filled);
}

/* ---- what becomes of the gradients ---- */

/* copy_grads_in_partition: the bucket will be written again, so own gradients move into a buffer
 * that has room for whole parameters, also where only a part of one is ours. */
static void
keep_own(StrategyContext *x, Zero *z, int parameter)
{
  gint64 elements = network_parameter(x->network, parameter)->elements;
  StreamId stream = z->d.reduce_stream;
  if (z->owned == NO_STORAGE) {
    StoragePurpose purpose = {CATEGORY_SHARDED_GRADIENT, -1,
                              program_builder_name(x->builder, "gradients of own parameters")};
    z->owned_filled = 0;
    z->owned = live_storage_alloc(x->live, z->flat.own_whole * z->d.element, stream, purpose);
  }
  zero_operand(x, x->parameters[parameter].gradient, z->gradient_offset[parameter], elements,
               z->d.model, ROLE_READ);
  zero_operand(x, z->owned, z->owned_filled, elements, z->d.model, ROLE_WRITE);
  strategy_launch(x, stream, "copy", 2.0 * (double) (elements * z->d.element));
  zero_gradient_becomes(x, z, parameter, z->owned, z->owned_filled);
  z->owned_filled += elements;
}

static void
hand_over(StrategyContext *x, Zero *z, int parameter)
{
  FlatSlice own = zero_flat_own_slice(&z->flat, x->network, parameter, z->d.rank);
  if (own.elements > 0 && zero_is_offloaded(z)) {
    zero_offload_gradient(x, z, parameter);
  } else if (own.elements > 0) {
    if (z->d.contiguous_gradients && !zero_is_compact(z))
      keep_own(x, z, parameter);
    else if (z->d.contiguous_gradients && z->apart)
      zero_gradient_drop(x, z, parameter);
  } else if (z->d.stage == 2) {
    if (z->d.overlap_comm && !z->d.contiguous_gradients)
      g_array_append_val(z->stale, parameter);
    else
      zero_gradient_drop(x, z, parameter);
  }
}

/* What the call itself holds until it returns: the oversized gradient, or the bucket's list of
 * gradients that stay where they are. */
static GArray *
hold_gradients(StrategyContext *x, const Zero *z)
{
  GArray *held = g_array_new(FALSE, FALSE, sizeof(GradientPiece));
  for (guint i = 0; i < z->listed->len; i++) {
    int parameter = g_array_index(z->listed, int, i);
    if (z->d.contiguous_gradients && parameter != z->oversized)
      continue;
    GradientPiece piece = {*zero_gradient_slot(x, z, parameter), 0, 0};
    live_storage_hold(x->live, piece.storage);
    g_array_append_val(held, piece);
  }
  return held;
}

void
zero_reduce(StrategyContext *x, Zero *z)
{
  if (z->listed->len == 0)
    return;
  program_builder_push(x->builder, RANGE_HOOK, "reduce", 0);
  g_autoptr(GArray) held = hold_gradients(x, z);
  if (z->d.contiguous_gradients)
    average_bucket(x, z);
  else
    average_separately(x, z);
  for (guint i = 0; i < z->listed->len; i++)
    hand_over(x, z, g_array_index(z->listed, int, i));
  g_array_set_size(z->listed, 0);
  z->filled = 0;
  z->oversized = -1;
  zero_pieces_drop(x, held);
  program_builder_pop(x->builder);
}
