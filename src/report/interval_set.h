/* interval_set.h - sets of moments as disjoint intervals: unions, lengths, overlaps.
 *
 * Busy and idle times, and what of a collective is hidden behind compute, are set arithmetic; this
 * is all of it. */
#ifndef HIGHWATER_REPORT_INTERVAL_SET_H
#define HIGHWATER_REPORT_INTERVAL_SET_H

#include <glib.h>

#include "base/units.h"

typedef struct _IntervalSet IntervalSet;

IntervalSet *interval_set_new(void);
void interval_set_free(IntervalSet *set);
G_DEFINE_AUTOPTR_CLEANUP_FUNC(IntervalSet, interval_set_free)

/* Joins [start, end) to the set; start <= end.  Cheap when calls come by start time, in any order
 * correct. */
void interval_set_add(IntervalSet *set, SimTime start, SimTime end);
/* Joins every interval of other to the set. */
void interval_set_join(IntervalSet *set, const IntervalSet *other);
/* Total length, ns. */
SimTime interval_set_length(const IntervalSet *set);
/* Length of what a and b have in common, ns. */
SimTime interval_set_overlap(const IntervalSet *a, const IntervalSet *b);

#endif
