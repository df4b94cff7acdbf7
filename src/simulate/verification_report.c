/* verification_report.c - a report's beginning, answer and end. */
#include "simulate/verification_report.h"

#include "simulate/verified_failure.h"

static void
parameter_clear(gpointer data)
{
  VerifiedParameter *p = data;
  g_free(p->name);
  g_array_unref(p->shards);
}

static void
add_shard(VerifiedParameter *p, const VerifiedShard *shard)
{
  const VerifiedShard *last =
      p->shards->len > 0 ? &g_array_index(p->shards, VerifiedShard, p->shards->len - 1) : NULL;
  p->owners += last == NULL || last->rank != shard->rank;
  g_array_append_val(p->shards, *shard);
}

static void
find_owners(VerificationReport *report, const VerifiedPlan *plan)
{
  for (int rank = 0; rank < report->ranks; rank++) {
    const GArray *held = state_layout_held(plan->layout, rank);
    for (guint i = 0; i < held->len; i++) {
      const StateRange *range = &g_array_index(held, StateRange, i);
      add_shard(&g_array_index(report->parameters, VerifiedParameter, range->parameter),
                &(VerifiedShard){rank, range->first, range->elements});
    }
  }
}

void
verification_report_begin(VerificationReport *report, const VerificationRequest *request,
                          const VerifiedPlan *plan, const char *scaled)
{
  const Scenario *s = plan->scenario;
  *report = (VerificationReport){.ranks = plan->ranks,
                                 .micro_batches = s->plan->accumulation.steps,
                                 .network = g_strdup(s->network->name),
                                 .strategy = g_strdup(s->plan->strategy),
                                 .scaled = scaled[0] != '\0' ? g_strdup(scaled) : NULL,
                                 .tolerance = request->tolerance,
                                 .rounded = request->rounds,
                                 .orders = request->orders,
                                 .samples = verified_plan_samples(plan),
                                 .training = verified_plan_training(plan),
                                 .peaks = g_new0(gint64, plan->ranks),
                                 .steps = g_array_new(FALSE, TRUE, sizeof(VerifiedStep)),
                                 .parameters = g_array_new(FALSE, TRUE, sizeof(VerifiedParameter))};
  g_array_set_size(report->steps, (guint) request->steps);
  g_array_set_clear_func(report->parameters, parameter_clear);
  for (guint i = 0; i < s->network->parameters->len; i++) {
    const Parameter *p = network_parameter(s->network, (int) i);
    VerifiedParameter v = {.name = g_strdup(p->name),
                           .elements = p->elements,
                           .shards = g_array_new(FALSE, FALSE, sizeof(VerifiedShard))};
    g_array_append_val(report->parameters, v);
  }
  find_owners(report, plan);
}

void
verification_report_clear(VerificationReport *report)
{
  if (report->other != NULL)
    verification_report_clear(report->other);
  g_clear_pointer(&report->other, g_free);
  g_clear_pointer(&report->steps, g_array_unref);
  g_clear_pointer(&report->parameters, g_array_unref);
  g_clear_pointer(&report->fault, g_free);
  g_clear_pointer(&report->network, g_free);
  g_clear_pointer(&report->strategy, g_free);
  g_clear_pointer(&report->training, g_free);
  g_clear_pointer(&report->scaled, g_free);
  g_clear_pointer(&report->peaks, g_free);
  verified_failure_clear(&report->failure);
  g_clear_pointer(&report->restart.strategy, g_free);
  g_clear_pointer(&report->restart.peaks, g_free);
}

gboolean
verification_holds(const VerificationReport *report)
{
  return report->fault == NULL &&
         (report->other == NULL ||
          (report->other->fault == NULL &&
           (report->rounded || report->loss_difference <= report->tolerance)));
}
