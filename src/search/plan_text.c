/* plan_text.c - the plan that was found, for people. */
#include "search/plan_text.h"

#include <string.h>

#include "base/text_table.h"
#include "base/units.h"

static void
print_heading(const PlanAnswer *a, GString *out)
{
  const PlanSearch *s = a->search;
  g_autofree char *kept = format_bytes(s->headroom);
  g_autofree char *capacity = format_bytes(s->capacity);
  g_string_append_printf(
      out, "%s on %d rank%s of %s, %" G_GINT64_FORMAT " sequences of %d tokens a step", a->network,
      s->space->ranks, s->space->ranks == 1 ? "" : "s", a->cluster, s->space->global_batch,
      s->space->sequence_length);
  if (s->capacity < G_MAXINT64)
    g_string_append_printf(out, "; %s of %s stay free", kept, capacity);
  g_string_append(out, "\n\n");
}

/* "78,123 tokens/s" */
static char *
tokens(const Outcome *outcome)
{
  return format_grouped((gint64) (outcome->time.tokens_per_s + 0.5));
}

static void
print_chosen(const PlanAnswer *a, GString *out)
{
  const PlanSearch *s = a->search;
  const Outcome *o = &s->outcome;
  g_autofree char *what =
      plan_space_describe(s->space, &plan_search_tried(s, (guint) s->chosen)->point);
  g_autofree char *reserved = format_bytes(o->peak_reserved);
  g_autofree char *spare = format_bytes(o->headroom);
  g_autofree char *step = format_duration(o->time.step);
  g_autofree char *speed = tokens(o);
  g_autofree char *exposed = format_duration(o->time.exposed);
  g_string_append_printf(out, "PLAN    %s\n", what);
  g_string_append_printf(out, "FITS    %s reserved", reserved);
  if (s->capacity < G_MAXINT64)
    g_string_append_printf(out, ", %s to spare", spare);
  g_string_append_printf(out, "\nSTEP    %s · %s tokens/s per GPU", step, speed);
  if (o->time.mfu > 0)
    g_string_append_printf(out, " · MFU %.0f %%", 100 * o->time.mfu);
  g_string_append_printf(out, " · %s of communication exposed\n", exposed);
  if (!s->is_steady)
    g_string_append(out, "        one more step would not take as long: --steps runs more\n");
  if (!s->has_equivalence)
    return;
  g_autoptr(GString) checked = g_string_new(NULL);
  equivalence_print(&s->equivalence, FALSE, checked);
  g_string_truncate(checked, strcspn(checked->str, "\n"));
  g_string_append_printf(out, "CHECK   %s\n", checked->str);
}

static void
print_nothing(const PlanAnswer *a, GString *out)
{
  const PlanSearch *s = a->search;
  if (s->closest < 0) {
    g_string_append(out, "NOTHING FITS, and no plan could be simulated\n");
    return;
  }
  const PlanTried *closest = plan_search_tried(s, (guint) s->closest);
  g_autofree char *what = plan_space_describe(s->space, &closest->point);
  g_autofree char *lacks = format_bytes(plan_search_lacks(s, &closest->outcome));
  g_autofree char *reserved = format_bytes(closest->outcome.peak_reserved);
  g_autofree char *needed = format_bytes(closest->outcome.peak_reserved + s->headroom);
  g_string_append_printf(out, "NOTHING FITS\nCLOSEST %s\n", what);
  g_string_append_printf(out, "NEEDS   %s reserved, %s with the headroom: %s more than there is\n",
                         reserved, needed, lacks);
  if (closest->outcome.peak_reserved <= s->capacity)
    g_string_append(out, "        it fits with less headroom (--headroom)\n");
  else
    g_string_append(out,
                    "        more ranks (--ranks), a smaller batch or shorter sequences, or the "
                    "optimizer on the host (fsdp.cpu_offload)\n");
}

/* "+12.3 %": its step against the chosen one's. */
static char *
step_change(const PlanSearch *s, const Outcome *o)
{
  if (s->chosen < 0 || !o->time.known)
    return g_strdup("-");
  double more = (double) o->time.step / (double) s->outcome.time.step - 1;
  return g_strdup_printf("%+.1f %%", 100 * (ABS(more) < 0.0005 ? 0 : more));
}

static gboolean
was_shown(const PlanSearch *s, guint n)
{
  for (guint i = 0; i < n; i++)
    if (g_array_index(s->alternatives, PlanAlternative, i).tried ==
        g_array_index(s->alternatives, PlanAlternative, n).tried)
      return TRUE;
  return FALSE;
}

static void
print_alternatives(const PlanAnswer *a, GString *out)
{
  const PlanSearch *s = a->search;
  if (s->alternatives->len == 0)
    return;
  g_autoptr(TextTable) table = text_table_new("llrrrll");
  text_table_row(table, "the best with", "", "tokens/s", "step", "reserved", "why not", "and with",
                 NULL);
  for (guint i = 0; i < s->alternatives->len; i++) {
    const PlanAlternative *alternative = &g_array_index(s->alternatives, PlanAlternative, i);
    const PlanTried *other = plan_search_tried(s, alternative->tried);
    if (was_shown(s, i))
      continue;
    g_autofree char *speed = tokens(&other->outcome);
    g_autofree char *change = step_change(s, &other->outcome);
    g_autofree char *reserved = format_bytes(other->outcome.peak_reserved);
    g_autofree char *why = plan_alternative_reason(s, alternative);
    g_autofree char *rest = plan_alternative_rest(s, alternative);
    text_table_row(table, plan_axis_name(alternative->axis),
                   plan_space_label(s->space, &other->point, alternative->axis), speed, change,
                   reserved, why, rest, NULL);
  }
  g_string_append_c(out, '\n');
  text_table_print(table, 0, out);
}

static void
print_counts(const PlanSearch *s, GString *out)
{
  g_autofree char *size = format_grouped(s->size);
  g_autofree char *tried = format_grouped(s->tried->len - s->refused);
  g_autofree char *smaller = format_grouped(s->smaller);
  g_autofree char *combinations = format_grouped(s->combinations);
  g_string_append_printf(out, "\nOf %s plans %s were simulated", size, tried);
  if (s->refused > 0)
    g_string_append_printf(out, ", %u refused (what they ask for does not go together)",
                           s->refused);
  if (s->smaller > 0)
    g_string_append_printf(out,
                           ", %s left out since a larger micro-batch fits and the next smaller "
                           "is slower",
                           smaller);
  if (s->combinations > 0)
    g_string_append_printf(out, ", %s since their sharding, checkpointing and micro-batch lost",
                           combinations);
  g_string_append(out, ".\n");
}

void
plan_text(const PlanAnswer *a, const char *plan_file, GString *out)
{
  const PlanSearch *s = a->search;
  print_heading(a, out);
  if (s->chosen < 0)
    print_nothing(a, out);
  else
    print_chosen(a, out);
  print_alternatives(a, out);
  print_counts(s, out);
  if (s->chosen < 0)
    return;
  g_autofree char *plan =
      plan_space_plan(s->space, &plan_search_tried(s, (guint) s->chosen)->point, a->network);
  if (plan_file != NULL)
    g_string_append_printf(out, "\nThe plan is in %s.\n", plan_file);
  else
    g_string_append_printf(out, "\n%s\n", plan);
}
