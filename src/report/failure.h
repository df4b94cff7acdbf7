/* failure.h - what a worker's failure leaves: what is void, what survives where, how far back
 * training must go, and where the others hang.
 *
 * A function of the Program, of the Recording of a run in which nobody fails, and of one that ends
 * at the moment of the failure.  All ranks do the same at the same time, so both Recordings stand
 * for every rank up to then; what the others do afterwards is a walk over the Program
 * (program_reach.h). */
#ifndef HIGHWATER_REPORT_FAILURE_H
#define HIGHWATER_REPORT_FAILURE_H

#include "base/category.h"
#include "program/program_reach.h"
#include "record/recording.h"
#include "spec/plan_spec.h"

/* Reductions of gradients that one group has in the step, over all micro-batches. */
typedef struct {
  char *group; /* as collectives name it */
  int all, done, in_flight;
  int queued; /* issued, but waiting for operands or for their turn */
} ReductionState;

/* Persistent state: parameters, and what the optimizer keeps. */
typedef enum { HELD_PARAMETERS, HELD_OPTIMIZER_STATE, HELD_STATES } HeldState;

typedef struct {
  gint64 lost_bytes; /* the failed rank's part, in all its memory */
  int spread;        /* ranks over which one copy is spread */
  RankSet copies;    /* others that hold the same part */
  RankSet others;    /* others that hold other parts of it */
  int tensors,
      updated; /* that the step's optimizer writes; and of these by then, in part or whole */
  gint64 updated_bytes;
} HeldLoss;

typedef struct {
  char *communicator, *collective, *group; /* group may be NULL */
  gint64 number, bytes;
  int step;
  RankSet waiting, missing;
  gboolean failed_inside;
} StuckInfo;

typedef struct _Failure {
  FailureSpec spec;
  SimTime time;                 /* since the run began */
  int micro_batches;            /* of the step */
  int micro_batches_done;       /* whose backward the device had ended */
  gint64 alive[CATEGORY_COUNT]; /* on the device by then, rounded */
  GArray *reductions;           /* ReductionState, in order of their first collective */
  HeldLoss held[HELD_STATES];
  /* Steps that the other ranks have in their memory, each a whole update ago or none: */
  gboolean others_agree; /* all of them come to the same */
  int others_step;       /* that one, if they agree */
  gboolean from_others;  /* nothing is lost that no other rank has: training goes on from there */
  int last_step;         /* last consistent state: the end of this step; 0: the beginning */
  SimTime lost;          /* time since then */
  GArray *stuck;         /* StuckInfo */
  gint64 done[STREAM_COUNT]; /* kernels, copies and collectives that each stream had done by then,
                                since the first step */
} Failure;

/* Where the persistent state is: ranks over which copies are spread, bytes of the failed rank. */
typedef struct {
  int spread[HELD_STATES];
  gint64 bytes[HELD_STATES];
} FailureState;

typedef struct {
  const PlanSpec *plan;
  const Program *program;
  const Recording *whole;   /* nobody fails; all spans kept */
  const Recording *stopped; /* ended at the moment */
  SimTime time;             /* that moment */
  int issued_step;          /* where the host stood */
  guint issued_ops;
  FailureState state;
} FailureInput;

/* When the plan's failure happens in a run: the fraction of the time between the first and the last
 * thing that the device does for the phase; of the host's time in it, if it does nothing.  FALSE
 * and error when the run has no such phase. */
gboolean failure_moment(const PlanSpec *plan, const Recording *whole, SimTime *time,
                        GError **error);

Failure *failure_new(const FailureInput *input);
/* Nothing failed, nothing is lost; to be filled in. */
Failure *failure_empty(void);
void failure_free(Failure *failure);
G_DEFINE_AUTOPTR_CLEANUP_FUNC(Failure, failure_free)

/* "parameters", "optimizer_state". */
const char *failure_held_name(HeldState state);

#endif
