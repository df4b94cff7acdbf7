/* fsdp1_offload.c - FSDP1 with CPUOffload: shards, their gradients and the optimizer in page-locked
 * host memory (torch/distributed/fsdp/_flat_param.py, init_flat_param_attributes and
 * _use_low_precision_shard; _runtime_utils.py, _offload_grad; fully_sharded_data_parallel.py,
 * clip_grad_norm_). */
#include "program/meaning.h"
#include "strategy/fsdp1_private.h"

static StorageId
on_host(StrategyContext *x, const Handle *h, gint64 bytes, Category category, const char *what)
{
  StoragePurpose purpose = {category, g_array_index(h->unit->modules, int, 0),
                            program_builder_name(x->builder, what)};
  return live_storage_alloc_in(x->live, SPACE_PINNED, bytes, STREAM_COMPUTE, purpose);
}

static void
copy(StrategyContext *x, StreamId stream, StorageId from, StorageId to, const char *what)
{
  DType stored = fsdp1_of(x)->stored;
  fsdp1_operand(x, from, stored, ROLE_READ);
  fsdp1_operand(x, to, stored, ROLE_WRITE);
  strategy_copy(x, stream, what, (double) live_storage_bytes(x->live, from));
}

/* PyTorch pins both in the first forward, after it was pageable. */
void
handle_construct_on_host(StrategyContext *x, Handle *h)
{
  gint64 bytes = h->shard_elements * dtype_size(fsdp1_of(x)->stored);
  StorageId there = on_host(x, h, bytes, CATEGORY_PARAMETER, "shard of the flat parameter");
  handle_holds(x, h, there);
  copy(x, STREAM_COMPUTE, h->shard, there, "shard to host");
  program_builder_stream_sync(x->builder, STREAM_COMPUTE);
  live_storage_drop(x->live, h->shard);
  h->shard = there;
  h->host_gradient = on_host(x, h, bytes, CATEGORY_SHARDED_GRADIENT, "sharded flat gradient");
}

/* Without a cast, the original parameters become views of the copy (flat_param_to); with one they
 * stay as they are. */
void
handle_fetch(StrategyContext *x, Handle *h)
{
  const Fsdp1 *f = fsdp1_of(x);
  const Category category = CATEGORY_ALL_GATHER_BUFFER;
  StreamId stream = STREAM_PRE_UNSHARD;
  if (fsdp1_is_mixed(f))
    h->low_precision = handle_allocate(x, h, h->shard_elements * dtype_size(f->gathered), stream,
                                       category, "shard in low precision");
  StorageId shard = handle_allocate(x, h, h->shard_elements * dtype_size(f->stored), stream,
                                    category, "shard on the device");
  copy(x, stream, h->shard, shard, "shard to device");
  if (fsdp1_is_mixed(f)) {
    fsdp1_launch_copy(x, stream, shard, f->stored, h->low_precision, f->gathered);
    live_storage_drop(x->live, shard);
  } else {
    live_storage_drop(x->live, h->low_precision);
    h->low_precision = shard;
  }
  fsdp1_wait_stream(x, STREAM_UNSHARD, stream);
}

void
handle_forget_fetched(StrategyContext *x, Handle *h)
{
  if (x->offloads)
    live_storage_clear(x->live, &h->low_precision);
}

void
handle_offload_gradient(StrategyContext *x, Handle *h, StreamId stream)
{
  copy(x, stream, h->sharded_gradient, h->host_gradient, "gradient to host");
  live_storage_record_stream(x->live, h->sharded_gradient, STREAM_POST_BACKWARD);
}

static void
gradient_operands(StrategyContext *x, const GArray *parameters, Role role)
{
  for (guint i = 0; i < parameters->len; i++)
    fsdp1_gradient_operand(x, &x->parameters[g_array_index(parameters, int, i)], role);
}

static double
bytes_of(const StrategyContext *x, const GArray *parameters)
{
  gint64 elements = 0;
  for (guint i = 0; i < parameters->len; i++)
    elements += x->parameters[g_array_index(parameters, int, i)].local_elements;
  return (double) elements * dtype_size(fsdp1_of(x)->stored);
}

/* The norm of the local gradients is computed on the host, comes to the device for the sum over
 * ranks, and goes back: the host waits both times. */
void
fsdp1_clip_on_host(StrategyContext *x, const GArray *parameters, StorageId zero)
{
  double bytes = bytes_of(x, parameters);
  StorageId local = NO_STORAGE;
  g_autofree char *clips = meaning_text("number_clips", 1, "most", plan_spec_clip_norm(x->plan));
  strategy_work_on_host(x, bytes);
  strategy_compute_on_host(x, "zero", "number_zero");
  gradient_operands(x, parameters, ROLE_READ);
  strategy_compute_on_host(x, "vector_norm", "number_norm_with");
  if (bytes > 0) {
    local = strategy_scalar(x, NO_STORAGE, "local norm", "fill_number");
    program_builder_stream_sync(x->builder, STREAM_COMPUTE);
  }
  StorageId square =
      strategy_scalar(x, local != NO_STORAGE ? local : zero, "square of the norm", "pow power=2");
  fsdp1_all_reduce_norm(x, square);
  StorageId total = strategy_scalar(x, square, "total norm", "pow power=0.5 global=1");
  live_storage_drop(x->live, square);
  program_builder_stream_sync(x->builder, STREAM_COMPUTE);
  fsdp1_operand(x, total, DTYPE_FP32, ROLE_READ);
  strategy_compute_on_host(x, "item", "number_of");
  live_storage_drop(x->live, total);
  strategy_compute_on_host(x, "clip", clips);
  strategy_work_on_host(x, 2 * bytes);
  gradient_operands(x, parameters, ROLE_ACCUMULATE);
  strategy_compute_on_host(x, "mul", "scale_by_number");
  live_storage_drop(x->live, local);
}
