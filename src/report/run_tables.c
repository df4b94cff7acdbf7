/* run_tables.c - the tables of a run by name. */
#include "report/run_tables.h"
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

const RunTable run_tables[] = {
    {"timeline", "timeline.tsv", "memory by category over the host's time, phases, steps, the peak",
     FALSE, write_timeline},
    {"streams", "streams.tsv", "what each stream and the host did, when", FALSE, streams_table},
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
  return table->write(recording, info, view, out, error);
}
