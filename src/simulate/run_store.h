/* run_store.h - a simulated run kept in a RUN folder, and one that is kept there asked for again.
 */
#ifndef HIGHWATER_SIMULATE_RUN_STORE_H
#define HIGHWATER_SIMULATE_RUN_STORE_H

#include "report/stored_run.h"
#include "simulate/run_simulation.h"

/* Writes it with its inputs as they were loaded, assignments applied.  report: as `run --json`
 * prints it; NULL: left out. */
gboolean run_store(const char *folder, const RunRequest *request, const RunResult *result,
                   const char *report, GError **error);

/* What was asked for, with the stored inputs; the caller clears it.  FALSE and error when the RUN
 * was measured or lacks them. */
gboolean run_request_from_stored(const StoredRun *run, RunRequest *request, GError **error);

#endif
