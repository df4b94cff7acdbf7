/* fit.c - fits the least of some lines to measured times.
 *
 * Lines are first fitted to parts of the samples between breakpoints, by least squares of relative
 * errors that are weighted to give least absolute ones; then all of them together are moved while
 * that makes the sum of soft absolute errors of logarithms smaller. */
#include "calibrate/fit.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

const char *const fit_model_names[] = {
    [FIT_AB] = "ab", [FIT_MIN2] = "min2", [FIT_MIN3] = "min3", [FIT_MIN4] = "min4", NULL};

/* Errors of logarithms below this count by their squares. */
#define SOFT 0.05
/* No bus reaches 100 TB/s: a line that seems flat has this slope, in us per byte. */
#define SLOPE_MIN 1e-8
/* Places where one line may hand over to the next. */
#define PLACES_MAX 26

static int
lines_of(FitModel model)
{
  return (int) model + 1;
}

/* ---- values */

static double
line_us(const FitLine *line, double bytes)
{
  return line->alpha_us + line->slope * bytes;
}

double
fit_time_us(const Fit *fit, gint64 bytes)
{
  double least = line_us(&fit->lines[0], (double) bytes);
  for (int i = 1; i < fit->n_lines; i++)
    least = fmin(least, line_us(&fit->lines[i], (double) bytes));
  return least;
}

/* Soft-L1: z^2 for small z, 2 |z| for large ones. */
static double
loss(const Fit *fit, const FitSample *samples, guint n)
{
  double sum = 0;
  for (guint i = 0; i < n; i++) {
    double z = log(fit_time_us(fit, samples[i].bytes) / samples[i].time_us) / SOFT;
    sum += 2 * (sqrt(1 + z * z) - 1);
  }
  return sum;
}

static int
compare_doubles(const void *a, const void *b)
{
  double x = *(const double *) a, y = *(const double *) b;
  return (x > y) - (x < y);
}

double
fit_percentile(double *values, guint n, double part)
{
  if (n == 0)
    return NAN;
  qsort(values, n, sizeof *values, compare_doubles);
  double at = part * (n - 1);
  guint low = (guint) at, high = MIN(low + 1, n - 1);
  return values[low] + (at - low) * (values[high] - values[low]);
}

FitErrors
fit_errors(const Fit *fit, const FitSample *samples, guint n)
{
  FitErrors errors = {NAN, NAN, -1, 0};
  g_autofree double *values = g_new(double, n);
  for (guint i = 0; i < n; i++) {
    values[i] = fabs(fit_time_us(fit, samples[i].bytes) / samples[i].time_us - 1);
    if (values[i] > errors.worst) {
      errors.worst = values[i];
      errors.worst_bytes = samples[i].bytes;
    }
  }
  errors.median = fit_percentile(values, n, 0.5);
  errors.p90 = fit_percentile(values, n, 0.9);
  return errors;
}

/* ---- one line by weighted least squares */

/* Weighted sums over samples of products of 1/t, n/t and 1, which say how far alpha/t + slope n/t
 * is from 1. */
typedef struct {
  double aa, as, ss, a, s;
} Normal;

static void
accumulate(Normal *normal, const FitSample *sample, double weight)
{
  double a = 1 / sample->time_us, s = (double) sample->bytes / sample->time_us;
  normal->aa += weight * a * a;
  normal->as += weight * a * s;
  normal->ss += weight * s * s;
  normal->a += weight * a;
  normal->s += weight * s;
}

/* The least sum of squares without a negative term: where both are free one of them would be
 * negative, the other alone does it. */
static FitLine
solve(const Normal *normal)
{
  double determinant = normal->aa * normal->ss - normal->as * normal->as;
  FitLine flat = {normal->a / normal->aa, 0}, steep = {0, normal->s / normal->ss};
  if (determinant > 1e-12 * normal->aa * normal->ss) {
    double alpha = (normal->a * normal->ss - normal->s * normal->as) / determinant;
    double slope = (normal->s * normal->aa - normal->a * normal->as) / determinant;
    if (alpha >= 0 && slope >= 0)
      return (FitLine){alpha, slope};
    return slope < 0 ? flat : steep;
  }
  return flat;
}

/* A line through samples, n >= 1; weights 1/|error| turn least squares into least absolute values.
 */
static FitLine
fit_line(const FitSample *samples, guint n)
{
  FitLine line = {0};
  for (int round = 0; round < 6; round++) {
    Normal normal = {0};
    for (guint i = 0; i < n; i++) {
      double error = line_us(&line, (double) samples[i].bytes) / samples[i].time_us - 1;
      accumulate(&normal, &samples[i], round == 0 ? 1 : 1 / MAX(fabs(error), 0.002));
    }
    line = solve(&normal);
  }
  line.slope = MAX(line.slope, SLOPE_MIN);
  return line;
}

/* ---- several lines */

/* Moves one number of the fit by a factor if that helps. */
static gboolean
improve(Fit *fit, double *number, double factor, double *least, const FitSample *samples, guint n)
{
  double before = *number;
  *number = before * factor;
  double now = loss(fit, samples, n);
  if (now < *least) {
    *least = now;
    return TRUE;
  }
  *number = before;
  return FALSE;
}

static gboolean
improve_line(Fit *fit, int i, double step, double *least, const FitSample *samples, guint n)
{
  double *numbers[] = {&fit->lines[i].alpha_us, &fit->lines[i].slope};
  gboolean better = FALSE;
  for (guint k = 0; k < G_N_ELEMENTS(numbers); k++) {
    if (*numbers[k] <= 0)
      continue;
    better |= improve(fit, numbers[k], 1 + step, least, samples, n) ||
              improve(fit, numbers[k], 1 / (1 + step), least, samples, n);
  }
  fit->lines[i].slope = MAX(fit->lines[i].slope, SLOPE_MIN);
  return better;
}

/* A pattern search with ever smaller steps. */
static double
polish(Fit *fit, const FitSample *samples, guint n)
{
  double least = loss(fit, samples, n);
  for (double step = 0.3; step > 1e-3; step /= 2) {
    gboolean better = TRUE;
    for (int round = 0; round < 8 && better; round++) {
      better = FALSE;
      for (int i = 0; i < fit->n_lines; i++)
        better |= improve_line(fit, i, step, &least, samples, n);
    }
  }
  return least;
}

#define CANDIDATES 4

/* Keeps the best few, by their sum. */
static void
keep(Fit best[CANDIDATES], double sums[CANDIDATES], const Fit *fit, double sum)
{
  int at = CANDIDATES;
  while (at > 0 && sum < sums[at - 1])
    at--;
  if (at == CANDIDATES)
    return;
  memmove(&best[at + 1], &best[at], (gsize) (CANDIDATES - 1 - at) * sizeof *best);
  memmove(&sums[at + 1], &sums[at], (gsize) (CANDIDATES - 1 - at) * sizeof *sums);
  best[at] = *fit;
  sums[at] = sum;
}

/* Samples cut into parts at some of these places, with the line of every part between two. */
typedef struct {
  FitModel model;
  const FitSample *samples;
  guint n;
  guint places[PLACES_MAX + 1]; /* the first is 0, the last n */
  guint count;
  FitLine parts[PLACES_MAX + 1][PLACES_MAX + 1]; /* from, to */
  Fit best[CANDIDATES];
  double sums[CANDIDATES];
} Search;

static void
search_init(Search *search, FitModel model, const FitSample *samples, guint n)
{
  *search = (Search){.model = model, .samples = samples, .n = n};
  search->count = MIN(n + 1, PLACES_MAX);
  for (guint i = 0; i < search->count; i++)
    search->places[i] = i * n / (search->count - 1);
  for (guint from = 0; from < search->count; from++)
    for (guint to = from + 1; to < search->count; to++)
      search->parts[from][to] =
          fit_line(samples + search->places[from], search->places[to] - search->places[from]);
  for (int i = 0; i < CANDIDATES; i++)
    search->sums[i] = INFINITY;
}

/* Tries every way to cut what is left into the lines that are left. */
static void
search_from(Search *search, Fit *fit, int line, guint from)
{
  guint last = search->count - 1, left = (guint) (fit->n_lines - line - 1);
  if (left == 0) {
    fit->lines[line] = search->parts[from][last];
    keep(search->best, search->sums, fit, loss(fit, search->samples, search->n));
    return;
  }
  for (guint to = from + 1; to + left <= last; to++) {
    fit->lines[line] = search->parts[from][to];
    search_from(search, fit, line + 1, to);
  }
}

static int
compare_lines(const void *a, const void *b)
{
  const FitLine *x = a, *y = b;
  return (x->alpha_us > y->alpha_us) - (x->alpha_us < y->alpha_us);
}

static int
compare_samples(const void *a, const void *b)
{
  const FitSample *x = a, *y = b;
  return (x->bytes > y->bytes) - (x->bytes < y->bytes);
}

static FitSample *
sorted(const FitSample *samples, guint n)
{
  FitSample *copy = g_memdup2(samples, n * sizeof *samples);
  qsort(copy, n, sizeof *copy, compare_samples);
  return copy;
}

/* Samples by size. */
static Fit
fit_sorted(FitModel model, const FitSample *samples, guint n)
{
  g_autofree Search *search = g_new(Search, 1);
  if (n <= (guint) lines_of(model))
    model = FIT_AB;
  Fit fit = {.model = model, .n_lines = lines_of(model)};
  search_init(search, model, samples, n);
  search_from(search, &fit, 0, 0);
  int winner = 0;
  for (int i = 0; i < CANDIDATES && isfinite(search->sums[i]); i++) {
    search->sums[i] = polish(&search->best[i], samples, n);
    if (search->sums[i] < search->sums[winner])
      winner = i;
  }
  fit = search->best[winner];
  qsort(fit.lines, (gsize) fit.n_lines, sizeof(FitLine), compare_lines);
  return fit;
}

Fit
fit_model(FitModel model, const FitSample *samples, guint n)
{
  g_assert(n >= 1);
  g_autofree FitSample *by_size = sorted(samples, n);
  return fit_sorted(model, by_size, n);
}

/* ---- choice */

/* With fewer samples one at a time is left out. */
#define HALVES_FROM 10
/* With fewer nothing can be tried. */
#define TRIALS_FROM 4

/* Fits without the samples i with i % parts == part, and appends the errors at those. */
static void
try_without(FitModel model, const FitSample *samples, guint n, guint parts, guint part,
            GArray *errors)
{
  g_autoptr(GArray) seen = g_array_new(FALSE, FALSE, sizeof(FitSample));
  for (guint i = 0; i < n; i++)
    if (i % parts != part)
      g_array_append_val(seen, samples[i]);
  Fit fit = fit_sorted(model, (const FitSample *) (gpointer) seen->data, seen->len);
  for (guint i = part; i < n; i += parts) {
    double error = fabs(fit_time_us(&fit, samples[i].bytes) / samples[i].time_us - 1);
    g_array_append_val(errors, error);
  }
}

static double
holdout_median(FitModel model, const FitSample *samples, guint n)
{
  g_autoptr(GArray) errors = g_array_new(FALSE, FALSE, sizeof(double));
  guint parts = n < HALVES_FROM ? n : 2;
  for (guint part = 0; part < parts; part++)
    try_without(model, samples, n, parts, part, errors);
  return fit_percentile((double *) (gpointer) errors->data, errors->len, 0.5);
}

Fit
fit_choose(const FitSample *samples, guint n, double *holdout)
{
  g_assert(n >= 1);
  g_autofree FitSample *by_size = sorted(samples, n);
  FitModel best = FIT_AB;
  double least = NAN;
  for (int model = 0; model < FIT_MODEL_COUNT && n >= TRIALS_FROM; model++) {
    double median = holdout_median((FitModel) model, by_size, n);
    if (!(median >= least)) {
      least = median;
      best = (FitModel) model;
    }
  }
  if (holdout)
    *holdout = least;
  return fit_sorted(best, by_size, n);
}
