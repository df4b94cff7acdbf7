/* equivalence_internal.h - a check that goes on: ranks, and what is found of each. */
#ifndef HIGHWATER_SEARCH_EQUIVALENCE_INTERNAL_H
#define HIGHWATER_SEARCH_EQUIVALENCE_INTERNAL_H

#include "search/equivalence.h"
#include "search/gradient_flow.h"

/* One rank's Program, followed. */
typedef struct {
  int rank, like;
  const Program *program;
  GradientFlow *flow;
  gint64 *updated;      /* by parameter: elements */
  const gint64 *layout; /* by parameter: elements that it holds; NULL: unknown */
} FollowedRank;

typedef struct {
  const Scenario *s;
  const PlanSpec *plan;
  const Network *network;
  EquivalenceReport *report;
  gint64 **layout; /* by rank of the shard group and parameter; NULL: not sharded, or not known */
  int layout_ranks;
  FollowedRank *ranks;
  int count;
} EquivalenceCheck;

/* Remembers what is wrong; the first one stays. */
void equivalence_violate(EquivalenceCheck *c, const char *format, ...) G_GNUC_PRINTF(2, 3);
ParameterEvidence *equivalence_evidence(const EquivalenceCheck *c, int parameter);
/* Elements of a parameter that a rank should update, as far as the layout says: else those of all.
 */
gint64 equivalence_held(const EquivalenceCheck *c, const FollowedRank *r, int parameter);

/* Reductions and updates of one rank, whose flow is there: fills in what it updates. */
void equivalence_check_rank(EquivalenceCheck *c, FollowedRank *r);

#endif
