/* bench_modules.c - where the time of highwater run goes: reading, building the network, lowering,
 * executing and reporting, one after another in one process. */
#include "bench.h"
#include "exec/executor.h"
#include "report/summary_json.h"
#include "simulate/run_facts.h"
#include <stdio.h>
#include <stdlib.h>

#define RUNS 15
#define STEPS 3

static const struct {
  const char *name, *network;
  const char *mesh;
} cases[] = {
    {"llama-3-8b", "llama-3-8b", "mesh.shard=8"},
    {"llama-3.1-405b", "llama-3.1-405b", "mesh.shard=1024"},
};

/* What each module hands to the next. */
typedef struct {
  ScenarioInputs inputs;
  Scenario *scenario;
  Lowered *lowered;
  Recording *recording;
  RunInfo *info;
  char *json;
} Run;

/* Nothing here is refused. */
static void
expect(gboolean done, const GError *error)
{
  if (!done)
    g_error("%s", error != NULL ? error->message : "failed");
}

static void
read_inputs(Run *run)
{
  g_autoptr(GError) error = NULL;
  const ScenarioInputs *in = &run->inputs;
  g_autofree PlanStrategy *table = strategy_plan_table();
  Scenario *s = run->scenario = g_new0(Scenario, 1);
  s->network_spec =
      network_spec_parse(in->network.name, in->network.text, in->network.length, &error);
  expect(s->network_spec != NULL, error);
  s->plan = plan_spec_parse(in->plan.name, in->plan.text, in->plan.length,
                            (const char *const *) in->assignments, table, &error);
  expect(s->plan != NULL, error);
  s->cluster = cluster_spec_parse(in->cluster.name, in->cluster.text, in->cluster.length, &error);
  expect(s->cluster != NULL, error);
  s->strategy = strategy_find(s->plan->strategy);
}

static void
build_network(Run *run)
{
  g_autoptr(GError) error = NULL;
  Scenario *s = run->scenario;
  NetworkShape shape = lower_shape(s->plan, s->cluster->device);
  s->network = network_build(s->network_spec, &shape, &error);
  expect(s->network != NULL, error);
}

static void
lower_steps(Run *run)
{
  g_autoptr(GError) error = NULL;
  run->lowered = scenario_lower(run->scenario, 0, STEPS, &error);
  expect(run->lowered != NULL, error);
}

static void
execute(Run *run)
{
  ExecutorConfig config = {.cluster = run->scenario->cluster,
                           .allocator = allocator_config_default()};
  run->recording = executor_run(run->lowered->program, &config);
}

static void
report(Run *run)
{
  run->info = run_facts(run->scenario, run->lowered, 0);
  g_autoptr(ReportModel) model = report_model_new(run->recording, run->info);
  run->json = summary_json(model);
}

static void
clear(Run *run)
{
  g_clear_pointer(&run->json, g_free);
  g_clear_pointer(&run->recording, recording_free);
  g_clear_pointer(&run->info, run_info_free);
  g_clear_pointer(&run->lowered, lowered_free);
  g_clear_pointer(&run->scenario, scenario_free);
}

static const struct {
  const char *name;
  void (*run)(Run *run);
} modules[] = {
    {"read", read_inputs}, {"network", build_network}, {"lower", lower_steps},
    {"execute", execute},  {"report", report},
};

/* Ops that the executor goes through. */
static guint
count_ops(const Program *program)
{
  guint ops = ((const OpList *) g_ptr_array_index(program->lists, 0))->ops->len;
  for (int i = 0; i < program->steps; i++)
    ops += program_step(program, i)->ops->len;
  return ops;
}

static void
measure(Run *run, const char *name)
{
  double seconds[G_N_ELEMENTS(modules)][RUNS];
  guint ops = 0;
  for (int k = -1; k < RUNS; k++) { /* the first one warms up */
    for (guint i = 0; i < G_N_ELEMENTS(modules); i++) {
      gint64 start = g_get_monotonic_time();
      modules[i].run(run);
      seconds[i][MAX(k, 0)] = (double) (g_get_monotonic_time() - start) / G_USEC_PER_SEC;
    }
    ops = count_ops(run->lowered->program);
    clear(run);
  }
  double execution = 0;
  for (guint i = 0; i < G_N_ELEMENTS(modules); i++) {
    g_autofree char *figure = g_strdup_printf("module-%s-%s", name, modules[i].name);
    double median = bench_median(seconds[i], RUNS);
    bench_figure(figure, median * 1e3, "ms");
    if (modules[i].run == execute)
      execution = median;
  }
  g_autofree char *rate = g_strdup_printf("module-%s-execute-rate", name);
  bench_figure(rate, ops / execution / 1e6, "Mops/s");
}

int
main(void)
{
  for (guint i = 0; i < G_N_ELEMENTS(cases); i++) {
    g_autoptr(GError) error = NULL;
    char *assignments[] = {g_strdup(cases[i].mesh), NULL};
    Run run = {.inputs.assignments = assignments};
    expect(input_text_read("network", cases[i].network, &run.inputs.network, &error) &&
               input_text_read("plan", "fsdp2", &run.inputs.plan, &error) &&
               input_text_read("cluster", "h100-8", &run.inputs.cluster, &error),
           error);
    measure(&run, cases[i].name);
    input_text_clear(&run.inputs.network);
    input_text_clear(&run.inputs.plan);
    input_text_clear(&run.inputs.cluster);
    g_free(assignments[0]);
  }
  return EXIT_SUCCESS;
}
