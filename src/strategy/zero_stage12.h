/* zero_stage12.h - ZeRO stages 1 and 2 as DeepSpeedZeroOptimizer runs them: hooks for zero1.c and
 * zero2.c. */
#ifndef HIGHWATER_STRATEGY_ZERO_STAGE12_H
#define HIGHWATER_STRATEGY_ZERO_STAGE12_H

#include "strategy/zero_gradients.h"

/* Gradients are summed in the parameters' dtype or in fp32. */
gboolean zero_stage12_accept_accumulation(const PlanSpec *plan, const Network *network,
                                          GError **error);
void zero_stage12_setup(StrategyContext *x, int stage);
void zero_stage12_initialize(StrategyContext *x);
void zero_stage12_teardown(StrategyContext *x);
/* The rank whose buffer of own gradients is largest; -1: there is none. */
int zero_stage12_heaviest_rank(const PlanSpec *plan, const Network *network);
/* What a step of DeepSpeedZeroOptimizer sends and a rank holds. */
ExpectedTotals zero_expected(StrategyContext *x);
/* Whole 16-bit parameters everywhere, one copy of the optimizer's state. */
StateSpread zero_stage12_spread(const StrategyContext *x);
/* This rank's fp32 master partition, from the flat parameters. */
void zero_make_master(StrategyContext *x, Zero *z);

#endif
