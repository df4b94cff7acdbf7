/* trainer_loop.c - what the loop of transformers' Trainer allocates around the model. */
#include "lower/trainer_loop.h"

#include "program/meaning.h"

#define IGNORED_LABEL (-100)

/* ---- small tensors ---- */

typedef struct {
  Category category;
  DType dtype;
  gint64 elements;
  const char *what;
} Small;

static StorageId
allocate(StrategyContext *x, Small s)
{
  StoragePurpose purpose = {s.category, -1, program_builder_name(x->builder, s.what)};
  return live_storage_alloc(x->live, s.elements * dtype_size(s.dtype), STREAM_COMPUTE, purpose);
}

static gint32
whole(StrategyContext *x, StorageId storage, gint64 elements, DType dtype)
{
  return elements > 1 ? program_builder_flat_tensor(x->builder, storage, 0, elements, dtype)
                      : live_storage_tensor(x->live, storage, dtype);
}

/* Makes one of a tensor of which so many bytes are read. */
static void
launch(StrategyContext *x, gint32 from, gint32 to, const char *name, const char *meaning)
{
  program_builder_operand(x->builder, from, ROLE_READ);
  program_builder_operand(x->builder, to, ROLE_WRITE);
  strategy_launch_as(x, STREAM_COMPUTE, name, 16, meaning);
}

static StorageId
scalar_of(StrategyContext *x, DType dtype, const char *what, gint32 from, const char *meaning)
{
  StorageId made = allocate(x, (Small){CATEGORY_TEMPORARY, dtype, 1, what});
  launch(x, from, live_storage_tensor(x->live, made, dtype), what, meaning);
  return made;
}

static gint32
tensor_of(StrategyContext *x, StorageId storage, DType dtype)
{
  return live_storage_tensor(x->live, storage, dtype);
}

/* ---- batches ---- */

static guint
moved_inputs(const Network *network)
{
  return network->inputs->len - (network->items >= 0 ? 1 : 0);
}

/* From pinned memory; the host waits for each copy. */
static StorageId
move_input(StrategyContext *x, guint i)
{
  static const char *const names[] = {"tokens", "labels"};
  const ValueInfo *info = &g_array_index(x->network->inputs, ValueInfo, i);
  gint64 bytes = value_bytes(info);
  StoragePurpose purpose = {CATEGORY_OTHER, -1,
                            program_builder_name(x->builder, names[i % G_N_ELEMENTS(names)])};
  StorageId made = live_storage_alloc(x->live, bytes, STREAM_COMPUTE, purpose);
  program_builder_operand(x->builder, tensor_of(x, made, (DType) info->dtype), ROLE_WRITE);
  strategy_copy_as(x, STREAM_COMPUTE, "batch to device", (double) bytes, "itself");
  program_builder_stream_sync(x->builder, STREAM_COMPUTE);
  return made;
}

static void
drop_batch(const StepWalk *w, const StorageId *inputs, guint batch)
{
  guint n = w->x->network->inputs->len;
  for (guint i = 0; i < moved_inputs(w->x->network); i++)
    live_storage_drop(w->x->live, inputs[batch * n + i]);
}

/* ---- items ---- */

/* labels.ne(-100), of causal models without the first of each sequence: a boolean for each. */
static gint32
counted_labels(StrategyContext *x, StorageId labels, gint64 *elements)
{
  const ValueInfo *info = &g_array_index(x->network->inputs, ValueInfo, 1);
  Layout layout = {.dtype = info->dtype, .dims = info->dims};
  gint64 first = x->network->shifts_labels ? 1 : 0;
  *elements = 1;
  for (int i = 0; i < info->dims; i++) {
    layout.shape[i] = info->shape[i] - (i == info->dims - 1 ? first : 0);
    layout.stride[i] = info->stride[i];
    *elements *= layout.shape[i];
  }
  return program_builder_tensor(x->builder, labels, first, &layout);
}

/* Their sum, over a copy of 8 bytes each. */
static StorageId
count_labels(StrategyContext *x, StorageId labels)
{
  g_autofree char *meaning = meaning_text("is_not", 1, "value", (double) IGNORED_LABEL);
  gint64 n;
  gint32 read = counted_labels(x, labels, &n);
  StorageId flags = allocate(x, (Small){CATEGORY_TEMPORARY, DTYPE_BOOL, n, "items"});
  launch(x, read, whole(x, flags, n, DTYPE_BOOL), "ne", meaning);
  StorageId count = allocate(x, (Small){CATEGORY_TEMPORARY, DTYPE_INT64, 1, "number of items"});
  StorageId wide = allocate(x, (Small){CATEGORY_TEMPORARY, DTYPE_INT64, n, "items to sum"});
  gint32 summed = whole(x, wide, n, DTYPE_INT64);
  launch(x, whole(x, flags, n, DTYPE_BOOL), summed, "to_copy", NULL);
  launch(x, summed, tensor_of(x, count, DTYPE_INT64), "sum", NULL);
  live_storage_drop(x->live, wide);
  live_storage_drop(x->live, flags);
  return count;
}

/* Python's sum() begins with a 0 of its own. */
static StorageId
add_count(StrategyContext *x, StorageId total, StorageId count)
{
  StorageId sum = allocate(x, (Small){CATEGORY_TEMPORARY, DTYPE_INT64, 1, "items so far"});
  if (total != NO_STORAGE)
    program_builder_operand(x->builder, tensor_of(x, total, DTYPE_INT64), ROLE_READ);
  launch(x, tensor_of(x, count, DTYPE_INT64), tensor_of(x, sum, DTYPE_INT64), "add",
         total != NO_STORAGE ? NULL : "add_scalar value=0");
  live_storage_drop(x->live, total);
  live_storage_drop(x->live, count);
  return sum;
}

/* accelerator.gather(items).sum() */
static StorageId
gather_counts(StrategyContext *x, StorageId total)
{
  int ranks = x->plan->shard * x->plan->replicate;
  StorageId own = scalar_of(x, DTYPE_INT64, "clone", tensor_of(x, total, DTYPE_INT64), NULL);
  StorageId all =
      allocate(x, (Small){CATEGORY_TEMPORARY, DTYPE_INT64, ranks, "items of all ranks"});
  gint32 gathered = whole(x, all, ranks, DTYPE_INT64);
  program_builder_host_work(x->builder, HOST_WORK_COLLECTIVE_CALL, 1);
  program_builder_operand(x->builder, tensor_of(x, own, DTYPE_INT64), ROLE_READ);
  program_builder_operand(x->builder, gathered, ROLE_WRITE);
  program_builder_collective(
      x->builder, STREAM_COMPUTE,
      &(Collective){.kind = COLLECTIVE_ALL_GATHER,
                    .dtype = DTYPE_INT64,
                    .communicator = program_builder_communicator(x->builder, "world", ranks, 1),
                    .name = program_builder_name(x->builder, "items"),
                    .bytes = (gint64) ranks * dtype_size(DTYPE_INT64)});
  live_storage_drop(x->live, own);
  StorageId sum = scalar_of(x, DTYPE_INT64, "sum", gathered, NULL);
  live_storage_drop(x->live, all);
  live_storage_drop(x->live, total);
  return sum;
}

/* num_items_in_batch; a division by one makes it fp32. */
static StorageId
count_items(StepWalk *w, const StorageId *inputs)
{
  StrategyContext *x = w->x;
  StorageId total = NO_STORAGE;
  for (int k = 0; k < x->plan->accumulation.steps; k++)
    total = add_count(x, total, count_labels(x, inputs[(guint) k * x->network->inputs->len + 1]));
  if (x->plan->trainer.average_tokens && x->plan->shard * x->plan->replicate > 1)
    total = gather_counts(x, total);
  StorageId items = scalar_of(x, DTYPE_FP32, "div", tensor_of(x, total, DTYPE_INT64), "to_copy");
  live_storage_promote(x->live, items, CATEGORY_OTHER);
  live_storage_drop(x->live, total);
  return items;
}

/* ---- the loop ---- */

/* torch.tensor(0.0, device=...) */
void
trainer_loop_construct(StepWalk *w)
{
  StrategyContext *x = w->x;
  w->items = NO_STORAGE;
  w->running_loss = allocate(x, (Small){CATEGORY_OTHER, DTYPE_FP32, 1, "running loss"});
  program_builder_operand(x->builder, tensor_of(x, w->running_loss, DTYPE_FP32), ROLE_WRITE);
  strategy_launch_as(x, STREAM_COMPUTE, "zero", 4, NULL);
  program_builder_stream_sync(x->builder, STREAM_COMPUTE);
}

/* The list of the step before goes from its end, but for its last batch, which the loop's variable
 * still names. */
static void
replace_batches(StepWalk *w, StorageId *inputs, StorageId items)
{
  guint n = w->x->network->inputs->len, batches = (guint) w->x->plan->accumulation.steps;
  for (guint k = batches - 1; w->inputs != NULL && k > 0; k--)
    drop_batch(w, w->inputs, k - 1);
  live_storage_drop(w->x->live, w->items);
  if (w->inputs != NULL)
    drop_batch(w, w->inputs, batches - 1);
  w->items = items;
  for (guint k = 0; w->x->network->items >= 0 && k < batches; k++)
    inputs[k * n + (guint) w->x->network->items] = items;
  g_free(w->inputs);
  w->inputs = inputs;
}

void
trainer_loop_fetch(StepWalk *w)
{
  StrategyContext *x = w->x;
  guint n = x->network->inputs->len, batches = (guint) x->plan->accumulation.steps;
  StorageId *inputs = g_new0(StorageId, MAX(n * batches, 1));
  for (guint k = 0; k < batches; k++)
    for (guint i = 0; i < moved_inputs(x->network); i++)
      inputs[k * n + i] = move_input(x, i);
  replace_batches(w, inputs, x->network->items >= 0 ? count_items(w, inputs) : NO_STORAGE);
}

/* bool(torch.isnan(loss)), bool(torch.isinf(loss)): the host waits for both. */
static void
look_at(StrategyContext *x, gint32 loss, DType dtype)
{
  StorageId nan = scalar_of(x, DTYPE_BOOL, "isnan", loss, "is_nan");
  program_builder_stream_sync(x->builder, STREAM_COMPUTE);
  live_storage_drop(x->live, nan);
  StorageId magnitude = scalar_of(x, dtype, "abs", loss, "abs");
  StorageId infinite =
      scalar_of(x, DTYPE_BOOL, "isinf", tensor_of(x, magnitude, dtype), "is_infinite");
  live_storage_drop(x->live, magnitude);
  program_builder_stream_sync(x->builder, STREAM_COMPUTE);
  live_storage_drop(x->live, infinite);
}

void
trainer_loop_add_loss(StepWalk *w)
{
  StrategyContext *x = w->x;
  tape_let_go(w->tape);
  TensorRef kept = tape_kept(w->tape);
  DType dtype = (DType) kept.dtype;
  program_builder_set_module(x->builder, -1);
  program_builder_push(x->builder, RANGE_PHASE, "loss", x->micro_batch);
  if (x->plan->trainer.nan_filter)
    look_at(x, tensor_of(x, kept.storage, dtype), dtype);
  program_builder_operand(x->builder, tensor_of(x, kept.storage, dtype), ROLE_READ);
  program_builder_operand(x->builder, tensor_of(x, w->running_loss, DTYPE_FP32), ROLE_ACCUMULATE);
  strategy_launch_as(x, STREAM_COMPUTE, "add_", 12, NULL);
  program_builder_pop(x->builder);
}
