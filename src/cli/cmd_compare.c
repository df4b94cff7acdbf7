/* cmd_compare.c - highwater compare: where two runs differ, and whether by more than is allowed. */
#include "base/units.h"
#include "cli/registry.h"
#include "cli/report_output.h"
#include "report/comparison_report.h"
#include "report/stored_run.h"
#include <stdio.h>
#include <string.h>

typedef struct {
  char *max_error, *step;
  gboolean json, verbose;
} Options;

/* What is read and made for a comparison. */
typedef struct {
  StoredRun *runs[SIDES];
  ReportModel *models[SIDES];
  GArray *limits;   /* NULL: none */
  int steps[SIDES]; /* 0: the last complete one */
  ComparedSteps compared;
} Work;

static void
work_clear(Work *work)
{
  for (int side = 0; side < SIDES; side++) {
    report_model_free(work->models[side]);
    stored_run_free(work->runs[side]);
  }
  g_clear_pointer(&work->limits, g_array_unref);
}

/* "3", "3:10" (of A and of B) or "all". */
static gboolean
read_step(const char *text, Work *work, GError **error)
{
  work->compared = !text ? COMPARE_AUTO : g_str_equal(text, "all") ? COMPARE_ALL : COMPARE_ONE;
  if (work->compared != COMPARE_ONE)
    return TRUE;
  g_auto(GStrv) parts = g_strsplit(text, ":", 2);
  for (int side = 0; side < SIDES; side++) {
    const char *part = side == SIDE_B && parts[0] && parts[1] ? parts[1] : parts[0];
    guint64 step;
    if (!part || !g_ascii_string_to_unsigned(part, 10, 1, G_MAXINT16, &step, NULL)) {
      g_set_error(error, HIGHWATER_ERROR, HIGHWATER_ERROR_USAGE,
                  "compare: --step: '%s' is neither a step, nor one of A and one of B (3:10), nor "
                  "all",
                  text);
      return FALSE;
    }
    work->steps[side] = (int) step;
  }
  return TRUE;
}

static gboolean
read_limits(const char *text, Work *work, GError **error)
{
  if (!text)
    return TRUE;
  work->limits = comparison_limits_parse(text, error);
  if (work->limits)
    return TRUE;
  g_prefix_error(error, "compare: --max-error: ");
  return FALSE;
}

static gboolean
read_run(const char *folder, int side, Work *work, GError **error)
{
  StoredRun *run = work->runs[side] = stored_run_load(folder, error);
  if (!run)
    return FALSE;
  work->models[side] = report_model_of_step(run->recording, run->info, work->steps[side]);
  if (work->steps[side] == 0 || work->models[side]->last_step >= 0)
    return TRUE;
  g_set_error(error, HIGHWATER_ERROR, HIGHWATER_ERROR_INPUT,
              "compare: --step: %s has no complete step %d; it has %u steps", folder,
              work->steps[side], run->recording->steps->len);
  return FALSE;
}

static gboolean
choose_limits(Work *work, const Comparison *comparison, GError **error)
{
  if (!work->limits || comparison_limits_choose(work->limits, comparison, error))
    return TRUE;
  g_prefix_error(error, "compare: --max-error: ");
  return FALSE;
}

static void
print(const Options *o, const ComparisonReport *report)
{
  const TextStyle style = report_style(o->verbose, FALSE);
  g_autoptr(GString) text = g_string_new(NULL);
  g_autofree char *json = o->json ? comparison_json(report) : NULL;
  if (!o->json)
    comparison_text(report, &style, text);
  fputs(json ? json : text->str, stdout);
}

static int
compare(const Options *o, char *const *folders, Work *work, GError **error)
{
  if (!read_step(o->step, work, error) || !read_limits(o->max_error, work, error))
    return EXIT_BAD_INPUT;
  for (int side = 0; side < SIDES; side++)
    if (!read_run(folders[side], side, work, error))
      return EXIT_BAD_INPUT;
  g_autoptr(Comparison) comparison =
      comparison_new(work->models[SIDE_A], work->models[SIDE_B], work->compared);
  if (!choose_limits(work, comparison, error))
    return EXIT_BAD_INPUT;
  const ComparisonReport report = {
      .comparison = comparison,
      .names = {folders[SIDE_A], folders[SIDE_B]},
      .limits = work->limits,
  };
  print(o, &report);
  return comparison_is_within(&report) ? EXIT_ANSWER_YES : EXIT_ANSWER_NO;
}

static int
run(int argc, char **argv, GError **error)
{
  Options o = {0};
  Work work = {0};
  const GOptionEntry entries[] = {
      {"max-error", 0, 0, G_OPTION_ARG_STRING, &o.max_error,
       "Exit with 1 above it: 5%, 64MiB, or a list such as peak_allocated=0,step_time=5%", "E"},
      {"step", 0, 0, G_OPTION_ARG_STRING, &o.step,
       "Compare this step alone: N, or N:M of A and B; all: every one from the construction on",
       "N"},
      {"json", 0, 0, G_OPTION_ARG_NONE, &o.json, "Print JSON instead of text", NULL},
      {"verbose", 0, 0, G_OPTION_ARG_NONE, &o.verbose, "Show all kernels, and what is the same",
       NULL},
      {0},
  };
  g_auto(GStrv) positionals = NULL;
  int status = EXIT_ANSWER_YES;
  if (command_parse(&command_compare, argc, argv, entries, 2, 2, &positionals, error))
    status = compare(&o, positionals, &work, error);
  work_clear(&work);
  g_free(o.max_error);
  g_free(o.step);
  return status;
}

const Command command_compare = {
    .name = "compare",
    .arguments = "A B [--max-error E] [--step N] [--json] [--verbose]",
    .summary =
        "Where two runs differ, simulated or measured: peaks, allocations, collectives, times",
    .run = run,
};
