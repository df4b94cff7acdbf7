/* plan_search.c - the fastest plan of a space that fits with headroom. */
#include "search/plan_search.h"

#include "base/units.h"
#include "search/plan_stages.h"

/* The step whose gradients are followed; plans that turn out not to fit in a longer run. */
enum { EQUIVALENCE_STEP = 2, MOST_REJECTED = 32 };

/* ---- the answer ---- */

/* The best that also fits when it runs longer, on all ranks that differ, under a limit that leaves
 * the headroom.  Of those as fast the one with most room. */
static int
next_choice(const PlanTrials *run)
{
  int best = plan_trials_best(run);
  if (best < 0 || !plan_trials_fits(run, (guint) best))
    return -1;
  double as_fast = (double) plan_trials_at(run, (guint) best)->outcome.time.step * PLAN_AS_FAST;
  for (guint i = 0; i < run->search->tried->len; i++)
    if (plan_trials_fits(run, i) && (double) plan_trials_at(run, i)->outcome.time.step <= as_fast &&
        plan_trials_at(run, i)->outcome.peak_reserved <
            plan_trials_at(run, (guint) best)->outcome.peak_reserved)
      best = (int) i;
  return best;
}

/* Runs one point under a limit. */
static Outcome
try_once(PlanTrials *run, const PlanPoint *point, int steps, gint64 limit)
{
  Trial *trials = plan_trials_run(run, point, 1, steps, limit);
  Outcome outcome = trials[0].outcome;
  g_free(trials);
  return outcome;
}

/* Does a step more take as long? */
static gboolean
is_steady(const Outcome *outcome, const Outcome *longer)
{
  double step = (double) outcome->time.step;
  return ABS((double) longer->time.step - step) <= (PLAN_AS_FAST - 1) * step;
}

/* Without a limit, and on the first rank, it seemed to fit. */
static char *
why_left_out(const Outcome *outcome)
{
  char *reason = outcome_reason(outcome);
  if (reason != NULL)
    return reason;
  return g_strdup_printf("its allocator retries %" G_GINT64_FORMAT " times",
                         outcome->allocator_retries);
}

static gboolean
choose(PlanTrials *run)
{
  PlanSearch *search = run->search;
  int steps = MAX(run->options->steps, PLAN_TRIALS_STEPS);
  run->stage = "the best, longer";
  for (int rejected = 0; rejected < MOST_REJECTED && !run->stopped; rejected++) {
    int choice = next_choice(run);
    if (choice < 0)
      break;
    const PlanTried *tried = plan_trials_at(run, (guint) choice);
    const PlanPoint *point = &tried->point;
    gint64 capacity = plan_search_capacity(search, tried);
    gint64 limit = capacity == G_MAXINT64 ? 0 : capacity - search->headroom;
    Outcome longer = try_once(run, point, steps + 1, limit);
    gboolean holds = longer.refusal == NULL && longer.verdict == VERDICT_FITS;
    if (holds) {
      search->chosen = choice;
      search->outcome = try_once(run, point, steps, run->base->memory_limit);
      search->is_steady = is_steady(&search->outcome, &longer);
    } else {
      plan_trials_at(run, (guint) choice)->left_out = why_left_out(&longer);
    }
    outcome_clear(&longer);
    if (holds)
      break;
  }
  return !run->stopped;
}

/* For each other choice on each axis the best plan that has it. */
static gboolean
list_alternatives(PlanTrials *run)
{
  PlanSearch *search = run->search;
  int shown = search->chosen >= 0 ? search->chosen : search->closest;
  const PlanPoint *chosen = &plan_trials_at(run, (guint) shown)->point;
  g_autoptr(GArray) points = g_array_new(FALSE, FALSE, sizeof(PlanPoint));
  for (int axis = 0; axis < AXIS_COUNT; axis++)
    for (int k = 0; k < (int) search->space->choices[axis]->len; k++) {
      int best = -1;
      if (k == chosen->at[axis] || chosen->at[axis] < 0)
        continue;
      for (guint i = 0; i < search->tried->len; i++)
        if (plan_trials_at(run, i)->point.at[axis] == k &&
            plan_trials_at(run, i)->outcome.refusal == NULL && (int) i != shown)
          best = plan_trials_better(run, best, (int) i);
      if (best < 0)
        continue;
      PlanAlternative a = {(PlanAxis) axis, k, (guint) best};
      g_array_append_val(search->alternatives, a);
      g_array_append_val(points, plan_trials_at(run, (guint) best)->point);
    }
  Trial *trials =
      plan_trials_run(run, (const PlanPoint *) (const void *) points->data, points->len,
                      MAX(run->options->steps, PLAN_TRIALS_STEPS), PLAN_TRIALS_UNLIMITED);
  for (guint i = 0; i < points->len; i++) {
    PlanTried *tried =
        plan_trials_at(run, g_array_index(search->alternatives, PlanAlternative, i).tried);
    outcome_clear(&tried->outcome);
    tried->outcome = trials[i].outcome;
  }
  g_free(trials);
  return !run->stopped;
}

/* Who reduces and updates what under the chosen plan; what cannot be lowered was refused before. */
static void
check_equivalence(PlanTrials *run)
{
  const PlanPoint *point = &plan_trials_at(run, (guint) run->search->chosen)->point;
  RunRequest request = *plan_space_request(run->search->space, point);
  g_autofree char **assignments = plan_space_assignments(run->search->space, point);
  request.inputs.assignments = assignments;
  g_autoptr(Scenario) scenario = scenario_new(&request.inputs, 0, NULL);
  if (scenario == NULL)
    return;
  run->search->reduce = scenario->plan->precision.reduce;
  run->search->has_equivalence =
      equivalence_check(scenario, EQUIVALENCE_STEP, &run->search->equivalence, NULL);
}

/* ---- all ---- */

/* What the allocator may take under each sharding: of a step of its own.  Where that is refused, as
 * much as under the others. */
static gboolean
find_capacities(PlanTrials *run, GError **error)
{
  PlanSearch *search = run->search;
  guint count = search->space->shardings->len;
  g_autofree PlanPoint *points = g_new(PlanPoint, count);
  run->stage = "memory";
  for (guint i = 0; i < count; i++) {
    points[i] = search->space->base;
    points[i].at[AXIS_SHARDING] = (int) i;
    points[i] = plan_space_normal(search->space, points[i]);
  }
  Trial *trials = plan_trials_run(run, points, count, 1, run->base->memory_limit);
  search->capacities = g_new0(gint64, count);
  for (guint i = 0; i < count; i++) {
    search->capacities[i] = trials[i].outcome.capacity;
    search->capacity = MAX(search->capacity, search->capacities[i]);
  }
  if (search->capacity == 0 && !run->stopped)
    g_set_error(error, HIGHWATER_ERROR, HIGHWATER_ERROR_INPUT, "%s", trials[0].outcome.refusal);
  for (guint i = 0; i < count; i++) {
    if (search->capacities[i] == 0)
      search->capacities[i] = search->capacity;
    outcome_clear(&trials[i].outcome);
  }
  g_free(trials);
  return search->capacity > 0 && !run->stopped;
}

static gboolean
find_headroom(PlanTrials *run, GError **error)
{
  PlanSearch *search = run->search;
  gint64 capacity = search->capacity;
  search->headroom = headroom_of(&run->options->headroom, capacity);
  if (search->headroom < capacity)
    return TRUE;
  g_autofree char *there = format_bytes(capacity);
  g_set_error(error, HIGHWATER_ERROR, HIGHWATER_ERROR_USAGE,
              "plan: --headroom: as much as there is, %s", there);
  return FALSE;
}

static gboolean
try_all(PlanTrials *run)
{
  GArray *starts = NULL;
  gboolean goes_on =
      plan_stages_coarse(run) && plan_stages_fine(run, &starts) && plan_stages_combine(run, starts);
  g_clear_pointer(&starts, g_array_unref);
  return goes_on;
}

static gboolean
search_all(PlanTrials *run, GError **error)
{
  PlanSearch *search = run->search;
  if (!find_capacities(run, error) || !find_headroom(run, error) || !try_all(run) || !choose(run))
    return FALSE;
  if (search->chosen < 0)
    search->closest = plan_trials_best(run);
  else
    check_equivalence(run);
  search->combinations =
      MAX(search->size - search->smaller - search->hopeless - search->tried->len, 0);
  return (search->chosen < 0 && search->closest < 0) || list_alternatives(run);
}

static void
tried_free(gpointer data)
{
  PlanTried *tried = data;
  outcome_clear(&tried->outcome);
  g_free(tried->left_out);
  g_free(tried);
}

PlanSearch *
plan_search_new(const PlanSpace *space, const PlanSearchOptions *options, GError **error)
{
  g_autoptr(PlanSearch) search = g_new0(PlanSearch, 1);
  PlanTrials run;
  search->space = space;
  search->tried = g_ptr_array_new_with_free_func(tried_free);
  search->alternatives = g_array_new(FALSE, FALSE, sizeof(PlanAlternative));
  search->chosen = search->closest = -1;
  search->size = plan_space_size(space);
  plan_trials_init(&run, search, options,
                   &g_array_index(space->shardings, PlanSharding, 0).request);
  gboolean is_done = search_all(&run, error);
  plan_trials_clear(&run);
  return is_done ? g_steal_pointer(&search) : NULL;
}

void
plan_search_free(PlanSearch *search)
{
  if (search == NULL)
    return;
  g_ptr_array_unref(search->tried);
  g_array_unref(search->alternatives);
  g_free(search->capacities);
  outcome_clear(&search->outcome);
  if (search->has_equivalence)
    equivalence_report_clear(&search->equivalence);
  g_free(search);
}
