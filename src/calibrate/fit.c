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
    [FIT_AB] = "ab",     [FIT_SQRT] = "sqrt", [FIT_MIN2] = "min2",
    [FIT_MIN3] = "min3", [FIT_MSQ] = "msq",   NULL};

/* Errors of logarithms below this count by their squares. */
#define SOFT 0.05
/* No bus reaches 100 TB/s: a line that seems flat has this slope, in us per byte. */
#define SLOPE_MIN 1e-8
/* Places where one line may hand over to the next. */
#define BREAKS_MAX 24

typedef struct {
  int lines;
  gboolean root; /* of the last line */
} Shape;
static const Shape shapes[FIT_MODEL_COUNT] = {
    [FIT_AB] = {1, FALSE},   [FIT_SQRT] = {1, TRUE}, [FIT_MIN2] = {2, FALSE},
    [FIT_MIN3] = {3, FALSE}, [FIT_MSQ] = {2, TRUE},
};

/* ---- values */

static double
line_us(const FitLine *line, double bytes)
{
  return line->alpha_us + line->slope * bytes + line->root * sqrt(bytes);
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

#define TERMS 3 /* alpha, slope, root */

/* Sums of products of the terms, each divided by the time, with themselves and with 1. */
typedef struct {
  double product[TERMS][TERMS], right[TERMS], weights;
} Normal;

/* Solves for the terms of the mask; the others are 0.  FALSE where there is no single answer. */
static gboolean
solve(const Normal *normal, guint mask, double x[TERMS])
{
  double a[TERMS][TERMS + 1] = {{0}};
  for (int i = 0; i < TERMS; i++) {
    gboolean in = mask >> i & 1;
    for (int j = 0; j < TERMS; j++)
      a[i][j] = in && (mask >> j & 1) ? normal->product[i][j] : (double) (i == j);
    a[i][TERMS] = in ? normal->right[i] : 0;
  }
  for (int k = 0; k < TERMS; k++) {
    if (!(fabs(a[k][k]) > 1e-30))
      return FALSE;
    for (int i = 0; i < TERMS; i++) {
      double factor = i == k ? 0 : a[i][k] / a[k][k];
      for (int j = k; j <= TERMS; j++)
        a[i][j] -= factor * a[k][j];
    }
  }
  for (int k = 0; k < TERMS; k++)
    x[k] = a[k][TERMS] / a[k][k];
  return TRUE;
}

/* Weighted sum of squares of (predicted / measured - 1), without the part that is the same for all.
 */
static double
squares(const Normal *normal, const double x[TERMS])
{
  double sum = normal->weights;
  for (int i = 0; i < TERMS; i++) {
    sum -= 2 * x[i] * normal->right[i];
    for (int j = 0; j < TERMS; j++)
      sum += x[i] * x[j] * normal->product[i][j];
  }
  return sum;
}

static void
terms_of(const FitSample *sample, double scale, double terms[TERMS])
{
  double bytes = (double) sample->bytes / scale;
  terms[0] = 1 / sample->time_us;
  terms[1] = bytes / sample->time_us;
  terms[2] = sqrt(bytes) / sample->time_us;
}

static void
accumulate(Normal *normal, const double terms[TERMS], double weight)
{
  normal->weights += weight;
  for (int i = 0; i < TERMS; i++) {
    normal->right[i] += weight * terms[i];
    for (int j = 0; j < TERMS; j++)
      normal->product[i][j] += weight * terms[i] * terms[j];
  }
}

/* Of all sets of terms the best with no negative one: three terms have seven sets. */
static void
solve_nonnegative(const Normal *normal, gboolean root, double best[TERMS])
{
  double least = INFINITY;
  for (guint mask = 1; mask < (root ? 8u : 4u); mask++) {
    double x[TERMS];
    if (!solve(normal, mask, x) || x[0] < 0 || x[1] < 0 || x[2] < 0)
      continue;
    double sum = squares(normal, x);
    if (sum < least) {
      least = sum;
      memcpy(best, x, TERMS * sizeof *x);
    }
  }
}

/* A line through samples, n >= 1; weights 1/|error| turn least squares into least absolute values.
 */
static FitLine
fit_line(const FitSample *samples, guint n, gboolean root)
{
  double scale = (double) samples[n - 1].bytes, x[TERMS] = {samples[0].time_us, 0, 0};
  for (int round = 0; round < 6; round++) {
    Normal normal = {0};
    for (guint i = 0; i < n; i++) {
      double terms[TERMS];
      terms_of(&samples[i], scale, terms);
      double error = x[0] * terms[0] + x[1] * terms[1] + x[2] * terms[2] - 1;
      accumulate(&normal, terms, round == 0 ? 1 : 1 / MAX(fabs(error), 0.002));
    }
    solve_nonnegative(&normal, root, x);
  }
  return (FitLine){x[0], MAX(x[1] / scale, SLOPE_MIN), x[2] / sqrt(scale)};
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
  double *numbers[TERMS] = {&fit->lines[i].alpha_us, &fit->lines[i].slope, &fit->lines[i].root};
  gboolean better = FALSE;
  for (int k = 0; k < TERMS; k++) {
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

/* Lines that two breakpoints give; one part may be a single sample. */
static Fit
fit_parts(FitModel model, const FitSample *samples, guint n, const guint breaks[2])
{
  const Shape *shape = &shapes[model];
  Fit fit = {.model = model, .n_lines = shape->lines};
  guint start = 0;
  for (int i = 0; i < shape->lines; i++) {
    gboolean last = i == shape->lines - 1;
    guint end = last ? n : breaks[i];
    fit.lines[i] = fit_line(samples + start, end - start, last && shape->root);
    start = end;
  }
  return fit;
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

/* Tries all breakpoints, or some spread evenly. */
static void
try_breaks(FitModel model, const FitSample *samples, guint n, Fit best[CANDIDATES],
           double sums[CANDIDATES])
{
  guint step = MAX(1, n / BREAKS_MAX), lines = (guint) shapes[model].lines;
  guint first_end = lines == 1 ? 2 : n + 2 - lines, second_end = lines > 2 ? n : 0;
  for (guint first = 1; first < first_end; first += step) {
    guint second = lines > 2 ? first + 1 : 0;
    do {
      Fit fit = fit_parts(model, samples, n, (guint[2]){first, second});
      keep(best, sums, &fit, loss(&fit, samples, n));
      second += step;
    } while (second < second_end);
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
  Fit best[CANDIDATES];
  double sums[CANDIDATES];
  for (int i = 0; i < CANDIDATES; i++)
    sums[i] = INFINITY;
  if (n <= (guint) shapes[model].lines)
    model = FIT_AB;
  try_breaks(model, samples, n, best, sums);
  int winner = 0;
  for (int i = 0; i < CANDIDATES && isfinite(sums[i]); i++) {
    sums[i] = polish(&best[i], samples, n);
    if (sums[i] < sums[winner])
      winner = i;
  }
  qsort(best[winner].lines, (gsize) best[winner].n_lines, sizeof(FitLine), compare_lines);
  return best[winner];
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
