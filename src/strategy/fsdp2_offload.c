/* fsdp2_offload.c - FSDP2 with CPUOffloadPolicy: shards, their gradients and the optimizer in the
 * host's memory (torch/distributed/fsdp/_fully_shard/_fsdp_param.py, all_gather_inputs and
 * reset_sharded_param; _fsdp_collectives.py, foreach_reduce; _fsdp_param_group.py,
 * finalize_backward). */
#include "strategy/fsdp2_private.h"

Space
offload_space(const StrategyContext *x)
{
  if (!x->offloads)
    return SPACE_DEVICE;
  return fsdp2_of(x)->pins ? SPACE_PINNED : SPACE_HOST;
}

/* A copy between device and host; from or to pageable memory it is over when the call returns. */
static void
copy(StrategyContext *x, StreamId stream, const char *what, gint64 bytes, gboolean blocks)
{
  if (bytes == 0)
    return;
  strategy_copy(x, stream, what, (double) bytes);
  if (blocks)
    program_builder_stream_sync(x->builder, stream);
}

StorageId
offload_fetch(StrategyContext *x, const Group *g, int i, StreamId stream)
{
  const Fsdp2 *f = fsdp2_of(x);
  gint64 elements = g->shard[i].padded_elements, bytes = elements * dtype_size(f->stored);
  StorageId shard =
      group_allocate(x, g, bytes, stream, CATEGORY_ALL_GATHER_BUFFER, "shard on the device");
  group_operand(x, x->parameters[g->parameter[i]].sharded, f->stored, ROLE_READ);
  group_operand(x, shard, f->stored, ROLE_WRITE);
  copy(x, stream, "shard to device", bytes, !f->pins);
  if (f->stored == f->gathered)
    return shard;
  gint64 half = elements * dtype_size(f->gathered);
  StorageId cast =
      group_allocate(x, g, half, stream, CATEGORY_ALL_GATHER_BUFFER, "all-gather input");
  group_operand(x, shard, f->stored, ROLE_READ);
  group_operand(x, cast, f->gathered, ROLE_WRITE);
  strategy_launch(x, stream, "to_copy", (double) (bytes + half));
  live_storage_drop(x->live, shard);
  return cast;
}

/* Do its parameters have a .grad already?  One without rows on this rank has an empty one. */
static gboolean
has_gradients(const StrategyContext *x, const Group *g)
{
  for (int i = 0; i < g->count; i++)
    if (x->parameters[g->parameter[i]].sharded_gradient != NO_STORAGE)
      return TRUE;
  return FALSE;
}

/* The first gradient goes to page-locked memory behind the host's back, if the policy pins; one
 * that is added to another is waited for, in pageable memory, since the CPU adds it at once. */
void
offload_store(StrategyContext *x, Group *g, const Reduction *r, StorageId flat, StreamId stream)
{
  const Fsdp2 *f = fsdp2_of(x);
  gboolean adds = has_gradients(x, g), blocks = !f->pins || adds;
  gint64 offset = 0;
  for (int k = 0; k < r->count; k++) {
    int i = r->position[k];
    ParameterState *p = &x->parameters[g->parameter[i]];
    gint64 bytes = p->local_elements * dtype_size(f->stored);
    StorageId arrived =
        live_storage_alloc_in(x->live, blocks ? SPACE_HOST : SPACE_PINNED, bytes, stream,
                              parameter_purpose(x, g->parameter[i], CATEGORY_SHARDED_GRADIENT));
    if (bytes > 0)
      program_builder_operand(
          x->builder,
          program_builder_flat_tensor(x->builder, flat, offset, p->local_elements, f->stored),
          ROLE_READ);
    group_operand(x, arrived, f->stored, ROLE_WRITE);
    copy(x, stream, "gradient to host", bytes, blocks);
    offset += g->shard[i].padded_elements;
    if (!blocks) {
      g->on_host_event[i] = program_builder_event(x->builder);
      program_builder_record(x->builder, stream, g->on_host_event[i]);
    }
    if (!adds) {
      p->sharded_gradient = arrived;
      continue;
    }
    strategy_work_on_host(x, 3.0 * (double) bytes);
    if (bytes > 0) {
      group_operand(x, arrived, f->stored, ROLE_READ);
      group_operand(x, p->sharded_gradient, f->stored, ROLE_ACCUMULATE);
      strategy_compute_on_host(x, "add", NULL);
    }
    live_storage_drop(x->live, arrived);
  }
}

void
offload_wait(StrategyContext *x, Group *g)
{
  for (int i = 0; i < g->count; i++) {
    if (g->on_host_event[i] >= 0)
      program_builder_event_sync(x->builder, g->on_host_event[i]);
    g->on_host_event[i] = -1;
  }
}
