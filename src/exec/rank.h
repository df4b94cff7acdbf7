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
  RankSpeed speed;
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
  /* A phase beyond the step begins or has been issued. */
  void (*on_beyond)(gpointer user, gboolean begins);
  gpointer user;
  int depth, beyond_depth; /* open ranges; where among them a phase beyond the step is, or 0 */
} Rank;

/* What a rank is made of; all borrowed, and outlives it. */
typedef struct {
  Timing *timing; /* of its Program */
  const AllocatorConfig *allocator;
  Engine *engine;
  Recording *recording;
  const Seat *seats; /* in each communicator of the Program */
  HostTurn *turn;    /* NULL: it is the only rank */
  RankSpeed speed;
  const char *name_suffix; /* "", or " of rank 5" */
  gboolean only_peaks;     /* the Recording gets no events, spans or ranges */
} RankSetup;

void rank_init(Rank *rank, const RankSetup *setup);
void rank_clear(Rank *rank);

/* The ops that follow belong to this step (0: the construction). */
void rank_begin(Rank *rank, int step, gboolean keeps_spans);

/* Issues all ops of a list.  FALSE when the run ends in it: out of memory, or the host waits for
 * ever. */
gboolean rank_run(Rank *rank, const OpList *list);
/* The same up to a time, beyond which the host issues nothing; FALSE then too.  *issued: how many
 * ops. */
gboolean rank_run_until(Rank *rank, const OpList *list, SimTime time, guint *issued);

#endif
