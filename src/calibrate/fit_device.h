/* fit_device.h - from measurements to the constants of a device profile: those with which the
 * program's own kernel model gives the measured times. */
#ifndef HIGHWATER_CALIBRATE_FIT_DEVICE_H
#define HIGHWATER_CALIBRATE_FIT_DEVICE_H

#include "calibrate/measure.h"
#include "spec/device_profile.h"

/* A key of a device profile, as its file has it. */
typedef struct {
  const char *key;
  double value;        /* in the file's unit */
  double base;         /* what the profile had */
  int experiments;     /* that it rests on; 0: kept as it was */
  double median_error; /* of the model with it, beside the measured times; a fraction */
  double p90_error;
  double worst_error;
  char *worst; /* the experiment of that error, or NULL */
} FittedConstant;

/* An array of FittedConstant, one for every constant that calibration knows to measure, in the
 * order of the profile; those that nothing was measured for have no experiments.  Frees with
 * g_array_unref. */
GArray *fit_device(const DeviceProfile *base, const Measurements *measured);

#endif
