/* scenario.c - a network, a plan and a cluster, read and lowered. */
#include "cli/scenario.h"

#include "base/units.h"

/* Values of the command line itself. */
static gboolean
check_options(const ScenarioOptions *options, GError **error)
{
  if (options->steps >= 1 && options->steps <= 1000000)
    return TRUE;
  g_set_error(error, HIGHWATER_ERROR, HIGHWATER_ERROR_USAGE, "--steps: %d is not in 1..1000000", options->steps);
  return FALSE;
}

static gboolean
check_rank(const PlanSpec *plan, int rank, GError **error)
{
  int ranks = plan->shard * plan->replicate;
  if (rank >= 0 && rank < ranks)
    return TRUE;
  g_set_error(error, HIGHWATER_ERROR, HIGHWATER_ERROR_USAGE, "--rank: %d is not in 0..%d (mesh of %d x %d)", rank,
              ranks - 1, plan->replicate, plan->shard);
  return FALSE;
}

Scenario *
scenario_load(const char *network, const ScenarioOptions *options, GError **error)
{
  if (!check_options(options, error))
    return NULL;
  g_autoptr(Scenario) s = g_new0(Scenario, 1);
  g_autofree PlanStrategy *table = strategy_plan_table();
  s->network_spec = network_spec_load(network, error);
  if (s->network_spec == NULL)
    return NULL;
  const char *plan = options->plan != NULL ? options->plan : "fsdp2";
  s->plan = plan_spec_load(plan, (const char *const *) options->set, table, error);
  if (s->plan == NULL || !check_rank(s->plan, options->rank, error))
    return NULL;
  s->cluster = cluster_spec_load(options->cluster != NULL ? options->cluster : "h100-8", error);
  if (s->cluster == NULL)
    return NULL;
  s->strategy = strategy_find(s->plan->strategy);
  NetworkShape shape = lower_shape(s->plan, s->cluster->device);
  s->network = network_build(s->network_spec, &shape, error);
  if (s->network == NULL)
    return NULL;
  return g_steal_pointer(&s);
}

Lowered *
scenario_lower(const Scenario *s, int rank, int steps, GError **error)
{
  LowerInput input = {
      .network = s->network,
      .plan = s->plan,
      .device = s->cluster->device,
      .strategy = s->strategy,
      .rank = rank,
      .steps = steps,
  };
  return lower(&input, error);
}

void
scenario_options_clear(ScenarioOptions *options)
{
  g_free(options->plan);
  g_free(options->cluster);
  g_strfreev(options->set);
}

void
scenario_free(Scenario *s)
{
  if (s == NULL)
    return;
  network_free(s->network);
  cluster_spec_free(s->cluster);
  plan_spec_free(s->plan);
  network_spec_free(s->network_spec);
  g_free(s);
}
