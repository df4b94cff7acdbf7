/* compile_graph.c - the joint graph of a block: what its forward ops are to a compiler, and the ops
 * of its backward. */
#include <string.h>

#include "network/compile_private.h"
#include "network/strides.h"

/* ---- classes ---- */

/* Ops that Inductor calls a library for (torch/_inductor/lowering.py, fallbacks and templates). */
static const gboolean is_library[OP_COUNT] = {
    [OP_MM] = TRUE,
    [OP_MM_UNCOUNTED] = TRUE,
    [OP_ADDMM] = TRUE,
    [OP_BMM] = TRUE,
    [OP_ZERO3_LINEAR] = TRUE,
    [OP_EMBEDDING] = TRUE,
    [OP_FLASH_ATTENTION] = TRUE,
    [OP_CUMSUM] = TRUE,
    [OP_EFFICIENT_ATTENTION] = TRUE,
    [OP_OPAQUE] = TRUE,
    [OP_FUSED_CROSS_ENTROPY] = TRUE,
};
static const gboolean is_reduction[OP_COUNT] = {
    [OP_MEAN] = TRUE,    [OP_SUM] = TRUE,          [OP_RMS_NORM] = TRUE,    [OP_LAYER_NORM] = TRUE,
    [OP_SOFTMAX] = TRUE, [OP_SAFE_SOFTMAX] = TRUE, [OP_LOG_SOFTMAX] = TRUE, [OP_NLL_LOSS] = TRUE,
};
/* Ops whose gradient is the incoming one, where shapes and dtypes agree. */
static const gboolean passes[OP_COUNT] = {
    [OP_ADD] = TRUE, [OP_ADD_SCALAR] = TRUE, [OP_CLONE] = TRUE};

static OpId
id_of(const Op *op)
{
  return (OpId) (op->info - op_info((OpId) 0));
}

/* A view launches nothing. */
static gboolean
is_view(const Compile *c, const Op *op)
{
  for (gint32 i = op->forward; i < op->backward; i++)
    if (g_array_index(c->f->steps, OpStep, i).action != STEP_ALIAS)
      return FALSE;
  return op->backward > op->forward;
}

/* ---- forward ---- */

static void
read_values(Compile *c, int first_parameter)
{
  for (int i = 0; i < c->values; i++) {
    Value *v = &c->value[i];
    *v = (Value){.base = i, .producer = -1, .buffer = -1, .again = -1, .first_gradient = -1};
    if (i < c->slots) {
      v->info = g_array_index(c->f->values, ValueInfo, i);
      continue;
    }
    const Parameter *p = network_parameter(c->network, first_parameter + i - c->slots);
    v->info = (ValueInfo){.dtype = (guint8) c->network->shape.precision.weights,
                          .dims = (guint8) p->dims,
                          .requires_grad = (guint8) p->requires_grad};
    memcpy(v->info.shape, p->shape, sizeof(p->shape));
    value_set_contiguous(&v->info);
  }
}

/* How many library kernels lie on the longest way to the op. */
static int
depth_of(const Compile *c, const Op *op)
{
  int depth = 0;
  for (int i = 0; i < op->ins; i++) {
    int producer = compile_base(c, compile_value(c, op->in[i]))->producer;
    if (producer >= 0)
      depth = MAX(depth, c->node[producer].depth + (c->node[producer].class == FUSE_EXTERN));
  }
  return depth;
}

static void
join_groups(Compile *c, int a, int b)
{
  int first = MIN(c->node[a].group, c->node[b].group);
  int second = MAX(c->node[a].group, c->node[b].group);
  for (int i = 0; i < c->ops && first != second; i++)
    if (c->node[i].group == second)
      c->node[i].group = first;
}

/* Ops without a library kernel between them become one kernel with those whose results they read.
 */
static void
fuse(Compile *c, int i)
{
  const Op *op = compile_op(c, i);
  for (int k = 0; k < op->ins; k++) {
    int producer = compile_base(c, compile_value(c, op->in[k]))->producer;
    if (producer >= 0 && c->node[producer].class == FUSE_FUSED &&
        c->node[producer].depth == c->node[i].depth)
      join_groups(c, producer, i);
  }
}

static void
read_op(Compile *c, int i)
{
  const Op *op = compile_op(c, i);
  OpNode *node = &c->node[i];
  OpId id = id_of(op);
  gboolean view = is_view(c, op);
  node->class = view ? FUSE_VIEW : is_library[id] ? FUSE_EXTERN : FUSE_FUSED;
  node->reduces = is_reduction[id];
  node->group = i;
  node->depth = depth_of(c, op);
  for (int k = 0; k < op->outs; k++) {
    Value *out = &c->value[op->out[k]];
    if (view)
      out->base = c->value[compile_value(c, op->in[0])].base;
    else
      out->producer = i;
    out->reduces = !view && node->reduces;
  }
  if (node->class == FUSE_FUSED)
    fuse(c, i);
}

/* What modules are called with comes to them under other names. */
static void
read_calls(Compile *c)
{
  c->same = g_new(int, MAX(c->slots, 1));
  for (int i = 0; i < c->slots; i++)
    c->same[i] = i;
  for (guint i = 0; i < c->f->statements->len; i++) {
    const Statement *s = &g_array_index(c->f->statements, Statement, i);
    for (int k = 0; k < s->outs && s->kind == STATEMENT_ENTER; k++)
      c->same[s->out[k]] = c->same[s->in[k]];
  }
  c->result = c->same[c->f->result];
}

void
compile_graph(Compile *c, int parameters, int first_parameter)
{
  c->slots = (int) c->f->values->len;
  c->values = c->slots + parameters;
  c->ops = (int) c->f->ops->len;
  c->value = g_new(Value, MAX(c->values, 1));
  c->node = g_new0(OpNode, MAX(c->ops, 1));
  read_calls(c);
  read_values(c, first_parameter);
  for (int i = 0; i < c->ops; i++)
    read_op(c, i);
}

/* ---- backward ---- */

static int
new_gradient(Compile *c, int producer, ValueInfo info)
{
  Gradient gradient = {.info = info, .producer = producer, .buffer = -1};
  value_set_contiguous(&gradient.info);
  g_array_append_val(c->gradients, gradient);
  return (int) c->gradients->len - 1;
}

/* A consumer of the value has made this gradient. */
static void
contribute(Compile *c, int value, int gradient)
{
  Contribution contribution = {gradient, c->value[value].first_gradient};
  g_array_append_val(c->contributions, contribution);
  c->value[value].first_gradient = (int) c->contributions->len - 1;
}

static int
new_backward_op(Compile *c, int kind, int op)
{
  BackwardOp new = {.kind = kind, .op = op, .group = (int) c->backward->len};
  g_array_append_val(c->backward, new);
  return (int) c->backward->len - 1;
}

static void
add_read(Compile *c, int index, int gradient)
{
  BackwardOp *b = compile_backward_op(c, index);
  if (gradient < 0)
    return;
  g_assert(b->reads < BACKWARD_EDGES);
  b->read[b->reads++] = gradient;
  int producer = compile_gradient(c, gradient)->producer;
  if (producer < 0)
    return;
  const BackwardOp *from = compile_backward_op(c, producer);
  b->depth = MAX(b->depth, from->depth + (from->kind != BACKWARD_FUSED));
}

static void
add_needs(Compile *c, int index, const Op *op)
{
  BackwardOp *b = compile_backward_op(c, index);
  for (int k = 0; k < op->saves && b->needs < BACKWARD_EDGES; k++) {
    int value = op->saved[k] >= BUFFER_OUT ? op->out[op->saved[k] - BUFFER_OUT]
                                           : compile_value(c, op->in[op->saved[k] - BUFFER_IN]);
    b->need[b->needs++] = value;
    compile_base(c, value)->needed = TRUE;
  }
}

static void
add_write(Compile *c, int index, const Op *op, int input)
{
  int value = compile_value(c, op->in[input]);
  int gradient = new_gradient(c, index, c->value[value].info);
  BackwardOp *b = compile_backward_op(c, index);
  b->input[b->writes] = input;
  b->write[b->writes++] = gradient;
  contribute(c, value, gradient);
}

/* With those whose gradients it reads, if nothing but fused ops lies between. */
static void
fuse_backward(Compile *c, int index)
{
  BackwardOp *b = compile_backward_op(c, index);
  for (int k = 0; k < b->reads; k++) {
    int producer = compile_gradient(c, b->read[k])->producer;
    const BackwardOp *from = producer >= 0 ? compile_backward_op(c, producer) : NULL;
    if (from == NULL || from->kind != BACKWARD_FUSED || from->depth != b->depth)
      continue;
    int first = MIN(from->group, b->group), second = MAX(from->group, b->group);
    for (guint i = 0; i < c->backward->len && first != second; i++)
      if (compile_backward_op(c, (int) i)->group == second)
        compile_backward_op(c, (int) i)->group = first;
  }
}

/* An op that adds gradients of a value: as many of the contributions from `*next` on as it can
 * read. before: a sum that it adds to, or -1. */
static int
add_up(Compile *c, int value, int before, int *next)
{
  int sum = new_backward_op(c, BACKWARD_FUSED, -1);
  add_read(c, sum, before);
  while (*next >= 0 && compile_backward_op(c, sum)->reads < BACKWARD_EDGES) {
    add_read(c, sum, g_array_index(c->contributions, Contribution, *next).gradient);
    *next = g_array_index(c->contributions, Contribution, *next).next;
  }
  int gradient = new_gradient(c, sum, c->value[value].info);
  BackwardOp *b = compile_backward_op(c, sum);
  b->write[b->writes++] = gradient;
  fuse_backward(c, sum);
  return gradient;
}

/* The gradient of a value: of several contributions a sum.  -1: none. */
static int
total_gradient(Compile *c, int value)
{
  int next = c->value[value].first_gradient, gradient = -1;
  if (next < 0)
    return -1;
  const Contribution *only = &g_array_index(c->contributions, Contribution, next);
  if (only->next < 0)
    return only->gradient;
  while (next >= 0)
    gradient = add_up(c, value, gradient, &next);
  c->value[value].first_gradient = -1;
  contribute(c, value, gradient);
  return gradient;
}

static gboolean
wants(const Compile *c, const Op *op, int input)
{
  return c->value[compile_value(c, op->in[input])].info.requires_grad;
}

/* The operand was broadcast over rows: its gradient is a sum of columns, a kernel of its own. */
static gboolean
is_column(const Compile *c, const Op *op, int input)
{
  const ValueInfo *in = &c->value[compile_value(c, op->in[input])].info;
  const ValueInfo *out = &c->value[op->out[0]].info;
  gboolean row = in->dims == out->dims && in->dims > 0 && in->shape[in->dims - 1] == 1;
  return value_elements(in) < value_elements(out) && !row;
}

static gboolean
is_same(const Compile *c, const Op *op, int input)
{
  const ValueInfo *in = &c->value[compile_value(c, op->in[input])].info;
  const ValueInfo *out = &c->value[op->out[0]].info;
  return value_elements(in) == value_elements(out) && in->dtype == out->dtype;
}

static void
column_backward(Compile *c, int i, int input, int gradient)
{
  int index = new_backward_op(c, BACKWARD_COLUMN, i);
  add_read(c, index, gradient);
  if (c->node[i].class == FUSE_FUSED && !passes[id_of(compile_op(c, i))])
    add_needs(c, index, compile_op(c, i));
  add_write(c, index, compile_op(c, i), input);
}

/* One op of backward for all inputs whose gradients are computed element by element or row by row.
 */
static void
fused_backward(Compile *c, int i, const int *gradients)
{
  const Op *op = compile_op(c, i);
  gboolean pass = passes[id_of(op)];
  int index = -1;
  for (int k = 0; k < op->ins; k++) {
    if (!wants(c, op, k) || is_column(c, op, k))
      continue;
    if (pass && is_same(c, op, k)) {
      contribute(c, compile_value(c, op->in[k]), gradients[0]);
      continue;
    }
    if (index < 0) {
      index = new_backward_op(c, BACKWARD_FUSED, i);
      for (int o = 0; o < op->outs; o++)
        add_read(c, index, gradients[o]);
      if (!pass)
        add_needs(c, index, op);
      compile_backward_op(c, index)->reduces = c->node[i].reduces;
    }
    add_write(c, index, op, k);
    if (value_elements(&c->value[compile_value(c, op->in[k])].info) <
        value_elements(&c->value[op->out[0]].info))
      compile_backward_op(c, index)->reduces = TRUE;
  }
  if (index >= 0)
    fuse_backward(c, index);
  for (int k = op->ins - 1; k >= 0; k--)
    if (wants(c, op, k) && is_column(c, op, k))
      column_backward(c, i, k, gradients[0]);
}

/* Is gradient `input` the incoming one itself? */
static gboolean
is_passed(const Compile *c, const Op *op, int input)
{
  for (gint32 k = op->backward; k < op->validate; k++) {
    const OpStep *step = &g_array_index(c->f->steps, OpStep, k);
    if (step->action == STEP_PASS && step->buffer == BUFFER_GRAD + input)
      return TRUE;
  }
  return FALSE;
}

static void
library_backward(Compile *c, int i, const int *gradients)
{
  const Op *op = compile_op(c, i);
  int index = new_backward_op(c, BACKWARD_EXTERN, i);
  for (int o = 0; o < op->outs; o++)
    add_read(c, index, gradients[o]);
  add_needs(c, index, op);
  for (int k = 0; k < op->ins; k++)
    if (wants(c, op, k) && !is_passed(c, op, k))
      add_write(c, index, op, k);
  for (int k = 0; k < op->ins; k++)
    if (wants(c, op, k) && is_passed(c, op, k))
      column_backward(c, i, k, gradients[0]);
}

/* A view's gradient is the same seen otherwise, but where it is put into something larger, or
 * summed. */
static void
view_backward(Compile *c, int i, const int *gradients)
{
  const Op *op = compile_op(c, i);
  OpId id = id_of(op);
  if (!wants(c, op, 0))
    return;
  if (id != OP_SLICE && id != OP_SPLIT && id != OP_EXPAND) {
    contribute(c, compile_value(c, op->in[0]), gradients[0]);
    return;
  }
  int index = new_backward_op(c, BACKWARD_FUSED, i);
  for (int o = 0; o < op->outs; o++)
    add_read(c, index, gradients[o]);
  compile_backward_op(c, index)->reduces = id == OP_EXPAND;
  add_write(c, index, op, 0);
  fuse_backward(c, index);
}

static void
op_backward(Compile *c, int i)
{
  const Op *op = compile_op(c, i);
  int gradients[OP_OUTPUTS];
  gboolean any = FALSE;
  if (!op->node)
    return;
  for (int o = 0; o < op->outs; o++) {
    gradients[o] = total_gradient(c, op->out[o]);
    any |= gradients[o] >= 0;
  }
  if (!any)
    return;
  static void (*const rules[])(Compile *, int, const int *) = {
      [FUSE_VIEW] = view_backward, [FUSE_FUSED] = fused_backward, [FUSE_EXTERN] = library_backward};
  rules[c->node[i].class](c, i, gradients);
}

void
compile_plan_backward(Compile *c)
{
  int result = c->result;
  if (!c->value[result].info.requires_grad)
    return;
  contribute(c, result, new_gradient(c, -1, c->value[result].info));
  for (int i = c->ops - 1; i >= 0; i--)
    op_backward(c, i);
  for (int i = 0; i < c->values; i++) {
    gboolean leaf = i < c->f->arguments || i >= c->slots;
    int gradient = leaf && c->value[i].info.requires_grad ? total_gradient(c, i) : -1;
    if (gradient < 0)
      continue;
    compile_gradient(c, gradient)->result = TRUE;
    CompiledGradient made = {gradient, i < c->slots ? i : -1, i < c->slots ? -1 : i - c->slots};
    g_array_append_val(c->out->gradients, made);
  }
}
