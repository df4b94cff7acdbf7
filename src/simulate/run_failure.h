/* run_failure.h - a run in which a rank fails, as the plan asks. */
#ifndef HIGHWATER_SIMULATE_RUN_FAILURE_H
#define HIGHWATER_SIMULATE_RUN_FAILURE_H

#include "exec/executor.h"
#include "report/failure.h"
#include "simulate/scenario.h"

/* Runs the Program up to the failure.  NULL and error when the run has no such moment.  *failure:
 * NULL when memory runs out in the step of the failure or before; the Recording says so then. */
Recording *run_failure(const Scenario *s, const Lowered *lowered, const ExecutorConfig *config,
                       Failure **failure, GError **error);

#endif
