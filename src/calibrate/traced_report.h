/* traced_report.h - the ops and collectives of a step's trace with their times, as text and JSON.
 */
#ifndef HIGHWATER_CALIBRATE_TRACED_REPORT_H
#define HIGHWATER_CALIBRATE_TRACED_REPORT_H

#include <cjson/cJSON.h>

#include "import/kineto_trace.h"

void traced_report_text(const KinetoTrace *trace, GString *out);
/* Adds keys to the object. */
void traced_report_json(const KinetoTrace *trace, cJSON *object);

#endif
