/* step_walk.c - one training step: zero_grad, forward and backward of each micro-batch, clipping,
 * optimizer. */
#include "lower/step_walk.h"

#include "lower/trainer_loop.h"
#include "strategy/retain.h"

static void
begin_phase(StrategyContext *x, const char *name)
{
  program_builder_set_module(x->builder, -1);
  program_builder_push(x->builder, RANGE_PHASE, name, x->micro_batch);
}

static void
end_phase(StrategyContext *x)
{
  program_builder_pop(x->builder);
}

/* A tensor of the training loop's own. */
static StorageId
loop_tensor(StrategyContext *x, gint64 bytes, Category category, const char *what)
{
  StoragePurpose purpose = {category, -1, program_builder_name(x->builder, what)};
  return live_storage_alloc(x->live, bytes, STREAM_COMPUTE, purpose);
}

/* ---- construction ---- */

/* Tokens of all micro-batches, then labels of all: lists of the training script. */
static void
make_inputs(StepWalk *w)
{
  StrategyContext *x = w->x;
  guint inputs = x->network->inputs->len, batches = (guint) x->plan->accumulation.steps;
  static const char *const names[] = {"tokens", "labels"};
  guint tensors = inputs > 0 ? MAX(inputs, w->strategy->batch_tensors) : 0;
  w->inputs = g_new(StorageId, inputs * batches);
  for (guint i = 0; i < tensors; i++) {
    const ValueInfo *info = &g_array_index(x->network->inputs, ValueInfo, MIN(i, inputs - 1));
    for (guint k = 0; k < batches; k++) {
      StorageId made =
          loop_tensor(x, value_bytes(info), CATEGORY_OTHER, names[i % G_N_ELEMENTS(names)]);
      if (i < inputs)
        w->inputs[k * inputs + i] = made;
    }
  }
}

void
step_walk_construct(StepWalk *w)
{
  StrategyContext *x = w->x;
  program_builder_begin_list(x->builder);
  begin_phase(x, "construction");
  if (x->network->construction_scratch > 0)
    live_storage_drop(
        x->live, loop_tensor(x, x->network->construction_scratch, CATEGORY_TEMPORARY, "scratch"));
  w->strategy->construct(x);
  Tape *tables = w->tables != NULL ? w->tables : w->tape;
  tape_construct(tables);
  if (tables != w->tape)
    tape_share(w->tape, tables);
  if (w->strategy->initialize != NULL)
    w->strategy->initialize(x);
  program_builder_empty_cache(x->builder);
  if (w->strategy->construct_optimizer != NULL && x->plan->optimizer.name != OPTIMIZER_NONE)
    w->strategy->construct_optimizer(x);
  grad_scaler_init(&w->scaler);
  if (x->plan->loop == LOOP_TRAINER)
    trainer_loop_construct(w);
  else
    make_inputs(w);
  end_phase(x);
}

/* ---- the step ---- */

/* set_to_none: gradients go in the order of model.parameters(). */
static void
zero_grad(StepWalk *w)
{
  StrategyContext *x = w->x;
  begin_phase(x, "zero_grad");
  if (w->strategy->zero_grad != NULL)
    w->strategy->zero_grad(x);
  for (guint i = 0; w->strategy->zero_grad == NULL && i < x->network->parameters->len; i++) {
    ParameterState *p = &x->parameters[i];
    live_storage_clear(x->live, &p->gradient);
    p->has_gradient = FALSE;
    live_storage_clear(x->live, &p->sharded_gradient);
  }
  end_phase(x);
}

static TensorRef
forward(StepWalk *w)
{
  StrategyContext *x = w->x;
  begin_phase(x, "forward");
  TensorRef loss =
      tape_forward(w->tape, w->inputs + (guint) x->micro_batch * x->network->inputs->len);
  strategy_release_retained(x, w->strategy, RETAIN_END_OF_FORWARD);
  end_phase(x);
  return loss;
}

/* The loss as an engine makes it: every step's result is held until backward is over.  Returns how
 * many there are. */
static int
scale_loss(StepWalk *w, TensorRef losses[LOSS_STEPS + 1])
{
  const Network *network = w->x->network;
  int n = 0;
  if (network->scale_loss >= 0) {
    TensorRef scale = {.node = -1, .parameter = -1, .dtype = DTYPE_FP32};
    scale.storage = grad_scaler_scale(w->x, &w->scaler);
    losses[n + 1] = tape_apply_two(w->tape, network->scale_loss, losses[n], scale);
    n++;
  }
  for (int i = 0; i < LOSS_STEPS; i++)
    if (network->loss_step[i] >= 0) {
      losses[n + 1] = tape_apply(w->tape, network->loss_step[i], losses[n]);
      n++;
    }
  return n + 1;
}

/* loss.backward(); del loss.  The gradient of the loss is the caller's until backward() returns. */
static void
backward(StepWalk *w, TensorRef loss)
{
  StrategyContext *x = w->x;
  begin_phase(x, "backward");
  if (w->strategy->begin_backward != NULL)
    w->strategy->begin_backward(x);
  TensorRef losses[LOSS_STEPS + 1] = {loss};
  int n = scale_loss(w, losses);
  TensorRef last = losses[n - 1];
  TensorRef ones = {.node = -1, .parameter = -1, .dtype = last.dtype};
  ones.storage =
      loop_tensor(x, dtype_size((DType) last.dtype), CATEGORY_TEMPORARY, "gradient of the loss");
  program_builder_operand(
      x->builder, live_storage_tensor(x->live, last.storage, (DType) last.dtype), ROLE_READ);
  program_builder_operand(
      x->builder, live_storage_tensor(x->live, ones.storage, (DType) ones.dtype), ROLE_WRITE);
  strategy_launch(x, STREAM_COMPUTE, "ones_like", 4);
  live_storage_hold(x->live, ones.storage);
  tape_backward(w->tape, last, ones);
  live_storage_drop(x->live, ones.storage);
  if (w->strategy->after_graph != NULL)
    w->strategy->after_graph(x);
  retain_loss(x, loss.storage);
  tape_forget_leaves(w->tape);
  for (int i = n - 1; i >= 0; i--)
    live_storage_drop(x->live, losses[i].storage);
  strategy_release_retained(x, w->strategy, RETAIN_END_OF_BACKWARD);
  end_phase(x);
}

/* What the training loop computes once more of a micro-batch's results. */
static void
metrics(StepWalk *w)
{
  StrategyContext *x = w->x;
  if (x->network->after_backward < 0)
    return;
  begin_phase(x, "metrics");
  tape_after_backward(w->tape, w->inputs + (guint) x->micro_batch * x->network->inputs->len);
  end_phase(x);
}

static void
micro_batch(StepWalk *w, int i)
{
  StrategyContext *x = w->x;
  x->micro_batch = i;
  x->last_micro_batch = i == x->plan->accumulation.steps - 1;
  x->synchronize = x->last_micro_batch || x->plan->accumulation.sync_every_step;
  backward(w, forward(w));
  if (x->plan->loop == LOOP_TRAINER)
    trainer_loop_add_loss(w);
  metrics(w);
}

/* Clipping and the optimizer, in phases of their own unless the strategy's step is both. */
static void
optimize(StepWalk *w)
{
  StrategyContext *x = w->x;
  const PlanSpec *plan = x->plan;
  gboolean whole = w->strategy->optimizer_step != NULL;
  live_storage_clear(x->live, &x->grad_norm);
  if (plan_spec_clips(plan) && !whole) {
    begin_phase(x, "clip");
    if (plan->precision.grad_scaler)
      grad_scaler_unscale(x, w->strategy, &w->scaler);
    if (w->strategy->clip == NULL || !w->strategy->clip(x))
      optimizer_clip(x, w->strategy);
    end_phase(x);
  }
  if (plan->optimizer.name == OPTIMIZER_NONE)
    return;
  begin_phase(x, "optimizer");
  tape_before_step(w->tape);
  if (plan->precision.grad_scaler)
    grad_scaler_begin_step(x, w->strategy, &w->scaler);
  if (whole)
    w->strategy->optimizer_step(x);
  else if (w->strategy->update == NULL || !w->strategy->update(x))
    optimizer_step(x, w->optimizer);
  if (plan->precision.grad_scaler)
    grad_scaler_end_step(x, &w->scaler);
  end_phase(x);
}

void
step_walk_step(StepWalk *w)
{
  StrategyContext *x = w->x;
  const PlanSpec *plan = x->plan;
  x->micro_batch = 0;
  if (w->strategy->begin_step != NULL)
    w->strategy->begin_step(x);
  if (plan->loop == LOOP_TRAINER) {
    begin_phase(x, "batch");
    trainer_loop_fetch(w);
    end_phase(x);
  }
  if (plan->optimizer.zero_grad == ZERO_GRAD_START)
    zero_grad(w);
  for (int i = 0; i < plan->accumulation.steps; i++)
    micro_batch(w, i);
  x->micro_batch = 0;
  optimize(w);
  if (plan->optimizer.zero_grad == ZERO_GRAD_END)
    zero_grad(w);
  strategy_release_retained(x, w->strategy, RETAIN_END_OF_STEP);
}
