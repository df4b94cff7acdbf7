/* plan_names.h - whether the names in a plan mean something in its network. */
#ifndef HIGHWATER_LOWER_PLAN_NAMES_H
#define HIGHWATER_LOWER_PLAN_NAMES_H

#include "network/network.h"
#include "spec/plan_spec.h"

/* Every pattern of "trainable" matches a parameter, every target of "lora" a layer that got an
 * adapter, checkpointing speaks of blocks that there are, and something trains.  FALSE and one line
 * that names the first that does not. */
gboolean plan_names_check(const PlanSpec *plan, const Network *network, GError **error);
/* Every pattern of the list under key matches a parameter. */
gboolean plan_names_check_list(const PlanSpec *plan, const Network *network, const char *key,
                               const NamePatterns *patterns, GError **error);

#endif
