/* explanation.c - why a run's peak is where it is, why it does not fit, and what would help. */
#include "search/explanation.h"

#include "simulate/program_run.h"

/* Does a recording begin with what the other one has allocated and freed? */
static gboolean
begins_with(const Recording *recording, const Recording *other)
{
  if (recording->memory->len <= other->memory->len)
    return FALSE;
  for (guint i = 0; i < other->memory->len; i++) {
    const MemoryEvent *a = &g_array_index(recording->memory, MemoryEvent, i);
    const MemoryEvent *b = &g_array_index(other->memory, MemoryEvent, i);
    if (a->allocation != b->allocation || a->requested_bytes != b->requested_bytes)
      return FALSE;
  }
  return TRUE;
}

/* When memory runs out what is alive then tells why, and a run with more of it tells until when. */
static void
tell_story(Explanation *e)
{
  e->at_failure = e->recording->out_of_memory.happened;
  guint events = e->at_failure ? e->recording->memory->len : peak_story_peak_events(e->recording);
  const Recording *goes_on = e->endless.recording;
  if (events == 0)
    return;
  if (!e->at_failure)
    e->story = peak_story_new(e->recording, e->info, events);
  else if (goes_on != NULL && begins_with(goes_on, e->recording))
    e->story = peak_story_new_failure(goes_on, e->endless.info, e->recording);
  else
    e->story = peak_story_new_failure(e->recording, e->info, e->recording);
}

static gboolean
simulate_without_limit(Explanation *e, const RunRequest *request, GError **error)
{
  RunRequest endless = *request;
  endless.without_limit = TRUE;
  if (!run_simulation(&endless, &e->endless, error))
    return FALSE;
  g_autoptr(ReportModel) model = report_model_new(e->endless.recording, e->endless.info);
  e->time = model->time;
  e->needs_allocated = model->peak_allocated;
  e->needs_reserved = model->peak_reserved;
  return TRUE;
}

static gboolean
try_remedies(Explanation *e, const RunRequest *request, GError **error)
{
  g_autoptr(Scenario) scenario = scenario_new(&request->inputs, request->rank, error);
  if (scenario == NULL)
    return FALSE;
  const RemedyBase base = {
      .request = request,
      .scenario = scenario,
      .info = e->endless.info != NULL ? e->endless.info : e->info,
      .verdict = e->verdict,
      .needs_allocated = e->needs_allocated,
      .needs_reserved = e->needs_reserved,
  };
  e->remedies = remedies_try(&base, 0);
  return TRUE;
}

Explanation *
explanation_new(const Recording *recording, const RunInfo *info, const RunRequest *request,
                gboolean with_remedies, GError **error)
{
  g_autoptr(Explanation) e = g_new0(Explanation, 1);
  g_autoptr(ReportModel) model = report_model_new(recording, info);
  e->recording = recording;
  e->info = info;
  e->verdict = model->verdict;
  e->has_memory = model->has_memory;
  e->time = model->time;
  e->needs_allocated = model->peak_allocated;
  e->needs_reserved = model->peak_reserved;
  if (request != NULL && e->verdict != VERDICT_FITS && !simulate_without_limit(e, request, error))
    return NULL;
  tell_story(e);
  gboolean has_plan = request != NULL && !is_program(&request->inputs.network);
  if (has_plan && with_remedies && !try_remedies(e, request, error))
    return NULL;
  return g_steal_pointer(&e);
}

void
explanation_free(Explanation *e)
{
  if (e == NULL)
    return;
  peak_story_free(e->story);
  run_result_clear(&e->endless);
  g_clear_pointer(&e->remedies, g_ptr_array_unref);
  g_free(e);
}
