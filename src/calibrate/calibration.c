/* calibration.c - measured collectives with the lines fitted to them. */
#include "calibrate/calibration.h"

#include <math.h>
#include <stdlib.h>

gboolean
calibrated_kind(const char *collective, CollectiveKind *kind)
{
  for (int i = 0; i < COLLECTIVE_KIND_COUNT; i++) {
    if (!g_str_equal(collective, program_collective_name((CollectiveKind) i)))
      continue;
    *kind = (CollectiveKind) i;
    return TRUE;
  }
  return FALSE;
}

static int
compare_samples(gconstpointer a, gconstpointer b)
{
  const FitSample *x = a, *y = b;
  return (x->bytes > y->bytes) - (x->bytes < y->bytes);
}

CalibratedCollective *
calibrated_collective_new(const MeasuredCollective *about, const FitSample *samples, guint n)
{
  CollectiveKind kind;
  gboolean known = calibrated_kind(about->collective, &kind);
  g_assert(known && n >= 1 && about->ranks > 1 && about->nodes >= 1);
  CalibratedCollective *collective = g_new0(CalibratedCollective, 1);
  collective->about = *about;
  collective->about.source = g_strdup(about->source);
  collective->about.collective = g_strdup(about->collective);
  collective->about.remark = g_strdup(about->remark);
  collective->factor = collective_factor(kind, about->ranks);
  collective->samples = g_array_new(FALSE, FALSE, sizeof(FitSample));
  g_array_append_vals(collective->samples, samples, n);
  g_array_sort(collective->samples, compare_samples);
  collective->fit = fit_choose(samples, n, &collective->holdout_median);
  collective->errors = fit_errors(&collective->fit, samples, n);
  return collective;
}

void
calibrated_collective_free(CalibratedCollective *collective)
{
  if (!collective)
    return;
  g_free((char *) (gintptr) collective->about.source);
  g_free((char *) (gintptr) collective->about.collective);
  g_free((char *) (gintptr) collective->about.remark);
  g_free(collective->default_errors.cluster);
  g_array_unref(collective->samples);
  g_free(collective);
}

double
calibrated_line_busbw(const CalibratedCollective *collective, int line)
{
  const double us_per_s = 1e6;
  return collective->factor / collective->fit.lines[line].slope * us_per_s;
}

double
calibrated_largest_busbw(const CalibratedCollective *collective)
{
  const double us_per_s = 1e6;
  double largest = 0;
  for (guint i = 0; i < collective->samples->len; i++) {
    const FitSample *sample = &g_array_index(collective->samples, FitSample, i);
    double busbw = collective->factor * (double) sample->bytes / sample->time_us * us_per_s;
    largest = MAX(largest, busbw);
  }
  return largest;
}

/* The communicator, alone on its nodes. */
static GroupShape
shape_of(const MeasuredCollective *about, const ClusterSpec *cluster)
{
  int per_node = (int) ceil_div(about->ranks, about->nodes);
  double share = cluster->nics * MIN(1, (double) per_node / cluster->gpus_per_node);
  return (GroupShape){about->ranks, about->nodes, per_node, MIN(cluster->nics, MAX(1, share))};
}

void
calibrated_collective_compare(CalibratedCollective *collective, const ClusterSpec *cluster)
{
  CollectiveKind kind;
  gboolean known = calibrated_kind(collective->about.collective, &kind);
  g_assert(known);
  ClusterSpec defaults = *cluster;
  defaults.tables = NULL;
  GroupShape shape = shape_of(&collective->about, cluster);
  guint n = collective->samples->len, large = 0;
  g_autofree double *errors = g_new(double, n), *large_errors = g_new(double, n);
  for (guint i = 0; i < n; i++) {
    const FitSample *sample = &g_array_index(collective->samples, FitSample, i);
    double predicted_us = (double) collective_duration(&defaults, kind, shape, sample->bytes) / 1e3;
    errors[i] = fabs(predicted_us / sample->time_us - 1);
    if (sample->bytes >= LARGE_FROM)
      large_errors[large++] = errors[i];
  }
  g_free(collective->default_errors.cluster);
  collective->default_errors = (DefaultErrors){
      .cluster = g_strdup(cluster->name),
      .median = fit_percentile(errors, n, 0.5),
      .large_median = fit_percentile(large_errors, large, 0.5),
  };
}

static void
collective_free(gpointer collective)
{
  calibrated_collective_free(collective);
}

GPtrArray *
calibrated_collectives_new(void)
{
  return g_ptr_array_new_with_free_func(collective_free);
}
