/* workers.c - pieces of work done on as many cores as there are. */
#include "search/workers.h"

/* How long to wait for a piece before asking whether to stop, microseconds. */
#define PATIENCE 100000

/* In the queue of what is done: a piece's number from 1, or that it was not begun. */
#define NOT_BEGUN G_MAXUINT

typedef struct {
  const Workers *workers;
  GAsyncQueue *done;
  gint stopped; /* atomic */
} Work;

static void
work_on(gpointer data, gpointer user)
{
  Work *work = user;
  gboolean begins = !g_atomic_int_get(&work->stopped);
  if (begins)
    work->workers->work(GPOINTER_TO_UINT(data) - 1, work->workers->user);
  g_async_queue_push(work->done, begins ? data : GUINT_TO_POINTER(NOT_BEGUN));
}

/* Waits for the next one; asks meanwhile whether to stop. */
static guint
next_done(Work *work)
{
  const Workers *w = work->workers;
  for (;;) {
    if (w->stops != NULL && w->stops(w->user))
      g_atomic_int_set(&work->stopped, TRUE);
    gpointer done = g_async_queue_timeout_pop(work->done, PATIENCE);
    if (done != NULL)
      return GPOINTER_TO_UINT(done);
  }
}

guint
workers_run(guint count, const Workers *workers)
{
  Work work = {.workers = workers, .done = g_async_queue_new()};
  int threads = workers->workers > 0 ? workers->workers : (int) g_get_num_processors();
  GThreadPool *pool = g_thread_pool_new(work_on, &work, threads, FALSE, NULL);
  guint finished = 0;
  for (guint i = 0; i < count; i++)
    g_thread_pool_push(pool, GUINT_TO_POINTER(i + 1), NULL);
  for (guint i = 0; i < count; i++) {
    guint done = next_done(&work);
    if (done == NOT_BEGUN)
      continue;
    finished++;
    if (workers->done != NULL)
      workers->done(done - 1, workers->user);
  }
  g_thread_pool_free(pool, FALSE, TRUE);
  g_async_queue_unref(work.done);
  return finished;
}
