/* cmd_show.c - highwater show: modules, parameters, FLOPs and activations of a network. */
#include <stdio.h>
#include <string.h>

#include "base/units.h"
#include "cli/plan_input.h"
#include "cli/registry.h"
#include "network/family.h"
#include "report/network_summary.h"
#include "simulate/scenario.h"

typedef struct {
  char *plan, *cluster;
  char **assignments;
  gboolean json;
} ShowOptions;

/* The longest sequence that a config says its model is for, and the one that an exported network
 * was recorded with; `most` when it is longer or not said. */
static int
own_sequence_length(const InputText *network, int most)
{
  static const char *const keys[] = {"n_positions", "max_position_embeddings", "max_seq_len",
                                     "sequence_length"};
  g_autoptr(JsonDocument) document =
      json_document_parse(network->name, network->text, network->length, NULL);
  for (guint i = 0; document != NULL && i < G_N_ELEMENTS(keys); i++) {
    const cJSON *value = cJSON_GetObjectItemCaseSensitive(json_document_root(document), keys[i]);
    if (cJSON_IsNumber(value) && value->valuedouble >= 1 && value->valuedouble < most)
      return (int) value->valuedouble;
  }
  return most;
}

/* Sequences of a micro-batch: those that an exported network was recorded with, else one. */
static int
own_micro_batch(const InputText *network)
{
  enum { MOST = 1 << 20 };
  g_autoptr(JsonDocument) document =
      json_document_parse(network->name, network->text, network->length, NULL);
  const cJSON *value = document != NULL
                           ? cJSON_GetObjectItemCaseSensitive(json_document_root(document), "batch")
                           : NULL;
  gboolean given = cJSON_IsNumber(value) && value->valuedouble >= 1 && value->valuedouble <= MOST;
  return given ? (int) value->valuedouble : 1;
}

/* Does the network say itself how long its sequences are? */
static gboolean
limits_length(const InputText *network)
{
  g_autoptr(NetworkSpec) spec =
      network_spec_parse(network->name, network->text, network->length, NULL);
  const NetworkFamily *family = spec != NULL ? network_family_find(spec, NULL) : NULL;
  return family != NULL && family->limits_length;
}

/* Without --plan the figures are the network's own: one rank, one sequence, everything in bf16. */
static void
default_plan(const InputText *network, InputText *plan)
{
  enum { LONGEST = 8192 }; /* the plan's own default */
  g_autofree char *length =
      limits_length(network)
          ? g_strdup("")
          : g_strdup_printf(", \"sequence_length\": %d", own_sequence_length(network, LONGEST));
  plan->name = g_strdup("show's own plan");
  plan->text = g_strdup_printf("{\"strategy\": \"none\", \"batch\": {\"micro_batch\": %d%s}, "
                               "\"precision\": {\"parameters\": \"bf16\"}}",
                               own_micro_batch(network), length);
  plan->length = strlen(plan->text);
}

static gboolean
read_inputs(const ShowOptions *o, const char *network, ScenarioInputs *inputs, GError **error)
{
  const char *cluster = o->cluster != NULL ? o->cluster : "h100-8";
  inputs->assignments = o->assignments;
  if (!input_text_read("network", network, &inputs->network, error))
    return FALSE;
  if (o->plan == NULL)
    default_plan(&inputs->network, &inputs->plan);
  else if (!plan_input_read(o->plan, &inputs->plan, error))
    return FALSE;
  return input_text_read("cluster", cluster, &inputs->cluster, error);
}

static int
summarize_and_print(const ShowOptions *o, const ScenarioInputs *inputs, GError **error)
{
  g_autoptr(Scenario) s = scenario_new(inputs, 0, error);
  if (s == NULL)
    return EXIT_BAD_INPUT;
  NetworkSummaryInput input = {s->network_spec, s->network, s->plan, s->cluster->device,
                               s->strategy};
  g_autoptr(NetworkSummary) summary = network_summary_new(&input, error);
  if (summary == NULL)
    return EXIT_BAD_INPUT;
  g_autoptr(GString) text = g_string_new(NULL);
  g_autofree char *json = o->json ? network_summary_json(summary) : NULL;
  if (!o->json)
    network_summary_text(summary, !g_get_charset(NULL), text);
  fputs(o->json ? json : text->str, stdout);
  return EXIT_ANSWER_YES;
}

static int
run(int argc, char **argv, GError **error)
{
  ShowOptions o = {0};
  ScenarioInputs inputs = {0};
  const GOptionEntry entries[] = {
      {"plan", 0, 0, G_OPTION_ARG_FILENAME, &o.plan,
       "Plan: a preset or a file (one rank in bf16, one sequence)", "P"},
      {"cluster", 0, 0, G_OPTION_ARG_FILENAME, &o.cluster,
       "The machine: a preset or a file (h100-8)", "C"},
      {"set", 0, 0, G_OPTION_ARG_STRING_ARRAY, &o.assignments,
       "Override a key of the plan, e.g. batch.micro_batch=4; may be repeated", "K=V"},
      {"json", 0, 0, G_OPTION_ARG_NONE, &o.json, "Print JSON instead of text", NULL},
      {0},
  };
  g_auto(GStrv) positionals = NULL;
  int status = EXIT_ANSWER_YES;
  if (command_parse(&command_show, argc, argv, entries, 1, 1, &positionals, error)) {
    status = read_inputs(&o, positionals[0], &inputs, error)
                 ? summarize_and_print(&o, &inputs, error)
                 : EXIT_BAD_INPUT;
    scenario_name_assignment(o.assignments, error);
  }
  input_text_clear(&inputs.network);
  input_text_clear(&inputs.plan);
  input_text_clear(&inputs.cluster);
  g_free(o.plan);
  g_free(o.cluster);
  g_strfreev(o.assignments);
  return status;
}

const Command command_show = {
    .name = "show",
    .arguments = "NETWORK [--plan P] [--set K=V]... [--cluster C] [--json]",
    .summary = "Modules, exact parameters, FLOPs and activation memory of a network",
    .run = run,
};
