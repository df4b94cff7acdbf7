/* program_reach.h - how far the ranks of a Program get when one of them stops: a walk over its ops
 * without times.
 *
 * All ranks issue the same Program.  What a rank issues is done unless it comes after something
 * that is not: on its stream, behind an event, in its communicator's queue; a host that waits for
 * such a thing issues nothing more.  A collective needs all its members.  Ranks differ only in
 * which of their communicators reach the one that stopped, so they fall into a few classes: with
 * shards of 4 and 2 replicas, for rank 3, these are 3; 0-2; 7; 4-6. */
#ifndef HIGHWATER_PROGRAM_PROGRAM_REACH_H
#define HIGHWATER_PROGRAM_PROGRAM_REACH_H

#include "program/program.h"
#include "program/rank_set.h"

/* A rank that stops. */
typedef struct {
  int rank;            /* global */
  int ranks;           /* all there are */
  int step;            /* from 1: in which it stops */
  const gint64 *done;  /* by communicator: its collectives that ended before, since the run began */
  const gint64 *begun; /* those that it had joined: done, and one if it stopped in the middle */
} ReachInput;

/* A collective that some of its members have joined and others never will. */
typedef struct {
  gint32 communicator;          /* id */
  const Collective *collective; /* of the Program */
  gint64 number;                /* from 1: in its communicator, since the run began */
  int step;                     /* that issues it */
  RankSet waiting;              /* have joined; of all groups of the communicator that wait alike */
  RankSet missing;              /* never arrive, because they wait elsewhere or stopped */
  gboolean stopped_inside;      /* the rank that stopped had joined it */
} StuckCollective;

/* Ranks that get equally far, without the one that stopped. */
typedef struct {
  RankSet ranks;
  int updates, updates_done; /* ops of the step's optimizer phase that write parameters or optimizer
                                state: all, and those it comes to */
} ReachClass;

typedef struct {
  GArray *stuck;   /* StuckCollective, by communicator */
  GArray *classes; /* ReachClass */
} Reach;

/* The step and the one after it are walked.  Groups of communicators must nest: strides and sizes
 * divide each other. */
Reach *program_reach(const Program *program, const ReachInput *input);
void reach_free(Reach *reach);
G_DEFINE_AUTOPTR_CLEANUP_FUNC(Reach, reach_free)

/* Does the op write parameters or optimizer state? */
gboolean program_writes_state(const Program *program, const ProgramOp *op);

#endif
