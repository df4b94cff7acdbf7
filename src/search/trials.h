/* trials.h - many plans tried, on as many cores as there are. */
#ifndef HIGHWATER_SEARCH_TRIALS_H
#define HIGHWATER_SEARCH_TRIALS_H

#include "search/candidate.h"

/* A plan to try. */
typedef struct {
  char **assignments; /* NULL-terminated, borrowed */
  Outcome outcome;    /* filled in */
  const RunRequest
      *request; /* what is run, in place of trials_run()'s base; NULL: that; borrowed */
} Trial;

/* Called in the thread of trials_run() for each trial that is done, in the order in which they are
 * done. */
typedef void (*TrialDone)(Trial *trial, gpointer user);

/* Tries them all; workers 0: as many as the machine has cores.  The outcomes do not depend on how
 * many there are.  done may be NULL. */
void trials_run(const RunRequest *base, Trial *trials, guint count, int workers, TrialDone done,
                gpointer user);

/* What is told of trials while they go on; each function may be NULL. */
typedef struct {
  int workers; /* 0: as many as the machine has cores */
  /* In the thread that tried it, before done: the run itself.  Not for what was refused. */
  void (*ran)(Trial *trial, const RunResult *result, gpointer user);
  TrialDone done;
  /* Asked about ten times a second, in the caller's thread; TRUE: no further trial is begun. */
  gboolean (*stops)(gpointer user);
  gpointer user;
} TrialWatch;

/* Tries them, and returns how many are done: all of them unless it was stopped.  Those that were
 * begun by then end, and are done. */
guint trials_run_watched(const RunRequest *base, Trial *trials, guint count,
                         const TrialWatch *watch);

#endif
