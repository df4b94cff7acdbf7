/* fsdp1_handle.c - a flat parameter: its layout, construction, all-gather and reshard, in the
 * order, on the streams and with the lifetimes of torch/distributed/fsdp/_flat_param.py and
 * _runtime_utils.py. */
#include "base/units.h"
#include "program/meaning.h"
#include "strategy/fsdp1_private.h"

/* ---- small steps ---- */

StorageId
handle_allocate(StrategyContext *x, const Handle *h, gint64 bytes, StreamId stream,
                Category category, const char *what)
{
  int module = h->unit->modules->len > 0 ? g_array_index(h->unit->modules, int, 0) : 0;
  StoragePurpose purpose = {category, module, program_builder_name(x->builder, what)};
  return live_storage_alloc(x->live, bytes, stream, purpose);
}

void
fsdp1_operand(StrategyContext *x, StorageId storage, DType dtype, Role role)
{
  if (storage != NO_STORAGE)
    program_builder_operand(x->builder, live_storage_tensor(x->live, storage, dtype), role);
}

void
fsdp1_launch_copy(StrategyContext *x, StreamId stream, StorageId from, DType from_dtype,
                  StorageId to, DType to_dtype)
{
  double bytes =
      (double) live_storage_bytes(x->live, from) + (double) live_storage_bytes(x->live, to);
  fsdp1_operand(x, from, from_dtype, ROLE_READ);
  fsdp1_operand(x, to, to_dtype, ROLE_WRITE);
  strategy_launch(x, stream, from_dtype == to_dtype ? "copy" : "to_copy", bytes);
}

void
handle_collective(StrategyContext *x, const Handle *h, CollectiveKind kind, gint32 communicator,
                  StreamId stream, DType dtype, gint64 elements)
{
  Collective collective = {
      .kind = (guint8) kind,
      .dtype = (guint8) dtype,
      .communicator = communicator,
      .name = program_builder_name(x->builder, h->unit->name),
      .bytes = elements * dtype_size(dtype),
      .meaning = meaning_of(x->builder, kind == COLLECTIVE_ALL_GATHER ? NULL : "avg"),
  };
  program_builder_collective(x->builder, stream, &collective);
}

static gint32
record(StrategyContext *x, StreamId stream)
{
  gint32 event = program_builder_event(x->builder);
  program_builder_record(x->builder, stream, event);
  return event;
}

void
fsdp1_wait_stream(StrategyContext *x, StreamId waiter, StreamId other)
{
  program_builder_wait(x->builder, waiter, record(x, other));
}

/* ---- layout (_init_flat_param_and_metadata) ---- */

static void
add_piece(Handle *h, int position, gint64 elements)
{
  Piece piece = {position, elements};
  g_array_append_val(h->pieces, piece);
  h->flat_elements += elements;
}

static void
pad_to(Handle *h, gint64 multiple)
{
  gint64 beyond = h->flat_elements % multiple;
  if (beyond > 0)
    add_piece(h, -1, multiple - beyond);
}

/* With use_orig_params every parameter begins on 16 bytes of the gathered dtype, and the ranks'
 * shares are equal; without, the last one's is padded. */
static void
lay_out(StrategyContext *x, Handle *h)
{
  const Fsdp1 *f = fsdp1_of(x);
  for (int i = 0; i < h->count; i++) {
    if (f->uses_original)
      pad_to(h, 16 / dtype_size(f->gathered));
    x->parameters[h->parameter[i]].offset = h->flat_elements;
    add_piece(h, i, network_parameter(x->network, h->parameter[i])->elements);
  }
  if (f->uses_original)
    pad_to(h, f->ranks);
  h->unsharded_elements = fsdp1_shards(f) ? round_up(h->flat_elements, f->ranks) : h->flat_elements;
  h->shard_elements = fsdp1_shards(f) ? h->unsharded_elements / f->ranks : h->unsharded_elements;
}

/* The optimizer's parameter is the flat one: all of the share counts as its first parameter's. */
static void
give_to_first(StrategyContext *x, Handle *h)
{
  for (int i = 0; i < h->count; i++)
    x->parameters[h->parameter[i]].local_elements = i == 0 ? h->shard_elements : 0;
  h->local_parameters = 1;
  h->local_trained = h->requires_grad;
}

/* What of each parameter lies in this rank's share (_get_shard_metadata). */
static void
cut(StrategyContext *x, Handle *h)
{
  if (!fsdp1_of(x)->uses_original) {
    give_to_first(x, h);
    return;
  }
  gint64 first = fsdp1_shards(fsdp1_of(x)) ? x->rank * h->shard_elements : 0;
  gint64 end = first + h->shard_elements, offset = 0;
  for (guint i = 0; i < h->pieces->len; i++) {
    const Piece *piece = &g_array_index(h->pieces, Piece, i);
    gint64 local = MIN(end, offset + piece->elements) - MAX(first, offset);
    offset += piece->elements;
    if (piece->position < 0)
      continue;
    ParameterState *p = &x->parameters[h->parameter[piece->position]];
    p->local_elements = MAX(local, 0);
    p->local_offset = p->sharded_offset = MAX(offset - piece->elements - first, 0);
    h->local_parameters += local > 0;
    h->local_trained +=
        local > 0 && network_parameter(x->network, h->parameter[piece->position])->trainable;
  }
}

void
handle_init(StrategyContext *x, Handle *h, int unit)
{
  const Fsdp1 *f = fsdp1_of(x);
  *h = (Handle){
      .unit = g_ptr_array_index(x->units, (guint) unit),
      .index = unit,
      .is_root = unit == 0,
      .pieces = g_array_new(FALSE, FALSE, sizeof(Piece)),
      .shard = NO_STORAGE,
      .low_precision = NO_STORAGE,
      .unsharded = NO_STORAGE,
      .gradient = NO_STORAGE,
      .incoming = NO_STORAGE,
      .sharded_gradient = NO_STORAGE,
      .host_gradient = NO_STORAGE,
      .pre_forward_index = -1,
      .post_forward_index = -1,
  };
  h->count = (int) h->unit->parameters->len;
  h->parameter = (const int *) (const void *) h->unit->parameters->data;
  for (int i = 0; i < h->count; i++)
    h->requires_grad |= network_parameter(x->network, h->parameter[i])->requires_grad;
  lay_out(x, h);
  h->unit->unsharded_bytes = h->unsharded_elements * dtype_size(f->gathered);
  h->unit->shard_bytes = h->shard_elements * dtype_size(f->stored);
}

void
handle_clear(Handle *h)
{
  g_array_unref(h->pieces);
}

/* ---- construction ---- */

/* _construct_padding_tensor: ones, and their product with a number that is easy to recognize. */
static StorageId
construct_padding(StrategyContext *x, Handle *h, gint64 bytes)
{
  StorageId ones = handle_allocate(x, h, bytes, STREAM_COMPUTE, CATEGORY_TEMPORARY, "padding");
  StorageId padding = handle_allocate(x, h, bytes, STREAM_COMPUTE, CATEGORY_TEMPORARY, "padding");
  live_storage_drop(x->live, ones);
  return padding;
}

/* _get_shard: this rank's part is cloned, and padded into another one where it is shorter. */
static StorageId
construct_shard(StrategyContext *x, Handle *h)
{
  int size = dtype_size(fsdp1_of(x)->stored);
  gint64 own = CLAMP(h->flat_elements - x->rank * h->shard_elements, 0, h->shard_elements);
  StorageId clone = NO_STORAGE;
  if (own < h->shard_elements)
    clone = handle_allocate(x, h, own * size, STREAM_COMPUTE, CATEGORY_TEMPORARY, "shard to pad");
  StorageId shard = handle_allocate(x, h, h->shard_elements * size, STREAM_COMPUTE,
                                    CATEGORY_PARAMETER, "shard of the flat parameter");
  live_storage_drop(x->live, clone);
  return shard;
}

void
handle_holds(StrategyContext *x, const Handle *h, StorageId shard)
{
  const Fsdp1 *f = fsdp1_of(x);
  gint64 begin = 0, from = fsdp1_shards(f) ? x->rank * h->shard_elements : 0;
  for (guint i = 0; i < h->pieces->len; i++) {
    const Piece *piece = &g_array_index(h->pieces, Piece, i);
    gint64 first = MAX(begin, from), last = MIN(begin + piece->elements, from + h->shard_elements);
    if (piece->position >= 0)
      strategy_holds(x, shard, f->stored,
                     (StateRange){h->parameter[piece->position], first - begin, last - first},
                     first - from);
    begin += piece->elements;
  }
}

void
handle_construct(StrategyContext *x, Handle *h)
{
  const Fsdp1 *f = fsdp1_of(x);
  int size = dtype_size(f->stored);
  g_autoptr(GArray) padding = g_array_new(FALSE, FALSE, sizeof(StorageId));
  for (guint i = 0; i < h->pieces->len; i++) {
    const Piece *piece = &g_array_index(h->pieces, Piece, i);
    if (piece->position >= 0)
      continue;
    StorageId storage = construct_padding(x, h, piece->elements * size);
    g_array_append_val(padding, storage);
  }
  StorageId flat = handle_allocate(x, h, h->flat_elements * size, STREAM_COMPUTE,
                                   CATEGORY_PARAMETER, "flat parameter");
  for (guint i = 0; i < padding->len; i++)
    live_storage_drop(x->live, g_array_index(padding, StorageId, i));
  h->shard = flat;
  if (fsdp1_shards(f)) {
    h->shard = construct_shard(x, h);
    live_storage_drop(x->live, flat);
  }
  handle_holds(x, h, h->shard);
  if (x->offloads)
    handle_construct_on_host(x, h);
  for (int i = 0; i < h->count;
       i++) { /* without use_orig_params a list of them goes, from its end */
    int k = f->uses_original ? i : h->count - 1 - i;
    ParameterState *p = &x->parameters[h->parameter[k]];
    live_storage_drop(x->live, p->sharded);
    p->sharded = h->shard;
    p->unsharded = NO_STORAGE;
  }
  cut(x, h);
}

static void
make_and_empty(StrategyContext *x, Handle *h, gint64 bytes, const char *what)
{
  live_storage_drop(
      x->live, handle_allocate(x, h, bytes, STREAM_COMPUTE, CATEGORY_UNSHARDED_PARAMETER, what));
}

void
handle_lazy_init(StrategyContext *x, Handle *h)
{
  const Fsdp1 *f = fsdp1_of(x);
  int stored = dtype_size(f->stored), gathered = dtype_size(f->gathered);
  if (fsdp1_is_mixed(f))
    make_and_empty(x, h, h->shard_elements * gathered, "shard in low precision");
  if (!fsdp1_shards(f))
    return;
  make_and_empty(x, h, h->unsharded_elements * gathered, "unsharded flat parameter");
  if (fsdp1_is_mixed(f))
    make_and_empty(x, h, h->unsharded_elements * stored, "unsharded flat parameter in full");
}

/* ---- unshard ---- */

/* pre_unshard: the shard is cast to the dtype that is gathered, or computed with. */
static void
cast_shard(StrategyContext *x, Handle *h)
{
  const Fsdp1 *f = fsdp1_of(x);
  gint64 bytes = h->shard_elements * dtype_size(f->gathered);
  h->low_precision =
      handle_allocate(x, h, bytes, STREAM_PRE_UNSHARD,
                      fsdp1_shards(f) ? CATEGORY_ALL_GATHER_BUFFER : CATEGORY_UNSHARDED_PARAMETER,
                      "shard in low precision");
  fsdp1_launch_copy(x, STREAM_PRE_UNSHARD, h->shard, f->stored, h->low_precision, f->gathered);
  fsdp1_wait_stream(x, STREAM_UNSHARD, STREAM_PRE_UNSHARD);
}

/* The rate limiter: with two frees of gathered parameters outstanding the host waits for the older
 * (_limiter_utils.py). */
static void
limit_rate(StrategyContext *x)
{
  enum { MOST_IN_FLIGHT = 2 };
  Fsdp1 *f = fsdp1_of(x);
  if (!f->limits || f->free_events->len < MOST_IN_FLIGHT)
    return;
  program_builder_push(x->builder, RANGE_HOOK, "rate_limiter", 0);
  program_builder_event_sync(x->builder, g_array_index(f->free_events, gint32, 0));
  program_builder_pop(x->builder);
  g_array_remove_index(f->free_events, 0);
}

static void
gather(StrategyContext *x, Handle *h)
{
  Fsdp1 *f = fsdp1_of(x);
  h->unsharded =
      handle_allocate(x, h, h->unsharded_elements * dtype_size(f->gathered), STREAM_UNSHARD,
                      CATEGORY_UNSHARDED_PARAMETER, "unsharded flat parameter");
  program_builder_host_work(x->builder, HOST_WORK_COLLECTIVE_CALL, 1);
  fsdp1_operand(x, h->low_precision != NO_STORAGE ? h->low_precision : h->shard, f->gathered,
                ROLE_READ);
  fsdp1_operand(x, h->unsharded, f->gathered, ROLE_WRITE);
  handle_collective(x, h, COLLECTIVE_ALL_GATHER, f->shard_communicator, STREAM_UNSHARD, f->gathered,
                    h->unsharded_elements);
  h->unit->all_gathers++;
}

/* What ops read now. */
static StorageId
used_storage(const Fsdp1 *f, const Handle *h)
{
  if (fsdp1_shards(f))
    return h->unsharded;
  return fsdp1_is_mixed(f) ? h->low_precision : h->shard;
}

static void
show_parameters(StrategyContext *x, Handle *h, StorageId storage)
{
  for (int i = 0; i < h->count; i++)
    x->parameters[h->parameter[i]].unsharded = storage;
}

void
handle_unshard(StrategyContext *x, Handle *h, gboolean forward)
{
  Fsdp1 *f = fsdp1_of(x);
  gboolean shards = fsdp1_shards(f), needed = shards && h->unsharded == NO_STORAGE;
  program_builder_push(x->builder, RANGE_HOOK, "unshard", 0);
  if (x->offloads) /* also when they are there still */
    handle_fetch(x, h);
  else if (fsdp1_is_mixed(f) && (needed || (!shards && h->low_precision == NO_STORAGE)))
    cast_shard(x, h);
  limit_rate(x);
  if (needed)
    gather(x, h);
  show_parameters(x, h, used_storage(f, h));
  if (forward && h->requires_grad && !x->evaluating)
    x->view_parameters(x, h->index, STREAM_UNSHARD);
  if (shards) {
    if (needed || fsdp1_is_mixed(f))
      live_storage_record_stream(x->live, h->low_precision, STREAM_UNSHARD);
    /* else the original parameters are views of a copy that is fetched */
    if (fsdp1_is_mixed(f) || h->local_parameters == 0 || !f->uses_original)
      live_storage_clear(x->live, &h->low_precision);
  }
  program_builder_pop(x->builder);
}

/* ---- reshard ---- */

void
handle_reshard(StrategyContext *x, Handle *h, gboolean frees, StreamId current)
{
  Fsdp1 *f = fsdp1_of(x);
  h->prefetched = FALSE;
  if (h->held) {
    h->owes_reshard |= frees || (!fsdp1_shards(f) && fsdp1_is_mixed(f));
    return;
  }
  if (frees) {
    live_storage_record_stream(x->live, h->unsharded, current);
    live_storage_clear(x->live, &h->unsharded);
    show_parameters(x, h, NO_STORAGE);
  }
  if (frees && f->limits) {
    gint32 event = record(x, current);
    g_array_append_val(f->free_events, event);
  }
  if (!fsdp1_shards(f) && fsdp1_is_mixed(f)) {
    live_storage_record_stream(x->live, h->low_precision, current);
    live_storage_clear(x->live, &h->low_precision);
    show_parameters(x, h, NO_STORAGE);
  }
}
