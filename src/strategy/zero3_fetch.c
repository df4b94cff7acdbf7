/* zero3_fetch.c - parameters are fetched when a module's forward or backward begins and released
 * when it ends, as the trace decides (partitioned_param_coordinator.py). */
#include "strategy/zero3_private.h"

/* Pending events that the host may run ahead of (max_ongoing_fetch_events,
 * max_param_reduce_events). */
enum { MOST_EVENTS = 2 };

/* The bit of `users` that stands for the module in whose backward it was recomputed. */
enum { RECOMPUTED = 4 };

/* Events that are over leave the queue in DeepSpeed; waiting for such a one costs nothing, so
 * keeping them comes to the same. */
void
limit_host(StrategyContext *x, GArray *events)
{
  if (events->len <= MOST_EVENTS)
    return;
  program_builder_event_sync(x->builder, g_array_index(events, gint32, 0));
  g_array_remove_index(events, 0);
}

void
limit_add(StrategyContext *x, GArray *events, StreamId stream)
{
  gint32 event = program_builder_event(x->builder);
  program_builder_record(x->builder, stream, event);
  g_array_append_val(events, event);
}

/* ---- fetch ---- */

static void
fetch_own(StrategyContext *x, int module)
{
  Zero3 *z = zero3_of(x);
  g_autoptr(GArray) missing = g_array_new(FALSE, FALSE, sizeof(int));
  for (int i = 0; i < zero3_module_parameters(x, module); i++) {
    int p = zero3_module_parameter(x, module, i);
    if (z->parameter[p].state == PARAMETER_RELEASED)
      g_array_append_val(missing, p);
  }
  if (missing->len > 0)
    gather_issue(x, missing);
}

/* A frozen parameter that a recomputation fetches is released by the module whose backward asked
 * for it (update_recompute_parameters). */
static void
note_recomputed(const Zero3 *z, Zero3Parameter *p)
{
  if (z->entered->len == 0)
    return;
  p->recomputed_for = g_array_index(z->entered, int, z->entered->len - 1);
  p->users |= RECOMPUTED;
}

/* The module's parameters are in use, and there: the host waits if it runs too far ahead. */
static void
wait_for_own(StrategyContext *x, int module, gboolean recomputes)
{
  Zero3 *z = zero3_of(x);
  for (int i = 0; i < zero3_module_parameters(x, module); i++) {
    int index = zero3_module_parameter(x, module, i);
    Zero3Parameter *p = &z->parameter[index];
    p->users |= zero3_user_bit(x, module, index);
    if (recomputes && !p->trains)
      note_recomputed(z, p);
    if (p->gather == NULL)
      continue;
    limit_host(x, z->fetch_events);
    gather_finish(x, index, z->stream);
    limit_add(x, z->fetch_events, z->stream);
    z->gathered = TRUE;
  }
  if (z->gathered)
    zero3_wait_stream(x, STREAM_COMPUTE, z->stream);
  z->gathered = FALSE;
}

/* The module's place in the order of those whose backward is under way is its last entry. */
static void
enter_backward(Zero3 *z, int module)
{
  for (guint i = 0; i < z->entered->len; i++)
    if (g_array_index(z->entered, int, i) == module) {
      g_array_remove_index(z->entered, i);
      break;
    }
  g_array_append_val(z->entered, module);
}

/* Parameters in flight are waited for and go again. */
static void
clean_in_flight(StrategyContext *x)
{
  Zero3 *z = zero3_of(x);
  for (int p = 0; p < z->count; p++)
    if (z->parameter[p].gather != NULL) {
      gather_finish(x, p, STREAM_COMPUTE);
      gather_release(x, p);
    }
}

void
fetch_module(StrategyContext *x, int module, gboolean forward)
{
  Zero3 *z = zero3_of(x);
  g_autoptr(GArray) ahead = g_array_new(FALSE, FALSE, sizeof(int));
  program_builder_push(x->builder, RANGE_HOOK, "fetch_sub_module", 0);
  program_builder_host_work(x->builder, HOST_WORK_HOOK, 1);
  if (!trace_enter(x, module))
    clean_in_flight(x);
  if (!forward)
    enter_backward(z, module);
  fetch_own(x, module);
  wait_for_own(x, module, forward && x->recomputing);
  trace_prefetch(x, module, ahead);
  if (ahead->len > 0)
    gather_issue(x, ahead);
  program_builder_pop(x->builder);
}

/* ---- release ---- */

static void
leave(StrategyContext *x, int module, guint64 releases)
{
  Zero3 *z = zero3_of(x);
  for (int i = 0; i < zero3_module_parameters(x, module); i++) {
    int index = zero3_module_parameter(x, module, i);
    z->parameter[index].users &= (guint8) ~zero3_user_bit(x, module, index);
    if (releases & ((guint64) 1 << i))
      gather_release(x, index);
  }
}

/* What was fetched to recompute in this module's backward. */
static void
leave_recomputed(StrategyContext *x, int module)
{
  Zero3 *z = zero3_of(x);
  for (int i = 0; i < z->count; i++) {
    Zero3Parameter *p = &z->parameter[i];
    if (p->recomputed_for != module)
      continue;
    p->recomputed_for = -1;
    p->users &= (guint8) ~RECOMPUTED;
    if (!p->persistent)
      gather_release(x, i);
  }
}

void
release_module(StrategyContext *x, int module, gboolean forward)
{
  Zero3 *z = zero3_of(x);
  program_builder_host_work(x->builder, HOST_WORK_HOOK, 1);
  guint64 releases = trace_releases(x, module);
  for (guint i = 0; i < z->entered->len && !forward; i++)
    if (g_array_index(z->entered, int, i) == module) {
      g_array_remove_index(z->entered, i);
      break;
    }
  leave(x, module, releases);
  if (!forward && z->frozen_elements > 0)
    leave_recomputed(x, module);
}

void
release_leftovers(StrategyContext *x)
{
  Zero3 *z = zero3_of(x);
  while (z->entered->len > 0) {
    int module = g_array_index(z->entered, int, z->entered->len - 1);
    g_array_set_size(z->entered, z->entered->len - 1);
    guint64 releases = 0;
    for (int i = 0; i < zero3_module_parameters(x, module); i++)
      if (!z->parameter[zero3_module_parameter(x, module, i)].persistent)
        releases |= (guint64) 1 << i;
    leave(x, module, releases);
    if (z->frozen_elements > 0)
      leave_recomputed(x, module);
  }
}

void
release_all(StrategyContext *x)
{
  Zero3 *z = zero3_of(x);
  for (int p = 0; p < z->count; p++) {
    if (z->parameter[p].gather != NULL)
      gather_finish(x, p, STREAM_COMPUTE);
    z->parameter[p].users = 0;
    z->parameter[p].recomputed_for = -1;
    gather_release(x, p);
  }
}

/* ---- the root's forward ---- */

/* assert_ints_same_as_other_ranks: how many there are, then the integers; rank 0's are broadcast
 * and compared on the host. */
static void
compare_with_ranks(StrategyContext *x, gint64 integers)
{
  Zero3 *z = zero3_of(x);
  StoragePurpose purpose = {CATEGORY_TEMPORARY, -1,
                            program_builder_name(x->builder, "trace to compare")};
  gint64 sizes[] = {1, integers};
  for (int i = 0; i < 2; i++) {
    if (sizes[i] == 0)
      continue;
    StorageId made = live_storage_alloc(x->live, 8 * sizes[i], STREAM_COMPUTE, purpose);
    zero3_operand(x, made, DTYPE_INT64, ROLE_WRITE);
    strategy_launch_as(x, STREAM_COMPUTE, "copy", 8.0 * (double) sizes[i], "fill value=0");
    program_builder_host_work(x->builder, HOST_WORK_COLLECTIVE_CALL, 1);
    zero3_operand(x, made, DTYPE_INT64, ROLE_ACCUMULATE);
    program_builder_collective(
        x->builder, STREAM_COMPUTE,
        &(Collective){.kind = COLLECTIVE_BROADCAST,
                      .dtype = DTYPE_INT64,
                      .communicator = z->ds.communicator,
                      .name = program_builder_name(x->builder, "trace to compare"),
                      .bytes = 8 * sizes[i]});
    program_builder_stream_sync(x->builder, STREAM_COMPUTE);
    live_storage_drop(x->live, made);
  }
}

void
fetch_begin(StrategyContext *x)
{
  gint64 compared[3];
  deepspeed_begin_forward(x);
  clean_in_flight(x);
  int n = trace_begin(x, compared);
  for (int i = 0; i < n; i++)
    compare_with_ranks(x, compared[i]);
  Zero3 *z = zero3_of(x);
  if (!z->shards_settled)
    zero3_wait_stream(x, z->stream, STREAM_COMPUTE);
  z->shards_settled = TRUE;
}
