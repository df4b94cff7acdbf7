/* numeric_run.c - who goes on next: ranks in lock step, in the order of issue or in a random one.
 */
#include "numeric/numeric_run.h"

#include "base/units.h"
#include "numeric/numeric_collective.h"
#include "numeric/numeric_interruption.h"
#include "numeric/numeric_order.h"

typedef struct {
  const NumericConfig *config;
  NumericRank *ranks;
  guint64 clock; /* how much has been done */
} Run;

/* ---- collectives ---- */

static const Collective *
collective_of(const NumericRank *r, const NumericTask *task)
{
  return &g_array_index(r->program->collectives, Collective, task->op->a);
}

static const Communicator *
communicator_of(const NumericRank *r, const NumericTask *task)
{
  return &g_array_index(r->program->communicators, Communicator,
                        collective_of(r, task)->communicator);
}

static gboolean
same_communicator(const NumericRank *a, const NumericTask *x, const NumericRank *b,
                  const NumericTask *y)
{
  const Communicator *c = communicator_of(a, x), *d = communicator_of(b, y);
  return c->ranks == d->ranks && c->stride == d->stride &&
         g_str_equal(program_text(a->program, c->name), program_text(b->program, d->name));
}

/* The stream on which a member has come to the same collective; -1: it has not. */
static int
arrived_on(const NumericRank *r, const NumericTask *task, const NumericRank *member)
{
  for (int i = 0; i < STREAM_COUNT; i++) {
    const NumericTask *head = numeric_stream_head(&member->streams[i]);
    if (head != NULL && !numeric_interruption_stops(member, i) && head->kind == TASK_COLLECTIVE &&
        head->sequence == task->sequence && same_communicator(r, task, member, head))
      return i;
  }
  return -1;
}

/* The collective at the head of a rank's stream, if all members have come to it. */
static gboolean
can_meet(const Run *run, int rank, int stream)
{
  const NumericRank *r = &run->ranks[rank];
  const NumericTask *task = numeric_stream_head(&r->streams[stream]);
  if (task == NULL || task->kind != TASK_COLLECTIVE)
    return FALSE;
  const Communicator *c = communicator_of(r, task);
  for (int i = 0; i < c->ranks; i++) {
    int member = numeric_rank_at(c, rank, i);
    if (member >= run->config->ranks || arrived_on(r, task, &run->ranks[member]) < 0)
      return FALSE;
  }
  return TRUE;
}

/* What a member brings to a reduction, or its own part of a gather in place. */
static gboolean
brings_unknown(const Collective *c, const NumericTensor *t, int place, int n)
{
  gboolean own = c->kind == COLLECTIVE_ALL_GATHER && t->role == ROLE_ACCUMULATE;
  gint64 part = own ? t->elements / n : t->elements;
  return t->role != ROLE_WRITE && numeric_is_unknown(t->data + (own ? place * part : 0), part);
}

static void
look_for_unknown(Run *run, int rank, const Collective *c, int n, const int *streams,
                 const CollectiveMember *members)
{
  const Communicator *communicator =
      &g_array_index(run->ranks[rank].program->communicators, Communicator, c->communicator);
  for (int i = 0; i < n; i++) {
    NumericRank *m = &run->ranks[numeric_rank_at(communicator, rank, i)];
    for (int k = 0; k < members[i].operands && m->first_unknown == NULL; k++)
      if (brings_unknown(c, &members[i].operand[k], i, n))
        numeric_rank_note_unknown(m, numeric_stream_head(&m->streams[streams[i]]), k);
  }
}

static gboolean
meet(Run *run, int rank, int stream, GError **error)
{
  NumericRank *r = &run->ranks[rank];
  const NumericTask *task = numeric_stream_head(&r->streams[stream]);
  const Communicator *c = communicator_of(r, task);
  const Collective *collective = collective_of(r, task);
  NumericPlace place = task->place;
  int n = c->ranks;
  g_autofree CollectiveMember *members = g_new(CollectiveMember, n);
  g_autofree int *streams = g_new(int, n);
  char *fault = NULL;
  for (int i = 0; i < n; i++) {
    NumericRank *m = &run->ranks[numeric_rank_at(c, rank, i)];
    streams[i] = arrived_on(r, task, m);
    const NumericTask *head = numeric_stream_head(&m->streams[streams[i]]);
    const Collective *theirs = collective_of(m, head);
    members[i] = (CollectiveMember){numeric_rank_load(m, head), head->op->operands};
    if (fault == NULL && (theirs->kind != collective->kind || theirs->bytes != collective->bytes))
      fault = g_strdup_printf("rank %d issues another one", m->rank);
  }
  look_for_unknown(run, rank, collective, n, streams, members);
  gboolean lost = numeric_interruption_loses(r, task, stream);
  r->interrupted += lost;
  if (fault == NULL && !lost)
    fault = numeric_collective(&(CollectiveCall){r->program, collective, r->config->rounds},
                               members, n);
  if (fault != NULL) {
    g_set_error(error, HIGHWATER_ERROR, HIGHWATER_ERROR_INPUT, "%s of %s over %s: %s",
                program_collective_name((CollectiveKind) collective->kind),
                program_text(r->program, collective->name), program_text(r->program, c->name),
                fault);
    numeric_rank_locate(r, &place, error);
  }
  gboolean ok = fault == NULL;
  g_free(fault);
  for (int i = 0; i < n; i++) {
    NumericRank *m = &run->ranks[numeric_rank_at(c, rank, i)];
    const NumericTask *head = numeric_stream_head(&m->streams[streams[i]]);
    if (ok && !lost)
      numeric_rank_store(m, head, members[i].operand);
    numeric_rank_unload(head, members[i].operand);
  }
  for (int i = 0; i < n; i++)
    numeric_rank_pop(&run->ranks[numeric_rank_at(c, rank, i)], streams[i]);
  return ok;
}

/* ---- hosts among themselves ---- */

/* The communicator through which a rank's host is about to reduce; NULL: it is not. */
static const Communicator *
reduces_through(const NumericRank *r)
{
  const ProgramOp *op = numeric_rank_next(r);
  if (op == NULL || op->kind != PROGRAM_HOST_REDUCE)
    return NULL;
  return &g_array_index(r->program->communicators, Communicator, op->a);
}

static gboolean
hosts_can_reduce(const Run *run, int rank)
{
  const Communicator *c = reduces_through(&run->ranks[rank]);
  for (int i = 0; c != NULL && i < c->ranks; i++) {
    int other = numeric_rank_at(c, rank, i);
    const NumericRank *member = other < run->config->ranks ? &run->ranks[other] : NULL;
    const Communicator *d =
        member != NULL && numeric_rank_can_issue(member) ? reduces_through(member) : NULL;
    if (d == NULL || d->ranks != c->ranks || d->stride != c->stride)
      return FALSE;
  }
  return c != NULL;
}

static void
hosts_reduce(Run *run, int rank)
{
  const Communicator *c = reduces_through(&run->ranks[rank]);
  double sum = 0;
  for (int i = 0; i < c->ranks; i++)
    sum += run->ranks[numeric_rank_at(c, rank, i)].number[0];
  for (int i = 0; i < c->ranks; i++) {
    NumericRank *member = &run->ranks[numeric_rank_at(c, rank, i)];
    member->number[0] = sum;
    member->next++;
  }
}

/* ---- actors: a rank's streams, then its host ---- */

static gboolean
can_go_on(const Run *run, int actor)
{
  int rank = actor / NUMERIC_PARTS, part = actor % NUMERIC_PARTS;
  const NumericRank *r = &run->ranks[rank];
  if (part == NUMERIC_HOST)
    return numeric_rank_can_issue(r) && (reduces_through(r) == NULL || hosts_can_reduce(run, rank));
  return numeric_rank_can_run(r, part) || can_meet(run, rank, part);
}

static gboolean
go_on(Run *run, int actor, GError **error)
{
  int rank = actor / NUMERIC_PARTS, part = actor % NUMERIC_PARTS;
  NumericRank *r = &run->ranks[rank];
  run->clock++;
  if (part == NUMERIC_HOST && reduces_through(r) != NULL) {
    hosts_reduce(run, rank);
    return TRUE;
  }
  if (part == NUMERIC_HOST)
    return numeric_rank_issue(r, error);
  if (numeric_rank_can_run(r, part))
    return numeric_rank_run(r, part, error);
  return meet(run, rank, part, error);
}

/* ---- the order of issue ---- */

/* A rank as far as it comes; a host issues when all that it has issued has run: or at any time,
 * where a rank stops and others come as far as they can. */
static gboolean
run_rank(Run *run, int rank, gboolean *moved, GError **error)
{
  NumericRank *r = &run->ranks[rank];
  gboolean runs_ahead = numeric_interruption_is_failure(run->config);
  for (;;) {
    int actor = -1;
    for (int i = 0; i < NUMERIC_PARTS && actor < 0; i++)
      if (can_go_on(run, rank * NUMERIC_PARTS + i) &&
          (i < STREAM_COUNT || runs_ahead || numeric_rank_is_idle(r)))
        actor = rank * NUMERIC_PARTS + i;
    if (actor < 0)
      return TRUE;
    *moved = TRUE;
    if (!go_on(run, actor, error))
      return FALSE;
  }
}

static gboolean
run_in_order(Run *run, GError **error)
{
  gboolean moved = TRUE;
  while (moved) {
    moved = FALSE;
    for (int i = 0; i < run->config->ranks; i++)
      if (!run_rank(run, i, &moved, error))
        return FALSE;
  }
  return TRUE;
}

/* ---- other orders ---- */

static gboolean
run_in_other_order(Run *run, GError **error)
{
  NumericOrder order;
  gboolean ok = TRUE;
  numeric_order_init(&order, run->config);
  while (ok) {
    int place = 0;
    while (place < order.actors && !can_go_on(run, order.sorted[place]))
      place++;
    if (place == order.actors)
      break;
    ok = go_on(run, order.sorted[place], error);
    numeric_order_moved(&order, place);
  }
  numeric_order_clear(&order);
  return ok;
}

/* ---- all ---- */

static gboolean
check_ended(const Run *run, GError **error)
{
  for (int i = 0; i < run->config->ranks; i++) {
    const NumericRank *r = &run->ranks[i];
    if (r->ended && numeric_rank_is_idle(r))
      continue;
    g_set_error(error, HIGHWATER_ERROR, HIGHWATER_ERROR_INPUT,
                "rank %d, step %d: waits for what never comes", i, numeric_rank_step(r));
    return FALSE;
  }
  return TRUE;
}

gboolean
numeric_run(const NumericConfig *config, NumericOutcome *outcome, GError **error)
{
  *outcome = (NumericOutcome){.peaks = g_new0(gint64, MAX(config->ranks, 1))};
  Run run = {.config = config, .ranks = g_new0(NumericRank, MAX(config->ranks, 1))};
  for (int i = 0; i < config->ranks; i++) {
    numeric_rank_init(&run.ranks[i], config, i);
    run.ranks[i].clock = &run.clock;
  }
  guint64 earliest = G_MAXUINT64;
  gboolean ok = config->order == 0 ? run_in_order(&run, error) : run_in_other_order(&run, error);
  ok = ok && (numeric_interruption_is_failure(config) || check_ended(&run, error));
  for (int i = 0; i < config->ranks; i++) {
    outcome->interrupted += run.ranks[i].interrupted;
    outcome->peaks[i] = numeric_memory_peak(run.ranks[i].memory);
    if (run.ranks[i].first_unknown != NULL && run.ranks[i].unknown_at < earliest) {
      earliest = run.ranks[i].unknown_at;
      g_free(outcome->first_unknown);
      outcome->first_unknown = g_steal_pointer(&run.ranks[i].first_unknown);
    }
    numeric_rank_clear(&run.ranks[i]);
  }
  g_free(run.ranks);
  return ok;
}

void
numeric_outcome_clear(NumericOutcome *outcome)
{
  g_clear_pointer(&outcome->peaks, g_free);
  g_clear_pointer(&outcome->first_unknown, g_free);
}
