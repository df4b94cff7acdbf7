/* failure_text.c - a failure as people read it. */
#include "report/summary_text_parts.h"

#include <string.h>

enum { MOST_GROUPS = 4 }; /* of pending reductions that are named */

static char *
moment(const Failure *failure)
{
  const FailureSpec *spec = &failure->spec;
  g_autofree char *time = format_duration(failure->time);
  g_autofree char *micro_batch = failure->micro_batches > 1 && (spec->phase == FAILURE_FORWARD ||
                                                                spec->phase == FAILURE_BACKWARD)
                                     ? g_strdup_printf(" of micro-batch %d", spec->micro_batch)
                                     : g_strdup("");
  return g_strdup_printf("Rank %d fails in step %d, %.4g %% into %s%s, %s after the run began; the "
                         "figures above end there.\n",
                         spec->rank, spec->step, 100 * spec->fraction,
                         failure_phase_name(spec->phase), micro_batch, time);
}

static char *
void_step(const Failure *failure)
{
  g_autofree char *sharded = format_bytes(failure->alive[CATEGORY_SHARDED_GRADIENT]);
  g_autofree char *unsharded = format_bytes(failure->alive[CATEGORY_UNSHARDED_GRADIENT] +
                                            failure->alive[CATEGORY_REDUCE_SCATTER_BUFFER]);
  return g_strdup_printf(
      "step %d, %d of %d micro-batches computed; gradients: %s sharded, %s unsharded "
      "or in buckets",
      failure->spec.step, failure->micro_batches_done, failure->micro_batches, sharded, unsharded);
}

/* "layers.1 (in flight), layers.0, root": what was not done, the earliest first. */
static char *
pending_reductions(const Failure *failure)
{
  int all = 0, done = 0, named = 0, groups = 0;
  g_autoptr(GString) names = g_string_new(NULL);
  for (guint i = 0; i < failure->reductions->len; i++) {
    const ReductionState *state = &g_array_index(failure->reductions, ReductionState, i);
    all += state->all;
    done += state->done;
    if (state->done == state->all)
      continue;
    groups++;
    if (named++ < MOST_GROUPS)
      g_string_append_printf(names, "%s%s%s", names->len > 0 ? ", " : ": ", state->group,
                             state->in_flight > 0 ? " (in flight)" : "");
  }
  if (groups > MOST_GROUPS)
    g_string_append_printf(names, " and %d more", groups - MOST_GROUPS);
  if (all == 0)
    return g_strdup("none in a step");
  return g_strdup_printf("%d of %d pending%s", all - done, all, names->str);
}

static char *
updated_state(const Failure *failure)
{
  const HeldLoss *parameters = &failure->held[HELD_PARAMETERS];
  const HeldLoss *optimizer = &failure->held[HELD_OPTIMIZER_STATE];
  g_autofree char *bytes = format_bytes(parameters->updated_bytes + optimizer->updated_bytes);
  if (parameters->updated + optimizer->updated == 0)
    return g_strdup("nothing yet");
  return g_strdup_printf("%d of %d tensors of parameters, %d of %d of optimizer state: %s",
                         parameters->updated, parameters->tensors, optimizer->updated,
                         optimizer->tensors, bytes);
}

/* "1.87 GiB lost with rank 3; copies on rank 7; other parts on ranks 0-2, 4-6". */
static char *
held_state(const Failure *failure, HeldState state)
{
  const HeldLoss *held = &failure->held[state];
  g_autofree char *bytes = format_bytes(held->lost_bytes);
  g_autofree char *copies = rank_set_text(&held->copies);
  g_autofree char *others = rank_set_text(&held->others);
  if (held->lost_bytes == 0)
    return g_strdup("there is none yet");
  GString *text = g_string_new(NULL);
  g_string_append_printf(text, "%s on rank %d are gone, %s", bytes, failure->spec.rank,
                         rank_set_size(&held->copies) > 0 ? "copies on "
                                                          : "no other rank has them");
  if (rank_set_size(&held->copies) > 0)
    g_string_append(text, copies);
  if (rank_set_size(&held->others) > 0)
    g_string_append_printf(text, "; other parts on %s", others);
  return g_string_free(text, FALSE);
}

static char *
consistent_state(const Failure *failure)
{
  g_autofree char *lost = format_duration(failure->lost);
  int steps = failure->spec.step - 1 - failure->last_step;
  if (failure->from_others && failure->last_step == failure->spec.step)
    return g_strdup_printf("step %d, which the other ranks finish by themselves: nothing is lost",
                           failure->last_step);
  g_autofree char *whole =
      steps > 0 ? g_strdup_printf(", %d whole step%s of it", steps, steps > 1 ? "s" : "")
                : g_strdup("");
  if (failure->from_others)
    return g_strdup_printf("the end of step %d, on the other ranks; %s lost", failure->last_step,
                           lost);
  if (failure->last_step == 0)
    return g_strdup_printf("the beginning, since nothing was saved; %s lost%s", lost, whole);
  return g_strdup_printf("what was saved after step %d; %s lost%s", failure->last_step, lost,
                         whole);
}

/* "shard, collective 28, all_gather of layers.3: ranks 0-2 wait, rank 3 never arrives". */
static char *
stuck_collective(const StuckInfo *stuck, const FailureSpec *spec)
{
  g_autofree char *waiting = rank_set_text(&stuck->waiting);
  g_autofree char *missing = rank_set_text(&stuck->missing);
  GString *text = g_string_new(NULL);
  g_string_append_printf(text, "%s, collective %" G_GINT64_FORMAT ", %s", stuck->communicator,
                         stuck->number, stuck->collective);
  if (stuck->group != NULL)
    g_string_append_printf(text, " of %s", stuck->group);
  if (stuck->step > spec->step)
    g_string_append_printf(text, " in step %d", stuck->step);
  g_string_append_printf(text, ": %s wait%s", waiting,
                         rank_set_size(&stuck->waiting) == 1 ? "s" : "");
  if (stuck->failed_inside)
    g_string_append_printf(text, ", rank %d failed in it", spec->rank);
  if (rank_set_size(&stuck->missing) > 0)
    g_string_append_printf(text, ", %s never arrive%s", missing,
                           rank_set_size(&stuck->missing) == 1 ? "s" : "");
  return g_string_free(text, FALSE);
}

void
text_failure(const Screen *screen, const Failure *failure)
{
  g_autofree char *heading = moment(failure);
  g_autoptr(TextTable) table = text_table_new("ll");
  TEXT_ROW(table, g_strdup("  void"), void_step(failure));
  TEXT_ROW(table, g_strdup("  reductions"), pending_reductions(failure));
  TEXT_ROW(table, g_strdup("  updated"), updated_state(failure));
  TEXT_ROW(table, g_strdup("  parameters"), held_state(failure, HELD_PARAMETERS));
  TEXT_ROW(table, g_strdup("  optimizer state"), held_state(failure, HELD_OPTIMIZER_STATE));
  TEXT_ROW(table, g_strdup("  last consistent"), consistent_state(failure));
  for (guint i = 0; i < failure->stuck->len; i++)
    TEXT_ROW(table, g_strdup(i == 0 ? "  stuck" : ""),
             stuck_collective(&g_array_index(failure->stuck, StuckInfo, i), &failure->spec));
  if (failure->stuck->len == 0)
    TEXT_ROW(table, g_strdup("  stuck"), g_strdup("nobody"));
  g_string_append_printf(screen->out, "\n%s", heading);
  text_table_print(table, 0, screen->out);
}
