/* cmd_sweep.c - highwater sweep: one run with keys varied, all variants tried and compared. */
#include <stdio.h>
#include <string.h>

#include "base/units.h"
#include "cli/registry.h"
#include "cli/run_options.h"
#include "cli/watching.h"
#include "search/sweep_results.h"
#include "search/sweep_run.h"
#include "search/sweep_text.h"
#include "search/sweep_verification.h"

/* Most variants whose evidence is kept when nothing is said of it. */
#define EVIDENCE_MOST 16

typedef struct {
  RunOptions what;
  char **vary;
  char *output, *evidence, *headroom;
  int jobs;
  gboolean json, csv, hold_global_batch, verify;
} Options;

static void
options_clear(Options *options)
{
  run_options_clear(&options->what);
  g_strfreev(options->vary);
  g_free(options->output);
  g_free(options->evidence);
  g_free(options->headroom);
}

static gboolean
check_evidence(const Options *options, GError **error)
{
  static const char *const which[] = {"auto", "all", "none", NULL};
  if (options->evidence == NULL)
    return TRUE;
  if (!g_strv_contains(which, options->evidence))
    return command_refuse(&command_sweep, error, "--evidence: is one of auto, all, none");
  if (options->output == NULL && !g_str_equal(options->evidence, "none"))
    return command_refuse(&command_sweep, error,
                          "--evidence: needs --output, a folder to keep it in");
  return TRUE;
}

static gboolean
check_options(const Options *options, GError **error)
{
  if (options->vary == NULL)
    return command_refuse(&command_sweep, error, "--vary KEY=VALUE,VALUE,... is needed");
  if (options->json && options->csv)
    return command_refuse(&command_sweep, error, "only one of --json and --csv can be printed");
  if (options->jobs < 0)
    return command_refuse(&command_sweep, error,
                          "--jobs: a number of threads is needed, 0 for all cores");
  if (options->output != NULL && g_str_equal(options->output, "-"))
    return command_refuse(&command_sweep, error,
                          "--output: a folder is needed, not standard output");
  return check_evidence(options, error);
}

static gboolean
wants_evidence(const Options *options, const Sweep *sweep)
{
  const char *which = options->evidence != NULL ? options->evidence : "auto";
  if (options->output == NULL || g_str_equal(which, "none"))
    return FALSE;
  return g_str_equal(which, "all") || sweep->variants->len <= EVIDENCE_MOST;
}

/* ---- while it goes on ---- */

static void
show_progress(const SweepProgress *progress, gpointer user)
{
  Watching *watching = user;
  g_autofree char *note = NULL;
  if (!watching->line.is_shown)
    return;
  if (progress->best != NULL) {
    g_autofree char *step = format_duration(progress->best->outcome.time.step);
    note = g_strdup_printf("best %s: %s", progress->best->label, step);
  }
  progress_line_draw(&watching->line, progress->done, progress->done - progress->before,
                     progress->all, note);
}

/* ---- output ---- */

static int
print_results(const Options *options, const Sweep *sweep)
{
  g_autoptr(GString) out = g_string_new(NULL);
  if (options->json)
    sweep_results_json(sweep, out);
  else if (options->csv)
    sweep_results_csv(sweep, out);
  else
    sweep_text(sweep, out);
  fputs(out->str, stdout);
  return sweep->fastest >= 0 && !sweep_verification_fails(sweep) ? EXIT_ANSWER_YES : EXIT_ANSWER_NO;
}

static int
say_interrupted(const Options *options, const Sweep *sweep, const Watching *watching)
{
  guint done = 0;
  for (guint i = 0; i < sweep->variants->len; i++)
    done += sweep_variant(sweep, i)->is_done;
  fprintf(stderr, "highwater: sweep: interrupted: %u of %u variants are done%s\n", done,
          sweep->variants->len,
          options->output != NULL ? "; the same command goes on from there" : "");
  return watching_status(watching);
}

/* ---- all ---- */

static int
run_sweep(const Options *options, const SweepRequest *request, GError **error)
{
  g_autoptr(Sweep) sweep = sweep_new(request, error);
  g_autoptr(SweepDirectory) directory = NULL;
  if (sweep == NULL)
    return EXIT_BAD_INPUT;
  if (options->output != NULL) {
    directory = sweep_directory_open(options->output, sweep, request, error);
    if (directory == NULL)
      return EXIT_BAD_INPUT;
  }
  Watching watching = {0};
  const SweepWatch watch = {
      .workers = options->jobs,
      .directory = directory,
      .verifies = options->verify,
      .has_evidence = wants_evidence(options, sweep),
      .progress = show_progress,
      .stops = watching_stops,
      .user = &watching,
  };
  gboolean is_complete;
  watching_begin(&watching);
  gboolean is_written = sweep_run(sweep, request, &watch, &is_complete, error);
  watching_end(&watching);
  if (!is_written)
    return EXIT_BAD_INPUT;
  return is_complete ? print_results(options, sweep) : say_interrupted(options, sweep, &watching);
}

static int
read_and_sweep(const Options *options, const char *network, GError **error)
{
  RunRequest base = {0};
  int status = EXIT_BAD_INPUT;
  if (check_options(options, error) &&
      run_options_read(&options->what, "sweep", network, &base, error)) {
    SweepRequest request = {
        .base = &base, .vary = options->vary, .hold_global_batch = options->hold_global_batch};
    if (headroom_read("sweep", options->headroom, &request.headroom, error))
      status = run_sweep(options, &request, error);
  }
  run_request_clear(&base);
  return status;
}

static int
run(int argc, char **argv, GError **error)
{
  Options options = {.what = run_options_default()};
  const GOptionEntry own[] = {
      {"vary", 0, 0, G_OPTION_ARG_STRING_ARRAY, &options.vary,
       "Try each of these values; several keys: all combinations", "K=V,..."},
      {"hold-global-batch", 0, 0, G_OPTION_ARG_NONE, &options.hold_global_batch,
       "Choose accumulation.steps so that all have the plan's tokens a step", NULL},
      {"headroom", 0, 0, G_OPTION_ARG_STRING, &options.headroom,
       "What the fastest leaves free: a part of the memory or a size (0)", "10%|4GiB"},
      {"json", 0, 0, G_OPTION_ARG_NONE, &options.json, "Print a line of JSON for each variant",
       NULL},
      {"csv", 0, 0, G_OPTION_ARG_NONE, &options.csv, "Print CSV", NULL},
      {"output", 0, 0, G_OPTION_ARG_FILENAME, &options.output,
       "Keep results in a folder, and go on there after an interruption", "DIR"},
      {"evidence", 0, 0, G_OPTION_ARG_STRING, &options.evidence,
       "Keep the run of each variant, too: auto (of up to 16), all, none", "WHICH"},
      {"verify", 0, 0, G_OPTION_ARG_NONE, &options.verify,
       "Execute each variant's schedule on numbers, on a scaled network", NULL},
      {"jobs", 0, 0, G_OPTION_ARG_INT, &options.jobs, "Threads (as many as there are cores)", "N"},
      {.long_name = NULL},
  };
  g_autofree GOptionEntry *entries = run_options_entries(&options.what, own);
  g_auto(GStrv) positionals = NULL;
  int status = EXIT_ANSWER_YES;
  if (command_parse(&command_sweep, argc, argv, entries, 1, 1, &positionals, error))
    status = read_and_sweep(&options, positionals[0], error);
  options_clear(&options);
  return status;
}

const Command command_sweep = {
    .name = "sweep",
    .arguments =
        "NETWORK --vary K=V,... [--vary K=V,...]... [--plan P] [--cluster C] [--set K=V]... "
        "[--steps N] [--rank R] [--all-ranks] [--memory-limit SIZE] [--hold-global-batch] "
        "[--headroom 10%|4GiB] "
        "[--json | --csv] [--output DIR] [--evidence WHICH] [--verify] [--jobs N]",
    .summary = "Try many variants of a plan: which fit, which is fastest, what each costs",
    .run = run,
};
