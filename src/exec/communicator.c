/* communicator.c - queues of collectives, and the links they share. */
#include "exec/communicator.h"

/* Ranks that issue the same program at the same speed are simulated once. */
#define RANK_CLASSES 1

/* What communicators share: the fabric inside a node, or the network between nodes. */
enum { LINK_NODE, LINK_NETWORK, LINK_COUNT };

static const char *const link_names[LINK_COUNT] = {
    [LINK_NODE] = "node", [LINK_NETWORK] = "network"};

static int
link_kind(GroupShape shape)
{
  return shape.nodes > 1 ? LINK_NETWORK : LINK_NODE;
}

/* Gives a link to the communicators that could meet on it.  Its unit is the time that a transfer
 * takes alone: durations come from the collective model, which knows nothing of sharing, and two
 * that share progress at half speed. */
static void
share_links(Communicators *set, guint n)
{
  for (int kind = 0; kind < LINK_COUNT; kind++) {
    guint users = 0;
    for (guint i = 0; i < n; i++)
      users += set->queues[i].shape.ranks > 1 && link_kind(set->queues[i].shape) == kind;
    if (users < 2)
      continue;
    const double one_per_ns = 1e9;
    SharedLink *link = shared_link_new(set->engine, link_names[kind], one_per_ns, 0);
    for (guint i = 0; i < n; i++)
      if (link_kind(set->queues[i].shape) == kind)
        set->queues[i].link = link;
  }
}

void
communicators_init(Communicators *set, Engine *engine, SpanLog *spans, const Program *program,
                   const ClusterSpec *cluster)
{
  guint n = program->communicators->len;
  *set = (Communicators){.engine = engine, .spans = spans, .program = program, .cluster = cluster};
  set->queues = g_new0(CommunicatorQueue, n);
  for (guint i = 0; i < n; i++) {
    const Communicator *communicator = &g_array_index(program->communicators, Communicator, i);
    const char *name = g_ptr_array_index(program->names, communicator->name);
    CommunicatorQueue *queue = &set->queues[i];
    queue->shape = group_shape(cluster, communicator->ranks, communicator->stride);
    queue->queue = stream_new(engine, name);
    queue->rendezvous = rendezvous_new(engine, name, -1, RANK_CLASSES);
  }
  share_links(set, n);
}

void
communicators_clear(Communicators *set)
{
  g_free(set->queues);
}

static SimTime
duration_alone(const Communicators *set, const CommunicatorQueue *queue,
               const Collective *collective)
{
  if (set->cluster->device->clock != CLOCK_RUNNING)
    return 0;
  return collective_duration(set->cluster, collective->kind, queue->shape, collective->bytes);
}

/* How long it takes alone, and over the link: the latency first, which nobody shares. */
static Work
collective_work(const Communicators *set, const CommunicatorQueue *queue,
                const Collective *collective)
{
  SimTime alone = duration_alone(set, queue, collective);
  Work work = {.duration = alone, .rendezvous = queue->rendezvous};
  if (queue->link != NULL && queue->shape.ranks > 1) {
    CollectiveCost cost = collective_cost(set->cluster, collective->kind, queue->shape);
    work.duration = MIN(alone, (SimTime) cost.latency_ns);
    work.link = queue->link;
    work.link_bytes = (double) (alone - work.duration);
  }
  return work;
}

void
communicators_issue(Communicators *set, Gpu *gpu, SimTime now, const ProgramOp *op)
{
  const Collective *collective = &g_array_index(set->program->collectives, Collective, op->a);
  const CommunicatorQueue *queue = &set->queues[collective->communicator];
  Stream *stream = gpu->streams[op->stream];
  SyncPoint *ready = sync_point_new(set->engine, "operands of collective", op->a);
  SyncPoint *done = sync_point_new(set->engine, "end of collective", op->a);
  Work work = collective_work(set, queue, collective);
  span_log_observe(set->spans, op, &work);

  stream_record(stream, now, ready);
  stream_wait(queue->queue, now, ready);
  stream_submit(queue->queue, now, &work);
  stream_record(queue->queue, now, done);
  stream_wait(stream, now, done);
}
