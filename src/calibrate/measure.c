/* measure.c - the loop of measuring: rounds, series, budget. */
#include "calibrate/measure.h"

#include <string.h>

MeasureOptions
measure_defaults(void)
{
  return (MeasureOptions){
      .budget_s = 300,
      .rounds = 3,
      .warmup = 10,
      .least = 10,
      .most = 40,
      .precision = 0.01,
      .seed = 1,
  };
}

static void
measurement_free(gpointer data)
{
  Measurement *m = data;
  g_array_unref(m->samples);
  g_array_unref(m->medians);
  g_free(m->failure);
  g_free(m);
}

Measurements *
measurements_new(void)
{
  Measurements *all = g_new0(Measurements, 1);
  all->measurements = g_ptr_array_new_with_free_func(measurement_free);
  return all;
}

Measurement *
measurements_add(Measurements *all, const Experiment *experiment)
{
  Measurement *m = g_new0(Measurement, 1);
  m->experiment = *experiment;
  m->samples = g_array_new(FALSE, FALSE, sizeof(double));
  m->medians = g_array_new(FALSE, FALSE, sizeof(double));
  g_ptr_array_add(all->measurements, m);
  return m;
}

void
measurements_free(Measurements *all)
{
  if (all == NULL)
    return;
  g_ptr_array_unref(all->measurements);
  g_free(all->conditions_before);
  g_free(all->conditions_after);
  g_free(all->origin);
  g_free(all);
}

/* One series: warm-up, then iterations until the median is known well enough.  A device warms up
 * once a series, and half of a series is a wasted one, so the first goes to `least`. */
static void
run_series(DeviceProbe *probe, Measurement *m, const MeasureOptions *options)
{
  guint first = m->samples->len;
  g_autoptr(GError) error = NULL;
  int warmup = options->warmup;
  while (m->samples->len - first < (guint) options->most) {
    int left = options->most - (int) (m->samples->len - first);
    int count = MIN(options->least, left);
    if (!probe->class->sample(probe, &m->experiment, warmup, count, m->samples, &error)) {
      g_free(m->failure);
      m->failure = g_strdup(error->message);
      break;
    }
    warmup = 0;
    guint taken = m->samples->len - first;
    SampleStats stats = sample_stats(&g_array_index(m->samples, double, first), taken);
    if (stats.precision <= options->precision ||
        (options->interrupted != NULL && *options->interrupted))
      break;
  }
  guint taken = m->samples->len - first;
  if (taken == 0)
    return;
  double median = sample_stats(&g_array_index(m->samples, double, first), taken).median;
  g_array_append_val(m->medians, median);
}

static void
shuffle(guint *order, guint count, GRand *random)
{
  for (guint i = count; i > 1; i--) {
    guint other = (guint) g_rand_int_range(random, 0, (gint32) i);
    guint kept = order[i - 1];
    order[i - 1] = order[other];
    order[other] = kept;
  }
}

typedef struct {
  DeviceProbe *probe;
  const MeasureOptions *options;
  Measurements *all;
  gint64 began; /* us, monotonic */
} Run;

static double
elapsed(const Run *run)
{
  return (double) (g_get_monotonic_time() - run->began) / G_USEC_PER_SEC;
}

static gboolean
must_end(const Run *run)
{
  run->all->interrupted = run->options->interrupted != NULL && *run->options->interrupted;
  return run->all->interrupted || elapsed(run) >= run->options->budget_s;
}

static void
tell(const Run *run, int done, int round, const Experiment *next)
{
  if (run->options->progress == NULL)
    return;
  g_autofree char *text = experiment_text(next);
  MeasureProgress progress = {
      .done = done,
      .of = (int) run->all->measurements->len,
      .round = round,
      .rounds = run->options->rounds,
      .elapsed_s = elapsed(run),
      .budget_s = run->options->budget_s,
      .experiment = text,
  };
  run->options->progress(&progress, run->options->data);
}

/* FALSE when the time is over. */
static gboolean
run_round(const Run *run, int round, const guint *order)
{
  GPtrArray *list = run->all->measurements;
  for (guint i = 0; i < list->len; i++) {
    if (must_end(run))
      return FALSE;
    Measurement *m = g_ptr_array_index(list, order[i]);
    if (m->failure != NULL)
      continue;
    tell(run, (int) i, round, &m->experiment);
    run_series(run->probe, m, run->options);
  }
  return TRUE;
}

static void
refuse_large(Measurement *m, gint64 limit)
{
  if (limit > 0 && experiment_device_bytes(&m->experiment) > limit)
    m->failure = g_strdup("needs more device memory than there is");
}

void
measurement_conclude(Measurement *m)
{
  if (m->samples->len == 0 || m->medians->len == 0)
    return;
  m->stats = sample_stats(&g_array_index(m->samples, double, 0), m->samples->len);
  m->median_ns = sample_stats(&g_array_index(m->medians, double, 0), m->medians->len).median;
}

static char *
conditions(DeviceProbe *probe)
{
  return probe->class->conditions != NULL ? probe->class->conditions(probe) : NULL;
}

Measurements *
measure(DeviceProbe *probe, const Experiment *experiments, guint count,
        const MeasureOptions *options)
{
  Measurements *all = measurements_new();
  probe->class->describe(probe, &all->facts);
  all->conditions_before = conditions(probe);
  g_autofree guint *order = g_new(guint, MAX(count, 1));
  for (guint i = 0; i < count; i++) {
    refuse_large(measurements_add(all, &experiments[i]), options->device_bytes);
    order[i] = i;
  }
  Run run = {probe, options, all, g_get_monotonic_time()};
  g_autoptr(GRand) random = g_rand_new_with_seed(options->seed);
  int round = 0;
  for (; round < options->rounds; round++) {
    shuffle(order, count, random);
    if (!run_round(&run, round, order))
      break;
  }
  all->complete = round == options->rounds;
  all->elapsed_s = elapsed(&run);
  for (guint i = 0; i < count; i++)
    measurement_conclude(g_ptr_array_index(all->measurements, i));
  all->conditions_after = conditions(probe);
  return all;
}
