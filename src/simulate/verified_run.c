/* verified_run.c - a plan's Programs executed once, and checkpoints read into its ranks. */
#include "simulate/verified_run.h"

#include <string.h>

#include "simulate/verified_state.h"

RestoredState *
restored_state_new(const VerifiedPlan *plan, const StateImage *checkpoint,
                   const StateReading *reading)
{
  RestoredState *r = g_new0(RestoredState, 1);
  const Network *network = plan->scenario->network;
  r->held = state_image_read(checkpoint, plan->layout, plan->ranks, reading);
  r->whole_layout = state_layout_new(1);
  for (guint i = 0; i < network->parameters->len; i++)
    state_layout_add(r->whole_layout, 0,
                     (StateRange){(gint32) i, 0, network_parameter(network, (int) i)->elements});
  r->whole = state_image_read(checkpoint, r->whole_layout, 1, reading);
  return r;
}

void
restored_state_free(RestoredState *r)
{
  if (r == NULL)
    return;
  state_image_free(r->held);
  state_image_free(r->whole);
  state_layout_free(r->whole_layout);
  g_free(r);
}

VerifiedState *
verified_run(const VerifiedPlan *plan, const VerifiedRun *run, GError **error)
{
  const PlanSpec *spec = plan->scenario->plan;
  g_autoptr(VerifiedState) state = verified_state_new(plan, run);
  NumericConfig config = {.ranks = plan->ranks,
                          .programs = plan->programs,
                          .allocator = allocator_config_default(),
                          .hooks = verified_state_hooks(state),
                          .rounds = run->rounds,
                          .samples_before = run->samples_before,
                          .seed = run->seed,
                          .order = run->order,
                          .micro_batch = spec->micro_batch,
                          .micro_batches = spec->accumulation.steps,
                          .steps_before = run->before,
                          .updates_before = run->start != NULL ? run->start->held->updates : 0,
                          .interruption = run->interruption,
                          .steps = run->steps - run->before};
  config.allocator.roundup_power2_divisions = spec->allocator.roundup_power2_divisions;
  NumericOutcome outcome = {0};
  gboolean ok = numeric_run(&config, &outcome, error);
  state->peaks = g_steal_pointer(&outcome.peaks);
  state->first_unknown = g_steal_pointer(&outcome.first_unknown);
  state->interrupted = outcome.interrupted;
  numeric_outcome_clear(&outcome);
  return ok ? g_steal_pointer(&state) : NULL;
}

void
verified_keep_peaks(const VerifiedState *state, int order, gint64 *peaks)
{
  if (order == 0 && state->peaks != NULL)
    memcpy(peaks, state->peaks, sizeof(gint64) * (gsize) state->plan->ranks);
}
