/* oom_findings.h - what a message about memory running out tells of the reason. */
#ifndef HIGHWATER_SEARCH_OOM_FINDINGS_H
#define HIGHWATER_SEARCH_OOM_FINDINGS_H

#include "search/oom_search.h"

typedef struct {
  const char *name; /* static: "fragmented", "other_processes" */
  char *text;       /* a sentence */
} OomFinding;

/* In the order in which they matter.  Free with g_array_unref. */
GArray *oom_findings(const OomMessage *message, const OomSearch *search);

#endif
