/* fsdp1_state.c - the model's state dict under FSDP1: each unit is gathered in the dtype that is
 * stored, its parameters are cloned, whole or this rank's rows of them, and it goes again; one
 * stays around those inside of it (torch/distributed/fsdp/_state_dict_utils.py,
 * _unshard_param_utils.py). */
#include "strategy/fsdp1_private.h"
#include "strategy/shard.h"
#include "strategy/state_dict.h"

typedef struct {
  StrategyContext *x;
  Fsdp1 *f;
  StateDict *dict;
  gboolean to_host;  /* rank 0 alone gets the whole state dict, in the host's memory */
  gboolean dtensors; /* sharded by a device mesh, as hybrid sharding has one */
} Saving;

/* This rank's part, on the device: itself, or a copy (pre_unshard's flat_param_to). */
static StorageId
shard_on_device(const Saving *s, const Handle *h)
{
  StrategyContext *x = s->x;
  if (!s->x->offloads) {
    live_storage_hold(x->live, h->shard);
    return h->shard;
  }
  gint64 bytes = h->shard_elements * dtype_size(s->f->stored);
  StorageId moved = handle_allocate(x, h, bytes, STREAM_COMPUTE, CATEGORY_ALL_GATHER_BUFFER,
                                    "shard on the device");
  fsdp1_operand(x, h->shard, s->f->stored, ROLE_READ);
  fsdp1_operand(x, moved, s->f->stored, ROLE_WRITE);
  strategy_copy(x, STREAM_COMPUTE, "shard to device", (double) bytes);
  return moved;
}

/* The gathered flat parameter, in full precision: allocated and used on the compute stream.  One in
 * lower precision goes first (_get_padded_unsharded_flat_param). */
static StorageId
unshard(const Saving *s, Handle *h)
{
  StrategyContext *x = s->x;
  for (int stream = 0; stream < STREAM_HOST; stream++)
    program_builder_stream_sync(x->builder, (StreamId) stream);
  handle_reset_gradient(x, h);
  if (!fsdp1_shards(s->f)) {
    live_storage_hold(x->live, h->shard);
    return h->shard;
  }
  StorageId shard = shard_on_device(s, h); /* even if the unit is gathered already */
  if (h->unsharded != NO_STORAGE && !fsdp1_is_mixed(s->f)) {
    live_storage_drop(x->live, shard);
    live_storage_hold(x->live, h->unsharded);
    return h->unsharded;
  }
  for (int i = 0; i < h->count; i++)
    x->parameters[h->parameter[i]].unsharded = NO_STORAGE;
  live_storage_clear(x->live, &h->unsharded);
  StorageId full =
      handle_allocate(x, h, h->unsharded_elements * dtype_size(s->f->stored), STREAM_COMPUTE,
                      CATEGORY_UNSHARDED_PARAMETER, "unsharded flat parameter in full");
  program_builder_host_work(x->builder, HOST_WORK_COLLECTIVE_CALL, 1);
  fsdp1_operand(x, shard, s->f->stored, ROLE_READ);
  fsdp1_operand(x, full, s->f->stored, ROLE_WRITE);
  handle_collective(x, h, COLLECTIVE_ALL_GATHER, s->f->shard_communicator, STREAM_COMPUTE,
                    s->f->stored, h->unsharded_elements);
  live_storage_drop(x->live, shard);
  return full;
}

static StorageId
clone(const Saving *s, const Handle *h, StorageId from, gint64 elements)
{
  StrategyContext *x = s->x;
  gint64 bytes = elements * dtype_size(s->f->stored);
  StorageId copy = handle_allocate(x, h, bytes, STREAM_COMPUTE, CATEGORY_UNSHARDED_PARAMETER,
                                   "clone for the state dict");
  fsdp1_operand(x, from, s->f->stored, ROLE_READ);
  fsdp1_operand(x, copy, s->f->stored, ROLE_WRITE);
  strategy_launch(x, STREAM_COMPUTE, "clone", 2.0 * (double) bytes);
  return copy;
}

/* A clone of a parameter of the gathered unit, whole or of this rank's rows (_ext_chunk_tensor);
 * for a DTensor these are cloned from a clone of the whole (_ext_chunk_dtensor). */
static void
add_clone(const Saving *s, const Handle *h, StorageId full, int parameter)
{
  StrategyContext *x = s->x;
  const Parameter *p = network_parameter(x->network, parameter);
  gint64 elements = s->dict->full ? p->elements : shard_of(p, s->f->ranks, x->rank).local_elements;
  StateTensor tensor = {
      .bytes = elements * dtype_size(s->f->stored), .dtype = s->f->stored, .parameter = parameter};
  if (s->dtensors) {
    StorageId whole = clone(s, h, full, p->elements);
    tensor.storage = clone(s, h, whole, elements);
    live_storage_drop(x->live, whole);
  } else
    tensor.storage = clone(s, h, full, elements);
  state_dict_add(x, s->dict, &tensor);
}

/* Parameters as a state dict names them: the handle's, then tied ones under their other names. */
static int
names_of(const Saving *s, const Handle *h)
{
  int names = h->count;
  for (int i = 0; i < h->count; i++)
    names += network_ties_of(s->x->network, h->parameter[i]);
  return names;
}

static gboolean
has_parameter(const Handle *h, int parameter)
{
  for (int i = 0; i < h->count; i++)
    if (h->parameter[i] == parameter)
      return TRUE;
  return FALSE;
}

static int
named(const Saving *s, const Handle *h, int name)
{
  const Network *n = s->x->network;
  if (name < h->count)
    return h->parameter[name];
  for (guint i = 0, left = (guint) (name - h->count); i < n->ties->len; i++) {
    const Tie *tie = network_tie(n, (int) i);
    if (tie->module >= 0 && has_parameter(h, tie->parameter) && left-- == 0)
      return tie->parameter;
  }
  g_assert_not_reached();
}

static void
add_clones(const Saving *s, const Handle *h, StorageId full)
{
  for (int i = 0; i < names_of(s, h); i++)
    add_clone(s, h, full, named(s, h, i));
}

static void
move(const Saving *s, const Handle *h, StorageId device, StorageId host, gboolean back)
{
  StrategyContext *x = s->x;
  DType dtype = s->f->stored;
  fsdp1_operand(x, back ? host : device, dtype, ROLE_READ);
  fsdp1_operand(x, back ? device : host, dtype, ROLE_WRITE);
  strategy_copy(x, STREAM_COMPUTE, back ? "flat parameter to device" : "flat parameter to host",
                (double) h->unsharded_elements * dtype_size(dtype));
  program_builder_stream_sync(x->builder, STREAM_COMPUTE);
}

/* handle.to_cpu(): the gathered unit moves to the host, where its parameters are copied from, and
 * comes back for a moment at the end.  Ranks that keep nothing let it go at once. */
static StorageId
begin_on_host(const Saving *s, Handle *h)
{
  StrategyContext *x = s->x;
  StorageId full = unshard(s, h), host = NO_STORAGE;
  h->stays = fsdp1_shards(s->f) && full == h->unsharded;
  if (s->dict->keeps) {
    gint64 bytes = h->unsharded_elements * dtype_size(s->f->stored);
    StoragePurpose purpose = {CATEGORY_OTHER, -1,
                              program_builder_name(x->builder, "unsharded flat parameter")};
    host = live_storage_alloc_in(x->live, SPACE_HOST, bytes, STREAM_COMPUTE, purpose);
    move(s, h, full, host, FALSE);
    if (full == h->unsharded)
      live_storage_clear(x->live, &h->unsharded);
  }
  live_storage_drop(x->live, full);
  return host;
}

static void
end_on_host(const Saving *s, Handle *h, StorageId host)
{
  StrategyContext *x = s->x;
  for (int i = 0; i < h->count; i++) {
    StateTensor tensor = {.parameter = h->parameter[i], .dtype = s->f->stored};
    tensor.bytes =
        network_parameter(x->network, h->parameter[i])->elements * dtype_size(s->f->stored);
    tensor.storage = NO_STORAGE;
    if (s->dict->keeps)
      tensor.storage = live_storage_alloc_in(x->live, SPACE_HOST, tensor.bytes, STREAM_COMPUTE,
                                             parameter_purpose(x, h->parameter[i], CATEGORY_OTHER));
    state_dict_add(x, s->dict, &tensor);
  }
  if (host == NO_STORAGE)
    return;
  StorageId full =
      handle_allocate(x, h, h->unsharded_elements * dtype_size(s->f->stored), STREAM_COMPUTE,
                      CATEGORY_UNSHARDED_PARAMETER, "unsharded flat parameter in full");
  move(s, h, full, host, TRUE);
  live_storage_drop(x->live, host);
  if (!h->stays) {
    live_storage_drop(x->live, full);
    return;
  }
  h->unsharded = full;
  for (int i = 0; i < h->count; i++)
    x->parameters[h->parameter[i]].unsharded = full;
}

static StorageId
begin(const Saving *s, Handle *h)
{
  if (h->count == 0)
    return NO_STORAGE;
  return s->to_host ? begin_on_host(s, h) : unshard(s, h);
}

static void
end(const Saving *s, Handle *h, StorageId full)
{
  if (h->count == 0)
    return;
  if (s->to_host) {
    end_on_host(s, h, full);
    return;
  }
  add_clones(s, h, full);
  live_storage_drop(s->x->live, full);
}

/* Visits the units inside of one; a visit returns the first unit that is not inside of it.  So does
 * this. */
static int
visit_inside(const Saving *s, int index, int (*visit)(const Saving *s, int index))
{
  const Fsdp1 *f = s->f;
  int module = g_array_index(f->handles[index].unit->modules, int, 0), next = index + 1;
  while (next < f->count &&
         strategy_module_contains(s->x->network, module,
                                  g_array_index(f->handles[next].unit->modules, int, 0)))
    next = visit(s, next);
  return next;
}

/* A unit is there while those inside of it are saved.  Returns the first one outside. */
static int
save_unit(const Saving *s, int index)
{
  Fsdp1 *f = s->f;
  Handle *h = &f->handles[index];
  StorageId full = begin(s, h);
  int next = visit_inside(s, index, save_unit);
  end(s, h, full);
  return next;
}

void
fsdp1_save_model(StrategyContext *x, StateDict *dict)
{
  Fsdp1 *f = fsdp1_of(x);
  const Saving s = {.x = x,
                    .f = f,
                    .dict = dict,
                    .to_host = dict->full && dict->offload && fsdp1_shards(f),
                    .dtensors = !dict->full && fsdp1_is_hybrid(f->strategy)};
  gboolean offload = dict->offload, moves = offload && !s.to_host && !s.dtensors;
  dict->offload = offload && s.dtensors; /* each as soon as it is made */
  save_unit(&s, 0);
  if (moves)
    state_dict_offload(x, dict);
  dict->offload = offload;
}

/* ---- loading (_sharded_pre_load_state_dict_hook and its post hook) ---- */

/* This rank's rows of a parameter, from the state dict that was read into. */
static StorageId
rows_of(const StateDict *dict, int parameter)
{
  for (guint i = 0; i < dict->kept->len; i++) {
    const StateTensor *tensor = &g_array_index(dict->kept, StateTensor, i);
    if (tensor->parameter == parameter)
      return tensor->storage;
  }
  return NO_STORAGE;
}

/* All rows of a parameter from all ranks; short ones are padded for it, in a variable that lives on
 * until it is bound to the next parameter's, but not for a DTensor (_redistribute.py). */
static StorageId
gather_rows(const Saving *s, const Handle *h, int parameter, StorageId *local)
{
  StrategyContext *x = s->x;
  const Shard shard = shard_of(network_parameter(x->network, parameter), s->f->ranks, x->rank);
  int size = dtype_size(s->f->stored);
  StorageId rows = rows_of(s->dict, parameter), padded = NO_STORAGE;
  live_storage_clear(x->live, local);
  if (shard.local_elements < shard.padded_elements) {
    padded = handle_allocate(x, h, shard.padded_elements * size, STREAM_COMPUTE, CATEGORY_TEMPORARY,
                             "padded rows");
    fsdp1_operand(x, rows, s->f->stored, ROLE_READ);
    fsdp1_operand(x, padded, s->f->stored, ROLE_WRITE);
    strategy_launch(x, STREAM_COMPUTE, "pad", 2.0 * (double) shard.padded_elements * size);
  }
  StorageId whole = handle_allocate(x, h, shard.full_elements * size, STREAM_COMPUTE,
                                    CATEGORY_UNSHARDED_PARAMETER, "gathered rows");
  program_builder_host_work(x->builder, HOST_WORK_COLLECTIVE_CALL, 1);
  fsdp1_operand(x, padded != NO_STORAGE ? padded : rows, s->f->stored, ROLE_READ);
  fsdp1_operand(x, whole, s->f->stored, ROLE_WRITE);
  handle_collective(x, h, COLLECTIVE_ALL_GATHER, s->f->shard_communicator, STREAM_COMPUTE,
                    s->f->stored, shard.full_elements);
  if (s->dtensors)
    live_storage_clear(x->live, &padded);
  *local = padded;
  return whole;
}

/* What was gathered is copied into the gathered flat parameter, and that into the shard. */
static void
write_back(const Saving *s, Handle *h, StorageId full, const StorageId *rows)
{
  StrategyContext *x = s->x;
  double size = dtype_size(s->f->stored);
  for (int i = 0; i < names_of(s, h); i++) {
    fsdp1_operand(x, rows[i], s->f->stored, ROLE_READ);
    fsdp1_operand(x, full, s->f->stored, ROLE_ACCUMULATE);
    strategy_launch(x, STREAM_COMPUTE, "copy",
                    2 * size * (double) network_parameter(x->network, named(s, h, i))->elements);
  }
  if (full != h->shard) {
    fsdp1_operand(x, full, s->f->stored, ROLE_READ);
    fsdp1_operand(x, h->shard, s->f->stored, ROLE_WRITE);
    if (s->x->offloads)
      strategy_copy(x, STREAM_COMPUTE, "shard to host", size * (double) h->shard_elements);
    else
      strategy_launch(x, STREAM_COMPUTE, "copy", 2 * size * (double) h->shard_elements);
  }
  live_storage_drop(x->live, full);
  for (int i = 0; i < names_of(s, h); i++)
    live_storage_drop(x->live, rows[i]);
}

static int
load_unit(const Saving *s, int index)
{
  Fsdp1 *f = s->f;
  Handle *h = &f->handles[index];
  g_autofree StorageId *rows = g_new(StorageId, MAX(names_of(s, h), 1));
  StorageId local = NO_STORAGE;
  for (int i = 0; i < names_of(s, h); i++)
    rows[i] = gather_rows(s, h, named(s, h, i), &local);
  StorageId full = h->count > 0 ? unshard(s, h) : NO_STORAGE;
  live_storage_clear(s->x->live, &local);
  int next = visit_inside(s, index, load_unit);
  if (h->count > 0)
    write_back(s, h, full, rows);
  return next;
}

static void
initialize(StrategyContext *x, Fsdp1 *f)
{
  for (int i = 0; i < f->count && !f->initialized; i++)
    if (f->handles[i].count > 0)
      handle_lazy_init(x, &f->handles[i]);
  f->initialized = TRUE;
}

/* Parameters that are whole are copied into (nn.Module._load_from_state_dict). */
static void
load_whole(const Saving *s)
{
  StrategyContext *x = s->x;
  for (int i = 0; i < s->f->count; i++) {
    Handle *h = &s->f->handles[i];
    for (int k = 0; k < names_of(s, h); k++) {
      int parameter = named(s, h, k);
      gint64 elements = network_parameter(x->network, parameter)->elements;
      fsdp1_operand(x, rows_of(s->dict, parameter), s->f->stored, ROLE_READ);
      fsdp1_operand(x, h->shard, s->f->stored, ROLE_ACCUMULATE);
      strategy_launch(x, STREAM_COMPUTE, "copy",
                      2.0 * (double) elements * dtype_size(s->f->stored));
    }
  }
}

gint64
fsdp1_load_model(StrategyContext *x)
{
  Fsdp1 *f = fsdp1_of(x);
  StateDict *dict = state_dict_new(!fsdp1_shards(f), FALSE, x->global_rank);
  const Saving s = {.x = x, .f = f, .dict = dict, .dtensors = fsdp1_is_hybrid(f->strategy)};
  initialize(x, f);
  fsdp1_save_model(x, dict);
  state_dict_read(x, dict);
  gint64 bytes = dict->bytes;
  if (fsdp1_shards(f))
    load_unit(&s, 0);
  else
    load_whole(&s);
  state_dict_free(x, dict);
  return bytes;
}

/* _full_pre_load_state_dict_hook gathers a unit for writing, its post hook writes it back; in
 * between are those inside of it. */
static int
load_full_unit(const Saving *s, int index)
{
  Fsdp1 *f = s->f;
  Handle *h = &f->handles[index];
  int n = names_of(s, h);
  g_autofree StorageId *whole = g_new(StorageId, MAX(n, 1));
  StorageId full = h->count > 0 ? unshard(s, h) : NO_STORAGE;
  int next = visit_inside(s, index, load_full_unit);
  for (int i = 0; i < n; i++) {
    whole[i] = rows_of(s->dict, named(s, h, i));
    live_storage_hold(s->x->live, whole[i]);
  }
  if (h->count > 0)
    write_back(s, h, full, whole);
  return next;
}

void
fsdp1_load_full(StrategyContext *x, StateDict *dict)
{
  Fsdp1 *f = fsdp1_of(x);
  const Saving s = {.x = x, .f = f, .dict = dict};
  initialize(x, f);
  load_full_unit(&s, 0);
}

/* ---- who holds what ---- */

/* "When using NO_SHARD for ShardingStrategy, full_state_dict will be returned"
 * (_post_state_dict_hook). */
gboolean
fsdp1_state_is_whole(const StrategyContext *x)
{
  return !fsdp1_shards(fsdp1_of(x));
}

int
fsdp1_state_ranks(const StrategyContext *x)
{
  const Fsdp1 *f = fsdp1_of(x);
  return fsdp1_shards(f) ? f->ranks : 1;
}

/* A parameter lies in the flat one from `begin` on: cuts it where shares end. */
static void
add_slices(StateLayout *layout, const Handle *h, gint32 parameter, gint64 begin, gint64 elements)
{
  for (int rank = 0; rank < layout->ranks; rank++) {
    gint64 first = MAX(begin, rank * h->shard_elements);
    gint64 last = MIN(begin + elements, (rank + 1) * h->shard_elements);
    state_layout_add(layout, rank, (StateRange){parameter, first - begin, last - first});
  }
}

/* Equal shares of each flat parameter, wherever they fall; padding belongs to no parameter. */
void
fsdp1_state_ranges(const StrategyContext *x, StateLayout *layout)
{
  const Fsdp1 *f = fsdp1_of(x);
  for (int i = 0; i < f->count; i++) {
    const Handle *h = &f->handles[i];
    gint64 begin = 0;
    for (guint k = 0; k < h->pieces->len; k++) {
      const Piece *piece = &g_array_index(h->pieces, Piece, k);
      if (piece->position >= 0)
        add_slices(layout, h, h->parameter[piece->position], begin, piece->elements);
      begin += piece->elements;
    }
  }
}
