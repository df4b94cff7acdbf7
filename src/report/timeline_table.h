/* timeline_table.h - the memory timeline as a table for gnuplot and other readers of columns. */
#ifndef HIGHWATER_REPORT_TIMELINE_TABLE_H
#define HIGHWATER_REPORT_TIMELINE_TABLE_H

#include "record/recording.h"

/* How a table begins; the recording's title follows on the line. */
#define TIMELINE_FORMAT "# highwater-timeline-1: "

/* Most rows of `run --timeline`, and of a RUN directory's timeline.tsv, which figures read. */
enum { TIMELINE_ROWS = 1 << 20, TIMELINE_FIGURE_ROWS = 4096 };

/* Appends the table to out: blocks "memory", "phases", "steps", "marks" (doc/formats.md), separated
 * by two empty lines as gnuplot's `index` wants.  A recording with more than max_rows (at least 8)
 * changes of allocated memory is thinned: every row that stays is a true one, and the highest and
 * lowest allocated and the highest reserved of each stretch stay, so no peak is lost. */
void timeline_table(const Recording *recording, guint max_rows, GString *out);

#endif
