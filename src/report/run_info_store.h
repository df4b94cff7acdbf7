/* run_info_store.h - a RunInfo, and what was asked of the run, as a file: run.json of a RUN. */
#ifndef HIGHWATER_REPORT_RUN_INFO_STORE_H
#define HIGHWATER_REPORT_RUN_INFO_STORE_H

#include "report/run_info.h"

#define RUN_INFO_FORMAT "highwater-run-1"

/* What was asked of a simulation. */
typedef struct {
  int steps; /* 0: none was asked for, the run was measured */
  int rank;
  gboolean all_ranks;
  gint64 memory_limit; /* of the allocator, bytes; 0: what the device has left */
} RunAsked;

/* One JSON document, the same for the same values; every number keeps its digits.  Caller frees. */
char *run_info_print(const RunInfo *info, const RunAsked *asked);

/* Reads it; name is used in messages.  What a file does not say is not known, as in an empty
 * RunInfo.  NULL and error ("NAME: key 'info.groups[2].parameters': ...") when it says anything
 * else, or in another way. Caller frees. */
RunInfo *run_info_parse(const char *name, const char *text, gsize length, RunAsked *asked,
                        GError **error);

#endif
