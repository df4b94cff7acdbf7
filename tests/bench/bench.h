/* bench.h - timing and reporting of benchmarks. */
#ifndef HIGHWATER_TESTS_BENCH_H
#define HIGHWATER_TESTS_BENCH_H

#include <glib.h>

/* Prints one figure: "NAME VALUE UNIT".  Names have no spaces; of units that end in "/s" more is
 * better, of others less. */
void bench_figure(const char *name, double value, const char *unit);

/* The middle value; sorts them. */
double bench_median(double *values, guint n);

/* Seconds that work(data) takes: the median of `times` runs after one to warm up. */
double bench_median_seconds(void (*work)(gpointer data), gpointer data, guint times);

#endif
