/* groups_table.h - the groups of parameters that a strategy gathers together, and each gather. */
#ifndef HIGHWATER_REPORT_GROUPS_TABLE_H
#define HIGHWATER_REPORT_GROUPS_TABLE_H

#include "report/run_tables.h"

#define GROUPS_FORMAT "highwater-groups-1"

/* Appends blocks "groups" and "gathers", of the last complete step; see RunTable.  Error: no groups
 * are known. */
gboolean groups_table(const Recording *recording, const RunInfo *info, const TableView *view,
                      GString *out, GError **error);

#endif
