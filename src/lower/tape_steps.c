/* tape_steps.c - plays the recipes of the table of ops: tensors are made and let go, kernels are
 * launched, gradients passed on. */
#include <string.h>

#include "lower/tape_private.h"
#include "network/strides.h"

/* The thread's cuBLAS workspace is made after the first product that the thread launches, and stays
 * (aten/src/ATen/cuda/CublasHandlePool.cpp). */
void
tape_use_workspace(Tape *t, Workspace kind)
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

/* What the op knows of a buffer: FALSE of temporaries that are flat.  A gradient that comes in
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
    *info = run->temp[buffer - BUFFER_TEMP];
    return info->dims > 0 && buffer < BUFFER_TEMP + OP_TEMPS;
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
    if (ref->is_packed) {
      const ValueInfo gaps = info;
      value_order_like(&info, 1, &gaps);
    }
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
  case ORDER_LIKE_INPUT:
    value_order_like(shape, 1, &inside);
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
  return (t->x->no_grad || !run->op->node) && output >= 0 && output < OP_OUTPUTS &&
         ((run->op->info->for_backward >> output) & 1);
}

/* Shape and memory order of a temporary; no dimensions: it is flat. */
static ValueInfo
temporary_info(const OpRun *run, const OpStep *step)
{
  ValueInfo gradient, shape = {0};
  if (!step->shaped)
    return shape;
  shape = run->info[step->source];
  shape.dtype = step->dtype;
  buffer_info(run, BUFFER_GRAD + step->source, &gradient);
  if (step->order == ORDER_SAME)
    value_order_like(&shape, 1, &gradient);
  else
    value_set_contiguous(&shape);
  return shape;
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
  } else if (step->buffer >= BUFFER_TEMP) {
    run->temp[step->buffer - BUFFER_TEMP] = temporary_info(run, step);
  } else { /* else it would be a view with what gaps that has */
    run->buffer[step->buffer].is_packed = run->op->info == op_info(OP_TO_IF_NEEDED);
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
  case ORDER_SAME: /* its dtype too, until validation */
    seen.dtype = incoming.dtype;
    break;
  default:
    break;
  }
  memcpy(seen.stride, incoming.stride, sizeof(seen.stride));
  return seen;
}

/* A second reference to the source. */
static void
alias(Tape *t, OpRun *run, const OpStep *step)
{
  TensorRef ref = run->buffer[step->source];
  tape_hold(t, &ref);
  run->buffer[step->buffer] = ref;
}

/* The same, to a view of it from this element on; pairs may be seen as complex numbers, and the
 * other way round. */
static void
alias_from(Tape *t, OpRun *run, const OpStep *step, const ValueInfo *seen, gint64 offset)
{
  ValueInfo source;
  TensorRef *ref = &run->buffer[step->buffer];
  buffer_info(run, step->source, &source);
  alias(t, run, step);
  ref->is_view = TRUE;
  if (source.dtype != DTYPE_COMPLEX64 && seen->dtype == DTYPE_COMPLEX64)
    ref->offset /= 2;
  else if (source.dtype == DTYPE_COMPLEX64 && seen->dtype != DTYPE_COMPLEX64)
    ref->offset *= 2;
  ref->offset += offset;
}

/* The incoming gradient itself: it has the output's shape until validation. */
static void
pass(Tape *t, OpRun *run, const OpStep *step)
{
  ValueInfo incoming;
  buffer_info(run, step->source, &incoming);
  alias(t, run, step);
  set_gradient(run, step->buffer, &incoming);
}

static void
view(Tape *t, OpRun *run, const OpStep *step)
{
  ValueInfo seen = view_of_incoming(run, step), incoming;
  buffer_info(run, step->source, &incoming);
  alias_from(t, run, step, &seen,
             step->order == ORDER_SAME ? step->bytes * incoming.stride[step->index] : 0);
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
    alias_from(t, run, step, &seen, 0);
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
make_contiguous_temp(Tape *t, OpRun *run, const OpStep *step, gint32 what)
{
  ValueInfo incoming;
  buffer_info(run, step->source, &incoming);
  if (step->order == ORDER_HEADS_INSIDE)
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

/* Does the step hand on a gradient that has not come, since nothing used the output? */
static gboolean
has_no_source(const OpRun *run, const OpStep *step)
{
  gboolean hands_on = step->action == STEP_VIEW || step->action == STEP_PASS ||
                      step->action == STEP_RESHAPE || step->action == STEP_CONTIGUOUS;
  return hands_on && run->buffer[step->source].storage == NO_STORAGE;
}

/* Zeros stand for it. */
static void
make_zeros(Tape *t, OpRun *run, const OpStep *step, gint32 what)
{
  int input = step->buffer - BUFFER_GRAD;
  const ValueInfo *info = &run->info[input];
  OpStep zeros = {.buffer = step->buffer,
                  .source = (guint8) input,
                  .dtype = info->dtype,
                  .order = ORDER_DENSE,
                  .bytes = value_bytes(info)};
  allocate(t, run, &zeros, what);
}

static void
play_step(Tape *t, OpRun *run, const OpStep *step, gint32 what)
{
  TensorRef *buffer = &run->buffer[step->buffer];
  if (has_no_source(run, step)) {
    make_zeros(t, run, step, what);
    return;
  }
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
    alias_from(t, run, step, &run->info[step->buffer], step->bytes);
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
  case STEP_CONTIGUOUS_TEMP:
    make_contiguous_temp(t, run, step, what);
    break;
  case STEP_REPLACE:
    replace(t, run, step);
    break;
  case STEP_LAUNCH:
    launch(t, run, step->index);
    break;
  case STEP_WORKSPACE:
    tape_use_workspace(t, (Workspace) step->index);
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
