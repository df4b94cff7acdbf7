/* cmd_verify.c - highwater verify: a plan's schedule executed on numbers, beside an unsharded run.
 */
#include <stdio.h>

#include "base/units.h"
#include "cli/registry.h"
#include "cli/run_options.h"
#include "simulate/scaled_network.h"
#include "simulate/verification.h"

enum { MOST_STEPS = 100, MOST_ORDERS = 1000000 };

typedef struct {
  RunOptions run;
  int orders, scale;
  gint64 seed;
  gboolean json, details;
} Options;

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

static int
verify_and_print(const Options *options, const char *network, GError **error)
{
  RunRequest run = {0};
  VerificationReport report = {0};
  int code = EXIT_BAD_INPUT;
  if (run_options_read(&options->run, "verify", network, &run, error)) {
    const VerificationRequest request = {.inputs = run.inputs,
                                         .steps = run.steps,
                                         .scale = options->scale,
                                         .seed = (guint64) options->seed,
                                         .orders = options->orders,
                                         .tolerance = 1e-9};
    if (verify(&request, &report, error)) {
      g_autoptr(GString) text = g_string_new(NULL);
      if (options->json)
        verification_json(&report, text);
      else
        verification_text(&report, options->details, text);
      fputs(text->str, stdout);
      code = report.fault == NULL ? EXIT_ANSWER_YES : EXIT_ANSWER_NO;
    }
  }
  verification_report_clear(&report);
  run_request_clear(&run);
  return code;
}

static int
run(int argc, char **argv, GError **error)
{
  Options options = {.run = run_options_default(), .seed = 1, .scale = 1};
  options.run.steps = 3;
  const GOptionEntry entries[] = {
      {"plan", 0, 0, G_OPTION_ARG_FILENAME, &options.run.plan,
       "How it is trained: a preset or a file (fsdp2)", "PLAN"},
      {"cluster", 0, 0, G_OPTION_ARG_STRING, &options.run.cluster,
       "Cluster preset or file (h100-8)", "CLUSTER"},
      {"set", 0, 0, G_OPTION_ARG_STRING_ARRAY, &options.run.assignments, "Change a key of the plan",
       "KEY=VALUE"},
      {"steps", 0, 0, G_OPTION_ARG_INT, &options.run.steps, "Steps to execute (3)", "N"},
      {"scale", 0, 0, G_OPTION_ARG_INT, &options.scale, "Divide the network's sizes by so much (1)",
       "S"},
      {"orders", 0, 0, G_OPTION_ARG_INT, &options.orders,
       "Random orders to try besides that of issue (0)", "N"},
      {"seed", 0, 0, G_OPTION_ARG_INT64, &options.seed, "Of parameters and tokens (1)", "N"},
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
           check_range("--seed", options.seed, 0, G_MAXINT64, error))
    code = verify_and_print(&options, positionals[0], error);
  run_options_clear(&options.run);
  return code;
}

const Command command_verify = {
    .name = "verify",
    .arguments = "NETWORK [--plan PLAN] [--scale S] [--steps N] [--orders N] [--seed N] "
                 "[--details] [--json]",
    .summary = "Execute a schedule on numbers and compare it with an unsharded run",
    .run = run,
};
