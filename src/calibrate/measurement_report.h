/* measurement_report.h - what was measured on GPUs, and which constants follow, as text and JSON.
 */
#ifndef HIGHWATER_CALIBRATE_MEASUREMENT_REPORT_H
#define HIGHWATER_CALIBRATE_MEASUREMENT_REPORT_H

#include <cjson/cJSON.h>

#include "calibrate/fit_device.h"

/* What a report on measurements speaks of; all borrowed. */
typedef struct {
  const Measurements *measured;
  const GArray *constants;       /* FittedConstant */
  const GArray *groups_left_out; /* RankGroup; may be NULL */
  const char *base;              /* device that the constants are compared with */
} MeasurementReport;

void measurement_report_text(const MeasurementReport *report, GString *out);
/* Adds keys to the object. */
void measurement_report_json(const MeasurementReport *report, cJSON *object);

/* The largest part of the memory's bandwidth that traffic beside it took from an element-wise
 * kernel; 0: not measured. */
double measured_memory_share(const Measurements *measured);

#endif
