/* phases.h - what a plan does beyond its steps: evaluation, checkpoints. */
#ifndef HIGHWATER_LOWER_PHASES_H
#define HIGHWATER_LOWER_PHASES_H

#include "lower/phase_load.h"
#include "lower/step_walk.h"

typedef struct _Phases Phases;

/* Refuses what the plan's phases ask for and cannot have. */
gboolean phases_accept(const LowerInput *in, GError **error);

/* walk and evaluation are borrowed, load is taken (NULL: nothing is loaded).  To be made before the
 * construction. */
Phases *phases_new(StepWalk *walk, const Network *evaluation, LoadMap *load);
void phases_free(Phases *phases);

/* LoweredPhase of lower.h; borrowed. */
GArray *phases_moved(const Phases *phases);

/* The model is built. */
void phases_constructed(Phases *phases);
/* Writes what follows a step (from 1) of so many. */
void phases_after_step(Phases *phases, int step, int steps);

#endif
