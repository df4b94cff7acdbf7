/* run_simulation.h - from what the command line asked for to a Recording and what reports say
 * beside it. */
#ifndef HIGHWATER_SIMULATE_RUN_SIMULATION_H
#define HIGHWATER_SIMULATE_RUN_SIMULATION_H

#include "memory/caching_allocator.h"
#include "record/recording.h"
#include "report/run_info.h"
#include "simulate/scenario.h"

/* Most steps of a run. */
#define RUN_STEPS_MOST 10000

typedef struct {
  ScenarioInputs inputs;
  int steps, rank;
  gboolean all_ranks;  /* each rank by itself */
  gboolean keep_spans; /* of all steps, not only of the last one */
  gint64 memory_limit; /* of the allocator, bytes; 0: what the device has left */
  /* The allocator never runs out, while frameworks see the device's memory or the limit. */
  gboolean without_limit;
} RunRequest;

typedef struct {
  Recording *recording;
  RunInfo *info;
  AllocatorConfig allocator; /* of every rank */
} RunResult;

/* Frees what they own, its strings and inputs; assignments are borrowed. */
void run_request_clear(RunRequest *request);
void run_result_clear(RunResult *result);

/* Reads the inputs, lowers and executes.  FALSE and error when they are wrong or do not go
 * together; running out of memory is a result.  The caller clears the
 * result. */
gboolean run_simulation(const RunRequest *request, RunResult *result, GError **error);

#endif
