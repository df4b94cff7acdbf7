/* zero_state.c - which rank holds which elements of the fp32 weights and their moments under ZeRO
 * (deepspeed 0.19.8, runtime/zero/stage_1_and_2.py and partition_parameters.py), and what its
 * engine writes (runtime/engine.py, save_checkpoint and save_16bit_model). */
#include "strategy/zero_state.h"

#include "base/units.h"
#include "strategy/state_dict.h"
#include "strategy/torch_optimizer.h"
#include "strategy/zero_flat.h"

int
zero_state_ranks(const StrategyContext *x)
{
  return x->plan->shard * x->plan->replicate;
}

/* Equal partitions of one flat buffer, wherever they fall. */
void
zero_stage12_state_ranges(const StrategyContext *x, StateLayout *layout)
{
  DeepSpeed d;
  ZeroFlat flat;
  FlatSlice slice;
  deepspeed_read(&d, x->plan, x->network, deepspeed_stage(x->plan), 0);
  zero_flat_init(&flat, &d, x->network);
  for (int k = 0; k < flat.count; k++)
    for (int i = 0; zero_flat_slice(&flat, x->network, flat.order[k], i, &slice); i++)
      state_layout_add(layout, slice.rank,
                       (StateRange){flat.order[k], slice.first, slice.elements});
  zero_flat_clear(&flat);
}

/* Each parameter by itself: ceil(elements / ranks) a rank, the last ones padded. */
void
zero3_state_ranges(const StrategyContext *x, StateLayout *layout)
{
  for (guint i = 0; i < x->network->parameters->len; i++) {
    gint64 elements = network_parameter(x->network, (int) i)->elements;
    gint64 share = ceil_div(elements, layout->ranks);
    for (int rank = 0; rank < layout->ranks && rank * share < elements; rank++)
      state_layout_add(layout, rank,
                       (StateRange){(gint32) i, rank * share, MIN(share, elements - rank * share)});
  }
}

/* ---- checkpoints ---- */

/* torch.save takes so many bytes to the host and writes them. */
static void
write(StrategyContext *x, gint64 bytes, gboolean on_device, const char *what)
{
  StoragePurpose purpose = {CATEGORY_OTHER, -1, program_builder_name(x->builder, what)};
  if (!on_device || bytes == 0)
    return;
  StorageId host = live_storage_alloc_in(x->live, SPACE_HOST, bytes, STREAM_COMPUTE, purpose);
  strategy_copy(x, STREAM_COMPUTE, "copy to the host", (double) bytes);
  program_builder_stream_sync(x->builder, STREAM_COMPUTE);
  live_storage_drop(x->live, host);
}

/* The weights of an fp32 model without ZeRO are the model's own. */
gint64
zero_owned_bytes(const StrategyContext *x, int rank)
{
  int stage = deepspeed_stage(x->plan);
  gboolean masters = stage > 0 || x->plan->precision.parameters != DTYPE_FP32;
  StateLayout *layout = state_layout_new(stage > 0 ? zero_state_ranks(x) : 1);
  if (stage == 3)
    zero3_state_ranges(x, layout);
  else if (stage > 0)
    zero_stage12_state_ranges(x, layout);
  else
    strategy_state_whole(x, layout);
  gint64 elements = rank < layout->ranks ? state_layout_elements(layout, rank) : 0;
  state_layout_free(layout);
  return elements * 4 * (masters + optimizer_moments(x->plan));
}

/* The consolidated weights of stage 3: each parameter is gathered, rank 0 takes it to the host. */
static void
consolidate(StrategyContext *x, const DeepSpeed *d)
{
  for (guint i = 0; i < x->network->parameters->len; i++) {
    gint64 share = ceil_div(network_parameter(x->network, (int) i)->elements, d->ranks);
    gint64 bytes = share * d->ranks * d->element;
    StorageId whole =
        live_storage_alloc(x->live, bytes, STREAM_COMPUTE,
                           parameter_purpose(x, (int) i, CATEGORY_UNSHARDED_PARAMETER));
    Collective gather = {
        .kind = COLLECTIVE_ALL_GATHER,
        .dtype = (guint8) d->model,
        .communicator = program_builder_communicator(x->builder, "shard", d->ranks, 1),
        .name = x->parameter_names[i],
        .bytes = bytes,
    };
    program_builder_host_work(x->builder, HOST_WORK_COLLECTIVE_CALL, 1);
    program_builder_operand(x->builder, live_storage_tensor(x->live, whole, d->model), ROLE_WRITE);
    program_builder_collective(x->builder, STREAM_COMPUTE, &gather);
    write(x, x->global_rank == 0 ? share * d->ranks * d->element : 0, TRUE, "weights");
    live_storage_drop(x->live, whole);
  }
}

void
zero_save_state(StrategyContext *x, StateDict *dict)
{
  DeepSpeed d;
  int stage = deepspeed_stage(x->plan);
  deepspeed_read(&d, x->plan, x->network, stage, x->rank);
  gint64 weights = network_parameter_count(x->network) * d.element;
  if (dict->full) {
    dict->bytes += weights;
    if (stage == 3)
      consolidate(x, &d);
    else
      write(x, x->global_rank == 0 ? weights : 0, TRUE, "weights");
    return;
  }
  gint64 owned = zero_owned_bytes(x, x->global_rank);
  write(x, owned, d.optimizer_place == DEEPSPEED_ON_DEVICE, "optimizer states");
  dict->bytes += owned;
  if (stage < 3 && x->global_rank == 0) {
    write(x, weights, TRUE, "weights");
    dict->bytes += weights;
  }
}
