/* plan_text.h - the plan that was found, and what its alternatives lose, for people and programs.
 */
#ifndef HIGHWATER_SEARCH_PLAN_TEXT_H
#define HIGHWATER_SEARCH_PLAN_TEXT_H

#include "search/plan_search.h"

/* network, cluster: what they are called. */
typedef struct {
  const PlanSearch *search;
  const char *network, *cluster;
} PlanAnswer;

/* What an alternative loses against the chosen plan: "120 ms more computation (recomputation),
 * ...", "lacks 3.2 GiB", or what it has in common.  Caller frees. */
char *plan_alternative_reason(const PlanSearch *search, const PlanAlternative *alternative);
/* What else it does in another way: "checkpointing full, micro-batch 1 x 8"; "": nothing.  Caller
 * frees. */
char *plan_alternative_rest(const PlanSearch *search, const PlanAlternative *alternative);

/* The whole answer.  plan_file: where the plan was written, or NULL. */
void plan_text(const PlanAnswer *answer, const char *plan_file, GString *out);
/* The same as one JSON object, format "highwater-plan-1". */
void plan_json(const PlanAnswer *answer, GString *out);

#endif
