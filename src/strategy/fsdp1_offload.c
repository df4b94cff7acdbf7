/* fsdp1_offload.c - FSDP1 with CPUOffload: shards, their gradients and the optimizer in page-locked
 * host memory (torch/distributed/fsdp/_flat_param.py, init_flat_param_attributes and
 * _use_low_precision_shard; _runtime_utils.py, _offload_grad; fully_sharded_data_parallel.py,
 * clip_grad_norm_). */
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
  if (fsdp1_of(x)->offloads)
    live_storage_clear(x->live, &h->low_precision);
}

void
handle_offload_gradient(StrategyContext *x, Handle *h, StreamId stream)
{
  copy(x, stream, h->sharded_gradient, h->host_gradient, "gradient to host");
  live_storage_record_stream(x->live, h->sharded_gradient, STREAM_POST_BACKWARD);
}

/* The norm of the local gradients is computed on the host, comes to the device for the sum over
 * ranks, and goes back: the host waits both times. */
void
fsdp1_clip_on_host(StrategyContext *x, gint64 elements, StorageId zero)
{
  double bytes = (double) elements * dtype_size(fsdp1_of(x)->stored);
  StorageId local = NO_STORAGE;
  strategy_work_on_host(x, bytes);
  if (elements > 0) {
    local = fsdp1_scalar(x, NO_STORAGE, "local norm", NULL);
    program_builder_stream_sync(x->builder, STREAM_COMPUTE);
  }
  StorageId square =
      fsdp1_scalar(x, local != NO_STORAGE ? local : zero, "square of the norm", NULL);
  fsdp1_all_reduce_norm(x, square);
  StorageId total = fsdp1_scalar(x, square, "total norm", NULL);
  live_storage_drop(x->live, square);
  program_builder_stream_sync(x->builder, STREAM_COMPUTE);
  live_storage_drop(x->live, total);
  strategy_work_on_host(x, 2 * bytes);
  live_storage_drop(x->live, local);
}
