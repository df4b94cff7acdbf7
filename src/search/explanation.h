/* explanation.h - why a run's peak is where it is, why it does not fit, and what would help. */
#ifndef HIGHWATER_SEARCH_EXPLANATION_H
#define HIGHWATER_SEARCH_EXPLANATION_H

#include "report/peak_story.h"
#include "search/remedies.h"

typedef struct {
  const Recording *recording; /* as it ran, borrowed */
  const RunInfo *info;        /* borrowed */
  Verdict verdict;
  gboolean has_memory; /* FALSE: a measured run that says nothing of memory: no verdict, no story */
  /* The same without a limit, where it does not fit: what it needs, and until when things would
   * live that are alive when memory runs out.  recording NULL: it fits, or was measured. */
  RunResult endless;
  TimeSummary time;                       /* of a step: of endless where there is one */
  gint64 needs_allocated, needs_reserved; /* peaks, without a limit where that is known */
  gboolean at_failure; /* the story is of the moment when memory runs out, else of the peak */
  PeakStory *story;    /* NULL: nothing was ever allocated */
  GPtrArray *remedies; /* Remedy *, as remedies_try() has them; NULL: none were asked for, or the
                          run was measured or has no plan */
} Explanation;

/* request: what was simulated; NULL: it was measured.  NULL and error when the inputs are wrong. */
Explanation *explanation_new(const Recording *recording, const RunInfo *info,
                             const RunRequest *request, gboolean with_remedies, GError **error);
void explanation_free(Explanation *explanation);
G_DEFINE_AUTOPTR_CLEANUP_FUNC(Explanation, explanation_free)

#endif
