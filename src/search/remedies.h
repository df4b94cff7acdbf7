/* remedies.h - changes of a plan that lower its peak, each of them simulated. */
#ifndef HIGHWATER_SEARCH_REMEDIES_H
#define HIGHWATER_SEARCH_REMEDIES_H

#include "search/trials.h"

/* A change that was tried.  It owns its strings. */
typedef struct {
  const char *name;    /* "checkpointing": of its kind; NULL: several together */
  const char *summary; /* "recompute activations"; NULL: several together */
  char **assignments;  /* as --set takes them, NULL-terminated */
  Outcome outcome;     /* what `run` says with them */
  /* Peaks when memory is not limited: those of outcome where it fits without retries. */
  gint64 needs_allocated, needs_reserved;
  gboolean helps; /* fits where the plan does not, or needs less */
} Remedy;

void remedy_free(Remedy *remedy);

/* What all are compared with: the plan itself. */
typedef struct {
  const RunRequest *request;
  const Scenario *scenario; /* of that request */
  const RunInfo *info;
  Verdict verdict;
  gint64 needs_allocated, needs_reserved;
} RemedyBase;

/* All changes that apply and are not refused, best first: those that fit, the fastest first (time a
 * token); then those that help, then the others, by what they need.  Where no single one fits, the
 * best of them together too.  workers as in trials_run().  Remedy *; free with g_ptr_array_unref.
 */
GPtrArray *remedies_try(const RemedyBase *base, int workers);

/* The kinds of changes, for the manual and tests. */
guint remedy_kind_count(void);
const char *remedy_kind_name(guint i);
const char *remedy_kind_summary(guint i);

#endif
