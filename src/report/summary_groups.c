/* summary_groups.c - what each group gathers and computes in the last complete step, from its
 * spans. */
#include "report/summary_parts.h"
#include <string.h>

enum { GROUP_UNKNOWN = -2, GROUP_NONE = -1 };

/* What the walk over the spans needs to know. */
typedef struct {
  ReportModel *model;
  const StepSummary *step;
  int compute_stream;
  SimTime compute_done;    /* end of the last compute span so far */
  gint32 *group_of_module; /* by string id, looked up once each: position, GROUP_NONE or
                              GROUP_UNKNOWN */
} GroupWalk;

/* Length of `prefix` when path is it or lies under it; -1 when it does not. */
static int
prefix_length(const char *path, const char *prefix)
{
  gsize length = strlen(prefix);
  if (length == 0)
    return 0;
  if (strncmp(path, prefix, length) != 0 || (path[length] != '\0' && path[length] != '.'))
    return -1;
  return (int) length;
}

/* The group of that name, else the one with the longest module path that `name` lies under. */
static int
find_group(const RunInfo *info, const char *name)
{
  int found = GROUP_NONE, longest = -1;
  for (guint i = 0; i < info->groups->len; i++) {
    const GroupInfo *group = &g_array_index(info->groups, GroupInfo, i);
    if (g_str_equal(group->name, name))
      return (int) i;
    const GPtrArray *modules = group->modules;
    for (guint j = 0; j < modules->len; j++) {
      int length = prefix_length(name, g_ptr_array_index(modules, j));
      if (length > longest) {
        longest = length;
        found = (int) i;
      }
    }
  }
  return found;
}

/* The group that a kernel computes for, or that a collective serves. */
static int
group_of(GroupWalk *walk, const Span *span)
{
  if (span->module < 0)
    return GROUP_NONE;
  gint32 *known = &walk->group_of_module[span->module];
  if (*known == GROUP_UNKNOWN)
    *known = find_group(walk->model->info, recording_text(walk->model->recording, span->module));
  return *known;
}

static gboolean
is_first(const char *name, int micro_batch, const char *wanted)
{
  return micro_batch == 0 && g_str_equal(name, wanted);
}

/* The first micro-batch's phase of that name that the host was in at a moment. */
static gboolean
host_was_in(const StepSummary *step, const char *name, SimTime moment)
{
  for (guint i = 0; i < step->phases->len; i++) {
    const PhaseSummary *phase = &g_array_index(step->phases, PhaseSummary, i);
    if (is_first(phase->name, phase->micro_batch, name))
      return phase->start <= moment && moment < phase->end;
  }
  return FALSE;
}

/* Whether a span was issued in the first micro-batch's phase of that name.  A recording that does
 * not say which phase issued it (a measured one) is read by the host's phase when it began: late by
 * as much as the device lags behind. */
static gboolean
issued_in(const GroupWalk *walk, const Span *span, const char *name)
{
  const Recording *recording = walk->model->recording;
  if (span->phase == 0)
    return host_was_in(walk->step, name, span->start);
  const Range *range = &g_array_index(recording->ranges, Range, (guint) span->phase - 1);
  return is_first(recording_text(recording, range->name), range->micro_batch, name);
}

/* Where a span of a group counts; NULL for optimizers, later micro-batches and the like. */
static GroupPass *
pass_of(const GroupWalk *walk, GroupSummary *group, const Span *span)
{
  if (issued_in(walk, span, "forward"))
    return &group->forward;
  return issued_in(walk, span, "backward") ? &group->backward : NULL;
}

static void
add_collective(GroupWalk *walk, const Span *span)
{
  const Recording *recording = walk->model->recording;
  int position = group_of(walk, span);
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
  pass->ready = span->end;
}

static void
add_kernel(GroupWalk *walk, const Span *span)
{
  int position = group_of(walk, span);
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
      .group_of_module = g_new(gint32, recording->strings->len),
  };
  for (guint i = 0; i < recording->strings->len; i++)
    walk.group_of_module[i] = GROUP_UNKNOWN;
  for (guint i = 0; i < recording->spans->len; i++) {
    const Span *span = &g_array_index(recording->spans, Span, i);
    if (span->step != step->index)
      continue;
    if (span->kind == SPAN_COLLECTIVE)
      add_collective(&walk, span);
    else if (summary_is_compute(span, walk.compute_stream))
      add_kernel(&walk, span);
  }
  g_free(walk.group_of_module);
}
