/* zero_stage12.c - ZeRO stages 1 and 2 as DeepSpeedZeroOptimizer sets them up (deepspeed 0.19.8,
 * runtime/zero/stage_1_and_2.py, __init__). */
#include "strategy/zero_stage12.h"

#include "strategy/zero_offload.h"

gboolean
zero_stage12_accept_accumulation(const PlanSpec *plan, const Network *network, GError **error)
{
  DeepSpeed d;
  deepspeed_read(&d, plan, network, 1, 0);
  if (d.accumulation == d.model || d.accumulation == DTYPE_FP32)
    return TRUE;
  return plan_spec_refuse(plan, error, "deepspeed.grad_accum_dtype",
                          "stages 1 and 2 sum in fp32 or in the parameters' dtype, not in %s",
                          dtype_name(d.accumulation));
}

void
zero_stage12_setup(StrategyContext *x, int stage)
{
  Zero *z = x->state = g_new0(Zero, 1);
  deepspeed_begin(&z->d, x, stage);
  if (zero_is_offloaded(z))
    z->d.contiguous_gradients = TRUE; /* "CPU-Offload requires contiguous gradients" */
  zero_flat_init(&z->flat, &z->d, x->network);
  zero_gradients_init(z, x->network);
}

void
zero_stage12_teardown(StrategyContext *x)
{
  Zero *z = zero_of(x);
  zero_offload_clear(z);
  zero_gradients_clear(z);
  zero_flat_clear(&z->flat);
  g_free(z);
}

int
zero_stage12_heaviest_rank(const PlanSpec *plan, const Network *network)
{
  DeepSpeed d;
  ZeroFlat flat;
  deepspeed_read(&d, plan, network, deepspeed_stage(plan), 0);
  if (deepspeed_is_bf16_optimizer(&d) || !d.contiguous_gradients || d.ranks == 1)
    return -1;
  zero_flat_init(&flat, &d, network);
  int rank = zero_flat_heaviest_rank(&flat, network);
  zero_flat_clear(&flat);
  return rank;
}

static StorageId
new_partition(StrategyContext *x, const Zero *z, DType dtype, Category category, const char *what)
{
  StoragePurpose purpose = {category, -1, program_builder_name(x->builder, what)};
  gint64 bytes = z->flat.partition * dtype_size(dtype);
  StorageId partition = live_storage_alloc(x->live, bytes, STREAM_COMPUTE, purpose);
  return partition;
}

/* The partition is cloned, then cast to fp32: a clone of fp32 parameters is the master itself. */
void
zero_make_master(StrategyContext *x, Zero *z)
{
  gint64 elements = z->flat.partition;
  gboolean casts = z->d.model != DTYPE_FP32;
  StorageId clone =
      new_partition(x, z, z->d.model, casts ? CATEGORY_TEMPORARY : CATEGORY_OPTIMIZER_STATE,
                    casts ? "clone" : "fp32 master partition");
  program_builder_operand(x->builder, zero_flat_partition_tensor(&z->flat, x, &z->d), ROLE_READ);
  zero_operand(x, clone, 0, elements, z->d.model, ROLE_WRITE);
  strategy_launch(x, STREAM_COMPUTE, "clone", 2.0 * (double) (elements * z->d.element));
  z->master.value = clone;
  z->master.elements = elements;
  z->master.stepped = TRUE;
  if (casts)
    z->master.value =
        new_partition(x, z, DTYPE_FP32, CATEGORY_OPTIMIZER_STATE, "fp32 master partition");
  zero_flat_partition_holds(&z->flat, x, z->master.value, DTYPE_FP32);
  if (!casts)
    return;
  zero_operand(x, clone, 0, elements, z->d.model, ROLE_READ);
  zero_operand(x, z->master.value, 0, elements, DTYPE_FP32, ROLE_WRITE);
  strategy_launch(x, STREAM_COMPUTE, "to_copy", (double) (elements * (4 + z->d.element)));
  live_storage_drop(x->live, clone);
}

/* initialize_optimizer_states: a gradient of zeros that goes at once. */
static void
try_gradient(StrategyContext *x, const Zero *z)
{
  StorageId zeros = new_partition(x, z, DTYPE_FP32, CATEGORY_TEMPORARY, "gradient of zeros");
  zero_operand(x, zeros, 0, z->flat.partition, DTYPE_FP32, ROLE_WRITE);
  strategy_launch(x, STREAM_COMPUTE, "zeros", 4.0 * (double) z->flat.partition);
  live_storage_drop(x->live, zeros);
}

void
zero_stage12_initialize(StrategyContext *x)
{
  Zero *z = zero_of(x);
  program_builder_empty_cache(x->builder);
  zero_flat_flatten(&z->flat, x, &z->d, TRUE);
  if (zero_is_offloaded(z)) {
    zero_offload_initialize(x, z);
    return;
  }
  zero_make_master(x, z);
  try_gradient(x, z);
}

StateSpread
zero_stage12_spread(const StrategyContext *x)
{
  return (StateSpread){1, ((const Zero *) x->state)->d.ranks};
}

/* Trainable parameters are reduced once in every micro-batch of stage 2, in the last of stage 1;
 * then the overflow flag and the norm.  With a reduce for each owner only those two are
 * all-reduced.  The whole buffer is gathered. */
ExpectedTotals
zero_expected(StrategyContext *x)
{
  const Zero *z = zero_of(x);
  gint64 elements = 0, reductions = z->d.stage == 2 ? z->d.accumulation_steps : 1;
  gboolean to_owners =
      z->d.contiguous_gradients && z->d.reduce_scatter && !z->d.multi_rank_allreduce;
  for (int k = 0; k < z->flat.count; k++)
    elements += network_parameter(x->network, z->flat.order[k])->elements;
  gint64 frozen = network_parameter_count(x->network) - elements;
  ExpectedTotals total = {.parameter_bytes = (z->flat.padded + frozen) * z->d.element};
  if (z->d.ranks == 1)
    return total;
  total.elements_gathered = z->flat.padded;
  total.elements_all_reduced = to_owners ? 0 : reductions * elements;
  total.elements_all_reduced += !!z->d.checks_overflow + !!z->d.compute_grad_norm;
  return total;
}
