/* gathers_table.h - every all-gather as a row: when it was issued, begun, needed and ready. */
#ifndef HIGHWATER_REPORT_GATHERS_TABLE_H
#define HIGHWATER_REPORT_GATHERS_TABLE_H

#include "report/run_tables.h"

#define GATHERS_FORMAT "highwater-gathers-1"

/* Appends a block "gathers" of the steps whose spans the run has kept; see RunTable.  Error: no
 * groups are known. */
gboolean gathers_table(const Recording *recording, const RunInfo *info, const TableView *view,
                       GString *out, GError **error);

#endif
