/* summary_json.h - the report as JSON, format "highwater-report-1"; every key is in doc/formats.md.
 */
#ifndef HIGHWATER_REPORT_SUMMARY_JSON_H
#define HIGHWATER_REPORT_SUMMARY_JSON_H

#include "report/summary.h"

/* The document, ending with a newline.  Sizes and counts are whole numbers, times seconds.  Caller
 * frees with g_free. */
char *summary_json(const ReportModel *model);

#endif
