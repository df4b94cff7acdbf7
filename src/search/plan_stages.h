/* plan_stages.h - the stages of a search: coarse axes with each other, fine ones around the best.
 */
#ifndef HIGHWATER_SEARCH_PLAN_STAGES_H
#define HIGHWATER_SEARCH_PLAN_STAGES_H

#include "search/plan_trials.h"

/* Every sharding with every checkpointing, from the largest micro-batch down.  Counts what is left
 * out.  FALSE, as below: it was stopped. */
gboolean plan_stages_coarse(PlanTrials *run);
/* One fine axis after the other, around the best and around faster ones that nearly fit.  starts:
 * where that has led, the best first (guint, indices); to be freed either way. */
gboolean plan_stages_fine(PlanTrials *run, GArray **starts);
/* Fine choices that lose little with each other around these, as far as that is not too much. */
gboolean plan_stages_combine(PlanTrials *run, const GArray *starts);

#endif
