/* numeric_values.c - what verify's reference computes, as JSON: numeric_values NETWORK PLAN
 * [STEPS]. First values of all parameters, tokens, and for each step the loss, the gradients as the
 * optimizer reads them, and what it leaves of values and states.  Read by numeric_torch.py. */
#include <stdio.h>
#include <string.h>

#include "base/json_output.h"
#include "simulate/verified_state.h"

static Scenario *
read_scenario(const char *network, const char *plan, GError **error)
{
  ScenarioInputs inputs = {0};
  Scenario *scenario = NULL;
  if (input_text_read("network", network, &inputs.network, error) &&
      input_text_read("plan", plan, &inputs.plan, error) &&
      input_text_read("cluster", "h100-8", &inputs.cluster, error))
    scenario = scenario_new(&inputs, 0, error);
  input_text_clear(&inputs.network);
  input_text_clear(&inputs.plan);
  input_text_clear(&inputs.cluster);
  return scenario;
}

static cJSON *
numbers(const double *values, gint64 n, gint64 stride)
{
  cJSON *list = cJSON_CreateArray();
  for (gint64 i = 0; values != NULL && i < n; i++)
    cJSON_AddItemToArray(list, cJSON_CreateNumber(values[i * stride]));
  return list;
}

/* What the hooks put where a parameter or a batch's tensor is. */
static cJSON *
first_values(const NumericHooks *hooks, const Parameter *p)
{
  const int size = 4;
  const Storage storage = {.category = CATEGORY_PARAMETER, .bytes = p->elements * size};
  g_autofree double *slots = g_new0(double, storage.bytes);
  hooks->initialize(hooks->user, 0, &storage, p->name, slots);
  return numbers(slots, p->elements, size);
}

static cJSON *
tokens(const Scenario *s, const NumericHooks *hooks, int step)
{
  const int size = 8;
  gint64 n = (gint64) s->plan->micro_batch * s->plan->sequence_length;
  g_autofree double *slots = g_new0(double, n *size);
  hooks->batch(hooks->user, 0, step, "tokens", 0, n * size, slots);
  return numbers(slots, n, size);
}

static cJSON *
step_values(const Scenario *s, const VerifiedState *state, const NumericHooks *hooks, int step)
{
  static const char *const names[COMPARED] = {"gradient", "value", "first", "second"};
  cJSON *object = cJSON_CreateObject();
  cJSON_AddNumberToObject(object, "loss", state->losses[step]);
  cJSON_AddItemToObject(object, "tokens", tokens(s, hooks, step));
  for (int k = 0; k < COMPARED; k++) {
    cJSON *all = cJSON_AddObjectToObject(object, names[k]);
    for (guint i = 0; i < s->network->parameters->len; i++) {
      const Parameter *p = network_parameter(s->network, (int) i);
      const VerifiedTensor *t = verified_state_tensor(state, step, (int) i);
      cJSON_AddItemToObject(all, p->name, numbers(t->values[k], p->elements, 1));
    }
  }
  return object;
}

static gboolean
execute(const Scenario *s, VerifiedState *state, int steps, GError **error)
{
  g_autoptr(Lowered) lowered = scenario_lower(s, 0, steps, error);
  if (lowered == NULL)
    return FALSE;
  const Program *programs[] = {lowered->program};
  NumericConfig config = {.ranks = 1,
                          .programs = programs,
                          .allocator = allocator_config_default(),
                          .hooks = verified_state_hooks(state),
                          .seed = 1,
                          .micro_batch = s->plan->micro_batch,
                          .micro_batches = 1};
  NumericOutcome outcome = {0};
  gboolean ok = numeric_run(&config, &outcome, error);
  numeric_outcome_clear(&outcome);
  return ok;
}

static gboolean
print_values(const Scenario *s, int steps, GError **error)
{
  LowerInput input = scenario_lower_input(s);
  StateLayout *layout = lower_state_layout(&input, error);
  if (layout == NULL)
    return FALSE;
  VerifiedState *state = verified_state_new(s, layout, steps, 1);
  NumericHooks hooks = verified_state_hooks(state);
  gboolean ok = execute(s, state, steps, error);
  cJSON *root = cJSON_CreateObject(), *list = cJSON_CreateArray();
  cJSON *first = cJSON_AddObjectToObject(root, "first_values");
  for (guint i = 0; i < s->network->parameters->len; i++) {
    const Parameter *p = network_parameter(s->network, (int) i);
    cJSON_AddItemToObject(first, p->name, first_values(&hooks, p));
  }
  for (int step = 1; ok && step <= steps; step++)
    cJSON_AddItemToArray(list, step_values(s, state, &hooks, step));
  cJSON_AddItemToObject(root, "steps", list);
  g_autofree char *text = json_finish(root);
  if (ok)
    fputs(text, stdout);
  verified_state_free(state);
  state_layout_free(layout);
  return ok;
}

int
main(int argc, char **argv)
{
  g_autoptr(GError) error = NULL;
  if (argc < 3)
    return 2;
  g_autoptr(Scenario) scenario = read_scenario(argv[1], argv[2], &error);
  if (scenario != NULL &&
      print_values(scenario, argc > 3 ? (int) g_ascii_strtoll(argv[3], NULL, 10) : 3, &error))
    return 0;
  fprintf(stderr, "%s\n", error->message);
  return 2;
}
