/* zero_offload.h - ZeRO stages 1 and 2 with the optimizer in the host's memory. */
#ifndef HIGHWATER_STRATEGY_ZERO_OFFLOAD_H
#define HIGHWATER_STRATEGY_ZERO_OFFLOAD_H

#include "strategy/zero_gradients.h"

gboolean zero_is_offloaded(const Zero *z);
/* Master weights, their gradient and staging buffers, after parameters were flattened. */
void zero_offload_initialize(StrategyContext *x, Zero *z);
/* A reduced gradient that this rank owns: kept on the host between micro-batches; in the last one
 * its norm and overflow test are taken and its slice goes to the optimizer. */
void zero_offload_gradient(StrategyContext *x, Zero *z, int parameter);
/* The step: scalars, the optimizer on the host, and the way back. */
void zero_offload_step(StrategyContext *x, Zero *z);
void zero_offload_clear(Zero *z);

#endif
