/* numeric_rank.c - a rank's host issues ops to its streams, which run them. */
#include "numeric/numeric_interruption.h"

#include <math.h>
#include <string.h>

#include "base/units.h"
#include "program/meaning.h"

/* ---- life ---- */

static guint64
position_of(gpointer user, int stream)
{
  return ((NumericRank *) user)->streams[stream].tasks->len;
}

static gboolean
is_done(gpointer user, int stream, guint64 position)
{
  return ((NumericRank *) user)->streams[stream].done >= position;
}

void
numeric_rank_init(NumericRank *r, const NumericConfig *config, int rank)
{
  const Program *program = config->programs[rank];
  const NumericClock clock = {r, position_of, is_done};
  *r = (NumericRank){.config = config,
                     .program = program,
                     .rank = rank,
                     .memory = numeric_memory_new(program, &config->allocator, &clock),
                     .events = g_new(Moment, MAX(program->events, 1)),
                     .sequence = g_new0(guint64, MAX(program->communicators->len, 1)),
                     .batch = g_array_new(FALSE, FALSE, sizeof(gint32)),
                     .batches = g_hash_table_new(g_str_hash, g_str_equal),
                     .list = g_ptr_array_index(program->lists, 0),
                     .waits = {-1, 0}};
  for (int i = 0; i < program->events; i++)
    r->events[i] = (Moment){-1, 0};
  for (int i = 0; i < STREAM_COUNT; i++)
    numeric_stream_init(&r->streams[i]);
}

void
numeric_rank_clear(NumericRank *r)
{
  for (int i = 0; i < STREAM_COUNT; i++)
    numeric_stream_clear(&r->streams[i]);
  numeric_memory_free(r->memory);
  g_free(r->first_unknown);
  g_array_unref(r->batch);
  g_hash_table_unref(r->batches);
  g_free(r->events);
  g_free(r->sequence);
}

void
numeric_rank_locate(const NumericRank *r, const NumericPlace *place, GError **error)
{
  const char *module = place->module >= 0 ? program_module_path(r->program, place->module) : "";
  g_prefix_error(error, "rank %d, step %d%s%s: ", r->rank, place->step,
                 module[0] != '\0' ? ", " : "", module);
}

int
numeric_rank_step(const NumericRank *r)
{
  return r->step > 0 ? r->config->steps_before + r->step : 0;
}

static NumericPlace
place_of(const NumericRank *r, gint32 module)
{
  const NumericConfig *c = r->config;
  gint64 batch = (gint64) r->rank * c->micro_batches + r->micro_batch;
  NumericPlace place = {.rank = r->rank,
                        .step = numeric_rank_step(r),
                        .update = r->step > 0 ? c->updates_before + r->step : 0,
                        .sample = c->samples_before + batch * c->micro_batch,
                        .samples = c->micro_batch,
                        .seed = c->seed,
                        .module = module};
  memcpy(place.number, r->number, sizeof place.number);
  return place;
}

/* ---- who can go on ---- */

static gboolean
has_come(const NumericRank *r, Moment moment)
{
  return moment.stream < 0 || r->streams[moment.stream].done >= moment.position;
}

gboolean
numeric_rank_is_idle(const NumericRank *r)
{
  for (int i = 0; i < STREAM_COUNT; i++)
    if (r->streams[i].done < r->streams[i].tasks->len)
      return FALSE;
  return TRUE;
}

gboolean
numeric_rank_can_issue(const NumericRank *r)
{
  return !r->ended && has_come(r, r->waits) && (!r->drains || numeric_rank_is_idle(r));
}

void
numeric_rank_pop(NumericRank *r, int stream)
{
  r->works[stream] += numeric_is_work(numeric_stream_head(&r->streams[stream]));
  numeric_stream_pop(&r->streams[stream]);
}

gboolean
numeric_rank_can_run(const NumericRank *r, int stream)
{
  const NumericTask *task = numeric_stream_head(&r->streams[stream]);
  if (task == NULL || task->kind == TASK_COLLECTIVE || numeric_interruption_stops(r, stream))
    return FALSE;
  return task->kind != TASK_WAIT || has_come(r, (Moment){task->stream, task->position});
}

/* ---- tasks ---- */

static void
push(NumericRank *r, StreamId stream, const NumericTask *task)
{
  numeric_stream_push(&r->streams[stream], task);
}

/* Memory of a view's storage.  FALSE and error: it is not there, or is smaller than the view. */
static gboolean
find_memory(const NumericRank *r, const ProgramOp *op, int i, NumericBlock **block, GError **error)
{
  const Tensor *tensor = program_operand_tensor(r->program, op, i);
  const Layout *layout = &g_array_index(r->program->layouts, Layout, tensor->layout);
  const Storage *storage = &g_array_index(r->program->storages, Storage, tensor->storage);
  gint64 reach = layout_reach(layout), end = tensor->offset + reach;
  *block = numeric_memory_at(r->memory, tensor->storage);
  const char *fault = NULL;
  if (reach > 0 && *block == NULL)
    fault = "is used where it is not allocated";
  else if (reach > 0 && end * dtype_size((DType) layout->dtype) > storage->bytes)
    fault = "is smaller than what is used of it";
  if (fault != NULL)
    g_set_error(error, HIGHWATER_ERROR, HIGHWATER_ERROR_INPUT, "%s#%d %s",
                program_text(r->program, storage->what), tensor->storage, fault);
  return fault == NULL;
}

/* An op with the memory that its operands have now.  FALSE and error; else the caller owns the
 * blocks. */
static gboolean
make_task(NumericRank *r, const ProgramOp *op, TaskKind kind, NumericTask *task, GError **error)
{
  *task = (NumericTask){.kind = kind,
                        .op = op,
                        .in_backward = r->in_backward,
                        .blocks = g_new(NumericBlock *, MAX(op->operands, 1)),
                        .place = place_of(r, op->module)};
  for (int i = 0; i < op->operands; i++)
    if (!find_memory(r, op, i, &task->blocks[i], error)) {
      g_clear_pointer(&task->blocks, g_free);
      numeric_rank_locate(r, &task->place, error);
      return FALSE;
    }
  return TRUE;
}

static gboolean
issue_work(NumericRank *r, const ProgramOp *op, TaskKind kind, GError **error)
{
  NumericTask task;
  if (!make_task(r, op, kind, &task, error))
    return FALSE;
  if (kind == TASK_COLLECTIVE) {
    gint32 communicator = g_array_index(r->program->collectives, Collective, op->a).communicator;
    task.sequence = r->sequence[communicator]++;
  }
  push(r, (StreamId) op->stream, &task);
  return TRUE;
}

/* The host is no stream: what it computes is done when it goes on. */
static gboolean
compute(NumericRank *r, const ProgramOp *op, GError **error)
{
  NumericTask task;
  if (!make_task(r, op, TASK_KERNEL, &task, error))
    return FALSE;
  gboolean ok = numeric_rank_run_kernel(r, &task, error);
  g_free(task.blocks);
  return ok;
}

/* ---- the host ---- */

static gboolean
is_batch(const char *name)
{
  return strcmp(name, "tokens") == 0 || strcmp(name, "labels") == 0;
}

/* After the construction: what is there gets its first values, and batches their places. */
static void
finish_construction(NumericRank *r)
{
  for (gint32 i = 0; i < (gint32) r->program->storages->len; i++) {
    const Storage *s = &g_array_index(r->program->storages, Storage, i);
    NumericBlock *block = numeric_memory_at(r->memory, i);
    const char *name = s->what >= 0 ? program_text(r->program, s->what) : "";
    if (block == NULL)
      continue;
    if (is_batch(name))
      g_array_append_val(r->batch, i);
    else
      numeric_rank_initialize(r, block);
  }
}

/* The next of the step's batches of that name comes there. */
static void
issue_batch(NumericRank *r, gint32 storage)
{
  const Storage *s = &g_array_index(r->program->storages, Storage, storage);
  const char *name = program_text(r->program, s->what);
  int number = GPOINTER_TO_INT(g_hash_table_lookup(r->batches, name));
  g_hash_table_insert(r->batches, (gpointer) (gsize) name, GINT_TO_POINTER(number + 1));
  NumericTask task = {.kind = TASK_BATCH,
                      .blocks = g_new(NumericBlock *, 1),
                      .place = place_of(r, -1),
                      .name = name,
                      .number = number};
  task.blocks[0] = numeric_memory_at(r->memory, storage);
  if (task.blocks[0] != NULL)
    push(r, STREAM_COMPUTE, &task);
  else
    g_free(task.blocks);
}

static void
issue_batches(NumericRank *r)
{
  g_hash_table_remove_all(r->batches);
  for (guint i = 0; i < r->batch->len; i++)
    issue_batch(r, g_array_index(r->batch, gint32, i));
}

static void
carry_all(NumericRank *r)
{
  const GArray *events = r->list->event_carries;
  g_autofree Moment *moved = g_new(Moment, MAX(events->len, 1));
  numeric_memory_carry(r->memory, r->list->carries);
  for (guint i = 0; i < r->batch->len; i++)
    for (guint k = 0; k < r->list->carries->len; k++)
      if (g_array_index(r->list->carries, Carry, k).from == g_array_index(r->batch, gint32, i)) {
        g_array_index(r->batch, gint32, i) = g_array_index(r->list->carries, Carry, k).to;
        break;
      }
  for (guint i = 0; i < events->len; i++)
    moved[i] = r->events[g_array_index(events, Carry, i).from];
  for (guint i = 0; i < events->len; i++)
    r->events[g_array_index(events, Carry, i).to] = moved[i];
}

/* The list is over: the next step begins, when the construction's work is done. */
static void
next_list(NumericRank *r)
{
  if (r->step == 0 && !r->drains) {
    r->drains = TRUE;
    return;
  }
  if (r->drains)
    finish_construction(r);
  r->drains = FALSE;
  if (r->step == (r->config->steps > 0 ? r->config->steps : r->program->steps)) {
    r->ended = TRUE;
    return;
  }
  const OpList *list = program_step(r->program, r->step);
  if (r->step > 0 && list == r->list)
    carry_all(r);
  r->list = list;
  r->next = 0;
  r->step++;
  r->micro_batch = 0;
  numeric_memory_reset_peak(r->memory);
  issue_batches(r);
}

/* A loop that makes a step's batches in the step. */
static void
moved_batch(NumericRank *r, gint32 storage)
{
  gint32 what = g_array_index(r->program->storages, Storage, storage).what;
  if (r->step > 0 && !r->drains && what >= 0 && is_batch(program_text(r->program, what)))
    issue_batch(r, storage);
}

/* What is allocated is not there yet, and what is freed is. */
static gboolean
check_storage(const NumericRank *r, const ProgramOp *op, GError **error)
{
  if (op->kind == PROGRAM_EMPTY_CACHE)
    return TRUE;
  const Storage *s = &g_array_index(r->program->storages, Storage, op->a);
  gboolean there = numeric_memory_at(r->memory, op->a) != NULL;
  if (s->bytes == 0 || there == (op->kind != PROGRAM_ALLOC))
    return TRUE;
  g_set_error(error, HIGHWATER_ERROR, HIGHWATER_ERROR_INPUT, "rank %d, step %d: %s#%d %s", r->rank,
              numeric_rank_step(r), program_text(r->program, s->what), op->a,
              there ? "is allocated twice" : "is freed where it is not allocated");
  return FALSE;
}

static gboolean
issue_memory(NumericRank *r, const ProgramOp *op, GError **error)
{
  if (!check_storage(r, op, error))
    return FALSE;
  switch ((ProgramOpKind) op->kind) {
  case PROGRAM_ALLOC:
    if (!numeric_memory_allocate(r->memory, op->a, (StreamId) op->stream)) {
      g_set_error(
          error, HIGHWATER_ERROR, HIGHWATER_ERROR_INPUT,
          "rank %d, step %d: there is no memory for %s: all ranks' numbers take eight times their "
          "bytes on this machine, and a smaller network or fewer ranks take less (--scale)",
          r->rank, numeric_rank_step(r),
          program_text(r->program, g_array_index(r->program->storages, Storage, op->a).what));
      return FALSE;
    }
    moved_batch(r, op->a);
    break;
  case PROGRAM_FREE:
    numeric_memory_release(r->memory, op->a);
    break;
  case PROGRAM_RECORD_STREAM:
    numeric_memory_record_stream(r->memory, op->a, (StreamId) op->stream);
    break;
  default:
    numeric_memory_empty_cache(r->memory);
  }
  return TRUE;
}

static void
issue_wait(NumericRank *r, const ProgramOp *op)
{
  Moment moment = r->events[op->a];
  NumericTask task = {.kind = TASK_WAIT, .stream = moment.stream, .position = moment.position};
  if (moment.stream >= 0)
    push(r, (StreamId) op->stream, &task);
}

const ProgramOp *
numeric_rank_next(const NumericRank *r)
{
  return r->next < r->list->ops->len ? &g_array_index(r->list->ops, ProgramOp, r->next) : NULL;
}

gboolean
numeric_rank_issue(NumericRank *r, GError **error)
{
  r->waits.stream = -1;
  if (r->next == r->list->ops->len) {
    next_list(r);
    return TRUE;
  }
  const ProgramOp *op = &g_array_index(r->list->ops, ProgramOp, r->next++);
  switch ((ProgramOpKind) op->kind) {
  case PROGRAM_HOST_COMPUTE:
    return compute(r, op, error);
  case PROGRAM_LAUNCH:
  case PROGRAM_COPY:
    return issue_work(r, op, TASK_KERNEL, error);
  case PROGRAM_COLLECTIVE:
    return issue_work(r, op, TASK_COLLECTIVE, error);
  case PROGRAM_EVENT_RECORD:
    r->events[op->a] = (Moment){op->stream, r->streams[op->stream].tasks->len};
    break;
  case PROGRAM_STREAM_WAIT:
    issue_wait(r, op);
    break;
  case PROGRAM_EVENT_SYNC:
    r->waits = r->events[op->a];
    break;
  case PROGRAM_STREAM_SYNC:
    r->waits = (Moment){op->stream, r->streams[op->stream].tasks->len};
    break;
  case PROGRAM_ALLOC:
  case PROGRAM_FREE:
  case PROGRAM_RECORD_STREAM:
  case PROGRAM_EMPTY_CACHE:
    return issue_memory(r, op, error);
  case PROGRAM_RANGE_PUSH:
    if (op->b == RANGE_PHASE && op->c >= 0)
      r->micro_batch = op->c;
    if (op->b == RANGE_PHASE)
      r->in_backward = strcmp(program_text(r->program, op->a), "backward") == 0;
    break;
  default:
    break;
  }
  return TRUE;
}
