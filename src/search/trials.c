/* trials.c - many plans tried, on as many cores as there are. */
#include "search/trials.h"

#include "search/workers.h"

typedef struct {
  const RunRequest *base;
  const TrialWatch *watch;
  Trial *trials;
} TrialRun;

/* A simulation has nothing that changes outside of its own values, so that threads share only the
 * inputs. */
static void
try_trial(guint i, gpointer user)
{
  const TrialRun *run = user;
  const TrialWatch *watch = run->watch;
  Trial *trial = &run->trials[i];
  const RunRequest *base = trial->request != NULL ? trial->request : run->base;
  RunResult result = {0};
  candidate_try(base, trial->assignments, &trial->outcome, watch->ran != NULL ? &result : NULL);
  if (result.recording != NULL)
    watch->ran(trial, &result, watch->user);
  run_result_clear(&result);
}

static void
finish_trial(guint i, gpointer user)
{
  const TrialRun *run = user;
  if (run->watch->done != NULL)
    run->watch->done(&run->trials[i], run->watch->user);
}

static gboolean
must_stop(gpointer user)
{
  const TrialRun *run = user;
  return run->watch->stops != NULL && run->watch->stops(run->watch->user);
}

guint
trials_run_watched(const RunRequest *base, Trial *trials, guint count, const TrialWatch *watch)
{
  TrialRun run = {.base = base, .watch = watch, .trials = trials};
  const Workers workers = {.workers = watch->workers,
                           .work = try_trial,
                           .done = finish_trial,
                           .stops = must_stop,
                           .user = &run};
  return workers_run(count, &workers);
}

void
trials_run(const RunRequest *base, Trial *trials, guint count, int workers, TrialDone done,
           gpointer user)
{
  const TrialWatch watch = {.workers = workers, .done = done, .user = user};
  trials_run_watched(base, trials, count, &watch);
}
