/* optimizer_step.c - gradient clipping and the optimizer (torch/nn/utils/clip_grad.py,
 * torch/optim/adam.py, sgd.py). */
#include "lower/optimizer_step.h"

#include "base/units.h"
#include "program/meaning.h"
#include "strategy/torch_optimizer.h"

struct _OptimizerState {
  OptimizedTensor *tensors; /* by parameter */
};

OptimizerState *
optimizer_state_new(StrategyContext *x)
{
  OptimizerState *state = g_new0(OptimizerState, 1);
  guint n = x->network->parameters->len;
  state->tensors = g_new(OptimizedTensor, n);
  for (guint i = 0; i < n; i++) {
    state->tensors[i] = (OptimizedTensor) OPTIMIZED_TENSOR_INIT;
    state->tensors[i].parameter = (gint32) i;
  }
  return state;
}

void
optimizer_state_free(OptimizerState *state)
{
  g_free(state->tensors);
  g_free(state);
}

const OptimizedTensor *
optimizer_state_tensor(const OptimizerState *state, int parameter)
{
  return &state->tensors[parameter];
}

/* ---- small steps ---- */

static DType
stored_dtype(const StrategyContext *x)
{
  return x->plan->precision.parameters;
}

/* Bytes of a parameter's local part: 0 for a rank without rows of it. */
static gint64
local_bytes(const StrategyContext *x, guint i)
{
  return x->parameters[i].local_elements * dtype_size(stored_dtype(x));
}

static StorageId
temporary(StrategyContext *x, gint64 bytes, const char *what)
{
  StoragePurpose purpose = {CATEGORY_TEMPORARY, -1, program_builder_name(x->builder, what)};
  return live_storage_alloc(x->live, bytes, STREAM_COMPUTE, purpose);
}

static void
operand(StrategyContext *x, StorageId storage, Role role)
{
  if (storage != NO_STORAGE)
    program_builder_operand(x->builder, live_storage_tensor(x->live, storage, stored_dtype(x)),
                            role);
}

/* The gradient that the optimizer reads. */
static StorageId
gradient_of(const StrategyContext *x, guint i)
{
  const ParameterState *p = &x->parameters[i];
  return p->sharded_gradient != NO_STORAGE ? p->sharded_gradient : p->gradient;
}

/* Elements into that storage at which it begins. */
static gint64
gradient_offset(const StrategyContext *x, guint i)
{
  const ParameterState *p = &x->parameters[i];
  return p->sharded_gradient != NO_STORAGE ? p->sharded_offset : p->gradient_offset;
}

/* It as a kernel sees it: its elements, without padding or what lies beside it. */
static void
gradient_operand(StrategyContext *x, guint i, Role role)
{
  const ParameterState *p = &x->parameters[i];
  if (gradient_of(x, i) != NO_STORAGE)
    program_builder_operand(x->builder,
                            program_builder_flat_tensor(x->builder, gradient_of(x, i),
                                                        gradient_offset(x, i), p->local_elements,
                                                        stored_dtype(x)),
                            role);
}

/* The optimizer takes a parameter that has a gradient, also one of which this rank holds no rows:
 * that gradient is there, and empty (DTensor). */
static gboolean
is_stepped(const StrategyContext *x, guint i)
{
  if (network_parameter(x->network, (int) i)->shard_of >= 0) /* the other one is */
    return FALSE;
  return x->parameters[i].has_gradient || gradient_of(x, i) != NO_STORAGE;
}

/* ---- clipping ---- */

/* Makes a scalar (or a small vector) that one kernel writes, from another. */
static StorageId
small(StrategyContext *x, gint64 elements, const char *what, StorageId from, const char *meaning)
{
  StorageId storage = temporary(x, elements * dtype_size(stored_dtype(x)), what);
  operand(x, from, ROLE_READ);
  operand(x, storage, ROLE_WRITE);
  strategy_launch_as(x, STREAM_COMPUTE, what, (double) elements * 4, meaning);
  return storage;
}

/* Chunks of 65536 elements in _foreach_norm's table (aten/src/ATen/native/cuda/ForeachReduceOp.cu).
 */
static gint64
most_chunks(const StrategyContext *x, const GArray *clipped)
{
  gint64 most = 0;
  for (guint i = 0; i < clipped->len; i++) {
    guint k = g_array_index(clipped, guint, i);
    most = MAX(most, ceil_div(x->parameters[k].local_elements, 65536));
  }
  return most;
}

/* The parameters that have a gradient: guint, in order. */
static GArray *
clipped_parameters(const StrategyContext *x)
{
  GArray *clipped = g_array_new(FALSE, FALSE, sizeof(guint));
  for (guint i = 0; i < x->network->parameters->len; i++)
    if (is_stepped(x, i))
      g_array_append_val(clipped, i);
  return clipped;
}

/* The norms of all tensors, each a scalar of its own.  As many are made as there are tensors and
 * taken by those that are not empty; an empty one gets a zero of its own, and what is left over
 * goes (foreach_tensor_norm_cuda). */
static StorageId *
tensor_norms(StrategyContext *x, const GArray *clipped)
{
  guint n = clipped->len, taken = 0;
  StorageId *norms = g_new(StorageId, n);
  g_autofree StorageId *made = g_new(StorageId, n);
  double bytes = 0;
  StorageId partial = temporary(x, 4 * (gint64) n * most_chunks(x, clipped), "norms of chunks");
  for (guint i = 0; i < n; i++)
    made[i] = temporary(x, dtype_size(stored_dtype(x)), "norm");
  for (guint i = 0; i < n; i++)
    norms[i] = local_bytes(x, g_array_index(clipped, guint, i)) > 0
                   ? made[taken++]
                   : temporary(x, dtype_size(stored_dtype(x)), "norm");
  for (guint i = 0; i < n; i++) {
    guint k = g_array_index(clipped, guint, i);
    gradient_operand(x, k, ROLE_READ);
    operand(x, norms[i], ROLE_WRITE);
    bytes += (double) local_bytes(x, k);
  }
  strategy_launch(x, STREAM_COMPUTE, "foreach_norm", bytes);
  for (guint i = taken; i < n; i++)
    live_storage_drop(x->live, made[i]);
  live_storage_drop(x->live, partial);
  return norms;
}

/* Sums the powers of the shards' norms over the shard group, in place; the compute stream waits.
 * The replicas of a hybrid mesh have the same norms (torch.distributed.tensor, _NormPartial, which
 * is partial over the sharded dimension only). */
static void
all_reduce_norms(StrategyContext *x, StorageId norms, gint64 n)
{
  program_builder_host_work(x->builder, HOST_WORK_COLLECTIVE_CALL, 1);
  operand(x, norms, ROLE_ACCUMULATE);
  gint32 shard = program_builder_communicator(x->builder, "shard", x->plan->shard, 1);
  program_builder_collective(x->builder, STREAM_COMPUTE,
                             &(Collective){.kind = COLLECTIVE_ALL_REDUCE,
                                           .dtype = (guint8) stored_dtype(x),
                                           .communicator = shard,
                                           .name = program_builder_name(x->builder, "norms"),
                                           .bytes = n * dtype_size(stored_dtype(x))});
}

/* The norm of the stacked norms.  Sharded tensors' norms are summed first: powers, a copy that an
 * all-reduce works on, and the roots. */
static StorageId
total_norm(StrategyContext *x, gboolean gathered, gint64 n, StorageId *norms)
{
  StorageId stack = temporary(x, n * dtype_size(stored_dtype(x)), "stack of norms"),
            waited = NO_STORAGE;
  for (gint64 i = 0; i < n; i++)
    operand(x, norms[i], ROLE_READ);
  operand(x, stack, ROLE_WRITE);
  strategy_launch(x, STREAM_COMPUTE, "stack", (double) n * 8);
  if (gathered) {
    StorageId local = small(x, n, "powers of norms", stack, "pow power=2");
    StorageId sum = small(x, n, "gathered norms", local, "to_copy");
    all_reduce_norms(x, sum, n);
    waited = small(x, n, "global norms", sum, "pow power=0.5");
    live_storage_drop(x->live, local);
    live_storage_drop(x->live, sum);
  }
  StorageId total = small(x, 1, "total norm", gathered ? waited : stack, "vector_norm global=1");
  live_storage_drop(x->live, waited);
  live_storage_drop(x->live, stack);
  return total;
}

/* What it computes.  The norms of shards are summed over ranks through the host's own process
 * group. */
static void
compute_clip_on_host(StrategyContext *x, const GArray *clipped)
{
  g_autofree char *clips = meaning_text("number_clips", 1, "most", plan_spec_clip_norm(x->plan));
  strategy_compute_on_host(x, "zero", "number_zero");
  for (guint i = 0; i < clipped->len; i++)
    gradient_operand(x, g_array_index(clipped, guint, i), ROLE_READ);
  strategy_compute_on_host(x, "norm", "number_norm_with");
  strategy_compute_on_host(x, "pow", "number_power power=2");
  if (x->plan->shard > 1)
    program_builder_host_reduce(
        x->builder, program_builder_communicator(x->builder, "shard", x->plan->shard, 1));
  strategy_compute_on_host(x, "pow", "number_power power=0.5 global=1");
  strategy_compute_on_host(x, "clip", clips);
  for (guint i = 0; i < clipped->len; i++)
    gradient_operand(x, g_array_index(clipped, guint, i), ROLE_ACCUMULATE);
  strategy_compute_on_host(x, "mul", "scale_by_number");
}

/* There the CPU reads all of them for the norms, and reads and writes them once more. */
static void
clip_on_host(StrategyContext *x)
{
  g_autoptr(GArray) clipped = clipped_parameters(x);
  double bytes = 0;
  for (guint i = 0; i < clipped->len; i++)
    bytes += (double) local_bytes(x, g_array_index(clipped, guint, i));
  program_builder_host_work(x->builder, HOST_WORK_OPTIMIZER, (int) clipped->len);
  strategy_work_on_host(x, 3 * bytes);
  compute_clip_on_host(x, clipped);
}

gboolean
optimizer_has_gradients(const StrategyContext *x)
{
  g_autoptr(GArray) all = clipped_parameters(x);
  return all->len > 0;
}

double
optimizer_gradients(StrategyContext *x, Role role)
{
  g_autoptr(GArray) all = clipped_parameters(x);
  double bytes = 0;
  program_builder_host_work(x->builder, HOST_WORK_OPTIMIZER, (int) all->len);
  for (guint i = 0; i < all->len; i++) {
    gradient_operand(x, g_array_index(all, guint, i), role);
    bytes += (double) local_bytes(x, g_array_index(all, guint, i));
  }
  return bytes;
}

void
optimizer_clip(StrategyContext *x, const Strategy *strategy)
{
  program_builder_set_module(x->builder, -1);
  if (x->offloads) { /* on ranks that hold nothing too: all take part in the sum */
    clip_on_host(x);
    return;
  }
  g_autoptr(GArray) clipped = clipped_parameters(x);
  gint64 n = clipped->len;
  double bytes = 0;
  if (n == 0)
    return;
  StorageId *norms = tensor_norms(x, clipped);
  gboolean sharded = strategy->sharded_norms && x->plan->shard > 1 &&
                     !x->parameters[g_array_index(clipped, guint, 0)].ignored;
  StorageId total = total_norm(x, sharded, n, norms);
  for (gint64 i = n - 1; i >= 0; i--)
    live_storage_drop(x->live, norms[i]);
  g_free(norms);
  g_autofree char *most = meaning_text("mul_scalar", 1, "value", plan_spec_clip_norm(x->plan));
  StorageId sum = small(x, 1, "total norm + eps", total, "add_scalar value=1e-06");
  StorageId inverse = small(x, 1, "reciprocal", sum, "pow power=-1");
  StorageId coefficient = small(x, 1, "clip coefficient", inverse, most);
  live_storage_drop(x->live, inverse);
  live_storage_drop(x->live, sum);
  StorageId clamped = small(x, 1, "clamped coefficient", coefficient, "clamp most=1");
  live_storage_drop(x->live, coefficient);
  program_builder_host_work(x->builder, HOST_WORK_OPTIMIZER, (int) n);
  operand(x, clamped, ROLE_READ);
  for (gint64 i = 0; i < n; i++) {
    guint k = g_array_index(clipped, guint, i);
    gradient_operand(x, k, ROLE_ACCUMULATE);
    bytes += 2.0 * (double) local_bytes(x, k);
  }
  strategy_launch(x, STREAM_COMPUTE, "foreach_mul", bytes);
  live_storage_drop(x->live, clamped);
  strategy_return_norm(x, total);
}

/* ---- the step ---- */

/* The flat parameter among the first n tensors that this parameter is a view of, or NULL. */
static OptimizedTensor *
find_flat(OptimizedTensor *tensors, int n, StorageId value)
{
  for (int i = n - 1; i >= 0 && value != NO_STORAGE; i--)
    if (tensors[i].value == value)
      return &tensors[i];
  return NULL;
}

/* The tensors that the optimizer was given: parameters, or the flat ones that they are views of
 * (Composer wraps with use_orig_params=False).  Returns how many. */
static int
list_tensors(StrategyContext *x, OptimizedTensor *tensors)
{
  gboolean flat = x->plan->optimizer.implementation == OPTIMIZER_COMPOSER;
  int n = 0;
  for (guint i = 0; i < x->network->parameters->len; i++) {
    StorageId value = x->parameters[i].sharded;
    OptimizedTensor *t = flat ? find_flat(tensors, n, value) : NULL;
    if (t != NULL) {
      t->elements = live_storage_bytes(x->live, value) / dtype_size(stored_dtype(x));
      t->stepped |= is_stepped(x, i);
      t->parameter = -1;
      continue;
    }
    t = &tensors[n++];
    t->value = value;
    t->gradient = gradient_of(x, i);
    t->gradient_offset = gradient_offset(x, i);
    t->value_offset = x->parameters[i].local_offset;
    t->elements = x->parameters[i].local_elements;
    t->stepped = is_stepped(x, i);
    t->parameter = (gint32) i;
  }
  return n;
}

/* Does weight decay apply to it?  Trainer.get_decay_parameter_names(): not where it is called so,
 * nor inside of nn.LayerNorm. */
static gboolean
decays(const Network *network, int parameter, const GRegex *forbidden)
{
  const Parameter *p = network_parameter(network, parameter);
  return !g_str_equal(network_module(network, p->module)->type, "LayerNorm") &&
         !g_regex_match(forbidden, p->name, 0, NULL);
}

/* The Trainer makes two groups of parameters, which the optimizer updates one after the other. */
static void
step_in_groups(StrategyContext *x, int n, OptimizedTensor *tensors)
{
  static const char names[] = "bias|layernorm|rmsnorm|(?:^|\\.)norm(?:$|\\.)|_norm(?:$|\\.)";
  g_autoptr(GRegex) forbidden = g_regex_new(names, G_REGEX_CASELESS, 0, NULL);
  g_autofree OptimizedTensor *group = g_new(OptimizedTensor, MAX(n, 1));
  g_autofree int *from = g_new(int, MAX(n, 1));
  for (int decayed = 1; decayed >= 0; decayed--) {
    int count = 0;
    for (int i = 0; i < n; i++)
      if (decays(x->network, tensors[i].parameter, forbidden) == decayed) {
        group[count] = tensors[i];
        from[count++] = i;
      }
    if (count > 0)
      torch_optimizer_step(x, stored_dtype(x), count, group);
    for (int i = 0; i < count; i++)
      tensors[from[i]] = group[i];
  }
}

void
optimizer_step(StrategyContext *x, OptimizerState *state)
{
  program_builder_set_module(x->builder, -1);
  int n = list_tensors(x, state->tensors);
  if (x->plan->loop == LOOP_TRAINER && x->plan->optimizer.implementation != OPTIMIZER_COMPOSER)
    step_in_groups(x, n, state->tensors);
  else
    torch_optimizer_step(x, stored_dtype(x), n, state->tensors);
}

void
optimizer_make_states(StrategyContext *x, OptimizerState *state)
{
  guint n = x->network->parameters->len;
  g_autofree StorageId *zeros = g_new(StorageId, MAX(n, 1));
  program_builder_set_module(x->builder, -1);
  for (guint i = 0; i < n; i++) {
    OptimizedTensor *t = &state->tensors[i];
    StoragePurpose purpose = parameter_purpose(x, (int) i, CATEGORY_SHARDED_GRADIENT);
    StorageId value = x->parameters[i].sharded;
    Space space = x->offloads ? SPACE_HOST : SPACE_DEVICE;
    zeros[i] = NO_STORAGE;
    t->stepped = network_parameter(x->network, (int) i)->trainable;
    if (t->stepped)
      zeros[i] = live_storage_alloc_in(x->live, space, local_bytes(x, i), STREAM_COMPUTE, purpose);
    if (zeros[i] != NO_STORAGE) {
      operand(x, zeros[i], ROLE_WRITE);
      strategy_launch(x, STREAM_COMPUTE, "zeros_like", (double) local_bytes(x, i));
    }
    t->value = value;
    t->gradient = zeros[i];
    t->elements = x->parameters[i].local_elements;
  }
  torch_optimizer_step(x, stored_dtype(x), (int) n, state->tensors);
  for (guint i = 0; i < n; i++)
    live_storage_drop(x->live, zeros[i]);
}
