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

static gboolean
read_inputs(const char *network, const char *plan, ScenarioInputs *inputs, GError **error)
{
  g_autofree char *models = test_source_path("models");
  g_setenv("HIGHWATER_MODELS", models, FALSE);
  return input_text("network", network, &inputs->network, error) &&
         input_text("plan", plan, &inputs->plan, error) &&
         input_text("cluster", "h100-8", &inputs->cluster, error);
}

Scenario *
simulation_read(const Simulation *s, GError **error)
{
  ScenarioInputs inputs = {.assignments = g_strdupv((char **) (gsize) s->set)};
  Scenario *scenario = read_inputs(s->network, s->plan, &inputs, error)
                           ? scenario_new(&inputs, s->rank, error)
                           : NULL;
  simulation_inputs_clear(&inputs);
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

/* Options as assignments.  Caller frees with g_strfreev(). */
static char **
options_split(const char *options)
{
  g_autofree char *lines = g_strstrip(g_strdup(options));
  int depth = 0;
  for (char *c = lines; *c != '\0'; c++) {
    depth += (*c == '{') - (*c == '}');
    if (*c == ' ' && depth == 0)
      *c = '\n';
  }
  return g_strsplit(lines, "\n", -1);
}

gboolean
simulation_inputs(const char *network, const char *plan, const char *options,
                  ScenarioInputs *inputs, GError **error)
{
  *inputs = (ScenarioInputs){.assignments = options_split(options)};
  return read_inputs(network, plan, inputs, error);
}

void
simulation_inputs_clear(ScenarioInputs *inputs)
{
  g_strfreev(inputs->assignments);
  input_text_clear(&inputs->network);
  input_text_clear(&inputs->plan);
  input_text_clear(&inputs->cluster);
}

Simulated *
simulation_lower_options(const char *network, const char *plan, const char *options, int rank,
                         int steps)
{
  g_auto(GStrv) set = options_split(options);
  return simulation_lower(&(Simulation){network, plan, (const char *const *) set, rank}, steps);
}

char *
simulation_refusal(const char *network, const char *plan, const char *options)
{
  g_auto(GStrv) set = options_split(options);
  g_autoptr(GError) error = NULL;
  g_autoptr(Simulated) s =
      simulation_try(&(Simulation){network, plan, (const char *const *) set, 0}, 1, &error);
  ck_assert_ptr_null(s);
  ck_assert(error && error->domain == HIGHWATER_ERROR);
  return g_strdup(error->message);
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

char *
parameters_text(const Network *n, const char *prefix, const char *but)
{
  GString *text = g_string_new(NULL);
  for (guint i = 0; i < n->parameters->len; i++) {
    const Parameter *p = network_parameter(n, (int) i);
    if (!g_str_has_prefix(p->name, prefix) || (but != NULL && strstr(p->name, but) != NULL))
      continue;
    g_string_append_printf(text, "%s%s[", text->len > 0 ? " " : "", p->name + strlen(prefix));
    for (int k = 0; k < p->dims; k++)
      g_string_append_printf(text, "%s%" G_GINT64_FORMAT, k > 0 ? "," : "", p->shape[k]);
    g_string_append_c(text, ']');
  }
  return g_string_free(text, FALSE);
}

void
simulated_check(const Simulated *simulated)
{
  g_autoptr(GError) error = NULL;
  ck_assert_msg(program_check(simulated->lowered->program, &error), "%s",
                error ? error->message : "");
}

const GArray *
simulated_ops(const Simulated *simulated, int step)
{
  const Program *program = simulated->lowered->program;
  const OpList *list =
      step < 0 ? g_ptr_array_index(program->lists, 0) : program_step(program, step);
  return list->ops;
}

int
simulated_count(const Simulated *simulated, int step, ProgramOpKind kind)
{
  const GArray *ops = simulated_ops(simulated, step);
  int count = 0;
  for (guint i = 0; i < ops->len; i++)
    count += g_array_index(ops, ProgramOp, i).kind == kind;
  return count;
}

const Collective *
simulated_next_collective(const Simulated *simulated, int step, guint *at)
{
  const GArray *ops = simulated_ops(simulated, step);
  while (*at < ops->len) {
    const ProgramOp *op = &g_array_index(ops, ProgramOp, (*at)++);
    if (op->kind == PROGRAM_COLLECTIVE)
      return &g_array_index(simulated->lowered->program->collectives, Collective, op->a);
  }
  return NULL;
}

char *
simulated_collective_bytes(const Simulated *simulated, int step, CollectiveKind kind,
                           const char *name, gint64 unit)
{
  const Program *program = simulated->lowered->program;
  GString *text = g_string_new(NULL);
  guint at = 0;
  const Collective *c;
  while ((c = simulated_next_collective(simulated, step, &at)) != NULL)
    if (c->kind == kind && (!*name || strcmp(program_text(program, c->name), name) == 0))
      g_string_append_printf(text, "%s%" G_GINT64_FORMAT, text->len > 0 ? " " : "",
                             c->bytes / unit);
  return g_string_free(text, FALSE);
}

double
simulated_copied(const Simulated *simulated, int step, const char *name)
{
  const Program *program = simulated->lowered->program;
  const GArray *ops = simulated_ops(simulated, step);
  double bytes = 0;
  for (guint i = 0; i < ops->len; i++) {
    const ProgramOp *op = &g_array_index(ops, ProgramOp, i);
    if (op->kind != PROGRAM_COPY)
      continue;
    const Kernel *kernel = &g_array_index(program->kernels, Kernel, op->a);
    if (strcmp(program_text(program, kernel->name), name) == 0)
      bytes += kernel->bytes;
  }
  return bytes;
}

Allocations
simulated_allocations(const Simulated *simulated, int step, const char *what)
{
  const Program *program = simulated->lowered->program;
  const GArray *ops = simulated_ops(simulated, step);
  Allocations all = {0};
  for (guint i = 0; i < ops->len; i++) {
    const ProgramOp *op = &g_array_index(ops, ProgramOp, i);
    if (op->kind != PROGRAM_ALLOC)
      continue;
    const Storage *storage = &g_array_index(program->storages, Storage, op->a);
    if (strcmp(program_text(program, storage->what), what) != 0)
      continue;
    all.count++;
    all.bytes += storage->bytes;
    all.largest = MAX(all.largest, storage->bytes);
  }
  return all;
}

CollectiveTotal
simulated_collectives(const Simulated *simulated, int step, CollectiveKind kind)
{
  const GArray *communicators = simulated->lowered->program->communicators;
  CollectiveTotal total = {0};
  guint at = 0;
  const Collective *c;
  while ((c = simulated_next_collective(simulated, step, &at)) != NULL) {
    if (c->kind != kind)
      continue;
    const Communicator *group = &g_array_index(communicators, Communicator, c->communicator);
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
gint64
simulated_bytes_in(const Simulated *simulated, int steps, Category category, Space space)
{
  gint64 bytes = 0;
  for (int step = -1; step < steps; step++) {
    const GArray *ops = simulated_ops(simulated, step);
    for (guint i = 0; i < ops->len; i++) {
      const ProgramOp *op = &g_array_index(ops, ProgramOp, i);
      if (op->kind != PROGRAM_ALLOC && op->kind != PROGRAM_FREE)
        continue;
      const Storage *storage =
          &g_array_index(simulated->lowered->program->storages, Storage, op->a);
      if (storage->category == category && storage->space == space)
        bytes += op->kind == PROGRAM_ALLOC ? storage->bytes : -storage->bytes;
    }
  }
  return bytes;
}

gint64
simulated_bytes_alive(const Simulated *simulated, int steps, Category category)
{
  return simulated_bytes_in(simulated, steps, category, SPACE_DEVICE);
}

gint64
simulated_host_bytes_alive(const Simulated *simulated, int steps, Category category)
{
  gint64 bytes = 0;
  for (int space = 0; space < SPACE_COUNT; space++)
    if (space != SPACE_DEVICE)
      bytes += simulated_bytes_in(simulated, steps, category, (Space) space);
  return bytes;
}
