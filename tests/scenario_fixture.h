/* scenario_fixture.h - networks and plans written in a test's own text. */
#ifndef HIGHWATER_TESTS_SCENARIO_FIXTURE_H
#define HIGHWATER_TESTS_SCENARIO_FIXTURE_H

#include <string.h>

#include "cli/scenario.h"
#include "tap_main.h"

/* One rank, everything in bf16, one sequence of `length` tokens. */
#define FIXTURE_PLAN(length)                                                                       \
  "{\"precision\": {\"parameters\": \"bf16\"}, \"batch\": {\"sequence_length\": " length "}}"

#define FIXTURE_CLUSTER "{\"device\": \"h100-sxm-80gb\", \"gpus_per_node\": 8}"

/* The scenario of a network's and a plan's JSON (names in messages: "net.json", "plan.json"). */
static inline Scenario *
fixture_scenario(const char *network, const char *plan, GError **error)
{
  ScenarioInputs inputs = {
      .network = {(char *) "net.json", (char *) network, strlen(network)},
      .plan = {(char *) "plan.json", (char *) plan, strlen(plan)},
      .cluster = {(char *) "cluster.json", (char *) FIXTURE_CLUSTER, strlen(FIXTURE_CLUSTER)},
  };
  return scenario_new(&inputs, 0, error);
}

/* The same of inputs that are right. */
static inline Scenario *
fixture_good_scenario(const char *network, const char *plan)
{
  g_autoptr(GError) error = NULL;
  Scenario *scenario = fixture_scenario(network, plan, &error);
  if (scenario == NULL)
    ck_abort_msg("%s", error->message);
  return scenario;
}

#endif
