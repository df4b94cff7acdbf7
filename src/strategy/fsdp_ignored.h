/* fsdp_ignored.h - parameters that fully_shard leaves alone (ignored_params; "fsdp.ignored"). */
#ifndef HIGHWATER_STRATEGY_FSDP_IGNORED_H
#define HIGHWATER_STRATEGY_FSDP_IGNORED_H

#include "strategy/strategy.h"

/* Does the plan name the parameter?  Patterns are those of "trainable". */
gboolean fsdp_ignores(const PlanSpec *plan, const char *name);
/* Refuses a pattern that matches nothing, and what PyTorch does not do, or nothing here simulates.
 */
gboolean fsdp_ignored_accept(const PlanSpec *plan, const Network *network, GError **error);

#endif
