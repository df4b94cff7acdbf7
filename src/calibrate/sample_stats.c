/* sample_stats.c - order statistics of measurements. */
#include "calibrate/sample_stats.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static int
compare(const void *a, const void *b)
{
  double x = *(const double *) a, y = *(const double *) b;
  return (x > y) - (x < y);
}

double *
sample_sorted(const double *values, guint count)
{
  double *sorted = g_memdup2(values, sizeof(double) * count);
  qsort(sorted, count, sizeof(double), compare);
  return sorted;
}

double
sample_quantile(const double *sorted, guint count, double fraction)
{
  double place = fraction * (count - 1);
  guint below = (guint) place;
  guint above = MIN(below + 1, count - 1);
  return sorted[below] + (place - below) * (sorted[above] - sorted[below]);
}

/* Of a normal distribution, the standard deviation over the median absolute deviation. */
#define NORMAL_MAD 1.4826

static int
count_outliers(const double *sorted, guint count, double median)
{
  g_autofree double *distance = g_new(double, count);
  for (guint i = 0; i < count; i++)
    distance[i] = fabs(sorted[i] - median);
  g_autofree double *ordered = sample_sorted(distance, count);
  double limit = 3 * NORMAL_MAD * sample_quantile(ordered, count, 0.5);
  int outliers = 0;
  for (guint i = 0; i < count; i++)
    outliers += distance[i] > limit && limit > 0;
  return outliers;
}

/* The order statistics that enclose the median with 95 %: n/2 -+ 1.96 sqrt(n)/2 (binomial with the
 * normal approximation, Conover, "Practical Nonparametric Statistics", section 3.2). */
static double
median_precision(const double *sorted, guint count, double median)
{
  double half = 0.98 * sqrt(count) / count;
  double low = sample_quantile(sorted, count, MAX(0.5 - half, 0));
  double high = sample_quantile(sorted, count, MIN(0.5 + half, 1));
  return median > 0 ? (high - low) / 2 / median : 0;
}

SampleStats
sample_stats(const double *values, guint count)
{
  g_assert(count > 0);
  g_autofree double *sorted = sample_sorted(values, count);
  double median = sample_quantile(sorted, count, 0.5);
  return (SampleStats){
      .count = (int) count,
      .least = sorted[0],
      .p10 = sample_quantile(sorted, count, 0.1),
      .median = median,
      .p90 = sample_quantile(sorted, count, 0.9),
      .outliers = count_outliers(sorted, count, median),
      .precision = median_precision(sorted, count, median),
  };
}
