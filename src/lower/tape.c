/* tape.c - runs a network's functions as eager PyTorch does: statement by statement, with storages
 * counted. */
#include <string.h>

#include "lower/tape_private.h"
#include "network/strides.h"

/* ---- life ---- */

static FunctionIds
make_ids(ProgramBuilder *builder, const Function *f)
{
  FunctionIds ids = {g_new(gint32, f->steps->len), g_new(gint32, f->kernels->len)};
  for (guint i = 0; i < f->steps->len; i++) {
    const char *what = g_array_index(f->steps, OpStep, i).what;
    ids.what[i] = what != NULL ? program_builder_name(builder, what) : -1;
  }
  for (guint i = 0; i < f->kernels->len; i++) {
    const OpKernel *kernel = &g_array_index(f->kernels, OpKernel, i);
    Kernel named = kernel->kernel;
    named.name = program_builder_name(builder, kernel->name);
    ids.kernel[i] = program_builder_kernel(builder, &named);
  }
  return ids;
}

static void
view_parameters(StrategyContext *x, int unit, StreamId stream)
{
  autograd_view_parameters(x->walk, unit, stream);
}

Tape *
tape_new(StrategyContext *context, const Strategy *strategy)
{
  Tape *t = g_new0(Tape, 1);
  t->x = context;
  context->walk = t;
  context->view_parameters = view_parameters;
  t->strategy = strategy;
  t->network = context->network;
  t->builder = context->builder;
  t->live = context->live;
  t->nodes = g_array_new(FALSE, FALSE, sizeof(Node));
  t->saved = g_array_new(FALSE, FALSE, sizeof(SavedVariable));
  t->hooks = g_array_new(FALSE, FALSE, sizeof(PreHook));
  t->frames = g_ptr_array_new();
  t->ready = g_array_new(FALSE, FALSE, sizeof(gint32));
  t->casts = g_array_new(FALSE, FALSE, sizeof(CachedCast));
  for (int i = 0; i < THREAD_COUNT; i++)
    for (int j = 0; j < WORKSPACE_COUNT; j++)
      t->workspace[i][j] = NO_STORAGE;
  t->inputs_left = g_new0(int, t->network->modules->len + t->network->blocks->len);
  t->ids = g_new(FunctionIds, t->network->functions->len);
  for (guint i = 0; i < t->network->functions->len; i++)
    t->ids[i] = make_ids(t->builder, network_function(t->network, (int) i));
  return t;
}

void
tape_free(Tape *t)
{
  for (guint i = 0; i < t->network->functions->len; i++) {
    g_free(t->ids[i].what);
    g_free(t->ids[i].kernel);
  }
  g_free(t->ids);
  g_free(t->inputs_left);
  g_array_unref(t->nodes);
  g_array_unref(t->saved);
  g_array_unref(t->hooks);
  g_ptr_array_unref(t->frames);
  g_array_unref(t->ready);
  g_array_unref(t->casts);
  g_free(t);
}

/* ---- references ---- */

void
tape_hold(Tape *t, const TensorRef *ref)
{
  live_storage_hold(t->live, ref->storage);
}

void
tape_drop(Tape *t, const TensorRef *ref)
{
  live_storage_drop(t->live, ref->storage);
}

TensorRef
tape_new_tensor(Tape *t, gint64 bytes, DType dtype, StoragePurpose purpose)
{
  TensorRef ref = NO_TENSOR;
  ref.storage = live_storage_alloc(t->live, bytes, STREAM_COMPUTE, purpose);
  ref.dtype = (guint8) dtype;
  return ref;
}

/* ---- recipe steps ---- */

/* The thread's cuBLAS workspace is made after the first product that the thread launches, and stays
 * (aten/src/ATen/cuda/CublasHandlePool.cpp). */
static void
use_workspace(Tape *t, Workspace kind)
{
  StorageId *workspace = &t->workspace[t->thread][kind];
  if (*workspace != NO_STORAGE)
    return;
  const DeviceProfile *device = t->x->device;
  gint64 bytes =
      kind == WORKSPACE_CUBLAS ? device->cublas_workspace_bytes : device->cublaslt_workspace_bytes;
  const char *what = kind == WORKSPACE_CUBLAS ? "cuBLAS workspace" : "cublasLt workspace";
  StoragePurpose purpose = {CATEGORY_WORKSPACE, -1, program_builder_name(t->builder, what)};
  *workspace = live_storage_alloc(t->live, bytes, STREAM_COMPUTE, purpose);
}

/* Shape and strides of a view in the Program's terms. */
static Layout
layout_of(const ValueInfo *info)
{
  Layout layout = {.dtype = info->dtype, .dims = info->dims};
  memcpy(layout.shape, info->shape, sizeof(info->shape));
  memcpy(layout.stride, info->stride, sizeof(info->stride));
  return layout;
}

/* What the op knows of a buffer: FALSE of temporaries, which are flat.  A gradient that comes in
 * has its output's shape and a memory order of its own. */
static gboolean
buffer_info(const OpRun *run, int buffer, ValueInfo *info)
{
  if (buffer >= BUFFER_GRAD) {
    *info = run->gradient[buffer - BUFFER_GRAD];
  } else if (buffer >= BUFFER_INCOMING) {
    *info = run->info[buffer - BUFFER_INCOMING + BUFFER_OUT];
    memcpy(info->stride, run->buffer[buffer].stride, sizeof(info->stride));
  } else if (buffer < BUFFER_TEMP) {
    *info = run->info[buffer];
  } else {
    return FALSE;
  }
  return TRUE;
}

/* Notes what a gradient is now. */
static void
set_gradient(OpRun *run, int buffer, const ValueInfo *info)
{
  run->gradient[buffer - BUFFER_GRAD] = *info;
  memcpy(run->buffer[buffer].stride, info->stride, sizeof(info->stride));
}

static void
add_operand(Tape *t, const OpRun *run, int buffer, Role role)
{
  const TensorRef *ref = &run->buffer[buffer];
  const ParameterState *p = ref->parameter >= 0 ? &t->x->parameters[ref->parameter] : NULL;
  StorageId storage = p != NULL ? p->unsharded : ref->storage;
  if (storage == NO_STORAGE)
    return;
  gint64 offset = ref->offset + (p != NULL ? p->offset : 0);
  ValueInfo info;
  gint32 tensor;
  if (!buffer_info(run, buffer, &info)) {
    tensor = live_storage_tensor(t->live, storage, (DType) ref->dtype);
  } else {
    Layout layout = layout_of(&info);
    tensor = program_builder_tensor(t->builder, storage, offset, &layout);
  }
  program_builder_operand(t->builder, tensor, role);
}

static void
launch(Tape *t, OpRun *run, int index)
{
  const Function *f = network_function(t->network, run->place.function);
  const OpKernel *kernel = &g_array_index(f->kernels, OpKernel, index);
  for (int i = 0; i < kernel->operands; i++)
    add_operand(t, run, kernel->operand[i].buffer, (Role) kernel->operand[i].role);
  program_builder_launch(t->builder, STREAM_COMPUTE, t->ids[run->place.function].kernel[index]);
  run->launches++;
}

/* Memory order of a gradient of this shape (as the op's input has it, or its output), in the order
 * of the incoming one or of the input. */
static void
order_gradient(const OpRun *run, const OpStep *step, ValueInfo *shape)
{
  ValueInfo incoming, inside = run->info[step->buffer - BUFFER_GRAD];
  buffer_info(run, BUFFER_INCOMING, &incoming);
  switch ((GradOrder) step->order) {
  case ORDER_LIKE_INCOMING:
    value_order_like(shape, 1, &incoming);
    break;
  case ORDER_LIKE_OPERAND:
    value_swap(&inside, 1, 2);
    value_swap(shape, 1, 2);
    value_order_like(shape, 1, &inside);
    value_swap(shape, 1, 2);
    break;
  case ORDER_HEADS_INSIDE:
    value_swap(shape, 1, 2);
    value_set_contiguous(shape);
    value_swap(shape, 1, 2);
    break;
  default:
    value_set_contiguous(shape);
  }
}

/* Is this step's buffer an output that only a backward would need, where there will be none? */
static gboolean
is_not_made(const Tape *t, const OpRun *run, const OpStep *step)
{
  int output = step->buffer - BUFFER_OUT;
  return t->x->no_grad && output >= 0 && output < OP_OUTPUTS &&
         ((run->op->info->for_backward >> output) & 1);
}

static void
allocate(Tape *t, OpRun *run, const OpStep *step, gint32 what)
{
  StoragePurpose purpose = {CATEGORY_TEMPORARY, run->place.first_module + run->op->module, what};
  run->buffer[step->buffer] = tape_new_tensor(t, step->bytes, (DType) step->dtype, purpose);
  if (step->buffer >= BUFFER_GRAD) {
    ValueInfo shape = run->info[step->source];
    order_gradient(run, step, &shape);
    set_gradient(run, step->buffer, &shape);
  }
}

/* A view of the incoming gradient, in the input's shape. */
static ValueInfo
view_of_incoming(const OpRun *run, const OpStep *step)
{
  ValueInfo incoming, seen = run->info[step->buffer - BUFFER_GRAD];
  buffer_info(run, BUFFER_INCOMING, &incoming);
  switch ((GradOrder) step->order) {
  case ORDER_SWAPPED:
    value_swap(&incoming, step->index, step->index + 1);
    break;
  case ORDER_EXPANDED:
    value_expand(&incoming, &seen);
    return seen;
  case ORDER_AS_REAL:
    for (int i = 0; i < incoming.dims; i++)
      incoming.stride[i] *= 2;
    incoming.stride[incoming.dims] = 1;
    break;
  default:
    break;
  }
  memcpy(seen.stride, incoming.stride, sizeof(seen.stride));
  return seen;
}

/* A second reference to the source: a view of it, or itself. */
static void
alias(Tape *t, OpRun *run, const OpStep *step, gboolean is_view)
{
  TensorRef ref = run->buffer[step->source];
  tape_hold(t, &ref);
  if (is_view) {
    ref.is_view = TRUE;
    ref.offset += step->bytes;
  }
  run->buffer[step->buffer] = ref;
}

/* The incoming gradient itself: it has the output's shape until validation. */
static void
pass(Tape *t, OpRun *run, const OpStep *step)
{
  ValueInfo incoming;
  buffer_info(run, step->source, &incoming);
  alias(t, run, step, FALSE);
  set_gradient(run, step->buffer, &incoming);
}

static void
view(Tape *t, OpRun *run, const OpStep *step)
{
  ValueInfo seen = view_of_incoming(run, step);
  alias(t, run, step, TRUE);
  set_gradient(run, step->buffer, &seen);
}

static void
launch_clone(Tape *t, OpRun *run, const OpStep *step)
{
  add_operand(t, run, step->source, ROLE_READ);
  add_operand(t, run, step->buffer, ROLE_WRITE);
  strategy_launch(t->x, STREAM_COMPUTE, "clone", 2.0 * (double) step->bytes);
  run->launches++;
}

/* A gradient seen in the input's shape, or a copy of it where its memory order forbids that. */
static void
reshape(Tape *t, OpRun *run, const OpStep *step, gint32 what)
{
  int input = step->buffer - BUFFER_GRAD;
  ValueInfo incoming, seen = run->info[input];
  buffer_info(run, BUFFER_INCOMING, &incoming);
  gboolean contiguous = value_is_contiguous(&incoming);
  if (contiguous || (step->action == STEP_RESHAPE && value_view(&incoming, &seen))) {
    if (contiguous)
      value_set_contiguous(&seen);
    OpStep whole = {.buffer = step->buffer, .source = step->source};
    alias(t, run, &whole, TRUE);
    set_gradient(run, step->buffer, &seen);
    return;
  }
  OpStep copy = *step;
  copy.source = (guint8) input;
  copy.order = ORDER_DENSE;
  allocate(t, run, &copy, what);
  launch_clone(t, run, step);
}

/* Attention kernels copy a gradient that they do not find row-major. */
static void
make_contiguous_inside(Tape *t, OpRun *run, const OpStep *step, gint32 what)
{
  ValueInfo incoming;
  buffer_info(run, step->source, &incoming);
  value_swap(&incoming, 1, 2);
  run->buffer[step->buffer] = NO_TENSOR;
  if (value_is_contiguous(&incoming))
    return;
  allocate(t, run, step, what);
  launch_clone(t, run, step);
}

/* A gradient as validation made it: a sum is row-major in the input's shape, a cast to the input's
 * dtype keeps the order.
 */
static void
replace(Tape *t, OpRun *run, const OpStep *step)
{
  TensorRef old = run->buffer[step->buffer], *made = &run->buffer[step->source];
  ValueInfo before, shape = run->info[step->buffer - BUFFER_GRAD];
  buffer_info(run, step->buffer, &before);
  if (step->order == ORDER_SAME) {
    value_order_like(&shape, 1, &before);
  } else {
    value_set_contiguous(&shape);
    shape.dtype = before.dtype;
  }
  run->buffer[step->buffer] = *made;
  run->buffer[step->buffer].dtype = shape.dtype;
  set_gradient(run, step->buffer, &shape);
  *made = NO_TENSOR;
  tape_drop(t, &old);
}

static void
play_step(Tape *t, OpRun *run, const OpStep *step, gint32 what)
{
  TensorRef *buffer = &run->buffer[step->buffer];
  switch ((OpAction) step->action) {
  case STEP_ALLOC:
    if (!is_not_made(t, run, step))
      allocate(t, run, step, what);
    break;
  case STEP_RELEASE:
    tape_drop(t, buffer);
    *buffer = NO_TENSOR;
    break;
  case STEP_ALIAS:
    alias(t, run, step, TRUE);
    break;
  case STEP_VIEW:
    view(t, run, step);
    break;
  case STEP_PASS:
    pass(t, run, step);
    break;
  case STEP_RESHAPE:
  case STEP_CONTIGUOUS:
    reshape(t, run, step, what);
    break;
  case STEP_CONTIGUOUS_INSIDE:
    make_contiguous_inside(t, run, step, what);
    break;
  case STEP_REPLACE:
    replace(t, run, step);
    break;
  case STEP_LAUNCH:
    launch(t, run, step->index);
    break;
  case STEP_WORKSPACE:
    use_workspace(t, (Workspace) step->index);
    break;
  }
}

void
tape_play(Tape *t, OpRun *run, int first, int end)
{
  const Function *f = network_function(t->network, run->place.function);
  const FunctionIds *ids = &t->ids[run->place.function];
  for (int i = first; i < end; i++)
    play_step(t, run, &g_array_index(f->steps, OpStep, i), ids->what[i]);
}

void
tape_begin_run(Tape *t, OpRun *run, const Op *op, Place place)
{
  const Function *f = network_function(t->network, place.function);
  run->op = op;
  run->place = place;
  run->launches = 0;
  static const TensorRef none = NO_TENSOR_INIT;
  for (int i = 0; i < op->ins; i++) /* temporaries are made before a recipe speaks of them */
    run->buffer[BUFFER_IN + i] = run->buffer[BUFFER_GRAD + i] = none;
  for (int i = 0; i < op->outs; i++) {
    run->buffer[BUFFER_OUT + i] = run->buffer[BUFFER_INCOMING + i] = none;
    run->info[BUFFER_OUT + i] = g_array_index(f->values, ValueInfo, op->out[i]);
  }
  program_builder_set_module(t->builder, place.first_module + op->module);
}

/* ---- forward ---- */

/* A function that runs: its slots. */
typedef struct {
  const Function *function;
  Place place;
  TensorRef *slots;
  gboolean *filled;
} Activation;

/* The op's operand, and what is known of its shape. */
static TensorRef
operand(Tape *t, const Activation *a, gint16 slot, ValueInfo *info)
{
  if (slot >= 0) {
    *info = g_array_index(a->function->values, ValueInfo, slot);
    return a->slots[slot];
  }
  int parameter = a->place.first_parameter + PARAMETER_OF_SLOT(slot);
  const Parameter *p = network_parameter(t->network, parameter);
  TensorRef ref = NO_TENSOR;
  ref.parameter = parameter;
  ref.dtype = (guint8) t->network->shape.precision.weights;
  if (p->trainable && t->recomputing == NULL)
    ref.node = autograd_accumulate_node(t, parameter);
  *info = (ValueInfo){.dtype = ref.dtype, .dims = (guint8) p->dims};
  memcpy(info->shape, p->shape, sizeof(p->shape));
  value_set_contiguous(info);
  return ref;
}

/* Cast once per autocast region: TRUE when the region has it already. */
static gboolean
find_cast(Tape *t, OpRun *run)
{
  for (guint i = 0; i < t->casts->len; i++) {
    const CachedCast *cast = &g_array_index(t->casts, CachedCast, i);
    if (cast->parameter != run->buffer[BUFFER_IN].parameter)
      continue;
    tape_hold(t, &cast->ref);
    run->buffer[BUFFER_OUT] = cast->ref;
    return TRUE;
  }
  return FALSE;
}

static void
keep_cast(Tape *t, const OpRun *run)
{
  CachedCast cast = {run->buffer[BUFFER_IN].parameter, run->buffer[BUFFER_OUT]};
  tape_hold(t, &cast.ref);
  g_array_append_val(t->casts, cast);
}

/* An op that has nothing to do: its output is its input, or a cast that exists already. */
static gboolean
is_done_already(Tape *t, OpRun *run)
{
  if (run->op->info == op_info(OP_TO_CACHED))
    return find_cast(t, run);
  if (run->op->info != op_info(OP_TO_IF_NEEDED) ||
      run->buffer[BUFFER_IN].dtype != run->info[BUFFER_OUT].dtype)
    return FALSE;
  run->buffer[BUFFER_OUT] = run->buffer[BUFFER_IN];
  tape_hold(t, &run->buffer[BUFFER_IN]);
  return TRUE;
}

/* The op's outputs are made: dtype and node noted. */
static void
finish_outputs(OpRun *run, gint32 node)
{
  for (int i = 0; i < run->op->outs; i++) {
    TensorRef *out = &run->buffer[BUFFER_OUT + i];
    const ValueInfo *info = &run->info[BUFFER_OUT + i];
    out->dtype = info->dtype;
    out->node = node;
    out->output = (guint8) i;
  }
}

/* Runs one op; FALSE when recomputation stopped in it. */
static gboolean
run_op(Tape *t, Activation *a, const Op *op)
{
  OpRun run;
  tape_begin_run(t, &run, op, a->place);
  for (int i = 0; i < op->ins; i++)
    run.buffer[BUFFER_IN + i] = operand(t, a, op->in[i], &run.info[BUFFER_IN + i]);
  if (!is_done_already(t, &run)) {
    gint32 node = autograd_record(t, &run);
    if (t->stop)
      return FALSE;
    if (!checkpoint_replay(t, &run)) {
      tape_play(t, &run, op->forward, op->backward);
      if (run.launches > 0)
        program_builder_host_work(t->builder, HOST_WORK_OP_FORWARD, run.launches);
      checkpoint_keep(t, &run);
    }
    finish_outputs(&run, node);
    autograd_save_outputs(t, node, &run);
    if (op->info == op_info(OP_TO_CACHED))
      keep_cast(t, &run);
  }
  for (int i = 0; i < op->outs; i++) {
    a->slots[op->out[i]] = run.buffer[BUFFER_OUT + i];
    a->filled[op->out[i]] = TRUE;
  }
  return !t->stop;
}

/* ---- module calls ---- */

/* The unit that begins (or ends) with a module, or -1. */
static int
unit_at(const GArray *units, int module)
{
  return units != NULL ? g_array_index(units, int, module) : -1;
}

/* A plan that computes and reduces in the parameters' dtype has no MixedPrecisionPolicy: then
 * inputs come as they are. */
static gboolean
has_mixed_precision(const PlanSpec *plan)
{
  DType stored = plan->precision.parameters;
  return plan->precision.compute != stored || plan->precision.reduce != stored;
}

/* cast_forward_inputs: floating tensors come in the compute dtype. */
static void
cast_input(Tape *t, TensorRef *ref, int module)
{
  DType want = t->network->shape.precision.weights, have = (DType) ref->dtype;
  gboolean floating = have == DTYPE_FP32 || have == DTYPE_BF16 || have == DTYPE_FP16;
  if (!floating || have == want || ref->storage == NO_STORAGE)
    return;
  gint64 bytes = live_storage_bytes(t->live, ref->storage) / dtype_size(have) * dtype_size(want);
  StoragePurpose purpose = {CATEGORY_ACTIVATION, module,
                            program_builder_name(t->builder, "cast input")};
  TensorRef cast = tape_new_tensor(t, bytes, want, purpose);
  program_builder_operand(t->builder, live_storage_tensor(t->live, ref->storage, have), ROLE_READ);
  program_builder_operand(t->builder, live_storage_tensor(t->live, cast.storage, want), ROLE_WRITE);
  strategy_launch(t->x, STREAM_COMPUTE, "to_copy",
                  (double) bytes * (1 + dtype_size(have) / dtype_size(want)));
  tape_drop(t, ref);
  *ref = cast;
}

int
tape_program_module(const Tape *t, int module)
{
  int block = module - (int) t->network->modules->len;
  return block < 0 ? module : network_block(t->network, block)->module;
}

/* The hooks that a strategy has on every module.  A recomputation's graph is thrown away: it gets
 * no nodes. */
static void
before_module(Tape *t, int module, int n, TensorRef *args)
{
  if (t->strategy->before_module == NULL)
    return;
  t->strategy->before_module(t->x, module);
  if (t->recomputing != NULL)
    return;
  t->inputs_left[module] = 0;
  for (int i = 0; i < n; i++) {
    if (args[i].node < 0)
      continue;
    autograd_mark(t, NODE_MODULE_END, module, &args[i]);
    t->inputs_left[module]++;
  }
}

static void
after_module(Tape *t, int module, TensorRef *output)
{
  if (t->strategy->after_module == NULL)
    return;
  program_builder_set_module(t->builder, tape_program_module(t, module));
  t->strategy->after_module(t->x, module);
  if (t->recomputing == NULL && output->node >= 0)
    autograd_mark(t, NODE_MODULE_BEGIN, module, output);
}

/* Hooks before a module's forward(): args become what it receives, with references of their own. */
static void
enter_module(Tape *t, int module, int n, TensorRef *args)
{
  const Strategy *s = t->strategy;
  program_builder_set_module(t->builder, module);
  for (int i = 0; i < n; i++)
    tape_hold(t, &args[i]);
  if (module == 0 && s->begin_forward != NULL && t->recomputing == NULL)
    s->begin_forward(t->x);
  before_module(t, module, n, args);
  int unit = unit_at(t->x->unit_begins, module);
  if (unit < 0)
    return;
  if (t->recomputing != NULL) {
    if (s->before_recompute != NULL)
      s->before_recompute(t->x, unit);
    return;
  }
  if (s->casts_inputs && has_mixed_precision(t->x->plan))
    for (int i = 0; i < n; i++)
      cast_input(t, &args[i], module);
  s->before_forward(t->x, unit);
  if (s->marks_inputs && args[0].node >= 0)
    autograd_mark(t, NODE_POST_BACKWARD, unit, &args[0]);
}

/* Hooks after it, on its output. */
static void
exit_module(Tape *t, int module, TensorRef *output)
{
  after_module(t, module, output);
  int unit = unit_at(t->x->unit_ends, module);
  if (unit < 0 || t->recomputing != NULL)
    return;
  program_builder_set_module(t->builder, module);
  int token = t->strategy->after_forward(t->x, unit);
  if (output->node >= 0)
    autograd_add_hook(t, output->node, unit, token);
}

/* A block's call inside its hooks, with checkpointing inside or (repeating them) outside. */
static TensorRef
call_inside_hooks(Tape *t, int block, Place place, int n, const TensorRef *args)
{
  TensorRef received[STATEMENT_SLOTS];
  memcpy(received, args, sizeof(TensorRef) * (gsize) n);
  int module = place.first_module;
  enter_module(t, module, n, received);
  gboolean inner = !checkpoint_repeats_hooks(t) && t->recomputing == NULL;
  TensorRef result = inner && checkpoint_wants(t, block)
                         ? checkpoint_run(t, block, place, n, received)
                         : tape_run(t, place, n, received);
  if (!t->stop)
    exit_module(t, module, &result);
  for (int i = 0; i < n; i++)
    tape_drop(t, &received[i]);
  return result;
}

TensorRef
tape_call_hooked(Tape *t, int block, Place place, int n, const TensorRef *args)
{
  return call_inside_hooks(t, block, place, n, args);
}

/* checkpoint(block) as a module of its own, where hooks are on every module. */
static TensorRef
call_wrapper(Tape *t, int block, Place place, int n, const TensorRef *args)
{
  TensorRef received[STATEMENT_SLOTS];
  int wrapper = network_wrapper(t->network, block);
  memcpy(received, args, sizeof(TensorRef) * (gsize) n);
  before_module(t, wrapper, n, received);
  TensorRef result = checkpoint_run(t, block, place, n, received);
  after_module(t, wrapper, &result);
  return result;
}

static TensorRef
call_block(Tape *t, int block, int function, int n, const TensorRef *args)
{
  const Block *b = network_block(t->network, block);
  Place place = {function, b->module, b->first_parameter};
  program_builder_push(t->builder, RANGE_MODULE, network_module(t->network, b->module)->path, 0);
  gboolean outer = checkpoint_repeats_hooks(t) && checkpoint_wants(t, block);
  TensorRef result = reentrant_wants(t, block) ? reentrant_run(t, block, place, n, args)
                     : outer                   ? call_wrapper(t, block, place, n, args)
                                               : tape_call_hooked(t, block, place, n, args);
  program_builder_pop(t->builder);
  return result;
}

/* ---- autocast regions ---- */

void
tape_autocast_begin(Tape *t)
{
  t->autocast_open = t->network->shape.precision.autocast;
}

void
tape_autocast_end(Tape *t)
{
  t->autocast_open = FALSE;
  for (guint i = 0; i < t->casts->len; i++)
    tape_drop(t, &g_array_index(t->casts, CachedCast, i).ref);
  g_array_set_size(t->casts, 0);
}

/* ---- statements ---- */

static void
drop_slot(Tape *t, Activation *a, int slot)
{
  if (!a->filled[slot])
    return;
  TensorRef ref = a->slots[slot];
  a->filled[slot] = FALSE;
  a->slots[slot] = NO_TENSOR;
  tape_drop(t, &ref);
}

static void
run_enter(Tape *t, Activation *a, const Statement *s)
{
  TensorRef args[STATEMENT_SLOTS];
  for (int i = 0; i < s->ins; i++)
    args[i] = a->slots[s->in[i]];
  enter_module(t, a->place.first_module + s->a, s->ins, args);
  for (int i = 0; i < s->outs; i++) {
    a->slots[s->out[i]] = args[i];
    a->filled[s->out[i]] = TRUE;
  }
}

static void
run_call(Tape *t, Activation *a, const Statement *s)
{
  TensorRef args[STATEMENT_SLOTS];
  for (int i = 0; i < s->ins; i++)
    args[i] = a->slots[s->in[i]];
  a->slots[s->out[0]] = call_block(t, s->b, s->a, s->ins, args);
  a->filled[s->out[0]] = TRUE;
}

static void
run_statement(Tape *t, Activation *a, const Statement *s)
{
  switch ((StatementKind) s->kind) {
  case STATEMENT_OP:
    run_op(t, a, &g_array_index(a->function->ops, Op, s->a));
    break;
  case STATEMENT_DROP:
    drop_slot(t, a, s->a);
    break;
  case STATEMENT_ENTER:
    run_enter(t, a, s);
    break;
  case STATEMENT_EXIT:
    exit_module(t, a->place.first_module + s->a, &a->slots[s->in[0]]);
    break;
  case STATEMENT_CALL:
    run_call(t, a, s);
    break;
  case STATEMENT_FORWARD_END:
    if (t->strategy->end_forward != NULL)
      t->strategy->end_forward(t->x);
    break;
  case STATEMENT_AUTOCAST_END:
    tape_autocast_end(t);
    break;
  }
}

/* The early stop's exception unwinds the frames: what they still held goes, the deepest first. */
static void
unwind(Tape *t, Activation *a)
{
  const Function *f = a->function;
  int deepest = 0;
  for (guint i = 0; i < f->values->len; i++)
    deepest = MAX(deepest, g_array_index(f->depths, guint8, i));
  for (int depth = deepest; depth >= 0; depth--)
    for (guint i = (guint) f->arguments; i < f->values->len; i++)
      if (g_array_index(f->depths, guint8, i) == depth)
        drop_slot(t, a, (int) i);
}

TensorRef
tape_run(Tape *t, Place place, int n, const TensorRef *args)
{
  const Function *f = network_function(t->network, place.function);
  g_autofree TensorRef *slots = g_new(TensorRef, f->values->len);
  g_autofree gboolean *filled = g_new0(gboolean, f->values->len);
  Activation a = {f, place, slots, filled};
  g_assert(n == f->arguments);
  for (int i = 0; i < n; i++)
    slots[i] = args[i];
  for (guint i = 0; i < f->statements->len && !t->stop; i++)
    run_statement(t, &a, &g_array_index(f->statements, Statement, i));
  if (t->stop) {
    unwind(t, &a);
    return NO_TENSOR;
  }
  return f->result >= 0 ? slots[f->result] : NO_TENSOR;
}

/* ---- entry points ---- */

void
tape_construct(Tape *t)
{
  if (t->network->construct < 0)
    return;
  const Function *f = network_function(t->network, t->network->construct);
  g_autofree TensorRef *slots = g_new(TensorRef, f->values->len);
  g_autofree gboolean *filled = g_new0(gboolean, f->values->len);
  Activation a = {f, {t->network->construct, 0, 0}, slots, filled};
  for (guint i = 0; i < f->statements->len; i++)
    run_statement(t, &a, &g_array_index(f->statements, Statement, i));
  t->table_count = (int) t->network->tables->len;
  for (int i = 0; i < t->table_count; i++) {
    t->tables[i] = slots[g_array_index(t->network->tables, gint16, i)];
    live_storage_promote(t->live, t->tables[i].storage, CATEGORY_OTHER);
  }
}

TensorRef
tape_forward(Tape *t, const StorageId *inputs)
{
  TensorRef args[16];
  int n = 0;
  for (guint i = 0; i < t->network->inputs->len; i++, n++) {
    args[n] = NO_TENSOR;
    args[n].storage = inputs[i];
    args[n].dtype = g_array_index(t->network->inputs, ValueInfo, i).dtype;
  }
  for (int i = 0; i < t->table_count; i++)
    args[n++] = t->tables[i];
  tape_autocast_begin(t);
  return tape_run(t, (Place){t->network->main, 0, 0}, n, args);
}

TensorRef
tape_apply(Tape *t, int function, TensorRef argument)
{
  return tape_run(t, (Place){function, 0, 0}, 1, &argument);
}
