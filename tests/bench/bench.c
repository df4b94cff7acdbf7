/* bench.c - timing and reporting of benchmarks. */
#include "bench.h"
#include <stdio.h>
#include <stdlib.h>

void
bench_figure(const char *name, double value, const char *unit)
{
  printf("%s %.4g %s\n", name, value, unit);
  fflush(stdout);
}

static int
compare_doubles(const void *a, const void *b)
{
  double x = *(const double *) a, y = *(const double *) b;
  return (x > y) - (x < y);
}

double
bench_median(double *values, guint n)
{
  g_assert(n > 0);
  qsort(values, n, sizeof *values, compare_doubles);
  return values[n / 2];
}

double
bench_median_seconds(void (*work)(gpointer data), gpointer data, guint times)
{
  g_assert(times > 0);
  g_autofree double *seconds = g_new(double, times);
  work(data);
  for (guint i = 0; i < times; i++) {
    gint64 start = g_get_monotonic_time();
    work(data);
    seconds[i] = (double) (g_get_monotonic_time() - start) / G_USEC_PER_SEC;
  }
  return bench_median(seconds, times);
}
