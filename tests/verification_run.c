/* verification_run.c - small plans of every strategy, and their verification. */
#include "verification_run.h"

#include "simulation.h"
#include "tap_main.h"

gboolean
verification_run(const Plan *plan, const Trial *trial, VerificationReport *report, GError **error)
{
  VerificationRequest request = {.steps = 3,
                                 .seed = 1,
                                 .orders = trial->orders,
                                 .skipped = trial->skipped,
                                 .tolerance = 1e-9,
                                 .change = trial->change,
                                 .how = trial->how};
  gboolean ok =
      simulation_inputs(plan->network, plan->plan, plan->options, &request.inputs, error) &&
      verify(&request, report, error);
  simulation_inputs_clear(&request.inputs);
  return ok;
}

void
verification_check_steps(const Plan *plan, const VerificationReport *report)
{
  ck_assert_msg(report->fault == NULL, "%s: %s", plan->options, report->fault);
  for (guint i = 0; i < report->steps->len; i++) {
    const VerifiedStep *s = &g_array_index(report->steps, VerifiedStep, i);
    ck_assert_double_gt(s->loss, 1); /* about ln(19) = 2.9 */
    ck_assert_double_lt(s->loss, 9);
    ck_assert_double_gt(s->norm, 0);
  }
}
