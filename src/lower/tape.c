/* tape.c - runs a network's functions as eager PyTorch does: statement by statement, with storages
 * counted. */
#include <string.h>

#include "lower/tape_private.h"
#include "network/strides.h"
#include "program/meaning.h"

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
    named.meaning = meaning_of(builder, kernel->meaning[0] != '\0' ? kernel->meaning : NULL);
    ids.kernel[i] = program_builder_kernel(builder, &named);
  }
  return ids;
}

static void
view_parameters(StrategyContext *x, int unit, StreamId stream)
{
  autograd_view_parameters(x->walk, unit, stream);
}

static Tape *
new_tape(StrategyContext *context, const Strategy *strategy, const Network *network)
{
  Tape *t = g_new0(Tape, 1);
  t->x = context;
  t->strategy = strategy;
  t->network = network;
  t->builder = context->builder;
  t->live = context->live;
  t->nodes = g_array_new(FALSE, FALSE, sizeof(Node));
  t->saved = g_array_new(FALSE, FALSE, sizeof(SavedVariable));
  t->hooks = g_array_new(FALSE, FALSE, sizeof(PreHook));
  t->frames = g_ptr_array_new();
  t->calls = g_ptr_array_new_with_free_func(compiled_call_free);
  t->leaves = g_array_new(FALSE, FALSE, sizeof(Leaf));
  compiled_make_ids(t);
  t->ready = g_array_new(FALSE, FALSE, sizeof(gint32));
  t->casts = g_array_new(FALSE, FALSE, sizeof(CachedCast));
  for (int i = 0; i < THREAD_COUNT; i++)
    for (int j = 0; j < WORKSPACE_COUNT; j++)
      t->workspace[i][j] = NO_STORAGE;
  t->kept = t->kept_before = NO_TENSOR;
  t->inputs_left = g_new0(int, t->network->modules->len + t->network->blocks->len);
  t->ids = g_new(FunctionIds, t->network->functions->len);
  for (guint i = 0; i < t->network->functions->len; i++)
    t->ids[i] = make_ids(t->builder, network_function(t->network, (int) i));
  return t;
}

Tape *
tape_new(StrategyContext *context, const Strategy *strategy)
{
  Tape *t = new_tape(context, strategy, context->network);
  context->walk = t;
  context->view_parameters = view_parameters;
  return t;
}

Tape *
tape_new_beside(const Tape *tape, const Network *network)
{
  return new_tape(tape->x, tape->strategy, network);
}

void
tape_share(Tape *to, const Tape *from)
{
  memcpy(to->workspace, from->workspace, sizeof(to->workspace));
  memcpy(to->tables, from->tables, sizeof(to->tables));
  to->table_count = from->table_count;
}

void
tape_free(Tape *t)
{
  if (t == NULL)
    return;
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
  g_ptr_array_unref(t->calls);
  g_array_unref(t->leaves);
  g_ptr_array_unref(t->compiled_ids);
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
  if (p->requires_grad && t->recomputing == NULL && !t->x->evaluating)
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

/* Do nodes keep tensors?  Those of a checkpointed region keep promises, and without a graph there
 * is none. */
static gboolean
nodes_hold(const Tape *t)
{
  return !t->x->no_grad && (t->recording == NULL || t->recomputing != NULL);
}

/* An op that has nothing to do: its output is its input, or a cast that exists already. */
static gboolean
is_done_already(Tape *t, OpRun *run)
{
  if (run->op->info == op_info(OP_TO_CACHED))
    return find_cast(t, run);
  if (run->op->info == op_info(OP_HELD)) {
    run->buffer[BUFFER_OUT] = NO_TENSOR;
    return !nodes_hold(t);
  }
  if (run->op->info != op_info(OP_TO_IF_NEEDED) ||
      run->buffer[BUFFER_IN].dtype != run->info[BUFFER_OUT].dtype)
    return FALSE;
  run->buffer[BUFFER_OUT] = run->buffer[BUFFER_IN];
  tape_hold(t, &run->buffer[BUFFER_IN]);
  return TRUE;
}

/* Is output i a view of the first input that shows the same elements? */
static gboolean
is_view_in_dtype(const OpRun *run, int i)
{
  const TensorRef *in = &run->buffer[BUFFER_IN], *out = &run->buffer[BUFFER_OUT + i];
  return run->op->ins > 0 && in->storage != NO_STORAGE && in->storage == out->storage &&
         run->info[BUFFER_IN].dtype == run->info[BUFFER_OUT + i].dtype;
}

/* The op's outputs are made: dtype and node noted. */
static void
finish_outputs(OpRun *run, gint32 node)
{
  for (int i = 0; i < run->op->outs; i++) {
    TensorRef *out = &run->buffer[BUFFER_OUT + i];
    const ValueInfo *info = &run->info[BUFFER_OUT + i];
    out->dtype = info->dtype;
    if (is_view_in_dtype(run, i)) /* which a hook may have changed */
      out->dtype = run->buffer[BUFFER_IN].dtype;
    out->node = info->requires_grad ? node : -1;
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
  const ValueInfo *infos[STATEMENT_SLOTS];
  for (int i = 0; i < s->ins; i++) {
    args[i] = a->slots[s->in[i]];
    infos[i] = &g_array_index(a->function->values, ValueInfo, s->in[i]);
  }
  tape_enter_module(t, a->place.first_module + s->a, s->ins, args, infos);
  for (int i = 0; i < s->outs; i++) {
    a->slots[s->out[i]] = args[i];
    a->filled[s->out[i]] = TRUE;
  }
}

static void
run_exit(Tape *t, Activation *a, const Statement *s)
{
  TensorRef outputs[STATEMENT_SLOTS];
  for (int i = 0; i < s->ins; i++)
    outputs[i] = a->slots[s->in[i]];
  tape_exit_module(t, a->place.first_module + s->a, s->ins, outputs);
  for (int i = 0; i < s->ins; i++)
    a->slots[s->in[i]] = outputs[i];
}

static void
run_call(Tape *t, Activation *a, const Statement *s)
{
  TensorRef args[STATEMENT_SLOTS];
  for (int i = 0; i < s->ins; i++)
    args[i] = a->slots[s->in[i]];
  Results results = tape_call_block(t, s->b, s->a, s->ins, args);
  for (int i = 0; i < s->outs; i++) {
    a->slots[s->out[i]] = results.ref[i];
    a->filled[s->out[i]] = TRUE;
  }
}

/* An attribute of the training loop is bound again. */
static void
keep(Tape *t, const TensorRef *ref)
{
  t->kept_before = t->kept;
  t->kept = *ref;
  tape_hold(t, ref);
  if (!t->network->shape.trainer)
    tape_let_go(t);
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
    run_exit(t, a, s);
    break;
  case STATEMENT_CALL:
    run_call(t, a, s);
    break;
  case STATEMENT_KEEP:
    keep(t, &a->slots[s->in[0]]);
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

Results
tape_run(Tape *t, Place place, int n, const TensorRef *args)
{
  Results results = NO_RESULTS;
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
    return results;
  }
  for (int i = 0; i <= f->others; i++) {
    gint16 slot = i == 0 ? f->result : f->other[i - 1];
    if (slot < 0)
      continue;
    results.ref[i] = slots[slot];
    if (slot < f->arguments && i > 0) /* of those the caller has the only references */
      tape_hold(t, &results.ref[i]);
  }
  return results;
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

/* The tensors of a micro-batch as arguments; returns how many. */
static int
input_arguments(const Tape *t, const StorageId *inputs, TensorRef *args)
{
  int n = (int) t->network->inputs->len;
  for (int i = 0; i < n; i++) {
    args[i] = NO_TENSOR;
    args[i].storage = inputs[i];
    args[i].dtype = g_array_index(t->network->inputs, ValueInfo, i).dtype;
  }
  return n;
}

TensorRef
tape_forward(Tape *t, const StorageId *inputs)
{
  TensorRef args[16];
  int n = input_arguments(t, inputs, args);
  for (int i = 0; i < t->table_count; i++)
    args[n++] = t->tables[i];
  tape_autocast_begin(t);
  return tape_run(t, (Place){t->network->main, 0, 0}, n, args).ref[0];
}

TensorRef
tape_apply(Tape *t, int function, TensorRef argument)
{
  return tape_run(t, (Place){function, 0, 0}, 1, &argument).ref[0];
}

TensorRef
tape_apply_two(Tape *t, int function, TensorRef argument, TensorRef other)
{
  const TensorRef arguments[] = {argument, other};
  return tape_run(t, (Place){function, 0, 0}, 2, arguments).ref[0];
}

void
tape_let_go(Tape *t)
{
  tape_drop(t, &t->kept_before);
  t->kept_before = NO_TENSOR;
}

TensorRef
tape_kept(const Tape *t)
{
  return t->kept;
}

void
tape_before_step(Tape *t)
{
  if (t->network->before_step < 0)
    return;
  t->x->no_grad = TRUE;
  tape_run(t, (Place){t->network->before_step, 0, 0}, 0, NULL);
  t->x->no_grad = FALSE;
}

void
tape_after_backward(Tape *t, const StorageId *inputs)
{
  TensorRef args[16];
  if (t->network->after_backward < 0)
    return;
  int n = input_arguments(t, inputs, args);
  args[n++] = t->kept;
  t->x->no_grad = TRUE;
  tape_run(t, (Place){t->network->after_backward, 0, 0}, n, args);
  t->x->no_grad = FALSE;
}
