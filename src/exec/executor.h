/* executor.h - runs a Program on a simulated rank: host, streams, communicators, caching allocator.
 */
#ifndef HIGHWATER_EXEC_EXECUTOR_H
#define HIGHWATER_EXEC_EXECUTOR_H

#include "memory/caching_allocator.h"
#include "program/program.h"
#include "record/recording.h"
#include "spec/cluster_spec.h"

typedef struct {
  const ClusterSpec *cluster;
  AllocatorConfig allocator; /* memory_limit applies after construction */
  gint64 outside_allocator_bytes;
  gboolean keep_spans; /* FALSE: spans are summed, not kept (the Recording's spans stay, but only of
                          the last step) */
  const char *title;
} ExecutorConfig;

/* Executes the construction and every step.  Out of memory ends the run and is in the Recording.
 * Never fails. */
Recording *executor_run(const Program *program, const ExecutorConfig *config);

#endif
