/* cmd_verify.c - highwater verify: plans' schedules executed on numbers, beside an unsharded run.
 */
#include <stdio.h>

#include "base/units.h"
#include "cli/plan_input.h"
#include "cli/registry.h"
#include "cli/run_options.h"
#include "simulate/scaled_network.h"
#include "simulate/verification.h"

enum { NOT_GIVEN = G_MININT, MOST_STEPS = 100, MOST_ORDERS = 1000000 };

typedef struct {
  RunOptions run; /* its assignments are those of every plan */
  char **plans;   /* --plan: the first, and one to be compared with it */
  char *precision;
  char *restart;  /* the plan that goes on from the first one's state */
  char **sets[2]; /* assignments of the first and of the other plan alone */
  int orders, scale;
  int restart_after; /* NOT_GIVEN: nothing was said */
  gint64 seed;
  gboolean json, details;
} Options;

static void
options_clear(Options *options)
{
  run_options_clear(&options->run);
  g_strfreev(options->plans);
  g_strfreev(options->sets[0]);
  g_strfreev(options->sets[1]);
  g_free(options->restart);
  g_free(options->precision);
}

static gboolean
check_range(const char *option, gint64 value, gint64 least, gint64 most, GError **error)
{
  if (value >= least && value <= most)
    return TRUE;
  g_set_error(error, HIGHWATER_ERROR, HIGHWATER_ERROR_USAGE,
              "verify: %s: %" G_GINT64_FORMAT " is not in %" G_GINT64_FORMAT "..%" G_GINT64_FORMAT,
              option, value, least, most);
  return FALSE;
}

/* ---- which plans ---- */

static gboolean
restarts(const Options *options)
{
  return options->restart != NULL || options->restart_after != NOT_GIVEN;
}

/* The other plan's name; NULL: there is none.  With assignments of its own alone it is the first
 * one again. */
static const char *
other_plan(const Options *options)
{
  guint plans = options->plans != NULL ? g_strv_length(options->plans) : 0;
  const char *first = plans > 0 ? options->plans[0] : "fsdp2";
  if (restarts(options))
    return options->restart != NULL ? options->restart : first;
  if (plans > 1)
    return options->plans[1];
  return options->sets[1] != NULL ? first : NULL;
}

static gboolean
rounds(const Options *options)
{
  return g_strcmp0(options->precision, "plan") == 0;
}

static gboolean
check_precision(const Options *options, GError **error)
{
  if (options->precision != NULL && !rounds(options) && !g_str_equal(options->precision, "fp64"))
    return command_refuse(&command_verify, error, "--precision: it is fp64 or plan");
  return TRUE;
}

static gboolean
check_plans(const Options *options, const char *network, GError **error)
{
  guint plans = options->plans != NULL ? g_strv_length(options->plans) : 0;
  const char *other = other_plan(options);
  if (plans > 2)
    return command_refuse(&command_verify, error, "--plan: at most two plans can be compared");
  if (plans > 1 && restarts(options))
    return command_refuse(&command_verify, error,
                          "--plan: only one plan can be saved and restarted from");
  if (other != NULL && g_str_equal(other, "-") &&
      (g_str_equal(network, "-") ||
       g_strcmp0(options->plans != NULL ? options->plans[0] : NULL, "-") == 0))
    return command_refuse(&command_verify, error, "only one input can be standard input");
  if (!restarts(options))
    return TRUE;
  if (options->run.steps < 2)
    return command_refuse(&command_verify, error,
                          "--steps: a restart needs at least 2, one before it and one after");
  return options->restart_after == NOT_GIVEN ||
         check_range("--restart-after", options->restart_after, 1, options->run.steps - 1, error);
}

/* ---- the answer ---- */

static int
verify_and_print(const Options *options, const VerificationRequest *request, GError **error)
{
  VerificationReport report = {0};
  int code = EXIT_BAD_INPUT;
  if (verify(request, &report, error)) {
    g_autoptr(GString) text = g_string_new(NULL);
    if (options->json)
      verification_json(&report, text);
    else
      verification_text(&report, options->details, text);
    fputs(text->str, stdout);
    code = verification_holds(&report) ? EXIT_ANSWER_YES : EXIT_ANSWER_NO;
  }
  verification_report_clear(&report);
  return code;
}

static int
read_and_verify(const Options *options, const char *network, GError **error)
{
  RunRequest run = {0};
  ScenarioInputs other = {0};
  RunOptions first = options->run;
  const char *name = other_plan(options);
  int code = EXIT_BAD_INPUT;
  first.plan = options->plans != NULL ? options->plans[0] : NULL;
  if (run_options_read(&first, "verify", network, &run, error) &&
      (name == NULL || plan_input_read(name, &other.plan, error))) {
    char **sets[2] = {run_request_assignments(&run, options->sets[0]),
                      run_request_assignments(&run, options->sets[1])};
    VerificationRequest request = {.inputs = run.inputs,
                                   .other = name != NULL ? &other : NULL,
                                   .steps = run.steps,
                                   .scale = options->scale,
                                   .seed = (guint64) options->seed,
                                   .orders = options->orders,
                                   .tolerance = 1e-9,
                                   .rounds = rounds(options)};
    request.inputs.assignments = sets[0];
    other.network = run.inputs.network;
    other.cluster = run.inputs.cluster;
    other.assignments = sets[1];
    if (restarts(options))
      request.restart_after =
          options->restart_after != NOT_GIVEN ? options->restart_after : RESTART_ANYWHERE;
    code = verify_and_print(options, &request, error);
    g_free(sets[0]);
    g_free(sets[1]);
  }
  input_text_clear(&other.plan);
  run_request_clear(&run);
  return code;
}

static int
run(int argc, char **argv, GError **error)
{
  Options options = {
      .run = run_options_default(), .restart_after = NOT_GIVEN, .seed = 1, .scale = 1};
  options.run.steps = 3;
  const GOptionEntry entries[] = {
      {"plan", 0, 0, G_OPTION_ARG_FILENAME_ARRAY, &options.plans,
       "How it is trained: a preset or a file (fsdp2); twice: both are compared", "PLAN"},
      {"restart", 0, 0, G_OPTION_ARG_FILENAME, &options.restart,
       "Goes on from the plan's saved state under this one", "PLAN"},
      {"restart-after", 0, 0, G_OPTION_ARG_INT, &options.restart_after,
       "After so many steps (half of them); without --restart: under the same plan", "N"},
      {"cluster", 0, 0, G_OPTION_ARG_STRING, &options.run.cluster,
       "Cluster preset or file (h100-8)", "CLUSTER"},
      {"set", 0, 0, G_OPTION_ARG_STRING_ARRAY, &options.run.assignments,
       "Change a key of every plan", "KEY=VALUE"},
      {"set-a", 0, 0, G_OPTION_ARG_STRING_ARRAY, &options.sets[0],
       "The same of the first plan alone", "KEY=VALUE"},
      {"set-b", 0, 0, G_OPTION_ARG_STRING_ARRAY, &options.sets[1],
       "The same of the other plan alone", "KEY=VALUE"},
      {"steps", 0, 0, G_OPTION_ARG_INT, &options.run.steps, "Steps to execute (3)", "N"},
      {"scale", 0, 0, G_OPTION_ARG_INT, &options.scale, "Divide the network's sizes by so much (1)",
       "S"},
      {"orders", 0, 0, G_OPTION_ARG_INT, &options.orders, "Orders to try besides that of issue (0)",
       "N"},
      {"seed", 0, 0, G_OPTION_ARG_INT64, &options.seed, "Of parameters and tokens (1)", "N"},
      {"precision", 0, 0, G_OPTION_ARG_STRING, &options.precision,
       "Arithmetic in fp64, or rounded to the plan's dtypes: plan (fp64)", "PRECISION"},
      {"details", 0, 0, G_OPTION_ARG_NONE, &options.details, "A line for each parameter", NULL},
      {"json", 0, 0, G_OPTION_ARG_NONE, &options.json, "Print JSON instead of text", NULL},
      {0},
  };
  g_auto(GStrv) positionals = NULL;
  int code = EXIT_BAD_INPUT;
  if (!command_parse(&command_verify, argc, argv, entries, 1, 1, &positionals, error))
    code = EXIT_ANSWER_YES;
  else if (check_range("--steps", options.run.steps, 1, MOST_STEPS, error) &&
           check_range("--scale", options.scale, 1, SCALE_MOST, error) &&
           check_range("--orders", options.orders, 0, MOST_ORDERS, error) &&
           check_range("--seed", options.seed, 0, G_MAXINT64, error) &&
           check_precision(&options, error) && check_plans(&options, positionals[0], error))
    code = read_and_verify(&options, positionals[0], error);
  options_clear(&options);
  return code;
}

const Command command_verify = {
    .name = "verify",
    .arguments = "NETWORK [--plan PLAN] [--plan PLAN | --restart PLAN [--restart-after N]] "
                 "[--set KEY=VALUE] [--scale S] [--steps N] [--orders N] [--seed N] "
                 "[--precision fp64|plan] [--details] [--json]",
    .summary = "Execute schedules on numbers and compare them with an unsharded run",
    .run = run,
};
