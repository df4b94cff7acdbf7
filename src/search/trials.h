/* trials.h - many plans tried, on as many cores as there are. */
#ifndef HIGHWATER_SEARCH_TRIALS_H
#define HIGHWATER_SEARCH_TRIALS_H

#include "search/candidate.h"

/* A plan to try. */
typedef struct {
  char **assignments; /* NULL-terminated, borrowed */
  Outcome outcome;    /* filled in */
} Trial;

/* Called in the thread of trials_run() for each trial that is done, in the order in which they are
 * done. */
typedef void (*TrialDone)(Trial *trial, gpointer user);

/* Tries them all; workers 0: as many as the machine has cores.  The outcomes do not depend on how
 * many there are.  done may be NULL. */
void trials_run(const RunRequest *base, Trial *trials, guint count, int workers, TrialDone done,
                gpointer user);

#endif
