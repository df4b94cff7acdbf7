/* verified_failure.h - a worker fails in the middle of a step: training goes on from the last
 * consistent state as if it had not; and from what the failure makes invalid it does not. */
#ifndef HIGHWATER_SIMULATE_VERIFIED_FAILURE_H
#define HIGHWATER_SIMULATE_VERIFIED_FAILURE_H

#include "simulate/verified_judgement.h"

/* Borrowed, all of it. */
typedef struct {
  const VerificationRequest *request;
  const VerifiedPlan *plan;           /* in which the rank fails */
  const VerifiedPlan *goes_on;        /* the plan after that: the same one, or another */
  const VerifiedJudgement *judgement; /* of both */
  VerifiedRun run;                    /* that nothing interrupts */
} FailureRequest;

/* As many steps as a verification of a plan with a failure has to have: at least two after it. */
int verified_failure_steps(const PlanSpec *plan, int steps);

/* After which step the last consistent state is, by what the simulation says of the failure.
 * FALSE and error: the run has no such moment. */
gboolean verified_failure_after(const VerifiedPlan *plan, int *after, GError **error);

/* Executes the steps up to the last consistent state, the step that a rank fails in as far as all
 * ranks come, and from that state on to the last step; then what goes on from invalid states.  Adds
 * the steps to the report.  FALSE and error: the run has no such moment, or something cannot be
 * executed. */
gboolean verified_failure(const FailureRequest *request, int order, VerificationReport *report,
                          GError **error);
void verified_failure_clear(VerifiedFailure *failure);

#endif
