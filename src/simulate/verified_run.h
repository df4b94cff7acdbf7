/* verified_run.h - one execution of a plan's Programs on numbers, from the beginning of the
 * training or from what a checkpoint says. */
#ifndef HIGHWATER_SIMULATE_VERIFIED_RUN_H
#define HIGHWATER_SIMULATE_VERIFIED_RUN_H

#include "numeric/numeric_run.h"
#include "simulate/state_image.h"
#include "simulate/verified_plan.h"

typedef struct _VerifiedState VerifiedState;

/* A state as the ranks of a plan hold it, and whole for those that hold more than their part. */
typedef struct {
  StateImage *held, *whole;
  StateLayout *whole_layout;
} RestoredState;

/* Reads a checkpoint into a plan's ranks. */
RestoredState *restored_state_new(const VerifiedPlan *plan, const StateImage *checkpoint,
                                  const StateReading *reading);
void restored_state_free(RestoredState *state);
G_DEFINE_AUTOPTR_CLEANUP_FUNC(RestoredState, restored_state_free)

/* What a rank does not get of the state that a run starts from: it makes its own. */
typedef struct {
  int rank;
  gboolean values, states;
} ForgottenState;

typedef struct {
  int steps;                  /* the last one, counted from the beginning of the training */
  int before;                 /* steps that are not executed: what they left is the start */
  const RestoredState *start; /* borrowed; NULL: first values */
  int save_after;             /* keeps the state that the ranks have after this step; 0: none */
  ForgottenState forgets;
  const NumericInterruption *interruption; /* borrowed; NULL: none */
  guint64 seed, order;
  gboolean rounds;         /* to the plan's dtypes */
  gboolean starts_rounded; /* first values are */
  DType starts_as;         /* ... to this dtype */
  gint64 samples_before;   /* of each step, before the first rank's */
} VerifiedRun;

/* Executes the Programs of all ranks: as many steps as are left, at most those that the plan was
 * lowered for.  The plan, and what the run borrows, live longer than the state.  NULL and error:
 * something in them cannot be executed.  Caller frees with verified_state_free. */
VerifiedState *verified_run(const VerifiedPlan *plan, const VerifiedRun *run, GError **error);
/* Takes over the ranks' peaks of a run in the order of issue (0). */
void verified_keep_peaks(const VerifiedState *state, int order, gint64 *peaks);

#endif
