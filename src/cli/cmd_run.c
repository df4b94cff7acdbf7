/* cmd_run.c - highwater run: reads the command line, has the step simulated, writes the reports. */
#include "base/output_file.h"
#include "base/units.h"
#include "cli/registry.h"
#include "cli/report_output.h"
#include "cli/run_options.h"
#include "report/chrome_trace.h"
#include "report/memory_snapshot.h"
#include "report/summary_json.h"
#include "report/timeline_table.h"
#include "simulate/run_store.h"
#include <stdio.h>

/* The command line as given. */
typedef struct {
  RunOptions what;
  char *timeline, *output, *chrome_trace, *memory_snapshot;
  gboolean json, verbose;
} Options;

static void
options_clear(Options *options)
{
  run_options_clear(&options->what);
  g_free(options->timeline);
  g_free(options->output);
  g_free(options->chrome_trace);
  g_free(options->memory_snapshot);
}

static gboolean
check_output(const char *output, GError **error)
{
  if (output == NULL || !g_str_equal(output, "-"))
    return TRUE;
  g_set_error(error, HIGHWATER_ERROR, HIGHWATER_ERROR_USAGE,
              "run: --output: a folder is needed, not standard output");
  return FALSE;
}

/* ---- output side ---- */

static gboolean
write_timeline(const Options *options, const RunResult *result, GError **error)
{
  if (!options->timeline)
    return TRUE;
  const TimelineStyle style = {.max_changes = TIMELINE_CHANGES};
  g_autoptr(GString) table = g_string_new(NULL);
  timeline_table(result->recording, &style, table);
  return output_file_write(options->timeline, table->str, table->len, error);
}

static gboolean
write_chrome_trace(const Options *options, const RunResult *result, GError **error)
{
  if (!options->chrome_trace)
    return TRUE;
  g_autoptr(GString) trace = g_string_new(NULL);
  chrome_trace(result->recording, result->info, trace);
  return output_file_write(options->chrome_trace, trace->str, trace->len, error);
}

static gboolean
write_memory_snapshot(const Options *options, const RunResult *result, GError **error)
{
  if (!options->memory_snapshot)
    return TRUE;
  g_autoptr(GByteArray) pickle = memory_snapshot(result->recording, &result->allocator);
  return output_file_write(options->memory_snapshot, (const char *) pickle->data, pickle->len,
                           error);
}

static void
print_text(const Options *options, const ReportModel *model)
{
  const TextStyle style = report_style(options->verbose, FALSE);
  g_autoptr(GString) text = g_string_new(NULL);
  summary_text(model, &style, text);
  fputs(text->str, stdout);
}

/* Files first: when one cannot be written nothing is printed. */
static gboolean
write_reports(const Options *options, const RunRequest *request, const RunResult *result,
              const ReportModel *model, GError **error)
{
  g_autofree char *json = options->json || options->output ? summary_json(model) : NULL;
  if (!write_timeline(options, result, error) || !write_chrome_trace(options, result, error) ||
      !write_memory_snapshot(options, result, error) ||
      (options->output && !run_store(options->output, request, result, json, error)))
    return FALSE;
  if (options->json)
    fputs(json, stdout);
  else
    print_text(options, model);
  return TRUE;
}

static int
simulate_and_report(const Options *options, const char *network, GError **error)
{
  RunRequest request = {0};
  RunResult result = {0};
  int status = EXIT_BAD_INPUT;
  if (check_output(options->output, error) &&
      run_options_read(&options->what, "run", network, &request, error)) {
    request.keep_spans = options->output != NULL || options->chrome_trace != NULL;
    if (run_simulation(&request, &result, error)) {
      g_autoptr(ReportModel) model = report_model_new(result.recording, result.info);
      if (write_reports(options, &request, &result, model, error))
        status = model->verdict == VERDICT_DOES_NOT_FIT ? EXIT_ANSWER_NO : EXIT_ANSWER_YES;
    }
  }
  if (status == EXIT_BAD_INPUT)
    scenario_name_assignment(options->what.assignments, error);
  run_result_clear(&result);
  run_request_clear(&request);
  return status;
}

static int
run(int argc, char **argv, GError **error)
{
  Options options = {.what = run_options_default()};
  const GOptionEntry own[] = {
      {"json", 0, 0, G_OPTION_ARG_NONE, &options.json, "Print JSON instead of text", NULL},
      {"timeline", 0, 0, G_OPTION_ARG_FILENAME, &options.timeline,
       "Write the memory timeline as a table", "F"},
      {"chrome-trace", 0, 0, G_OPTION_ARG_FILENAME, &options.chrome_trace,
       "Write a trace for Perfetto and chrome://tracing", "F"},
      {"memory-snapshot", 0, 0, G_OPTION_ARG_FILENAME, &options.memory_snapshot,
       "Write a pickle for PyTorch's memory viewer", "F"},
      {"output", 0, 0, G_OPTION_ARG_FILENAME, &options.output, "Keep the run in a folder, for plot",
       "DIR"},
      {"verbose", 0, 0, G_OPTION_ARG_NONE, &options.verbose,
       "Add tables of steps, phases, tensors, modules and groups", NULL},
      {.long_name = NULL},
  };
  g_autofree GOptionEntry *entries = run_options_entries(&options.what, own);
  g_auto(GStrv) positionals = NULL;
  int status = EXIT_ANSWER_YES;
  if (command_parse(&command_run, argc, argv, entries, 1, 1, &positionals, error))
    status = simulate_and_report(&options, positionals[0], error);
  options_clear(&options);
  return status;
}

const Command command_run = {
    .name = "run",
    .arguments =
        "NETWORK [--plan P] [--cluster C] [--set K=V]... [--steps N] [--rank R] [--all-ranks] "
        "[--memory-limit SIZE] [--json] [--timeline F] [--chrome-trace F] "
        "[--memory-snapshot F] [--output DIR] [--verbose]",
    .summary = "Simulate training steps: do they fit, where is the peak, how long do they take",
    .run = run,
};
