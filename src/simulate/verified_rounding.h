/* verified_rounding.h - what rounding explains: a plan executed in its own dtypes, beside the mean
 * of what each of its ranks computes alone in the same dtypes.
 *
 * The ranks' own gradients are the very addends of the plan's reductions, bit for bit, so that only
 * the order of additions, divisors and casts stand between their mean and what the plan's optimizer
 * reads: a bound follows (doc/method.md).  Each step is looked at for itself: ranks alone begin it
 * with the state that the plan has come to. */
#ifndef HIGHWATER_SIMULATE_VERIFIED_ROUNDING_H
#define HIGHWATER_SIMULATE_VERIFIED_ROUNDING_H

#include "simulate/verified_state.h"

typedef struct _VerifiedRounding VerifiedRounding;

/* Executes each rank of a lowered plan, read from these inputs, alone.  run: that of the plan,
 * which begins with a state (NULL: with first values).  NULL and error: the plan says nothing on
 * one rank, or something cannot be executed. */
VerifiedRounding *verified_rounding_new(const ScenarioInputs *inputs, const VerifiedPlan *plan,
                                        const VerifiedRun *run, const StateImage *from,
                                        GError **error);
void verified_rounding_free(VerifiedRounding *rounding);
G_DEFINE_AUTOPTR_CLEANUP_FUNC(VerifiedRounding, verified_rounding_free)

/* Compares what the plan came to in those steps that both have; more than the bound explains is the
 * report's fault. */
void verified_rounding_compare(const VerifiedRounding *rounding, const VerifiedState *state,
                               VerificationReport *report);
/* The first parameter whose gradient in a step is beyond the bound; NULL: rounding explains all. */
const char *verified_rounding_unexplained(const VerifiedRounding *rounding,
                                          const VerifiedState *state, int step);

#endif
