/* comparison_limit.h - how far two runs may differ before a comparison says no. */
#ifndef HIGHWATER_REPORT_COMPARISON_LIMIT_H
#define HIGHWATER_REPORT_COMPARISON_LIMIT_H

#include "report/comparison.h"

/* Of one figure: relative to A, or in bytes. */
typedef struct {
  const char *key; /* of a FigureComparison; static */
  gboolean named;  /* it was asked for by this name */
  gboolean is_relative;
  double fraction; /* 0.05 of "5%" */
  gint64 bytes;
  char *text; /* as it was given */
} ComparisonLimit;

/* Reads "5%" or "64MiB" (of the peaks; a percentage of the step time, too), or a list for figures
 * by name: "peak_allocated=0,step_time=5%".  NULL and error when it is neither.  ComparisonLimit;
 * free with g_array_unref. */
GArray *comparison_limits_parse(const char *text, GError **error);

/* Leaves out of those that came from a limit for all what is not known of both runs.  FALSE and
 * error when one was named, or none is left: a limit that cannot be checked is no success. */
gboolean comparison_limits_choose(GArray *limits, const Comparison *comparison, GError **error);

gboolean comparison_limit_holds(const ComparisonLimit *limit, const Comparison *comparison);

#endif
