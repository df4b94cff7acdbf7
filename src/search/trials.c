/* trials.c - many plans tried, on as many cores as there are. */
#include "search/trials.h"

/* How long to wait for a trial before asking whether to stop, microseconds. */
#define PATIENCE 100000

typedef struct {
  const RunRequest *base;
  const TrialWatch *watch;
  GAsyncQueue *done; /* Trial *; the run itself where a trial was not begun */
  gint stopped;      /* atomic */
} TrialRun;

static void
try_trial(TrialRun *run, Trial *trial)
{
  const TrialWatch *watch = run->watch;
  const RunRequest *base = trial->request != NULL ? trial->request : run->base;
  RunResult result = {0};
  candidate_try(base, trial->assignments, &trial->outcome, watch->ran != NULL ? &result : NULL);
  if (result.recording != NULL)
    watch->ran(trial, &result, watch->user);
  run_result_clear(&result);
}

/* A simulation has nothing that changes outside of its own values, so that threads share only the
 * inputs. */
static void
work_on(gpointer data, gpointer user)
{
  TrialRun *run = user;
  gboolean begins = !g_atomic_int_get(&run->stopped);
  if (begins)
    try_trial(run, data);
  g_async_queue_push(run->done, begins ? data : run);
}

/* Waits for the next one; asks meanwhile whether to stop. */
static gpointer
next_done(TrialRun *run)
{
  const TrialWatch *watch = run->watch;
  for (;;) {
    if (watch->stops != NULL && watch->stops(watch->user))
      g_atomic_int_set(&run->stopped, TRUE);
    gpointer done = g_async_queue_timeout_pop(run->done, PATIENCE);
    if (done != NULL)
      return done;
  }
}

guint
trials_run_watched(const RunRequest *base, Trial *trials, guint count, const TrialWatch *watch)
{
  TrialRun run = {.base = base, .watch = watch, .done = g_async_queue_new()};
  int threads = watch->workers > 0 ? watch->workers : (int) g_get_num_processors();
  GThreadPool *pool = g_thread_pool_new(work_on, &run, threads, FALSE, NULL);
  guint finished = 0;
  for (guint i = 0; i < count; i++)
    g_thread_pool_push(pool, &trials[i], NULL);
  for (guint i = 0; i < count; i++) {
    gpointer done = next_done(&run);
    if (done == &run)
      continue;
    finished++;
    if (watch->done != NULL)
      watch->done(done, watch->user);
  }
  g_thread_pool_free(pool, FALSE, TRUE);
  g_async_queue_unref(run.done);
  return finished;
}

void
trials_run(const RunRequest *base, Trial *trials, guint count, int workers, TrialDone done,
           gpointer user)
{
  const TrialWatch watch = {.workers = workers, .done = done, .user = user};
  trials_run_watched(base, trials, count, &watch);
}
