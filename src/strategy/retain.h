/* retain.h - what somebody keeps beyond its time: full parameters of a group or a module, losses
 * (the plan's "retain"). */
#ifndef HIGHWATER_STRATEGY_RETAIN_H
#define HIGHWATER_STRATEGY_RETAIN_H

#include "strategy/strategy.h"

/* Does the plan retain anything but losses? */
gboolean retain_needs_groups(const PlanSpec *plan);
/* Refuses names that are neither those of groups nor of modules with parameters. */
gboolean retain_accept(const StrategyContext *x, GError **error);
/* Frees an entry of x->retained. */
void retain_free(gpointer retained);

/* A module was called: clones of its full parameters are made if the plan says so. */
void retain_module(StrategyContext *x, int module);
/* A loss is about to go: keeps it if the plan says so. */
void retain_loss(StrategyContext *x, StorageId loss);

#endif
