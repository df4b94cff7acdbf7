/* memory_table.h - a run's memory by category at rest and at its peak: a bar each of a figure. */
#ifndef HIGHWATER_REPORT_MEMORY_TABLE_H
#define HIGHWATER_REPORT_MEMORY_TABLE_H

#include "report/run_tables.h"

#define MEMORY_FORMAT "highwater-memory-1"

/* Appends the table; see RunTable. */
gboolean memory_table(const Recording *recording, const RunInfo *info, const TableView *view,
                      GString *out, GError **error);

/* Appends the first line and the heads of the columns, then a run's rows under a name of one word
 * or in quotes: tables of several runs are made of these. */
void memory_table_begin(GString *out, const char *title);
void memory_table_rows(const Recording *recording, const char *name, GString *out);

#endif
