/* cmd_report.c - highwater report: says again what is in a RUN, or prints one of its tables. */
#include "base/output_file.h"
#include "base/units.h"
#include "cli/registry.h"
#include "cli/report_output.h"
#include "report/run_tables.h"
#include "report/stored_run.h"
#include "report/summary_json.h"

typedef struct {
  char *table, *module, *output;
  int step;
  gboolean json, verbose;
} Options;

static gboolean
fail(GError **error, const char *message)
{
  g_set_error(error, HIGHWATER_ERROR, HIGHWATER_ERROR_USAGE, "report: %s", message);
  return FALSE;
}

static gboolean
check_options(const Options *o, GError **error)
{
  if (o->table && (o->json || o->verbose))
    return fail(error, "--table prints one table: neither --json nor --verbose");
  if (o->json && o->verbose)
    return fail(error, "--json has everything: --verbose is of the text");
  if (!o->table && (o->module || o->step != 0))
    return fail(error, "--module and --step choose what a table tells: give --table");
  if (o->step < 0)
    return fail(error, "--step: steps count from 1");
  return TRUE;
}

/* The table, or NULL and error.  Caller frees. */
static GString *
print_table(const Options *o, const StoredRun *run, GError **error)
{
  const RunTable *table = run_table_find(o->table, error);
  if (!table) {
    g_prefix_error(error, "report: --table: ");
    return NULL;
  }
  g_autoptr(GString) out = g_string_new(NULL);
  const TableView view = {.module = o->module, .step = o->step};
  if (run_table_write(table, run->recording, run->info, &view, out, error))
    return g_steal_pointer(&out);
  g_prefix_error(error, "%s: ", run->folder);
  return NULL;
}

/* The report.  Caller frees. */
static GString *
print_report(const Options *o, const ReportModel *model)
{
  GString *out = g_string_new(NULL);
  if (o->json) {
    g_autofree char *json = summary_json(model);
    return g_string_append(out, json);
  }
  const TextStyle style = report_style(o->verbose, o->output != NULL);
  summary_text(model, &style, out);
  return out;
}

static int
report(const Options *o, const char *folder, GError **error)
{
  g_autoptr(StoredRun) run = check_options(o, error) ? stored_run_load(folder, error) : NULL;
  if (!run)
    return EXIT_BAD_INPUT;
  g_autoptr(ReportModel) model = report_model_new(run->recording, run->info);
  g_autoptr(GString) out = o->table ? print_table(o, run, error) : print_report(o, model);
  if (!out || !output_file_write(o->output ? o->output : "-", out->str, out->len, error))
    return EXIT_BAD_INPUT;
  return !o->table && model->verdict == VERDICT_DOES_NOT_FIT ? EXIT_ANSWER_NO : EXIT_ANSWER_YES;
}

static int
run(int argc, char **argv, GError **error)
{
  Options o = {0};
  const GOptionEntry entries[] = {
      {"json", 0, 0, G_OPTION_ARG_NONE, &o.json, "Print JSON instead of text", NULL},
      {"verbose", 0, 0, G_OPTION_ARG_NONE, &o.verbose,
       "Add tables of steps, phases, tensors, modules and groups", NULL},
      {"table", 0, 0, G_OPTION_ARG_STRING, &o.table, "Print this table instead, for plots/*.gp",
       "NAME"},
      {"module", 0, 0, G_OPTION_ARG_STRING, &o.module, "Whose table, where it is of one module",
       "M"},
      {"step", 0, 0, G_OPTION_ARG_INT, &o.step, "The table of this step alone", "N"},
      {"output", 0, 0, G_OPTION_ARG_FILENAME, &o.output, "Write here (standard output)", "F"},
      {0},
  };
  g_auto(GStrv) positionals = NULL;
  int status = EXIT_ANSWER_YES;
  if (command_parse(&command_report, argc, argv, entries, 1, 1, &positionals, error))
    status = report(&o, positionals[0], error);
  g_free(o.table);
  g_free(o.module);
  g_free(o.output);
  return status;
}

const Command command_report = {
    .name = "report",
    .arguments = "RUN [--json] [--verbose] [--table NAME [--module M] [--step N]] [--output F]",
    .summary = "Say again what is in a RUN, simulated or measured, or print one of its tables",
    .run = run,
};
