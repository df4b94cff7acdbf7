/* verified_plan.h - a plan's Programs for all ranks, and those of the unsharded run beside it. */
#ifndef HIGHWATER_SIMULATE_VERIFIED_PLAN_H
#define HIGHWATER_SIMULATE_VERIFIED_PLAN_H

#include "simulate/scenario.h"

typedef struct {
  Scenario *scenario;
  StateLayout *layout;      /* who holds what */
  GPtrArray *lowered;       /* Lowered *: by global rank */
  const Program **programs; /* theirs */
  int ranks;
} VerifiedPlan;

/* Reads a plan.  NULL and error: the inputs are wrong, or numbers cannot say anything of such a
 * plan. */
VerifiedPlan *verified_plan_new(const ScenarioInputs *inputs, GError **error);
/* Lowers so many steps for all ranks.  FALSE and error likewise. */
gboolean verified_plan_lower(VerifiedPlan *plan, int steps, GError **error);
/* The same network under strategy none on one rank, which accumulates over all micro-batches of all
 * ranks of a plan, read from these inputs.  NULL and error when there is nothing to compare with.
 */
VerifiedPlan *verified_plan_reference(const ScenarioInputs *inputs, const VerifiedPlan *of,
                                      int steps, GError **error);
/* A plan on a mesh of one rank, which does not clip, with so many micro-batches, lowered for one
 * step.  NULL and error when it is no plan on one rank. */
VerifiedPlan *verified_plan_alone(const ScenarioInputs *inputs, const VerifiedPlan *of,
                                  int micro_batches, GError **error);
void verified_plan_free(VerifiedPlan *plan);
G_DEFINE_AUTOPTR_CLEANUP_FUNC(VerifiedPlan, verified_plan_free)

/* In a step, of all ranks. */
gint64 verified_plan_samples(const VerifiedPlan *plan);
/* What it trains, as far as plans say: network, batch, optimizer, trained parameters.  Caller
 * frees. */
char *verified_plan_training(const VerifiedPlan *plan);
/* Do both say the same, but for a failure?  Then their Programs are equal.  FALSE and error: one is
 * no JSON. */
gboolean verified_plans_are_same(const ScenarioInputs *a, const ScenarioInputs *b, gboolean *same,
                                 GError **error);
/* Should both come to the same losses?  FALSE and error, which says what they differ in. */
gboolean verified_plans_compare(const VerifiedPlan *a, const VerifiedPlan *b, GError **error);

#endif
