/* groups_table.c - the groups of parameters that a strategy gathers together, and each gather. */
#include "report/groups_table.h"
#include "report/summary.h"
#include "report/table_text.h"

static void
append_group(const GroupSummary *group, GString *out)
{
  const GroupInfo *info = group->info;
  table_word(out, info->name);
  g_string_append_printf(out,
                         " %" G_GINT64_FORMAT " %" G_GINT64_FORMAT " %" G_GINT64_FORMAT " %d %d ",
                         info->parameters, info->unsharded_bytes, info->shard_bytes,
                         group->all_gathers, group->reduce_scatters);
  g_autoptr(GString) modules = g_string_new(NULL);
  for (guint i = 0; i < info->modules->len; i++)
    g_string_append_printf(modules, "%s%s", i > 0 ? "," : "",
                           (const char *) info->modules->pdata[i]);
  table_word(out, modules->str);
  g_string_append_c(out, '\n');
}

/* How late a gather was: the compute stream had nothing before it left to do. */
static SimTime
wait_of(const GroupPass *pass)
{
  return MAX(0, pass->ready - pass->needed);
}

static void
append_pass(const GroupSummary *group, const char *phase, const GroupPass *pass, GString *out)
{
  if (!pass->gathered)
    return;
  const SimTime times[] = {pass->begun,  pass->ready,   pass->needed,
                           pass->gather, wait_of(pass), pass->compute};
  table_word(out, group->info->name);
  g_string_append_printf(out, " %s", phase);
  for (guint i = 0; i < G_N_ELEMENTS(times); i++) {
    g_string_append_c(out, ' ');
    table_time(out, times[i]);
  }
  g_string_append_c(out, '\n');
}

gboolean
groups_table(const Recording *recording, const RunInfo *info, const TableView *view, GString *out,
             GError **error)
{
  (void) view;
  if (!info || info->groups->len == 0) {
    g_set_error(error, HIGHWATER_ERROR, HIGHWATER_ERROR_INPUT,
                "the run has no groups of parameters");
    return FALSE;
  }
  g_autoptr(ReportModel) model = report_model_new(recording, info);
  table_begin(out, GROUPS_FORMAT, recording->title);
  table_block(out, "groups",
              "group parameters unsharded_bytes shard_bytes all_gathers reduce_scatters modules");
  for (guint i = 0; i < model->groups->len; i++)
    append_group(&g_array_index(model->groups, GroupSummary, i), out);
  table_block(out, "gathers", "group phase begun_s ready_s needed_s gather_s wait_s compute_s");
  for (guint i = 0; i < model->groups->len; i++) {
    const GroupSummary *group = &g_array_index(model->groups, GroupSummary, i);
    append_pass(group, "forward", &group->forward, out);
    append_pass(group, "backward", &group->backward, out);
  }
  table_end(out);
  return TRUE;
}
