/* comparison_report.h - a Comparison as text and as JSON. */
#ifndef HIGHWATER_REPORT_COMPARISON_REPORT_H
#define HIGHWATER_REPORT_COMPARISON_REPORT_H

#include "report/comparison.h"
#include "report/comparison_limit.h"
#include "report/summary_text.h"

/* What is printed.  limits: ComparisonLimit; NULL: none was given. */
typedef struct {
  const Comparison *comparison;
  const char *names[SIDES]; /* the folders */
  const GArray *limits;
} ComparisonReport;

/* Whether all limits hold. */
gboolean comparison_is_within(const ComparisonReport *report);

/* One screen, whose first lines answer; verbose: all kernels and blocks, not only the largest
 * differences. */
void comparison_text(const ComparisonReport *report, const TextStyle *style, GString *out);
/* Format "highwater-comparison-1".  Caller frees. */
char *comparison_json(const ComparisonReport *report);

#endif
