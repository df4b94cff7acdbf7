/* scenario_fixture.h - networks and plans written in a test's own text. */
#ifndef HIGHWATER_TESTS_SCENARIO_FIXTURE_H
#define HIGHWATER_TESTS_SCENARIO_FIXTURE_H

#include <string.h>

#include "simulate/scenario.h"
#include "tap_main.h"

/* One rank, everything in bf16, one sequence of `length` tokens. */
#define FIXTURE_PLAN(length)                                                                       \
  "{\"precision\": {\"parameters\": \"bf16\"}, \"batch\": {\"sequence_length\": " length "}}"

#define FIXTURE_CLUSTER "{\"device\": \"h100-sxm-80gb\", \"gpus_per_node\": 8}"

static inline InputText
fixture_text(const char *name, const char *text)
{
  return (InputText){g_strdup(name), g_strdup(text), strlen(text), NULL};
}

/* The scenario of a network's and a plan's JSON (names in messages: "net.json", "plan.json"). */
static inline Scenario *
fixture_scenario(const char *network, const char *plan, GError **error)
{
  ScenarioInputs inputs = {
      .network = fixture_text("net.json", network),
      .plan = fixture_text("plan.json", plan),
      .cluster = fixture_text("cluster.json", FIXTURE_CLUSTER),
  };
  Scenario *scenario = scenario_new(&inputs, 0, error);
  input_text_clear(&inputs.network);
  input_text_clear(&inputs.plan);
  input_text_clear(&inputs.cluster);
  return scenario;
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
