/* zero3_step.c - the optimizer's step: everything is released, gradients are tested and their norm
 * taken, then one sub-group after the other is updated (stage3.py, step). */
#include "program/meaning.h"
#include "strategy/zero3_private.h"
#include "strategy/zero_gradients.h"

#include "strategy/zero_scalars.h"

enum { NORM_BYTES = 8 }; /* get_norm_dtype: fp64 */

/* ---- fp16: has anything overflowed? ---- */

/* torch.isinf or isnan of all gradients, then .any(), or-ed into the flag. */
static void
test_gradients(StrategyContext *x, gboolean takes_absolute)
{
  Zero3 *z = zero3_of(x);
  StreamId stream = z->ds.reduce_stream;
  StorageId absolute = NO_STORAGE;
  gint64 n = z->shard_elements, bytes = n * dtype_size(z->ds.accumulation);
  const Scalars gradients = {z->gradients, n};
  if (takes_absolute)
    absolute = zero_make(x, stream, &(SmallTensor){bytes, n, "abs", NULL}, 1, &gradients);
  const Scalars tested = {takes_absolute ? absolute : z->gradients, n};
  const SmallTensor flags = {n, n, takes_absolute ? "eq" : "ne",
                             takes_absolute ? "is_infinite" : "is_nan"};
  StorageId bad = zero_make(x, stream, &flags, 1, &tested);
  live_storage_drop(x->live, absolute);
  StorageId any = zero_make(x, stream, &(SmallTensor){1, 1, "any", NULL}, 1, &(Scalars){bad, n});
  zero_reduction_scratch(x, stream, z->shard_elements, 1);
  live_storage_drop(x->live, bad);
  zero3_operand(x, any, DTYPE_BOOL, ROLE_READ);
  zero3_operand(x, z->overflow, DTYPE_BOOL, ROLE_ACCUMULATE);
  strategy_launch_as(x, stream, "logical_or", 3, "add");
  live_storage_drop(x->live, any);
}

static void
check_overflow(StrategyContext *x)
{
  Zero3 *z = zero3_of(x);
  StreamId stream = z->ds.reduce_stream;
  test_gradients(x, TRUE);
  test_gradients(x, FALSE);
  StorageId flag = zero_small(x, stream, 1, "clone", z->overflow);
  StorageId number = zero_small(x, stream, 1, "to_copy", flag);
  zero3_operand(x, z->overflow, DTYPE_BOOL, ROLE_WRITE);
  strategy_launch(x, stream, "zero", 1);
  live_storage_drop(x->live, flag);
  zero3_wait_stream(x, STREAM_COMPUTE, stream);
  zero_all_reduce_scalar(x, z->ds.communicator, number, DTYPE_UINT8);
  zero_read_back(x, STREAM_COMPUTE);
  live_storage_drop(x->live, number);
}

/* ---- norms ---- */

/* The norm of each parameter's gradient, by way of a copy in fp64. */
static StorageId *
parameter_norms(StrategyContext *x, const SubGroup *group)
{
  Zero3 *z = zero3_of(x);
  StorageId *norms = g_new(StorageId, group->count);
  StoragePurpose purpose = {CATEGORY_TEMPORARY, -1,
                            program_builder_name(x->builder, "gradient in fp64")};
  for (int i = 0; i < group->count; i++) {
    const Zero3Parameter *p = &z->parameter[z->trained[group->first + i]];
    StorageId wide = live_storage_alloc(x->live, NORM_BYTES * p->shard, STREAM_COMPUTE, purpose);
    zero3_part(x, z->gradients, p->first, p->shard, z->ds.accumulation, ROLE_READ);
    zero3_operand(x, wide, DTYPE_INT64, ROLE_WRITE); /* eight bytes each: fp64 */
    strategy_launch(x, STREAM_COMPUTE, "to_copy", (NORM_BYTES + 2.0) * (double) p->shard);
    norms[i] = zero_make(x, STREAM_COMPUTE, &(SmallTensor){NORM_BYTES, 1, "norm", NULL}, 1,
                         &(Scalars){wide, p->shard});
    zero_reduction_scratch(x, STREAM_COMPUTE, p->shard, NORM_BYTES);
    live_storage_drop(x->live, wide);
  }
  return norms;
}

/* A scalar that one kernel makes of another, which goes. */
static StorageId
turn_into(StrategyContext *x, gint64 bytes, const char *what, const char *meaning, StorageId from)
{
  StorageId made = zero_scalar(x, bytes, what, meaning, from);
  live_storage_drop(x->live, from);
  return made;
}

/* A new tensor of `count` elements that one kernel makes of several scalars. */
static StorageId
made_of(StrategyContext *x, const SmallTensor *t, int n, const StorageId *from)
{
  StoragePurpose purpose = {CATEGORY_TEMPORARY, -1, program_builder_name(x->builder, t->what)};
  StorageId made = live_storage_alloc(x->live, t->bytes, STREAM_COMPUTE, purpose);
  for (int i = 0; i < n; i++) {
    gint64 bytes = live_storage_bytes(x->live, from[i]);
    zero3_operand(x, from[i],
                  bytes == 1   ? DTYPE_BOOL
                  : bytes == 4 ? DTYPE_FP32
                               : DTYPE_INT64,
                  ROLE_READ);
  }
  zero3_operand(x, made, DTYPE_INT64, ROLE_WRITE);
  strategy_launch_as(x, STREAM_COMPUTE, t->what, 2.0 * (double) t->bytes, t->meaning);
  return made;
}

/* get_grad_norm_direct of a sub-group: the norm over all ranks, or -1 when it is invalid. */
static StorageId
group_norm(StrategyContext *x, const SubGroup *group)
{
  Zero3 *z = zero3_of(x);
  g_autofree StorageId *norms = parameter_norms(x, group);
  gint64 n = group->count;
  StorageId stack = made_of(x, &(SmallTensor){NORM_BYTES * n, n, "stack", NULL}, (int) n, norms);
  StorageId powers = zero_make(x, STREAM_COMPUTE, &(SmallTensor){NORM_BYTES * n, n, "pow", NULL}, 1,
                               &(Scalars){stack, n});
  live_storage_drop(x->live, stack);
  StorageId sum = zero_make(x, STREAM_COMPUTE, &(SmallTensor){NORM_BYTES, 1, "sum", NULL}, 1,
                            &(Scalars){powers, n});
  live_storage_drop(x->live, powers);
  zero_all_reduce_scalar(x, z->ds.communicator, sum, DTYPE_INT64);
  StorageId total = zero_scalar(x, NORM_BYTES, "pow", "pow power=0.5", sum);
  StorageId absolute = zero_scalar(x, NORM_BYTES, "abs", NULL, total);
  StorageId infinite = turn_into(x, 1, "eq", "is_infinite", absolute);
  StorageId nan = zero_scalar(x, 1, "ne", "is_nan", total);
  const Scalars either[] = {{nan, 1}, {infinite, 1}};
  StorageId invalid = zero_make(x, STREAM_COMPUTE, &(SmallTensor){1, 1, "or", NULL}, 2, either);
  StorageId error = zero_scalar(x, 4, "copy", "fill value=-1", NO_STORAGE);
  StorageId widened = zero_scalar(x, NORM_BYTES, "to_copy", NULL, error);
  StorageId result = made_of(x, &(SmallTensor){NORM_BYTES, 1, "where", NULL}, 3,
                             (StorageId[]){invalid, widened, total});
  live_storage_drop(x->live, widened);
  live_storage_drop(x->live, total);
  live_storage_drop(x->live, sum);
  for (int i = group->count; i > 0; i--)
    live_storage_drop(x->live, norms[i - 1]);
  live_storage_drop(x->live, infinite);
  live_storage_drop(x->live, nan);
  live_storage_drop(x->live, invalid);
  live_storage_drop(x->live, error);
  return result;
}

/* combine_grad_norm_groups, then the host asks whether the norm is valid. */
static StorageId
combine(StrategyContext *x, const StorageId *norms, int n)
{
  StorageId stack = made_of(x, &(SmallTensor){NORM_BYTES * n, n, "stack", NULL}, n, norms);
  StorageId any = zero_any_invalid(x, stack, n);
  StorageId norm = zero_make(x, STREAM_COMPUTE, &(SmallTensor){NORM_BYTES, 1, "norm", NULL}, 1,
                             &(Scalars){stack, n});
  StorageId error = zero_scalar(x, NORM_BYTES, "full", "fill value=-1", NO_STORAGE);
  StorageId result = made_of(x, &(SmallTensor){NORM_BYTES, 1, "where", "where"}, 3,
                             (StorageId[]){any, error, norm});
  live_storage_drop(x->live, error);
  live_storage_drop(x->live, stack);
  live_storage_drop(x->live, any);
  live_storage_drop(x->live, norm);
  StorageId invalid = zero_any_invalid(x, result, 1);
  zero_read_back(x, STREAM_COMPUTE);
  live_storage_drop(x->live, invalid);
  return result;
}

/* ---- update ---- */

/* Gradients of a sub-group as one fp32 tensor; one that is fp32 and alone already is. */
static StorageId
fp32_gradient(StrategyContext *x, const SubGroup *group)
{
  Zero3 *z = zero3_of(x);
  gboolean wide = z->ds.accumulation == DTYPE_FP32, alone = group->count == 1;
  int size = dtype_size(z->ds.accumulation);
  StoragePurpose purpose = {CATEGORY_SHARDED_GRADIENT, -1,
                            program_builder_name(x->builder, "flat gradient")};
  StorageId flat = z->gradients;
  live_storage_hold(x->live, flat);
  if (!alone) {
    live_storage_drop(x->live, flat);
    flat = live_storage_alloc(x->live, group->elements * size, STREAM_COMPUTE, purpose);
    zero3_part(x, z->gradients, group->first_element, group->elements, z->ds.accumulation,
               ROLE_READ);
    zero3_operand(x, flat, z->ds.accumulation, ROLE_WRITE);
    strategy_launch(x, STREAM_COMPUTE, "cat", 2.0 * (double) (group->elements * size));
  }
  if (wide)
    return flat;
  purpose.what = program_builder_name(x->builder, "fp32 gradient");
  StorageId gradient = live_storage_alloc(x->live, group->elements * 4, STREAM_COMPUTE, purpose);
  if (alone)
    zero3_part(x, flat, group->first_element, group->elements, z->ds.accumulation, ROLE_READ);
  else
    zero3_operand(x, flat, z->ds.accumulation, ROLE_READ);
  zero3_operand(x, gradient, DTYPE_FP32, ROLE_WRITE);
  strategy_launch(x, STREAM_COMPUTE, "to_copy", (double) (group->elements * (size + 4)));
  live_storage_drop(x->live, flat);
  return gradient;
}

/* Elements into that tensor's storage at which the sub-group's begin: what is fp32 and alone is a
 * view of the buffer of all. */
static gint64
gradient_first(const Zero3 *z, const SubGroup *group, StorageId gradient)
{
  return gradient == z->gradients ? group->first_element : 0;
}

/* unscale_and_clip_grads: ((norm / scale + 1e-6) / clip).clamp(min=1) * scale, and its inverse.
 * norm: NO_STORAGE when the host has it. */
static void
unscale(StrategyContext *x, const SubGroup *group, StorageId gradient, StorageId norm)
{
  Zero3 *z = zero3_of(x);
  StorageId scale = NO_STORAGE, inverse = NO_STORAGE, clamped = NO_STORAGE;
  if (z->ds.clip > 0 && norm != NO_STORAGE) {
    g_autofree char *over = meaning_text("div_scalar", 1, "value", z->ds.clip);
    g_autofree char *divides = zero_by_loss_scale(z->ds.model, "div_scalar"),
                    *multiplies = zero_by_loss_scale(z->ds.model, "mul_scalar");
    StorageId unscaled = zero_scalar(x, NORM_BYTES, "div", divides, norm);
    StorageId sum = turn_into(x, NORM_BYTES, "add", "add_scalar value=1e-06", unscaled);
    StorageId quotient = turn_into(x, NORM_BYTES, "div", over, sum);
    clamped = turn_into(x, NORM_BYTES, "clamp", "clamp least=1", quotient);
    scale = zero_scalar(x, NORM_BYTES, "mul", multiplies, clamped);
    StorageId reciprocal = zero_scalar(x, NORM_BYTES, "reciprocal", "pow power=-1", scale);
    inverse = turn_into(x, NORM_BYTES, "mul", "mul_scalar value=1", reciprocal);
    zero3_operand(x, inverse, DTYPE_INT64, ROLE_READ);
  }
  gboolean clips = inverse != NO_STORAGE;
  g_autofree char *unscales = offload_unscaling(z);
  zero3_part(x, gradient, gradient_first(z, group, gradient), group->elements, DTYPE_FP32,
             ROLE_ACCUMULATE);
  strategy_launch_as(x, STREAM_COMPUTE, "mul", 8.0 * (double) group->elements,
                     clips ? "foreach_mul" : unscales);
  live_storage_drop(x->live, inverse);
  live_storage_drop(x->live, clamped);
  live_storage_drop(x->live, scale);
}

/* The new weights, from fp32 to the shards. */
void
step_store_weights(StrategyContext *x, const SubGroup *group)
{
  Zero3 *z = zero3_of(x);
  gint64 bytes = group->elements * z->ds.element;
  gboolean to_host = offload_is_parameters(z);
  if (group->on_host && to_host) {
    zero3_operand(x, group->master, DTYPE_FP32, ROLE_READ);
    zero3_part(x, z->shards, group->first_element, group->elements, z->ds.model, ROLE_WRITE);
    strategy_compute_on_host(x, "copy", NULL);
    return;
  }
  zero3_operand(x, group->master, DTYPE_FP32, ROLE_READ);
  zero3_part(x, z->shards, group->first_element, group->elements, z->ds.model, ROLE_WRITE);
  if (group->on_host || to_host)
    strategy_copy(x, STREAM_COMPUTE, to_host ? "weights to host" : "weights to device",
                  (double) bytes);
  else
    strategy_launch(x, STREAM_COMPUTE, "copy", (double) (bytes + 4 * group->elements));
  if (to_host)
    program_builder_stream_sync(x->builder, STREAM_COMPUTE);
}

static void
update_group(StrategyContext *x, SubGroup *group, StorageId norm)
{
  gboolean kept = group->gradient != NO_STORAGE;
  StorageId gradient = kept ? group->gradient : fp32_gradient(x, group);
  if (group->on_host) {
    offload_update(x, group);
  } else {
    unscale(x, group, gradient, norm);
    group->optimized.value = group->master;
    group->optimized.gradient = gradient;
    group->optimized.gradient_offset = gradient_first(zero3_of(x), group, gradient);
    group->optimized.stepped = TRUE;
    torch_optimizer_step(x, DTYPE_FP32, 1, &group->optimized);
  }
  step_store_weights(x, group);
  if (!kept)
    live_storage_drop(x->live, gradient);
}

void
step_gather_persistent(StrategyContext *x)
{
  Zero3 *z = zero3_of(x);
  g_autoptr(GArray) persistent = g_array_new(FALSE, FALSE, sizeof(int));
  for (int p = 0; p < z->count; p++)
    if (z->parameter[p].persistent)
      g_array_append_val(persistent, p);
  z->shards_settled = persistent->len > 0;
  if (persistent->len > 0)
    gather_now(x, persistent);
}

/* Norms are taken on the host, or on the device from what has come there already. */
static void
step_offloaded(StrategyContext *x)
{
  Zero3 *z = zero3_of(x);
  if (z->ds.model == DTYPE_FP16)
    offload_check_overflow(x);
  strategy_compute_on_host(x, "zero", "number_zero of=1");
  for (int i = 0; i < z->groups; i++)
    offload_group_norm(x, &z->group[i]);
  offload_clip(x);
  for (int i = 0; i < z->groups; i++)
    update_group(x, &z->group[i], NO_STORAGE);
  offload_forget_norms(x);
  step_gather_persistent(x);
  secondary_forget(x);
}

static void
step_on_device(StrategyContext *x)
{
  Zero3 *z = zero3_of(x);
  StorageId previous = z->norm; /* the engine holds it until step() returns */
  g_autofree StorageId *norms = g_new(StorageId, z->groups);
  if (z->ds.model == DTYPE_FP16)
    check_overflow(x);
  for (int i = 0; i < z->groups; i++)
    norms[i] = group_norm(x, &z->group[i]);
  StorageId norm = combine(x, norms, z->groups);
  g_autofree char *unscaled =
      meaning_text("div_scalar", 2, "value", network_loss_scale(z->ds.model), "global", 1.0);
  z->norm = zero_scalar(x, NORM_BYTES, "div", unscaled, norm);
  live_storage_set_purpose(x->live, z->norm, zero_norm_purpose(x));
  for (int i = 0; i < z->groups; i++)
    update_group(x, &z->group[i], norm);
  step_gather_persistent(x);
  secondary_forget(x);
  live_storage_drop(x->live, norm);
  for (int i = z->groups; i > 0; i--)
    live_storage_drop(x->live, norms[i - 1]);
  live_storage_drop(x->live, previous);
}

void
zero3_optimizer_step(StrategyContext *x)
{
  program_builder_host_work(x->builder, HOST_WORK_OPTIMIZER, zero3_of(x)->trained_count);
  release_all(x);
  if (offload_is_optimizer(zero3_of(x)))
    step_offloaded(x);
  else
    step_on_device(x);
  deepspeed_end_step(x);
}
