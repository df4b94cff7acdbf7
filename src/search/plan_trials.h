/* plan_trials.h - plans of a space tried once each, without a limit of memory, and which of two is
 * better.  Of plan_search.h and its stages. */
#ifndef HIGHWATER_SEARCH_PLAN_TRIALS_H
#define HIGHWATER_SEARCH_PLAN_TRIALS_H

#include "search/plan_search.h"
#include "search/trials.h"

/* In the second step segments are still found, in the third none, or few. */
enum { PLAN_TRIALS_STEPS = 3 };
/* More memory than any device has. */
#define PLAN_TRIALS_UNLIMITED ((gint64) 1 << 52)

/* A search that goes on. */
typedef struct {
  PlanSearch *search;
  const PlanSearchOptions *options;
  const RunRequest *base;
  GHashTable *known; /* PlanPoint -> index in search->tried + 1 */
  guint done, planned;
  const char *stage; /* what progress calls it */
  gboolean stopped;
} PlanTrials;

/* For a search whose other members are set; base: what is run is based on. */
void plan_trials_init(PlanTrials *run, PlanSearch *search, const PlanSearchOptions *options,
                      const RunRequest *base);
void plan_trials_clear(PlanTrials *run);

PlanTried *plan_trials_at(const PlanTrials *run, guint i);
/* Index of what became of a normal point, or -1. */
int plan_trials_index(const PlanTrials *run, const PlanPoint *point);

/* Does it leave the headroom free? */
gboolean plan_trials_fits(const PlanTrials *run, guint i);
/* The faster of two that fit is better; one that fits; the one that lacks less; the earlier.  All
 * have the same tokens a step.  Negative: a is better. */
int plan_trials_compare(const PlanTrials *run, guint a, guint b);
/* The better of two indices; -1: none. */
int plan_trials_better(const PlanTrials *run, int a, int b);
/* The best of all that were not refused, or -1. */
int plan_trials_best(const PlanTrials *run);

/* Tries the PlanPoints that are new, made normal.  FALSE: it was stopped. */
gboolean plan_trials_add(PlanTrials *run, const GArray *points);
/* Runs these points under a limit, and keeps nothing: the caller frees outcomes and array. Stopped:
 * some outcomes are empty. */
Trial *plan_trials_run(PlanTrials *run, const PlanPoint *points, guint count, int steps,
                       gint64 limit);

#endif
