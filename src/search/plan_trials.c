/* plan_trials.c - plans of a space tried once each, and which of two is better. */
#include "search/plan_trials.h"

#include <string.h>

#include "search/trials.h"

const PlanTried *
plan_search_tried(const PlanSearch *search, guint i)
{
  return g_ptr_array_index(search->tried, i);
}

PlanTried *
plan_trials_at(const PlanTrials *run, guint i)
{
  return g_ptr_array_index(run->search->tried, i);
}

/* ---- which is better ---- */

gint64
plan_search_capacity(const PlanSearch *search, const PlanTried *tried)
{
  return search->capacities[tried->point.at[AXIS_SHARDING]];
}

gint64
plan_search_needs(const PlanTried *tried)
{
  return MAX(tried->outcome.peak_reserved, tried->outcome.construction_reserved);
}

gint64
plan_search_lacks(const PlanSearch *search, const PlanTried *tried)
{
  gint64 capacity = plan_search_capacity(search, tried);
  if (tried->outcome.refusal != NULL || !tried->outcome.time.known)
    return G_MAXINT64;
  if (capacity == G_MAXINT64)
    return 0;
  return plan_search_needs(tried) + search->headroom - capacity;
}

gboolean
plan_trials_fits(const PlanTrials *run, guint i)
{
  const PlanTried *tried = plan_trials_at(run, i);
  return tried->left_out == NULL && plan_search_lacks(run->search, tried) <= 0;
}

int
plan_trials_compare(const PlanTrials *run, guint a, guint b)
{
  const Outcome *x = &plan_trials_at(run, a)->outcome, *y = &plan_trials_at(run, b)->outcome;
  if (plan_trials_fits(run, a) != plan_trials_fits(run, b))
    return plan_trials_fits(run, a) ? -1 : 1;
  gint64 lacks_x = plan_search_lacks(run->search, plan_trials_at(run, a)),
         lacks_y = plan_search_lacks(run->search, plan_trials_at(run, b));
  if (plan_trials_fits(run, a) && x->time.step != y->time.step)
    return x->time.step < y->time.step ? -1 : 1;
  if (lacks_x != lacks_y)
    return lacks_x < lacks_y ? -1 : 1;
  return a < b ? -1 : a > b;
}

int
plan_trials_better(const PlanTrials *run, int a, int b)
{
  if (a < 0 || b < 0)
    return a < 0 ? b : a;
  return plan_trials_compare(run, (guint) a, (guint) b) <= 0 ? a : b;
}

/* ---- trying ---- */

static guint
point_hash(gconstpointer key)
{
  const PlanPoint *point = key;
  guint hash = 5381;
  for (int i = 0; i < AXIS_COUNT; i++)
    hash = hash * 33 + (guint) point->at[i];
  return hash;
}

static gboolean
point_equal(gconstpointer a, gconstpointer b)
{
  return memcmp(a, b, sizeof(PlanPoint)) == 0;
}

void
plan_trials_init(PlanTrials *run, PlanSearch *search, const PlanSearchOptions *options,
                 const RunRequest *base)
{
  *run = (PlanTrials){.search = search,
                      .options = options,
                      .base = base,
                      .known = g_hash_table_new(point_hash, point_equal)};
}

void
plan_trials_clear(PlanTrials *run)
{
  g_hash_table_unref(run->known);
}

int
plan_trials_index(const PlanTrials *run, const PlanPoint *point)
{
  return GPOINTER_TO_INT(g_hash_table_lookup(run->known, point)) - 1;
}

static void
count_done(Trial *trial, gpointer user)
{
  PlanTrials *run = user;
  (void) trial;
  run->done++;
  if (run->options->progress != NULL)
    run->options->progress(run->done, run->planned, run->stage, run->options->user);
}

static gboolean
asks_to_stop(gpointer user)
{
  PlanTrials *run = user;
  return run->options->stops != NULL && run->options->stops(run->options->user);
}

Trial *
plan_trials_run(PlanTrials *run, const PlanPoint *points, guint count, int steps, gint64 limit)
{
  Trial *trials = g_new0(Trial, MAX(count, 1));
  g_autofree RunRequest *requests = g_new(RunRequest, MAX(count, 1));
  for (guint i = 0; i < count; i++) {
    requests[i] = *plan_space_request(run->search->space, &points[i]);
    requests[i].steps = steps;
    requests[i].memory_limit = limit;
    trials[i].request = &requests[i];
    trials[i].assignments = plan_space_assignments(run->search->space, &points[i]);
  }
  run->planned += count;
  const TrialWatch watch = {
      .workers = run->options->workers, .done = count_done, .stops = asks_to_stop, .user = run};
  if (trials_run_watched(run->base, trials, count, &watch) < count)
    run->stopped = TRUE;
  for (guint i = 0; i < count; i++) {
    g_free(trials[i].assignments);
    trials[i].request = NULL;
  }
  return trials;
}

gboolean
plan_trials_add(PlanTrials *run, const GArray *points)
{
  g_autoptr(GArray) fresh = g_array_new(FALSE, FALSE, sizeof(PlanPoint));
  guint first = run->search->tried->len;
  for (guint i = 0; i < points->len && !run->stopped; i++) {
    PlanPoint point = plan_space_normal(run->search->space, g_array_index(points, PlanPoint, i));
    if (plan_trials_index(run, &point) >= 0)
      continue;
    PlanTried *tried = g_new0(PlanTried, 1);
    tried->point = point;
    g_array_append_val(fresh, point);
    g_ptr_array_add(run->search->tried, tried);
    g_hash_table_insert(run->known, &tried->point, GINT_TO_POINTER((int) run->search->tried->len));
  }
  if (run->stopped)
    return FALSE;
  Trial *trials = plan_trials_run(run, (const PlanPoint *) (const void *) fresh->data, fresh->len,
                                  PLAN_TRIALS_STEPS, PLAN_TRIALS_UNLIMITED);
  for (guint i = 0; i < fresh->len; i++) {
    plan_trials_at(run, first + i)->outcome = trials[i].outcome;
    run->search->refused += trials[i].outcome.refusal != NULL;
  }
  g_free(trials);
  return !run->stopped;
}

int
plan_trials_best(const PlanTrials *run)
{
  int best = -1;
  for (guint i = 0; i < run->search->tried->len; i++)
    if (plan_trials_at(run, i)->outcome.refusal == NULL)
      best = plan_trials_better(run, best, (int) i);
  return best;
}
