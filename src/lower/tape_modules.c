/* tape_modules.c - calls of modules: hooks of strategies around forward(), and blocks with
 * checkpointing inside or outside of them. */
#include <string.h>

#include "lower/tape_private.h"
#include "strategy/retain.h"

/* The unit that begins (or ends) with a module, or -1. */
static int
unit_at(const GArray *units, int module)
{
  return units != NULL ? g_array_index(units, int, module) : -1;
}

/* cast_forward_inputs: floating tensors come in the compute dtype.  What comes may be a part of its
 * storage, as tables are that are made for longer sequences. */
static void
cast_input(Tape *t, TensorRef *ref, const ValueInfo *info, int module)
{
  DType want = t->network->shape.precision.weights, have = (DType) ref->dtype;
  gboolean floating = have == DTYPE_FP32 || have == DTYPE_BF16 || have == DTYPE_FP16;
  if (!floating || have == want || ref->storage == NO_STORAGE)
    return;
  gint64 part = value_bytes(info) / dtype_size((DType) info->dtype);
  gint64 elements = MIN(live_storage_bytes(t->live, ref->storage) / dtype_size(have), part);
  gint64 bytes = elements * dtype_size(want);
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

static gboolean
has_hooks(const Tape *t, int module)
{
  const Strategy *s = t->strategy;
  return s->before_module != NULL && (s->hooks_module == NULL || s->hooks_module(t->x, module));
}

/* The hooks that a strategy has on every module.  A recomputation's graph is thrown away: it gets
 * no nodes. */
static void
before_module(Tape *t, int module, int n, TensorRef *args)
{
  if (!has_hooks(t, module))
    return;
  t->strategy->before_module(t->x, module);
  if (t->recomputing != NULL)
    return;
  t->inputs_left[module] = 0;
  for (int i = 0; i < n; i++) {
    if (args[i].node < 0)
      continue;
    autograd_mark(t, NODE_MODULE_END, module, 1, &args[i]);
    t->inputs_left[module]++;
  }
}

static void
after_module(Tape *t, int module, int n, TensorRef *outputs)
{
  if (!has_hooks(t, module))
    return;
  program_builder_set_module(t->builder, tape_program_module(t, module));
  t->strategy->after_module(t->x, module);
  for (int i = 0; i < n && t->recomputing == NULL; i++)
    if (outputs[i].node >= 0) /* a function of its own for each */
      autograd_mark(t, NODE_MODULE_BEGIN, module, 1, &outputs[i]);
}

/* Hooks before a module's forward(): args become what it receives, with references of their own. */
void
tape_enter_module(Tape *t, int module, int n, TensorRef *args, const ValueInfo *const *infos)
{
  const Strategy *s = t->strategy;
  program_builder_set_module(t->builder, module);
  program_builder_host_work(t->builder, HOST_WORK_MODULE, 1);
  for (int i = 0; i < n; i++)
    tape_hold(t, &args[i]);
  if (module == 0 && s->begin_forward != NULL && t->recomputing == NULL)
    s->begin_forward(t->x);
  before_module(t, module, n, args);
  if (module == 0 && t->network->shape.casts_root_inputs)
    for (int i = 0; i < n; i++)
      cast_input(t, &args[i], infos[i], module);
  int unit = unit_at(t->x->unit_begins, module);
  if (unit < 0)
    return;
  if (t->recomputing != NULL) {
    if (s->before_recompute != NULL)
      s->before_recompute(t->x, unit);
    return;
  }
  if (t->network->shape.casts_inputs)
    for (int i = 0; i < n; i++)
      cast_input(t, &args[i], infos[i], module);
  s->before_forward(t->x, unit);
  const Unit *u = g_ptr_array_index(t->x->units, (guint) unit);
  if (s->marks_inputs && u->parameters->len > 0)
    autograd_mark(t, NODE_POST_BACKWARD, unit, n, args);
  if (s->wants_input_gradient != NULL && args[0].node >= 0 && !t->x->no_grad &&
      s->wants_input_gradient(t->x, unit))
    autograd_add_hook(t, args[0].node, unit, TOKEN_INPUT);
}

/* Hooks after it, on its outputs. */
void
tape_exit_module(Tape *t, int module, int n, TensorRef *outputs)
{
  if (t->x->plan->retain->len > 0)
    retain_module(t->x, module);
  after_module(t, module, n, outputs);
  int unit = unit_at(t->x->unit_ends, module);
  if (unit < 0)
    return;
  program_builder_set_module(t->builder, module);
  if (t->recomputing != NULL) {
    if (t->strategy->after_recompute != NULL)
      t->strategy->after_recompute(t->x, unit);
    return;
  }
  t->x->output_requires_grad = outputs->node >= 0;
  int token = t->strategy->after_forward(t->x, unit);
  for (int i = 0; i < n; i++)
    if (outputs[i].node >= 0)
      autograd_add_hook(t, outputs[i].node, unit, token);
}

/* How many results of a block its call returns. */
static int
block_outputs(const Function *f)
{
  return 1 + f->others - f->captured;
}

/* A block's call inside its hooks, with checkpointing inside or (repeating them) outside. */
static Results
call_inside_hooks(Tape *t, int block, Place place, int n, const TensorRef *args)
{
  TensorRef received[STATEMENT_SLOTS];
  const ValueInfo *infos[STATEMENT_SLOTS];
  const Function *f = network_function(t->network, place.function);
  memcpy(received, args, sizeof(TensorRef) * (gsize) n);
  for (int i = 0; i < n; i++) /* arguments are the first slots */
    infos[i] = &g_array_index(f->values, ValueInfo, i);
  int module = place.first_module;
  tape_enter_module(t, module, n, received, infos);
  gboolean inner = !checkpoint_repeats_hooks(t) && t->recomputing == NULL;
  int compiled = network_block(t->network, block)->compiled;
  Results results = NO_RESULTS;
  if (compiled >= 0)
    results.ref[0] = compiled_run(t, compiled, place, received);
  else if (inner && checkpoint_wants(t, block))
    results = checkpoint_run(t, block, place, n, received);
  else
    results = tape_run(t, place, n, received);
  if (!t->stop)
    tape_exit_module(t, module, block_outputs(f), results.ref);
  for (int i = 0; i < n; i++)
    tape_drop(t, &received[i]);
  return results;
}

Results
tape_call_hooked(Tape *t, int block, Place place, int n, const TensorRef *args)
{
  return call_inside_hooks(t, block, place, n, args);
}

/* checkpoint(block) as a module of its own, where hooks are on every module. */
static Results
call_wrapper(Tape *t, int block, Place place, int n, const TensorRef *args)
{
  TensorRef received[STATEMENT_SLOTS];
  int wrapper = network_wrapper(t->network, block);
  memcpy(received, args, sizeof(TensorRef) * (gsize) n);
  before_module(t, wrapper, n, received);
  Results results = checkpoint_run(t, block, place, n, received);
  const Function *f = network_function(t->network, place.function);
  after_module(t, wrapper, block_outputs(f), results.ref);
  return results;
}

Results
tape_call_block(Tape *t, int block, int function, int n, const TensorRef *args)
{
  const Block *b = network_block(t->network, block);
  Place place = {function, b->module, b->first_parameter};
  program_builder_set_module(t->builder, b->module);
  program_builder_push(t->builder, RANGE_MODULE, network_module(t->network, b->module)->path, 0);
  gboolean outer = checkpoint_repeats_hooks(t) && checkpoint_wants(t, block);
  Results results = NO_RESULTS;
  if (reentrant_wants(t, block))
    results = reentrant_run(t, block, place, n, args);
  else
    results =
        outer ? call_wrapper(t, block, place, n, args) : tape_call_hooked(t, block, place, n, args);
  program_builder_pop(t->builder);
  return results;
}
