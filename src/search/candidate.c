/* candidate.c - one plan tried: a run of it, and what of its answer plans are compared by. */
#include "search/candidate.h"

void
outcome_clear(Outcome *outcome)
{
  g_clear_pointer(&outcome->refusal, g_free);
  g_clear_pointer(&outcome->peak_place, g_free);
  g_clear_pointer(&outcome->out_of_memory, g_free);
}

/* Both lists after each other; the strings are borrowed.  Caller frees with g_free. */
static char **
joined(char *const *first, char *const *second)
{
  GPtrArray *all = g_ptr_array_new();
  for (guint i = 0; first != NULL && first[i] != NULL; i++)
    g_ptr_array_add(all, first[i]);
  for (guint i = 0; second != NULL && second[i] != NULL; i++)
    g_ptr_array_add(all, second[i]);
  g_ptr_array_add(all, NULL);
  return (char **) (gpointer) g_ptr_array_free(all, FALSE);
}

static char *
peak_place(const Recording *recording)
{
  const PeakRecord *peak = &recording->peak;
  GString *place = g_string_new(NULL);
  report_append_place(recording, peak->step, peak->phase, peak->module, place);
  return g_string_free(place, FALSE);
}

static gint64
collectives_of(const ReportModel *model)
{
  gint64 count = 0;
  for (guint i = 0; i < model->communication->len; i++)
    count += g_array_index(model->communication, CommunicationSummary, i).count;
  return count;
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
  outcome->peak_place = peak_place(result->recording);
  outcome->out_of_memory = report_model_out_of_memory(model);
  outcome->time = model->time;
  outcome->tokens_per_step = result->info->tokens_per_step;
  outcome->collectives = collectives_of(model);
}

void
candidate_try(const RunRequest *base, char *const *assignments, Outcome *outcome, RunResult *result)
{
  g_autofree char **all = joined(base->inputs.assignments, assignments);
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
