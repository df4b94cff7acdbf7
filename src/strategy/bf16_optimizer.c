/* bf16_optimizer.c - ZeRO stage 1 with bf16 parameters and fp32 gradients (deepspeed 0.19.8,
 * runtime/bf16_optimizer.py): every rank keeps all gradients in fp32, for ever; only master weights
 * and optimizer state are partitioned. */
#include "strategy/bf16_optimizer.h"
#include "program/meaning.h"

#include "strategy/zero_scalars.h"
#include "strategy/zero_stage12.h"

enum { FP32_BYTES = 4, BF16_BYTES = 2 };

/* What the two routes of stage 1 have in common comes first. */
typedef struct {
  Zero zero;
  StorageId gradients; /* fp32, of the whole flat buffer */
} Bf16Optimizer;

static Bf16Optimizer *
optimizer_of(const StrategyContext *x)
{
  return x->state;
}

void
bf16_optimizer_setup(StrategyContext *x)
{
  Bf16Optimizer *o = x->state = g_new0(Bf16Optimizer, 1);
  Zero *z = &o->zero;
  deepspeed_begin(&z->d, x, 1);
  z->d.round_robin_gradients = z->d.parameter_alignment = FALSE; /* it knows neither */
  zero_flat_init(&z->flat, &z->d, x->network);
  zero_gradients_init(z, x->network);
  o->gradients = NO_STORAGE;
}

void
bf16_optimizer_initialize(StrategyContext *x)
{
  Bf16Optimizer *o = optimizer_of(x);
  Zero *z = &o->zero;
  zero_flat_flatten(&z->flat, x, &z->d, FALSE);
  zero_make_master(x, z);
  StoragePurpose purpose = {CATEGORY_UNSHARDED_GRADIENT, -1,
                            program_builder_name(x->builder, "fp32 gradients")};
  gint64 bytes = z->flat.padded * FP32_BYTES;
  o->gradients = live_storage_alloc(x->live, bytes, STREAM_COMPUTE, purpose);
  zero_operand(x, o->gradients, 0, z->flat.padded, DTYPE_FP32, ROLE_WRITE);
  strategy_launch(x, STREAM_COMPUTE, "zeros", (double) bytes);
}

/* ---- backward ---- */

/* backward_prologue, clear_lp_grads: one kernel for all. */
void
bf16_optimizer_begin_backward(StrategyContext *x)
{
  const ZeroFlat *flat = &optimizer_of(x)->zero.flat;
  double bytes = 0;
  for (int k = 0; k < flat->count; k++) {
    StorageId gradient = x->parameters[flat->order[k]].gradient;
    if (gradient == NO_STORAGE)
      continue;
    program_builder_operand(x->builder, live_storage_tensor(x->live, gradient, DTYPE_BF16),
                            ROLE_WRITE);
    bytes += (double) live_storage_bytes(x->live, gradient);
  }
  if (bytes > 0)
    strategy_launch(x, STREAM_COMPUTE, "foreach_zero", bytes);
}

/* update_hp_grads: each through a copy in fp32. */
static void
accumulate(StrategyContext *x, Bf16Optimizer *o, int parameter)
{
  gint64 elements = network_parameter(x->network, parameter)->elements;
  StorageId gradient = x->parameters[parameter].gradient;
  if (gradient == NO_STORAGE)
    return;
  StorageId cast = live_storage_alloc(x->live, elements * FP32_BYTES, STREAM_COMPUTE,
                                      parameter_purpose(x, parameter, CATEGORY_TEMPORARY));
  zero_operand(x, gradient, 0, elements, DTYPE_BF16, ROLE_READ);
  zero_operand(x, cast, 0, elements, DTYPE_FP32, ROLE_WRITE);
  strategy_launch(x, STREAM_COMPUTE, "to_copy", (double) (elements * (FP32_BYTES + BF16_BYTES)));
  zero_operand(x, cast, 0, elements, DTYPE_FP32, ROLE_READ);
  zero_operand(x, o->gradients, o->zero.flat.offset[parameter], elements, DTYPE_FP32,
               ROLE_ACCUMULATE);
  strategy_launch(x, STREAM_COMPUTE, "add", 3.0 * (double) (elements * FP32_BYTES));
  live_storage_drop(x->live, cast);
}

/* buffered_allreduce_fallback of the flat gradients, which are one tensor: reduced in bf16. */
static void
reduce(StrategyContext *x, Bf16Optimizer *o)
{
  const Zero *z = &o->zero;
  gint64 elements = z->flat.padded, bytes = elements * BF16_BYTES;
  StoragePurpose purpose = {CATEGORY_REDUCE_SCATTER_BUFFER, -1,
                            program_builder_name(x->builder, "gradients in bf16")};
  StorageId sent = live_storage_alloc(x->live, bytes, STREAM_COMPUTE, purpose);
  zero_operand(x, o->gradients, 0, elements, DTYPE_FP32, ROLE_READ);
  zero_operand(x, sent, 0, elements, DTYPE_BF16, ROLE_WRITE);
  strategy_launch(x, STREAM_COMPUTE, "to_copy", 3.0 * (double) bytes);
  if (z->d.ranks > 1) {
    program_builder_host_work(x->builder, HOST_WORK_COLLECTIVE_CALL, 1);
    zero_operand(x, sent, 0, elements, DTYPE_BF16, ROLE_ACCUMULATE);
    program_builder_collective(x->builder, STREAM_COMPUTE,
                               &(Collective){.kind = COLLECTIVE_ALL_REDUCE,
                                             .dtype = DTYPE_BF16,
                                             .communicator = z->d.communicator,
                                             .name = program_builder_name(x->builder, "gradients"),
                                             .bytes = bytes});
    zero_operand(x, sent, 0, elements, DTYPE_BF16, ROLE_ACCUMULATE);
    g_autofree char *meaning = meaning_text("scale_by", 1, "factor", 1.0 / z->d.ranks);
    strategy_launch_as(x, STREAM_COMPUTE, "mul", 2.0 * (double) bytes, meaning);
  }
  zero_operand(x, sent, 0, elements, DTYPE_BF16, ROLE_READ);
  zero_operand(x, o->gradients, 0, elements, DTYPE_FP32, ROLE_WRITE);
  strategy_launch(x, STREAM_COMPUTE, "copy", 3.0 * (double) bytes);
  live_storage_drop(x->live, sent);
}

void
bf16_optimizer_after_graph(StrategyContext *x)
{
  Bf16Optimizer *o = optimizer_of(x);
  program_builder_push(x->builder, RANGE_HOOK, "epilogue", 0);
  for (int k = 0; k < o->zero.flat.count; k++)
    accumulate(x, o, o->zero.flat.order[k]);
  if (x->last_micro_batch)
    reduce(x, o);
  program_builder_pop(x->builder);
}

/* ---- the step ---- */

/* get_global_norm_of_tensors of all gradients, which every rank has. */
static StorageId
take_norm(StrategyContext *x, const Bf16Optimizer *o)
{
  const ZeroFlat *flat = &o->zero.flat;
  g_autofree StorageId *norms = g_new(StorageId, MAX(flat->count, 1));
  gint64 scalars = FP32_BYTES * (gint64) flat->count;
  for (int k = 0; k < flat->count; k++) {
    gint64 elements = network_parameter(x->network, flat->order[k])->elements;
    gint32 gradient = program_builder_flat_tensor(
        x->builder, o->gradients, flat->offset[flat->order[k]], elements, DTYPE_FP32);
    norms[k] = zero_reduced(x, STREAM_COMPUTE, FP32_BYTES, "norm", gradient,
                            (double) (elements * FP32_BYTES));
    zero_reduction_scratch(x, STREAM_COMPUTE, elements, FP32_BYTES);
  }
  gint64 n = flat->count;
  g_autofree Scalars *all = g_new(Scalars, MAX(n, 1));
  for (int k = 0; k < flat->count; k++)
    all[k] = (Scalars){norms[k], 1};
  StorageId stacked =
      zero_make(x, STREAM_COMPUTE, &(SmallTensor){scalars, n, "stack", NULL}, (int) n, all);
  StorageId squares = zero_make(x, STREAM_COMPUTE, &(SmallTensor){scalars, n, "pow", NULL}, 1,
                                &(Scalars){stacked, n});
  live_storage_drop(x->live, stacked);
  StorageId sum = zero_make(x, STREAM_COMPUTE, &(SmallTensor){FP32_BYTES, 1, "sum", NULL}, 1,
                            &(Scalars){squares, n});
  StorageId total = zero_scalar(x, FP32_BYTES, "pow", "pow power=0.5 global=1", sum);
  zero_mask_invalid(x, total, FP32_BYTES);
  live_storage_drop(x->live, sum);
  for (int k = 0; k < flat->count; k++)
    live_storage_drop(x->live, norms[k]);
  live_storage_drop(x->live, squares);
  return total;
}

/* clip_tensors_by_global_norm: the host reads whether the coefficient is below 1; then each
 * gradient is multiplied by it, which is what costs and is assumed here. */
static void
clip(StrategyContext *x, const Bf16Optimizer *o)
{
  const Zero *z = &o->zero;
  g_autofree char *most = meaning_text("mul_scalar", 1, "value", z->d.clip);
  StorageId sum = zero_scalar(x, FP32_BYTES, "add", "add_scalar value=1e-06", z->global_norm);
  StorageId inverse = zero_scalar(x, FP32_BYTES, "reciprocal", "pow power=-1", sum);
  StorageId coefficient = zero_scalar(x, FP32_BYTES, "mul", most, inverse);
  live_storage_drop(x->live, inverse);
  live_storage_drop(x->live, sum);
  StorageId below = zero_scalar(x, 1, "lt", "is_less value=1", coefficient);
  zero_read_back(x, STREAM_COMPUTE);
  live_storage_drop(x->live, below);
  for (int k = 0; k < z->flat.count; k++) {
    gint64 elements = network_parameter(x->network, z->flat.order[k])->elements;
    zero_operand(x, coefficient, 0, 1, DTYPE_FP32, ROLE_READ);
    zero_operand(x, o->gradients, z->flat.offset[z->flat.order[k]], elements, DTYPE_FP32,
                 ROLE_ACCUMULATE);
    strategy_launch_as(x, STREAM_COMPUTE, "mul", 2.0 * (double) (elements * FP32_BYTES),
                       "scale_by_at_most_1");
  }
  live_storage_drop(x->live, coefficient);
}

/* clear_hp_grads, and param.grad = None for each parameter. */
static void
clear_gradients(StrategyContext *x, Bf16Optimizer *o)
{
  zero_operand(x, o->gradients, 0, o->zero.flat.padded, DTYPE_FP32, ROLE_WRITE);
  strategy_launch(x, STREAM_COMPUTE, "zero", (double) (o->zero.flat.padded * FP32_BYTES));
  for (int k = 0; k < o->zero.flat.count; k++) {
    ParameterState *p = &x->parameters[o->zero.flat.order[k]];
    p->has_gradient = FALSE;
    live_storage_clear(x->live, &p->gradient);
  }
}

void
bf16_optimizer_step(StrategyContext *x)
{
  Bf16Optimizer *o = optimizer_of(x);
  Zero *z = &o->zero;
  program_builder_set_module(x->builder, -1);
  StorageId old = z->global_norm;
  z->global_norm = take_norm(x, o);
  live_storage_set_purpose(x->live, z->global_norm, zero_norm_purpose(x));
  zero_test_norm(x, z->global_norm);
  if (z->d.clip > 0)
    clip(x, o);
  z->master.gradient = o->gradients;
  z->master.gradient_offset = z->flat.first;
  torch_optimizer_step(x, DTYPE_FP32, 1, &z->master);
  z->master.gradient = NO_STORAGE;
  zero_write_back(x, z);
  zero_flat_gather(&z->flat, x, &z->d);
  live_storage_drop(x->live, old);
  clear_gradients(x, o);
  deepspeed_end_step(x);
}
