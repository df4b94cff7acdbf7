/* verified_judgement.h - what a run must come to.
 *
 * In fp64 that is what the unsharded run came to.  In the plan's dtypes each step is judged by what
 * rounding explains (verified_rounding.h); what a restart reads must be, bit by bit, the state of
 * the run that nothing interrupts, and under the same plan so must be all that follows. */
#ifndef HIGHWATER_SIMULATE_VERIFIED_JUDGEMENT_H
#define HIGHWATER_SIMULATE_VERIFIED_JUDGEMENT_H

#include "simulate/verified_state.h"

/* What is judged.  Borrowed, all of it. */
typedef struct {
  const VerificationRequest *request;
  const VerifiedState *reference; /* of the unsharded run */
  const VerifiedPlan *plan;
  const ScenarioInputs *inputs; /* of the plan */
  const VerifiedPlan *goes_on;  /* after `after` steps; NULL: the plan runs to its end */
  const ScenarioInputs *goes_on_inputs;
  int after;
  gboolean fails;  /* states that a failure of the plan makes invalid are judged, too */
  VerifiedRun run; /* of the plan, whole, in the order of issue */
} JudgedRuns;

typedef struct _VerifiedJudgement VerifiedJudgement;

/* Runs what others are compared with.  NULL and error: something cannot be executed. */
VerifiedJudgement *verified_judgement_new(const JudgedRuns *runs, GError **error);
void verified_judgement_free(VerifiedJudgement *judgement);
G_DEFINE_AUTOPTR_CLEANUP_FUNC(VerifiedJudgement, verified_judgement_free)

/* The one that is judged, before another one may go on. */
const VerifiedPlan *verified_judgement_plan(const VerifiedJudgement *judgement);
/* Does the very same plan go on, in the plan's dtypes? */
gboolean verified_judgement_is_of_bits(const VerifiedJudgement *judgement);
/* Adds steps of the plan to a report, and the first fault if that has none yet. */
void verified_judge(const VerifiedJudgement *judgement, const VerifiedState *state,
                    VerificationReport *report);
/* The same of what goes on, which began with this state (NULL: from first values). */
void verified_judge_rest(const VerifiedJudgement *judgement, const RestoredState *start,
                         const VerifiedState *state, VerificationReport *report);
/* Where, if anywhere, the plan comes to something else when it goes on from an invalid state. */
void verified_judge_trial(const VerifiedJudgement *judgement, const VerifiedState *state,
                          VerifiedTrial *trial);

#endif
