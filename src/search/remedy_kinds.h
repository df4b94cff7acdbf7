/* remedy_kinds.h - which changes of a plan there are: for each kind when it applies and what it
 * assigns. */
#ifndef HIGHWATER_SEARCH_REMEDY_KINDS_H
#define HIGHWATER_SEARCH_REMEDY_KINDS_H

#include "report/run_info.h"
#include "simulate/scenario.h"

/* What a kind looks at. */
typedef struct {
  const PlanSpec *plan;
  const Network *network;
  const RunInfo *info; /* its groups */
} RemedyPlan;

typedef struct {
  const char *name, *summary;
  /* Adds assignments (char **, NULL-terminated) of each change of the kind that this plan has not
   * already; none: it does not apply. */
  void (*propose)(const RemedyPlan *plan, GPtrArray *proposals);
} RemedyKind;

extern const RemedyKind remedy_kinds[]; /* ends with a NULL name */

/* Adds one change: assignments up to NULL, copied. */
void remedy_propose(GPtrArray *proposals, ...) G_GNUC_NULL_TERMINATED;

/* The largest groups in two each, by lists (remedy_split.c). */
void remedy_split_largest(const RemedyPlan *plan, GPtrArray *proposals);

#endif
