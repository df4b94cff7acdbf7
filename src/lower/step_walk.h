/* step_walk.h - one training step, the same for all strategies. */
#ifndef HIGHWATER_LOWER_STEP_WALK_H
#define HIGHWATER_LOWER_STEP_WALK_H

#include "lower/grad_scaler.h"
#include "lower/optimizer_step.h"
#include "lower/tape.h"

typedef struct {
  StrategyContext *x;
  const Strategy *strategy;
  Tape *tape;
  Tape *tables; /* whose network says how large the tables are; NULL: tape's own */
  OptimizerState *optimizer;
  StorageId *inputs;             /* by micro-batch, then input */
  GradScaler scaler;             /* of plans that have one */
  StorageId items, running_loss; /* of the Trainer's loop: trainer_loop.h */
} StepWalk;

/* Parameters, tables, and the tensors of the batch. */
void step_walk_construct(StepWalk *w);
/* zero_grad, micro-batches, clipping, optimizer. */
void step_walk_step(StepWalk *w);

#endif
