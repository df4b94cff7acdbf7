/* cmd_explain.c - highwater explain: why the peak is where it is, why it does not fit, what helps;
 * or what a message about memory running out means. */
#include <stdio.h>
#include <string.h>

#include "base/json_document.h"
#include "base/units.h"
#include "cli/explain_print.h"
#include "cli/registry.h"
#include "cli/report_output.h"
#include "cli/run_options.h"
#include "report/run_directory.h"
#include "simulate/run_store.h"

typedef struct {
  RunOptions what;
  char *message;
  gboolean json, verbose;
} Options;

static gboolean
fail(GError **error, const char *message)
{
  g_set_error(error, HIGHWATER_ERROR, HIGHWATER_ERROR_USAGE, "explain: %s", message);
  return FALSE;
}

/* ---- what is explained ---- */

/* A RUN read or a NETWORK simulated. */
typedef struct {
  StoredRun *stored; /* NULL: simulated */
  RunRequest request;
  gboolean can_simulate; /* FALSE: it was measured */
  RunResult result;      /* of a NETWORK, unless it is for a message */
} Subject;

static void
subject_clear(Subject *subject)
{
  stored_run_free(subject->stored);
  run_request_clear(&subject->request);
  run_result_clear(&subject->result);
}

/* A folder with a recording, or the recording itself. */
static gboolean
is_run(const char *path)
{
  g_autofree char *name = g_path_get_basename(path);
  if (g_str_equal(name, RUN_RECORDING))
    return TRUE;
  g_autofree char *recording = g_build_filename(path, RUN_RECORDING, NULL);
  return g_file_test(recording, G_FILE_TEST_EXISTS);
}

static gboolean
says_what_to_simulate(const RunOptions *what)
{
  const RunOptions none = run_options_default();
  return what->plan || what->cluster || what->memory_limit || what->assignments ||
         what->all_ranks || what->steps != none.steps || what->rank != none.rank;
}

static gboolean
read_run(const Options *o, const char *path, Subject *subject, GError **error)
{
  if (says_what_to_simulate(&o->what))
    return fail(error, "a RUN has its plan: options that say what is simulated are for a NETWORK");
  subject->stored = stored_run_load(path, error);
  if (subject->stored == NULL)
    return FALSE;
  subject->can_simulate = subject->stored->steps > 0;
  return !subject->can_simulate ||
         run_request_from_stored(subject->stored, &subject->request, error);
}

static gboolean
read_subject(const Options *o, const char *path, Subject *subject, GError **error)
{
  if (is_run(path))
    return read_run(o, path, subject, error);
  subject->can_simulate = TRUE;
  return run_options_read(&o->what, "explain", path, &subject->request, error) &&
         (o->message != NULL || run_simulation(&subject->request, &subject->result, error));
}

/* ---- a run ---- */

static int
explain_run(const Options *o, const Subject *subject, GError **error)
{
  const StoredRun *stored = subject->stored;
  g_autoptr(Explanation) explanation =
      explanation_new(stored ? stored->recording : subject->result.recording,
                      stored ? stored->info : subject->result.info,
                      subject->can_simulate ? &subject->request : NULL, TRUE, error);
  if (explanation == NULL)
    return EXIT_BAD_INPUT;
  const TextStyle style = report_style(o->verbose, FALSE);
  g_autofree char *text =
      o->json ? explain_run_json(explanation) : explain_run_text(explanation, &style);
  fputs(text, stdout);
  return explanation->verdict == VERDICT_DOES_NOT_FIT ? EXIT_ANSWER_NO : EXIT_ANSWER_YES;
}

/* ---- a message ---- */

/* "-": standard input. */
static OomMessage *
read_message(const char *given, GError **error)
{
  if (!g_str_equal(given, "-"))
    return oom_message_parse(given, strlen(given), error);
  gsize length;
  g_autofree char *text = json_text_load(given, &length, error);
  return text != NULL ? oom_message_parse(text, length, error) : NULL;
}

static int
explain_message(const Options *o, const Subject *subject, GError **error)
{
  if (!subject->can_simulate) {
    fail(error, "--message: the RUN was measured: give the NETWORK and its plan");
    return EXIT_BAD_INPUT;
  }
  g_autoptr(OomMessage) message = read_message(o->message, error);
  g_autoptr(OomSearch) search =
      message != NULL ? oom_search_new(&subject->request, message, error) : NULL;
  if (search == NULL)
    return EXIT_BAD_INPUT;
  const TextStyle style = report_style(o->verbose, FALSE);
  g_autofree char *text = o->json ? explain_message_json(message, search)
                                  : explain_message_text(message, search, &style);
  fputs(text, stdout);
  return search->candidates->len > 0 ? EXIT_ANSWER_YES : EXIT_ANSWER_NO;
}

static int
explain(const Options *o, const char *path, GError **error)
{
  Subject subject = {0};
  int status = EXIT_BAD_INPUT;
  if (o->json && o->verbose)
    fail(error, "--json has everything: --verbose is of the text");
  else if (read_subject(o, path, &subject, error))
    status =
        o->message != NULL ? explain_message(o, &subject, error) : explain_run(o, &subject, error);
  if (status == EXIT_BAD_INPUT)
    scenario_name_assignment(o->what.assignments, error);
  subject_clear(&subject);
  return status;
}

static int
run(int argc, char **argv, GError **error)
{
  Options o = {.what = run_options_default()};
  const GOptionEntry own[] = {
      {"message", 0, 0, G_OPTION_ARG_STRING, &o.message,
       "Which allocation this message about memory running out can be (-: standard input)", "TEXT"},
      {"json", 0, 0, G_OPTION_ARG_NONE, &o.json, "Print JSON instead of text", NULL},
      {"verbose", 0, 0, G_OPTION_ARG_NONE, &o.verbose, "Name the small ones too", NULL},
      {.long_name = NULL},
  };
  g_autofree GOptionEntry *entries = run_options_entries(&o.what, own);
  g_auto(GStrv) positionals = NULL;
  int status = EXIT_ANSWER_YES;
  if (command_parse(&command_explain, argc, argv, entries, 1, 1, &positionals, error))
    status = explain(&o, positionals[0], error);
  run_options_clear(&o.what);
  g_free(o.message);
  return status;
}

const Command command_explain = {
    .name = "explain",
    .arguments = "RUN | NETWORK [--plan P] [--cluster C] [--set K=V]... [--steps N] [--rank R] "
                 "[--all-ranks] [--memory-limit SIZE] [--message TEXT] [--json] [--verbose]",
    .summary = "Say why memory is highest where it is or runs out, and which changes help",
    .run = run,
};
