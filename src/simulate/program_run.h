/* program_run.h - runs a Program that somebody wrote or kept: no network and no plan, only what a
 * rank issues. */
#ifndef HIGHWATER_SIMULATE_PROGRAM_RUN_H
#define HIGHWATER_SIMULATE_PROGRAM_RUN_H

#include "simulate/run_simulation.h"

/* Is the network of a request the text of a Program?  Told by its first line. */
gboolean is_program(const InputText *input);

/* Reads and checks a Program's text.  NULL and error when it is malformed, or issues what no
 * execution may do. */
Program *program_read(const InputText *input, GError **error);

/* As run_simulation(), for such a request: cluster, spans and memory limit count, the steps are the
 * Program's own.  What a Program does not say (parameters, tokens, FLOPs, the plan) is not known in
 * the RunInfo; groups are those that its all-gathers are named after. */
gboolean program_run(const RunRequest *request, RunResult *result, GError **error);

#endif
