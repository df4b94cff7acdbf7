/* fsdp1_clip.c - FullyShardedDataParallel.clip_grad_norm_: norms of local gradients one by one, in
 * the order of the flat parameters (fully_sharded_data_parallel.py, _get_grad_norm). */
#include "base/units.h"
#include "program/meaning.h"
#include "strategy/fsdp1_private.h"

/* ---- small steps ---- */

static StorageId
temporary(StrategyContext *x, gint64 bytes, const char *what)
{
  StoragePurpose purpose = {CATEGORY_TEMPORARY, -1, program_builder_name(x->builder, what)};
  return live_storage_alloc(x->live, bytes, STREAM_COMPUTE, purpose);
}

static void
operand(StrategyContext *x, StorageId storage, DType dtype, Role role)
{
  if (storage != NO_STORAGE)
    program_builder_operand(x->builder, live_storage_tensor(x->live, storage, dtype), role);
}

void
fsdp1_gradient_operand(StrategyContext *x, const ParameterState *p, Role role)
{
  program_builder_operand(x->builder,
                          program_builder_flat_tensor(x->builder, p->sharded_gradient,
                                                      p->sharded_offset, p->local_elements,
                                                      fsdp1_of(x)->stored),
                          role);
}

/* ---- norms ---- */

/* A reduction of all elements to one, 512 threads a block: beyond 256 values a thread several
 * blocks share it, and meet in a buffer of their results and a semaphore
 * (aten/src/ATen/native/cuda/ Reduce.cuh, setReduceConfig: between 16 and 256 values a thread, else
 * two full waves). */
static gint64
reduction_blocks(const DeviceProfile *device, gint64 elements)
{
  enum { THREADS = 512, FEWEST = 16, MOST = 256 };
  gint64 values = ceil_div(elements, THREADS);
  gint64 full = (gint64) device->sms * (device->max_threads_per_sm / THREADS);
  if (values < MOST)
    return 1;
  return MAX(MIN(full, ceil_div(values, FEWEST)), ceil_div(values, MOST));
}

static StorageId
vector_norm(StrategyContext *x, const ParameterState *p)
{
  DType stored = fsdp1_of(x)->stored;
  gint64 blocks = reduction_blocks(x->device, p->local_elements);
  StorageId norm = temporary(x, dtype_size(DTYPE_FP32), "norm");
  StorageId partial = NO_STORAGE, semaphore = NO_STORAGE;
  if (blocks > 1) {
    partial = temporary(x, dtype_size(DTYPE_FP32) * blocks, "partial norms");
    semaphore = temporary(x, 4, "semaphore");
  }
  fsdp1_gradient_operand(x, p, ROLE_READ);
  operand(x, norm, DTYPE_FP32, ROLE_WRITE);
  strategy_launch(x, STREAM_COMPUTE, "vector_norm",
                  (double) p->local_elements * dtype_size(stored));
  live_storage_drop(x->live, semaphore);
  live_storage_drop(x->live, partial);
  return norm;
}

/* Parameters of which this rank has a gradient, flat parameter by flat parameter. */
static GArray *
clipped_parameters(StrategyContext *x)
{
  const Fsdp1 *f = fsdp1_of(x);
  GArray *parameters = g_array_new(FALSE, FALSE, sizeof(int));
  for (int i = 0; i < f->count; i++)
    for (int k = 0; k < f->handles[i].count; k++)
      if (x->parameters[f->handles[i].parameter[k]].sharded_gradient != NO_STORAGE)
        g_array_append_val(parameters, f->handles[i].parameter[k]);
  return parameters;
}

/* The norm of the stacked norms; the list of them goes from its end. */
static StorageId
local_norm(StrategyContext *x, const GArray *parameters)
{
  guint n = parameters->len;
  g_autofree StorageId *norms = g_new(StorageId, n);
  for (guint i = 0; i < n; i++)
    norms[i] = vector_norm(x, &x->parameters[g_array_index(parameters, int, i)]);
  StorageId stack = temporary(x, (gint64) n * dtype_size(DTYPE_FP32), "stack of norms");
  for (guint i = 0; i < n; i++)
    operand(x, norms[i], DTYPE_FP32, ROLE_READ);
  operand(x, stack, DTYPE_FP32, ROLE_WRITE);
  strategy_launch(x, STREAM_COMPUTE, "stack", (double) n * 8);
  for (guint i = n; i > 0; i--)
    live_storage_drop(x->live, norms[i - 1]);
  StorageId norm = strategy_scalar(x, stack, "local norm", "vector_norm");
  live_storage_drop(x->live, stack);
  return norm;
}

/* ---- scaling ---- */

/* A scalar in the gradients' dtype. */
static StorageId
cast_scalar(StrategyContext *x, StorageId from, const char *what)
{
  DType stored = fsdp1_of(x)->stored;
  StorageId result = temporary(x, dtype_size(stored), what);
  operand(x, from, DTYPE_FP32, ROLE_READ);
  operand(x, result, stored, ROLE_WRITE);
  strategy_launch(x, STREAM_COMPUTE, "to_copy", dtype_size(DTYPE_FP32) + dtype_size(stored));
  return result;
}

/* Each gradient by itself; in another dtype than fp32 the coefficient is cast for it. */
static void
scale_gradients(StrategyContext *x, const GArray *parameters, StorageId coefficient)
{
  DType stored = fsdp1_of(x)->stored;
  for (guint i = 0; i < parameters->len; i++) {
    const ParameterState *p = &x->parameters[g_array_index(parameters, int, i)];
    StorageId factor = NO_STORAGE;
    if (stored != DTYPE_FP32)
      factor = cast_scalar(x, coefficient, "clip coefficient");
    operand(x, factor != NO_STORAGE ? factor : coefficient,
            factor != NO_STORAGE ? stored : DTYPE_FP32, ROLE_READ);
    fsdp1_gradient_operand(x, p, ROLE_ACCUMULATE);
    strategy_launch_as(x, STREAM_COMPUTE, "mul",
                       2.0 * (double) p->local_elements * dtype_size(stored), "foreach_mul");
    live_storage_drop(x->live, factor);
  }
}

/* _zero_scalar: torch.tensor(0.0, device=...) copies from the host, and waits for that. */
static void
make_zero(StrategyContext *x)
{
  Fsdp1 *f = fsdp1_of(x);
  if (f->zero != NO_STORAGE)
    return;
  f->zero = strategy_scalar(x, NO_STORAGE, "zero", NULL);
  live_storage_promote(x->live, f->zero, CATEGORY_OTHER);
  program_builder_stream_sync(x->builder, STREAM_COMPUTE);
}

void
fsdp1_all_reduce_norm(StrategyContext *x, StorageId norm)
{
  program_builder_host_work(x->builder, HOST_WORK_COLLECTIVE_CALL, 1);
  operand(x, norm, DTYPE_FP32, ROLE_ACCUMULATE);
  program_builder_collective(x->builder, STREAM_COMPUTE,
                             &(Collective){.kind = COLLECTIVE_ALL_REDUCE,
                                           .dtype = DTYPE_FP32,
                                           .communicator = fsdp1_of(x)->shard_communicator,
                                           .name = program_builder_name(x->builder, "norm"),
                                           .bytes = dtype_size(DTYPE_FP32)});
}

gboolean
fsdp1_clip(StrategyContext *x)
{
  Fsdp1 *f = fsdp1_of(x);
  program_builder_set_module(x->builder, -1);
  make_zero(x);
  if (!fsdp1_shards(f))
    return FALSE;
  g_autoptr(GArray) parameters = clipped_parameters(x);
  if (x->offloads) {
    fsdp1_clip_on_host(x, parameters, f->zero);
    return TRUE;
  }
  StorageId local = parameters->len > 0 ? local_norm(x, parameters) : NO_STORAGE;
  StorageId square = strategy_scalar(x, local != NO_STORAGE ? local : f->zero, "square of the norm",
                                     "pow power=2");
  fsdp1_all_reduce_norm(x, square);
  StorageId total = strategy_scalar(x, square, "total norm", "pow power=0.5 global=1");
  live_storage_drop(x->live, square);
  g_autofree char *most = meaning_text("mul_scalar", 1, "value", plan_spec_clip_norm(x->plan));
  StorageId sum = strategy_scalar(x, total, "total norm + eps", "add_scalar value=1e-06"),
            inverse = strategy_scalar(x, sum, "reciprocal", "pow power=-1");
  StorageId coefficient = strategy_scalar(x, inverse, "clip coefficient", most);
  live_storage_drop(x->live, inverse);
  live_storage_drop(x->live, sum);
  StorageId clamped = strategy_scalar(x, coefficient, "clamped coefficient", "clamp most=1");
  program_builder_host_work(x->builder, HOST_WORK_OPTIMIZER, (int) parameters->len);
  scale_gradients(x, parameters, clamped);
  gboolean casts = f->stored != DTYPE_FP32;
  StorageId result = casts ? cast_scalar(x, total, "total norm as returned") : total;
  live_storage_drop(x->live, local);
  live_storage_drop(x->live, coefficient);
  live_storage_drop(x->live, clamped);
  if (casts)
    live_storage_drop(x->live, total);
  strategy_return_norm(x, result);
  return TRUE;
}
