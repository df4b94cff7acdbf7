/* zero_reduce.h - how ZeRO stages 1 and 2 reduce the gradients that wait in a bucket. */
#ifndef HIGHWATER_STRATEGY_ZERO_REDUCE_H
#define HIGHWATER_STRATEGY_ZERO_REDUCE_H

#include "strategy/zero_gradients.h"

/* Reduces what is listed and hands it to its owners (reduce_ipg_grads). */
void zero_reduce(StrategyContext *x, Zero *z);
/* The gradient is a view of that storage from now on; its old storage lets go. */
void zero_gradient_becomes(StrategyContext *x, Zero *z, int parameter, StorageId storage,
                           gint64 offset);
/* param.grad = None. */
void zero_gradient_drop(StrategyContext *x, Zero *z, int parameter);
/* Drops reduced gradients that were kept until their reduction is known to be done. */
void zero_drop_stale(StrategyContext *x, Zero *z);
/* Makes the fp32 partition of zeros unless it is there. */
void zero_make_compact(StrategyContext *x, Zero *z, StreamId stream);

#endif
