/* zero_redundancy.h - torch.distributed.optim.ZeroRedundancyOptimizer: each rank updates some of
 * the parameters and sends them to all others. */
#ifndef HIGHWATER_STRATEGY_ZERO_REDUNDANCY_H
#define HIGHWATER_STRATEGY_ZERO_REDUNDANCY_H

#include "strategy/strategy.h"

typedef struct _ZeroRedundancy ZeroRedundancy;

/* Of the ranks of the communicator, the plan's replicas; views: parameters_as_bucket_view. */
ZeroRedundancy *zero_redundancy_new(StrategyContext *x, gint32 communicator, gboolean views);
void zero_redundancy_free(ZeroRedundancy *z);
/* The constructor: with views, parameters move into a buffer for each rank. */
void zero_redundancy_construct(StrategyContext *x, ZeroRedundancy *z);
/* step(): the local update, then a broadcast by each owner. */
void zero_redundancy_step(StrategyContext *x, ZeroRedundancy *z);
/* Elements that a step broadcasts. */
gint64 zero_redundancy_elements_sent(const ZeroRedundancy *z, const Network *network);

/* By parameter, the rank that updates it; -1: it is frozen.  Caller frees. */
int *zero_redundancy_owners(const Network *network, int ranks);
/* The rank that updates most elements. */
int zero_redundancy_heaviest_rank(const Network *network, int ranks);

#endif
