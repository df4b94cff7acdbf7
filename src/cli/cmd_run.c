/* cmd_run.c - highwater run: reads the command line, has the step simulated, writes the reports. */
#include "base/json_document.h"
#include "base/output_file.h"
#include "base/units.h"
#include "cli/registry.h"
#include "cli/run_simulation.h"
#include "report/chrome_trace.h"
#include "report/run_directory.h"
#include "report/summary_json.h"
#include "report/summary_text.h"
#include "report/timeline_table.h"
#include "spec/preset.h"
#include <stdio.h>
#include <unistd.h>

enum { MAX_STEPS = 10000 };

/* The command line as given. */
typedef struct {
  char *plan, *cluster, *memory_limit, *timeline, *output, *chrome_trace;
  char **assignments;
  int steps, rank;
  gboolean json, verbose, all_ranks;
} RunOptions;

static void
options_clear(RunOptions *options)
{
  char *const strings[] = {options->plan,     options->cluster, options->memory_limit,
                           options->timeline, options->output,  options->chrome_trace};
  for (guint i = 0; i < G_N_ELEMENTS(strings); i++)
    g_free(strings[i]);
  g_strfreev(options->assignments);
}

static void
request_clear(RunRequest *request)
{
  const InputText inputs[] = {request->inputs.network, request->inputs.plan,
                              request->inputs.cluster};
  for (guint i = 0; i < G_N_ELEMENTS(inputs); i++) {
    g_free(inputs[i].name);
    g_free(inputs[i].text);
  }
}

static void
result_clear(RunResult *result)
{
  if (result->recording)
    recording_free(result->recording);
  run_info_free(result->info);
}

/* ---- input side ---- */

static gboolean
check_range(const char *option, int value, int min, int max, GError **error)
{
  if (value >= min && value <= max)
    return TRUE;
  g_set_error(error, HIGHWATER_ERROR, HIGHWATER_ERROR_USAGE, "run: %s: %d is not in %d..%d", option,
              value, min, max);
  return FALSE;
}

static gboolean
read_memory_limit(const char *text, gint64 *bytes, GError **error)
{
  *bytes = 0;
  if (!text)
    return TRUE;
  if (!parse_size(text, bytes, error)) {
    g_prefix_error(error, "run: --memory-limit: ");
    return FALSE;
  }
  if (*bytes > 0)
    return TRUE;
  g_set_error(error, HIGHWATER_ERROR, HIGHWATER_ERROR_USAGE,
              "run: --memory-limit: a limit is at least one byte");
  return FALSE;
}

static gboolean
check_standard_input(const char *const *inputs, guint count, GError **error)
{
  guint used = 0;
  for (guint i = 0; i < count; i++)
    used += g_str_equal(inputs[i], "-");
  if (used <= 1)
    return TRUE;
  g_set_error(error, HIGHWATER_ERROR, HIGHWATER_ERROR_USAGE,
              "run: only one of NETWORK, --plan and --cluster can be standard input");
  return FALSE;
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

static gboolean
fill_request(const RunOptions *options, const char *network, RunRequest *request, GError **error)
{
  const char *plan = options->plan ? options->plan : "fsdp2";
  const char *cluster = options->cluster ? options->cluster : "h100-8";
  request->steps = options->steps;
  request->rank = options->rank;
  request->all_ranks = options->all_ranks;
  request->inputs.assignments = options->assignments;
  request->keep_spans = options->output != NULL || options->chrome_trace != NULL;
  return check_range("--steps", options->steps, 1, MAX_STEPS, error) &&
         check_range("--rank", options->rank, 0, G_MAXINT, error) &&
         check_output(options->output, error) &&
         read_memory_limit(options->memory_limit, &request->memory_limit, error) &&
         check_standard_input((const char *const[]){network, plan, cluster}, 3, error) &&
         input_text_read("network", network, &request->inputs.network, error) &&
         input_text_read("plan", plan, &request->inputs.plan, error) &&
         input_text_read("cluster", cluster, &request->inputs.cluster, error);
}

/* ---- output side ---- */

/* An input as it was loaded, assignments applied.  It was parsed before.  Caller frees. */
static char *
input_copy(const InputText *input, char *const *assignments)
{
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

static gboolean
write_output(const RunOptions *options, const RunRequest *request, const RunResult *result,
             const char *report, GError **error)
{
  if (!options->output)
    return TRUE;
  g_autofree char *network = input_copy(&request->inputs.network, NULL);
  g_autofree char *plan = input_copy(&request->inputs.plan, request->inputs.assignments);
  g_autofree char *cluster = input_copy(&request->inputs.cluster, NULL);
  const RunDocuments documents = {
      .report = report, .network = network, .plan = plan, .cluster = cluster};
  return run_directory_write(options->output, result->recording, &documents, error);
}

static gboolean
write_timeline(const RunOptions *options, const RunResult *result, GError **error)
{
  if (!options->timeline)
    return TRUE;
  const TimelineStyle style = {.max_changes = TIMELINE_CHANGES};
  g_autoptr(GString) table = g_string_new(NULL);
  timeline_table(result->recording, &style, table);
  return output_file_write(options->timeline, table->str, table->len, error);
}

static gboolean
write_chrome_trace(const RunOptions *options, const RunResult *result, GError **error)
{
  if (!options->chrome_trace)
    return TRUE;
  g_autoptr(GString) trace = g_string_new(NULL);
  chrome_trace(result->recording, result->info, trace);
  return output_file_write(options->chrome_trace, trace->str, trace->len, error);
}

/* Colour when a person looks and wants it (https://no-color.org). */
static gboolean
wants_colour(void)
{
  const char *terminal = g_getenv("TERM");
  const char *no_colour = g_getenv("NO_COLOR");
  return isatty(STDOUT_FILENO) && terminal && !g_str_equal(terminal, "dumb") &&
         !(no_colour && *no_colour);
}

static void
print_text(const RunOptions *options, const ReportModel *model)
{
  const TextStyle style = {
      .verbose = options->verbose,
      .colour = wants_colour(),
      .ascii = !g_get_charset(NULL),
  };
  g_autoptr(GString) text = g_string_new(NULL);
  summary_text(model, &style, text);
  fputs(text->str, stdout);
}

/* Files first: when one cannot be written nothing is printed. */
static gboolean
write_reports(const RunOptions *options, const RunRequest *request, const RunResult *result,
              const ReportModel *model, GError **error)
{
  g_autofree char *json = options->json || options->output ? summary_json(model) : NULL;
  if (!write_timeline(options, result, error) || !write_chrome_trace(options, result, error) ||
      !write_output(options, request, result, json, error))
    return FALSE;
  if (options->json)
    fputs(json, stdout);
  else
    print_text(options, model);
  return TRUE;
}

static int
simulate_and_report(const RunOptions *options, const char *network, GError **error)
{
  RunRequest request = {0};
  RunResult result = {0};
  int status = EXIT_BAD_INPUT;
  if (fill_request(options, network, &request, error) && run_simulation(&request, &result, error)) {
    g_autoptr(ReportModel) model = report_model_new(result.recording, result.info);
    if (write_reports(options, &request, &result, model, error))
      status = model->verdict == VERDICT_DOES_NOT_FIT ? EXIT_ANSWER_NO : EXIT_ANSWER_YES;
  }
  if (status == EXIT_BAD_INPUT)
    scenario_name_assignment(options->assignments, error);
  result_clear(&result);
  request_clear(&request);
  return status;
}

static int
run(int argc, char **argv, GError **error)
{
  RunOptions options = {.steps = 3};
  const GOptionEntry entries[] = {
      {"plan", 0, 0, G_OPTION_ARG_FILENAME, &options.plan,
       "How it is trained: a preset or a file (fsdp2)", "P"},
      {"cluster", 0, 0, G_OPTION_ARG_FILENAME, &options.cluster,
       "The machine: a preset or a file (h100-8)", "C"},
      {"set", 0, 0, G_OPTION_ARG_STRING_ARRAY, &options.assignments,
       "Override a key of the plan, e.g. mesh.shard=16; may be repeated", "K=V"},
      {"steps", 0, 0, G_OPTION_ARG_INT, &options.steps, "Steps to simulate (3)", "N"},
      {"rank", 0, 0, G_OPTION_ARG_INT, &options.rank, "The rank to report (0)", "R"},
      {"all-ranks", 0, 0, G_OPTION_ARG_NONE, &options.all_ranks,
       "Simulate every rank by itself, not one for all that are alike", NULL},
      {"memory-limit", 0, 0, G_OPTION_ARG_STRING, &options.memory_limit,
       "What the allocator may reserve, e.g. 40GiB (what the device has left)", "SIZE"},
      {"json", 0, 0, G_OPTION_ARG_NONE, &options.json, "Print JSON instead of text", NULL},
      {"timeline", 0, 0, G_OPTION_ARG_FILENAME, &options.timeline,
       "Write the memory timeline as a table", "F"},
      {"chrome-trace", 0, 0, G_OPTION_ARG_FILENAME, &options.chrome_trace,
       "Write a trace for Perfetto and chrome://tracing", "F"},
      {"output", 0, 0, G_OPTION_ARG_FILENAME, &options.output, "Keep the run in a folder, for plot",
       "DIR"},
      {"verbose", 0, 0, G_OPTION_ARG_NONE, &options.verbose,
       "Add tables of steps, phases, tensors, modules and groups", NULL},
      {.long_name = NULL},
  };
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
        "[--memory-limit SIZE] [--json] [--timeline F] [--chrome-trace F] [--output DIR] "
        "[--verbose]",
    .summary = "Simulate training steps: do they fit, where is the peak, how long do they take",
    .run = run,
};
