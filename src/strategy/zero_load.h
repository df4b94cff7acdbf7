/* zero_load.h - engine.load_checkpoint of DeepSpeed: what the stages' load_model hooks share. */
#ifndef HIGHWATER_STRATEGY_ZERO_LOAD_H
#define HIGHWATER_STRATEGY_ZERO_LOAD_H

#include "strategy/zero_gradients.h"

/* Strategy.accept_load of all stages: refuses what the engine cannot read. */
gboolean zero_accept_load(const PlanSpec *plan, const Network *network, GError **error);

/* module.load_state_dict: the weights, read whole, go into the parameters, which are storages of
 * their own or (flat not NULL, for those that train) views of it.  Returns the bytes read. */
gint64 zero_load_weights(StrategyContext *x, const DeepSpeed *d, const ZeroFlat *flat);

/* optimizer.load_state_dict: new states from what was read; old ones go when all are there.  With
 * masters the values are read too.  Tensors' values are where they are updated, or NO_STORAGE for
 * the device. */
void zero_load_optimizer(StrategyContext *x, int n, OptimizedTensor *const *tensors,
                         gboolean masters);

/* Strategy.load_model of stages 1 and 2, and of stage 3. */
gint64 zero_stage12_load(StrategyContext *x);
gint64 zero3_load(StrategyContext *x);

#endif
