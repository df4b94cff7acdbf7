/* fsdp1_optimizer_state.c - the optimizer's state dict under FSDP1 with use_orig_params: unit by
 * unit, each state is gathered like the flat parameter, then cut into those of its parameters,
 * whole or this rank's rows (torch/distributed/fsdp/_optim_utils.py,
 * _allgather_orig_param_states). */
#include "strategy/fsdp1_private.h"
#include "strategy/shard.h"
#include "strategy/state_dict.h"

typedef struct {
  StrategyContext *x;
  const Fsdp1 *f;
  StateDict *dict;
  const Handle *h;
  StorageId gathered; /* of one state after another */
  StorageId local;    /* this rank's part of it */
  GArray *paddings;   /* StorageId */
} Gathering;

static gboolean
trains(const StrategyContext *x, int parameter)
{
  return network_parameter(x->network, parameter)->trainable;
}

static gboolean
unit_trains(const StrategyContext *x, const Handle *h)
{
  for (int i = 0; i < h->count; i++)
    if (trains(x, h->parameter[i]))
      return TRUE;
  return FALSE;
}

/* ---- the order of units ---- */

static const char *
first_name(const StrategyContext *x, const Handle *h)
{
  const char *first = NULL;
  for (int i = 0; i < h->count; i++) {
    const char *name = network_parameter(x->network, h->parameter[i])->name;
    if (trains(x, h->parameter[i]) && (first == NULL || g_strcmp0(name, first) < 0))
      first = name;
  }
  return first;
}

typedef struct {
  const Handle *handle;
  const char *name;
} Named;

static int
compare_names(gconstpointer a, gconstpointer b)
{
  return g_strcmp0(((const Named *) a)->name, ((const Named *) b)->name);
}

/* By the names of their parameters (_map_param_key_to_optim_keys sorts them). */
static GArray *
units_by_name(const StrategyContext *x, const Fsdp1 *f)
{
  GArray *units = g_array_new(FALSE, FALSE, sizeof(Named));
  for (int i = 0; i < f->count; i++) {
    Named named = {&f->handles[i], first_name(x, &f->handles[i])};
    if (unit_trains(x, &f->handles[i]))
      g_array_append_val(units, named);
  }
  g_array_sort(units, compare_names);
  return units;
}

/* ---- one state of a unit ---- */

static void
drop_paddings(Gathering *g)
{
  for (guint i = 0; i < g->paddings->len; i++)
    live_storage_drop(g->x->live, g_array_index(g->paddings, StorageId, i));
  g_array_set_size(g->paddings, 0);
}

static StorageId
allocate(const Gathering *g, gint64 elements, const char *what)
{
  return handle_allocate(g->x, g->h, elements * dtype_size(g->f->stored), STREAM_COMPUTE,
                         CATEGORY_OPTIMIZER_STATE, what);
}

/* What of the flat parameter belongs to none, or to one that does not train, is filled up. */
static void
make_paddings(Gathering *g)
{
  const Handle *h = g->h;
  gint64 first = g->x->rank * h->shard_elements, end = first + h->shard_elements, begin = 0;
  for (guint i = 0; i < h->pieces->len; i++) {
    const Piece *piece = &g_array_index(h->pieces, Piece, i);
    gint64 overlap = MIN(begin + piece->elements, end) - MAX(begin, first);
    gboolean padding = piece->position < 0 || !trains(g->x, h->parameter[piece->position]);
    begin += piece->elements;
    if (!padding || overlap <= 0)
      continue;
    StorageId filled = allocate(g, overlap, "padding of a state");
    g_array_append_val(g->paddings, filled);
  }
  if (end <= begin)
    return;
  StorageId filled = allocate(g, end - MAX(begin, first), "padding of a state");
  g_array_append_val(g->paddings, filled);
}

/* torch.cat of this rank's states; the variable holds the one before until then. */
static void
concatenate(Gathering *g, const StorageId *states)
{
  StrategyContext *x = g->x;
  StorageId local = allocate(g, g->h->shard_elements, "states of a unit");
  for (int i = 0; i < g->h->count; i++)
    fsdp1_operand(x, states[g->h->parameter[i]], g->f->stored, ROLE_READ);
  fsdp1_operand(x, local, g->f->stored, ROLE_WRITE);
  strategy_launch(x, STREAM_COMPUTE, "cat",
                  2.0 * (double) g->h->shard_elements * dtype_size(g->f->stored));
  live_storage_drop(x->live, g->local);
  g->local = local;
}

static void
gather(Gathering *g)
{
  StrategyContext *x = g->x;
  program_builder_stream_sync(x->builder, STREAM_COMPUTE);
  program_builder_host_work(x->builder, HOST_WORK_COLLECTIVE_CALL, 1);
  fsdp1_operand(x, g->local, g->f->stored, ROLE_READ);
  fsdp1_operand(x, g->gathered, g->f->stored, ROLE_WRITE);
  handle_collective(x, g->h, COLLECTIVE_ALL_GATHER, g->f->shard_communicator, STREAM_COMPUTE,
                    g->f->stored, g->h->unsharded_elements);
  program_builder_stream_sync(x->builder, STREAM_COMPUTE);
}

/* ---- what becomes of it ---- */

static StorageId
clone(const Gathering *g, StorageId from, int parameter, gint64 elements)
{
  StrategyContext *x = g->x;
  gint64 bytes = elements * dtype_size(g->f->stored);
  StorageId copy = live_storage_alloc(x->live, bytes, STREAM_COMPUTE,
                                      parameter_purpose(x, parameter, CATEGORY_OPTIMIZER_STATE));
  fsdp1_operand(x, from, g->f->stored, ROLE_READ);
  fsdp1_operand(x, copy, g->f->stored, ROLE_WRITE);
  strategy_launch(x, STREAM_COMPUTE, "clone", 2.0 * (double) bytes);
  return copy;
}

/* Hybrid sharding's rows are DTensors, cloned from a clone of the whole (_ext_chunk_dtensor). */
static StorageId
clone_rows(const Gathering *g, int parameter, gint64 elements)
{
  if (!fsdp1_is_hybrid(g->f->strategy))
    return clone(g, g->gathered, parameter, elements);
  gint64 all = network_parameter(g->x->network, parameter)->elements;
  StorageId whole = clone(g, g->gathered, parameter, all);
  StorageId rows = clone(g, whole, parameter, elements);
  live_storage_drop(g->x->live, whole);
  return rows;
}

static StorageId
copy_to_host(const Gathering *g, int parameter, gint64 elements)
{
  StrategyContext *x = g->x;
  gint64 bytes = elements * dtype_size(g->f->stored);
  StorageId host = live_storage_alloc_in(x->live, SPACE_HOST, bytes, STREAM_COMPUTE,
                                         parameter_purpose(x, parameter, CATEGORY_OPTIMIZER_STATE));
  state_copy(x, g->gathered, host, g->f->stored, bytes);
  return host;
}

static void
add_state(const Gathering *g, int parameter)
{
  StrategyContext *x = g->x;
  const StateDict *dict = g->dict;
  const Parameter *p = network_parameter(x->network, parameter);
  gint64 elements = dict->full ? p->elements : shard_of(p, g->f->ranks, x->rank).local_elements;
  StateTensor tensor = {.storage = NO_STORAGE, .dtype = g->f->stored, .parameter = parameter};
  tensor.bytes = elements * dtype_size(g->f->stored);
  if (dict->keeps && dict->full && dict->offload)
    tensor.storage = copy_to_host(g, parameter, elements);
  else if (dict->keeps && dict->full)
    tensor.storage = clone(g, g->gathered, parameter, elements);
  else if (dict->keeps)
    tensor.storage = clone_rows(g, parameter, elements);
  state_dict_add(x, g->dict, &tensor);
}

static void
save_unit(Gathering *g, int moments, const StorageId *const *states)
{
  g->gathered = allocate(g, g->h->unsharded_elements, "gathered states of a unit");
  program_builder_stream_sync(g->x->builder, STREAM_COMPUTE);
  for (int k = 0; k < moments; k++) {
    drop_paddings(g);
    make_paddings(g);
    concatenate(g, states[k]);
    gather(g);
    for (int i = 0; i < g->h->count; i++)
      if (trains(g->x, g->h->parameter[i]))
        add_state(g, g->h->parameter[i]);
  }
  drop_paddings(g);
  live_storage_clear(g->x->live, &g->local);
  live_storage_clear(g->x->live, &g->gathered);
}

/* Without sharding the states are the state dict's themselves (_gather_all_orig_param_state). */
static void
save_whole(StrategyContext *x, StateDict *dict, int moments, const StorageId *const *states)
{
  for (guint i = 0; i < x->network->parameters->len; i++)
    for (int k = 0; k < moments && trains(x, (int) i); k++) {
      StateTensor tensor = {
          .storage = states[k][i], .dtype = fsdp1_of(x)->stored, .parameter = (gint32) i};
      tensor.bytes =
          network_parameter(x->network, (int) i)->elements * dtype_size(fsdp1_of(x)->stored);
      live_storage_hold(x->live, tensor.storage);
      state_dict_add(x, dict, &tensor);
    }
}

void
fsdp1_save_optimizer(StrategyContext *x, StateDict *dict, int moments,
                     const StorageId *const *states)
{
  const Fsdp1 *f = fsdp1_of(x);
  if (!fsdp1_shards(f)) {
    save_whole(x, dict, moments, states);
    return;
  }
  g_autoptr(GArray) units = units_by_name(x, f);
  g_autoptr(GArray) paddings = g_array_new(FALSE, FALSE, sizeof(StorageId));
  for (guint i = 0; i < units->len; i++) {
    const Handle *h = g_array_index(units, Named, i).handle;
    Gathering g = {x, f, dict, h, NO_STORAGE, NO_STORAGE, paddings};
    save_unit(&g, moments, states);
  }
}
