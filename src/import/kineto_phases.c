/* kineto_phases.c - forward and backward of a trace that does not name them: autograd's nodes tell
 * where backward was. */
#include "import/kineto_timeline.h"

static int
compare_ops(gconstpointer a, gconstpointer b)
{
  const TimelineOp *x = a, *y = b;
  return x->begin < y->begin ? -1 : x->begin > y->begin;
}

/* Nodes, and begins of ops on threads where autograd runs nothing: forward, or the optimizer. */
static void
sort_out(const Timeline *timeline, GArray *nodes, GArray *others)
{
  g_autofree gboolean *is_autograds = g_new0(gboolean, timeline->tracks->len);
  for (guint i = 0; i < timeline->ops->len; i++) {
    const TimelineOp *op = &g_array_index(timeline->ops, TimelineOp, i);
    is_autograds[op->track] |= op->is_node;
  }
  for (guint i = 0; i < timeline->ops->len; i++) {
    const TimelineOp *op = &g_array_index(timeline->ops, TimelineOp, i);
    if (op->is_node)
      g_array_append_val(nodes, *op);
    else if (!is_autograds[op->track])
      g_array_append_val(others, *op);
  }
  g_array_sort(nodes, compare_ops);
  g_array_sort(others, compare_ops);
}

static gboolean
names_backward(const Timeline *timeline)
{
  gint32 name = recording_find_string(timeline->recording, "backward");
  for (guint i = 0; name >= 0 && i < timeline->ranges->len; i++) {
    const Range *range = &g_array_index(timeline->ranges, TimelineRange, i).range;
    if (range->kind == RECORDED_PHASE && range->name == name)
      return TRUE;
  }
  return FALSE;
}

static void
add_phase(Timeline *timeline, const char *name, SimTime start, SimTime end, int micro_batch)
{
  TimelineRange phase = {.range = {.start = start,
                                   .end = end,
                                   .kind = RECORDED_PHASE,
                                   .micro_batch = micro_batch,
                                   .name = recording_string(timeline->recording, name),
                                   .module = -1}};
  if (end > start)
    g_array_append_val(timeline->ranges, phase);
}

/* Where forward may begin: where the last phase before ended, or the step began. */
static SimTime
begin_of_forward(const Timeline *timeline, guint phases, SimTime begin, SimTime until)
{
  for (guint i = 0; i < phases; i++) {
    const Range *range = &g_array_index(timeline->ranges, TimelineRange, i).range;
    if (range->kind == RECORDED_PHASE && range->end <= until)
      begin = MAX(begin, range->end);
  }
  return begin;
}

typedef struct {
  Timeline *timeline;
  GArray *nodes, *others;
  guint node, other; /* the next of each */
} Inference;

/* One backward from the next node on: nodes between which nothing runs elsewhere.  Its end. */
static SimTime
pass_backward(Inference *inference, SimTime until)
{
  SimTime end = g_array_index(inference->nodes, TimelineOp, inference->node).end;
  for (inference->node++; inference->node < inference->nodes->len; inference->node++) {
    const TimelineOp *node = &g_array_index(inference->nodes, TimelineOp, inference->node);
    while (inference->other < inference->others->len &&
           g_array_index(inference->others, TimelineOp, inference->other).begin <= end)
      inference->other++;
    gboolean interrupted =
        inference->other < inference->others->len &&
        g_array_index(inference->others, TimelineOp, inference->other).begin < node->begin;
    if (interrupted || node->begin >= until)
      break;
    end = MAX(end, node->end);
  }
  return MIN(end, until);
}

static void
infer_of_step(Inference *inference, const TimelineStep *step, guint phases)
{
  const GArray *nodes = inference->nodes;
  SimTime begin = step->begin;
  for (int micro_batch = 0;; micro_batch++) {
    while (inference->node < nodes->len &&
           g_array_index(nodes, TimelineOp, inference->node).begin < step->begin)
      inference->node++;
    if (inference->node == nodes->len ||
        g_array_index(nodes, TimelineOp, inference->node).begin >= step->end)
      return;
    SimTime start = g_array_index(nodes, TimelineOp, inference->node).begin;
    begin = begin_of_forward(inference->timeline, phases, begin, start);
    add_phase(inference->timeline, "forward", begin, start, micro_batch);
    begin = pass_backward(inference, step->end);
    add_phase(inference->timeline, "backward", start, begin, micro_batch);
  }
}

void
timeline_infer_phases(Timeline *timeline)
{
  if (names_backward(timeline))
    return;
  Inference inference = {.timeline = timeline,
                         .nodes = g_array_new(FALSE, FALSE, sizeof(TimelineOp)),
                         .others = g_array_new(FALSE, FALSE, sizeof(TimelineOp))};
  guint phases = timeline->ranges->len;
  sort_out(timeline, inference.nodes, inference.others);
  for (guint i = 0; i < timeline->steps->len; i++)
    infer_of_step(&inference, &g_array_index(timeline->steps, TimelineStep, i), phases);
  g_array_unref(inference.nodes);
  g_array_unref(inference.others);
}
