/* gathers.c - every all-gather of a run, and how long the compute stream stood still for it. */
#include "report/gathers.h"

#include "report/group_paths.h"
#include "report/summary_parts.h"

typedef struct {
  const Recording *recording;
  GArray *gathers;
  GroupIndex *groups;
  guint *unused;     /* by group: position of its first gather that nothing has used */
  gint32 all_gather; /* string id of the collective's name */
  int compute_stream;
  SimTime compute_done; /* end of the last compute span so far, and of the step before */
  int step;             /* of the last span */
} Walk;

static void
add_gather(Walk *walk, guint group, const Span *span)
{
  Gather gather = {.step = span->step,
                   .group = group,
                   .micro_batch = -1,
                   .issued = span->issued,
                   .begun = span->start,
                   .ready = span->end,
                   .bytes = span->bytes};
  if (span->phase > 0) {
    const Range *range = &g_array_index(walk->recording->ranges, Range, span->phase - 1);
    gather.phase = recording_text(walk->recording, range->name);
    gather.micro_batch = range->micro_batch;
  }
  g_array_append_val(walk->gathers, gather);
}

/* A kernel uses what was gathered for its group when it was issued. */
static void
use_gathers(Walk *walk, guint group, const Span *kernel)
{
  for (guint i = walk->unused[group]; i < walk->gathers->len; i++) {
    Gather *gather = &g_array_index(walk->gathers, Gather, i);
    if (gather->group != group || gather->is_used)
      continue;
    if (gather->issued > kernel->issued)
      return;
    gather->is_used = TRUE;
    gather->needed = MAX(walk->compute_done, kernel->issued);
    gather->waited = MAX(gather->ready - gather->needed, 0);
    walk->unused[group] = i + 1;
  }
  walk->unused[group] = walk->gathers->len;
}

/* A recording may have kept no spans of the steps before, which the device had to finish. */
static void
begin_step(Walk *walk, int index)
{
  const GArray *steps = walk->recording->steps;
  walk->step = index;
  for (guint i = 1; i < steps->len; i++) {
    const StepRecord *step = &g_array_index(steps, StepRecord, i);
    if (step->index == index)
      walk->compute_done =
          MAX(walk->compute_done, step->end - recording_step_duration(walk->recording, i));
  }
}

static void
visit(Walk *walk, const Span *span)
{
  if (span->step != walk->step)
    begin_step(walk, span->step);
  gint32 group = group_index_of(walk->groups, span->module);
  if (span->kind == SPAN_COLLECTIVE && group >= 0 && span->name == walk->all_gather)
    add_gather(walk, (guint) group, span);
  if (!summary_is_compute(span, walk->compute_stream))
    return;
  if (group >= 0)
    use_gathers(walk, (guint) group, span);
  walk->compute_done = span->end;
}

GArray *
gathers_find(const Recording *recording, const RunInfo *info, int step)
{
  GArray *gathers = g_array_new(FALSE, FALSE, sizeof(Gather));
  if (info->groups->len == 0)
    return gathers;
  Walk walk = {
      .recording = recording,
      .gathers = gathers,
      .groups = group_index_new(recording, info),
      .unused = g_new0(guint, info->groups->len),
      .all_gather =
          recording_find_string(recording, program_collective_name(COLLECTIVE_ALL_GATHER)),
      .compute_stream = summary_stream(recording, STREAM_COMPUTE),
  };
  for (guint i = 0; i < recording->spans->len; i++) {
    const Span *span = &g_array_index(recording->spans, Span, i);
    gboolean is_asked = step == 0 ? span->step > 0 : span->step == step;
    if (is_asked && !recording_is_beyond(recording, span->phase - 1))
      visit(&walk, span);
  }
  group_index_free(walk.groups);
  g_free(walk.unused);
  return gathers;
}
