/* calibration_report.h - what was measured and how well lines fit it, as text and JSON. */
#ifndef HIGHWATER_CALIBRATE_CALIBRATION_REPORT_H
#define HIGHWATER_CALIBRATE_CALIBRATION_REPORT_H

#include <cjson/cJSON.h>

#include "calibrate/calibration.h"

/* collectives: CalibratedCollective.  Caller frees. */
char *calibration_report_text(const GPtrArray *collectives);
/* Adds keys to the object.  refused: messages of inputs that could not be used, or NULL. */
void calibration_report_json(const GPtrArray *collectives, const GPtrArray *refused, cJSON *object);
/* The fitted lines: a new array of objects. */
cJSON *calibration_lines_json(const CalibratedCollective *collective);

#endif
