/* zero3_gather.c - all-gathers of parameters: one buffer for several, which are then copied out of
 * it one by one; a single parameter's buffer becomes its data (partition_parameters.py,
 * all_gather_coalesced and the handles that it returns).
 *
 * Fetches are issued on a stream of their own, which allocates what they need; the collective runs
 * on NCCL's, and the first module that needs one of its parameters waits for it. */
#include "program/meaning.h"
#include "strategy/zero3_private.h"

static int
by_number(gconstpointer a, gconstpointer b)
{
  return *(const int *) a - *(const int *) b;
}

static gint64
gathered_elements(const Zero3 *z, int parameter)
{
  return z->parameter[parameter].shard * z->ds.ranks;
}

/* ---- buffers ---- */

static StorageId
allocate_own(StrategyContext *x, int parameter, StreamId stream, Category category)
{
  Zero3 *z = zero3_of(x);
  return live_storage_alloc(x->live, gathered_elements(z, parameter) * z->ds.element, stream,
                            parameter_purpose(x, parameter, category));
}

static StorageId
allocate_shared(StrategyContext *x, const Gather *g, gint64 elements)
{
  Zero3 *z = zero3_of(x);
  StoragePurpose purpose = parameter_purpose(x, g->parameter[0], CATEGORY_ALL_GATHER_BUFFER);
  purpose.what = program_builder_name(x->builder, "gathered parameters");
  return live_storage_alloc(x->live, elements * z->ds.element, z->stream, purpose);
}

/* ---- issue ---- */

static void
issue_collective(StrategyContext *x, const Gather *g, CollectiveKind kind, gint64 elements)
{
  Zero3 *z = zero3_of(x);
  const Unit *unit = g_ptr_array_index(x->units, (guint) z->parameter[g->parameter[0]].unit);
  if (z->ds.ranks == 1) {
    strategy_launch(x, STREAM_ALL_GATHER, "copy", 2.0 * (double) (elements * z->ds.element));
    return;
  }
  program_builder_collective(
      x->builder, STREAM_ALL_GATHER,
      &(Collective){.kind = (guint8) kind,
                    .dtype = (guint8) z->ds.model,
                    .communicator = g->secondary ? z->secondary_communicator : z->ds.communicator,
                    .name = program_builder_name(x->builder, unit->name),
                    .bytes = elements * z->ds.element});
  z->gathered_elements += elements;
}

/* The parameter's shard as an operand: where it is, or (copy) on its way from the host. */
static void
shard_operand(StrategyContext *x, const Gather *g, int i, StorageId copy)
{
  if (copy != NO_STORAGE)
    zero3_operand(x, copy, zero3_of(x)->ds.model, ROLE_READ);
  else
    zero3_shard(x, g->parameter[i], g->secondary);
}

/* An all-gather of the i-th parameter into a buffer of its own. */
static void
gather_one(StrategyContext *x, const Gather *g, int i, StorageId copy)
{
  Zero3 *z = zero3_of(x);
  program_builder_host_work(x->builder, HOST_WORK_COLLECTIVE_CALL, 1);
  shard_operand(x, g, i, copy);
  zero3_operand(x, g->buffer[i], z->ds.model, ROLE_WRITE);
  issue_collective(x, g, COLLECTIVE_ALL_GATHER, gathered_elements(z, g->parameter[i]));
}

static gint32
collective_done(StrategyContext *x)
{
  gint32 done = program_builder_event(x->builder);
  program_builder_record(x->builder, STREAM_ALL_GATHER, done);
  return done;
}

static void
issue_separate(StrategyContext *x, Gather *g)
{
  Zero3 *z = zero3_of(x);
  g->separate = TRUE;
  for (int i = 0; i < g->count; i++) {
    g->buffer[i] = allocate_own(x, g->parameter[i], z->stream, CATEGORY_UNSHARDED_PARAMETER);
    StorageId copy = offload_shard(x, g->parameter[i], g->secondary, z->stream);
    zero3_wait_stream(x, STREAM_ALL_GATHER, z->stream);
    gather_one(x, g, i, copy);
    offload_drop_shard(x, copy, STREAM_ALL_GATHER);
  }
  g->done = collective_done(x);
}

/* Own shards are copied into their places in the buffer; what came from the host for it goes. */
static void
fill_buffer(StrategyContext *x, const Gather *g, gint64 shard)
{
  Zero3 *z = zero3_of(x);
  int place = g->secondary ? z->ds.rank % z->ds.secondary_ranks : z->ds.rank;
  g_autofree StorageId *copy = g_new(StorageId, g->count);
  for (int i = 0; i < g->count; i++)
    copy[i] = g->views ? NO_STORAGE : offload_shard(x, g->parameter[i], g->secondary, z->stream);
  for (int i = 0; i < g->count; i++)
    shard_operand(x, g, i, copy[i]);
  if (g->views)
    zero3_operand(x, g->buffer[0], z->ds.model, ROLE_WRITE);
  else
    zero3_part(x, g->buffer[0], place * shard, shard, z->ds.model, ROLE_WRITE);
  g_autofree char *meaning = meaning_text("parts_in_zeros", 1, "ranks", (double) z->ds.ranks);
  strategy_launch_as(x, z->stream, "cat", 2.0 * (double) (shard * z->ds.element),
                     g->views ? meaning : NULL);
  for (int i = g->count - 1; i >= 0; i--)
    live_storage_drop(x->live, copy[i]);
}

/* The buffer is gathered in place, or - where parameters lie whole in it and the rest is zero -
 * summed. */
static void
issue_coalesced(StrategyContext *x, Gather *g)
{
  Zero3 *z = zero3_of(x);
  int ranks = g->secondary ? z->ds.secondary_ranks : z->ds.ranks;
  gint64 shard = 0;
  for (int i = 0; i < g->count; i++)
    shard += zero3_shard_elements(z, g->parameter[i], g->secondary);
  g->views = z->ds.all_reduce_for_fetch && !g->secondary;
  g->buffer[0] = allocate_shared(x, g, shard * ranks);
  fill_buffer(x, g, shard);
  zero3_wait_stream(x, STREAM_ALL_GATHER, z->stream);
  program_builder_host_work(x->builder, HOST_WORK_COLLECTIVE_CALL, 1);
  zero3_operand(x, g->buffer[0], z->ds.model, ROLE_ACCUMULATE);
  issue_collective(x, g, g->views ? COLLECTIVE_ALL_REDUCE : COLLECTIVE_ALL_GATHER, shard * ranks);
  g->done = collective_done(x);
}

/* One rank's shard is the parameter: a copy of it if it is on the host, else NO_STORAGE. */
static StorageId
shard_as_data(StrategyContext *x, int parameter, StreamId stream, Category category)
{
  StorageId copy = offload_shard(x, parameter, FALSE, stream);
  if (copy != NO_STORAGE)
    live_storage_set_purpose(x->live, copy, parameter_purpose(x, parameter, category));
  return copy;
}

/* NoGatherHandle. */
static void
issue_nothing(StrategyContext *x, Gather *g)
{
  Zero3 *z = zero3_of(x);
  g->views = !offload_is_parameters(z);
  g->separate = !g->views;
  for (int i = 0; i < g->count; i++)
    g->buffer[i] = shard_as_data(x, g->parameter[i], z->stream, CATEGORY_UNSHARDED_PARAMETER);
}

static Gather *
gather_new(Zero3 *z, const GArray *parameters, gboolean secondary)
{
  Gather *g = g_new0(Gather, 1);
  g->parameter = g_new(int, parameters->len);
  g->buffer = g_new(StorageId, parameters->len);
  g->secondary = secondary;
  g->done = -1;
  for (guint i = 0; i < parameters->len; i++) {
    int index = g_array_index(parameters, int, i);
    if ((z->parameter[index].secondary != NO_STORAGE) != secondary)
      continue;
    g->buffer[g->count] = NO_STORAGE;
    g->parameter[g->count++] = index;
  }
  g->registered = g->count;
  return g;
}

static void
gather_free(Gather *g)
{
  g_free(g->buffer);
  g_free(g->parameter);
  g_free(g);
}

static void
issue(StrategyContext *x, Gather *g)
{
  Zero3 *z = zero3_of(x);
  for (int i = 0; i < g->count; i++) {
    Zero3Parameter *p = &z->parameter[g->parameter[i]];
    g_assert(p->state == PARAMETER_RELEASED && p->gather == NULL);
    p->state = PARAMETER_IN_FLIGHT;
    p->gather = g;
    z->trace.available += p->elements;
  }
  if (z->ds.ranks == 1)
    issue_nothing(x, g);
  else if (g->count == 1 || z->ds.allgather_sequential)
    issue_separate(x, g);
  else
    issue_coalesced(x, g);
}

/* Those that have a secondary shard are gathered from that, first. */
void
gather_issue(StrategyContext *x, GArray *parameters)
{
  Zero3 *z = zero3_of(x);
  g_array_sort(parameters, by_number);
  for (int secondary = 1; secondary >= 0; secondary--) {
    Gather *g = gather_new(z, parameters, secondary);
    if (g->count > 0)
      issue(x, g);
    else
      gather_free(g);
  }
}

/* ---- wait ---- */

/* A copy of the i-th parameter out of the gathered pieces; of all that was gathered, so many
 * elements are those of parameters before it. */
static StorageId
copy_out(StrategyContext *x, const Gather *g, int i, gint64 first, StreamId stream)
{
  Zero3 *z = zero3_of(x);
  int parameter = g->parameter[i], ranks = g->secondary ? z->ds.secondary_ranks : z->ds.ranks;
  gint64 part = live_storage_bytes(x->live, g->buffer[0]) / z->ds.element / ranks;
  gint64 bytes = z->parameter[parameter].elements * z->ds.element;
  StorageId made = live_storage_alloc(
      x->live, bytes, stream, parameter_purpose(x, parameter, CATEGORY_UNSHARDED_PARAMETER));
  zero3_operand(x, g->buffer[0], z->ds.model, ROLE_READ);
  zero3_operand(x, made, z->ds.model, ROLE_WRITE);
  g_autofree char *meaning = meaning_text(
      "gathered_parts", 4, "ranks", (double) ranks, "part", (double) part, "first",
      (double) (first / ranks), "each", (double) zero3_shard_elements(z, parameter, g->secondary));
  strategy_launch_as(x, stream, "cat", 2.0 * (double) bytes, meaning);
  return made;
}

static void
set_data(StrategyContext *x, int parameter, StorageId data, gint64 offset)
{
  x->parameters[parameter].unsharded = data;
  x->parameters[parameter].offset = offset;
  zero3_of(x)->parameter[parameter].state = PARAMETER_AVAILABLE;
}

static void
wait_for(StrategyContext *x, Gather *g, StreamId stream)
{
  Zero3 *z = zero3_of(x);
  gint64 offset = 0;
  g->waited = TRUE;
  if (g->done >= 0)
    program_builder_wait(x->builder, stream, g->done);
  else
    program_builder_stream_sync(x->builder, stream);
  for (int i = 0; i < g->count; i++) {
    int index = g->parameter[i];
    gint64 first = offset;
    StorageId shared = z->ds.ranks == 1 ? zero3_shard_storage(x, index, &first) : g->buffer[0];
    if (g->separate) {
      set_data(x, index, g->buffer[i], 0);
    } else if (g->views) {
      live_storage_hold(x->live, shared);
      set_data(x, index, shared, first);
    } else {
      set_data(x, index, copy_out(x, g, i, first, stream), 0);
    }
    offset += gathered_elements(z, index);
  }
}

void
gather_finish(StrategyContext *x, int parameter, StreamId stream)
{
  Zero3Parameter *p = &zero3_of(x)->parameter[parameter];
  Gather *g = p->gather;
  p->gather = NULL;
  if (!g->waited)
    wait_for(x, g, stream);
  if (--g->registered > 0)
    return;
  if (!g->separate) /* nobody knows the handle any more */
    live_storage_drop(x->live, g->buffer[0]);
  gather_free(g);
}

void
gather_forget(Zero3Parameter *p)
{
  if (p->gather != NULL && --p->gather->registered == 0)
    gather_free(p->gather);
  p->gather = NULL;
}

/* ---- release ---- */

/* free_param: the memory may be used again once what the compute stream has been given is done. */
void
gather_release(StrategyContext *x, int parameter)
{
  Zero3 *z = zero3_of(x);
  Zero3Parameter *p = &z->parameter[parameter];
  StorageId *data = &x->parameters[parameter].unsharded;
  if (p->state != PARAMETER_AVAILABLE || p->users != 0)
    return;
  secondary_keep(x, parameter);
  if (live_storage_stream(x->live, *data) != STREAM_COMPUTE)
    program_builder_record_stream(x->builder, *data, STREAM_COMPUTE);
  live_storage_clear(x->live, data);
  p->state = PARAMETER_RELEASED;
  z->trace.available -= p->elements;
}

/* ---- blocking ---- */

/* All of a gather's parameters are there, each in the buffer of its own. */
static void
set_all(StrategyContext *x, Gather *g)
{
  for (int i = 0; i < g->count; i++)
    set_data(x, g->parameter[i], g->buffer[i], 0);
}

static void
gather_sequentially(StrategyContext *x, Gather *g)
{
  for (int i = 0; i < g->count; i++) {
    g->buffer[i] = allocate_own(x, g->parameter[i], STREAM_COMPUTE, CATEGORY_PARAMETER);
    StorageId copy = offload_shard(x, g->parameter[i], FALSE, STREAM_COMPUTE);
    zero3_wait_stream(x, STREAM_ALL_GATHER, STREAM_COMPUTE);
    gather_one(x, g, i, copy);
    offload_drop_shard(x, copy, STREAM_ALL_GATHER);
  }
  set_all(x, g);
}

static void
take_shards(StrategyContext *x, const Gather *g)
{
  for (int i = 0; i < g->count; i++) {
    int p = g->parameter[i];
    StorageId copy = shard_as_data(x, p, STREAM_COMPUTE, CATEGORY_PARAMETER);
    gint64 first = 0;
    StorageId data = copy != NO_STORAGE ? copy : zero3_shard_storage(x, p, &first);
    if (copy == NO_STORAGE)
      live_storage_hold(x->live, data);
    set_data(x, p, data, first);
  }
}

/* Copies from the host are made first; the last one is a variable's too, and goes last. */
static void
gather_together(StrategyContext *x, Gather *g)
{
  g_autofree StorageId *copy = g_new(StorageId, g->count);
  for (int i = 0; i < g->count; i++)
    copy[i] = offload_shard(x, g->parameter[i], FALSE, STREAM_COMPUTE);
  for (int i = 0; i < g->count; i++)
    g->buffer[i] = allocate_own(x, g->parameter[i], STREAM_COMPUTE, CATEGORY_PARAMETER);
  zero3_wait_stream(x, STREAM_ALL_GATHER, STREAM_COMPUTE);
  for (int i = 0; i < g->count; i++)
    gather_one(x, g, i, copy[i]);
  for (int i = g->count - 2; i >= 0; i--)
    offload_drop_shard(x, copy[i], STREAM_ALL_GATHER);
  offload_drop_shard(x, copy[g->count - 1], STREAM_ALL_GATHER);
  set_all(x, g);
}

void
gather_now(StrategyContext *x, const GArray *parameters)
{
  Zero3 *z = zero3_of(x);
  Gather g = {.count = (int) parameters->len, .parameter = (int *) (void *) parameters->data};
  g.buffer = g_new(StorageId, parameters->len);
  if (g.count == 1 || z->ds.allgather_sequential)
    gather_sequentially(x, &g);
  else if (z->ds.ranks == 1)
    take_shards(x, &g);
  else
    gather_together(x, &g);
  g_free(g.buffer);
  zero3_wait_stream(x, STREAM_COMPUTE, STREAM_ALL_GATHER);
  program_builder_stream_sync(x->builder, STREAM_COMPUTE);
}
