/* simulation.c - scenarios that tests describe in a line or two: read, lowered and executed. */
#include "simulation.h"
#include "collective/collective.h"
#include "exec/executor.h"
#include "tap_main.h"
#include <string.h>

/* The text itself when it looks like JSON, else that of the preset. */
static gboolean
input_text(const char *kind, const char *text, InputText *input, GError **error)
{
  if (strchr("{[\"", text[0]) == NULL)
    return input_text_read(kind, text, input, error);
  input->name = g_strconcat(kind, ".json", NULL);
  input->text = g_strdelimit(g_strdup(text), "'", '"');
  input->length = strlen(input->text);
  return TRUE;
}

Scenario *
simulation_read(const Simulation *s, GError **error)
{
  g_autofree char *models = test_source_path("models");
  g_setenv("HIGHWATER_MODELS", models, FALSE);
  g_auto(GStrv) assignments = g_strdupv((char **) (gsize) s->set);
  ScenarioInputs inputs = {.assignments = assignments};
  Scenario *scenario = NULL;
  if (input_text("network", s->network, &inputs.network, error) &&
      input_text("plan", s->plan, &inputs.plan, error) &&
      input_text("cluster", "h100-8", &inputs.cluster, error))
    scenario = scenario_new(&inputs, s->rank, error);
  input_text_clear(&inputs.network);
  input_text_clear(&inputs.plan);
  input_text_clear(&inputs.cluster);
  return scenario;
}

Simulated *
simulation_try(const Simulation *s, int steps, GError **error)
{
  Scenario *scenario = simulation_read(s, error);
  Lowered *lowered = scenario ? scenario_lower(scenario, s->rank, steps, error) : NULL;
  if (lowered == NULL) {
    scenario_free(scenario);
    return NULL;
  }
  Simulated *simulated = g_new0(Simulated, 1);
  *simulated = (Simulated){.scenario = scenario, .lowered = lowered};
  return simulated;
}

Simulated *
simulation_lower(const Simulation *s, int steps)
{
  g_autoptr(GError) error = NULL;
  Simulated *simulated = simulation_try(s, steps, &error);
  ck_assert_msg(simulated != NULL, "refused: %s", error ? error->message : "without an error");
  return simulated;
}

Simulated *
simulation_execute(const Simulation *s, int steps, gint64 memory_limit)
{
  Simulated *simulated = simulation_lower(s, steps);
  ExecutorConfig config = {
      .cluster = simulated->scenario->cluster,
      .allocator = allocator_config_default(),
      .keep_spans = TRUE,
  };
  config.allocator.memory_limit = memory_limit;
  simulated->recording = executor_run(simulated->lowered->program, &config);
  return simulated;
}

void
simulated_free(Simulated *simulated)
{
  if (simulated == NULL)
    return;
  recording_free(simulated->recording);
  lowered_free(simulated->lowered);
  scenario_free(simulated->scenario);
  g_free(simulated);
}

CollectiveTotal
simulated_collectives(const Simulated *simulated, int step, CollectiveKind kind)
{
  const Program *program = simulated->lowered->program;
  const GArray *ops = program_step(program, step)->ops;
  CollectiveTotal total = {0};
  for (guint i = 0; i < ops->len; i++) {
    const ProgramOp *op = &g_array_index(ops, ProgramOp, i);
    if (op->kind != PROGRAM_COLLECTIVE)
      continue;
    const Collective *c = &g_array_index(program->collectives, Collective, op->a);
    const Communicator *group =
        &g_array_index(program->communicators, Communicator, c->communicator);
    if (c->kind != kind)
      continue;
    int size = dtype_size((DType) c->dtype);
    total.count++;
    total.bytes += c->bytes;
    total.elements += c->bytes / size;
    total.sent += collective_bytes_sent(kind, group->ranks, c->bytes) / size;
  }
  return total;
}

/* Storages keep their identity within a list; across lists what matters is how much comes and goes.
 */
static gint64
bytes_alive(const Simulated *simulated, int steps, Category category, gboolean on_device)
{
  const Program *program = simulated->lowered->program;
  gint64 bytes = 0;
  for (int step = -1; step < steps; step++) {
    const OpList *list =
        step < 0 ? g_ptr_array_index(program->lists, 0) : program_step(program, step);
    for (guint i = 0; i < list->ops->len; i++) {
      const ProgramOp *op = &g_array_index(list->ops, ProgramOp, i);
      if (op->kind != PROGRAM_ALLOC && op->kind != PROGRAM_FREE)
        continue;
      const Storage *storage = &g_array_index(program->storages, Storage, op->a);
      if (storage->category == category && (storage->space == SPACE_DEVICE) == on_device)
        bytes += op->kind == PROGRAM_ALLOC ? storage->bytes : -storage->bytes;
    }
  }
  return bytes;
}

gint64
simulated_bytes_alive(const Simulated *simulated, int steps, Category category)
{
  return bytes_alive(simulated, steps, category, TRUE);
}

gint64
simulated_host_bytes_alive(const Simulated *simulated, int steps, Category category)
{
  return bytes_alive(simulated, steps, category, FALSE);
}
