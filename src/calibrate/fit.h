/* fit.h - lines through measured times of a collective: start-up, bandwidth, pipeline. */
#ifndef HIGHWATER_CALIBRATE_FIT_H
#define HIGHWATER_CALIBRATE_FIT_H

#include <glib.h>

typedef struct {
  gint64 bytes;   /* > 0 */
  double time_us; /* > 0 */
} FitSample;

/* Time of n bytes: alpha + slope n. */
typedef struct {
  double alpha_us; /* >= 0 */
  double slope;    /* us per byte, above 0 */
} FitLine;

/* The least of one to four lines, as NCCL has one for each protocol and algorithm. */
typedef enum { FIT_AB, FIT_MIN2, FIT_MIN3, FIT_MIN4, FIT_MODEL_COUNT } FitModel;
#define FIT_LINES_MAX 4
extern const char *const fit_model_names[]; /* "ab", "min2", ... */

typedef struct {
  FitModel model;
  int n_lines;
  FitLine lines[FIT_LINES_MAX]; /* by rising start-up */
} Fit;

/* Errors are fractions: |predicted / measured - 1|. */
typedef struct {
  double median, p90, worst;
  gint64 worst_bytes;
} FitErrors;

/* Predicted time in us. */
double fit_time_us(const Fit *fit, gint64 bytes);

/* Fits one model to n >= 1 samples in any order, with the least sum of soft absolute values of the
 * logarithms of predicted over measured (an outlier counts once, not squared). */
Fit fit_model(FitModel model, const FitSample *samples, guint n);

/* The model that predicts best what it has not seen, fitted to all samples: each is fitted to every
 * second one (by size) and compared with the rest, both ways; with fewer than ten, to all but one.
 * *holdout, if not NULL: its median error there; NAN where there is too little to try. */
Fit fit_choose(const FitSample *samples, guint n, double *holdout);

FitErrors fit_errors(const Fit *fit, const FitSample *samples, guint n);

/* Percentile in [0, 1] of values, which are sorted in place; NAN of none. */
double fit_percentile(double *values, guint n, double part);

#endif
