/* prefetch_cost.h - what prefetching under a memory budget costs and gains beside the framework's
 * own.
 */
#ifndef HIGHWATER_SIMULATE_PREFETCH_COST_H
#define HIGHWATER_SIMULATE_PREFETCH_COST_H

#include "simulate/run_simulation.h"

/* If the plan gives a budget: runs once more without it, and fills info->prefetch. */
void prefetch_cost(const RunRequest *request, const Scenario *s, RunInfo *info);

#endif
