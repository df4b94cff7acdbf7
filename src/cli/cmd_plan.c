/* cmd_plan.c - highwater plan: the fastest plan for a network on so many GPUs that fits with room
 * to spare. */
#include <stdio.h>
#include <string.h>

#include "base/output_file.h"
#include "base/units.h"
#include "cli/registry.h"
#include "cli/run_options.h"
#include "cli/watching.h"
#include "search/plan_text.h"
#include "spec/preset.h"

enum { RANKS_MOST = 1 << 20 };

typedef struct {
  RunOptions what;
  char *headroom, *output;
  int ranks, jobs;
  gint64 global_batch;
  gboolean json;
} Options;

static void
options_clear(Options *options)
{
  run_options_clear(&options->what);
  g_free(options->headroom);
  g_free(options->output);
}

static gboolean
refuse(GError **error, const char *message)
{
  g_set_error(error, HIGHWATER_ERROR, HIGHWATER_ERROR_USAGE, "plan: %s", message);
  return FALSE;
}

static gboolean
check_options(const Options *options, GError **error)
{
  if (options->ranks < 0 || options->ranks > RANKS_MOST)
    return refuse(error, "--ranks: a number of GPUs is needed, at most 1048576");
  if (options->global_batch < 0 || options->global_batch > G_MAXINT32)
    return refuse(error, "--global-batch: a number of sequences is needed");
  if (options->jobs < 0)
    return refuse(error, "--jobs: a number of threads is needed, 0 for all cores");
  if (options->what.rank != 0 || options->what.all_ranks)
    return refuse(error, "--rank, --all-ranks: plans are compared by what rank 0 does");
  return TRUE;
}

/* ---- while it goes on ---- */

static void
show_progress(guint done, guint planned, const char *stage, gpointer user)
{
  Watching *watching = user;
  if (watching->line.is_shown)
    progress_line_draw(&watching->line, done, done, planned, stage);
}

/* ---- all ---- */

static gboolean
write_plan(const Options *options, const PlanAnswer *answer, GError **error)
{
  const PlanSearch *s = answer->search;
  if (options->output == NULL || s->chosen < 0)
    return TRUE;
  g_autofree char *plan =
      plan_space_plan(s->space, &plan_search_tried(s, (guint) s->chosen)->point, answer->network);
  g_autofree char *text = g_strconcat(plan, "\n", NULL);
  return output_file_write(options->output, text, strlen(text), error);
}

/* To standard output goes either the plan or the answer. */
static int
print_answer(const Options *options, const PlanAnswer *answer, GError **error)
{
  g_autoptr(GString) out = g_string_new(NULL);
  gboolean is_plan = options->output != NULL && g_str_equal(options->output, "-");
  int status = answer->search->chosen >= 0 ? EXIT_ANSWER_YES : EXIT_ANSWER_NO;
  if (!write_plan(options, answer, error))
    return EXIT_BAD_INPUT;
  if (options->json)
    plan_json(answer, out);
  else
    plan_text(answer, options->output, out);
  if (!is_plan || status == EXIT_ANSWER_NO)
    fputs(out->str, stdout);
  return status;
}

static int
search_and_print(const Options *options, const RunRequest *base, GError **error)
{
  Watching watching = {0};
  PlanSearchOptions how = {.workers = options->jobs,
                           .steps = options->what.steps,
                           .progress = show_progress,
                           .stops = watching_stops,
                           .headroom = {-1, PLAN_HEADROOM_FRACTION},
                           .user = &watching};
  if (!headroom_read("plan", options->headroom, &how.headroom, error))
    return EXIT_BAD_INPUT;
  g_autoptr(PlanSpace) space = plan_space_new(base, options->ranks, options->global_batch, error);
  if (space == NULL)
    return EXIT_BAD_INPUT;
  g_autoptr(GError) reason = NULL;
  watching_begin(&watching);
  g_autoptr(PlanSearch) search = plan_search_new(space, &how, &reason);
  watching_end(&watching);
  if (search == NULL && reason != NULL) {
    g_propagate_error(error, g_steal_pointer(&reason));
    return EXIT_BAD_INPUT;
  }
  if (search == NULL) {
    fputs("highwater: plan: interrupted\n", stderr);
    return watching_status(&watching);
  }
  g_autofree char *network = preset_name_of(base->inputs.network.name);
  g_autofree char *cluster = preset_name_of(base->inputs.cluster.name);
  return print_answer(options, &(PlanAnswer){search, network, cluster}, error);
}

static int
read_and_search(const Options *options, const char *network, GError **error)
{
  RunRequest base = {0};
  int status = EXIT_BAD_INPUT;
  if (check_options(options, error) &&
      run_options_read(&options->what, "plan", network, &base, error))
    status = search_and_print(options, &base, error);
  run_request_clear(&base);
  return status;
}

static int
run(int argc, char **argv, GError **error)
{
  Options options = {.what = run_options_default()};
  const GOptionEntry own[] = {
      {"headroom", 0, 0, G_OPTION_ARG_STRING, &options.headroom,
       "What stays free: a part of the memory or a size (5%)", "10%|4GiB"},
      {"global-batch", 0, 0, G_OPTION_ARG_INT64, &options.global_batch,
       "Sequences a step, of all ranks (the plan's for each rank)", "N"},
      {"ranks", 0, 0, G_OPTION_ARG_INT, &options.ranks, "GPUs (as many as the plan has)", "N"},
      {"json", 0, 0, G_OPTION_ARG_NONE, &options.json, "Print JSON", NULL},
      {"output", 'o', 0, G_OPTION_ARG_FILENAME, &options.output,
       "Write the plan to a file; -: print it alone", "FILE"},
      {"jobs", 0, 0, G_OPTION_ARG_INT, &options.jobs, "Threads (as many as there are cores)", "N"},
      {.long_name = NULL},
  };
  g_autofree GOptionEntry *entries = run_options_entries(&options.what, own);
  g_auto(GStrv) positionals = NULL;
  int status = EXIT_ANSWER_YES;
  if (command_parse(&command_plan, argc, argv, entries, 1, 1, &positionals, error))
    status = read_and_search(&options, positionals[0], error);
  options_clear(&options);
  return status;
}

const Command command_plan = {
    .name = "plan",
    .arguments = "NETWORK [--cluster C] [--plan BASE] [--set K=V]... [--ranks N] "
                 "[--global-batch N] [--headroom 10%|4GiB] [--memory-limit SIZE] [--steps N] "
                 "[--json] [-o FILE] [--jobs N]",
    .summary = "Propose the fastest plan that fits, and say what the alternatives lose",
    .run = run,
};
