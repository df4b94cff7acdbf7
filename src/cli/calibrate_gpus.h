/* calibrate_gpus.h - highwater calibrate on this machine's GPUs, and from stored measurements. */
#ifndef HIGHWATER_CLI_CALIBRATE_GPUS_H
#define HIGHWATER_CLI_CALIBRATE_GPUS_H

#include <glib.h>

#include "calibrate/traced_ops.h"

/* The cluster that is compared with and begun with when nothing says which. */
#define CALIBRATE_BASE "h100-8"

typedef struct {
  const char *network, *plan; /* whose shapes and groups are measured; network NULL: usual ones */
  char **assignments;
  const char *device;  /* preset or file that the profile begins with; NULL: by the GPU's name */
  const char *cluster; /* likewise; NULL: the first with that device */
  const char *output;  /* cluster file; may be NULL */
  const char *samples; /* file for all samples; may be NULL */
  const char *table;   /* file for collectives and their fits; may be NULL */
  const char *budget;  /* "5min", "90s" or seconds; NULL: 5min */
  gboolean json;
} CalibrateRequest;

/* Measures, fits, prints, writes.  Returns the exit status. */
int calibrate_gpus(const CalibrateRequest *request, GError **error);
/* The same from a file of samples (its name and text) that was written before. */
int calibrate_samples(const CalibrateRequest *request, const char *name, const char *text,
                      gsize length, GError **error);

/* The same from traces of PyTorch's profiler, of one step or of several ranks of a job; ranks and
 * nodes: of the job, 0 as the traces say. */
int calibrate_traces(const CalibrateRequest *request, const GPtrArray *paths, TracedJob job,
                     GError **error);

/* Seconds of "5min", "1.5h", "90s" or "90". */
gboolean parse_budget(const char *text, double *seconds, GError **error);

#endif
