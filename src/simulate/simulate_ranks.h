/* simulate_ranks.h - a run in which ranks differ: which classes there are, their Programs, and what
 * the slowest of them costs the others. */
#ifndef HIGHWATER_SIMULATE_SIMULATE_RANKS_H
#define HIGHWATER_SIMULATE_SIMULATE_RANKS_H

#include "exec/executor.h"
#include "simulate/run_simulation.h"

/* Whether the request or the plan asks for more than one rank. */
gboolean ranks_are_asked_for(const RunRequest *request, const Scenario *s);

/* Executes all classes; lowered is of the rank that the request describes.  Fills
 * result->recording, and what result->info says about ranks.  FALSE and error when a rank's step
 * cannot be lowered. */
gboolean simulate_ranks(const RunRequest *request, const Scenario *s, const Lowered *lowered,
                        const ExecutorConfig *config, RunResult *result, GError **error);

#endif
