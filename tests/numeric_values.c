/* numeric_values.c - what verify's reference computes, as JSON: numeric_values NETWORK PLAN
 * [STEPS]. First values of all parameters, tokens, and for each step the loss, the gradients as the
 * optimizer reads them, and what it leaves of values and states.  Read by numeric_torch.py. */
#include <stdio.h>
#include <string.h>

#include "base/json_output.h"
#include "simulate/verified_state.h"

static VerifiedPlan *
read_plan(const char *network, const char *plan, GError **error)
{
  ScenarioInputs inputs = {0};
  VerifiedPlan *read = NULL;
  if (input_text_read("network", network, &inputs.network, error) &&
      input_text_read("plan", plan, &inputs.plan, error) &&
      input_text_read("cluster", "h100-8", &inputs.cluster, error))
    read = verified_plan_new(&inputs, error);
  input_text_clear(&inputs.network);
  input_text_clear(&inputs.plan);
  input_text_clear(&inputs.cluster);
  return read;
}

static cJSON *
numbers(const double *values, gint64 n, gint64 stride)
{
  cJSON *list = cJSON_CreateArray();
  for (gint64 i = 0; values != NULL && i < n; i++)
    cJSON_AddItemToArray(list, cJSON_CreateNumber(values[i * stride]));
  return list;
}

/* What the hooks put where a parameter is. */
static cJSON *
first_values(const NumericHooks *hooks, const Parameter *p)
{
  g_autofree double *slots = g_new0(double, MAX(p->elements, 1));
  const NumericFilling filling = {
      .parameter = p->name, .elements = p->elements, .stride = 1, .slots = slots};
  hooks->initialize(hooks->user, &filling);
  return numbers(slots, p->elements, 1);
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

static char *
values_text(const Scenario *s, VerifiedState *state, int steps)
{
  NumericHooks hooks = verified_state_hooks(state);
  cJSON *root = cJSON_CreateObject(), *list = cJSON_CreateArray();
  cJSON *first = cJSON_AddObjectToObject(root, "first_values");
  for (guint i = 0; i < s->network->parameters->len; i++) {
    const Parameter *p = network_parameter(s->network, (int) i);
    cJSON_AddItemToObject(first, p->name, first_values(&hooks, p));
  }
  for (int step = 1; step <= steps; step++)
    cJSON_AddItemToArray(list, step_values(s, state, &hooks, step));
  cJSON_AddItemToObject(root, "steps", list);
  return json_finish(root);
}

int
main(int argc, char **argv)
{
  g_autoptr(GError) error = NULL;
  const VerifiedRun run = {.steps = argc > 3 ? (int) g_ascii_strtoll(argv[3], NULL, 10) : 3,
                           .seed = 1};
  if (argc < 3)
    return 2;
  g_autoptr(VerifiedPlan) plan = read_plan(argv[1], argv[2], &error);
  g_autoptr(VerifiedState) state = plan != NULL && verified_plan_lower(plan, run.steps, &error)
                                       ? verified_run(plan, &run, &error)
                                       : NULL;
  if (state == NULL) {
    fprintf(stderr, "%s\n", error->message);
    return 2;
  }
  g_autofree char *text = values_text(plan->scenario, state, run.steps);
  fputs(text, stdout);
  return 0;
}
