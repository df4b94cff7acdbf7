/* fsdp2_state.c - FSDP2's parameters and their optimizer states as a state dict has them: DTensors
 * sharded along rows, or what full_tensor() makes of them
 * (torch/distributed/tensor/_redistribute.py, torch/distributed/_state_dict_utils.py). */
#include "strategy/fsdp2_private.h"
#include "strategy/state_dict.h"

/* The hook before state_dict() goes back to the shards (_register_state_dict_hooks,
 * _fsdp_param_group.py). */
void
fsdp2_begin_state(StrategyContext *x)
{
  Fsdp2 *f = fsdp2_of(x);
  for (int i = 0; i < f->count; i++)
    group_reshard(x, &f->groups[i]);
}

typedef struct {
  StrategyContext *x;
  const Shard *shard;
  DType dtype;
  StoragePurpose purpose;
} Gathering;

static StorageId
allocate(const Gathering *g, gint64 elements)
{
  return live_storage_alloc(g->x->live, elements * dtype_size(g->dtype), STREAM_COMPUTE,
                            g->purpose);
}

/* from into to by a kernel, or by a copy when it is in the host's memory. */
static void
fill(const Gathering *g, StorageId from, StorageId to, const char *name)
{
  double bytes = (double) g->shard->local_elements * dtype_size(g->dtype);
  gboolean from_host = from != NO_STORAGE && live_storage_space(g->x->live, from) != SPACE_DEVICE;
  group_operand(g->x, from, g->dtype, ROLE_READ);
  group_operand(g->x, to, g->dtype, ROLE_WRITE);
  if (from_host)
    strategy_copy(g->x, STREAM_COMPUTE, name, bytes);
  else
    strategy_launch(g->x, STREAM_COMPUTE, name, 2 * bytes);
}

/* This rank's rows, on the device: themselves, or a copy (dtensor_func moves the DTensor first). */
static StorageId
rows_on_device(const Gathering *g, StorageId local)
{
  if (local == NO_STORAGE || live_storage_space(g->x->live, local) == SPACE_DEVICE) {
    live_storage_hold(g->x->live, local);
    return local;
  }
  StorageId moved = allocate(g, g->shard->local_elements);
  fill(g, local, moved, "shard to device");
  return moved;
}

/* As many rows as every rank's (pad_tensor). */
static StorageId
padded_rows(const Gathering *g, StorageId rows)
{
  if (g->shard->local_elements == g->shard->padded_elements) {
    live_storage_hold(g->x->live, rows);
    return rows;
  }
  StorageId padded = allocate(g, g->shard->padded_elements);
  fill(g, rows, padded, "pad");
  return padded;
}

StorageId
fsdp2_full_tensor(StrategyContext *x, int parameter, StorageId local, DType dtype,
                  Category category)
{
  const Fsdp2 *f = fsdp2_of(x);
  const Gathering g = {x, &f->shards[parameter], dtype, parameter_purpose(x, parameter, category)};
  StorageId rows = rows_on_device(&g, local);
  if (f->ranks == 1)
    return rows;
  StorageId input = padded_rows(&g, rows);
  StorageId full = allocate(&g, g.shard->full_elements);
  program_builder_host_work(x->builder, HOST_WORK_COLLECTIVE_CALL, 1);
  group_operand(x, input, dtype, ROLE_READ);
  group_operand(x, full, dtype, ROLE_WRITE);
  Collective gather = {
      .kind = COLLECTIVE_ALL_GATHER,
      .dtype = (guint8) dtype,
      .communicator = f->shard_communicator,
      .name = x->parameter_names[parameter],
      .bytes = g.shard->full_elements * dtype_size(dtype),
  };
  program_builder_collective(x->builder, STREAM_COMPUTE, &gather);
  live_storage_drop(x->live, input);
  live_storage_drop(x->live, rows);
  return full;
}

/* ---- who holds what ---- */

int
fsdp2_state_ranks(const StrategyContext *x)
{
  return fsdp2_of(x)->ranks;
}

/* Rows, as torch.chunk cuts them. */
void
fsdp2_state_ranges(const StrategyContext *x, StateLayout *layout)
{
  for (guint i = 0; i < x->network->parameters->len; i++)
    strategy_add_rows(x->network, (int) i, layout);
}
