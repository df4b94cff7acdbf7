/* sweep_facts.h - the plans of a sweep's variants read before anything runs: unknown keys are
 * found, and what all of them have in common. */
#ifndef HIGHWATER_SEARCH_SWEEP_FACTS_H
#define HIGHWATER_SEARCH_SWEEP_FACTS_H

#include "search/sweep.h"

/* SweepFact, nothing known yet. */
GArray *sweep_facts_new(void);
void sweep_facts_free(GArray *facts);

/* Reads networks, clusters and plans of all variants: fills the title, the facts and the global
 * batches, and holds these equal if that is asked for.  A plan that is refused is left to its
 * variant, but FALSE and error when a key is unknown, a network or cluster is wrong, or no plan can
 * be read. */
gboolean sweep_read_plans(Sweep *sweep, const SweepRequest *request, GError **error);

#endif
