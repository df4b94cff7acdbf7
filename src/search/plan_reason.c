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
  g_string_append_printf(reason, "%s%s more %s", reason->len > 0 ? ", " : "", time, what);
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
}

static void
add_memory(const PlanSearch *search, const PlanTried *other, GString *reason)
{
  gint64 more = other->outcome.peak_reserved - search->outcome.peak_reserved;
  g_autofree char *bytes = format_bytes(ABS(more));
  if (more != 0)
    g_string_append_printf(reason, "as fast, %s %s memory", bytes, more > 0 ? "more" : "less");
  else
    g_string_append(reason, "as fast, with the same memory");
}

static gboolean
is_slower(const PlanSearch *search, const PlanTried *other)
{
  return (double) other->outcome.time.step > PLAN_AS_FAST * (double) search->outcome.time.step;
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
    if (is_slower(search, other))
      add_slowness(search, other, reason);
    if (reason->len == 0)
      add_memory(search, other, reason);
  }
  return g_string_free(reason, FALSE);
}

char *
plan_alternative_rest(const PlanSearch *search, const PlanAlternative *alternative)
{
  int shown = search->chosen >= 0 ? search->chosen : search->closest;
  const PlanPoint *chosen = &plan_search_tried(search, (guint) shown)->point;
  const PlanPoint *other = &plan_search_tried(search, alternative->tried)->point;
  GString *rest = g_string_new(NULL);
  for (int axis = 0; axis < AXIS_COUNT; axis++) {
    if (axis == (int) alternative->axis || other->at[axis] < 0 ||
        other->at[axis] == chosen->at[axis])
      continue;
    g_string_append_printf(rest, "%s%s %s", rest->len > 0 ? ", " : "",
                           plan_axis_name((PlanAxis) axis),
                           plan_space_label(search->space, other, (PlanAxis) axis));
  }
  return g_string_free(rest, FALSE);
}
