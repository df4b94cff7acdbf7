/* none.c - one rank, or every rank by itself: no sharding, no communication. */
#include "strategy/strategy.h"

static gboolean
accept(const PlanSpec *plan, const Network *network, GError **error)
{
  (void) network;
  if (plan->shard * plan->replicate != 1)
    return plan_spec_refuse(plan, error, "mesh",
                            "strategy none has one rank: shard 1 and replicate 1");
  return strategy_accept_unsharded(plan, error);
}

const Strategy strategy_none = {
    .name = "none",
    .summary = "one rank, nothing sharded",
    .grad_scaler = GRAD_SCALER_LOCAL,
    .accept = accept,
    .construct = strategy_construct_whole,
    .saves_states = TRUE,
    .initializes = INITIALIZES_META | INITIALIZES_ON_DEVICE | INITIALIZES_ON_CPU,
    .state_ranges = strategy_state_whole,
};
