/* summary_text_path.c - the critical path: how much of the step hangs on what, and on which
 * stretches most. */
#include "report/summary_text_parts.h"

/* How many stretches --verbose shows. */
enum { MOST_STRETCHES = 20 };

/* What a stretch hangs on, in words; the stream's own name where that says more. */
static char *
describe_kind(const Recording *recording, const PathStretch *stretch)
{
  static const char *const texts[PATH_KINDS] = {
      [PATH_COMPUTE] = "compute",
      [PATH_COLLECTIVE] = "collective",
      [PATH_RANKS] = "other ranks",
      [PATH_HOST] = "the host",
      [PATH_HOST_CALL] = "a call of the host",
  };
  if (texts[stretch->kind] != NULL)
    return g_strdup(texts[stretch->kind]);
  return g_strdup(g_ptr_array_index(recording->streams, stretch->stream));
}

/* "all_gather of layers.3 over shard". */
static char *
describe_work(const Recording *recording, const PathStretch *stretch)
{
  g_autofree char *what = text_what_of_module(recording, stretch->name, stretch->module);
  const char *communicator = report_text(recording, stretch->communicator, NULL);
  if (what == NULL)
    return g_strdup("");
  g_autofree char *more =
      stretch->spans > 1 ? g_strdup_printf(" and %d before", stretch->spans - 1) : g_strdup("");
  return g_strdup_printf("%s%s%s%s", what, communicator ? " over " : "",
                         communicator ? communicator : "", more);
}

static const PathStretch *
longest_of_kind(const CriticalPath *path, PathKind kind)
{
  const PathStretch *longest = NULL;
  for (guint i = 0; i < path->stretches->len; i++) {
    const PathStretch *stretch = &g_array_index(path->stretches, PathStretch, i);
    if (stretch->kind == kind &&
        (longest == NULL || stretch->end - stretch->start > longest->end - longest->start))
      longest = stretch;
  }
  return longest;
}

void
text_critical_path(const Screen *screen)
{
  const CriticalPath *path = screen->model->path;
  if (path == NULL)
    return;
  g_autoptr(TextTable) table = text_table_new("lrrrl");
  TEXT_ROW(table, g_strdup("The step hangs on"), g_strdup("time"), g_strdup("share"),
           g_strdup("longest"), g_strdup("which ends with"));
  for (int kind = 0; kind < PATH_KINDS; kind++) {
    const PathStretch *longest = longest_of_kind(path, (PathKind) kind);
    if (longest == NULL)
      continue;
    g_autofree char *name = describe_kind(screen->model->recording, longest);
    TEXT_ROW(table, g_strdup_printf("  %s", kind == PATH_OTHER ? "other streams" : name),
             format_duration(path->time[kind]),
             g_strdup_printf("%.1f %%", 100.0 * (double) path->time[kind] /
                                            (double) MAX(screen->model->time.step, 1)),
             format_duration(longest->end - longest->start),
             describe_work(screen->model->recording, longest));
  }
  g_string_append_c(screen->out, '\n');
  text_table_print(table, 0, screen->out);
  if (path->queued > 0) {
    g_autofree char *queued = format_duration(path->queued);
    g_string_append_printf(screen->out,
                           "  %s of it are all-gathers that ran before a more urgent collective.\n",
                           queued);
  }
}

void
text_stretches(const Screen *screen)
{
  const CriticalPath *path = screen->model->path;
  const StepSummary *step = report_model_last_step(screen->model);
  if (path == NULL || step == NULL)
    return;
  SimTime shortest = critical_path_length_of(path, MOST_STRETCHES);
  g_autoptr(TextTable) table = text_table_new("rrll");
  TEXT_ROW(table, g_strdup("Critical path, at"), g_strdup("for"), g_strdup("on"),
           g_strdup("which ends with"));
  for (guint i = 0; i < path->stretches->len; i++) {
    const PathStretch *stretch = &g_array_index(path->stretches, PathStretch, i);
    if (stretch->end - stretch->start < shortest)
      continue;
    TEXT_ROW(table, format_duration(stretch->start - step->start),
             format_duration(stretch->end - stretch->start),
             describe_kind(screen->model->recording, stretch),
             describe_work(screen->model->recording, stretch));
  }
  g_string_append_c(screen->out, '\n');
  text_table_print(table, 0, screen->out);
}
