/* torch_optimizer.c - torch.optim.AdamW, Adam and SGD over a list of tensors (torch/optim/adam.py,
 * sgd.py), and Composer's loops (composer/optim/decoupled_weight_decay.py). */
#include "strategy/torch_optimizer.h"

#include <string.h>

#include "program/meaning.h"

/* The list that is updated. */
typedef struct {
  StrategyContext *x;
  DType dtype;
  int n;
  OptimizedTensor *tensors;
} Update;

static gint64
bytes_of(const Update *u, int i)
{
  return u->tensors[i].elements * dtype_size(u->dtype);
}

static StorageId
temporary(const Update *u, gint64 bytes, const char *what)
{
  StoragePurpose purpose = {CATEGORY_TEMPORARY, -1, program_builder_name(u->x->builder, what)};
  return live_storage_alloc(u->x->live, bytes, STREAM_COMPUTE, purpose);
}

static void
operand(const Update *u, StorageId storage, Role role)
{
  if (storage != NO_STORAGE)
    program_builder_operand(u->x->builder, live_storage_tensor(u->x->live, storage, u->dtype),
                            role);
}

/* ---- states ---- */

static StoragePurpose
state_purpose(const Update *u, int i)
{
  gint32 parameter = u->tensors[i].parameter;
  if (parameter >= 0)
    return parameter_purpose(u->x, parameter, CATEGORY_OPTIMIZER_STATE);
  return (StoragePurpose){CATEGORY_OPTIMIZER_STATE, -1,
                          program_builder_name(u->x->builder, "optimizer state")};
}

static StorageId
new_state(const Update *u, int i, gint64 bytes)
{
  StrategyContext *x = u->x;
  Space space = x->offloads ? SPACE_HOST : SPACE_DEVICE;
  StorageId state =
      live_storage_alloc_in(x->live, space, bytes, STREAM_COMPUTE, state_purpose(u, i));
  if (state == NO_STORAGE)
    return state;
  operand(u, state, ROLE_WRITE);
  if (x->offloads)
    strategy_compute_on_host(x, "zeros_like", NULL);
  else
    strategy_launch(x, STREAM_COMPUTE, "zeros_like", (double) bytes);
  return state;
}

/* Adam: two moments, and the step counter on the device when fused or Composer's.  SGD with
 * momentum: one buffer.  All where the parameters are, pageable on the host (zeros_like pins
 * nothing). */
static void
make_state(const Update *u, int i)
{
  gboolean adam = u->x->plan->optimizer.name != OPTIMIZER_SGD;
  OptimizerCode code = u->x->plan->optimizer.implementation;
  OptimizedTensor *t = &u->tensors[i];
  if (!t->stepped || t->made)
    return;
  t->made = TRUE;
  if (adam && !u->x->offloads && (code == OPTIMIZER_FUSED || code == OPTIMIZER_COMPOSER))
    t->step = new_state(u, i, 4);
  for (int k = 0; k < optimizer_moments(u->x->plan); k++)
    t->moment[k] = new_state(u, i, bytes_of(u, i));
}

/* ---- the update ---- */

/* Without padding, or what lies beside it. */
static void
part_operand(const Update *u, StorageId storage, gint64 offset, gint64 elements, Role role)
{
  if (storage != NO_STORAGE)
    program_builder_operand(
        u->x->builder,
        program_builder_flat_tensor(u->x->builder, storage, offset, elements, u->dtype), role);
}

/* With PyTorch's defaults: no time or memory depends on these numbers. */
static char *
update_meaning(const StrategyContext *x)
{
  OptimizerName name = x->plan->optimizer.name;
  if (name == OPTIMIZER_SGD)
    return meaning_text("sgd", 2, "lr", 1e-3, "momentum", 0.9);
  gboolean decays = name == OPTIMIZER_ADAMW, unscales = x->gradient_scale > 0;
  return meaning_text("adam", unscales ? 6 : 5, "lr", 1e-3, "beta1", 0.9, "beta2", 0.999, "eps",
                      1e-8, "weight_decay", decays ? 0.01 : 0.0, "gradient_scale",
                      x->gradient_scale);
}

/* Bytes of the parameters that are updated. */
static double
stepped_bytes(const Update *u)
{
  double bytes = 0;
  for (int i = 0; i < u->n; i++)
    bytes += u->tensors[i].stepped ? (double) bytes_of(u, i) : 0;
  return bytes;
}

/* State and gradients are read, parameters and state are written. */
static void
update_operands(const Update *u)
{
  for (int i = 0; i < u->n; i++) {
    const OptimizedTensor *t = &u->tensors[i];
    if (t->elements == 0 || !t->stepped)
      continue;
    part_operand(u, t->gradient, t->gradient_offset, t->elements, ROLE_READ);
    part_operand(u, t->value, t->value_offset, t->elements, ROLE_ACCUMULATE);
    for (int k = 0; k < OPTIMIZER_MOMENTS; k++)
      operand(u, t->moment[k], ROLE_ACCUMULATE);
  }
}

/* What an update is called. */
static const char *
update_name(const Update *u)
{
  return u->x->plan->optimizer.name != OPTIMIZER_SGD ? "adam" : "sgd";
}

/* One launch for all. */
static void
launch_update(const Update *u, double bytes_per_parameter_byte)
{
  double bytes = bytes_per_parameter_byte * stepped_bytes(u);
  g_autofree char *meaning = update_meaning(u->x);
  update_operands(u);
  strategy_launch_as(u->x, STREAM_COMPUTE, update_name(u), bytes, meaning);
}

/* foreach Adam takes the square roots of all second moments at once; the list goes from its end. */
static void
foreach_temporaries(const Update *u)
{
  g_autofree StorageId *roots = g_new(StorageId, MAX(u->n, 1));
  for (int i = 0; i < u->n; i++)
    roots[i] = u->tensors[i].stepped ? temporary(u, bytes_of(u, i), "exp_avg_sq_sqrt") : NO_STORAGE;
  for (int i = u->n - 1; i >= 0; i--)
    live_storage_drop(u->x->live, roots[i]);
}

/* The for-loop's denominator is a variable: it lives until the next parameter's exists. */
static void
forloop_temporaries(const Update *u)
{
  StorageId previous = NO_STORAGE;
  for (int i = 0; i < u->n; i++) {
    if (!u->tensors[i].stepped)
      continue;
    StorageId root = temporary(u, bytes_of(u, i), "sqrt");
    StorageId denominator = temporary(u, bytes_of(u, i), "denom");
    live_storage_drop(u->x->live, root);
    live_storage_drop(u->x->live, previous);
    previous = denominator;
  }
  live_storage_drop(u->x->live, previous);
}

/* ---- Composer's DecoupledAdamW and DecoupledSGDW ---- */

/* What a tensor's update touches. */
typedef enum { VALUE, GRADIENT, FIRST, SECOND, ROOT, DENOMINATOR, TOUCHED } Touched;

/* An eager op of the loop.  operands: p, g, m, v are the parameter, its gradient and its moments, r
 * and d the root and the denominator; '+' is updated in place, '>' made. */
typedef struct {
  const char *name, *operands;
} LoopOp;

static const LoopOp decoupled_adamw[] = {
    {"mul_", "+p"},         {"mul_", "+m"},   {"add_", "+m g"}, {"mul_", "+v"},
    {"addcmul_", "+v g g"}, {"sqrt", "v >r"}, {"div", "r >d"},  {"add_", "+d"},
    {"addcdiv_", "+p m d"}, {NULL, NULL},
};
static const LoopOp decoupled_sgdw[] = {
    {"mul_", "+m"}, {"add_", "+m g"}, {"mul_", "+p"}, {"add_", "+p m"}, {NULL, NULL}};

/* Bytes are those of the operands; what is updated in place is read and written. */
static void
launch_loop_op(const Update *u, int i, const LoopOp *op, const StorageId *touched)
{
  static const char letters[] = "pgmvrd";
  double bytes = 0;
  Role role = ROLE_READ;
  for (const char *c = op->operands; *c != '\0'; c++) {
    const char *letter = strchr(letters, *c);
    if (letter == NULL) {
      role = *c == '+' ? ROLE_ACCUMULATE : *c == '>' ? ROLE_WRITE : ROLE_READ;
      continue;
    }
    operand(u, touched[letter - letters], role);
    bytes += (role == ROLE_ACCUMULATE ? 2.0 : 1.0) * (double) bytes_of(u, i);
  }
  strategy_launch(u->x, STREAM_COMPUTE, op->name, bytes);
  program_builder_host_work(u->x->builder, HOST_WORK_OP_FORWARD, 1);
}

/* state['step'] += 1, right after the states of a new tensor are made. */
static void
count_step(const Update *u, int i)
{
  StrategyContext *x = u->x;
  program_builder_operand(x->builder, live_storage_tensor(x->live, u->tensors[i].step, DTYPE_FP32),
                          ROLE_ACCUMULATE);
  strategy_launch(x, STREAM_COMPUTE, "add_", 8);
  program_builder_host_work(x->builder, HOST_WORK_OP_FORWARD, 1);
}

/* state_steps[i].item(): the host waits for the device, for every tensor. */
static void
read_step(const Update *u, int i)
{
  StrategyContext *x = u->x;
  program_builder_operand(x->builder, live_storage_tensor(x->live, u->tensors[i].step, DTYPE_FP32),
                          ROLE_READ);
  strategy_copy(x, STREAM_COMPUTE, "item", 4);
  program_builder_stream_sync(x->builder, STREAM_COMPUTE);
}

/* One tensor.  The denominator is a variable: it lives until the next one exists, in *previous. */
static void
loop_update(const Update *u, int i, StorageId *previous)
{
  gboolean adam = u->x->plan->optimizer.name != OPTIMIZER_SGD;
  const OptimizedTensor *t = &u->tensors[i];
  StorageId touched[TOUCHED] = {t->value,     t->gradient, t->moment[0],
                                t->moment[1], NO_STORAGE,  NO_STORAGE};
  for (const LoopOp *op = adam ? decoupled_adamw : decoupled_sgdw; op->name != NULL; op++) {
    if (g_str_equal(op->name, "sqrt"))
      touched[ROOT] = temporary(u, bytes_of(u, i), "sqrt");
    if (g_str_equal(op->name, "div"))
      touched[DENOMINATOR] = temporary(u, bytes_of(u, i), "denom");
    if (t->elements > 0)
      launch_loop_op(u, i, op, touched);
    if (!g_str_equal(op->name, "div"))
      continue;
    live_storage_drop(u->x->live, touched[ROOT]);
    live_storage_drop(u->x->live, *previous);
    *previous = touched[DENOMINATOR];
  }
}

static void
composer_step(const Update *u)
{
  gboolean adam = u->x->plan->optimizer.name != OPTIMIZER_SGD;
  StorageId previous = NO_STORAGE;
  for (int i = 0; i < u->n; i++) {
    make_state(u, i);
    if (u->tensors[i].stepped && adam)
      count_step(u, i);
  }
  for (int i = 0; i < u->n; i++) {
    if (!u->tensors[i].stepped)
      continue;
    if (adam)
      read_step(u, i);
    loop_update(u, i, &previous);
  }
  live_storage_drop(u->x->live, previous);
}

/* ---- all ---- */

static void
compute_on_host(const Update *u)
{
  g_autofree char *meaning = update_meaning(u->x);
  update_operands(u);
  strategy_compute_on_host(u->x, update_name(u), meaning);
}

/* Bytes moved for each byte of parameters.  Fused 28 / 4, foreach 84 / 4, for-loop like foreach;
 * SGD reads gradient, buffer and parameter and writes two of them.  Composer's loops: the sums of
 * their ops. */
static double
traffic(gboolean adam, OptimizerCode code)
{
  if (code == OPTIMIZER_COMPOSER)
    return adam ? 23 : 10;
  return !adam ? 5 : code == OPTIMIZER_FUSED ? 7 : 21;
}

void
torch_optimizer_compute_on_host(StrategyContext *x, DType dtype, OptimizedTensor *tensor)
{
  compute_on_host(&(Update){x, dtype, 1, tensor});
}

void
torch_optimizer_step(StrategyContext *x, DType dtype, int n, OptimizedTensor *tensors)
{
  const Update u = {x, dtype, n, tensors};
  const OptimizerCode code = x->plan->optimizer.implementation;
  gboolean adam = x->plan->optimizer.name != OPTIMIZER_SGD;
  int stepped = 0;
  for (int i = 0; i < n; i++)
    stepped += tensors[i].stepped;
  program_builder_host_work(x->builder, HOST_WORK_OPTIMIZER, stepped);
  if (code == OPTIMIZER_COMPOSER && !x->offloads) {
    composer_step(&u);
    return;
  }
  for (int i = 0; i < n; i++)
    make_state(&u, i);
  /* The CPU goes over its memory as often as a device would; what it needs for the moment comes and
   * goes. */
  if (x->offloads) {
    strategy_work_on_host(x, traffic(adam, code) * stepped_bytes(&u));
    compute_on_host(&u);
    return;
  }
  if (adam && code == OPTIMIZER_FOREACH)
    foreach_temporaries(&u);
  else if (adam && code == OPTIMIZER_FORLOOP)
    forloop_temporaries(&u);
  launch_update(&u, traffic(adam, code));
}
