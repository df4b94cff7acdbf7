/* autograd.c - records nodes and plays the graph backwards as torch/csrc/autograd/engine.cpp does.
 */
#include <string.h>

#include "lower/tape_private.h"
#include "network/strides.h"

static Node *
node_at(const Tape *t, gint32 node)
{
  return &g_array_index(t->nodes, Node, node);
}

static SavedVariable *
saved_at(const Tape *t, gint32 saved)
{
  return &g_array_index(t->saved, SavedVariable, saved);
}

/* ---- recording ---- */

static gint32
new_node(Tape *t, NodeKind kind)
{
  Node node = {.kind = (guint8) kind, .stream = STREAM_COMPUTE, .hook = -1, .number = -1};
  g_array_append_val(t->nodes, node);
  return (gint32) t->nodes->len - 1;
}

gint32
autograd_accumulate_node(Tape *t, int parameter)
{
  ParameterState *p = &t->x->parameters[parameter];
  if (p->node < 0) {
    p->node = new_node(t, NODE_ACCUMULATE_GRAD);
    node_at(t, p->node)->number = parameter;
  }
  return p->node;
}

/* torch/distributed/fsdp/_flat_param.py, FlatParamHandle._use_unsharded_views: the flat parameter
 * is split and every piece seen in its parameter's shape, on the stream that is current. */
void
autograd_view_parameters(Tape *t, int unit, StreamId stream)
{
  const Unit *u = g_ptr_array_index(t->x->units, (guint) unit);
  gint32 flatten = new_node(t, NODE_FLATTEN);
  node_at(t, flatten)->number = unit;
  node_at(t, flatten)->stream = (guint8) stream;
  for (guint i = 0; i < u->parameters->len; i++) {
    int parameter = g_array_index(u->parameters, int, i);
    gint32 view = new_node(t, NODE_PARAMETER_VIEW);
    Node *node = node_at(t, view);
    node->number = parameter;
    node->stream = (guint8) stream;
    node->edges = 1;
    node->edge[0] = (Edge){flatten, 0};
    t->x->parameters[parameter].node = view;
  }
}

/* Saves the op's inputs (or, after it has run, outputs), in the order in which the node will
 * release them. */
static void
pack_saved(Tape *t, gint32 node, const OpRun *run, gboolean outputs)
{
  const Op *op = run->op;
  for (int k = 0; k < op->saves && !t->stop; k++) {
    if ((op->info->saves_late || op->saved[k] >= BUFFER_OUT) != outputs)
      continue;
    SavedVariable ignored;
    SavedVariable *saved = node >= 0 ? saved_at(t, node_at(t, node)->first_saved + k) : &ignored;
    t->stop = !checkpoint_pack(t, &run->buffer[op->saved[k]], saved);
  }
}

/* The node of a leaf, which holds it. */
static gint32
record_leaf(Tape *t, const OpRun *run)
{
  Leaf leaf = {run->buffer[BUFFER_IN], NO_TENSOR};
  gint32 index = new_node(t, NODE_LEAF);
  Node *node = node_at(t, index);
  node->op = run->op;
  node->place = run->place;
  node->number = (gint32) t->leaves->len;
  tape_hold(t, &leaf.tensor);
  g_array_append_val(t->leaves, leaf);
  return index;
}

gint32
autograd_record(Tape *t, const OpRun *run)
{
  const Op *op = run->op;
  if (!op->node || t->x->no_grad)
    return -1;
  if (op->info->is_leaf)
    return t->recomputing == NULL ? record_leaf(t, run) : -1;
  gint32 index = -1;
  if (t->recomputing == NULL) { /* the graph of a recomputation only serves to deliver tensors */
    index = new_node(t, NODE_OP);
    Node *node = node_at(t, index);
    node->op = op;
    node->place = run->place;
    node->edges = op->ins;
    node->saves = op->saves;
    node->first_saved = (gint32) t->saved->len;
    for (int i = 0; i < op->ins; i++)
      node->edge[i] = (Edge){run->buffer[BUFFER_IN + i].node, run->buffer[BUFFER_IN + i].output};
    g_array_set_size(t->saved, t->saved->len + op->saves);
  }
  pack_saved(t, index, run, FALSE);
  return index;
}

void
autograd_save_outputs(Tape *t, gint32 node, const OpRun *run)
{
  if (run->op->node && (node >= 0 || t->recomputing != NULL))
    pack_saved(t, node, run, TRUE);
}

void
autograd_mark(Tape *t, NodeKind kind, int number, int n, TensorRef *refs)
{
  gint32 index = -1;
  for (int i = 0; i < n; i++) {
    if (refs[i].node < 0)
      continue;
    if (index < 0)
      index = new_node(t, kind);
    Node *node = node_at(t, index);
    node->number = number;
    g_assert(node->edges < OP_OUTPUTS);
    node->edge[node->edges] = (Edge){refs[i].node, refs[i].output};
    refs[i].node = index;
    refs[i].output = node->edges++;
  }
}

void
autograd_add_hook(Tape *t, gint32 node, int unit, int token)
{
  PreHook hook = {unit, token, -1};
  gint32 index = (gint32) t->hooks->len;
  gint32 *link = &node_at(t, node)->hook;
  while (*link >= 0)
    link = &g_array_index(t->hooks, PreHook, *link).next;
  *link = index;
  g_array_append_val(t->hooks, hook);
}

gint32
autograd_region_node(Tape *t, gint32 frame, int n, const TensorRef *args)
{
  G_STATIC_ASSERT(STATEMENT_SLOTS <= OP_INPUTS);
  gint32 index = new_node(t, NODE_REGION);
  Node *node = node_at(t, index);
  node->number = frame;
  node->edges = (guint8) n;
  for (int i = 0; i < n; i++)
    node->edge[i] = (Edge){args[i].node, args[i].output};
  return index;
}

gint32
autograd_input_node(Tape *t)
{
  return new_node(t, NODE_INPUT);
}

TensorRef
autograd_take_input(Tape *t, gint32 index)
{
  if (index < 0 || !node_at(t, index)->has_incoming[0])
    return NO_TENSOR;
  node_at(t, index)->has_incoming[0] = FALSE;
  return node_at(t, index)->incoming[0];
}

gint32
autograd_compiled_node(Tape *t, Edge *edges, int n)
{
  CompiledCall *call = g_new0(CompiledCall, 1);
  call->edges = edges;
  call->edge_count = n;
  gint32 index = new_node(t, NODE_COMPILED);
  node_at(t, index)->number = (gint32) t->calls->len;
  g_ptr_array_add(t->calls, call);
  return index;
}

void
autograd_keep_compiled(Tape *t, gint32 node, int compiled, Place place, TensorRef *tensors)
{
  CompiledCall *call = g_ptr_array_index(t->calls, node_at(t, node)->number);
  call->compiled = compiled;
  call->place = place;
  call->tensors = tensors;
}

/* Where a node's gradients go: n edges. */
static const Edge *
edges_of(const Tape *t, const Node *node, int *n)
{
  if (node->kind != NODE_COMPILED) {
    *n = node->edges;
    return node->edge;
  }
  const CompiledCall *call = g_ptr_array_index(t->calls, node->number);
  *n = call->edge_count;
  return call->edges;
}

/* ---- the ready queue: the node made last runs first, gradients of parameters before all (rule L7)
 * ---- */

static gint64
priority(const Tape *t, gint32 node)
{
  NodeKind kind = (NodeKind) node_at(t, node)->kind;
  return kind == NODE_ACCUMULATE_GRAD || kind == NODE_LEAF ? G_MAXINT32 : node;
}

static void
ready_push(Tape *t, gint32 node)
{
  GArray *heap = t->ready;
  guint i = heap->len;
  g_array_append_val(heap, node);
  gint32 *h = (gint32 *) (void *) heap->data;
  while (i > 0 && priority(t, h[(i - 1) / 2]) < priority(t, node)) {
    h[i] = h[(i - 1) / 2];
    i = (i - 1) / 2;
  }
  h[i] = node;
}

static gint32
ready_pop(Tape *t)
{
  gint32 *h = (gint32 *) (void *) t->ready->data;
  guint n = t->ready->len - 1, i = 0;
  gint32 top = h[0], moved = h[n];
  while (2 * i + 1 < n) {
    guint child = 2 * i + 1;
    if (child + 1 < n && priority(t, h[child + 1]) > priority(t, h[child]))
      child++;
    if (priority(t, h[child]) <= priority(t, moved))
      break;
    h[i] = h[child];
    i = child;
  }
  h[i] = moved;
  g_array_set_size(t->ready, n);
  return top;
}

/* Counts, for every node that the loss depends on, how many nodes will send it a gradient. */
static void
count_dependencies(Tape *t, gint32 root)
{
  g_autoptr(GArray) stack = g_array_new(FALSE, FALSE, sizeof(gint32));
  g_autofree gboolean *seen = g_new0(gboolean, t->nodes->len);
  g_array_append_val(stack, root);
  seen[root] = TRUE;
  while (stack->len > 0) {
    gint32 index = g_array_index(stack, gint32, stack->len - 1);
    g_array_set_size(stack, stack->len - 1);
    int edges;
    const Edge *edge = edges_of(t, node_at(t, index), &edges);
    for (int i = 0; i < edges; i++) {
      gint32 next = edge[i].node;
      if (next < 0)
        continue;
      node_at(t, next)->dependencies++;
      if (!seen[next])
        g_array_append_val(stack, next);
      seen[next] = TRUE;
    }
  }
}

/* ---- running nodes ---- */

/* What comes to a node's input: shape and dtype, FALSE where nobody knows it.  Nodes that only mark
 * a place pass on what the next one gets. */
static gboolean
incoming_info(Tape *t, const Node *node, int input, ValueInfo *info)
{
  while (node->kind == NODE_POST_BACKWARD || node->kind == NODE_MODULE_BEGIN ||
         node->kind == NODE_MODULE_END) {
    Edge edge = node->edge[input];
    if (edge.node < 0)
      return FALSE;
    input = edge.input;
    node = node_at(t, edge.node);
  }
  if (node->kind == NODE_OP || node->kind == NODE_LEAF) {
    const Function *f = network_function(t->network, node->place.function);
    *info = g_array_index(f->values, ValueInfo, node->op->out[input]);
    return TRUE;
  }
  if (node->kind != NODE_ACCUMULATE_GRAD)
    return FALSE;
  const Parameter *p = network_parameter(t->network, node->number);
  *info = (ValueInfo){.dims = (guint8) p->dims};
  memcpy(info->shape, p->shape, sizeof(p->shape));
  value_set_contiguous(info);
  return TRUE;
}

/* A gradient as a kernel sees it; all of its storage where its shape is not known (NULL). */
static void
gradient_operand(Tape *t, const TensorRef *ref, const ValueInfo *shape, Role role)
{
  gint32 tensor =
      shape == NULL ? live_storage_tensor(t->live, ref->storage, (DType) ref->dtype) : -1;
  if (shape != NULL) {
    Layout layout = {.dtype = ref->dtype, .dims = shape->dims};
    memcpy(layout.shape, shape->shape, sizeof(shape->shape));
    memcpy(layout.stride, ref->stride, sizeof(ref->stride));
    tensor = program_builder_tensor(t->builder, ref->storage, ref->offset, &layout);
  }
  program_builder_operand(t->builder, tensor, role);
}

/* A kernel that adds one tensor to another, in place or into a third. */
static void
launch_add(Tape *t, StreamId stream, const ValueInfo *shape, const TensorRef *into,
           const TensorRef *a, const TensorRef *b)
{
  StorageId target = into->storage, other = b->storage;
  if (target == NO_STORAGE || other == NO_STORAGE)
    return;
  double bytes = 3.0 * (double) live_storage_bytes(t->live, other); /* the target may be a bucket */
  if (a != NULL)
    gradient_operand(t, a, shape, ROLE_READ);
  gradient_operand(t, b, shape, ROLE_READ);
  gradient_operand(t, into, shape, a == NULL ? ROLE_ACCUMULATE : ROLE_WRITE);
  strategy_launch(t->x, stream, "add", bytes);
}

/* Memory order of a sum into a new tensor.  A post-backward node does not know the shape that
 * passes through it: its sums keep the order of the first addend. */
static void
order_sum(Tape *t, const Node *node, int input, const TensorRef addends[2], TensorRef *sum)
{
  memcpy(sum->stride, addends[0].stride, sizeof(sum->stride));
  if (node->kind != NODE_OP)
    return;
  const Function *f = network_function(t->network, node->place.function);
  ValueInfo result = g_array_index(f->values, ValueInfo, node->op->out[input]);
  ValueInfo operands[2] = {result, result};
  for (int i = 0; i < 2; i++)
    memcpy(operands[i].stride, addends[i].stride, sizeof(operands[i].stride));
  value_order_like(&result, 2, operands);
  memcpy(sum->stride, result.stride, sizeof(sum->stride));
}

/* A second gradient reaches an input (rule L5): added in place when the first is the only tensor on
 * its storage and not a view, else into a new tensor.  Takes both references; returns the sum. */
static TensorRef
join(Tape *t, StreamId stream, const Node *node, int input, TensorRef new)
{
  TensorRef old = node->incoming[input];
  if (old.storage == NO_STORAGE) /* of no elements, as the other one */
    return old;
  ValueInfo known, *shape = incoming_info(t, node, input, &known) ? &known : NULL;
  if (!old.is_view && live_storage_holders(t->live, old.storage) == 1) {
    launch_add(t, stream, shape, &old, NULL, &new);
    tape_drop(t, &new);
    return old;
  }
  const Program *program = program_builder_program(t->builder);
  StoragePurpose purpose = {CATEGORY_TEMPORARY,
                            g_array_index(program->storages, Storage, old.storage).module,
                            program_builder_name(t->builder, "gradient sum")};
  TensorRef sum = NO_TENSOR;
  sum.storage =
      live_storage_alloc(t->live, live_storage_bytes(t->live, old.storage), stream, purpose);
  sum.dtype = old.dtype;
  order_sum(t, node, input, (TensorRef[]){old, new}, &sum);
  launch_add(t, stream, shape, &sum, &old, &new);
  tape_drop(t, &old);
  tape_drop(t, &new);
  return sum;
}

/* A gradient made on one stream comes to a node of another, which waits for it; its memory is used
 * there too (torch/csrc/autograd/input_buffer.cpp, InputBuffer::add). */
static void
cross_streams(Tape *t, StreamId from, StreamId to, StorageId gradient)
{
  gint32 made = program_builder_event(t->builder);
  program_builder_record(t->builder, from, made);
  program_builder_wait(t->builder, to, made);
  live_storage_record_stream(t->live, gradient, to);
}

/* Sends a gradient (taking its reference), made on a stream, along an edge. */
static void
send(Tape *t, StreamId stream, Edge edge, TensorRef gradient)
{
  Node *next = node_at(t, edge.node);
  StreamId to = (StreamId) next->stream;
  if (to != stream)
    cross_streams(t, stream, to, gradient.storage);
  if (next->has_incoming[edge.input])
    gradient = join(t, to, next, edge.input, gradient);
  next->incoming[edge.input] = gradient;
  next->has_incoming[edge.input] = TRUE;
}

/* Incoming gradients let go, in order (rule L3). */
static void
release_incoming(Tape *t, Node *node)
{
  for (int i = 0; i < OP_OUTPUTS; i++) {
    if (!node->has_incoming[i])
      continue;
    node->has_incoming[i] = FALSE;
    tape_drop(t, &node->incoming[i]);
  }
}

static void
run_hooks(Tape *t, const Node *node)
{
  for (gint32 hook = node->hook; hook >= 0;) {
    const PreHook *h = &g_array_index(t->hooks, PreHook, hook);
    hook = h->next;
    if (h->token == TOKEN_INPUT)
      t->strategy->input_gradient(t->x, h->unit);
    else
      t->strategy->before_backward(t->x, h->unit, h->token);
  }
}

/* AccumulateGrad: the first gradient is taken as it is, later ones are added in place (rule L6). */
static void
accumulate(Tape *t, Node *node)
{
  ParameterState *p = &t->x->parameters[node->number];
  TensorRef gradient = node->incoming[0];
  node->has_incoming[0] = FALSE;
  if (!p->has_gradient) {
    p->has_gradient = TRUE;
    p->gradient = gradient.storage;
    p->gradient_offset = gradient.offset;
    live_storage_set_purpose(t->live, gradient.storage,
                             parameter_purpose(t->x, node->number, CATEGORY_UNSHARDED_GRADIENT));
  } else {
    TensorRef into = {
        .storage = p->gradient, .dtype = gradient.dtype, .offset = p->gradient_offset};
    ValueInfo shape;
    incoming_info(t, node, 0, &shape);
    memcpy(into.stride, shape.stride, sizeof(into.stride));
    memcpy(gradient.stride, shape.stride, sizeof(into.stride)); /* the parameter's own order */
    launch_add(t, STREAM_COMPUTE, &shape, &into, NULL, &gradient);
    tape_drop(t, &gradient);
  }
  if (t->strategy->gradient_ready != NULL)
    t->strategy->gradient_ready(t->x, node->number);
}

/* A leaf keeps what comes to it. */
static void
keep_gradient(Tape *t, Node *node)
{
  Leaf *leaf = &g_array_index(t->leaves, Leaf, node->number);
  leaf->gradient = node->incoming[0];
  node->has_incoming[0] = FALSE;
}

void
tape_forget_leaves(Tape *t)
{
  for (guint i = 0; i < t->leaves->len; i++) {
    Leaf *leaf = &g_array_index(t->leaves, Leaf, i);
    tape_drop(t, &leaf->gradient);
    tape_drop(t, &leaf->tensor);
  }
  g_array_set_size(t->leaves, 0);
}

/* A node that only marks a place: gradients go on as they are. */
static void
pass_on(Tape *t, Node *node)
{
  for (int i = 0; i < node->edges; i++) {
    if (!node->has_incoming[i])
      continue;
    TensorRef gradient = node->incoming[i];
    node->has_incoming[i] = FALSE;
    if (node->edge[i].node >= 0)
      send(t, STREAM_COMPUTE, node->edge[i], gradient);
    else
      tape_drop(t, &gradient);
  }
}

/* SplitWithSizesBackward, and the AccumulateGrad of the flat parameter that it makes ready. */
static void
flatten(Tape *t, gint32 index)
{
  int unit = node_at(t, index)->number;
  guint n = ((const Unit *) g_ptr_array_index(t->x->units, (guint) unit))->parameters->len;
  g_autofree StorageId *gradients = g_new(StorageId, n);
  for (guint i = 0; i < n; i++) {
    const Node *view = node_at(t, index + 1 + (gint32) i);
    gradients[i] = view->has_incoming[0] ? view->incoming[0].storage : NO_STORAGE;
  }
  t->strategy->flatten(t->x, unit, gradients);
  for (guint i = 0; i < n; i++)
    release_incoming(t, node_at(t, index + 1 + (gint32) i));
  t->strategy->after_backward(t->x, unit);
  t->leaf_stream = (StreamId) node_at(t, index)->stream;
}

/* All gradients of the inputs of a module's call are there. */
static void
module_end(Tape *t, const Node *node)
{
  if (--t->inputs_left[node->number] > 0)
    return;
  program_builder_set_module(t->builder, tape_program_module(t, node->number));
  t->strategy->after_module_backward(t->x, node->number);
}

static void
module_begin(Tape *t, const Node *node)
{
  program_builder_set_module(t->builder, tape_program_module(t, node->number));
  t->strategy->before_module_backward(t->x, node->number);
}

/* What is known of an op's input. */
static void
input_infos(Tape *t, OpRun *run)
{
  const Function *f = network_function(t->network, run->place.function);
  for (int i = 0; i < run->op->ins; i++) {
    gint16 slot = run->op->in[i];
    ValueInfo *info = &run->info[BUFFER_IN + i];
    if (slot >= 0) {
      *info = g_array_index(f->values, ValueInfo, slot);
      continue;
    }
    const Parameter *p =
        network_parameter(t->network, run->place.first_parameter + PARAMETER_OF_SLOT(slot));
    *info = (ValueInfo){.dtype = (guint8) t->network->shape.precision.weights,
                        .dims = (guint8) p->dims};
    memcpy(info->shape, p->shape, sizeof(p->shape));
    value_set_contiguous(info);
  }
}

/* One node of the graph (rules L3 and L4). */
static void
run_op_node(Tape *t, Node *node)
{
  const Op *op = node->op;
  gboolean temporary[OP_SAVED];
  for (int k = 0; k < op->saves; k++)
    temporary[k] = saved_at(t, node->first_saved + k)->frame >= 0;
  TensorRef unpacked[OP_SAVED];
  for (int k = 0; k < op->saves; k++)
    unpacked[k] = checkpoint_unpack(t, saved_at(t, node->first_saved + k));
  OpRun run;
  tape_begin_run(t, &run, op, node->place);
  input_infos(t, &run);
  for (int i = 0; i < op->outs; i++)
    run.buffer[BUFFER_INCOMING + i] = node->has_incoming[i] ? node->incoming[i] : NO_TENSOR;
  for (int k = 0; k < op->saves; k++)
    run.buffer[op->saved[k]] = unpacked[k];
  tape_play(t, &run, op->backward, op->validate);
  for (int k = op->saves - 1; k >= 0; k--) /* locals of apply(), in reverse order of declaration */
    if (temporary[k])
      tape_drop(t, &unpacked[k]);
  tape_play(t, &run, op->validate, op->end);
  program_builder_host_work(t->builder, HOST_WORK_OP_BACKWARD, MAX(run.launches, 1));
  release_incoming(t, node);
  for (int k = 0; k < op->saves; k++)
    checkpoint_release(t, saved_at(t, node->first_saved + k));
  for (int i = 0; i < node->edges; i++)
    if (node->edge[i].node >= 0)
      send(t, STREAM_COMPUTE, node->edge[i], run.buffer[BUFFER_GRAD + i]);
}

/* CheckpointFunctionBackward. */
static void
run_region_node(Tape *t, gint32 index)
{
  TensorRef gradients[STATEMENT_SLOTS];
  reentrant_backward(t, node_at(t, index)->number, node_at(t, index)->incoming[0], gradients);
  release_incoming(t, node_at(t, index));
  for (int i = 0; i < node_at(t, index)->edges; i++)
    if (node_at(t, index)->edge[i].node >= 0)
      send(t, STREAM_COMPUTE, node_at(t, index)->edge[i], gradients[i]);
}

/* CompiledFunctionBackward. */
static void
run_compiled_node(Tape *t, gint32 index)
{
  CompiledCall *call = g_ptr_array_index(t->calls, node_at(t, index)->number);
  g_autofree TensorRef *gradients = g_new(TensorRef, MAX(call->edge_count, 1));
  compiled_backward(t, call, node_at(t, index)->incoming[0], gradients);
  release_incoming(t, node_at(t, index));
  for (int i = 0; i < call->edge_count; i++) {
    if (call->edges[i].node >= 0)
      send(t, STREAM_COMPUTE, call->edges[i], gradients[i]);
    else
      tape_drop(t, &gradients[i]);
  }
}

static void
run_node(Tape *t, gint32 index)
{
  Node *node = node_at(t, index);
  run_hooks(t, node);
  switch ((NodeKind) node->kind) {
  case NODE_OP:
    run_op_node(t, node);
    break;
  case NODE_ACCUMULATE_GRAD:
    accumulate(t, node);
    break;
  case NODE_LEAF:
    keep_gradient(t, node);
    break;
  case NODE_POST_BACKWARD:
    t->strategy->after_backward(t->x, node->number);
    pass_on(t, node);
    break;
  case NODE_MODULE_BEGIN:
    module_begin(t, node);
    pass_on(t, node);
    break;
  case NODE_MODULE_END:
    module_end(t, node);
    pass_on(t, node);
    break;
  case NODE_FLATTEN:
    flatten(t, index);
    break;
  case NODE_REGION:
    run_region_node(t, index);
    break;
  case NODE_COMPILED:
    run_compiled_node(t, index);
    break;
  case NODE_PARAMETER_VIEW:
  case NODE_INPUT:
    break;
  }
  int edges;
  const Edge *edge = edges_of(t, node_at(t, index), &edges); /* a region may have made nodes */
  for (int i = 0; i < edges; i++) {
    gint32 next = edge[i].node;
    if (next >= 0 && --node_at(t, next)->dependencies == 0)
      ready_push(t, next);
  }
}

void
autograd_play(Tape *t, const TensorRef *from, TensorRef gradient)
{
  GArray *outer = t->ready;
  t->ready = g_array_new(FALSE, FALSE, sizeof(gint32));
  count_dependencies(t, from->node);
  send(t, STREAM_COMPUTE, (Edge){from->node, from->output}, gradient);
  ready_push(t, from->node);
  while (t->ready->len > 0)
    run_node(t, ready_pop(t));
  g_array_unref(t->ready);
  t->ready = outer;
}

/* The graph is gone. */
static void
forget_graph(Tape *t)
{
  for (guint i = 0; i < t->nodes->len; i++) {
    const Node *node = node_at(t, (gint32) i);
    if (node->kind == NODE_ACCUMULATE_GRAD || node->kind == NODE_PARAMETER_VIEW)
      t->x->parameters[node->number].node = -1;
  }
  g_array_set_size(t->nodes, 0);
  g_array_set_size(t->saved, 0);
  g_array_set_size(t->hooks, 0);
  for (guint i = 0; i < t->frames->len; i++) /* regions that the loss does not depend on */
    if (g_ptr_array_index(t->frames, i) != NULL)
      checkpoint_frame_free(t, g_ptr_array_index(t->frames, i));
  g_ptr_array_set_size(t->frames, 0);
  g_ptr_array_set_size(t->calls, 0);
}

/* Whoever called backward() goes on behind the gradients it left on another stream
 * (GraphTask::exec_post_processing). */
static void
wait_for_leaves(Tape *t)
{
  if (t->leaf_stream == STREAM_COMPUTE)
    return;
  gint32 done = program_builder_event(t->builder);
  program_builder_record(t->builder, t->leaf_stream, done);
  program_builder_wait(t->builder, STREAM_COMPUTE, done);
}

void
tape_backward(Tape *t, TensorRef loss, TensorRef ones)
{
  t->thread = THREAD_ENGINE;
  t->leaf_stream = STREAM_COMPUTE;
  autograd_play(t, &loss, ones);
  wait_for_leaves(t);
  if (t->strategy->end_backward != NULL)
    t->strategy->end_backward(t->x);
  forget_graph(t);
  t->thread = THREAD_MAIN;
}
