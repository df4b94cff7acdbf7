/* rank.h - one simulated rank: a host that issues a Program's ops in order, and its device. */
#ifndef HIGHWATER_EXEC_RANK_H
#define HIGHWATER_EXEC_RANK_H

#include "exec/communicator.h"
#include "exec/device_memory.h"
#include "exec/gpu.h"
#include "exec/host_thread.h"
#include "exec/labels.h"
#include "exec/progress.h"
#include "exec/span_log.h"

typedef struct {
  const Program *program;
  Labels labels;
  Timing timing;
  SpanLog spans;
  Progress progress;
  HostThread host;
  Gpu gpu;
  Communicators communicators;
  DeviceMemory memory;
  Recorder *recorder;
  const OpList *last_list; /* executed before, if any */
  guint check_every;       /* checks the allocator after so many ops; 0 (the default): never */
  guint unchecked;         /* ops since */
  char *waits;             /* NULL, or for what the host waits for ever */
} Rank;

/* The engine and the Recording are borrowed and outlive the rank. */
void rank_init(Rank *rank, const Program *program, const ClusterSpec *cluster,
               const AllocatorConfig *allocator, Engine *engine, Recording *recording);
void rank_clear(Rank *rank);

/* Issues all ops of a list.  FALSE when the run ends in it: out of memory, or the host waits for
 * ever. */
gboolean rank_run(Rank *rank, const OpList *list);

#endif
