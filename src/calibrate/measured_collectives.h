/* measured_collectives.h - the collectives among measurements, fitted. */
#ifndef HIGHWATER_CALIBRATE_MEASURED_COLLECTIVES_H
#define HIGHWATER_CALIBRATE_MEASURED_COLLECTIVES_H

#include "calibrate/calibration.h"
#include "calibrate/measure.h"

/* An array of CalibratedCollective, one for each kind, placement and group that has samples of
 * at least two sizes, alone on their links; compared with what the cluster predicts.  source names
 * where the measurements are from.  Caller frees. */
GPtrArray *measured_collectives(const Measurements *measured, const ClusterSpec *cluster,
                                const char *source);

#endif
