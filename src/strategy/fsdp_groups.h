/* fsdp_groups.h - the plan's own groups of modules ("fsdp.groups"). */
#ifndef HIGHWATER_STRATEGY_FSDP_GROUPS_H
#define HIGHWATER_STRATEGY_FSDP_GROUPS_H

#include "strategy/strategy.h"

/* Does the plan list groups?  Then blocks, embedding and head have none of their own. */
gboolean fsdp_groups_given(const PlanSpec *plan);
/* Can they be honoured?  in_checkpoints: also inside of checkpointed blocks.  Errors name what
 * matches nothing, what is in two groups or inside of another, and options that say something else
 * about groups. */
gboolean fsdp_groups_accept(const PlanSpec *plan, const Network *network, gboolean in_checkpoints,
                            GError **error);
/* The number of the group that each parameter is in, where it is in one; nothing is filled in where
 * a name matches no module. */
void fsdp_groups_owners(const PlanSpec *plan, const Network *network, int *owner);
/* Makes a unit of each accepted group, in the order of their first modules; owner as in
 * strategy_add_module. */
void fsdp_groups_make_units(StrategyContext *x, int *owner);
/* Brings units (int) into the order in which forward begins them. */
void fsdp_groups_sort_by_call(const StrategyContext *x, GArray *units);

#endif
