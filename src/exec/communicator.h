/* communicator.h - collectives: each communicator is a FIFO behind whatever streams issue to it.
 *
 * A collective begins when the stream that issued it has come to it, its predecessors on the same
 * communicator are done, and all ranks are there; the stream goes on when it is done. Communicators
 * overlap, and those over the same links share them. */
#ifndef HIGHWATER_EXEC_COMMUNICATOR_H
#define HIGHWATER_EXEC_COMMUNICATOR_H

#include "exec/gpu.h"

typedef struct {
  Stream *queue;
  Seat seat;
  SharedLink *link; /* NULL: no other communicator uses the same */
} CommunicatorQueue;

/* engine, spans and timing are set before the rest is filled in. */
typedef struct {
  Engine *engine;
  SpanLog *spans;
  const Timing *timing;
  CommunicatorQueue *queues; /* of each communicator of the Program */
} Communicators;

/* seats: of each communicator of the Program.  Queues are called as the communicators, and what
 * follows. */
void communicators_init(Communicators *set, const Seat *seats, const char *name_suffix);
void communicators_clear(Communicators *set);

/* Issues a COLLECTIVE on its stream of the device; now is the host's time. */
void communicators_issue(Communicators *set, Gpu *gpu, SimTime now, const ProgramOp *op);

#endif
