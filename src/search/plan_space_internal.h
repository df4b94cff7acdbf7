/* plan_space_internal.h - how the axes of a plan space are filled. */
#ifndef HIGHWATER_SEARCH_PLAN_SPACE_INTERNAL_H
#define HIGHWATER_SEARCH_PLAN_SPACE_INTERNAL_H

#include "search/plan_space.h"

/* A row of the table.  values: separated by spaces; each may have its label in front of a '|', and
 * several assignments separated by '&'.  Axes without values are filled in for the ranks and the
 * batch at hand. */
typedef struct {
  const char *name, *key, *values;
  const char *fallback;   /* what the key is where a plan does not say it, as JSON */
  const char *strategies; /* that have it, separated by spaces; NULL: all */
  gboolean accumulates;   /* only with several micro-batches a step */
} PlanAxisInfo;

extern const PlanAxisInfo plan_axes[AXIS_COUNT];

/* assignments: separated by '&'. */
void plan_space_add_choice(PlanSpace *space, PlanAxis axis, const char *label,
                           const char *assignments);
/* Does an assignment of the base give the key, or a section that it is in? */
gboolean plan_space_is_given(const RunRequest *base, const char *key);
/* FSDP2 over all ranks, over parts of them with replicas, whole replicas, and the three stages of
 * ZeRO; the base plan's own way, whatever it is. */
void plan_space_fill_shardings(PlanSpace *space, const RunRequest *base, const PlanSpec *plan);

#endif
