/* measure.h - measures a list of experiments on a device: warm-up, rounds in different order,
 * repeats until the median is known, within a time budget. */
#ifndef HIGHWATER_CALIBRATE_MEASURE_H
#define HIGHWATER_CALIBRATE_MEASURE_H

#include "calibrate/device_probe.h"
#include "calibrate/sample_stats.h"

typedef struct {
  int done, of; /* experiments of this round */
  int round, rounds;
  double elapsed_s, budget_s;
  const char *experiment; /* the one that begins */
} MeasureProgress;

typedef struct {
  double budget_s;     /* no experiment begins later */
  int rounds;          /* passes over the list, each in an order of its own */
  int warmup;          /* iterations before each series */
  int least, most;     /* iterations of a series: more until the precision is reached */
  double precision;    /* of the median, a fraction: enough */
  gint64 device_bytes; /* experiments that need more are skipped; 0: no limit */
  guint32 seed;        /* of the orders */
  const volatile int
      *interrupted; /* ends the measuring where it is when it becomes true; or NULL */
  void (*progress)(const MeasureProgress *progress, gpointer data); /* may be NULL */
  gpointer data;
} MeasureOptions;

/* Budget 5 minutes, 3 rounds, 10 warm-up iterations, series of 10 to 40, precision 1 %. */
MeasureOptions measure_defaults(void);

typedef struct {
  Experiment experiment;
  GArray *samples;   /* double, ns; all of them, in the order they were taken */
  GArray *medians;   /* double, ns: of each round's series */
  double median_ns;  /* of the rounds' medians; 0 without samples */
  SampleStats stats; /* of all samples */
  char *failure;     /* why there are no samples: the device's message, or NULL */
} Measurement;

typedef struct {
  GPtrArray *measurements; /* Measurement *, in the order of the list */
  ProbeFacts facts;
  char *conditions_before, *conditions_after; /* may be NULL */
  gboolean complete;                          /* all rounds were done */
  gboolean interrupted;
  gboolean
      in_step;  /* kernels of a real step that one GPU was seen to run, not run to be measured */
  char *origin; /* then: what was seen, for people; else NULL */
  double elapsed_s;
} Measurements;

/* Empty ones; adding an experiment that has no samples yet; what follows from its samples. */
Measurements *measurements_new(void);
Measurement *measurements_add(Measurements *measurements, const Experiment *experiment);
void measurement_conclude(Measurement *measurement);

/* Never fails: an experiment that the device refuses carries its message. */
Measurements *measure(DeviceProbe *probe, const Experiment *experiments, guint count,
                      const MeasureOptions *options);
void measurements_free(Measurements *measurements);
G_DEFINE_AUTOPTR_CLEANUP_FUNC(Measurements, measurements_free)

#endif
