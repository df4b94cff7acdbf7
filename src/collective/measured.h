/* measured.h - durations from a cluster's measured tables. */
#ifndef HIGHWATER_COLLECTIVE_MEASURED_H
#define HIGHWATER_COLLECTIVE_MEASURED_H

#include "collective/collective.h"

/* The table for this kind of collective on this shape of communicator, or one that moves the same
 * bytes the same way (reduce-scatter for all-gather and the other way round); NULL: none. */
const CollectiveTable *measured_table(const ClusterSpec *cluster, CollectiveKind kind,
                                      GroupShape shape);

/* Duration in ns.  Between two points a straight line of logarithms; below the first its time;
 * above the last, with the slope of the last two octaves, but no steeper than to the origin. */
double measured_time_ns(const CollectiveTable *table, gint64 bytes);
/* Nanoseconds per byte beyond the last point. */
double measured_tail_slope(const CollectiveTable *table);

#endif
