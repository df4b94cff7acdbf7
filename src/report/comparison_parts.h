/* comparison_parts.h - the parts of a Comparison that have files of their own; only comparison*.c
 * include this. */
#ifndef HIGHWATER_REPORT_COMPARISON_PARTS_H
#define HIGHWATER_REPORT_COMPARISON_PARTS_H

#include "report/comparison.h"

/* Fills memory. */
void comparison_memory(Comparison *comparison, ComparedSteps steps);
/* Fill lanes, first_differs and slowest; kernels and modules.  All need models and step. */
void comparison_collectives(Comparison *comparison);
void comparison_kernels(Comparison *comparison);

/* Ids of A's strings in B; -1: not there.  Caller frees. */
gint32 *comparison_string_map(const Recording *a, const Recording *b);

/* Whether the span is work of the step that is compared on that side. */
gboolean comparison_counts(const Comparison *comparison, int side, const Span *span);

#endif
