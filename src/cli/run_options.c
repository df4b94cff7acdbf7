/* run_options.c - the options that say what is simulated: of run, sweep and whatever else tries
 * plans. */
#include "cli/run_options.h"

#include "base/units.h"
#include "cli/plan_input.h"
#include "simulate/program_run.h"
#include "spec/preset.h"

RunOptions
run_options_default(void)
{
  return (RunOptions){.steps = 3};
}

void
run_options_clear(RunOptions *options)
{
  g_free(options->plan);
  g_free(options->cluster);
  g_free(options->memory_limit);
  g_strfreev(options->assignments);
}

GOptionEntry *
run_options_entries(RunOptions *options, const GOptionEntry *own)
{
  const GOptionEntry shared[] = {
      {"plan", 0, 0, G_OPTION_ARG_FILENAME, &options->plan,
       "How it is trained: a preset or a file (fsdp2)", "P"},
      {"cluster", 0, 0, G_OPTION_ARG_FILENAME, &options->cluster,
       "The machine: a preset or a file (h100-8)", "C"},
      {"set", 0, 0, G_OPTION_ARG_STRING_ARRAY, &options->assignments,
       "Override a key of the plan, e.g. mesh.shard=16; may be repeated", "K=V"},
      {"steps", 0, 0, G_OPTION_ARG_INT, &options->steps, "Steps to simulate (3)", "N"},
      {"rank", 0, 0, G_OPTION_ARG_INT, &options->rank, "The rank to report (0)", "R"},
      {"all-ranks", 0, 0, G_OPTION_ARG_NONE, &options->all_ranks,
       "Simulate every rank by itself, not one for all that are alike", NULL},
      {"memory-limit", 0, 0, G_OPTION_ARG_STRING, &options->memory_limit,
       "What the allocator may reserve, e.g. 40GiB (what the device has left)", "SIZE"},
  };
  guint count = 0;
  while (own[count].long_name != NULL)
    count++;
  GOptionEntry *entries = g_new0(GOptionEntry, G_N_ELEMENTS(shared) + count + 1);
  for (guint i = 0; i < G_N_ELEMENTS(shared); i++)
    entries[i] = shared[i];
  for (guint i = 0; i < count; i++)
    entries[G_N_ELEMENTS(shared) + i] = own[i];
  return entries;
}

static gboolean
check_range(const char *command, const char *option, int value, int min, int max, GError **error)
{
  if (value >= min && value <= max)
    return TRUE;
  g_set_error(error, HIGHWATER_ERROR, HIGHWATER_ERROR_USAGE, "%s: %s: %d is not in %d..%d", command,
              option, value, min, max);
  return FALSE;
}

static gboolean
read_memory_limit(const char *command, const char *text, gint64 *bytes, GError **error)
{
  *bytes = 0;
  if (!text)
    return TRUE;
  if (!parse_size(text, bytes, error)) {
    g_prefix_error(error, "%s: --memory-limit: ", command);
    return FALSE;
  }
  if (*bytes > 0)
    return TRUE;
  g_set_error(error, HIGHWATER_ERROR, HIGHWATER_ERROR_USAGE,
              "%s: --memory-limit: a limit is at least one byte", command);
  return FALSE;
}

static gboolean
check_standard_input(const char *command, const char *const *inputs, guint count, GError **error)
{
  guint used = 0;
  for (guint i = 0; i < count; i++)
    used += g_strcmp0(inputs[i], "-") == 0;
  if (used <= 1)
    return TRUE;
  g_set_error(error, HIGHWATER_ERROR, HIGHWATER_ERROR_USAGE,
              "%s: only one of NETWORK, --plan and --cluster can be standard input", command);
  return FALSE;
}

/* A Program may stand for a network; it has no plan, and is refused one when it is run. */
static gboolean
read_inputs(const char *network, const char *plan, const char *cluster, ScenarioInputs *inputs,
            GError **error)
{
  const char *kind = preset_exists("program", network) ? "program" : "network";
  if (!input_text_read(kind, network, &inputs->network, error))
    return FALSE;
  if (plan == NULL && !is_program(&inputs->network))
    plan = "fsdp2";
  return (plan == NULL || plan_input_read(plan, &inputs->plan, error)) &&
         input_text_read("cluster", cluster, &inputs->cluster, error);
}

gboolean
run_options_read(const RunOptions *options, const char *command, const char *network,
                 RunRequest *request, GError **error)
{
  const char *cluster = options->cluster ? options->cluster : "h100-8";
  request->steps = options->steps;
  request->rank = options->rank;
  request->all_ranks = options->all_ranks;
  request->inputs.assignments = options->assignments;
  return check_range(command, "--steps", options->steps, 1, RUN_STEPS_MOST, error) &&
         check_range(command, "--rank", options->rank, 0, G_MAXINT, error) &&
         read_memory_limit(command, options->memory_limit, &request->memory_limit, error) &&
         check_standard_input(command, (const char *const[]){network, options->plan, cluster}, 3,
                              error) &&
         read_inputs(network, options->plan, cluster, &request->inputs, error);
}
