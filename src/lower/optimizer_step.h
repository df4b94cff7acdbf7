/* optimizer_step.h - gradient clipping and the optimizer: what they allocate and launch. */
#ifndef HIGHWATER_LOWER_OPTIMIZER_STEP_H
#define HIGHWATER_LOWER_OPTIMIZER_STEP_H

#include "strategy/strategy.h"

typedef struct _OptimizerState OptimizerState;

OptimizerState *optimizer_state_new(StrategyContext *x);
void optimizer_state_free(OptimizerState *state);

/* torch.nn.utils.clip_grad_norm_(parameters, foreach=True). */
void optimizer_clip(StrategyContext *x, const Strategy *strategy);
/* optimizer.step(); state is made in the first one. */
void optimizer_step(StrategyContext *x, OptimizerState *state);

#endif
