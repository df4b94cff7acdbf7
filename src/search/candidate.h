/* candidate.h - one plan tried: a run of it, and what of its answer plans are compared by. */
#ifndef HIGHWATER_SEARCH_CANDIDATE_H
#define HIGHWATER_SEARCH_CANDIDATE_H

#include "report/summary.h"
#include "simulate/run_simulation.h"

/* What became of it.  Sizes are bytes, times nanoseconds; "time" and what follows it are of the
 * last complete step, 0 when there is none. */
typedef struct {
  char *refusal; /* the inputs do not go together: why; the rest is 0 then.  NULL: it was simulated
                  */
  Verdict verdict;
  gint64 allocator_retries;
  gint64 peak_allocated, peak_reserved, headroom;
  char *peak_place;    /* "step 2, backward of layers.3" */
  char *out_of_memory; /* one line; NULL: it did not happen */
  TimeSummary time;
  gint64 tokens_per_step; /* of this rank */
  gint64 collectives;     /* in the step */
} Outcome;

void outcome_clear(Outcome *outcome);

/* Runs base with its assignments followed by these (NULL-terminated, may be NULL).  The run itself
 * comes in *result when that is not NULL and there was one; the caller clears it.  A plan that is
 * refused is an outcome, not an error. */
void candidate_try(const RunRequest *base, char *const *assignments, Outcome *outcome,
                   RunResult *result);

#endif
