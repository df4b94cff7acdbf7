/* cmd_export.c - highwater export: a plan becomes a configuration of the program that runs it. */
#include <stdio.h>
#include <string.h>

#include "base/json_document.h"
#include "base/output_file.h"
#include "base/units.h"
#include "cli/plan_input.h"
#include "cli/registry.h"
#include "import/plan_export.h"
#include "strategy/strategy.h"

typedef struct {
  char *format, *output;
  char **assignments;
} Options;

static PlanExport *
export_text(const InputText *input, const Options *o, GError **error)
{
  const char *const *assignments = (const char *const *) o->assignments;
  g_autofree PlanStrategy *table = strategy_plan_table();
  g_autoptr(PlanSpec) spec =
      plan_spec_parse(input->name, input->text, input->length, assignments, table, error);
  if (spec == NULL)
    return NULL;
  g_autoptr(JsonDocument) document =
      json_document_parse(input->name, input->text, input->length, error);
  for (; document != NULL && assignments != NULL && *assignments != NULL; assignments++)
    json_document_set(document, *assignments, NULL);
  return plan_export(o->format, spec, json_document_root(document), table, error);
}

static gboolean
export_plan(const char *plan, const Options *o, GError **error)
{
  InputText input = {0};
  gboolean on_stdout = o->output == NULL || g_str_equal(o->output, "-");
  g_autoptr(PlanExport) export =
      plan_input_read(plan, &input, error) ? export_text(&input, o, error) : NULL;
  input_text_clear(&input);
  if (export == NULL ||
      !output_file_write(on_stdout ? "-" : o->output, export->text, strlen(export->text), error))
    return FALSE;
  if (export->script[0] != '\0')
    fprintf(on_stdout ? stderr : stdout, "left to the training script: %s\n", export->script);
  return TRUE;
}

static int
run(int argc, char **argv, GError **error)
{
  Options o = {0};
  const GOptionEntry entries[] = {
      {"as", 0, 0, G_OPTION_ARG_STRING, &o.format, "accelerate, deepspeed or torchtitan", "FORMAT"},
      {"output", 'o', 0, G_OPTION_ARG_FILENAME, &o.output,
       "Write to a file instead of standard output", "FILE"},
      {"set", 0, 0, G_OPTION_ARG_STRING_ARRAY, &o.assignments,
       "Override a key of the plan, e.g. precision.reduce=bf16; may be repeated", "K=V"},
      {.long_name = NULL},
  };
  g_auto(GStrv) positionals = NULL;
  if (command_parse(&command_export, argc, argv, entries, 2, 2, &positionals, error)) {
    if (!g_str_equal(positionals[0], "plan"))
      command_refuse(&command_export, error, "no kind '%s'; there is: plan", positionals[0]);
    else if (o.format == NULL)
      command_refuse(&command_export, error,
                     "say the format: --as accelerate, deepspeed or torchtitan");
    else
      export_plan(positionals[1], &o, error);
    scenario_name_assignment(o.assignments, error);
  }
  g_free(o.format);
  g_free(o.output);
  g_strfreev(o.assignments);
  return EXIT_ANSWER_YES;
}

const Command command_export = {
    .name = "export",
    .arguments = "plan PLAN --as FORMAT [--set K=V]... [-o FILE]",
    .summary = "Write a plan as a configuration of accelerate, DeepSpeed or torchtitan",
    .run = run,
};
