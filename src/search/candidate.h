/* candidate.h - one plan tried: a run of it, and what of its answer plans are compared by. */
#ifndef HIGHWATER_SEARCH_CANDIDATE_H
#define HIGHWATER_SEARCH_CANDIDATE_H

#include "program/program.h"
#include "report/summary.h"
#include "simulate/run_simulation.h"

/* All-gathers of the step. */
typedef struct {
  gint64 count, waited; /* waited: those that were not ready when they were needed */
  SimTime longest;      /* duration of one */
  SimTime wait;         /* of the compute stream for all of them together */
} GatherSummary;

/* What became of it.  Sizes are bytes, times nanoseconds; "time" and what follows it are of the
 * last complete step, 0 when there is none. */
typedef struct {
  char *refusal; /* the inputs do not go together: why; the rest is 0 then.  NULL: it was simulated
                  */
  Verdict verdict;
  gint64 allocator_retries;
  gint64 peak_allocated, peak_reserved, headroom;
  gint64 construction_reserved; /* the most while the model was made */
  gint64 capacity;       /* limit of the allocator; G_MAXINT64: none, and headroom says nothing */
  char *peak_place;      /* "step 2, backward of layers.3" */
  char *out_of_memory;   /* one line; NULL: it did not happen */
  int rank_without_room; /* another rank that runs out of memory, or -1 */
  TimeSummary time;
  gint64 tokens_per_step; /* of this rank */
  int ranks;              /* that train together */
  gint64 collectives;     /* in the step; also by kind: */
  gint64 collectives_of[COLLECTIVE_KIND_COUNT];
  StartupInfo startup;  /* what they pay to begin */
  int groups;           /* that parameters are gathered in, */
  gint64 largest_group; /* and the most full parameters that one has */
  GatherSummary gathers;
  GArray *step_times; /* SimTime, of each complete step */
} Outcome;

void outcome_clear(Outcome *outcome);

/* Does it fit, with or without retries? */
gboolean outcome_fits(const Outcome *outcome);
/* "fits", "fits_with_retries", "does_not_fit", "refused". */
const char *outcome_verdict(const Outcome *outcome);
/* Why it does not fit, or was refused; NULL: it fits.  Caller frees. */
char *outcome_reason(const Outcome *outcome);
/* Fraction of the time in which collectives run that hides behind computation; NAN: not known. */
double outcome_hidden(const Outcome *outcome);

/* Runs base with its assignments followed by these (NULL-terminated, may be NULL).  The run itself
 * comes in *result when that is not NULL and there was one; the caller clears it.  A plan that is
 * refused is an outcome, not an error. */
void candidate_try(const RunRequest *base, char *const *assignments, Outcome *outcome,
                   RunResult *result);

#endif
