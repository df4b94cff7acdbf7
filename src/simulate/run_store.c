/* run_store.c - between a RUN folder and what run_simulation() takes and gives. */
#include "simulate/run_store.h"

#include <string.h>

#include "base/json_document.h"
#include "base/json_output.h"
#include "base/units.h"
#include "report/run_directory.h"
#include "simulate/program_run.h"

/* An input as it was loaded, assignments applied.  It was parsed before.  NULL: there is none, or
 * it is no document but a Program.  Caller frees. */
static char *
input_copy(const InputText *input, char *const *assignments)
{
  if (input->text == NULL || is_program(input))
    return NULL;
  g_autoptr(JsonDocument) document =
      json_document_parse(input->name, input->text, input->length, NULL);
  g_assert(document);
  for (guint i = 0; assignments && assignments[i]; i++)
    json_document_set(document, assignments[i], NULL);
  char *text = cJSON_Print(json_document_root(document));
  char *copy = g_strconcat(text, "\n", NULL);
  cJSON_free(text);
  return copy;
}

gboolean
run_store(const char *folder, const RunRequest *request, const RunResult *result,
          const char *report, GError **error)
{
  const ScenarioInputs *inputs = &request->inputs;
  g_autofree char *network = input_copy(&inputs->network, NULL);
  g_autofree char *plan = input_copy(&inputs->plan, inputs->assignments);
  g_autofree char *cluster = input_copy(&inputs->cluster, NULL);
  const StoredRun run = {
      .recording = result->recording,
      .info = result->info,
      .network = network,
      .program = is_program(&inputs->network) ? inputs->network.text : NULL,
      .plan = plan,
      .cluster = cluster,
      .steps = request->steps,
      .rank = request->rank,
      .all_ranks = request->all_ranks,
      .memory_limit = request->memory_limit,
  };
  return run_directory_write(folder, &run, report, error);
}

/* name: of the file that the text was first read from, since a network and a cluster are called by
 * it; NULL: not known. */
static gboolean
take_input(const StoredRun *run, const char *file, const char *name, const char *text,
           InputText *input, GError **error)
{
  if (text == NULL) {
    g_set_error(error, HIGHWATER_ERROR, HIGHWATER_ERROR_INPUT,
                "%s: has no %s: only a run that was simulated can be simulated again", run->folder,
                file);
    return FALSE;
  }
  g_autofree char *first =
      name != NULL ? g_strconcat(name, strrchr(file, '.'), NULL) : g_strdup(file);
  *input =
      (InputText){g_build_filename(run->folder, first, NULL), g_strdup(text), strlen(text), NULL};
  return TRUE;
}

gboolean
run_request_from_stored(const StoredRun *run, RunRequest *request, GError **error)
{
  ScenarioInputs *inputs = &request->inputs;
  *request = (RunRequest){
      .steps = run->steps,
      .rank = run->rank,
      .all_ranks = run->all_ranks,
      .memory_limit = run->memory_limit,
  };
  gboolean of_program = run->program != NULL;
  if (!take_input(run, of_program ? RUN_PROGRAM : RUN_NETWORK, run->info->model,
                  of_program ? run->program : run->network, &inputs->network, error) ||
      (!of_program && !take_input(run, RUN_PLAN, NULL, run->plan, &inputs->plan, error)) ||
      !take_input(run, RUN_CLUSTER, run->info->cluster, run->cluster, &inputs->cluster, error))
    return FALSE;
  if (run->steps > 0)
    return TRUE;
  g_set_error(error, HIGHWATER_ERROR, HIGHWATER_ERROR_INPUT,
              "%s: " RUN_INFO " does not say how many steps were simulated", run->folder);
  return FALSE;
}
