/* plan_reason.c - why an alternative is not the plan: what of its step takes longer, or what memory
 * it lacks. */
#include <string.h>

#include "base/units.h"
#include "search/plan_text.h"

/* Parts of a step that are shorter than so much of it are not worth a word. */
#define WORTH_A_WORD 0.001

/* How much is computed again: none, parts, every second block, all; by the checkpointing's label.
 */
static int
recomputed(const char *label)
{
  static const char *const order[] = {"none", "selective_op", "every-2", "full"};
  for (int i = 0; i < (int) G_N_ELEMENTS(order); i++)
    if (g_str_equal(label, order[i]))
      return i;
  return -1;
}

/* What of a plan makes it compute more, or less well; NULL: nothing that is known. */
static const char *
why_computation(const PlanSpace *space, const PlanPoint *chosen, const PlanPoint *other)
{
  int mine = recomputed(plan_space_label(space, chosen, AXIS_CHECKPOINTING));
  int theirs = recomputed(plan_space_label(space, other, AXIS_CHECKPOINTING));
  if (mine >= 0 && theirs > mine)
    return "recomputation";
  if (plan_space_micro_batches(space, other) > plan_space_micro_batches(space, chosen))
    return "smaller kernels";
  return NULL;
}

static void
add_part(GString *reason, SimTime more, SimTime step, const char *what, const char *why)
{
  if ((double) more < WORTH_A_WORD * (double) step)
    return;
  g_autofree char *time = format_duration(more);
  g_string_append_printf(reason, "%s%s of %s", reason->len > 0 ? ", " : "", time, what);
  if (why != NULL)
    g_string_append_printf(reason, " (%s)", why);
}

static void
add_slowness(const PlanSearch *search, const PlanTried *other, GString *reason)
{
  const TimeSummary *a = &search->outcome.time, *b = &other->outcome.time;
  const PlanPoint *chosen = &plan_search_tried(search, (guint) search->chosen)->point;
  add_part(reason, b->compute - a->compute, a->step, "computation",
           why_computation(search->space, chosen, &other->point));
  add_part(reason, b->exposed - a->exposed, a->step, "exposed communication", NULL);
  add_part(reason, b->host_bound - a->host_bound, a->step, "waiting for the host", NULL);
  add_part(reason, b->rank_wait - a->rank_wait, a->step, "waiting for ranks", NULL);
  if (reason->len > 0)
    g_string_insert(reason, 0, "more: ");
}

char *
plan_alternative_reason(const PlanSearch *search, const PlanAlternative *alternative)
{
  const PlanTried *other = plan_search_tried(search, alternative->tried);
  gint64 lacks = plan_search_lacks(search, &other->outcome);
  GString *reason = g_string_new(NULL);
  if (other->is_left_out) {
    g_string_append(reason, "fits on this rank, but not on all, or only with retries");
  } else if (lacks > 0 && lacks < G_MAXINT64) {
    g_autofree char *bytes = format_bytes(lacks);
    g_string_append_printf(reason, "lacks %s", bytes);
  } else if (search->chosen >= 0) {
    add_slowness(search, other, reason);
  }
  if (reason->len == 0) {
    gint64 more = other->outcome.peak_reserved - search->outcome.peak_reserved;
    g_autofree char *bytes = format_bytes(ABS(more));
    g_string_append_printf(reason, "as fast, with %s %s memory", bytes,
                           more >= 0 ? "more" : "less");
  }
  return g_string_free(reason, FALSE);
}
