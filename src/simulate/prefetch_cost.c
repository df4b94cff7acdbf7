/* prefetch_cost.c - the same run without the budget, for comparison. */
#include "simulate/prefetch_cost.h"

#include "report/summary.h"

static gint64
budget_of(const PlanSpec *plan)
{
  const char *key = "prefetch_budget";
  if (plan->section == NULL || option_section_index(plan->section, key) < 0)
    return 0;
  return plan_spec_option(plan, key)->is_null ? 0 : plan_spec_number(plan, key);
}

/* How deep the groups reach. */
static void
measure_depth(RunInfo *info)
{
  PrefetchInfo *prefetch = &info->prefetch;
  for (guint i = 0; i < info->groups->len; i++) {
    const GroupInfo *group = &g_array_index(info->groups, GroupInfo, i);
    prefetch->most = MAX(prefetch->most, group->forward_prefetched_bytes);
    prefetch->most = MAX(prefetch->most, group->backward_prefetched_bytes);
    prefetch->groups_without += i + 1 < info->groups->len && group->forward_prefetches == 0;
  }
}

void
prefetch_cost(const RunRequest *request, const Scenario *s, RunInfo *info)
{
  PrefetchInfo *prefetch = &info->prefetch;
  prefetch->budget = budget_of(s->plan);
  if (prefetch->budget == 0)
    return;
  measure_depth(info);
  if (prefetch->groups_without > 0)
    run_info_warn(info,
                  "fsdp.prefetch_budget has no room for what follows %d of the groups: there FSDP2 "
                  "prefetches in its own way",
                  prefetch->groups_without);
  char none[] = "fsdp.prefetch_budget=null";
  g_autofree char **assignments = run_request_assignments(request, (char *[]){none, NULL});
  RunRequest own = *request;
  RunResult result = {0};
  own.inputs.assignments = assignments;
  own.keep_spans = FALSE;
  if (run_simulation(&own, &result, NULL)) {
    const Recording *r = result.recording;
    g_autoptr(ReportModel) model = report_model_new(r, result.info);
    prefetch->own_peak = r->peak.allocated;
    prefetch->own_reserved = model->peak_reserved;
    prefetch->own_step = r->steps->len > 0 ? recording_step_duration(r, r->steps->len - 1) : 0;
  }
  run_result_clear(&result);
}
