/* stand_in_probe.h - a device of known constants, with noise, for the tests of calibration. */
#ifndef HIGHWATER_TESTS_STAND_IN_PROBE_H
#define HIGHWATER_TESTS_STAND_IN_PROBE_H

#include "calibrate/device_probe.h"
#include "spec/device_profile.h"

typedef struct {
  DeviceProfile device; /* its truth */
  int ranks;
  double alpha_ns, busbw; /* of its collectives: alpha + factor * bytes / busbw */
  double noise;           /* relative standard deviation */
  double outliers;        /* fraction of the samples that take three times as long */
  double slower;          /* factor on everything: 0 is 1 */
  double launch_ns;
  gint64 refuses_bytes; /* experiments of more bytes fail; 0: none */
  guint32 seed;
} StandIn;

/* The caller closes it. */
DeviceProbe *stand_in_open(const StandIn *truth);
/* How often it was asked for samples, and for how many, warm-up included. */
int stand_in_series(const DeviceProbe *probe);
int stand_in_iterations(const DeviceProbe *probe);

#endif
