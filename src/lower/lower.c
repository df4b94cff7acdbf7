/* lower.c - from a network and a plan to the Program of one rank: steps are lowered until they
 * repeat. */
#include "lower/lower.h"

#include "lower/phases.h"
#include "lower/plan_names.h"
#include "lower/step_walk.h"
#include "network/compiled.h"
#include "strategy/retain.h"

NetworkPrecision
lower_precision(const PlanSpec *plan)
{
  gboolean autocast = plan->precision.autocast;
  gboolean casts = autocast && !strategy_find(plan->strategy)->casts_parameters;
  return (NetworkPrecision){
      .stored = plan->precision.parameters,
      .weights = casts ? plan->precision.parameters : plan->precision.compute,
      .matmul = plan->precision.compute,
      .autocast = autocast,
      .has_output = plan->precision.has_output,
      .output = plan->precision.output,
      .wraps_forward = autocast && plan->precision.has_output,
  };
}

NetworkShape
lower_shape(const PlanSpec *plan, const DeviceProfile *device)
{
  const Strategy *strategy = strategy_find(plan->strategy);
  LossScaling loss = strategy->loss != NULL ? strategy->loss(plan) : LOSS_IS_THE_LOOPS;
  gboolean loops = loss == LOSS_IS_THE_LOOPS, trainer = plan->loop == LOOP_TRAINER;
  NetworkShape shape = {
      .micro_batch = plan->micro_batch,
      .sequence_length = plan->sequence_length,
      .target_length = plan->target_length,
      .micro_batches = loops || trainer ? plan->accumulation.steps : 1,
      .divides_loss = loops && plan->loop != LOOP_PLAIN,
      .keeps_loss = plan->loop != LOOP_PLAIN,
      .trainer = trainer,
      .scales_loss = plan->precision.grad_scaler,
      .keeps_loss_dtype = strategy->grad_scaler == GRAD_SCALER_SHARDED,
      .loss_factor = plan->trainer.average_tokens ? plan->shard * plan->replicate : 0,
      .loss_steps = loops                  ? 0
                    : loss == LOSS_DIVIDED ? 1
                                           : LOSS_STEPS,
      .precision = lower_precision(plan),
      .dispatched = plan->compile_per_block ? NULL : &plan->checkpointing,
      .trainable = plan->trainable,
      .lora = plan->lora,
      .plan = plan,
      .splits_tied = strategy->splits_tied != NULL && strategy->splits_tied(plan),
      .casts_inputs = strategy->casts_inputs && plan_spec_has_mixed_precision(plan),
      .casts_root_inputs = strategy->casts_root_inputs && plan_spec_has_mixed_precision(plan),
      .device = {device->sms, device->max_threads_per_sm, device->compute_capability},
  };
  if (strategy != NULL && strategy->shape != NULL)
    strategy->shape(plan, &shape);
  return shape;
}

NetworkShape
lower_evaluation_shape(const PlanSpec *plan, const DeviceProfile *device)
{
  NetworkShape shape = lower_shape(plan, device);
  const PhaseSpec *phases = &plan->phases;
  if (phases->evaluate.micro_batch > 0)
    shape.micro_batch = phases->evaluate.micro_batch;
  if (phases->evaluate.sequence_length > 0)
    shape.sequence_length = phases->evaluate.sequence_length;
  shape.micro_batches = 1;
  shape.loss_steps = 0;
  shape.scales_loss = FALSE;
  shape.keeps_loss = shape.keeps_loss && !shape.trainer;
  shape.dispatched = NULL;
  shape.evaluation = TRUE;
  return shape;
}

void
lower_compile(const PlanSpec *plan, Network *network)
{
  if (plan->compile_per_block)
    network_compile(network, &plan->checkpointing);
}

/* ---- what no strategy can honour yet, and names that must exist ---- */

/* A compiled block is one call for its hooks and checkpoints. */
static gboolean
accept_compile(const LowerInput *in, GError **error)
{
  if (in->plan->checkpointing.around != AROUND_MODULE)
    return plan_spec_refuse(in->plan, error, "activation_checkpointing.around",
                            "compiled blocks have their checkpoints inside: module");
  if (in->network->mixtures > 0)
    return plan_spec_refuse(in->plan, error, "compile",
                            "mixtures of experts are not compiled: use \"none\"");
  if (in->strategy->before_module != NULL)
    return plan_spec_refuse(in->plan, error, "compile",
                            "strategy %s has hooks on every module: use \"none\"",
                            in->plan->strategy);
  return TRUE;
}

/* Composer's optimizer has states of flat parameters, which no state dict here speaks of. */
static gboolean
accept_composer(const LowerInput *in, GError **error)
{
  const PlanSpec *plan = in->plan;
  gboolean saves = plan->phases.save.given && plan->phases.save.optimizer;
  gboolean loads = plan->phases.load.given && plan->phases.load.optimizer;
  if (in->strategy->flatten == NULL || (!saves && !loads))
    return TRUE;
  return plan_spec_refuse(plan, error, saves ? "phases.save.optimizer" : "phases.load.optimizer",
                          "not yet supported for composer's flat parameters");
}

static gboolean
accept_grad_scaler(const LowerInput *in, GError **error)
{
  static const char key[] = "precision.grad_scaler";
  const PlanSpec *plan = in->plan;
  GradScalerKind kind = in->strategy->grad_scaler;
  gboolean fused = plan->optimizer.implementation == OPTIMIZER_FUSED;
  if (kind == GRAD_SCALER_NONE)
    return plan_spec_refuse(plan, error, key, "%s has a loss scale of its own", plan->strategy);
  if (plan->optimizer.implementation == OPTIMIZER_COMPOSER ||
      plan->optimizer.name == OPTIMIZER_NONE)
    return plan_spec_refuse(plan, error, key, "not yet supported with this optimizer");
  if (plan->section != NULL && option_section_index(plan->section, "cpu_offload") >= 0 &&
      plan_spec_number(plan, "cpu_offload"))
    return plan_spec_refuse(plan, error, key, "not yet supported with fsdp.cpu_offload");
  if (kind == GRAD_SCALER_SHARDED && fused && plan_spec_clips(plan))
    return plan_spec_refuse(
        plan, error, key,
        "PyTorch's fused optimizers fail at what ShardedGradScaler found before "
        "clipping: use foreach");
  return TRUE;
}

/* The Trainer keeps losses; what another loop computes of what it kept is no part of it. */
static gboolean
accept_loop(const LowerInput *in, GError **error)
{
  if (in->plan->loop != LOOP_TRAINER || in->network->after_backward < 0)
    return TRUE;
  return plan_spec_refuse(in->plan, error, "loop",
                          "the network is Composer's, whose trainer has metrics of its own: use "
                          "\"plain\"");
}

/* Whether backward() has anywhere to go from the loss. */
static gboolean
check_loss(const LowerInput *in, GError **error)
{
  const Function *f = network_function(in->network, in->network->main);
  if (f->result >= 0 && g_array_index(f->values, ValueInfo, f->result).requires_grad)
    return TRUE;
  return plan_spec_refuse(in->plan, error, in->plan->trainable != NULL ? "trainable" : "lora",
                          "the loss depends on no parameter that trains");
}

static gboolean
accept_plan(const LowerInput *in, GError **error)
{
  const PlanSpec *plan = in->plan;
  if (plan->compile_per_block && !accept_compile(in, error))
    return FALSE;
  if (plan->optimizer.implementation == OPTIMIZER_COMPOSER && !accept_composer(in, error))
    return FALSE;
  if (plan->precision.grad_scaler && !accept_grad_scaler(in, error))
    return FALSE;
  if (!accept_loop(in, error) || !plan_names_check(plan, in->network, error) ||
      !check_loss(in, error) || !phases_accept(in, error))
    return FALSE;
  return in->strategy->accept == NULL || in->strategy->accept(plan, in->network, error);
}

/* ---- the context ---- */

static void
unit_free(gpointer data)
{
  Unit *unit = data;
  g_free(unit->name);
  g_array_unref(unit->parameters);
  g_array_unref(unit->modules);
  g_free(unit);
}

static GArray *
no_units(guint modules)
{
  GArray *units = g_array_sized_new(FALSE, FALSE, sizeof(int), modules);
  int none = -1;
  for (guint i = 0; i < modules; i++)
    g_array_append_val(units, none);
  return units;
}

static void
context_init(StrategyContext *x, const LowerInput *in)
{
  guint modules = in->network->modules->len, parameters = in->network->parameters->len;
  *x = (StrategyContext){
      .network = in->network,
      .plan = in->plan,
      .device = in->device,
      .rank = in->rank % in->plan->shard,
      .global_rank = in->rank,
      .device_bytes = in->memory_limit > 0 ? in->memory_limit : in->device->memory_bytes,
      .builder = program_builder_new(),
      .grad_norm = NO_STORAGE,
  };
  x->live = live_storages_new(x->builder);
  x->units = g_ptr_array_new_with_free_func(unit_free);
  x->unit_begins = no_units(modules);
  x->unit_ends = no_units(modules);
  x->retained = g_ptr_array_new_with_free_func(retain_free);
  x->parameters = g_new(ParameterState, parameters);
  for (guint i = 0; i < parameters; i++)
    x->parameters[i] = (ParameterState){.sharded = NO_STORAGE,
                                        .unsharded = NO_STORAGE,
                                        .gradient = NO_STORAGE,
                                        .accumulated = NO_STORAGE,
                                        .sharded_gradient = NO_STORAGE,
                                        .node = -1};
  x->parameter_names = g_new(gint32, parameters);
  for (guint i = 0; i < parameters; i++)
    x->parameter_names[i] =
        program_builder_name(x->builder, network_parameter(in->network, (int) i)->name);
  x->buffers = g_new(StorageId, MAX(in->network->buffers->len, 1));
  for (guint i = 0; i < in->network->buffers->len; i++)
    x->buffers[i] = NO_STORAGE;
  for (guint i = 0; i < modules; i++)
    program_builder_module(x->builder, network_module(in->network, (int) i)->path);
}

static void
context_clear(StrategyContext *x)
{
  live_storages_free(x->live);
  g_array_unref(x->unit_begins);
  g_array_unref(x->unit_ends);
  g_ptr_array_unref(x->retained);
  g_free(x->parameters);
  g_free(x->buffers);
  g_free(x->parameter_names);
}

/* ---- layouts ---- */

static StateLayout *
layout_of(const StrategyContext *x, const Strategy *strategy)
{
  StateLayout *layout =
      state_layout_new(strategy->state_ranks != NULL ? strategy->state_ranks(x) : 1);
  strategy->state_ranges(x, layout);
  return layout;
}

StateLayout *
lower_state_layout(const LowerInput *in, GError **error)
{
  if (in->strategy->state_ranges == NULL) {
    plan_spec_refuse(in->plan, error, "strategy", "where %s keeps its state is not known",
                     in->plan->strategy);
    return NULL;
  }
  if (in->strategy->accept != NULL && !in->strategy->accept(in->plan, in->network, error))
    return NULL;
  StrategyContext x;
  context_init(&x, in);
  if (in->strategy->setup != NULL)
    in->strategy->setup(&x);
  StateLayout *layout = layout_of(&x, in->strategy);
  if (in->strategy->teardown != NULL)
    in->strategy->teardown(&x);
  g_ptr_array_unref(x.units);
  context_clear(&x);
  program_builder_free(x.builder);
  return layout;
}

/* ---- steps ---- */

/* Do the same phases follow two steps? */
static gboolean
are_alike(const PhaseSpec *phases, int a, int b, int steps)
{
  return phase_spec_evaluates(phases, a, steps) == phase_spec_evaluates(phases, b, steps) &&
         phase_spec_saves(phases, a, steps) == phase_spec_saves(phases, b, steps);
}

/* How many steps after this one are like it in that, one after another. */
static int
count_alike(const PhaseSpec *phases, int step, int steps)
{
  int count = 0;
  while (step + count < steps && are_alike(phases, step, step + count + 1, steps))
    count++;
  return count;
}

/* Writes steps, and what follows them, until one is like the one before; the rest repeat it, or
 * those up to the next that another phase follows. */
static void
write_steps(StepWalk *w, Phases *phases, int steps)
{
  ProgramBuilder *builder = w->x->builder;
  const PhaseSpec *spec = &w->x->plan->phases;
  gboolean repeats = FALSE;
  for (int step = 1; step <= steps; step++) {
    w->x->step = step;
    if (!repeats) {
      program_builder_begin_list(builder);
      step_walk_step(w);
      phases_after_step(phases, step, steps);
      gboolean again = step > 1 && are_alike(spec, step - 1, step, steps);
      int alike = again ? count_alike(spec, step, steps) : 0;
      if (again && step + alike == steps)
        repeats = program_builder_fold_last_list(builder);
      else if (alike > 0 && program_builder_repeat_before_last(builder, alike))
        step += alike;
    }
    program_builder_add_step(builder);
  }
}

static Lowered *
write_program(StrategyContext *x, const LowerInput *in, LoadMap *load)
{
  StepWalk w = {.x = x, .strategy = in->strategy, .tape = tape_new(x, in->strategy)};
  w.optimizer = optimizer_state_new(x);
  Phases *phases = phases_new(&w, in->evaluation, load);
  step_walk_construct(&w);
  phases_constructed(phases);
  write_steps(&w, phases, in->steps);
  Lowered *lowered = g_new0(Lowered, 1);
  lowered->has_expected = in->strategy->expected != NULL;
  if (lowered->has_expected)
    lowered->expected = in->strategy->expected(x);
  lowered->keeps_gradients =
      in->strategy->keeps_gradients != NULL && in->strategy->keeps_gradients(in->plan);
  lowered->zero_stage = in->strategy->zero_stage != NULL ? in->strategy->zero_stage(x) : 0;
  lowered->spread = in->strategy->spread != NULL ? in->strategy->spread(x) : (StateSpread){1, 1};
  if (in->strategy->teardown != NULL)
    in->strategy->teardown(x);
  lowered->phases = g_array_ref(phases_moved(phases));
  phases_free(phases);
  tape_free(w.tape);
  optimizer_state_free(w.optimizer);
  g_free(w.inputs);
  lowered->units = g_steal_pointer(&x->units);
  lowered->program = program_builder_finish(x->builder);
  return lowered;
}

Lowered *
lower(const LowerInput *in, GError **error)
{
  if (!accept_plan(in, error))
    return NULL;
  StrategyContext x;
  Lowered *lowered = NULL;
  context_init(&x, in);
  if (in->strategy->setup != NULL)
    in->strategy->setup(&x);
  LoadMap *load = NULL;
  if (retain_accept(&x, error) && load_map_new(in, &load, error)) {
    lowered = write_program(&x, in, load);
  } else {
    if (in->strategy->teardown != NULL)
      in->strategy->teardown(&x);
    g_ptr_array_unref(x.units);
    program_builder_free(x.builder);
  }
  context_clear(&x);
  return lowered;
}

void
lowered_free(Lowered *lowered)
{
  if (lowered == NULL)
    return;
  g_ptr_array_unref(lowered->units);
  g_array_unref(lowered->phases);
  program_free(lowered->program);
  g_free(lowered);
}
