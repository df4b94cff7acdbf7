/* timeline_table.h - the memory timeline as a table for gnuplot and other readers of columns. */
#ifndef HIGHWATER_REPORT_TIMELINE_TABLE_H
#define HIGHWATER_REPORT_TIMELINE_TABLE_H

#include "record/recording.h"

#define TIMELINE_FORMAT "highwater-timeline-1"

/* Most changes in the table of `run --timeline`, and in a RUN directory's timeline.tsv. */
enum { TIMELINE_CHANGES = 1 << 20, TIMELINE_FIGURE_CHANGES = 2048, TIMELINE_LEAST_CHANGES = 8 };
/* Tensors that are named at the peak; others are counted. */
enum { TIMELINE_ALIVE_ROWS = 12 };

typedef struct {
  guint max_changes; /* at least TIMELINE_LEAST_CHANGES */
  /* Every change is two rows, what was and what is: a line through the rows is the true staircase.
   * Else one row. */
  gboolean corners;
  SimTime from, to; /* only what lies between these moments; to 0: until the end */
} TimelineStyle;

/* When the host had issued a step: the end of its last phase. */
SimTime timeline_host_end(const Recording *recording, const StepRecord *step);

/* Appends the table to out: blocks "memory", "phases", "steps", "modules", "marks", "alive"
 * (doc/formats.md), separated by two empty lines as gnuplot's `index` wants.  A recording with more
 * changes of allocated memory is thinned: every row that stays is a true one, and the highest and
 * lowest allocated and the highest reserved of each stretch stay, so no peak is lost. */
void timeline_table(const Recording *recording, const TimelineStyle *style, GString *out);

#endif
