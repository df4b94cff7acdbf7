/* summary_parts.h - the parts of a ReportModel that have files of their own; only summary*.c
 * include this. */
#ifndef HIGHWATER_REPORT_SUMMARY_PARTS_H
#define HIGHWATER_REPORT_SUMMARY_PARTS_H

#include <cjson/cJSON.h>

#include "program/program.h"
#include "report/summary.h"

/* Fills time and communication (summary_time.c); both need steps and last_step. */
void summary_time(ReportModel *model);
/* Fills groups (summary_groups.c). */
void summary_groups(ReportModel *model);

/* Adds the key "failure": an object, or null (failure_json.c). */
void summary_json_failure(cJSON *report, const Failure *failure);

/* Index of a stream in the recording, or -1 when it has none of that name. */
int summary_stream(const Recording *recording, StreamId stream);
/* Whether the span is work on the compute stream: kernels and copies, not collectives, not lost
 * time. */
gboolean summary_is_compute(const Span *span, int compute_stream);

#endif
