/* zero_scalars.c - the small tensors with which DeepSpeed looks for overflows, takes norms and
 * clips. */
#include "strategy/zero_scalars.h"

#include "base/units.h"
#include "program/meaning.h"

/* A full reduction in aten/src/ATen/native/cuda/Reduce.cuh: threads of a block, values that a
 * thread reads at once, and the values per thread from which several blocks share an output. */
enum { REDUCE_THREADS = 512, REDUCE_VALUES_PER_THREAD = 16, REDUCE_MAX_VALUES_PER_THREAD = 256 };

/* What an element of so many bytes is; of eight, a number that no dtype here stands for better. */
static DType
dtype_of(gint64 bytes)
{
  return bytes == 1 ? DTYPE_BOOL : bytes == 2 ? DTYPE_BF16 : bytes == 4 ? DTYPE_FP32 : DTYPE_INT64;
}

static void
elements_operand(StrategyContext *x, Scalars s, Role role)
{
  if (s.storage == NO_STORAGE)
    return;
  gint64 element = live_storage_bytes(x->live, s.storage) / MAX(s.count, 1);
  gboolean known = element == 1 || element == 2 || element == 4 || element == 8;
  program_builder_operand(
      x->builder, live_storage_tensor(x->live, s.storage, known ? dtype_of(element) : DTYPE_UINT8),
      role);
}

static void
operand(StrategyContext *x, StorageId storage, Role role)
{
  elements_operand(x, (Scalars){storage, 1}, role);
}

static StorageId
make(StrategyContext *x, StreamId stream, gint64 bytes, const char *what)
{
  StoragePurpose purpose = {CATEGORY_TEMPORARY, -1, program_builder_name(x->builder, what)};
  return live_storage_alloc(x->live, bytes, stream, purpose);
}

StorageId
zero_make(StrategyContext *x, StreamId stream, const SmallTensor *t, int n, const Scalars *from)
{
  StorageId made = make(x, stream, t->bytes, t->what);
  gint64 bytes = t->bytes + (n > 0 ? live_storage_bytes(x->live, from[0].storage) : 0);
  for (int i = 0; i < n; i++)
    elements_operand(x, from[i], ROLE_READ);
  elements_operand(x, (Scalars){made, t->count}, ROLE_WRITE);
  strategy_launch_as(x, stream, t->what, (double) bytes, t->meaning);
  return made;
}

StorageId
zero_scalar(StrategyContext *x, gint64 bytes, const char *what, const char *meaning, StorageId from)
{
  return zero_make(x, STREAM_COMPUTE, &(SmallTensor){bytes, 1, what, meaning},
                   from != NO_STORAGE ? 1 : 0, &(Scalars){from, 1});
}

StorageId
zero_small(StrategyContext *x, StreamId stream, gint64 bytes, const char *what, StorageId from)
{
  return zero_make(x, stream, &(SmallTensor){bytes, 1, what, NULL}, from != NO_STORAGE ? 1 : 0,
                   &(Scalars){from, 1});
}

void
zero_add(StrategyContext *x, StreamId stream, gint64 bytes, StorageId addend, StorageId sum)
{
  operand(x, addend, ROLE_READ);
  operand(x, sum, ROLE_ACCUMULATE);
  strategy_launch(x, stream, "add", 3.0 * (double) bytes);
}

/* What a kernel makes of a view. */
static StorageId
of_view(StrategyContext *x, StreamId stream, const SmallTensor *t, gint32 tensor, double bytes_read)
{
  StorageId made = make(x, stream, t->bytes, t->what);
  program_builder_operand(x->builder, tensor, ROLE_READ);
  elements_operand(x, (Scalars){made, t->count}, ROLE_WRITE);
  strategy_launch_as(x, stream, t->what, (double) t->bytes + bytes_read, t->meaning);
  return made;
}

StorageId
zero_reduced(StrategyContext *x, StreamId stream, gint64 bytes, const char *what, gint32 tensor,
             double bytes_read)
{
  return of_view(x, stream, &(SmallTensor){bytes, 1, what, NULL}, tensor, bytes_read);
}

StorageId
zero_widened(StrategyContext *x, StreamId stream, gint64 elements, int bytes, gint32 tensor,
             double bytes_read)
{
  return of_view(x, stream, &(SmallTensor){elements * bytes, elements, "to_copy", NULL}, tensor,
                 bytes_read);
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

/* count values of another tensor's, as a tensor of their own. */
static StorageId
flags(StrategyContext *x, StreamId stream, gint64 count, const char *what, const char *meaning,
      Scalars a, StorageId b)
{
  const Scalars from[] = {a, {b, count}};
  return zero_make(x, stream, &(SmallTensor){count, count, what, meaning}, b != NO_STORAGE ? 2 : 1,
                   from);
}

StorageId
zero_is_finite(StrategyContext *x, StreamId stream, StorageId values, gint64 count)
{
  Scalars of = {values, count};
  StorageId absolute = zero_make(
      x, stream, &(SmallTensor){live_storage_bytes(x->live, values), count, "abs", NULL}, 1, &of);
  StorageId unequal =
      flags(x, stream, count, "ne", "is_not_infinite", (Scalars){absolute, count}, NO_STORAGE);
  StorageId equal = flags(x, stream, count, "eq", "is_number", of, NO_STORAGE);
  StorageId both = flags(x, stream, count, "and", NULL, (Scalars){unequal, count}, equal);
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
  StorageId both = flags(x, stream, 1, "and", NULL, (Scalars){above, 1}, below);
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
  StreamId stream = STREAM_COMPUTE;
  StorageId infinite = flags(x, stream, count, "not", NULL, (Scalars){finite, count}, NO_STORAGE);
  live_storage_drop(x->live, finite);
  StorageId negative =
      flags(x, stream, count, "lt", "is_negative", (Scalars){norms, count}, NO_STORAGE);
  StorageId either = flags(x, stream, count, "or", NULL, (Scalars){infinite, count}, negative);
  live_storage_drop(x->live, negative);
  live_storage_drop(x->live, infinite);
  StorageId any = flags(x, stream, 1, "any", NULL, (Scalars){either, count}, NO_STORAGE);
  live_storage_drop(x->live, either);
  return any;
}

void
zero_mask_invalid(StrategyContext *x, StorageId norm, int element)
{
  StorageId absolute = zero_small(x, STREAM_COMPUTE, element, "abs", norm);
  StorageId infinite = zero_scalar(x, 1, "eq", "is_infinite", absolute);
  live_storage_drop(x->live, absolute);
  StorageId nan = zero_scalar(x, 1, "ne", "is_nan", norm);
  StorageId either = flags(x, STREAM_COMPUTE, 1, "or", NULL, (Scalars){nan, 1}, infinite);
  StorageId replacement = zero_scalar(x, 4, "copy", "fill value=-1", NO_STORAGE);
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

char *
zero_by_loss_scale(DType model, const char *formula)
{
  return meaning_text(formula, 1, "value", network_loss_scale(model));
}

char *
zero_unscaling(DType model)
{
  return meaning_text("scale_by", 1, "factor", 1 / network_loss_scale(model));
}

void
zero_read_back(StrategyContext *x, StreamId stream)
{
  program_builder_stream_sync(x->builder, stream);
}
