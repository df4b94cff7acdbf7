/* phase_save.h - a checkpoint is made: the state dict, and its way to the host's memory. */
#ifndef HIGHWATER_LOWER_PHASE_SAVE_H
#define HIGHWATER_LOWER_PHASE_SAVE_H

#include "lower/lower.h"
#include "lower/step_walk.h"

/* Refuses what the plan's save asks for and its strategy cannot give. */
gboolean phase_save_accept(const PlanSpec *plan, const Strategy *strategy, GError **error);
/* Writes the phase; the state dict is dropped after it.  Returns what it moves. */
LoweredPhase phase_save(StepWalk *w);

#endif
