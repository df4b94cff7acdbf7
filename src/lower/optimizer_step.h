/* optimizer_step.h - gradient clipping and the optimizer: what they allocate and launch. */
#ifndef HIGHWATER_LOWER_OPTIMIZER_STEP_H
#define HIGHWATER_LOWER_OPTIMIZER_STEP_H

#include "strategy/torch_optimizer.h"

typedef struct _OptimizerState OptimizerState;

OptimizerState *optimizer_state_new(StrategyContext *x);
void optimizer_state_free(OptimizerState *state);

/* What the optimizer keeps of a parameter; borrowed. */
const OptimizedTensor *optimizer_state_tensor(const OptimizerState *state, int parameter);

/* The gradients that the optimizer will read: is there one, and all of them as operands of the next
 * kernel; returns their bytes. */
gboolean optimizer_has_gradients(const StrategyContext *x);
double optimizer_gradients(StrategyContext *x, Role role);
/* torch.nn.utils.clip_grad_norm_(parameters, foreach=True). */
void optimizer_clip(StrategyContext *x, const Strategy *strategy);
/* Makes the states by a step with gradients of zeros and a learning rate of zero, as who restores
 * them does. */
void optimizer_make_states(StrategyContext *x, OptimizerState *state);
/* optimizer.step(); state is made in the first one. */
void optimizer_step(StrategyContext *x, OptimizerState *state);

#endif
