/* plan_values.h - a plan as a flat list of keys with the values that hold, defaults too. */
#ifndef HIGHWATER_IMPORT_PLAN_VALUES_H
#define HIGHWATER_IMPORT_PLAN_VALUES_H

#include <cjson/cJSON.h>

#include "spec/plan_spec.h"

/* An object whose keys are those of plans, with their dots ("mesh.shard"): what all strategies
 * share, the options of the strategy's section, and whole sections that are seldom there
 * ("phases", "retain"), those only where the plan has them.  document: the plan's text as a tree,
 * which spec was read from.  Caller frees with cJSON_Delete. */
cJSON *plan_values(const PlanSpec *spec, const cJSON *document);

#endif
