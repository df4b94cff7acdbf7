/* scenario.c - a network, a plan and a cluster, read and lowered. */
#include "simulate/scenario.h"

#include <string.h>

#include "base/json_document.h"
#include "base/units.h"
#include "import/training_config.h"
#include "spec/preset.h"

static gboolean
become_plan(InputText *input, GError **error)
{
  const TrainingConfigSettings settings = {.reads_files = TRUE};
  g_autoptr(TrainingConfig) config =
      training_config_read(input->name, input->text, input->length, &settings, error);
  if (config == NULL)
    return FALSE;
  g_free(input->text);
  input->text = training_config_plan(config);
  input->length = strlen(input->text);
  input->note = training_config_note(config);
  return TRUE;
}

gboolean
input_text_read(const char *kind, const char *preset_or_path, InputText *input, GError **error)
{
  g_autofree char *path = preset_find(kind, preset_or_path, error);
  if (path == NULL)
    return FALSE;
  input->name = g_strdup(json_text_name(path));
  input->text = json_text_load(path, &input->length, error);
  if (input->text == NULL)
    return FALSE;
  gboolean foreign =
      g_str_equal(kind, "plan") && training_config_is_foreign(input->text, input->length);
  return !foreign || become_plan(input, error);
}

/* Is the first key, of a length, the second or one above it?  "mesh" is above "mesh.shard". */
static gboolean
is_above(const char *key, gsize length, const char *other, gsize other_length)
{
  return length <= other_length && strncmp(key, other, length) == 0 &&
         (length == other_length || other[length] == '.');
}

/* Is the message about the key of the assignment, or one above or below it?  Messages say "key
 * 'KEY'". */
static gboolean
is_about(const char *message, const char *assignment)
{
  const char *equals = strchr(assignment, '=');
  const char *found = strstr(message, "key '");
  if (equals == NULL || found == NULL)
    return FALSE;
  const char *key = found + strlen("key '");
  gsize length = strcspn(key, "'"), assigned = (gsize) (equals - assignment);
  return is_above(key, length, assignment, assigned) || is_above(assignment, assigned, key, length);
}

void
scenario_name_assignment(char *const *assignments, GError **error)
{
  guint n = assignments != NULL ? g_strv_length((char **) (gsize) assignments) : 0;
  for (guint i = n; error != NULL && *error != NULL && i > 0; i--)
    if (is_about((*error)->message, assignments[i - 1])) {
      g_prefix_error(error, "--set %s: ", assignments[i - 1]);
      return;
    }
}

void
input_text_clear(InputText *input)
{
  g_clear_pointer(&input->name, g_free);
  g_clear_pointer(&input->text, g_free);
  g_clear_pointer(&input->note, g_free);
}

gboolean
scenario_check_rank(const PlanSpec *plan, int rank, GError **error)
{
  int ranks = plan->shard * plan->replicate;
  if (rank >= 0 && rank < ranks)
    return TRUE;
  g_set_error(error, HIGHWATER_ERROR, HIGHWATER_ERROR_USAGE,
              "--rank: %d is not in 0..%d, the mesh's ranks", rank, ranks - 1);
  return FALSE;
}

/* Every fused attention kernel that the network calls has rates.  file: the network's, for the
 * message. */
static gboolean
check_attention(const Scenario *s, const char *file, GError **error)
{
  const DeviceProfile *device = s->cluster->device;
  for (guint i = 0; i < s->network->functions->len; i++) {
    const GArray *kernels = ((const Function *) s->network->functions->pdata[i])->kernels;
    for (guint k = 0; k < kernels->len; k++) {
      const Kernel *kernel = &g_array_index(kernels, OpKernel, k).kernel;
      if (!kernel_is_attention((KernelKind) kernel->kind) ||
          device_profile_runs(device, (FusedAttention) kernel->variant))
        continue;
      g_set_error(error, HIGHWATER_ERROR, HIGHWATER_ERROR_INPUT,
                  "%s: key 'implementation.attention': device %s has no rates of %s", file,
                  device->name, fused_attention_names[kernel->variant]);
      return FALSE;
    }
  }
  return TRUE;
}

static gboolean
build_evaluation(Scenario *s, GError **error)
{
  if (!s->plan->phases.evaluate.given)
    return TRUE;
  NetworkShape shape = lower_evaluation_shape(s->plan, s->cluster->device);
  shape.torch = s->network_spec->implementation.torch;
  s->evaluation = network_build(s->network_spec, &shape, error);
  if (s->evaluation != NULL)
    lower_compile(s->plan, s->evaluation);
  return s->evaluation != NULL;
}

gboolean
input_check_network(const InputText *network, GError **error)
{
  if (network->text == NULL || !program_text_begins(network->text))
    return TRUE;
  g_set_error(error, HIGHWATER_ERROR, HIGHWATER_ERROR_INPUT,
              "%s: is a Program, which has no plan: a network is needed here", network->name);
  return FALSE;
}

Scenario *
scenario_new(const ScenarioInputs *in, int rank, GError **error)
{
  if (!input_check_network(&in->network, error))
    return NULL;
  g_autoptr(Scenario) s = g_new0(Scenario, 1);
  g_autofree PlanStrategy *table = strategy_plan_table();
  s->network_spec =
      network_spec_parse(in->network.name, in->network.text, in->network.length, error);
  if (s->network_spec == NULL)
    return NULL;
  s->plan = plan_spec_parse(in->plan.name, in->plan.text, in->plan.length,
                            (const char *const *) in->assignments, table, error);
  if (s->plan == NULL || !scenario_check_rank(s->plan, rank, error))
    return NULL;
  s->cluster = cluster_spec_parse(in->cluster.name, in->cluster.text, in->cluster.length, error);
  if (s->cluster == NULL)
    return NULL;
  s->strategy = strategy_find(s->plan->strategy);
  NetworkShape shape = lower_shape(s->plan, s->cluster->device);
  shape.torch = s->network_spec->implementation.torch;
  shape.splits_tied |= in->splits_tied;
  s->network = network_build(s->network_spec, &shape, error);
  if (s->network != NULL && s->network->positions > 0) /* figures are counted by those */
    s->plan->sequence_length = (int) s->network->positions;
  if (s->network != NULL)
    lower_compile(s->plan, s->network);
  if (s->network == NULL || !check_attention(s, in->network.name, error) ||
      !build_evaluation(s, error))
    return NULL;
  return g_steal_pointer(&s);
}

LowerInput
scenario_lower_input(const Scenario *s)
{
  return (LowerInput){
      .network = s->network,
      .plan = s->plan,
      .device = s->cluster->device,
      .strategy = s->strategy,
      .steps = 1,
      .memory_limit = s->memory_limit,
      .evaluation = s->evaluation,
  };
}

Lowered *
scenario_lower(const Scenario *s, int rank, int steps, GError **error)
{
  LowerInput input = scenario_lower_input(s);
  input.rank = rank;
  input.steps = steps;
  return lower(&input, error);
}

void
scenario_free(Scenario *s)
{
  if (s == NULL)
    return;
  network_free(s->network);
  if (s->evaluation != NULL)
    network_free(s->evaluation);
  cluster_spec_free(s->cluster);
  plan_spec_free(s->plan);
  network_spec_free(s->network_spec);
  g_free(s);
}
