/* compile_partition.c - what compiled code saves for backward: the cheapest set of tensors from
 * which the rest can be computed again (torch/_functorch/partitioners.py,
 * min_cut_rematerialization_partition and should_ban_recomputation). */
#include <math.h>
#include <string.h>

#include "network/compile_private.h"

/* ---- which values cannot be computed again ---- */

/* A library kernel of backward reads it: then computing it again would mean writing it again. */
static gboolean
is_materialized_in_backward(const Compile *c, int base)
{
  for (guint i = 0; i < c->backward->len; i++) {
    const BackwardOp *b = compile_backward_op(c, (int) i);
    for (int k = 0; k < b->needs && b->kind == BACKWARD_EXTERN; k++)
      if (c->value[b->need[k]].base == base)
        return TRUE;
  }
  return FALSE;
}

/* Results a quarter as large as what was read are worth keeping. */
static gboolean
is_small_reduction(const Compile *c, const Value *v)
{
  const Op *op = compile_op(c, v->producer);
  gint64 read = 0;
  for (int i = 0; i < op->ins; i++)
    read += value_bytes(&c->value[compile_value(c, op->in[i])].info);
  return v->reduces && value_bytes(&v->info) * 4 < read;
}

static gboolean
is_random(const Compile *c, const Value *v, int base)
{
  const Op *op = compile_op(c, v->producer);
  return op->info == op_info(OP_DROPOUT) && op->out[1] == base;
}

/* Outputs that selective checkpointing keeps (lower/checkpoint.c has the eager form). */
static void
ban_selected(Compile *c)
{
  int mms = 0;
  for (int i = 0; i < c->ops; i++) {
    const Op *op = compile_op(c, i);
    gboolean keep = op_is_kept(op->info, c->kept, &mms);
    for (int k = 0; k < op->outs && keep; k++)
      c->value[op->out[k]].banned = TRUE;
  }
}

static void
ban(Compile *c)
{
  for (int i = 0; i < c->values; i++) {
    Value *v = &c->value[i];
    if (v->producer < 0)
      v->banned = v->base == i; /* given */
    else if (c->policy == CHECKPOINT_NONE)
      v->banned = c->node[v->producer].class == FUSE_EXTERN || is_random(c, v, i) ||
                  is_small_reduction(c, v) || is_materialized_in_backward(c, i);
    else
      v->banned = is_random(c, v, i);
  }
  if (c->policy == CHECKPOINT_SELECTIVE_OP)
    ban_selected(c);
}

/* ---- weights ---- */

/* How many ops lie between a value and backward, by base. */
static int *
distances(const Compile *c)
{
  enum { FAR = 1000 };
  int *distance = g_new(int, MAX(c->values, 1));
  for (int i = 0; i < c->values; i++)
    distance[i] = c->value[i].needed ? 1 : FAR;
  for (int i = c->ops - 1; i >= 0; i--) {
    const Op *op = compile_op(c, i);
    int nearest = FAR;
    for (int k = 0; k < op->outs; k++)
      nearest = MIN(nearest, distance[c->value[op->out[k]].base]);
    for (int k = 0; k < op->ins && c->node[i].class != FUSE_VIEW; k++) {
      int base = c->value[compile_value(c, op->in[k])].base;
      distance[base] = MIN(distance[base], nearest + 1);
    }
  }
  return distance;
}

/* Forward writes it anyway: a library kernel makes or reads it, or it is the result. */
static gboolean
is_written(const Compile *c, int base)
{
  const Value *v = &c->value[base];
  if (v->producer < 0 || c->node[v->producer].class == FUSE_EXTERN ||
      c->value[c->result].base == base)
    return TRUE;
  for (int i = 0; i < c->ops; i++) {
    const Op *op = compile_op(c, i);
    for (int k = 0; k < op->ins && c->node[i].class == FUSE_EXTERN; k++)
      if (c->value[compile_value(c, op->in[k])].base == base)
        return TRUE;
  }
  return FALSE;
}

/* get_node_weight: bytes; less near to backward; twice what would be written for this alone.
 * Parameters live anyway. */
static double
weight(const Compile *c, int base, int distance)
{
  if (base >= c->slots)
    return 0;
  double bytes = (double) value_bytes(&c->value[base].info);
  return bytes * pow(1.1, CLAMP(distance, 1, 100)) * (is_written(c, base) ? 1 : 2);
}

/* ---- the smallest cut: Ford and Fulkerson's augmenting paths, the shortest first ---- */

typedef struct {
  int to, next;
  double capacity;
} Arc;

typedef struct {
  GArray *arcs; /* Arc; its reverse is the neighbour */
  int *first, *through, *queue;
  int nodes;
} Flow;

static const double unlimited = 1e30;

static void
add_arc(Flow *flow, int from, int to, double capacity)
{
  Arc there = {to, flow->first[from], capacity};
  g_array_append_val(flow->arcs, there);
  flow->first[from] = (int) flow->arcs->len - 1;
  Arc back = {from, flow->first[to], 0};
  g_array_append_val(flow->arcs, back);
  flow->first[to] = (int) flow->arcs->len - 1;
}

/* Reaches what it can from the source; through[n]: the arc to n, -1: not reached. */
static gboolean
search(Flow *flow, int source, int sink)
{
  int head = 0, tail = 0;
  for (int i = 0; i < flow->nodes; i++)
    flow->through[i] = -1;
  flow->through[source] = -2;
  flow->queue[tail++] = source;
  while (head < tail) {
    int at = flow->queue[head++];
    for (int i = flow->first[at]; i >= 0; i = g_array_index(flow->arcs, Arc, i).next) {
      const Arc *arc = &g_array_index(flow->arcs, Arc, i);
      if (arc->capacity <= 0 || flow->through[arc->to] != -1)
        continue;
      flow->through[arc->to] = i;
      flow->queue[tail++] = arc->to;
    }
  }
  return flow->through[sink] != -1;
}

static void
augment(Flow *flow, int source, int sink)
{
  double least = unlimited;
  for (int at = sink; at != source; at = g_array_index(flow->arcs, Arc, flow->through[at] ^ 1).to)
    least = MIN(least, g_array_index(flow->arcs, Arc, flow->through[at]).capacity);
  for (int at = sink; at != source;) {
    int arc = flow->through[at];
    g_array_index(flow->arcs, Arc, arc).capacity -= least;
    g_array_index(flow->arcs, Arc, arc ^ 1).capacity += least;
    at = g_array_index(flow->arcs, Arc, arc ^ 1).to;
  }
}

/* Each value is two nodes, with its weight between them. */
static void
fill_flow(const Compile *c, Flow *flow, int source, int sink)
{
  g_autofree int *distance = distances(c);
  for (int i = 0; i < c->values; i++) {
    const Value *v = &c->value[i];
    if (v->base != i)
      continue;
    add_arc(flow, 2 * i, 2 * i + 1, weight(c, i, distance[i]));
    if (v->banned)
      add_arc(flow, source, 2 * i, unlimited);
    if (v->needed)
      add_arc(flow, 2 * i + 1, sink, unlimited);
    if (v->producer < 0)
      continue;
    const Op *op = compile_op(c, v->producer);
    for (int k = 0; k < op->ins; k++)
      add_arc(flow, 2 * c->value[compile_value(c, op->in[k])].base + 1, 2 * i, unlimited);
  }
}

void
compile_partition(Compile *c)
{
  int source = 2 * c->values, sink = source + 1;
  Flow flow = {.nodes = sink + 1, .arcs = g_array_new(FALSE, FALSE, sizeof(Arc))};
  flow.first = g_new(int, flow.nodes);
  flow.through = g_new(int, flow.nodes);
  flow.queue = g_new(int, flow.nodes);
  for (int i = 0; i < flow.nodes; i++)
    flow.first[i] = -1;
  ban(c);
  fill_flow(c, &flow, source, sink);
  while (search(&flow, source, sink))
    augment(&flow, source, sink);
  for (int i = 0; i < c->values; i++)
    c->value[i].saved =
        c->value[i].base == i && flow.through[2 * i] != -1 && flow.through[2 * i + 1] == -1;
  g_array_unref(flow.arcs);
  g_free(flow.first);
  g_free(flow.through);
  g_free(flow.queue);
}
