/* replay_report.h - what replaying a trace showed, for people and for programs. */
#ifndef HIGHWATER_CLI_REPLAY_REPORT_H
#define HIGHWATER_CLI_REPLAY_REPORT_H

#include "import/trace_replay.h"

/* Tables of peaks, streams, pools and phases.  Caller frees. */
char *replay_report_text(const AllocationTrace *trace, const TraceReplay *replay);
/* One JSON object, keys as in doc/formats.md.  Caller frees. */
char *replay_report_json(const AllocationTrace *trace, const TraceReplay *replay);

/* Memory of one stream and pool at the end. */
typedef struct {
  int stream; /* index into the trace's streams */
  gboolean small_pool;
  gint64 segments; /* contiguous ranges of reserved memory */
  gint64 reserved, allocated, largest_free;
} PoolSummary;

/* Sums up replay->blocks by stream and pool.  Caller frees the array. */
GArray *replay_pool_summaries(const TraceReplay *replay);

#endif
