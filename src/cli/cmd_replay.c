/* cmd_replay.c - highwater replay: a recorded allocation trace through the allocator model. */
#include "base/units.h"
#include "cli/registry.h"
#include "cli/replay_report.h"
#include "memory/allocator_options.h"
#include <stdio.h>

typedef struct {
  char *memory_limit;
  char *alloc_conf;
  gboolean json;
} ReplayArguments;

/* What the command line changes about the recorded device and its allocator. */
static gboolean
apply_arguments(const ReplayArguments *arguments, AllocationTrace *trace, GError **error)
{
  AllocatorConfig *config = &trace->config;
  gboolean expandable = config->expandable_segments;
  gint64 limit;
  if (arguments->memory_limit) {
    if (!parse_size(arguments->memory_limit, &limit, error)) {
      g_prefix_error(error, "--memory-limit: ");
      return FALSE;
    }
    if (limit == 0) {
      g_set_error(error, HIGHWATER_ERROR, HIGHWATER_ERROR_USAGE,
                  "--memory-limit: a limit is at least one byte");
      return FALSE;
    }
    config->memory_limit = limit;
  }
  if (arguments->alloc_conf && !allocator_options_parse(config, arguments->alloc_conf, error)) {
    g_prefix_error(error, "--alloc-conf: ");
    return FALSE;
  }
  /* Segments of one kind cannot be those of the other. */
  if (trace->segments->len > 0 && config->expandable_segments != expandable) {
    g_set_error(error, HIGHWATER_ERROR, HIGHWATER_ERROR_USAGE,
                "--alloc-conf: %s begins with segments made with expandable_segments:%s",
                trace->name, expandable ? "True" : "False");
    return FALSE;
  }
  return TRUE;
}

static int
replay(const char *path, const ReplayArguments *arguments, GError **error)
{
  const ReplayOptions options = {.follow_addresses = TRUE};
  g_autoptr(AllocationTrace) trace = allocation_trace_load(path, error);
  if (!trace || !apply_arguments(arguments, trace, error))
    return EXIT_BAD_INPUT;
  g_autoptr(TraceReplay) result = trace_replay_run(trace, &options, error);
  if (!result)
    return EXIT_BAD_INPUT;
  g_autofree char *text =
      arguments->json ? replay_report_json(trace, result) : replay_report_text(trace, result);
  fputs(text, stdout);
  return result->out_of_memory_at >= 0 ? EXIT_ANSWER_NO : EXIT_ANSWER_YES;
}

static int
run(int argc, char **argv, GError **error)
{
  ReplayArguments arguments = {NULL, NULL, FALSE};
  const GOptionEntry entries[] = {
      {"memory-limit", 0, 0, G_OPTION_ARG_STRING, &arguments.memory_limit,
       "Bytes the device can hold (default: as recorded)", "SIZE"},
      {"alloc-conf", 0, 0, G_OPTION_ARG_STRING, &arguments.alloc_conf,
       "Allocator options, as in PYTORCH_ALLOC_CONF, over the recorded ones", "KEY:VALUE,..."},
      {"json", 0, 0, G_OPTION_ARG_NONE, &arguments.json, "Print JSON", NULL},
      {0},
  };
  g_auto(GStrv) positionals = NULL;
  int status = EXIT_BAD_INPUT;
  if (command_parse(&command_replay, argc, argv, entries, 1, 1, &positionals, error))
    status = replay(positionals[0], &arguments, error);
  else if (!*error)
    status = EXIT_ANSWER_YES;
  g_free(arguments.memory_limit);
  g_free(arguments.alloc_conf);
  return status;
}

const Command command_replay = {
    .name = "replay",
    .arguments = "TRACE [--memory-limit SIZE] [--alloc-conf KEY:VALUE,...] [--json]",
    .summary = "Replay a recorded allocation trace through the caching allocator",
    .run = run,
};
