/* executor.h - runs a Program on a simulated rank: host, streams, communicators, allocator. */
#ifndef HIGHWATER_EXEC_EXECUTOR_H
#define HIGHWATER_EXEC_EXECUTOR_H

#include "exec/rank_classes.h"
#include "exec/rank_speed.h"
#include "memory/caching_allocator.h"
#include "program/program.h"
#include "record/recording.h"
#include "spec/cluster_spec.h"

/* Where the host stood when a run was stopped. */
typedef struct {
  int step;  /* from 1 */
  guint ops; /* of the step's list that it had issued */
} ExecutorStop;

typedef struct {
  const ClusterSpec *cluster;
  AllocatorConfig allocator;
  gboolean built_elsewhere; /* memory_limit holds from the first step on */
  gint64 outside_allocator_bytes;
  gboolean keep_spans;        /* FALSE: of the last step asked for; none if the run ends before */
  gboolean keeps_gradients;   /* zero_grad frees nothing: gradients are there at rest */
  const char *title;          /* may be NULL */
  gboolean stops_when_steady; /* ends with the step after one that repeats the one before exactly,
                                 when the rest are alike: the Recording has fewer steps then */
  SimTime stop_at;            /* the run ends at that time; 0: with its last step */
  ExecutorStop *stop;         /* filled in when it ends there; may be NULL */
} ExecutorConfig;

/* Executes the construction and every step, at most 32767 of them.  Out of memory ends the run and
 * is in the Recording; so is a wait that nothing ends.  A run that is stopped leaves out what would
 * have ended later.  Never fails.  The caller frees the
 * Recording.  With HIGHWATER_CHECK=1 in the environment a Program that breaks its rules, or an
 * allocator that breaks its own, ends the process with a message. */
Recording *executor_run(const Program *program, const ExecutorConfig *config);

/* A class of ranks that is simulated once. */
typedef struct {
  const Program *program; /* all of the same communicators */
  RankSpeed speed;
} SimulatedRank;

/* What became of it. */
typedef struct {
  gboolean out_of_memory;
  SimTime waited; /* in the whole run for other ranks to arrive in collectives */
  SimTime last_step;
  gint64 peak_reserved; /* bytes, of all steps */
} RankOutcome;

/* The same for several classes of ranks, which meet in their collectives.  ranks and outcomes have
 * one row for each class; the Recording is that of class `described`.  When memory runs out for one
 * of them the others end where they wait for it. */
Recording *executor_run_ranks(const RankClasses *classes, const SimulatedRank *ranks, int described,
                              const ExecutorConfig *config, RankOutcome *outcomes);

#endif
