/* sample_stats.h - what a set of repeated measurements says: median, spread, outliers. */
#ifndef HIGHWATER_CALIBRATE_SAMPLE_STATS_H
#define HIGHWATER_CALIBRATE_SAMPLE_STATS_H

#include <glib.h>

typedef struct {
  int count;
  double least, p10, median, p90;
  int outliers;     /* further from the median than three scaled median absolute deviations; they
                       are counted, not left out */
  double precision; /* half width of the median's 95 % interval, as a fraction of the median */
} SampleStats;

/* Of `count` values, at least one; they may be in any order. */
SampleStats sample_stats(const double *values, guint count);
/* The value that a fraction of sorted values lies below, interpolated; count at least 1. */
double sample_quantile(const double *sorted, guint count, double fraction);
/* A copy in ascending order; free with g_free. */
double *sample_sorted(const double *values, guint count);

#endif
