/* streams_table.h - what each stream and the host did, as a table for gnuplot. */
#ifndef HIGHWATER_REPORT_STREAMS_TABLE_H
#define HIGHWATER_REPORT_STREAMS_TABLE_H

#include "report/run_tables.h"

#define STREAMS_FORMAT "highwater-streams-1"

/* Appends blocks "lanes" (those streams that did something in the view, the host first) and
 * "spans"; see RunTable.  With max_rows, neighbours of one kind on a lane are joined where the gap
 * between them is too short to be seen.  Error: the recording has no spans there. */
gboolean streams_table(const Recording *recording, const RunInfo *info, const TableView *view,
                       GString *out, GError **error);

#endif
