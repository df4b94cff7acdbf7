/* run_facts.h - what reports say of a scenario beside its Recording. */
#ifndef HIGHWATER_SIMULATE_RUN_FACTS_H
#define HIGHWATER_SIMULATE_RUN_FACTS_H

#include "report/run_info.h"
#include "simulate/scenario.h"

/* What the machine says about a Program over so many ranks: its names, nodes, constants, and what
 * the communicators run over. */
void run_facts_machine(RunInfo *info, const ClusterSpec *cluster, const Program *program,
                       int ranks);

/* Caller frees. */
RunInfo *run_facts(const Scenario *scenario, const Lowered *lowered, int rank);

#endif
