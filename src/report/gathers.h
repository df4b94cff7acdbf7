/* gathers.h - every all-gather of a run, and how long the compute stream stood still for it. */
#ifndef HIGHWATER_REPORT_GATHERS_H
#define HIGHWATER_REPORT_GATHERS_H

#include "record/recording.h"
#include "report/run_info.h"

/* One of them; moments as in the recording. */
typedef struct {
  int step;          /* from 1 */
  guint group;       /* position in info->groups */
  const char *phase; /* in which it was issued: "forward"; NULL: not known; borrowed */
  int micro_batch;   /* from 0; -1: not known */
  SimTime issued;    /* by the host */
  SimTime begun, ready;
  gboolean is_used; /* a kernel of the group was issued after it; otherwise the rest is 0 */
  SimTime needed;   /* that kernel was issued, and the compute stream had done all before it */
  SimTime waited;   /* from then on until it was ready; 0: it was ready in time */
  gint64 bytes;     /* gathered */
} Gather;

/* Gather, in order of their ends, of the steps whose spans the recording has, without phases beyond
 * them. step: of that one alone; 0: all.  Free with g_array_unref. */
GArray *gathers_find(const Recording *recording, const RunInfo *info, int step);

#endif
