/* run_simulation.h - from what the command line asked for to a Recording and what reports say
 * beside it. */
#ifndef HIGHWATER_CLI_RUN_SIMULATION_H
#define HIGHWATER_CLI_RUN_SIMULATION_H

#include "record/recording.h"
#include "report/run_info.h"

/* An input file, read but not parsed. */
typedef struct {
  char *name; /* its path, or "standard input": what messages call it */
  char *text;
  gsize length;
} RunInput;

typedef struct {
  RunInput network, plan, cluster;
  char **assignments; /* --set, in order; NULL-terminated, may be NULL */
  int steps, rank;
  gint64 memory_limit; /* of the allocator, bytes; 0: what the device has left */
} RunRequest;

typedef struct {
  Recording *recording;
  RunInfo *info;
} RunResult;

/* Reads the inputs, lowers and executes.  FALSE and error when they are wrong or do not go
 * together; running out of memory is a result.  The caller frees what the result points to. */
gboolean run_simulation(const RunRequest *request, RunResult *result, GError **error);

#endif
