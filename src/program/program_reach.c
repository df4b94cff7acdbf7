/* program_reach.c - how far ranks get when one of them stops. */
#include "program/program_reach.h"

#include <string.h>

/* A rank is written in digits: boundaries are the strides and ends of communicators' groups.  Ranks
 * that differ from the stopped one in the same digits fare alike, so a class is a set of digits, as
 * bits. */
enum { MOST_DIGITS = 6, MOST_CLASSES = 1 << MOST_DIGITS };

typedef struct {
  int weight, base; /* digit of a rank: rank / weight % base */
} Digit;

typedef struct {
  const Program *program;
  const ReachInput *input;
  Digit digits[MOST_DIGITS];
  guint n_digits, n_classes;
  guint *spans;   /* by communicator: the digits in which members of a group differ, as bits */
  gint64 *before; /* by communicator: collectives before the first step walked */
  gint64 *limits; /* by communicator and class of the group: collectives that end */
  gint64 *joined; /* by communicator and class of the rank: those that the rank comes to */
  int first_step, last_step;
} Walk;

/* What one class has not got done. */
typedef struct {
  guint rank_class;
  gboolean host, stream[STREAM_COUNT];
  gboolean *event, *queue; /* by event, by communicator */
  gint64 *count;           /* by communicator: collectives issued */
  gboolean in_optimizer;
  int depth; /* of open ranges */
  int updates, updates_done;
} Position;

static const Communicator *
communicator_of(const Program *program, guint i)
{
  return &g_array_index(program->communicators, Communicator, i);
}

/* ---- classes ---- */

static int
compare_ints(gconstpointer a, gconstpointer b)
{
  return *(const int *) a - *(const int *) b;
}

static void
find_digits(Walk *w)
{
  g_autoptr(GArray) bounds = g_array_new(FALSE, FALSE, sizeof(int));
  const int ends[] = {1, w->input->ranks};
  g_array_append_vals(bounds, ends, G_N_ELEMENTS(ends));
  for (guint i = 0; i < w->program->communicators->len; i++) {
    const Communicator *c = communicator_of(w->program, i);
    const int group[] = {c->stride, c->stride * c->ranks};
    if (c->ranks > 1)
      g_array_append_vals(bounds, group, G_N_ELEMENTS(group));
  }
  g_array_sort(bounds, compare_ints);
  for (guint i = 1; i < bounds->len; i++) {
    int low = g_array_index(bounds, int, i - 1), high = g_array_index(bounds, int, i);
    g_assert(high % low == 0);
    if (high == low)
      continue;
    g_assert(w->n_digits < MOST_DIGITS);
    w->digits[w->n_digits++] = (Digit){low, high / low};
  }
  w->n_classes = 1u << w->n_digits;
}

static guint
class_of(const Walk *w, int rank)
{
  guint bits = 0;
  for (guint i = 0; i < w->n_digits; i++) {
    const Digit *d = &w->digits[i];
    if (rank / d->weight % d->base != w->input->rank / d->weight % d->base)
      bits |= 1u << i;
  }
  return bits;
}

/* The digits between the communicator's stride and its groups' end. */
static guint
span_of(const Walk *w, const Communicator *c)
{
  guint bits = 0;
  for (guint i = 0; c->ranks > 1 && i < w->n_digits; i++)
    if (w->digits[i].weight >= c->stride && w->digits[i].weight < c->stride * c->ranks)
      bits |= 1u << i;
  return bits;
}

/* Index into limits and joined. */
static guint
slot(const Walk *w, guint communicator, guint bits)
{
  return communicator * w->n_classes + bits;
}

/* ---- the walk of one class ---- */

gboolean
program_writes_state(const Program *program, const ProgramOp *op)
{
  for (guint i = 0; i < op->operands; i++) {
    const Operand *operand = program_operand(program, op, (int) i);
    const Tensor *tensor = program_operand_tensor(program, op, (int) i);
    const Storage *storage = &g_array_index(program->storages, Storage, tensor->storage);
    if (operand->role != ROLE_READ &&
        (storage->category == CATEGORY_PARAMETER || storage->category == CATEGORY_OPTIMIZER_STATE))
      return TRUE;
  }
  return FALSE;
}

/* A collective's turn comes when its stream and its communicator have come to it. */
static gboolean
joins(const Walk *w, Position *p, const ProgramOp *op)
{
  const Collective *collective = &g_array_index(w->program->collectives, Collective, op->a);
  guint c = (guint) collective->communicator;
  gint64 number = p->count[c]++;
  if (p->stream[op->stream] || p->queue[c])
    return FALSE;
  w->joined[slot(w, c, p->rank_class)] = number + 1;
  gboolean ends = number < w->limits[slot(w, c, p->rank_class & ~w->spans[c])];
  p->queue[c] = !ends;
  return ends;
}

static void
count_update(const Walk *w, Position *p, const ProgramOp *op, gboolean done)
{
  if (!p->in_optimizer || !program_writes_state(w->program, op))
    return;
  p->updates++;
  p->updates_done += done;
}

/* Ranges open and close on the host; only the phase matters. */
static void
pass_range(const Walk *w, Position *p, const ProgramOp *op)
{
  p->depth += op->kind == PROGRAM_RANGE_PUSH ? 1 : -1;
  if (op->kind == PROGRAM_RANGE_PUSH && op->b == RANGE_PHASE)
    p->in_optimizer = g_str_equal(program_text(w->program, op->a), "optimizer");
  else if (p->depth == 0)
    p->in_optimizer = FALSE;
}

static void
pass_op(const Walk *w, Position *p, const ProgramOp *op)
{
  gboolean done;
  switch ((ProgramOpKind) op->kind) {
  case PROGRAM_LAUNCH:
  case PROGRAM_COPY:
    count_update(w, p, op, !p->host && !p->stream[op->stream]);
    break;
  case PROGRAM_COLLECTIVE:
    done = !p->host && joins(w, p, op);
    p->stream[op->stream] |= !done;
    count_update(w, p, op, done);
    break;
  case PROGRAM_EVENT_RECORD:
    p->event[op->a] = p->host || p->stream[op->stream];
    break;
  case PROGRAM_STREAM_WAIT:
    p->stream[op->stream] |= p->event[op->a];
    break;
  case PROGRAM_EVENT_SYNC:
    p->host |= p->event[op->a];
    break;
  case PROGRAM_STREAM_SYNC:
    p->host |= p->stream[op->stream];
    break;
  case PROGRAM_RANGE_PUSH:
  case PROGRAM_RANGE_POP:
    pass_range(w, p, op);
    break;
  default:
    break;
  }
}

/* Events of a list that repeats itself change their names. */
static void
carry_events(Position *p, const OpList *list)
{
  const GArray *carries = list->event_carries;
  g_autofree gboolean *old = g_new(gboolean, MAX(carries->len, 1));
  for (guint i = 0; i < carries->len; i++)
    old[i] = p->event[g_array_index(carries, Carry, i).from];
  for (guint i = 0; i < carries->len; i++)
    p->event[g_array_index(carries, Carry, i).to] = old[i];
}

static const OpList *
list_of(const Walk *w, int step)
{
  return program_step(w->program, MIN(step, w->program->steps) - 1);
}

/* A class's way through the steps; its updates are those of the step of the failure. */
static void
walk_class(const Walk *w, guint rank_class, ReachClass *result)
{
  guint communicators = w->program->communicators->len;
  Position p = {.rank_class = rank_class,
                .event = g_new0(gboolean, w->program->events + 1),
                .queue = g_new0(gboolean, communicators + 1),
                .count = g_memdup2(w->before, communicators * sizeof(gint64))};
  const OpList *last = NULL;
  for (int step = w->first_step; step <= w->last_step; step++) {
    const OpList *list = list_of(w, step);
    if (list == last)
      carry_events(&p, list);
    last = list;
    p.updates = p.updates_done = 0;
    for (guint i = 0; i < list->ops->len; i++)
      pass_op(w, &p, &g_array_index(list->ops, ProgramOp, i));
    if (step == w->input->step && result != NULL) {
      result->updates = p.updates;
      result->updates_done = p.updates_done;
    }
  }
  g_free(p.event);
  g_free(p.queue);
  g_free(p.count);
}

/* ---- all classes ---- */

/* Collectives of a communicator in the list; the nth of them, from 0, if `nth` is at least 0. */
static gint64
count_collectives(const Program *program, const OpList *list, guint communicator, gint64 nth,
                  const Collective **found)
{
  gint64 count = 0;
  for (guint i = 0; i < list->ops->len; i++) {
    const ProgramOp *op = &g_array_index(list->ops, ProgramOp, i);
    if (op->kind != PROGRAM_COLLECTIVE)
      continue;
    const Collective *c = &g_array_index(program->collectives, Collective, op->a);
    if (c->communicator != (gint32) communicator)
      continue;
    if (count++ == nth)
      *found = c;
  }
  return count;
}

/* Steps that repeat a list are counted once. */
static void
count_before(Walk *w, guint c)
{
  const OpList *last = g_ptr_array_index(w->program->lists, 0);
  gint64 of_last = count_collectives(w->program, last, c, -1, NULL);
  w->before[c] = of_last;
  for (int step = 1; step < w->first_step; step++) {
    const OpList *list = program_step(w->program, step - 1);
    if (list != last)
      of_last = count_collectives(w->program, list, c, -1, NULL);
    last = list;
    w->before[c] += of_last;
  }
}

static gint64
fewest_joined(const Walk *w, guint c, guint group)
{
  gint64 fewest = G_MAXINT64;
  for (guint k = 0; k < w->n_classes; k++)
    if ((k & ~w->spans[c]) == group)
      fewest = MIN(fewest, w->joined[slot(w, c, k)]);
  return fewest;
}

/* TRUE when some group gets less far than it was thought to. */
static gboolean
lower_limits(Walk *w)
{
  gboolean lowered = FALSE;
  for (guint c = 0; c < w->program->communicators->len; c++)
    for (guint group = 0; group < w->n_classes; group++) {
      if ((group & w->spans[c]) != 0 || w->spans[c] == 0)
        continue;
      gint64 *limit = &w->limits[slot(w, c, group)];
      gint64 reached = fewest_joined(w, c, group);
      lowered |= reached < *limit;
      *limit = MIN(*limit, reached);
    }
  return lowered;
}

/* From "everything ends that the stopped rank does not stop" down to what is consistent: limits
 * only fall, so this ends. */
static void
settle(Walk *w, ReachClass *classes)
{
  guint communicators = w->program->communicators->len;
  for (guint c = 0; c < communicators; c++) {
    for (guint k = 0; k < w->n_classes; k++)
      w->limits[slot(w, c, k)] = G_MAXINT64;
    if (w->spans[c] != 0)
      w->limits[slot(w, c, 0)] = MAX(w->input->done[c], w->before[c]);
  }
  do {
    for (guint c = 0; c < communicators; c++)
      w->joined[slot(w, c, 0)] = MAX(w->input->begun[c], w->before[c]);
    for (guint k = 1; k < w->n_classes; k++) {
      for (guint c = 0; c < communicators; c++)
        w->joined[slot(w, c, k)] = w->before[c];
      walk_class(w, k, &classes[k]);
    }
  } while (lower_limits(w));
}

/* ---- results ---- */

/* The collective of that number, from 0, and the step that issues it; NULL when it is not in the
 * steps walked. */
static const Collective *
find_collective(const Walk *w, guint c, gint64 number, int *step)
{
  const Collective *found = NULL;
  number -= w->before[c];
  for (*step = w->first_step; number >= 0 && *step <= w->last_step; (*step)++) {
    number -= count_collectives(w->program, list_of(w, *step), c, number, &found);
    if (found != NULL)
      return found;
  }
  return NULL;
}

/* The collective in which the groups of a class are stuck, if somebody waits there. */
static void
add_stuck(const Walk *w, guint c, guint group, GArray *stuck)
{
  gint64 number = w->limits[slot(w, c, group)];
  gboolean waits[MOST_CLASSES], anybody = FALSE;
  for (guint k = 0; k < w->n_classes; k++) {
    waits[k] = (k & ~w->spans[c]) == group && w->joined[slot(w, c, k)] > number;
    anybody |= waits[k] && k != 0;
  }
  StuckCollective s = {.communicator = (gint32) c, .number = number + 1};
  s.collective = anybody ? find_collective(w, c, number, &s.step) : NULL;
  if (s.collective == NULL)
    return;
  s.stopped_inside = waits[0];
  for (int rank = 0; rank < w->input->ranks; rank++) {
    guint k = class_of(w, rank);
    if ((k & ~w->spans[c]) == group && k != 0)
      rank_set_append(waits[k] ? &s.waiting : &s.missing, rank);
    else if (group == 0 && k == 0 && !s.stopped_inside)
      rank_set_append(&s.missing, rank);
  }
  g_array_append_val(stuck, s);
}

static void
stuck_clear(gpointer data)
{
  StuckCollective *stuck = data;
  rank_set_clear(&stuck->waiting);
  rank_set_clear(&stuck->missing);
}

static void
class_clear(gpointer data)
{
  rank_set_clear(&((ReachClass *) data)->ranks);
}

static Reach *
collect(const Walk *w, ReachClass *classes)
{
  Reach *reach = g_new0(Reach, 1);
  reach->stuck = g_array_new(FALSE, FALSE, sizeof(StuckCollective));
  g_array_set_clear_func(reach->stuck, stuck_clear);
  reach->classes = g_array_new(FALSE, FALSE, sizeof(ReachClass));
  g_array_set_clear_func(reach->classes, class_clear);
  for (guint c = 0; c < w->program->communicators->len; c++)
    for (guint group = 0; group < w->n_classes; group++)
      if ((group & w->spans[c]) == 0 && w->spans[c] != 0)
        add_stuck(w, c, group, reach->stuck);
  for (int rank = 0; rank < w->input->ranks; rank++)
    rank_set_append(&classes[class_of(w, rank)].ranks, rank);
  for (guint k = 1; k < w->n_classes; k++)
    g_array_append_val(reach->classes, classes[k]);
  rank_set_clear(&classes[0].ranks);
  return reach;
}

Reach *
program_reach(const Program *program, const ReachInput *input)
{
  guint communicators = program->communicators->len;
  Walk w = {.program = program,
            .input = input,
            .spans = g_new0(guint, communicators + 1),
            .before = g_new0(gint64, communicators + 1),
            .first_step = input->step,
            .last_step = input->step + 1};
  find_digits(&w);
  w.limits = g_new(gint64, communicators * w.n_classes + 1);
  w.joined = g_new0(gint64, communicators * w.n_classes + 1);
  for (guint c = 0; c < communicators; c++) {
    w.spans[c] = span_of(&w, communicator_of(program, c));
    count_before(&w, c);
  }
  ReachClass classes[MOST_CLASSES] = {0};
  settle(&w, classes);
  Reach *reach = collect(&w, classes);
  g_free(w.spans);
  g_free(w.before);
  g_free(w.limits);
  g_free(w.joined);
  return reach;
}

void
reach_free(Reach *reach)
{
  if (reach == NULL)
    return;
  g_array_unref(reach->stuck);
  g_array_unref(reach->classes);
  g_free(reach);
}
