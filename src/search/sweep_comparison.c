/* sweep_comparison.c - the evidence of all variants side by side, for people. */
#include "search/sweep_comparison.h"

#include "base/text_table.h"
#include "base/units.h"
#include "search/sweep_evidence.h"
#include "search/sweep_text.h"
#include "search/sweep_verification.h"

/* A table of the comparison: a title, its columns, and a row of each variant that was run. */
typedef struct {
  const char *title;
  const char *const *heads; /* NULL-terminated; the first column is the variant's label */
  void (*fill)(const Outcome *outcome, char **cells); /* as many as heads; NULL: not known */
} Section;

static const char *const group_heads[] = {"groups",          "largest, gathered", "all-gathers",
                                          "reduce-scatters", "all-reduces",       NULL};

static void
fill_groups(const Outcome *outcome, char **cells)
{
  cells[0] = format_grouped(outcome->groups);
  cells[1] = format_bytes(outcome->largest_group);
  if (!outcome->time.is_split)
    return;
  cells[2] = format_grouped(outcome->collectives_of[COLLECTIVE_ALL_GATHER]);
  cells[3] = format_grouped(outcome->collectives_of[COLLECTIVE_REDUCE_SCATTER]);
  cells[4] = format_grouped(outcome->collectives_of[COLLECTIVE_ALL_REDUCE]);
}

static const char *const startup_heads[] = {"collectives",   "startup", "of the step",
                                            "communication", "exposed", NULL};

static void
fill_startup(const Outcome *outcome, char **cells)
{
  const TimeSummary *time = &outcome->time;
  if (!time->known)
    return;
  cells[0] = format_grouped(outcome->startup.collectives);
  cells[1] = format_duration(outcome->startup.time);
  cells[2] = format_percent((double) outcome->startup.time / (double) MAX(time->step, 1));
  if (!time->is_split)
    return;
  cells[3] = format_duration(time->communication);
  cells[4] = format_duration(time->exposed);
}

static const char *const gather_heads[] = {"gathers", "longest", "not ready in time",
                                           "compute waited", NULL};

static void
fill_gathers(const Outcome *outcome, char **cells)
{
  const GatherSummary *gathers = &outcome->gathers;
  if (!outcome->time.is_split)
    return;
  cells[0] = format_grouped(gathers->count);
  cells[1] = format_duration(gathers->longest);
  cells[2] = format_grouped(gathers->waited);
  cells[3] = format_duration(gathers->wait);
}

static const char *const memory_heads[] = {"allocated", "reserved", "peak in", NULL};

static void
fill_memory(const Outcome *outcome, char **cells)
{
  cells[0] = format_bytes(outcome->peak_allocated);
  cells[1] = format_bytes(outcome->peak_reserved);
  cells[2] = g_strdup(outcome->peak_place);
}

/* Most steps that are written one by one. */
#define MOST_STEPS 16

static const char *const step_heads[] = {"steps", "each", NULL};

static void
fill_steps(const Outcome *outcome, char **cells)
{
  GString *times = g_string_new(NULL);
  for (guint i = 0; i < MIN(outcome->step_times->len, MOST_STEPS); i++) {
    g_autofree char *time = format_duration(g_array_index(outcome->step_times, SimTime, i));
    g_string_append_printf(times, "%s%s", i > 0 ? ", " : "", time);
  }
  cells[0] = format_grouped(outcome->step_times->len);
  cells[1] = g_string_free(times, FALSE);
}

static const Section sections[] = {
    {"Groups and their collectives, a step", group_heads, fill_groups},
    {"Startup: what collectives pay before their bytes count, a step", startup_heads, fill_startup},
    {"Gathers of the last step", gather_heads, fill_gathers},
    {"Memory", memory_heads, fill_memory},
    {"Complete step times", step_heads, fill_steps},
};

static gboolean
was_run(const SweepVariant *variant)
{
  return variant->is_done && variant->outcome.refusal == NULL;
}

static void
print_section(const Section *section, const Sweep *sweep, GString *out)
{
  guint columns = g_strv_length((char **) (gsize) section->heads);
  g_autofree char *alignment = g_strnfill(columns + 1, 'l');
  g_autofree const char **head = g_new0(const char *, columns + 2);
  head[0] = "variant";
  for (guint i = 0; i < columns; i++)
    head[i + 1] = section->heads[i];
  g_autoptr(TextTable) table = text_table_new(alignment);
  text_table_row_array(table, head);
  for (guint i = 0; i < sweep->variants->len; i++) {
    const SweepVariant *variant = sweep_variant(sweep, i);
    g_auto(GStrv) cells = g_new0(char *, columns + 2);
    if (!was_run(variant))
      continue;
    cells[0] = g_strdup(variant->label);
    section->fill(&variant->outcome, cells + 1);
    for (guint k = 0; k <= columns; k++)
      if (cells[k] == NULL)
        cells[k] = g_strdup("-");
    text_table_row_array(table, (const char *const *) cells);
  }
  g_string_append_printf(out, "\n%s\n", section->title);
  text_table_print(table, 2, out);
}

static void
print_equivalence(const SweepDirectory *directory, const Sweep *sweep, GString *out)
{
  g_string_append(out, "\nEquivalence: every gradient reduced over all ranks, every parameter "
                       "updated by its owner, once a step\n");
  for (guint i = 0; i < sweep->variants->len; i++) {
    const SweepVariant *variant = sweep_variant(sweep, i);
    g_autofree char *folder = sweep_directory_variant(directory, variant);
    g_autofree char *line = was_run(variant) ? sweep_evidence_equivalence(folder) : NULL;
    if (was_run(variant))
      g_string_append_printf(out, "  %s: %s\n", variant->label,
                             line != NULL ? line : "not checked (--evidence all)");
  }
}

static void
print_members(const SweepDirectory *directory, const Sweep *sweep, GString *out)
{
  for (guint i = 0; i < sweep->variants->len; i++) {
    const SweepVariant *variant = sweep_variant(sweep, i);
    g_autofree char *folder = sweep_directory_variant(directory, variant);
    if (!was_run(variant) || !sweep_evidence_is_there(folder))
      continue;
    g_string_append_printf(out,
                           "\nGroups of %s (gathers: " SWEEP_VARIANTS "/%s/gathers.tsv, "
                           "memory: " SWEEP_VARIANTS "/%s/timeline.tsv)\n",
                           variant->label, variant->label, variant->label);
    sweep_evidence_groups(folder, out);
  }
}

static void
print_verification(const Sweep *sweep, GString *out)
{
  if (!sweep->is_verified)
    return;
  g_string_append(out, "\nSchedules on numbers\n");
  for (guint i = 0; i < sweep->variants->len; i++) {
    const SweepVariant *variant = sweep_variant(sweep, i);
    const char *word = sweep_verification_word(&variant->verification);
    g_string_append_printf(out, "  %s: %s\n", variant->label, word != NULL ? word : "refused");
  }
}

void
sweep_comparison(const SweepDirectory *directory, const Sweep *sweep, GString *out)
{
  sweep_text(sweep, out);
  for (guint i = 0; i < G_N_ELEMENTS(sections); i++)
    print_section(&sections[i], sweep, out);
  print_equivalence(directory, sweep, out);
  print_verification(sweep, out);
  print_members(directory, sweep, out);
}
