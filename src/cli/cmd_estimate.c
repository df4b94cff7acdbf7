/* cmd_estimate.c - highwater estimate: model states of a network under all stages at once. */
#include <stdio.h>
#include <string.h>

#include "base/units.h"
#include "cli/estimate.h"
#include "cli/registry.h"

enum { MOST_RANKS = 1 << 20, NOT_GIVEN = G_MININT };

static gboolean
check_range(const char *option, gint64 value, gint64 least, gint64 most, GError **error)
{
  if (value >= least && value <= most)
    return TRUE;
  g_set_error(error, HIGHWATER_ERROR, HIGHWATER_ERROR_USAGE,
              "%s: %" G_GINT64_FORMAT " is not in %" G_GINT64_FORMAT "..%" G_GINT64_FORMAT, option,
              value, least, most);
  return FALSE;
}

static gboolean
check_options(const EstimateRequest *r, gboolean has_network, GError **error)
{
  const gint64 most = (gint64) 1 << 52;
  if (has_network == (r->parameters != NOT_GIVEN)) {
    g_set_error(error, HIGHWATER_ERROR, HIGHWATER_ERROR_USAGE,
                "estimate needs either a network or --parameters");
    return FALSE;
  }
  if (has_network && r->largest_layer != NOT_GIVEN) {
    g_set_error(error, HIGHWATER_ERROR, HIGHWATER_ERROR_USAGE,
                "--largest-layer goes with --parameters, not with a network");
    return FALSE;
  }
  return check_range("--ranks", r->ranks, 1, MOST_RANKS, error) &&
         check_range("--gpus-per-node", r->gpus_per_node, 1, MOST_RANKS, error) &&
         (has_network ||
          (check_range("--parameters", r->parameters, 1, most, error) &&
           (r->largest_layer == NOT_GIVEN ||
            check_range("--largest-layer", r->largest_layer, 1, r->parameters, error))));
}

static int
estimate_and_print(const EstimateRequest *request, const char *network, gboolean json,
                   GError **error)
{
  g_autoptr(Estimate) estimate = estimate_new(request, network, error);
  if (estimate == NULL)
    return EXIT_BAD_INPUT;
  g_autoptr(GString) text = g_string_new(NULL);
  if (json)
    estimate_json(estimate, text);
  else
    estimate_text(estimate, text);
  fputs(text->str, stdout);
  return EXIT_ANSWER_YES;
}

static int
run(int argc, char **argv, GError **error)
{
  EstimateRequest request = {
      .ranks = 8, .gpus_per_node = 8, .parameters = NOT_GIVEN, .largest_layer = NOT_GIVEN};
  gboolean json = FALSE;
  const GOptionEntry entries[] = {
      {"ranks", 0, 0, G_OPTION_ARG_INT, &request.ranks, "Ranks that share the model (8)", "N"},
      {"gpus-per-node", 0, 0, G_OPTION_ARG_INT, &request.gpus_per_node, "GPUs of a node (8)", "N"},
      {"parameters", 0, 0, G_OPTION_ARG_INT64, &request.parameters,
       "So many parameters instead of a network", "N"},
      {"largest-layer", 0, 0, G_OPTION_ARG_INT64, &request.largest_layer,
       "Parameters of its largest layer, for stage 3", "N"},
      {"json", 0, 0, G_OPTION_ARG_NONE, &json, "Print JSON instead of text", NULL},
      {0},
  };
  g_auto(GStrv) positionals = NULL;
  if (!command_parse(&command_estimate, argc, argv, entries, 0, 1, &positionals, error))
    return EXIT_ANSWER_YES;
  const char *network = positionals[0];
  if (!check_options(&request, network != NULL, error))
    return EXIT_BAD_INPUT;
  request.parameters = MAX(request.parameters, 0);
  request.largest_layer = MAX(request.largest_layer, 0);
  return estimate_and_print(&request, network, json, error);
}

const Command command_estimate = {
    .name = "estimate",
    .arguments = "NETWORK [--ranks N] [--gpus-per-node N] [--json]",
    .summary = "Model states and traffic under every stage of ZeRO and every strategy",
    .run = run,
};
