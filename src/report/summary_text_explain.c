/* summary_text_explain.c - what stands behind the answer: memory at the peak and by phase,
 * communication, groups. */
#include "report/state_estimate.h"
#include "report/summary_text_parts.h"
#include <stdlib.h>
#include <string.h>

enum { BAR_CELLS = 24 };

/* Categories below this fraction of the peak share one row. */
static const double small_share = 0.01;

const char *const text_category_labels[CATEGORY_COUNT] = {
    [CATEGORY_PARAMETER] = "parameters",
    [CATEGORY_OPTIMIZER_STATE] = "optimizer state",
    [CATEGORY_SHARDED_GRADIENT] = "sharded gradients",
    [CATEGORY_UNSHARDED_PARAMETER] = "unsharded parameters",
    [CATEGORY_UNSHARDED_GRADIENT] = "unsharded gradients",
    [CATEGORY_ALL_GATHER_BUFFER] = "all-gather buffers",
    [CATEGORY_REDUCE_SCATTER_BUFFER] = "reduce-scatter buffers",
    [CATEGORY_ACTIVATION] = "activations",
    [CATEGORY_TEMPORARY] = "temporaries",
    [CATEGORY_WORKSPACE] = "workspaces",
    [CATEGORY_OTHER] = "other",
};

/* ---- at the peak ---- */

typedef struct {
  int category;
  gint64 bytes;
} CategoryBytes;

static int
compare_category_bytes(const void *a, const void *b)
{
  const CategoryBytes *x = a, *y = b;
  if (x->bytes != y->bytes)
    return x->bytes > y->bytes ? -1 : 1;
  return x->category - y->category;
}

/* "largest: log_softmax of output 3.91", of a category's tensors at the peak; NULL when they have
 * no names. */
static char *
largest_of_category(const Recording *recording, int category, const TextUnit *unit)
{
  const GArray *live = recording->peak.live;
  for (guint i = 0; live && i < live->len; i++) {
    const LiveTensor *tensor = &g_array_index(live, LiveTensor, i);
    if (tensor->category != category)
      continue;
    g_autofree char *name = text_what_of_module(recording, tensor->what, tensor->module);
    g_autofree char *size = text_unit_format(unit, tensor->bytes);
    return name ? g_strdup_printf("%s %s", name, size) : NULL;
  }
  return NULL;
}

/* A bar of BAR_CELLS characters for the largest, filled up with spaces; then the note. */
static char *
bar_and_note(const Screen *screen, gint64 bytes, gint64 largest, const char *note)
{
  int filled = (int) ((double) bytes / (double) MAX(largest, 1) * BAR_CELLS + 0.5);
  GString *text = g_string_new(NULL);
  for (int i = 0; i < BAR_CELLS; i++)
    g_string_append(text, i < filled ? screen->glyphs->bar : " ");
  if (note)
    g_string_append_printf(text, "  %s", note);
  else
    g_string_truncate(text, strlen(g_strchomp(text->str)));
  return g_string_free(text, FALSE);
}

static void
print_categories(const Screen *screen)
{
  const PeakRecord *peak = &screen->model->recording->peak;
  const TextUnit *unit = text_unit_for(peak->allocated);
  CategoryBytes order[CATEGORY_COUNT];
  if (peak->allocated == 0)
    return;
  for (int i = 0; i < CATEGORY_COUNT; i++)
    order[i] = (CategoryBytes){i, peak->categories[i]};
  qsort(order, CATEGORY_COUNT, sizeof order[0], compare_category_bytes);

  g_autoptr(TextTable) table = text_table_new("lrl");
  TEXT_ROW(table, g_strdup("At the peak"), g_strdup(unit->name),
           g_strdup_printf("%*s  largest", BAR_CELLS, ""));
  gint64 smaller = 0;
  for (int i = 0; i < CATEGORY_COUNT && order[i].bytes > 0; i++) {
    const CategoryBytes *entry = &order[i];
    if (!screen->style->verbose && (double) entry->bytes < small_share * (double) peak->allocated) {
      smaller += entry->bytes;
      continue;
    }
    g_autofree char *note = largest_of_category(screen->model->recording, entry->category, unit);
    TEXT_ROW(table, g_strdup_printf("  %s", text_category_labels[entry->category]),
             text_unit_format(unit, entry->bytes),
             bar_and_note(screen, entry->bytes, order[0].bytes, note));
  }
  if (smaller > 0)
    TEXT_ROW(table, g_strdup("  smaller ones"), text_unit_format(unit, smaller), NULL);
  g_string_append_c(screen->out, '\n');
  text_table_print(table, 0, screen->out);
}

void
text_cached(const Recording *recording, const GArray *cached, const char *when, GString *out)
{
  gint64 total = 0;
  guint streams = MIN(cached->len, recording->streams->len);
  for (guint i = 0; i < streams; i++)
    total += g_array_index(cached, gint64, i);
  if (total == 0)
    return;
  g_autofree char *sum = format_bytes(total);
  g_string_append_printf(out, "Reserved but not allocated %s: %s", when, sum);
  const char *before = ", of which ";
  for (guint i = 0; i < streams; i++) {
    gint64 bytes = g_array_index(cached, gint64, i);
    if ((double) bytes < small_share * (double) total)
      continue;
    g_autofree char *size = format_bytes(bytes);
    g_string_append_printf(out, "%s%s in the pool of %s", before, size,
                           (const char *) g_ptr_array_index(recording->streams, i));
    before = ", ";
  }
  g_string_append_c(out, '\n');
}

/* ---- by phase ---- */

/* The highest of all micro-batches' phases of that name; FALSE when the step has none. */
static gboolean
phase_peaks(const StepSummary *step, const char *name, gint64 *allocated, gint64 *reserved)
{
  gboolean found = FALSE;
  *allocated = *reserved = 0;
  for (guint i = 0; i < step->phases->len; i++) {
    const PhaseSummary *phase = &g_array_index(step->phases, PhaseSummary, i);
    if (!g_str_equal(phase->name, name))
      continue;
    found = TRUE;
    *allocated = MAX(*allocated, phase->peak_allocated);
    *reserved = MAX(*reserved, phase->peak_reserved);
  }
  return found;
}

static void
print_phases(const Screen *screen)
{
  static const char *const names[] = {"forward", "backward", "optimizer"};
  const ReportModel *model = screen->model;
  const StepSummary *step = report_model_last_step(model);
  if (!step || (step->phases->len == 0 && !model->is_simulated))
    return;
  const TextUnit *unit = text_unit_for(model->peak_reserved);
  char *rows[3][G_N_ELEMENTS(names) + 2] = {
      {g_strdup_printf("Peaks of step %d, %s", step->index, unit->name), g_strdup("at rest")},
      {g_strdup("  allocated"), text_unit_format(unit, model->recording->at_rest_bytes)},
      {g_strdup("  reserved"), NULL},
  };
  for (guint i = 0; i < G_N_ELEMENTS(names); i++) {
    gint64 allocated, reserved;
    if (!phase_peaks(step, names[i], &allocated, &reserved))
      continue;
    rows[0][i + 2] = g_strdup(names[i]);
    rows[1][i + 2] = text_unit_format(unit, allocated);
    rows[2][i + 2] = text_unit_format(unit, reserved);
  }
  g_autoptr(TextTable) table = text_table_new("lrrrr");
  for (guint i = 0; i < G_N_ELEMENTS(rows); i++)
    text_take_row(table, rows[i], G_N_ELEMENTS(rows[i]));
  g_string_append_c(screen->out, '\n');
  text_table_print(table, 0, screen->out);
}

/* Does a later one have this one's name? */
static gboolean
comes_again(const GArray *phases, guint i)
{
  const char *name = g_array_index(phases, BeyondSummary, i).name;
  for (guint k = i + 1; k < phases->len; k++)
    if (g_str_equal(g_array_index(phases, BeyondSummary, k).name, name))
      return TRUE;
  return FALSE;
}

/* Of each phase beyond the steps the last one. */
static void
print_beyond(const Screen *screen)
{
  const GArray *phases = screen->model->beyond;
  if (phases->len == 0)
    return;
  g_autoptr(TextTable) table = text_table_new("lrrrrr");
  TEXT_ROW(table, g_strdup("Beyond the steps"), g_strdup("after step"), g_strdup("time"),
           g_strdup("allocated"), g_strdup("reserved"), g_strdup("state"));
  for (guint i = 0; i < phases->len; i++) {
    const BeyondSummary *phase = &g_array_index(phases, BeyondSummary, i);
    if (!screen->style->verbose && comes_again(phases, i))
      continue;
    gboolean has_state = phase->info && phase->info->has_state;
    TEXT_ROW(table,
             g_strdup_printf("  %s%s", phase->name, phase->complete ? "" : " (not completed)"),
             g_strdup_printf("%d", phase->after_step), format_duration(phase->duration),
             format_bytes(phase->peak_allocated), format_bytes(phase->peak_reserved),
             has_state ? format_bytes(phase->info->state_bytes) : NULL);
  }
  g_string_append_c(screen->out, '\n');
  text_table_print(table, 0, screen->out);
}

/* ---- communication and groups ---- */

static char *
describe_communicator(const CommunicationSummary *summary)
{
  if (!summary->info)
    return g_strdup(summary->communicator);
  return g_strdup_printf("%s, %d rank%s%s%s", summary->communicator, summary->info->ranks,
                         summary->info->ranks == 1 ? "" : "s", summary->info->link ? ", " : "",
                         summary->info->link ? summary->info->link : "");
}

static void
print_communication(const Screen *screen)
{
  const GArray *communication = screen->model->communication;
  if (communication->len == 0)
    return;
  g_autoptr(TextTable) table = text_table_new("lrrrrl");
  TEXT_ROW(table, g_strdup("Communication"), g_strdup("count"), g_strdup("mean size"),
           g_strdup("time"), g_strdup("exposed"), g_strdup("among"));
  for (guint i = 0; i < communication->len; i++) {
    const CommunicationSummary *summary = &g_array_index(communication, CommunicationSummary, i);
    char *name = g_strdup_printf("  %s", summary->collective);
    g_strdelimit(name, "_", '-');
    TEXT_ROW(table, name, g_strdup_printf("%" G_GINT64_FORMAT, summary->count),
             format_bytes(summary->bytes / MAX(summary->count, 1)), format_duration(summary->time),
             format_duration(summary->exposed), describe_communicator(summary));
  }
  g_string_append_c(screen->out, '\n');
  text_table_print(table, 0, screen->out);
}

/* What is offloaded, if anything is. */
static void
print_host(const Screen *screen)
{
  const RunInfo *info = screen->model->info;
  const CopySummary *copies = &screen->model->copies;
  if (info->pinned_bytes + info->pageable_bytes > 0) {
    g_autofree char *all = format_bytes(info->pinned_bytes + info->pageable_bytes);
    g_autofree char *pinned = format_bytes(info->pinned_bytes);
    g_string_append_printf(
        screen->out, "\nThis rank keeps %s in the host's memory, %s of them pinned.", all, pinned);
  }
  if (copies->count > 0) {
    g_autofree char *bytes = format_bytes(copies->bytes);
    g_autofree char *time = format_duration(copies->time);
    g_string_append_printf(screen->out,
                           "\nCopies to and from the host: %" G_GINT64_FORMAT ", %s in %s.",
                           copies->count, bytes, time);
  }
  if (info->pinned_bytes + info->pageable_bytes + copies->count > 0)
    g_string_append_c(screen->out, '\n');
}

/* How many groups have as many parameters as the one at `position`; 0 when an earlier one was
 * counted for it. */
static int
count_alike(const GArray *groups, guint position)
{
  gint64 parameters = g_array_index(groups, GroupInfo, position).parameters;
  int alike = 0;
  for (guint i = 0; i < groups->len; i++) {
    if (g_array_index(groups, GroupInfo, i).parameters != parameters)
      continue;
    if (i < position)
      return 0;
    alike++;
  }
  return alike;
}

static void
print_equivalence(const RunInfo *info, GString *out)
{
  int stage = info->equivalent_zero_stage;
  if (stage >= 0)
    g_string_append_printf(out, "Equivalent to ZeRO stage %d.", stage);
  if (stage >= 0 && info->elements_sent > 0)
    g_string_append_printf(
        out, "\nA micro-batch sends %.2f elements per parameter; by ZeRO's paper %.0f.",
        info->elements_sent, zero_states(stage, 1, 2).sent);
}

/* What prefetching under a budget costs and gains. */
static void
print_prefetch(const Screen *screen)
{
  const ReportModel *model = screen->model;
  const PrefetchInfo *prefetch = &model->info->prefetch;
  if (prefetch->budget == 0)
    return;
  gint64 cost = model->peak_allocated - prefetch->own_peak;
  gint64 reserved = model->peak_reserved - prefetch->own_reserved;
  SimTime gain = prefetch->own_step - model->time.step;
  g_autofree char *budget = format_bytes(prefetch->budget), *most = format_bytes(prefetch->most);
  g_autofree char *memory = format_bytes(ABS(cost)), *time = format_duration(ABS(gain));
  g_autofree char *segments = format_bytes(ABS(reserved));
  g_string_append_printf(
      screen->out,
      "Prefetch: up to %s of gathered parameters wait, of a budget of %s.\nBeside "
      "FSDP2's own prefetching the peak is %s %s, %s %s are reserved",
      most, budget, memory, cost >= 0 ? "higher" : "lower", segments,
      reserved >= 0 ? "more" : "less");
  if (model->time.known && prefetch->own_step > 0)
    g_string_append_printf(screen->out, ", and a step is %s %s", time,
                           gain >= 0 ? "shorter" : "longer");
  g_string_append(screen->out, ".\n");
}

static void
print_groups(const Screen *screen)
{
  const RunInfo *info = screen->model->info;
  GString *out = screen->out;
  if (info->groups->len > 0) {
    g_string_append_printf(out, "Groups: %u (", info->groups->len);
    const char *before = "";
    for (guint i = 0; i < info->groups->len; i++) {
      const GroupInfo *group = &g_array_index(info->groups, GroupInfo, i);
      int alike = count_alike(info->groups, i);
      if (alike == 0)
        continue;
      g_autofree char *parameters = format_count(group->parameters);
      if (alike == 1)
        g_string_append_printf(out, "%s%s %s", before, group->name, parameters);
      else
        g_string_append_printf(out, "%s%d of %s", before, alike, parameters);
      before = ", ";
    }
    g_string_append(out, " parameters). ");
  }
  print_equivalence(info, out);
  if (info->groups->len > 0 || info->equivalent_zero_stage >= 0) {
    g_string_truncate(out, strlen(g_strchomp(out->str)));
    g_string_append_c(out, '\n');
  }
  if (info->split_tied)
    g_string_append(out, "The tied output layer counts with a weight of its own: its group and the "
                         "embedding's cannot share one.\n");
}

void
text_explain(const Screen *screen)
{
  print_categories(screen);
  text_cached(screen->model->recording, screen->model->recording->cached, "at the end",
              screen->out);
  print_phases(screen);
  print_beyond(screen);
  print_communication(screen);
  text_critical_path(screen);
  print_host(screen);
  g_string_append_c(screen->out, '\n');
  print_prefetch(screen);
  print_groups(screen);
}

/* ---- what it rests on ---- */

static void
print_constants(const Screen *screen)
{
  static const char *const origins[] = {
      [ORIGIN_DEFAULT] = "defaults of",
      [ORIGIN_IMPORTED] = "imported figures of",
      [ORIGIN_MEASURED] = "measurements of",
  };
  const GArray *constants = screen->model->info->constants;
  if (constants->len == 0)
    return;
  const char *before = "Times rest on ";
  for (guint origin = 0; origin < G_N_ELEMENTS(origins); origin++) {
    gboolean named = FALSE;
    for (guint i = 0; i < constants->len; i++) {
      const ConstantSource *source = &g_array_index(constants, ConstantSource, i);
      if (source->origin != origin)
        continue;
      g_string_append_printf(screen->out, "%s%s%s%s", before, named ? "" : origins[origin],
                             named ? "" : " ", source->name);
      named = TRUE;
      before = ", ";
    }
  }
  g_string_append(screen->out, ".\n");
}

void
text_footer(const Screen *screen)
{
  int last = (int) screen->model->steps->len, more = screen->model->info->repeated_steps;
  if (more > 0)
    g_string_append_printf(screen->out, "Steps %d to %d repeat step %d.\n", last + 1, last + more,
                           last);
  print_constants(screen);
  const GPtrArray *warnings = screen->model->warnings;
  for (guint i = 0; i < warnings->len; i++)
    g_string_append_printf(screen->out, "Warning: %s\n",
                           (const char *) g_ptr_array_index(warnings, i));
}
