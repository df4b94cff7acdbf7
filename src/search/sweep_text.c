/* sweep_text.c - the results of a sweep for people: what is fixed, a row a variant, the best. */
#include "search/sweep_text.h"

#include <math.h>
#include <string.h>

#include "base/text_table.h"
#include "base/units.h"
#include "search/sweep_verification.h"

/* Reasons that are written under the table; all are in results.csv. */
#define MOST_REASONS 20
/* Longest value in the table. */
#define VALUE_WIDTH 40

/* ---- heading ---- */

static void
print_fixed(const Sweep *sweep, GString *out)
{
  GString *fixed = g_string_new(NULL);
  for (guint i = 0; i < sweep->facts->len; i++) {
    const SweepFact *fact = &g_array_index(sweep->facts, SweepFact, i);
    if (fact->text != NULL)
      g_string_append_printf(fixed, "%s%s %s", fixed->len > 0 ? ", " : "", fact->name, fact->text);
  }
  if (fixed->len > 0)
    g_string_append_printf(out, "Fixed: %s.\n", fixed->str);
  g_string_free(fixed, TRUE);
}

static void
print_batches(const Sweep *sweep, GString *out)
{
  g_autofree char *least = format_grouped(sweep->least_global_batch);
  g_autofree char *most = format_grouped(sweep->most_global_batch);
  if (sweep->least_global_batch != sweep->most_global_batch)
    g_string_append_printf(out,
                           "The global batch is not fixed: %s to %s tokens a step, so variants are "
                           "ordered by the time "
                           "of a token on a GPU, not of a step (--hold-global-batch fixes it).\n",
                           least, most);
}

void
sweep_text_heading(const Sweep *sweep, GString *out)
{
  g_string_append_printf(out, "%s: %u variant%s", sweep->title, sweep->variants->len,
                         sweep->variants->len == 1 ? "" : "s");
  for (guint i = 0; i < sweep->vary->axes->len; i++)
    g_string_append_printf(out, "%s%s", i > 0 ? " x " : " of ",
                           ((VaryAxis *) g_ptr_array_index(sweep->vary->axes, i))->key);
  g_string_append_c(out, '\n');
  print_fixed(sweep, out);
  print_batches(sweep, out);
}

/* ---- table ---- */

enum {
  CELL_MARK,
  CELL_VERDICT,
  CELL_ALLOCATED,
  CELL_RESERVED,
  CELL_HEADROOM,
  CELL_STEP,
  CELL_TOKENS,
  CELL_MFU,
  CELL_EXPOSED,
  CELL_HIDDEN,
  CELL_COLLECTIVES,
  CELL_STARTUP,
  CELL_VERIFIED, /* only where it was asked for */
  CELL_COUNT
};

static const char *const heads[CELL_COUNT] = {
    [CELL_MARK] = "",
    [CELL_VERDICT] = "verdict",
    [CELL_ALLOCATED] = "allocated",
    [CELL_RESERVED] = "reserved",
    [CELL_HEADROOM] = "headroom",
    [CELL_STEP] = "step",
    [CELL_TOKENS] = "tokens/s",
    [CELL_MFU] = "MFU",
    [CELL_EXPOSED] = "exposed",
    [CELL_HIDDEN] = "hidden",
    [CELL_COLLECTIVES] = "collectives",
    [CELL_STARTUP] = "startup",
    [CELL_VERIFIED] = "on numbers",
};

static char *
verdict_words(const Outcome *outcome)
{
  char *words = g_strdup(outcome_verdict(outcome));
  return g_strdelimit(words, "_", ' ');
}

static void
fill_times(const Outcome *outcome, char **cells)
{
  const TimeSummary *time = &outcome->time;
  cells[CELL_STEP] = format_duration(time->step);
  if (time->tokens_per_s > 0)
    cells[CELL_TOKENS] = format_grouped((gint64) (time->tokens_per_s + 0.5));
  if (time->mfu > 0)
    cells[CELL_MFU] = format_percent(time->mfu);
  if (time->is_split) {
    cells[CELL_COLLECTIVES] = format_grouped(outcome->collectives);
    cells[CELL_EXPOSED] = format_duration(time->exposed);
  }
  if (!isnan(outcome_hidden(outcome)))
    cells[CELL_HIDDEN] = format_percent(outcome_hidden(outcome));
  if (outcome->startup.collectives > 0)
    cells[CELL_STARTUP] = format_duration(outcome->startup.time);
}

static void
fill_cells(const Sweep *sweep, guint i, char **cells)
{
  const SweepVariant *variant = sweep_variant(sweep, i);
  const Outcome *outcome = &variant->outcome;
  cells[CELL_MARK] = g_strdup((int) i == sweep->fastest ? "*" : variant->is_pareto ? "+" : "");
  cells[CELL_VERDICT] = verdict_words(outcome);
  cells[CELL_VERIFIED] = g_strdup(sweep_verification_word(&variant->verification));
  if (outcome->refusal != NULL)
    return;
  cells[CELL_ALLOCATED] = format_bytes(outcome->peak_allocated);
  cells[CELL_RESERVED] = format_bytes(outcome->peak_reserved);
  if (outcome->capacity < G_MAXINT64)
    cells[CELL_HEADROOM] = format_bytes(outcome->headroom);
  if (outcome->time.known)
    fill_times(outcome, cells);
}

static guint
cells_of(const Sweep *sweep)
{
  return sweep->is_verified ? CELL_COUNT : CELL_VERIFIED;
}

static void
add_row(const Sweep *sweep, guint i, TextTable *table)
{
  guint keys = sweep->vary->axes->len;
  g_auto(GStrv) cells = g_new0(char *, keys + CELL_COUNT + 1);
  for (guint k = 0; k < keys; k++)
    cells[k] = g_strndup(vary_value(sweep->vary, i, k), VALUE_WIDTH);
  fill_cells(sweep, i, cells + keys);
  for (guint k = 0; k < keys + cells_of(sweep); k++)
    if (cells[k] == NULL)
      cells[k] = g_strdup("-");
  text_table_row_array(table, (const char *const *) cells);
}

static void
print_table(const Sweep *sweep, GString *out)
{
  guint keys = sweep->vary->axes->len;
  g_autofree char *columns = g_strnfill(keys + cells_of(sweep), 'r');
  g_autofree const char **head = g_new0(const char *, keys + CELL_COUNT + 1);
  columns[keys + CELL_MARK] = columns[keys + CELL_VERDICT] = 'l';
  for (guint k = 0; k < keys; k++) {
    const char *key = ((VaryAxis *) g_ptr_array_index(sweep->vary->axes, k))->key;
    const char *dot = strrchr(key, '.');
    head[k] = dot != NULL ? dot + 1 : key;
  }
  for (guint k = 0; k < cells_of(sweep); k++)
    head[keys + k] = heads[k];
  g_autoptr(TextTable) table = text_table_new(columns);
  text_table_row_array(table, head);
  for (guint i = 0; i < sweep->variants->len; i++)
    if (sweep_variant(sweep, i)->is_done)
      add_row(sweep, i, table);
  text_table_print(table, 0, out);
}

/* ---- below ---- */

/* "8, full": the values as they were given. */
static char *
values_of(const Sweep *sweep, guint i)
{
  GString *text = g_string_new(NULL);
  for (guint k = 0; k < sweep->vary->axes->len; k++)
    g_string_append_printf(text, "%s%s", k > 0 ? ", " : "", vary_value(sweep->vary, i, k));
  return g_string_free(text, FALSE);
}

/* " with 488 MiB to spare": what was asked for. */
static char *
headroom_words(const Sweep *sweep)
{
  const Headroom *headroom = &sweep->headroom;
  if (headroom->bytes < 0)
    return g_strdup_printf(" with %.3g %% to spare", 100 * headroom->fraction);
  g_autofree char *bytes = format_bytes(headroom->bytes);
  return headroom->bytes == 0 ? g_strdup("") : g_strdup_printf(" with %s to spare", bytes);
}

static void
print_best(const Sweep *sweep, GString *out)
{
  g_autofree char *asked = headroom_words(sweep);
  if (sweep->fastest < 0) {
    g_string_append_printf(out, "No variant fits%s.\n", asked);
    return;
  }
  g_autofree char *values = values_of(sweep, (guint) sweep->fastest);
  const SweepVariant *best = sweep_variant(sweep, (guint) sweep->fastest);
  g_autofree char *step = format_duration(best->outcome.time.step);
  g_autofree char *reserved = format_bytes(best->outcome.peak_reserved);
  g_string_append_printf(out,
                         "* %s is the fastest that fits%s: %s a step, %s reserved.  + needs less "
                         "memory, and nothing that does is faster.\n",
                         values, asked, step, reserved);
}

static void
print_reasons(const Sweep *sweep, GString *out)
{
  guint written = 0, all = 0;
  for (guint i = 0; i < sweep->variants->len; i++) {
    const SweepVariant *variant = sweep_variant(sweep, i);
    g_autofree char *reason = variant->is_done ? outcome_reason(&variant->outcome) : NULL;
    if (reason == NULL || all++ >= MOST_REASONS)
      continue;
    if (written++ == 0)
      g_string_append_c(out, '\n');
    g_autofree char *values = values_of(sweep, i);
    g_string_append_printf(out, "%s: %s\n", values, reason);
  }
  if (all > written)
    g_string_append_printf(out, "and %u more for reasons that --csv gives\n", all - written);
}

static void
print_numbers(const Sweep *sweep, GString *out)
{
  if (!sweep->is_verified)
    return;
  g_string_append_c(out, '\n');
  sweep_verification_text(sweep, out);
}

void
sweep_text(const Sweep *sweep, GString *out)
{
  sweep_text_heading(sweep, out);
  g_string_append_c(out, '\n');
  print_table(sweep, out);
  g_string_append_c(out, '\n');
  print_best(sweep, out);
  print_reasons(sweep, out);
  print_numbers(sweep, out);
}
