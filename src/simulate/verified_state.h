/* verified_state.h - what optimizers read and wrote, of whole parameters, step by step; and the
 * numbers that a run starts from. */
#ifndef HIGHWATER_SIMULATE_VERIFIED_STATE_H
#define HIGHWATER_SIMULATE_VERIFIED_STATE_H

#include "numeric/numeric_run.h"
#include "simulate/verification.h"

/* A parameter in a step: an array for each thing compared, and how many ranks have written each
 * element. */
typedef struct {
  double *values[COMPARED]; /* NULL: nobody wrote any */
  char **written_by;        /* by rank: the op that wrote the gradient there; NULL: unknown */
  guint8 *writers;
} VerifiedTensor;

typedef struct {
  const Scenario *scenario;
  const StateLayout *layout; /* borrowed */
  GHashTable *parameters;    /* name -> index + 1 */
  guint64 seed;
  int ranks, steps;
  double loss_scale;
  VerifiedTensor *tensors; /* by step and parameter */
  double *norms;  /* by step: as clipping took it on the last rank; NaN: nobody did */
  double *losses; /* by step: sum over ranks */
  gint64 *peaks;  /* of the run */
  char *first_unknown;
  char *fault; /* the first one */
} VerifiedState;

VerifiedState *verified_state_new(const Scenario *scenario, const StateLayout *layout, int steps,
                                  guint64 seed);
void verified_state_free(VerifiedState *state);
VerifiedTensor *verified_state_tensor(const VerifiedState *state, int step, int parameter);
/* The norm of all gradients of a step: as clipping takes it, else as the optimizer reads them. */
double verified_state_norm(const VerifiedState *state, int step);

/* Hooks that fill it. */
NumericHooks verified_state_hooks(VerifiedState *state);

#endif
