/* verified_state.h - what optimizers read and wrote, of whole parameters, step by step; what each
 * rank holds; and the numbers that a run starts from. */
#ifndef HIGHWATER_SIMULATE_VERIFIED_STATE_H
#define HIGHWATER_SIMULATE_VERIFIED_STATE_H

#include "simulate/state_image.h"
#include "simulate/verification.h"
#include "simulate/verified_plan.h"
#include "simulate/verified_run.h"

/* A parameter in a step: an array for each thing compared, and how many ranks have written each
 * element. */
typedef struct {
  double *values[COMPARED]; /* NULL: nobody wrote any */
  char **written_by;        /* by rank: the op that wrote the gradient there; NULL: unknown */
  guint8 *writers;
} VerifiedTensor;

struct _VerifiedState {
  const VerifiedPlan *plan; /* borrowed */
  VerifiedRun run;
  GHashTable *parameters;  /* name -> index + 1 */
  double loss_scale;       /* of the loss that backward starts from */
  VerifiedTensor *tensors; /* by step and parameter */
  double *norms;           /* by step: as clipping took it on the last rank; NaN: nobody did */
  double *losses;          /* by step: sum over ranks */
  gint64 *peaks;           /* of the run */
  StateImage *held;        /* what each rank has by now */
  StateImage *saved;       /* what it had after the step that is saved; NULL: none is */
  int interrupted;         /* ops that an interruption changed */
  char *first_unknown;
  char *fault; /* the first one */
};

VerifiedState *verified_state_new(const VerifiedPlan *plan, const VerifiedRun *run);
void verified_state_free(VerifiedState *state);
G_DEFINE_AUTOPTR_CLEANUP_FUNC(VerifiedState, verified_state_free)
VerifiedTensor *verified_state_tensor(const VerifiedState *state, int step, int parameter);
/* A parameter by its name; -1: there is none. */
int verified_state_parameter(const VerifiedState *state, const char *name);
/* The norm of all gradients of a step: as clipping takes it, else as the optimizer reads them. */
double verified_state_norm(const VerifiedState *state, int step);

/* Hooks that fill it. */
NumericHooks verified_state_hooks(VerifiedState *state);

#endif
