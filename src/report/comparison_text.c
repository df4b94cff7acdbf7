/* comparison_text.c - two runs side by side for people: the largest difference first. */
#include "report/comparison_report.h"
#include "report/comparison_words.h"
#include "report/summary_text_parts.h"
#include <math.h>
#include <string.h>

/* Kernels and blocks that are shown without verbose. */
enum { FEW = 5 };

static const char side_names[SIDES] = {'A', 'B'};

gboolean
comparison_is_within(const ComparisonReport *report)
{
  for (guint i = 0; report->limits && i < report->limits->len; i++)
    if (!comparison_limit_holds(&g_array_index(report->limits, ComparisonLimit, i),
                                report->comparison))
      return FALSE;
  return TRUE;
}

/* ---- the answer ---- */

static void
print_sides(const ComparisonReport *report, GString *out)
{
  for (int side = 0; side < SIDES; side++) {
    const ReportModel *model = report->comparison->models[side];
    const RunInfo *info = model->info;
    g_string_append_printf(out, "%c  %s", side_names[side], report->names[side]);
    if (info->model)
      g_string_append_printf(out, ": %s, %s over %d", info->model,
                             info->strategy ? info->strategy : "no plan",
                             MAX(info->shard * info->replicate, 1));
    else if (*model->recording->title)
      g_string_append_printf(out, ": %s, measured", model->recording->title);
    g_string_append_c(out, '\n');
  }
  g_string_append_c(out, '\n');
}

static void
print_label(const TextStyle *style, const char *label, const char *colour, GString *out)
{
  if (style->colour)
    g_string_append_printf(out, "\033[1;%sm%s\033[0m", colour, label);
  else
    g_string_append(out, label);
  g_string_append_printf(out, "%*s", (int) (9 - strlen(label)), "");
}

static void
print_answer(const ComparisonReport *report, const TextStyle *style, GString *out)
{
  const Comparison *c = report->comparison;
  g_autofree char *headline = comparison_headline(c);
  print_label(style,
              !c->comparable ? "UNKNOWN"
              : c->same      ? "SAME"
                             : "DIFFERS",
              c->same ? "32" : "33", out);
  g_string_append_printf(out, "%s\n", headline);
  for (guint i = 0; report->limits && i < report->limits->len; i++) {
    const ComparisonLimit *limit = &g_array_index(report->limits, ComparisonLimit, i);
    const FigureComparison *figure = comparison_figure(report->comparison, limit->key);
    gboolean holds = comparison_limit_holds(limit, report->comparison);
    g_autofree char *label = figure_label(limit->key);
    g_autofree char *share = format_percent(figure_error(figure));
    g_autofree char *bytes =
        figure_format(figure->unit, ABS(figure->value[SIDE_B] - figure->value[SIDE_A]));
    gboolean as_share = limit->is_relative && !isinf(figure_error(figure));
    print_label(style, holds ? "WITHIN" : "OVER", holds ? "32" : "31", out);
    g_string_append_printf(out, "%s: %s of %s\n", label, as_share ? share : bytes, limit->text);
  }
}

/* ---- figures and categories ---- */

static char *
format_change(gint64 a, gint64 b)
{
  if (a == b)
    return g_strdup("");
  if (a == 0)
    return g_strdup("new");
  double error = fabs((double) b - (double) a) / (double) a;
  g_autofree char *share = format_percent(error);
  if (error < 0.0005)
    return g_strdup(""); /* less than the last digit that is shown */
  return g_strconcat(b > a ? "+" : "-", share, NULL);
}

static char *
format_difference(FigureUnit unit, gint64 a, gint64 b)
{
  return a == b ? g_strdup("same") : figure_format_signed(unit, b - a);
}

static void
add_row(TextTable *table, const char *label, FigureUnit unit, gint64 a, gint64 b)
{
  TEXT_ROW(table, g_strdup_printf("  %s", label), figure_format(unit, a), figure_format(unit, b),
           format_difference(unit, a, b), format_change(a, b));
}

static char *
figure_or_dash(const FigureComparison *figure, int side)
{
  return figure->known[side] ? figure_format(figure->unit, figure->value[side]) : g_strdup("-");
}

static void
print_figures(const Comparison *c, GString *out)
{
  g_autoptr(TextTable) table = text_table_new("lrrrr");
  g_autofree char *heading = NULL;
  if (c->step[SIDE_A] == c->step[SIDE_B])
    heading = g_strdup_printf("Times of step %d", c->step[SIDE_A]);
  else
    heading = g_strdup_printf("Times of steps %d and %d", c->step[SIDE_A], c->step[SIDE_B]);
  TEXT_ROW(table, g_strdup(c->step[SIDE_A] && c->step[SIDE_B] ? heading : "Figures"), g_strdup("A"),
           g_strdup("B"), g_strdup("difference"), NULL);
  for (int i = 0; i < COMPARISON_FIGURES; i++) {
    const FigureComparison *figure = &c->figures[i];
    g_autofree char *label = figure_label(figure->key);
    if (!figure->known[SIDE_A] && !figure->known[SIDE_B])
      continue;
    if (figure_is_known(figure))
      add_row(table, label, figure->unit, figure->value[SIDE_A], figure->value[SIDE_B]);
    else
      TEXT_ROW(table, g_strdup_printf("  %s", label), figure_or_dash(figure, SIDE_A),
               figure_or_dash(figure, SIDE_B), NULL, NULL);
  }
  g_string_append_c(out, '\n');
  text_table_print(table, 0, out);
}

/* "step 2, backward of layers.3".  Caller frees. */
static char *
place_of_peak(const Comparison *c, int side)
{
  const Recording *recording = c->models[side]->recording;
  const PeakRecord *peak = &recording->peak;
  GString *place = g_string_new(NULL);
  report_append_place(recording, peak->step, peak->phase, peak->module, place);
  return g_string_free(place, FALSE);
}

static void
print_places(const Comparison *c, GString *out)
{
  if (!report_model_knows_place(c->models[SIDE_A]) || !report_model_knows_place(c->models[SIDE_B]))
    return;
  g_autofree char *a = place_of_peak(c, SIDE_A), *b = place_of_peak(c, SIDE_B);
  if (g_str_equal(a, b))
    g_string_append_printf(out, "Both peaks are in %s.\n", a);
  else
    g_string_append_printf(out, "The peak of A is in %s, that of B in %s.\n", a, b);
}

static void
print_categories(const Comparison *c, GString *out)
{
  if (!c->has_categories)
    return;
  g_autoptr(TextTable) table = text_table_new("lrrrr");
  TEXT_ROW(table, g_strdup("At the peak"), g_strdup("A"), g_strdup("B"), g_strdup("difference"),
           NULL);
  for (int i = 0; i < CATEGORY_COUNT; i++) {
    gint64 a = c->categories[SIDE_A][i], b = c->categories[SIDE_B][i];
    g_autofree char *label = figure_label(category_name((Category) i));
    if (a > 0 || b > 0)
      add_row(table, label, FIGURE_BYTES, a, b);
  }
  g_string_append_c(out, '\n');
  text_table_print(table, 0, out);
}

/* ---- allocations ---- */

/* "the construction", "step 3".  Caller frees. */
static char *
step_name(int step)
{
  return step == 0 ? g_strdup("the construction") : g_strdup_printf("step %d", step);
}

/* Which steps' events were compared, and by what. */
static void
print_compared(const MemoryComparison *memory, GString *out)
{
  g_autofree char *first = step_name(memory->first[SIDE_A]);
  g_autofree char *last = step_name(memory->last[SIDE_A]);
  g_autofree char *of_b = step_name(memory->first[SIDE_B]);
  g_string_append_printf(out, "\nAllocations and frees of %s", first);
  if (memory->first[SIDE_A] != memory->last[SIDE_A])
    g_string_append_printf(out, " to %s", last);
  else if (memory->first[SIDE_A] != memory->first[SIDE_B])
    g_string_append_printf(out, " of A and %s of B", of_b);
  g_string_append_printf(out, ", by size%s%s: ", memory->by_category ? ", category" : "",
                         memory->by_module ? ", module" : "");
}

static void
print_unmatched(const MemoryComparison *memory, GString *out)
{
  g_autofree char *a = format_bytes(memory->unmatched_bytes[SIDE_A]);
  g_autofree char *b = format_bytes(memory->unmatched_bytes[SIDE_B]);
  if (memory->unmatched[SIDE_A] + memory->unmatched[SIDE_B] == 0)
    g_string_append(out, "  In another order the allocations are the same.\n");
  else
    g_string_append_printf(out,
                           "  In any order, %u allocations of A (%s) and %u of B (%s) have no "
                           "equal on the other side.\n",
                           memory->unmatched[SIDE_A], a, memory->unmatched[SIDE_B], b);
}

static void
print_first_difference(const Comparison *c, GString *out)
{
  const MemoryComparison *memory = &c->memory;
  g_autofree char *verdict = comparison_memory_verdict(c);
  g_autofree char *in_a = step_name(memory->step[SIDE_A]), *in_b = step_name(memory->step[SIDE_B]);
  g_string_append_printf(out, "%u and %u.\n  The first difference is event %u of %s",
                         memory->events[SIDE_A], memory->events[SIDE_B], memory->position + 1,
                         in_a);
  if (memory->step[SIDE_A] != memory->step[SIDE_B])
    g_string_append_printf(out, " of A, of %s of B", in_b);
  g_string_append_printf(out, "; %s:\n", verdict);
  g_autoptr(TextTable) table = text_table_new("lll");
  for (int side = 0; side < SIDES; side++)
    TEXT_ROW(table, g_strdup_printf("    %c", side_names[side]), comparison_memory_event(c, side),
             comparison_memory_place(c, side));
  text_table_print(table, 0, out);
}

static void
print_memory(const Comparison *c, GString *out)
{
  const MemoryComparison *memory = &c->memory;
  if (!memory->known) {
    if (figure_is_known(comparison_figure(c, "peak_allocated")))
      g_string_append(out, "\nAllocations are not compared: the two record no step in common.\n");
    return;
  }
  print_compared(memory, out);
  if (memory->verdict == MEMORY_SAME) {
    g_string_append_printf(out, "all %u are the same.\n", memory->events[SIDE_A]);
    return;
  }
  print_first_difference(c, out);
  print_unmatched(memory, out);
}

/* ---- collectives ---- */

static void
add_pair(TextTable *table, const char *what, const Comparison *c, const CollectivePair *pair)
{
  if (pair->lane < 0)
    return;
  g_autofree char *name = comparison_collective_name(c, pair);
  TEXT_ROW(table, g_strdup_printf("  %s: %s", what, name), g_strdup("A"),
           comparison_collective(c, pair, SIDE_A));
  TEXT_ROW(table, NULL, g_strdup("B"), comparison_collective(c, pair, SIDE_B));
}

static void
print_collectives(const Comparison *c, GString *out)
{
  if (c->lanes->len == 0)
    return;
  g_autoptr(TextTable) table = text_table_new("lrrrrrrr");
  TEXT_ROW(table, g_strdup("Collectives"), g_strdup("count A"), g_strdup("B"), g_strdup("size A"),
           g_strdup("B"), g_strdup("time A"), g_strdup("B"), g_strdup("difference"));
  for (guint i = 0; i < c->lanes->len; i++) {
    const LaneComparison *lane = &g_array_index(c->lanes, LaneComparison, i);
    gboolean named = lane->communicator && *lane->communicator;
    TEXT_ROW(table,
             g_strdup_printf("  %s%s%s", lane->kind, named ? " of " : "",
                             named ? lane->communicator : ""),
             format_grouped(lane->count[SIDE_A]), format_grouped(lane->count[SIDE_B]),
             format_bytes(lane->bytes[SIDE_A]), format_bytes(lane->bytes[SIDE_B]),
             format_duration(lane->time[SIDE_A]), format_duration(lane->time[SIDE_B]),
             format_difference(FIGURE_TIME, lane->time[SIDE_A], lane->time[SIDE_B]));
  }
  g_string_append_c(out, '\n');
  text_table_print(table, 0, out);
  g_autoptr(TextTable) pairs = text_table_new("lll");
  add_pair(pairs, "the first that differs", c, &c->first_differs);
  add_pair(pairs, "the time that differs most", c, &c->slowest);
  text_table_print(pairs, 0, out);
}

/* ---- kernels ---- */

static void
print_kernels(const char *heading, const GArray *kernels, const TextStyle *style, GString *out)
{
  g_autoptr(TextTable) table = text_table_new("lrrrrrr");
  guint shown = 0;
  TEXT_ROW(table, g_strdup(heading), g_strdup("count A"), g_strdup("B"), g_strdup("time A"),
           g_strdup("B"), g_strdup("difference"), NULL);
  for (; shown < kernels->len && (style->verbose || shown < FEW); shown++) {
    const KernelComparison *k = &g_array_index(kernels, KernelComparison, shown);
    if (!style->verbose && k->time[SIDE_A] == k->time[SIDE_B] &&
        k->count[SIDE_A] == k->count[SIDE_B])
      break;
    TEXT_ROW(table, g_strdup_printf("  %s", *k->name ? k->name : "(none)"),
             format_grouped(k->count[SIDE_A]), format_grouped(k->count[SIDE_B]),
             format_duration(k->time[SIDE_A]), format_duration(k->time[SIDE_B]),
             format_difference(FIGURE_TIME, k->time[SIDE_A], k->time[SIDE_B]),
             format_change(k->time[SIDE_A], k->time[SIDE_B]));
  }
  if (shown == 0)
    return;
  g_string_append_c(out, '\n');
  text_table_print(table, 0, out);
}

void
comparison_text(const ComparisonReport *report, const TextStyle *style, GString *out)
{
  const Comparison *c = report->comparison;
  print_sides(report, out);
  print_answer(report, style, out);
  if (c->same && c->comparable && !style->verbose)
    return;
  print_figures(c, out);
  print_categories(c, out);
  print_places(c, out);
  print_memory(c, out);
  print_collectives(c, out);
  print_kernels("Kernels by name", c->kernels, style, out);
  print_kernels("Kernels by block", c->modules, style, out);
}
