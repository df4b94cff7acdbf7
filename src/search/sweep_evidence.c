/* sweep_evidence.c - what stands behind a variant's figures: its run in a folder of its own. */
#include "search/sweep_evidence.h"

#include "report/run_directory.h"
#include "report/summary_json.h"
#include "simulate/run_store.h"

gboolean
sweep_evidence_write(const char *folder, const Trial *trial, const RunResult *result,
                     GError **error)
{
  g_autofree char **all = candidate_assignments(trial->request, trial->assignments);
  g_autoptr(ReportModel) model = report_model_new(result->recording, result->info);
  g_autofree char *report = summary_json(model);
  RunRequest request = *trial->request;
  request.inputs.assignments = all;
  return run_store(folder, &request, result, report, error);
}

gboolean
sweep_evidence_is_there(const char *folder)
{
  g_autofree char *file = g_build_filename(folder, RUN_RECORDING, NULL);
  return g_file_test(file, G_FILE_TEST_EXISTS);
}
