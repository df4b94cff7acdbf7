/* run_facts.h - what reports say of a scenario beside its Recording. */
#ifndef HIGHWATER_CLI_RUN_FACTS_H
#define HIGHWATER_CLI_RUN_FACTS_H

#include "cli/scenario.h"
#include "report/run_info.h"

/* Caller frees. */
RunInfo *run_facts(const Scenario *scenario, const Lowered *lowered, int rank);

#endif
