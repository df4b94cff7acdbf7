/* candidate.c - one plan tried: a run of it, and what of its answer plans are compared by. */
#include "search/candidate.h"

#include <math.h>

#include "report/gathers.h"

void
outcome_clear(Outcome *outcome)
{
  g_clear_pointer(&outcome->refusal, g_free);
  g_clear_pointer(&outcome->peak_place, g_free);
  g_clear_pointer(&outcome->out_of_memory, g_free);
  g_clear_pointer(&outcome->step_times, g_array_unref);
}

gboolean
outcome_fits(const Outcome *outcome)
{
  return outcome->refusal == NULL && outcome->verdict != VERDICT_DOES_NOT_FIT;
}

const char *
outcome_verdict(const Outcome *outcome)
{
  return outcome->refusal != NULL ? "refused" : report_verdict_name(outcome->verdict);
}

char *
outcome_reason(const Outcome *outcome)
{
  if (outcome->refusal != NULL)
    return g_strdup(outcome->refusal);
  if (outcome->out_of_memory != NULL)
    return g_strdup(outcome->out_of_memory);
  if (outcome->verdict != VERDICT_DOES_NOT_FIT)
    return NULL;
  if (outcome->rank_without_room >= 0)
    return g_strdup_printf("rank %d runs out of memory", outcome->rank_without_room);
  return g_strdup("its construction has no room");
}

double
outcome_hidden(const Outcome *outcome)
{
  const TimeSummary *time = &outcome->time;
  if (outcome->refusal != NULL || !time->is_split || time->communication <= 0)
    return NAN;
  return 1 - (double) time->exposed / (double) time->communication;
}

static char *
peak_place(const Recording *recording)
{
  const PeakRecord *peak = &recording->peak;
  GString *place = g_string_new(NULL);
  report_append_place(recording, peak->step, peak->phase, peak->module, place);
  return g_string_free(place, FALSE);
}

static void
count_collectives(const ReportModel *model, Outcome *outcome)
{
  for (guint i = 0; i < model->communication->len; i++) {
    const CommunicationSummary *summary =
        &g_array_index(model->communication, CommunicationSummary, i);
    outcome->collectives += summary->count;
    for (int kind = 0; kind < COLLECTIVE_KIND_COUNT; kind++)
      if (g_str_equal(summary->collective, program_collective_name((CollectiveKind) kind)))
        outcome->collectives_of[kind] += summary->count;
  }
}

static void
measure_groups(const RunInfo *info, Outcome *outcome)
{
  outcome->groups = (int) info->groups->len;
  for (guint i = 0; i < info->groups->len; i++)
    outcome->largest_group =
        MAX(outcome->largest_group, g_array_index(info->groups, GroupInfo, i).unsharded_bytes);
}

static void
measure_gathers(const RunResult *result, const ReportModel *model, Outcome *outcome)
{
  GatherSummary *summary = &outcome->gathers;
  g_autoptr(GArray) gathers =
      gathers_find(result->recording, result->info, report_model_last_step(model)->index);
  summary->count = gathers->len;
  for (guint i = 0; i < gathers->len; i++) {
    const Gather *gather = &g_array_index(gathers, Gather, i);
    summary->longest = MAX(summary->longest, gather->ready - gather->begun);
    summary->waited += gather->waited > 0;
    summary->wait += gather->waited;
  }
}

static GArray *
times_of_steps(const ReportModel *model)
{
  GArray *times = g_array_new(FALSE, FALSE, sizeof(SimTime));
  for (guint i = 0; i < model->steps->len; i++) {
    const StepSummary *step = &g_array_index(model->steps, StepSummary, i);
    if (step->complete)
      g_array_append_val(times, step->duration);
  }
  return times;
}

/* Where memory ran out in the step after, only some runs have kept what the last complete step did.
 */
static TimeSummary
time_of(const ReportModel *model)
{
  const OutOfMemoryRecord *oom = &model->recording->out_of_memory;
  const StepSummary *last = report_model_last_step(model);
  TimeSummary time = model->time;
  if (!oom->happened || last == NULL || oom->step == last->index)
    return time;
  return (TimeSummary){
      .known = time.known,
      .step = time.step,
      .tokens_per_s = time.tokens_per_s,
      .mfu = time.mfu,
      .hfu = time.hfu,
  };
}

static void
fill_outcome(const RunResult *result, Outcome *outcome)
{
  g_autoptr(ReportModel) model = report_model_new(result->recording, result->info);
  outcome->verdict = model->verdict;
  outcome->allocator_retries = model->allocator_retries;
  outcome->peak_allocated = model->peak_allocated;
  outcome->peak_reserved = model->peak_reserved;
  outcome->headroom = model->headroom;
  outcome->construction_reserved = result->recording->construction_peak_reserved;
  outcome->peak_place = peak_place(result->recording);
  outcome->out_of_memory = report_model_out_of_memory(model);
  outcome->time = time_of(model);
  outcome->tokens_per_step = result->info->tokens_per_step;
  outcome->capacity = result->recording->capacity_bytes;
  outcome->ranks = result->info->shard * result->info->replicate;
  outcome->startup = result->info->startup;
  outcome->rank_without_room = result->info->rank_without_room;
  outcome->step_times = times_of_steps(model);
  if (outcome->time.is_split) {
    count_collectives(model, outcome);
    measure_gathers(result, model, outcome);
  }
  measure_groups(result->info, outcome);
}

void
candidate_try(const RunRequest *base, char *const *assignments, Outcome *outcome, RunResult *result)
{
  g_autofree char **all = run_request_assignments(base, assignments);
  RunRequest request = *base;
  request.inputs.assignments = all;
  RunResult own = {0};
  g_autoptr(GError) error = NULL;
  *outcome = (Outcome){0};
  if (run_simulation(&request, &own, &error)) {
    fill_outcome(&own, outcome);
  } else {
    scenario_name_assignment(all, &error);
    outcome->refusal = g_strdup(error->message);
  }
  if (result != NULL && outcome->refusal == NULL)
    *result = own;
  else
    run_result_clear(&own);
}
