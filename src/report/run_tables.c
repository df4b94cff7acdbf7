/* run_tables.c - the tables of a run by name. */
#include "report/run_tables.h"
#include "report/gathers_table.h"
#include "report/groups_table.h"
#include "report/lifetimes_table.h"
#include "report/memory_table.h"
#include "report/streams_table.h"
#include "report/timeline_table.h"

static gboolean
write_timeline(const Recording *recording, const RunInfo *info, const TableView *view, GString *out,
               GError **error)
{
  (void) info, (void) error;
  const TimelineStyle style = {
      .max_changes = view->max_rows ? MAX(view->max_rows / 2, TIMELINE_LEAST_CHANGES) : G_MAXUINT,
      .corners = TRUE,
      .from = view->from,
      .to = view->to,
  };
  timeline_table(recording, &style, out);
  return TRUE;
}

gboolean
table_view_is_part(const TableView *view)
{
  return view->step > 0 || view->from > 0 || view->to > 0;
}

gboolean
run_table_narrow(const RunTable *table, const Recording *recording, TableView *view, GError **error)
{
  if (view->step == 0 || view->to > 0)
    return TRUE;
  const GArray *steps = recording->steps;
  for (guint i = 0; i < steps->len; i++) {
    const StepRecord *step = &g_array_index(steps, StepRecord, i);
    if (step->index != view->step)
      continue;
    view->from = step->start;
    view->to = table->of_host ? timeline_host_end(recording, step) : step->end;
    return TRUE;
  }
  g_set_error(error, HIGHWATER_ERROR, HIGHWATER_ERROR_USAGE, "no step %d; the run has %u",
              view->step, steps->len);
  return FALSE;
}

const RunTable run_tables[] = {
    {.name = "timeline",
     .file = "timeline.tsv",
     .summary = "memory by category over the host's time, phases, steps, the peak",
     .of_host = TRUE,
     .write = write_timeline},
    {.name = "streams",
     .file = "streams.tsv",
     .summary = "what each stream and the host did, when",
     .write = streams_table},
    {.name = "lifetimes",
     .file = "lifetimes.tsv",
     .summary = "when a module's parameters and gradients are there, whole and sharded",
     .of_module = TRUE,
     .write = lifetimes_table},
    {.name = "memory",
     .file = "memory.tsv",
     .summary = "memory by category at rest and at the peak",
     .write = memory_table},
    {.name = "groups",
     .file = "groups.tsv",
     .summary = "groups of parameters, and when each was gathered and needed",
     .write = groups_table},
    {.name = "gathers",
     .file = "gathers.tsv",
     .summary = "each all-gather: issued, begun, ready, needed, and how long it was waited for",
     .write = gathers_table},
    {0},
};

const RunTable *
run_table_find(const char *name, GError **error)
{
  g_autoptr(GString) names = g_string_new(NULL);
  for (const RunTable *table = run_tables; table->name; table++) {
    if (g_str_equal(name, table->name))
      return table;
    g_string_append_printf(names, "%s%s", names->len > 0 ? ", " : "", table->name);
  }
  g_set_error(error, HIGHWATER_ERROR, HIGHWATER_ERROR_USAGE, "no table '%s'; there are: %s", name,
              names->str);
  return NULL;
}

gboolean
run_table_write(const RunTable *table, const Recording *recording, const RunInfo *info,
                const TableView *view, GString *out, GError **error)
{
  if (table->of_module && !view->module) {
    g_set_error(error, HIGHWATER_ERROR, HIGHWATER_ERROR_USAGE,
                "table '%s' is of one module: give it with --module", table->name);
    return FALSE;
  }
  TableView narrowed = *view;
  if (!run_table_narrow(table, recording, &narrowed, error))
    return FALSE;
  return table->write(recording, info, &narrowed, out, error);
}
