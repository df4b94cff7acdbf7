/* summary_text_tables.c - what --verbose adds: steps, phases, tensors, modules, groups in full. */
#include "report/summary_text_parts.h"

static char *
number(gint64 value)
{
  return g_strdup_printf("%" G_GINT64_FORMAT, value);
}

/* "-" where memory was not recorded. */
static char *
size(const Screen *screen, gint64 bytes)
{
  return screen->model->has_memory ? format_bytes(bytes) : g_strdup("-");
}

static void
print_table(const Screen *screen, const TextTable *table)
{
  g_string_append_c(screen->out, '\n');
  text_table_print(table, 0, screen->out);
}

static void
print_steps(const Screen *screen)
{
  const GArray *steps = screen->model->steps;
  if (steps->len == 0)
    return;
  g_autoptr(TextTable) table = text_table_new("lrrrr");
  TEXT_ROW(table, g_strdup("Steps"), g_strdup("time"), g_strdup("allocated"), g_strdup("reserved"),
           g_strdup("retries"));
  for (guint i = 0; i < steps->len; i++) {
    const StepSummary *step = &g_array_index(steps, StepSummary, i);
    TEXT_ROW(table,
             g_strdup_printf("  %d%s", step->index, step->complete ? "" : " (not completed)"),
             format_duration(step->duration), size(screen, step->peak_allocated),
             size(screen, step->peak_reserved), number(step->allocator_retries));
  }
  print_table(screen, table);
}

static void
print_phases(const Screen *screen)
{
  const ReportModel *model = screen->model;
  if (model->steps->len == 0)
    return;
  const StepSummary *step = report_model_last_step(model);
  if (!step)
    step = &g_array_index(model->steps, StepSummary, model->steps->len - 1);
  if (step->phases->len == 0)
    return;
  g_autoptr(TextTable) table = text_table_new("lrrrrrr");
  TEXT_ROW(table, g_strdup_printf("Phases of step %d", step->index), g_strdup("micro-batch"),
           g_strdup("host begins"), g_strdup("takes"), g_strdup("allocated"), g_strdup("reserved"),
           g_strdup("at its end"));
  for (guint i = 0; i < step->phases->len; i++) {
    const PhaseSummary *phase = &g_array_index(step->phases, PhaseSummary, i);
    TEXT_ROW(table, g_strdup_printf("  %s", phase->name), number(phase->micro_batch),
             format_duration(phase->start - step->start),
             format_duration(phase->end - phase->start), format_bytes(phase->peak_allocated),
             format_bytes(phase->peak_reserved), format_bytes(phase->end_allocated));
  }
  print_table(screen, table);
  g_string_append(
      screen->out,
      "  Times count from the end of the step before on the device; the host may run ahead.\n");
}

static void
print_largest(const Screen *screen)
{
  const Recording *recording = screen->model->recording;
  const GArray *live = recording->peak.live;
  if (!live || live->len == 0)
    return;
  g_autoptr(TextTable) table = text_table_new("lrl");
  TEXT_ROW(table, g_strdup("Largest tensors at the peak"), g_strdup("size"), g_strdup("category"));
  for (guint i = 0; i < MIN(live->len, SUMMARY_LARGEST); i++) {
    const LiveTensor *tensor = &g_array_index(live, LiveTensor, i);
    g_autofree char *name = text_what_of_module(recording, tensor->what, tensor->module);
    TEXT_ROW(table, g_strdup_printf("  %s", name ? name : "unnamed"), format_bytes(tensor->bytes),
             g_strdup(category_name(tensor->category)));
  }
  print_table(screen, table);
}

static void
print_modules(const Screen *screen)
{
  const ReportModel *model = screen->model;
  const GArray *modules = model->modules_at_peak;
  if (modules->len == 0 || (modules->len == 1 && !*g_array_index(modules, ModuleBytes, 0).module))
    return; /* a measured run may not say whose memory is whose */
  g_autoptr(TextTable) table = text_table_new("lrr");
  TEXT_ROW(table, g_strdup("Modules at the peak"), g_strdup("size"), g_strdup("share"));
  for (guint i = 0; i < modules->len; i++) {
    const ModuleBytes *entry = &g_array_index(modules, ModuleBytes, i);
    double share = (double) entry->bytes / (double) MAX(model->peak_allocated, 1);
    TEXT_ROW(table, g_strdup_printf("  %s", *entry->module ? entry->module : "no module"),
             format_bytes(entry->bytes), g_strdup_printf("%.1f %%", 100 * share));
  }
  print_table(screen, table);
}

/* How long the compute stream waited for the gather; empty when the group was not gathered. */
static char *
waited(const GroupPass *pass)
{
  return pass->gathered ? format_duration(MAX(pass->ready - pass->needed, 0)) : g_strdup("");
}

/* What of the gather can hide: the time between its beginning and the moment it was needed. */
static char *
window(const GroupPass *pass)
{
  return pass->gathered ? format_duration(pass->window) : g_strdup("");
}

static void
print_groups(const Screen *screen)
{
  const GArray *groups = screen->model->groups;
  if (groups->len == 0)
    return;
  g_autoptr(TextTable) table = text_table_new("lrrrrrrrrrrrrr");
  TEXT_ROW(table, g_strdup("Groups"), g_strdup("parameters"), g_strdup("full"), g_strdup("shard"),
           g_strdup("gathers"), g_strdup("reduces"), g_strdup("forward"), g_strdup("gather"),
           g_strdup("window"), g_strdup("waited"), g_strdup("backward"), g_strdup("gather"),
           g_strdup("window"), g_strdup("waited"));
  for (guint i = 0; i < groups->len; i++) {
    const GroupSummary *group = &g_array_index(groups, GroupSummary, i);
    TEXT_ROW(table, g_strdup_printf("  %s", group->info->name),
             format_count(group->info->parameters), format_bytes(group->info->unsharded_bytes),
             format_bytes(group->info->shard_bytes), number(group->all_gathers),
             number(group->reduce_scatters), format_duration(group->forward.compute),
             format_duration(group->forward.gather), window(&group->forward),
             waited(&group->forward), format_duration(group->backward.compute),
             format_duration(group->backward.gather), window(&group->backward),
             waited(&group->backward));
  }
  print_table(screen, table);
}

void
text_tables(const Screen *screen)
{
  print_steps(screen);
  print_phases(screen);
  print_largest(screen);
  print_modules(screen);
  print_groups(screen);
  text_stretches(screen);
  g_string_append_c(screen->out, '\n');
}
