/* trials.c - many plans tried, on as many cores as there are. */
#include "search/trials.h"

typedef struct {
  const RunRequest *base;
  GAsyncQueue *done; /* Trial * */
} TrialRun;

/* A simulation has nothing that changes outside of its own values, so that threads share only the
 * inputs. */
static void
try_one(gpointer data, gpointer user)
{
  Trial *trial = data;
  const TrialRun *run = user;
  candidate_try(run->base, trial->assignments, &trial->outcome, NULL);
  g_async_queue_push(run->done, trial);
}

void
trials_run(const RunRequest *base, Trial *trials, guint count, int workers, TrialDone done,
           gpointer user)
{
  TrialRun run = {base, g_async_queue_new()};
  int threads = workers > 0 ? workers : (int) g_get_num_processors();
  GThreadPool *pool = g_thread_pool_new(try_one, &run, threads, FALSE, NULL);
  for (guint i = 0; i < count; i++)
    g_thread_pool_push(pool, &trials[i], NULL);
  for (guint i = 0; i < count; i++) {
    Trial *trial = g_async_queue_pop(run.done);
    if (done != NULL)
      done(trial, user);
  }
  g_thread_pool_free(pool, FALSE, TRUE);
  g_async_queue_unref(run.done);
}
