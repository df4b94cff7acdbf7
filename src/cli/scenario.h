/* scenario.h - what most commands begin with: a network, a plan and a cluster, read from the command line and lowered. */
#ifndef HIGHWATER_CLI_SCENARIO_H
#define HIGHWATER_CLI_SCENARIO_H

#include "lower/lower.h"
#include "network/family.h"
#include "spec/cluster_spec.h"

/* Options that say which scenario; GOptionEntry variables. */
typedef struct {
  char *plan;     /* --plan, NULL: fsdp2 */
  char *cluster;  /* --cluster, NULL: h100-8 */
  char **set;     /* --set KEY=VALUE, repeated */
  int rank;       /* --rank */
  int steps;      /* --steps */
} ScenarioOptions;

typedef struct {
  NetworkSpec *network_spec;
  PlanSpec *plan;
  ClusterSpec *cluster;
  const Strategy *strategy;
  Network *network;
} Scenario;

/* Loads everything and builds the network.  NULL and error when an input is bad. */
Scenario *scenario_load(const char *network, const ScenarioOptions *options, GError **error);
/* Lowers for a rank: `steps` steps. */
Lowered *scenario_lower(const Scenario *scenario, int rank, int steps, GError **error);
void scenario_options_clear(ScenarioOptions *options);
void scenario_free(Scenario *scenario);
G_DEFINE_AUTOPTR_CLEANUP_FUNC(Scenario, scenario_free)

#endif
