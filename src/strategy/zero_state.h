/* zero_state.h - which rank holds which elements of the state under ZeRO. */
#ifndef HIGHWATER_STRATEGY_ZERO_STATE_H
#define HIGHWATER_STRATEGY_ZERO_STATE_H

#include "strategy/strategy.h"

/* Hooks of strategies: state_ranks and state_ranges. */
int zero_state_ranks(const StrategyContext *x);
void zero_stage12_state_ranges(const StrategyContext *x, StateLayout *layout);
void zero3_state_ranges(const StrategyContext *x, StateLayout *layout);
/* Bytes of fp32 weights and moments in the part of a checkpoint that a rank writes; without ZeRO
 * rank 0 writes all. */
gint64 zero_owned_bytes(const StrategyContext *x, int rank);
/* save_model: all that this rank writes. */
void zero_save_state(StrategyContext *x, StateDict *dict);

#endif
