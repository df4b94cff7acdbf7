/* summary_groups.c - what each group gathers and computes in the last complete step, from its
 * spans. */
#include "report/group_paths.h"
#include "report/summary_parts.h"
#include <string.h>

enum { GROUP_NONE = -1 };

/* A group's passes of the first micro-batch; what a range of the host stands for. */
enum { PASS_NONE, PASS_FORWARD, PASS_BACKWARD };

/* What the walk over the spans needs to know. */
typedef struct {
  ReportModel *model;
  const StepSummary *step;
  int compute_stream;
  SimTime compute_done;  /* end of the last compute span so far */
  GroupIndex *groups;    /* that a kernel computes for, or that a collective serves */
  guint8 *pass_of_range; /* by position in ranges */
} GroupWalk;

static guint8
pass_named(const char *name, int micro_batch)
{
  if (micro_batch != 0)
    return PASS_NONE;
  return g_str_equal(name, "forward")    ? PASS_FORWARD
         : g_str_equal(name, "backward") ? PASS_BACKWARD
                                         : PASS_NONE;
}

static guint8 *
passes_of_ranges(const Recording *recording, int step)
{
  guint8 *passes = g_new0(guint8, recording->ranges->len + 1);
  for (guint i = 0; i < recording->ranges->len; i++) {
    const Range *range = &g_array_index(recording->ranges, Range, i);
    if (range->kind == RECORDED_PHASE && range->step == step)
      passes[i] = pass_named(recording_text(recording, range->name), range->micro_batch);
  }
  return passes;
}

/* The pass that the host was in at a moment. */
static guint8
pass_at(const StepSummary *step, SimTime moment)
{
  for (guint i = 0; i < step->phases->len; i++) {
    const PhaseSummary *phase = &g_array_index(step->phases, PhaseSummary, i);
    if (phase->start <= moment && moment < phase->end)
      return pass_named(phase->name, phase->micro_batch);
  }
  return PASS_NONE;
}

/* Where a span of a group counts; NULL for optimizers, later micro-batches and the like.  A
 * recording that does not say which phase issued a span (a measured one) is read by the host's
 * phase when it began: late by as much as the device lags behind. */
static GroupPass *
pass_of(const GroupWalk *walk, GroupSummary *group, const Span *span)
{
  guint8 pass =
      span->phase > 0 ? walk->pass_of_range[span->phase - 1] : pass_at(walk->step, span->start);
  return pass == PASS_FORWARD ? &group->forward : pass == PASS_BACKWARD ? &group->backward : NULL;
}

static void
add_collective(GroupWalk *walk, const Span *span)
{
  const Recording *recording = walk->model->recording;
  gint32 position = group_index_of(walk->groups, span->module);
  if (position == GROUP_NONE)
    return;
  GroupSummary *group = &g_array_index(walk->model->groups, GroupSummary, (guint) position);
  const char *kind = report_text(recording, span->name, "");
  if (g_str_equal(kind, program_collective_name(COLLECTIVE_REDUCE_SCATTER)))
    group->reduce_scatters++;
  if (!g_str_equal(kind, program_collective_name(COLLECTIVE_ALL_GATHER)))
    return;
  group->all_gathers++;
  GroupPass *pass = pass_of(walk, group, span);
  if (!pass || pass->gathered)
    return;
  pass->gathered = TRUE;
  pass->gather = span->end - span->start;
  pass->begun = span->start;
  pass->ready = span->end;
}

static void
add_kernel(GroupWalk *walk, const Span *span)
{
  gint32 position = group_index_of(walk->groups, span->module);
  if (position != GROUP_NONE) {
    GroupSummary *group = &g_array_index(walk->model->groups, GroupSummary, (guint) position);
    GroupPass *pass = pass_of(walk, group, span);
    if (pass && pass->compute == 0)
      pass->needed = walk->compute_done;
    if (pass)
      pass->compute += span->end - span->start;
  }
  walk->compute_done = span->end;
}

static void
measure_window(GroupPass *pass)
{
  if (pass->gathered)
    pass->window = MAX(pass->needed - pass->begun, 0);
}

void
summary_groups(ReportModel *model)
{
  const Recording *recording = model->recording;
  for (guint i = 0; i < model->info->groups->len; i++) {
    GroupSummary group = {.info = &g_array_index(model->info->groups, GroupInfo, i)};
    g_array_append_val(model->groups, group);
  }
  const StepSummary *step = report_model_last_step(model);
  if (!step || model->groups->len == 0)
    return;
  GroupWalk walk = {
      .model = model,
      .step = step,
      .compute_stream = summary_stream(recording, STREAM_COMPUTE),
      .compute_done = step->start,
      .groups = group_index_new(recording, model->info),
      .pass_of_range = passes_of_ranges(recording, step->index),
  };
  for (guint i = 0; i < recording->spans->len; i++) {
    const Span *span = &g_array_index(recording->spans, Span, i);
    if (span->step != step->index || recording_is_beyond(recording, span->phase - 1))
      continue;
    if (span->kind == SPAN_COLLECTIVE)
      add_collective(&walk, span);
    else if (summary_is_compute(span, walk.compute_stream))
      add_kernel(&walk, span);
  }
  for (guint i = 0; i < model->groups->len; i++) {
    measure_window(&g_array_index(model->groups, GroupSummary, i).forward);
    measure_window(&g_array_index(model->groups, GroupSummary, i).backward);
  }
  group_index_free(walk.groups);
  g_free(walk.pass_of_range);
}
