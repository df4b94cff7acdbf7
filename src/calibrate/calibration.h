/* calibration.h - measured collectives with the lines that were fitted to them, wherever they were
 * measured: the value between the importers, the probes of GPUs, the reports and the profile. */
#ifndef HIGHWATER_CALIBRATE_CALIBRATION_H
#define HIGHWATER_CALIBRATE_CALIBRATION_H

#include "calibrate/fit.h"
#include "collective/collective.h"

/* What was measured. */
typedef struct {
  const char *source;     /* a file, or "this machine" */
  guint line;             /* of the file, where the rows begin; 0: no file */
  const char *collective; /* nccl-tests' name */
  int ranks, nodes;       /* ranks > 1; nodes 1..ranks */
  guint rejected_rows;
  const char *remark; /* "16 ranks by device lines, NVIDIA H200, NCCL 2.26.6" or NULL */
} MeasuredCollective;

/* Errors of a prediction that knew nothing of the measurement, by a cluster's constants. */
typedef struct {
  char *cluster;               /* its name; NULL: not compared */
  double median, large_median; /* of all samples; of those from 16 MiB up, NAN: none */
} DefaultErrors;
#define LARGE_FROM (16 * MIB)

typedef struct {
  MeasuredCollective about; /* with copies of its strings */
  GArray *samples;          /* FitSample, by size; every measurement */
  double factor;            /* of bus bandwidth */
  Fit fit;
  FitErrors errors;
  double holdout_median; /* see fit_choose */
  DefaultErrors default_errors;
} CalibratedCollective;

/* Fits samples (n >= 1, in any order). */
CalibratedCollective *calibrated_collective_new(const MeasuredCollective *about,
                                                const FitSample *samples, guint n);
void calibrated_collective_free(CalibratedCollective *collective);
G_DEFINE_AUTOPTR_CLEANUP_FUNC(CalibratedCollective, calibrated_collective_free)
/* An empty array of them, which it owns. */
GPtrArray *calibrated_collectives_new(void);

/* Bus bandwidth (bytes per second) of a fitted line. */
double calibrated_line_busbw(const CalibratedCollective *collective, int line);

/* The largest bus bandwidth (bytes per second) of a sample, from its size and time. */
double calibrated_largest_busbw(const CalibratedCollective *collective);

/* Compares the samples with what the cluster predicts without measured tables. */
void calibrated_collective_compare(CalibratedCollective *collective, const ClusterSpec *cluster);

/* The kind of a collective by nccl-tests' name; FALSE: none. */
gboolean calibrated_kind(const char *collective, CollectiveKind *kind);

#endif
