/* verification_run.c - small plans of every strategy, and their verification. */
#include "verification_run.h"

#include "simulation.h"

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
