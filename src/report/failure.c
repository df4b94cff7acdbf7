/* failure.c - what a worker's failure leaves, from a Program and two Recordings. */
#include "report/failure.h"

#include <string.h>

static const char *const held_names[HELD_STATES] = {"parameters", "optimizer_state"};
static const Category held_categories[HELD_STATES] = {CATEGORY_PARAMETER, CATEGORY_OPTIMIZER_STATE};

const char *
failure_held_name(HeldState state)
{
  return held_names[state];
}

static gboolean
is_device_work(const Span *span)
{
  return span->kind == SPAN_KERNEL || span->kind == SPAN_COPY || span->kind == SPAN_COLLECTIVE;
}

/* ---- the moment ---- */

/* Index of the phase in ranges, or -1. */
static int
find_phase(const FailureSpec *spec, const Recording *recording)
{
  gboolean in_micro_batch = spec->phase == FAILURE_FORWARD || spec->phase == FAILURE_BACKWARD;
  for (guint i = 0; i < recording->ranges->len; i++) {
    const Range *range = &g_array_index(recording->ranges, Range, i);
    if (range->kind == RECORDED_PHASE && range->step == spec->step &&
        (!in_micro_batch || range->micro_batch == spec->micro_batch) &&
        g_str_equal(recording_text(recording, range->name), failure_phase_name(spec->phase)))
      return (int) i;
  }
  return -1;
}

/* "forward, backward, optimizer".  Caller frees. */
static char *
phases_of_step(const Recording *recording, int step)
{
  g_autoptr(GPtrArray) names = g_ptr_array_new();
  for (guint i = 0; i < recording->ranges->len; i++) {
    const Range *range = &g_array_index(recording->ranges, Range, i);
    const char *name = recording_text(recording, range->name);
    if (range->kind == RECORDED_PHASE && range->step == step &&
        !g_ptr_array_find_with_equal_func(names, name, g_str_equal, NULL))
      g_ptr_array_add(names, (gpointer) (gsize) name);
  }
  g_ptr_array_add(names, NULL);
  return g_strjoinv(", ", (char **) names->pdata);
}

gboolean
failure_moment(const PlanSpec *plan, const Recording *whole, SimTime *time, GError **error)
{
  const FailureSpec *spec = &plan->failure;
  if (spec->step > (int) whole->steps->len)
    return plan_spec_refuse(plan, error, "failure.at", "step %d is beyond the %u steps of this run",
                            spec->step, whole->steps->len);
  int phase = find_phase(spec, whole);
  if (phase < 0) {
    g_autofree char *names = phases_of_step(whole, spec->step);
    return plan_spec_refuse(plan, error, "failure.at", "step %d has no phase %s: its phases are %s",
                            spec->step, failure_phase_name(spec->phase), names);
  }
  const Range *range = &g_array_index(whole->ranges, Range, phase);
  SimTime start = G_MAXINT64, end = 0;
  for (guint i = 0; i < whole->spans->len; i++) {
    const Span *span = &g_array_index(whole->spans, Span, i);
    if (span->phase != phase + 1 || !is_device_work(span))
      continue;
    start = MIN(start, span->start);
    end = MAX(end, span->end);
  }
  if (start > end) {
    start = range->start;
    end = range->end;
  }
  *time = MAX(1, start + (SimTime) (spec->fraction * (double) (end - start) + 0.5));
  return TRUE;
}

/* ---- collectives ---- */

/* Spans of collectives by communicator: a queue each, in its order. */
static GPtrArray *
queues_of(const Program *program, const Recording *recording)
{
  guint n = program->communicators->len;
  GPtrArray *queues = g_ptr_array_new_with_free_func((GDestroyNotify) g_array_unref);
  for (guint c = 0; c < n; c++)
    g_ptr_array_add(queues, g_array_new(FALSE, FALSE, sizeof(Span)));
  for (guint i = 0; i < recording->spans->len; i++) {
    const Span *span = &g_array_index(recording->spans, Span, i);
    for (guint c = 0; span->kind == SPAN_COLLECTIVE && c < n; c++) {
      gint32 name = g_array_index(program->communicators, Communicator, c).name;
      if (g_str_equal(program_text(program, name), recording_text(recording, span->communicator)))
        g_array_append_val((GArray *) g_ptr_array_index(queues, c), *span);
    }
  }
  return queues;
}

static ReductionState *
reduction_of(Failure *failure, const char *group)
{
  for (guint i = 0; i < failure->reductions->len; i++) {
    ReductionState *known = &g_array_index(failure->reductions, ReductionState, i);
    if (g_str_equal(known->group, group))
      return known;
  }
  ReductionState added = {.group = g_strdup(group)};
  g_array_append_val(failure->reductions, added);
  return &g_array_index(failure->reductions, ReductionState, failure->reductions->len - 1);
}

/* First span of the step in a queue. */
static guint
first_of_step(const GArray *queue, int step)
{
  guint i = 0;
  while (i < queue->len && g_array_index(queue, Span, i).step < step)
    i++;
  return i;
}

/* The step's reductions in backward: what the device had done of each. */
static void
collect_reductions(Failure *failure, const FailureInput *in, GPtrArray *queues)
{
  const Program *program = in->program;
  const GArray *ops = program_step(program, failure->spec.step - 1)->ops;
  g_autofree guint *next = g_new(guint, queues->len + 1);
  gboolean in_backward = FALSE;
  for (guint c = 0; c < queues->len; c++)
    next[c] = first_of_step(g_ptr_array_index(queues, c), failure->spec.step);
  for (guint i = 0; i < ops->len; i++) {
    const ProgramOp *op = &g_array_index(ops, ProgramOp, i);
    if (op->kind == PROGRAM_RANGE_PUSH && op->b == RANGE_PHASE)
      in_backward = g_str_equal(program_text(program, op->a), "backward");
    if (op->kind != PROGRAM_COLLECTIVE)
      continue;
    const Collective *collective = &g_array_index(program->collectives, Collective, op->a);
    const GArray *queue = g_ptr_array_index(queues, (guint) collective->communicator);
    const Span *span = &g_array_index(queue, Span, next[collective->communicator]++);
    const Communicator *group =
        &g_array_index(program->communicators, Communicator, collective->communicator);
    if (!in_backward || group->ranks == 1 || collective->kind == COLLECTIVE_ALL_GATHER ||
        collective->kind == COLLECTIVE_BROADCAST)
      continue;
    ReductionState *state = reduction_of(failure, program_text(program, collective->name));
    gboolean issued = in->issued_step > failure->spec.step || i < in->issued_ops;
    state->all++;
    state->done += span->end <= in->time;
    state->in_flight += span->end > in->time && span->start <= in->time;
    state->queued += span->start > in->time && issued;
  }
}

static void
collect_stuck(Failure *failure, const Program *program, const Reach *reach)
{
  for (guint i = 0; i < reach->stuck->len; i++) {
    StuckCollective *from = &g_array_index(reach->stuck, StuckCollective, i);
    const Communicator *c =
        &g_array_index(program->communicators, Communicator, from->communicator);
    const Collective *collective = from->collective;
    StuckInfo info = {
        .communicator = g_strdup(program_text(program, c->name)),
        .collective = g_strdup(program_collective_name((CollectiveKind) collective->kind)),
        .group = collective->name < 0 ? NULL : g_strdup(program_text(program, collective->name)),
        .number = from->number,
        .bytes = collective->bytes,
        .step = from->step,
        .waiting = from->waiting,
        .missing = from->missing,
        .failed_inside = from->stopped_inside,
    };
    from->waiting = from->missing = (RankSet){0};
    g_array_append_val(failure->stuck, info);
  }
}

static Reach *
reach_of(const FailureInput *in, GPtrArray *queues)
{
  g_autofree gint64 *done = g_new0(gint64, queues->len + 1);
  g_autofree gint64 *begun = g_new0(gint64, queues->len + 1);
  for (guint c = 0; c < queues->len; c++) {
    const GArray *queue = g_ptr_array_index(queues, c);
    for (guint i = 0; i < queue->len; i++) {
      const Span *span = &g_array_index(queue, Span, i);
      done[c] += span->end <= in->time;
      begun[c] += span->end <= in->time || span->start <= in->time;
    }
  }
  const ReachInput input = {.rank = in->plan->failure.rank,
                            .ranks = in->plan->shard * in->plan->replicate,
                            .step = in->plan->failure.step,
                            .done = done,
                            .begun = begun};
  return program_reach(in->program, &input);
}

/* ---- state ---- */

static void
place_state(Failure *failure, const FailureInput *in, HeldState state)
{
  HeldLoss *held = &failure->held[state];
  int ranks = in->plan->shard * in->plan->replicate, failed = failure->spec.rank;
  held->lost_bytes = in->state.bytes[state];
  held->spread = in->state.spread[state];
  for (int rank = 0; rank < ranks; rank++) {
    gboolean same_part = rank % held->spread == failed % held->spread;
    if (rank != failed)
      rank_set_append(same_part ? &held->copies : &held->others, rank);
  }
}

/* Counts each storage of the category once that the op writes. */
static void
count_written(Failure *failure, const Program *program, const ProgramOp *op, gint8 *seen,
              gboolean done)
{
  enum { UNSEEN, TO_WRITE, WRITTEN };
  for (guint i = 0; i < op->operands; i++) {
    const Operand *operand = program_operand(program, op, (int) i);
    gint32 id = program_operand_tensor(program, op, (int) i)->storage;
    const Storage *storage = &g_array_index(program->storages, Storage, id);
    for (int k = 0; k < HELD_STATES; k++) {
      HeldLoss *held = &failure->held[k];
      if (operand->role == ROLE_READ || storage->category != held_categories[k])
        continue;
      held->tensors += seen[id] == UNSEEN;
      seen[id] = MAX(seen[id], TO_WRITE);
      if (!done || seen[id] == WRITTEN)
        continue;
      seen[id] = WRITTEN;
      held->updated++;
      held->updated_bytes += storage->bytes;
    }
  }
}

static void
collect_done(Failure *failure, const FailureInput *in)
{
  for (guint i = 0; i < in->whole->spans->len; i++) {
    const Span *span = &g_array_index(in->whole->spans, Span, i);
    failure->done[span->stream] += span->step > 0 && is_device_work(span) && span->end <= in->time;
  }
}

/* What the step's optimizer writes, and had written by then: a stream does its work in order, so as
 * many of its ops are done as it has spans. */
static void
collect_updates(Failure *failure, const FailureInput *in)
{
  const Program *program = in->program;
  int step = failure->spec.step, open = 0;
  guint done[STREAM_COUNT] = {0};
  for (guint i = 0; i < in->whole->spans->len; i++) {
    const Span *span = &g_array_index(in->whole->spans, Span, i);
    if (span->step == step && is_device_work(span) && span->end <= in->time)
      done[span->stream]++;
  }
  g_autofree gint8 *seen = g_new0(gint8, program->storages->len);
  gboolean in_optimizer = FALSE;
  const GArray *ops = program_step(program, step - 1)->ops;
  for (guint i = 0; i < ops->len; i++) {
    const ProgramOp *op = &g_array_index(ops, ProgramOp, i);
    open += (op->kind == PROGRAM_RANGE_PUSH) - (op->kind == PROGRAM_RANGE_POP);
    if (op->kind == PROGRAM_RANGE_PUSH && op->b == RANGE_PHASE)
      in_optimizer = g_str_equal(program_text(program, op->a), "optimizer");
    if (op->kind != PROGRAM_LAUNCH && op->kind != PROGRAM_COPY && op->kind != PROGRAM_COLLECTIVE)
      continue;
    gboolean is_done = done[op->stream] > 0;
    done[op->stream] -= is_done;
    if (in_optimizer && open > 0)
      count_written(failure, program, op, seen, is_done);
  }
}

/* Bytes alive when the run was stopped. */
static void
collect_alive(Failure *failure, const Recording *stopped)
{
  g_autoptr(GArray) live = recording_live(stopped, stopped->memory->len);
  for (guint i = 0; i < live->len; i++) {
    const LiveTensor *tensor = &g_array_index(live, LiveTensor, i);
    failure->alive[tensor->category] += tensor->bytes;
  }
}

/* Micro-batches of which the device has done all that their backward issued. */
static void
count_micro_batches(Failure *failure, const FailureInput *in)
{
  FailureSpec spec = failure->spec;
  spec.phase = FAILURE_BACKWARD;
  for (spec.micro_batch = 0; spec.micro_batch < failure->micro_batches; spec.micro_batch++) {
    int phase = find_phase(&spec, in->whole);
    if (phase < 0)
      return;
    SimTime end = g_array_index(in->whole->ranges, Range, phase).end;
    for (guint i = 0; i < in->whole->spans->len; i++) {
      const Span *span = &g_array_index(in->whole->spans, Span, i);
      if (span->phase == phase + 1 && is_device_work(span))
        end = MAX(end, span->end);
    }
    failure->micro_batches_done += end <= in->time;
  }
}

/* ---- how far back ---- */

/* The others have the step's update, or not yet begun it; whoever has a part of it is in between.
 */
static void
judge_others(Failure *failure, const Reach *reach)
{
  failure->others_agree = TRUE;
  failure->others_step = -1;
  for (guint i = 0; i < reach->classes->len; i++) {
    const ReachClass *c = &g_array_index(reach->classes, ReachClass, i);
    gboolean all = c->updates_done == c->updates && c->updates > 0;
    int step = all ? failure->spec.step : failure->spec.step - 1;
    if ((!all && c->updates_done > 0) ||
        (failure->others_step >= 0 && failure->others_step != step))
      failure->others_agree = FALSE;
    failure->others_step = step;
  }
}

static SimTime
end_of_step(const Recording *recording, int step)
{
  const StepRecord *first = &g_array_index(recording->steps, StepRecord, 0);
  return step == 0 ? first->start : first[step - 1].end;
}

static void
judge_state(Failure *failure, const FailureInput *in)
{
  failure->from_others = failure->others_agree;
  for (int k = 0; k < HELD_STATES; k++)
    if (failure->held[k].lost_bytes > 0 && rank_set_size(&failure->held[k].copies) == 0)
      failure->from_others = FALSE;
  failure->last_step = failure->from_others ? failure->others_step : failure->spec.last_save;
  failure->lost = MAX(0, in->time - end_of_step(in->whole, failure->last_step));
}

/* ---- all ---- */

static void
reduction_clear(gpointer data)
{
  g_free(((ReductionState *) data)->group);
}

static void
stuck_clear(gpointer data)
{
  StuckInfo *stuck = data;
  g_free(stuck->communicator);
  g_free(stuck->collective);
  g_free(stuck->group);
  rank_set_clear(&stuck->waiting);
  rank_set_clear(&stuck->missing);
}

Failure *
failure_empty(void)
{
  Failure *failure = g_new0(Failure, 1);
  failure->reductions = g_array_new(FALSE, FALSE, sizeof(ReductionState));
  g_array_set_clear_func(failure->reductions, reduction_clear);
  failure->stuck = g_array_new(FALSE, FALSE, sizeof(StuckInfo));
  g_array_set_clear_func(failure->stuck, stuck_clear);
  return failure;
}

Failure *
failure_new(const FailureInput *in)
{
  Failure *failure = failure_empty();
  failure->spec = in->plan->failure;
  failure->time = in->time;
  failure->micro_batches = in->plan->accumulation.steps;
  g_autoptr(GPtrArray) queues = queues_of(in->program, in->whole);
  g_autoptr(Reach) reach = reach_of(in, queues);
  count_micro_batches(failure, in);
  collect_alive(failure, in->stopped);
  collect_reductions(failure, in, queues);
  collect_updates(failure, in);
  collect_done(failure, in);
  collect_stuck(failure, in->program, reach);
  for (int k = 0; k < HELD_STATES; k++)
    place_state(failure, in, (HeldState) k);
  judge_others(failure, reach);
  judge_state(failure, in);
  return failure;
}

void
failure_free(Failure *failure)
{
  if (failure == NULL)
    return;
  g_array_unref(failure->reductions);
  g_array_unref(failure->stuck);
  for (int k = 0; k < HELD_STATES; k++) {
    rank_set_clear(&failure->held[k].copies);
    rank_set_clear(&failure->held[k].others);
  }
  g_free(failure);
}
