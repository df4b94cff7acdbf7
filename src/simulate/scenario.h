/* scenario.h - what most commands begin with: a network, a plan and a cluster, read and lowered. */
#ifndef HIGHWATER_SIMULATE_SCENARIO_H
#define HIGHWATER_SIMULATE_SCENARIO_H

#include "lower/lower.h"
#include "network/family.h"
#include "spec/cluster_spec.h"

/* An input file, read but not parsed. */
typedef struct {
  char *name; /* its path, or "standard input": what messages call it */
  char *text;
  gsize length;
  char *note; /* of a plan that was another program's configuration: what became of it; or NULL */
} InputText;

typedef struct {
  InputText network, plan, cluster;
  char **assignments;   /* --set, in order; NULL-terminated, may be NULL */
  gboolean splits_tied; /* a tied weight becomes two whatever the strategy (Strategy.splits_tied) */
} ScenarioInputs;

/* Finds a preset of a kind, or a file ("-": standard input), and reads it.  Another program's
 * training configuration in the place of a plan becomes one. */
gboolean input_text_read(const char *kind, const char *preset_or_path, InputText *input,
                         GError **error);
/* When the error names a key that an assignment gave, says so: "--set mesh.shard=0: FILE: key ...".
 * The last such assignment counts. */
void scenario_name_assignment(char *const *assignments, GError **error);
/* FALSE and error when it is a Program's text, which has no plan. */
gboolean input_check_network(const InputText *network, GError **error);
/* Frees name, text and note. */
void input_text_clear(InputText *input);

typedef struct {
  NetworkSpec *network_spec;
  PlanSpec *plan;
  ClusterSpec *cluster;
  const Strategy *strategy;
  Network *network;
  Network *evaluation; /* for the shape of the plan's evaluation; NULL: none */
  gint64 memory_limit; /* of the allocator, bytes; 0: what the device has */
} Scenario;

/* Parses the inputs and builds the network.  NULL and error when one is bad, or the rank is not one
 * of the mesh. */
Scenario *scenario_new(const ScenarioInputs *inputs, int rank, GError **error);
/* Is the rank one of the plan's mesh? */
gboolean scenario_check_rank(const PlanSpec *plan, int rank, GError **error);
/* What it lowers from: one step, for rank 0. */
LowerInput scenario_lower_input(const Scenario *scenario);
/* Lowers for a rank: `steps` steps. */
Lowered *scenario_lower(const Scenario *scenario, int rank, int steps, GError **error);
void scenario_free(Scenario *scenario);
G_DEFINE_AUTOPTR_CLEANUP_FUNC(Scenario, scenario_free)

#endif
