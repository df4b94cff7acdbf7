/* plan_input.c - plans as the command line names them: ours, or other programs' configurations. */
#include "cli/plan_input.h"

#include <stdio.h>
#include <string.h>

#include "base/json_document.h"
#include "base/output_file.h"
#include "base/units.h"
#include "import/training_config.h"
#include "strategy/strategy.h"

gboolean
plan_input_read(const char *preset_or_path, InputText *input, GError **error)
{
  if (!input_text_read("plan", preset_or_path, input, error))
    return FALSE;
  if (input->note != NULL)
    fputs(input->note, stderr);
  return TRUE;
}

/* The plan of a configuration has to be one that a run would take. */
static TrainingConfig *
read_config(const char *file, int ranks, char **plan, GError **error)
{
  gsize length;
  const char *name = json_text_name(file);
  g_autofree char *text = json_text_load(file, &length, error);
  if (text == NULL)
    return NULL;
  if (!training_config_is_foreign(text, length)) {
    g_autoptr(JsonDocument) document = json_document_parse(name, text, length, error);
    if (document != NULL)
      g_set_error(error, HIGHWATER_ERROR, HIGHWATER_ERROR_INPUT,
                  "%s: no configuration of DeepSpeed, accelerate, torchtitan or TrainingArguments",
                  name);
    return NULL;
  }
  const TrainingConfigSettings settings = {.ranks = ranks, .reads_files = TRUE};
  TrainingConfig *config = training_config_read(name, text, length, &settings, error);
  if (config == NULL)
    return NULL;
  *plan = training_config_plan(config);
  g_autofree PlanStrategy *table = strategy_plan_table();
  g_autoptr(PlanSpec) spec = plan_spec_parse(name, *plan, strlen(*plan), NULL, table, error);
  if (spec != NULL)
    return config;
  training_config_free(config);
  return NULL;
}

gboolean
plan_import(const char *file, const char *output, int ranks, GError **error)
{
  g_autofree char *plan = NULL;
  g_autoptr(TrainingConfig) config = read_config(file, ranks, &plan, error);
  gboolean on_stdout = output == NULL || g_str_equal(output, "-");
  if (config == NULL || !output_file_write(on_stdout ? "-" : output, plan, strlen(plan), error))
    return FALSE;
  g_autofree char *note = training_config_note(config);
  fputs(note, on_stdout ? stderr : stdout);
  return TRUE;
}
