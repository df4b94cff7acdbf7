/* calibration_report.h - what was measured and how well lines fit it, as text and JSON. */
#ifndef HIGHWATER_CALIBRATE_CALIBRATION_REPORT_H
#define HIGHWATER_CALIBRATE_CALIBRATION_REPORT_H

#include "calibrate/calibration.h"

/* collectives: CalibratedCollective; refused: messages of inputs that could not be used.  Caller
 * frees. */
char *calibration_report_text(const GPtrArray *collectives);
char *calibration_report_json(const GPtrArray *collectives, const GPtrArray *refused);

#endif
