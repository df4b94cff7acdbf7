/* bf16_optimizer.h - ZeRO stage 1 with bf16 parameters and fp32 gradients as DeepSpeed's
 * BF16_Optimizer runs it: hooks for zero1.c. */
#ifndef HIGHWATER_STRATEGY_BF16_OPTIMIZER_H
#define HIGHWATER_STRATEGY_BF16_OPTIMIZER_H

#include "strategy/zero_gradients.h"

void bf16_optimizer_setup(StrategyContext *x);
void bf16_optimizer_initialize(StrategyContext *x);
/* Gradients that earlier micro-batches left are set to zero. */
void bf16_optimizer_begin_backward(StrategyContext *x);
/* They are added to the fp32 ones, which the last micro-batch reduces. */
void bf16_optimizer_after_graph(StrategyContext *x);
void bf16_optimizer_step(StrategyContext *x);

#endif
