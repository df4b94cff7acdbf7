/* range_map.h - which rank holds which elements of the model's state, and where each range comes
 * from when a checkpoint is read into other groups or another number of shards.
 *
 * Values without a device or a Program: ranges of elements of parameters, by rank. */
#ifndef HIGHWATER_STRATEGY_RANGE_MAP_H
#define HIGHWATER_STRATEGY_RANGE_MAP_H

#include <glib.h>

/* Elements first .. first + elements - 1 of a parameter, in its own order. */
typedef struct {
  gint32 parameter;
  gint64 first, elements;
} StateRange;

/* What each rank holds; replicas of a rank count once. */
typedef struct {
  int ranks;
  GPtrArray *held; /* by rank: GArray of StateRange, in the order in which they lie there */
} StateLayout;

StateLayout *state_layout_new(int ranks);
void state_layout_free(StateLayout *layout);
G_DEFINE_AUTOPTR_CLEANUP_FUNC(StateLayout, state_layout_free)
/* Appends a range to what a rank holds; nothing for one without elements. */
void state_layout_add(StateLayout *layout, int rank, StateRange range);
/* What a rank, or a global one that is a replica of one (rank % ranks), holds: GArray of
 * StateRange; borrowed. */
const GArray *state_layout_held(const StateLayout *layout, int rank);
/* Is that element of a parameter in the range? */
gboolean state_range_has(const StateRange *range, int parameter, gint64 element);
/* Elements that a rank holds. */
gint64 state_layout_elements(const StateLayout *layout, int rank);

/* Part of a range, and the rank that it comes from. */
typedef struct {
  StateRange range;
  int source;
} StateRead;

/* What target's rank reads from source: StateRead, in the order of its ranges, each cut where the
 * source changes.  What no source holds is left out; free with g_array_unref. */
GArray *range_map(const StateLayout *source, const StateLayout *target, int rank);

/* NULL when every element of every parameter is held by exactly one rank of both, and each rank of
 * the target gets each of its own exactly once; else the first fault, as a line.  elements: of each
 * parameter.  Caller frees. */
char *range_map_fault(const StateLayout *source, const StateLayout *target, const gint64 *elements,
                      guint parameters);

#endif
