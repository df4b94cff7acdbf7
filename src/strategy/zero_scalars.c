/* zero_scalars.c - the small tensors with which DeepSpeed looks for overflows, takes norms and
 * clips. */
#include "strategy/zero_scalars.h"

#include "base/units.h"

/* A full reduction in aten/src/ATen/native/cuda/Reduce.cuh: threads of a block, values that a
 * thread reads at once, and the values per thread from which several blocks share an output. */
enum { REDUCE_THREADS = 512, REDUCE_VALUES_PER_THREAD = 16, REDUCE_MAX_VALUES_PER_THREAD = 256 };

static void
operand(StrategyContext *x, StorageId storage, Role role)
{
  if (storage != NO_STORAGE)
    program_builder_operand(x->builder, live_storage_tensor(x->live, storage, DTYPE_UINT8), role);
}

static StorageId
make(StrategyContext *x, StreamId stream, gint64 bytes, const char *what)
{
  StoragePurpose purpose = {CATEGORY_TEMPORARY, -1, program_builder_name(x->builder, what)};
  return live_storage_alloc(x->live, bytes, stream, purpose);
}

StorageId
zero_small(StrategyContext *x, StreamId stream, gint64 bytes, const char *what, StorageId from)
{
  StorageId made = make(x, stream, bytes, what);
  operand(x, from, ROLE_READ);
  operand(x, made, ROLE_WRITE);
  strategy_launch(x, stream, what, (double) (bytes + live_storage_bytes(x->live, from)));
  return made;
}

StorageId
zero_reduced(StrategyContext *x, StreamId stream, gint64 bytes, const char *what, gint32 tensor,
             double bytes_read)
{
  StorageId made = make(x, stream, bytes, what);
  program_builder_operand(x->builder, tensor, ROLE_READ);
  operand(x, made, ROLE_WRITE);
  strategy_launch(x, stream, what, (double) bytes + bytes_read);
  return made;
}

void
zero_reduction_scratch(StrategyContext *x, StreamId stream, gint64 elements, int accumulator)
{
  gint64 values = ceil_div(elements, REDUCE_THREADS);
  if (elements <= REDUCE_THREADS || values < REDUCE_MAX_VALUES_PER_THREAD)
    return;
  gint64 resident = (gint64) x->device->sms * (x->device->max_threads_per_sm / REDUCE_THREADS);
  gint64 blocks = MAX(MIN(resident, ceil_div(values, REDUCE_VALUES_PER_THREAD)),
                      ceil_div(values, REDUCE_MAX_VALUES_PER_THREAD));
  if (blocks <= 1)
    return;
  StorageId partial = make(x, stream, accumulator * blocks, "partial results");
  StorageId counter = make(x, stream, 4, "block counter");
  live_storage_drop(x->live, counter);
  live_storage_drop(x->live, partial);
}

StorageId
zero_is_finite(StrategyContext *x, StreamId stream, StorageId values, gint64 count)
{
  StorageId absolute = zero_small(x, stream, live_storage_bytes(x->live, values), "abs", values);
  StorageId unequal = zero_small(x, stream, count, "ne", absolute);
  StorageId equal = zero_small(x, stream, count, "eq", values);
  StorageId both = zero_small(x, stream, count, "and", unequal);
  live_storage_drop(x->live, unequal);
  live_storage_drop(x->live, equal);
  live_storage_drop(x->live, absolute);
  return both;
}

/* Whether the largest (or smallest) value is finite. */
static StorageId
extreme_is_finite(StrategyContext *x, StreamId stream, gint32 tensor, const ReducedTensor *size,
                  const char *what)
{
  StorageId extreme =
      zero_reduced(x, stream, size->element, what, tensor, (double) size->elements * size->element);
  zero_reduction_scratch(x, stream, size->elements, size->element);
  StorageId finite = zero_is_finite(x, stream, extreme, 1);
  live_storage_drop(x->live, extreme);
  return finite;
}

StorageId
zero_has_inf_or_nan(StrategyContext *x, StreamId stream, gint32 tensor, const ReducedTensor *size)
{
  StorageId above = extreme_is_finite(x, stream, tensor, size, "amax");
  StorageId below = extreme_is_finite(x, stream, tensor, size, "amin");
  StorageId both = zero_small(x, stream, 1, "and", above);
  live_storage_drop(x->live, above);
  live_storage_drop(x->live, below);
  StorageId result = zero_small(x, stream, 1, "not", both);
  live_storage_drop(x->live, both);
  return result;
}

StorageId
zero_any_invalid(StrategyContext *x, StorageId norms, gint64 count)
{
  StorageId finite = zero_is_finite(x, STREAM_COMPUTE, norms, count);
  StorageId infinite = zero_small(x, STREAM_COMPUTE, count, "not", finite);
  live_storage_drop(x->live, finite);
  StorageId negative = zero_small(x, STREAM_COMPUTE, count, "lt", norms);
  StorageId either = zero_small(x, STREAM_COMPUTE, count, "or", infinite);
  live_storage_drop(x->live, negative);
  live_storage_drop(x->live, infinite);
  StorageId any = zero_small(x, STREAM_COMPUTE, 1, "any", either);
  live_storage_drop(x->live, either);
  return any;
}

void
zero_mask_invalid(StrategyContext *x, StorageId norm, int element)
{
  StorageId absolute = zero_small(x, STREAM_COMPUTE, element, "abs", norm);
  StorageId infinite = zero_small(x, STREAM_COMPUTE, 1, "eq", absolute);
  live_storage_drop(x->live, absolute);
  StorageId nan = zero_small(x, STREAM_COMPUTE, 1, "ne", norm);
  StorageId either = zero_small(x, STREAM_COMPUTE, 1, "or", nan);
  StorageId replacement = zero_small(x, STREAM_COMPUTE, 4, "copy", NO_STORAGE);
  operand(x, either, ROLE_READ);
  operand(x, replacement, ROLE_READ);
  operand(x, norm, ROLE_ACCUMULATE);
  strategy_launch(x, STREAM_COMPUTE, "masked_fill", 2.0 * element);
  live_storage_drop(x->live, infinite);
  live_storage_drop(x->live, nan);
  live_storage_drop(x->live, either);
  live_storage_drop(x->live, replacement);
}

void
zero_all_reduce_scalar(StrategyContext *x, gint32 communicator, StorageId scalar, DType dtype)
{
  const Program *program = program_builder_program(x->builder);
  if (g_array_index(program->communicators, Communicator, communicator).ranks == 1)
    return;
  program_builder_host_work(x->builder, HOST_WORK_COLLECTIVE_CALL, 1);
  program_builder_operand(x->builder, live_storage_tensor(x->live, scalar, dtype), ROLE_ACCUMULATE);
  program_builder_collective(x->builder, STREAM_COMPUTE,
                             &(Collective){.kind = COLLECTIVE_ALL_REDUCE,
                                           .dtype = (guint8) dtype,
                                           .communicator = communicator,
                                           .name = program_builder_name(x->builder, "scalar"),
                                           .bytes = dtype_size(dtype)});
}

void
zero_read_back(StrategyContext *x, StreamId stream)
{
  program_builder_stream_sync(x->builder, stream);
}
