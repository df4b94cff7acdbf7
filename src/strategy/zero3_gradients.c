/* zero3_gradients.c - gradients are copied into one bucket as they come; when it is full they are
 * reduced and each rank adds its part to the buffer that the optimizer reads (stage3.py,
 * __add_grad_to_ipg_bucket to partition_grads; coalesced_collectives.py). */
#include "base/units.h"
#include "program/meaning.h"
#include "strategy/zero3_private.h"

/* The caching allocator's smallest block, bytes. */
#define ALLOCATOR_BLOCK 512
/* Up to so many ranks every pad is a block of its own. */
#define RANKS_PADDED_ONE_BY_ONE 1024

/* ---- the bucket ---- */

static Bucketed *
bucketed_at(const Zero3 *z, int i)
{
  return &g_array_index(z->bucketed, Bucketed, i);
}

/* The gradient as the reduction reads it: in the bucket, or where backward has left it. */
static gint32
gradient_tensor(StrategyContext *x, const Bucketed *b)
{
  Zero3 *z = zero3_of(x);
  StorageId own = x->parameters[b->parameter].gradient;
  if (own != NO_STORAGE)
    return live_storage_tensor(x->live, own, z->ds.model);
  return program_builder_flat_tensor(x->builder, z->bucket, b->first,
                                     z->parameter[b->parameter].elements, z->ds.model);
}

static void
gradient_operand(StrategyContext *x, const Bucketed *b, Role role)
{
  program_builder_operand(x->builder, gradient_tensor(x, b), role);
}

/* The gradient's memory goes when the reduction stream is done with it. */
static void
drop_gradient(StrategyContext *x, int parameter)
{
  StreamId stream = zero3_of(x)->ds.reduce_stream;
  StorageId *gradient = &x->parameters[parameter].gradient;
  if (*gradient != NO_STORAGE && stream != STREAM_COMPUTE)
    program_builder_record_stream(x->builder, *gradient, stream);
  live_storage_clear(x->live, gradient);
}

void
gradients_add(StrategyContext *x, int parameter)
{
  Zero3 *z = zero3_of(x);
  StreamId stream = z->ds.reduce_stream;
  gint64 elements = z->parameter[parameter].elements;
  if (z->bucketed_elements > 0 && z->bucketed_elements + elements > z->ds.reduce_bucket)
    gradients_flush(x);
  Bucketed b = {parameter, z->bucketed_elements};
  zero3_wait_stream(x, stream, STREAM_COMPUTE);
  program_builder_host_work(x->builder, HOST_WORK_HOOK, 1);
  if (z->ds.contiguous_gradients && b.first + elements <= z->ds.reduce_bucket) {
    zero3_operand(x, x->parameters[parameter].gradient, z->ds.model, ROLE_READ);
    zero3_part(x, z->bucket, b.first, elements, z->ds.model, ROLE_WRITE);
    strategy_launch(x, stream, "copy", 2.0 * (double) (elements * z->ds.element));
    drop_gradient(x, parameter);
  }
  g_array_append_val(z->bucketed, b);
  z->bucketed_elements += elements;
}

/* ---- reductions ---- */

/* What a reduction has made: freed from the last to the first when it returns. */
typedef struct {
  GArray *made; /* StorageId */
} Results;

static StorageId
make(StrategyContext *x, Results *r, gint64 bytes, const char *what)
{
  StoragePurpose purpose = {CATEGORY_REDUCE_SCATTER_BUFFER, -1,
                            program_builder_name(x->builder, what)};
  StorageId made = live_storage_alloc(x->live, bytes, zero3_of(x)->ds.reduce_stream, purpose);
  g_array_append_val(r->made, made);
  return made;
}

static void
drop_results(StrategyContext *x, Results *r)
{
  for (guint i = r->made->len; i > 0; i--)
    live_storage_drop(x->live, g_array_index(r->made, StorageId, i - 1));
  g_array_set_size(r->made, 0);
}

static void
launch_as(StrategyContext *x, const char *name, gint64 bytes, const char *meaning)
{
  strategy_launch_as(x, zero3_of(x)->ds.reduce_stream, name, (double) bytes, meaning);
}

static void
launch(StrategyContext *x, const char *name, gint64 bytes)
{
  launch_as(x, name, bytes, NULL);
}

/* Division by the number of ranks, in place. */
static void
launch_average(StrategyContext *x, gint64 bytes)
{
  g_autofree char *meaning = meaning_text("scale_by", 1, "factor", 1.0 / zero3_of(x)->ds.ranks);
  launch_as(x, "div", bytes, meaning);
}

/* What is taken of a buffer in which every rank has a part of so many elements: this rank's, from
 * an element of it on. */
typedef struct {
  gint64 part, first;
} Taken;

static char *
taken_meaning(const StrategyContext *x, const char *formula, Taken taken)
{
  return meaning_text(formula, 3, "ranks", (double) zero3_of(x)->ds.ranks, "part",
                      (double) taken.part, "first", (double) taken.first);
}

/* Elements of a parameter that a rank's chunk has, without padding. */
static gint64
chunk_elements(const Zero3Parameter *p, gint64 rank)
{
  return CLAMP(p->elements - rank * p->shard, 0, p->shard);
}

static void
issue_collective(StrategyContext *x, CollectiveKind kind, gint64 elements)
{
  Zero3 *z = zero3_of(x);
  int first = bucketed_at(z, 0)->parameter;
  const Unit *unit = g_ptr_array_index(x->units, (guint) z->parameter[first].unit);
  if (z->ds.ranks == 1) { /* in place: nothing to do but the call */
    launch_as(x, "copy", 2 * elements * z->ds.element, "itself");
    return;
  }
  program_builder_collective(x->builder, z->ds.reduce_stream,
                             &(Collective){.kind = (guint8) kind,
                                           .dtype = (guint8) z->ds.model,
                                           .communicator = z->ds.communicator,
                                           .name = program_builder_name(x->builder, unit->name),
                                           .bytes = elements * z->ds.element});
  z->reduced_elements += elements;
}

/* Zeros for the ranks from first to before end, which all lack the same: so many of these blocks.
 */
static void
pad_ranks(StrategyContext *x, Results *padding, gint64 first, gint64 end)
{
  const Zero3 *z = zero3_of(x);
  gboolean one_block = end - first > 1;
  gint64 together = 0;
  for (guint i = 0; i < z->bucketed->len; i++) {
    const Zero3Parameter *p = &z->parameter[bucketed_at(z, (int) i)->parameter];
    gint64 missing = (p->shard - chunk_elements(p, first)) * z->ds.element;
    if (missing > 0 && !one_block)
      make(x, padding, missing, "padding of a gradient");
    together += round_up(missing, ALLOCATOR_BLOCK);
  }
  if (one_block && together > 0)
    make(x, padding, (end - first) * together, "padding of gradients");
}

static int
compare_ranks(gconstpointer a, gconstpointer b)
{
  gint64 x = *(const gint64 *) a, y = *(const gint64 *) b;
  return (x > y) - (x < y);
}

/* Ranks at which a chunk of some gradient is the first to be short, or to be missing.  Between them
 * all lack the same. */
static GArray *
ranks_where_padding_changes(const Zero3 *z)
{
  GArray *ranks = g_array_new(FALSE, FALSE, sizeof(gint64));
  const gint64 ends[] = {0, z->ds.ranks};
  g_array_append_vals(ranks, ends, G_N_ELEMENTS(ends));
  for (guint i = 0; i < z->bucketed->len; i++) {
    const Zero3Parameter *p = &z->parameter[bucketed_at(z, (int) i)->parameter];
    gint64 whole = p->elements / p->shard;
    const gint64 changes[] = {MIN(whole, z->ds.ranks), MIN(whole + 1, z->ds.ranks)};
    g_array_append_vals(ranks, changes, G_N_ELEMENTS(changes));
  }
  g_array_sort(ranks, compare_ranks);
  return ranks;
}

/* For each rank and each gradient of which its chunk is short, zeros of their own.  On thousands of
 * ranks these are millions of blocks of 512 bytes: there neighbours that lack the same get one
 * block as large as theirs together. */
static void
make_padding(StrategyContext *x, Results *padding)
{
  const Zero3 *z = zero3_of(x);
  if (z->ds.ranks <= RANKS_PADDED_ONE_BY_ONE) {
    for (int rank = 0; rank < z->ds.ranks; rank++)
      pad_ranks(x, padding, rank, rank + 1);
    return;
  }
  g_autoptr(GArray) ranks = ranks_where_padding_changes(z);
  for (guint i = 1; i < ranks->len; i++) {
    gint64 first = g_array_index(ranks, gint64, i - 1), end = g_array_index(ranks, gint64, i);
    if (first < end)
      pad_ranks(x, padding, first, end);
  }
}

/* Chunks of all gradients for rank 0, then for rank 1 and so on; short ones are padded. */
static StorageId
interleave(StrategyContext *x, Results *r, gint64 elements)
{
  Zero3 *z = zero3_of(x);
  Results padding = {g_array_new(FALSE, FALSE, sizeof(StorageId))};
  make_padding(x, &padding);
  StorageId all = make(x, r, elements * z->ds.element, "reduce-scatter input");
  for (guint i = 0; i < z->bucketed->len; i++)
    gradient_operand(x, bucketed_at(z, (int) i), ROLE_READ);
  zero3_operand(x, all, z->ds.model, ROLE_WRITE);
  g_autofree char *meaning = meaning_text("chunk_cat", 1, "ranks", (double) z->ds.ranks);
  launch_as(x, "cat", 2 * elements * z->ds.element, meaning);
  drop_results(x, &padding);
  g_array_unref(padding.made);
  return all;
}

/* A part is added to (in the first micro-batch: copied into) the buffer that the optimizer reads.
 */
static void
store_part(StrategyContext *x, const Zero3Parameter *p, gint32 reduced, const char *meaning)
{
  Zero3 *z = zero3_of(x);
  program_builder_operand(x->builder, reduced, ROLE_READ);
  zero3_part(x, z->gradients, p->first, p->owned, z->ds.accumulation,
             x->micro_batch == 0 ? ROLE_WRITE : ROLE_ACCUMULATE);
  launch_as(x, x->micro_batch == 0 ? "copy" : "add", 3 * p->owned * z->ds.element, meaning);
}

/* What parts are taken from: of the bucket, which is larger, what is filled. */
static gint32
reduced_tensor(StrategyContext *x, StorageId storage, DType dtype)
{
  const Zero3 *z = zero3_of(x);
  if (storage == z->bucket)
    return program_builder_flat_tensor(x->builder, storage, 0, z->bucketed_elements, dtype);
  return live_storage_tensor(x->live, storage, dtype);
}

/* partition_grads: the rank's parts of all gradients are kept.  result: what they are read from,
 * NO_STORAGE for a single gradient in place; taken: what of it, NULL: all. */
static void
store(StrategyContext *x, const StorageId *result, DType dtype, const Taken *taken)
{
  Zero3 *z = zero3_of(x);
  HostGradients locals = {NO_STORAGE, NO_STORAGE};
  const char *formula = x->micro_batch == 0 ? "take_slice" : "add_slice";
  for (guint i = 0; i < z->bucketed->len; i++) {
    const Bucketed *b = bucketed_at(z, (int) i);
    const Zero3Parameter *p = &z->parameter[b->parameter];
    if (p->owned > 0) {
      g_autofree char *meaning = taken != NULL ? taken_meaning(x, formula, taken[i]) : NULL;
      gint32 reduced =
          result[i] != NO_STORAGE ? reduced_tensor(x, result[i], dtype) : gradient_tensor(x, b);
      if (offload_is_optimizer(z))
        offload_gradient(x, b->parameter, reduced, meaning, &locals);
      else
        store_part(x, p, reduced, meaning);
    }
    drop_gradient(x, b->parameter);
    x->parameters[b->parameter].has_gradient = FALSE;
  }
  live_storage_drop(x->live, locals.gradient);
  live_storage_drop(x->live, locals.added);
}

static int
by_parameter(gconstpointer a, gconstpointer b)
{
  return ((const Bucketed *) a)->parameter - ((const Bucketed *) b)->parameter;
}

/* reduce_scatter_coalesced.  A single gradient that divides evenly is reduced where it is. */
static void
scatter(StrategyContext *x, Results *r)
{
  Zero3 *z = zero3_of(x);
  g_array_sort(z->bucketed, by_parameter);
  guint n = z->bucketed->len;
  g_autofree StorageId *result = g_new(StorageId, n);
  const Bucketed *first = bucketed_at(z, 0);
  gint64 elements = 0;
  for (guint i = 0; i < n; i++)
    elements += z->parameter[bucketed_at(z, (int) i)->parameter].shard * z->ds.ranks;
  gboolean in_place = n == 1 && z->parameter[first->parameter].elements % z->ds.ranks == 0;
  StorageId all = NO_STORAGE;
  if (in_place) { /* held until the reduction returns */
    all = x->parameters[first->parameter].gradient;
    live_storage_hold(x->live, all);
    g_array_append_val(r->made, all);
  } else {
    all = interleave(x, r, elements);
  }
  program_builder_host_work(x->builder, HOST_WORK_COLLECTIVE_CALL, 1);
  for (int i = 0; i < 2; i++) { /* div_ by the number of ranks, then the collective */
    if (in_place)
      gradient_operand(x, first, ROLE_ACCUMULATE);
    else
      zero3_operand(x, all, z->ds.model, ROLE_ACCUMULATE);
    if (i == 0)
      launch_average(x, 2 * elements * z->ds.element);
    else
      issue_collective(x, COLLECTIVE_REDUCE_SCATTER, elements);
  }
  g_autofree Taken *taken = g_new(Taken, n);
  for (guint i = 0; i < n; i++)
    taken[i] = (Taken){elements / z->ds.ranks,
                       i == 0 ? 0
                              : taken[i - 1].first +
                                    z->parameter[bucketed_at(z, (int) i - 1)->parameter].shard};
  gboolean casts = z->ds.accumulation != z->ds.model;
  for (guint i = 0; i < n; i++)
    result[i] = all;
  Results cast = {g_array_new(FALSE, FALSE, sizeof(StorageId))};
  for (guint i = 0; i < n && casts; i++) {
    const Zero3Parameter *p = &z->parameter[bucketed_at(z, (int) i)->parameter];
    result[i] = make(x, &cast, p->owned * dtype_size(z->ds.accumulation), "cast gradient");
    if (p->owned == 0)
      continue;
    if (all != NO_STORAGE)
      zero3_operand(x, all, z->ds.model, ROLE_READ);
    else
      gradient_operand(x, first, ROLE_READ);
    zero3_operand(x, result[i], z->ds.accumulation, ROLE_WRITE);
    g_autofree char *meaning = taken_meaning(x, "take_slice", taken[i]);
    launch_as(x, "to_copy", p->owned * (z->ds.element + dtype_size(z->ds.accumulation)), meaning);
  }
  if (casts) {
    drop_results(x, r);
    g_array_append_vals(r->made, cast.made->data, cast.made->len);
  }
  g_array_unref(cast.made);
  store(x, result, casts ? z->ds.accumulation : z->ds.model, casts ? NULL : taken);
}

/* A plain all-reduce of the bucket, of which each rank takes its parts; they are taken from a copy
 * that was multiplied by gradient_predivide_factor, which is one. */
static void
all_reduce(StrategyContext *x, Results *r)
{
  Zero3 *z = zero3_of(x);
  gint64 elements = z->bucketed_elements;
  int wide = dtype_size(z->ds.accumulation);
  guint n = z->bucketed->len;
  g_autofree StorageId *result = g_new(StorageId, n);
  StorageId all = z->bucket;
  program_builder_host_work(x->builder, HOST_WORK_COLLECTIVE_CALL, 1);
  for (int i = 0; i < 2; i++) {
    zero3_part(x, z->bucket, 0, elements, z->ds.model, ROLE_ACCUMULATE);
    if (i == 0)
      launch_average(x, 2 * elements * z->ds.element);
    else
      issue_collective(x, COLLECTIVE_ALL_REDUCE, elements);
  }
  if (z->ds.ranks > 1) {
    all = make(x, r, elements * z->ds.element, "multiplied bucket");
    zero3_part(x, z->bucket, 0, elements, z->ds.model, ROLE_READ);
    zero3_operand(x, all, z->ds.model, ROLE_WRITE);
    launch_as(x, "mul", 2 * elements * z->ds.element, "to_copy");
  }
  if (z->ds.accumulation != z->ds.model) {
    Results cast = {g_array_new(FALSE, FALSE, sizeof(StorageId))};
    StorageId copy = make(x, &cast, elements * wide, "cast bucket");
    zero3_part(x, all, 0, elements, z->ds.model, ROLE_READ);
    zero3_operand(x, copy, z->ds.accumulation, ROLE_WRITE);
    launch(x, "to_copy", elements * (z->ds.element + wide));
    drop_results(x, r);
    g_array_append_val(r->made, copy);
    g_array_unref(cast.made);
    all = copy;
  }
  g_autofree Taken *taken = g_new(Taken, n);
  for (guint i = 0; i < n; i++) {
    const Bucketed *b = bucketed_at(z, (int) i);
    const Zero3Parameter *p = &z->parameter[b->parameter];
    result[i] = all;
    taken[i] = (Taken){p->shard, b->first};
    if (p->owned == p->shard)
      continue;
    result[i] = make(x, r, p->shard * wide, "padded gradient");
    zero3_part(x, all, b->first, p->elements, z->ds.accumulation, ROLE_READ);
    zero3_operand(x, result[i], z->ds.accumulation, ROLE_WRITE);
    g_autofree char *meaning = taken_meaning(x, "take_slice", (Taken){p->shard, 0});
    launch_as(x, "copy", 2 * p->shard * wide, meaning);
    taken[i] = (Taken){0, 0};
  }
  store(x, result, z->ds.accumulation, taken);
}

void
gradients_flush(StrategyContext *x)
{
  Zero3 *z = zero3_of(x);
  if (z->bucketed->len == 0)
    return;
  Results r = {g_array_new(FALSE, FALSE, sizeof(StorageId))};
  program_builder_push(x->builder, RANGE_HOOK, "reduce_and_partition_ipg_grads", 0);
  limit_host(x, z->reduce_events);
  if (z->ds.contiguous_gradients && z->bucketed_elements <= z->ds.reduce_bucket &&
      !z->ds.reduce_scatter)
    all_reduce(x, &r);
  else
    scatter(x, &r);
  g_array_set_size(z->bucketed, 0);
  z->bucketed_elements = 0;
  drop_results(x, &r);
  limit_add(x, z->reduce_events, z->ds.reduce_stream);
  g_array_unref(r.made);
  program_builder_pop(x->builder);
}

void
gradients_finish(StrategyContext *x)
{
  gradients_flush(x);
  program_builder_stream_sync(x->builder, zero3_of(x)->ds.reduce_stream);
}
