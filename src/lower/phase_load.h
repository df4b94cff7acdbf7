/* phase_load.h - a checkpoint is read, also into other groups or another number of shards than it
 * was written from. */
#ifndef HIGHWATER_LOWER_PHASE_LOAD_H
#define HIGHWATER_LOWER_PHASE_LOAD_H

#include "lower/lower.h"
#include "lower/step_walk.h"

/* Where this rank's part comes from; NULL without a load.  Errors: a plan that cannot read a
 * checkpoint, a source that cannot be, ranges that would not arrive exactly once. */
typedef struct _LoadMap LoadMap;
gboolean load_map_new(const LowerInput *in, LoadMap **map, GError **error);
void load_map_free(LoadMap *map);

/* Writes the phase.  Returns what it moves; sources: gint64 by rank of the source, bytes that this
 * rank reads of its part. */
LoweredPhase phase_load(StepWalk *w, const LoadMap *map);

#endif
