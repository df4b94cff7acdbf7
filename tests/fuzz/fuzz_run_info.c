/* fuzz_run_info.c - any bytes as a run.json; one that is accepted is written and read the same, and
 * can be reported. */
#include <string.h>

#include "fuzz.h"
#include "report/run_info_store.h"
#include "report/summary_json.h"
#include "report/summary_text.h"

static void
report(const RunInfo *info)
{
  g_autoptr(Recording) recording = recording_new();
  g_autoptr(ReportModel) model = report_model_new(recording, info);
  g_autoptr(GString) text = g_string_new(NULL);
  summary_text(model, &(TextStyle){.verbose = TRUE}, text);
  g_autofree char *json = summary_json(model);
  g_assert(json != NULL);
}

int
LLVMFuzzerTestOneInput(const guint8 *data, gsize size)
{
  g_autoptr(GError) error = NULL;
  RunAsked asked, again;
  g_autoptr(RunInfo) info = run_info_parse("input", (const char *) data, size, &asked, &error);
  g_assert((info == NULL) == (error != NULL));
  if (info == NULL)
    return 0;
  g_autofree char *text = run_info_print(info, &asked);
  g_autoptr(RunInfo) copy = run_info_parse("copy", text, strlen(text), &again, &error);
  g_assert_no_error(error);
  g_autofree char *second = run_info_print(copy, &again);
  g_assert_cmpstr(text, ==, second);
  report(info);
  return 0;
}
