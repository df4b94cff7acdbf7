/* run_facts.h - what reports say of a scenario beside its Recording. */
#ifndef HIGHWATER_SIMULATE_RUN_FACTS_H
#define HIGHWATER_SIMULATE_RUN_FACTS_H

#include "report/run_info.h"
#include "simulate/scenario.h"

/* Caller frees. */
RunInfo *run_facts(const Scenario *scenario, const Lowered *lowered, int rank);

#endif
