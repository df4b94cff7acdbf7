/* gathers_table.c - every all-gather as a row: when it was issued, begun, needed and ready. */
#include "report/gathers_table.h"

#include "report/gathers.h"
#include "report/table_text.h"

static void
append_time(GString *out, gboolean is_known, SimTime time)
{
  g_string_append_c(out, ' ');
  if (is_known)
    table_time(out, time);
  else
    g_string_append(out, "NaN");
}

static void
append_gather(const Gather *gather, const RunInfo *info, GString *out)
{
  g_string_append_printf(out, "%d ", gather->step);
  table_word(out, g_array_index(info->groups, GroupInfo, gather->group).name);
  g_string_append_c(out, ' ');
  table_word(out, gather->phase);
  g_string_append_printf(out, " %d", gather->micro_batch);
  append_time(out, gather->issued > 0, gather->issued);
  append_time(out, TRUE, gather->begun);
  append_time(out, TRUE, gather->ready);
  append_time(out, gather->is_used, gather->needed);
  append_time(out, TRUE, gather->ready - gather->begun);
  append_time(out, gather->is_used, gather->waited);
  g_string_append_printf(out, " %" G_GINT64_FORMAT "\n", gather->bytes);
}

gboolean
gathers_table(const Recording *recording, const RunInfo *info, const TableView *view, GString *out,
              GError **error)
{
  if (!info || info->groups->len == 0) {
    g_set_error(error, HIGHWATER_ERROR, HIGHWATER_ERROR_INPUT,
                "the run has no groups of parameters");
    return FALSE;
  }
  g_autoptr(GArray) gathers = gathers_find(recording, info, view->step);
  table_begin(out, GATHERS_FORMAT, recording->title);
  table_block(out, "gathers",
              "step group phase micro_batch issued_s begun_s ready_s needed_s gather_s waited_s "
              "bytes");
  for (guint i = 0; i < gathers->len; i++) {
    const Gather *gather = &g_array_index(gathers, Gather, i);
    if (view->step > 0 || view->to == 0 ||
        (gather->ready >= view->from && gather->begun <= view->to))
      append_gather(gather, info, out);
  }
  return TRUE;
}
