/* communicator.c - queues of collectives, and the links they share. */
#include "exec/communicator.h"

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
      users += set->timing->shapes[i].ranks > 1 && link_kind(set->timing->shapes[i]) == kind;
    if (users < 2)
      continue;
    const double one_per_ns = 1e9;
    SharedLink *link = shared_link_new(set->engine, link_names[kind], one_per_ns, 0);
    for (guint i = 0; i < n; i++)
      if (link_kind(set->timing->shapes[i]) == kind)
        set->queues[i].link = link;
  }
}

void
communicators_init(Communicators *set, const Seat *seats, const char *name_suffix)
{
  const Program *program = set->timing->program;
  guint n = program->communicators->len;
  set->queues = g_new0(CommunicatorQueue, n);
  for (guint i = 0; i < n; i++) {
    const Communicator *communicator = &g_array_index(program->communicators, Communicator, i);
    g_autofree char *name =
        g_strconcat(g_ptr_array_index(program->names, communicator->name), name_suffix, NULL);
    set->queues[i].queue = stream_new(set->engine, name);
    set->queues[i].seat = seats[i];
  }
  share_links(set, n);
}

void
communicators_clear(Communicators *set)
{
  g_free(set->queues);
}

/* How long it takes alone, and over the link: the latency first, which nobody shares. */
static Work
collective_work(const Communicators *set, const Gpu *gpu, gint32 collective)
{
  gint32 communicator =
      g_array_index(set->timing->program->collectives, Collective, collective).communicator;
  const CommunicatorQueue *queue = &set->queues[communicator];
  const CollectiveTiming *timing = &set->timing->collectives[collective];
  Work work = {
      .duration = timing->alone, .rendezvous = queue->seat.rendezvous, .party = queue->seat.party};
  if (set->timing->shapes[communicator].ranks <= 1)
    return work;
  work.group = gpu->group;
  work.rate_class = timing_collective_class(set->timing, collective);
  if (queue->link != NULL) {
    work.duration = timing->latency;
    work.link = queue->link;
    work.link_bytes = (double) (timing->alone - timing->latency);
  }
  return work;
}

void
communicators_issue(Communicators *set, Gpu *gpu, SimTime now, const ProgramOp *op)
{
  const Collective *collective =
      &g_array_index(set->timing->program->collectives, Collective, op->a);
  const CommunicatorQueue *queue = &set->queues[collective->communicator];
  Stream *stream = gpu->streams[op->stream];
  SyncPoint *ready = sync_point_new(set->engine, "operands of collective", op->a);
  SyncPoint *done = sync_point_new(set->engine, "end of collective", op->a);
  Work work = collective_work(set, gpu, op->a);
  span_log_observe(set->spans, now, op, &work);

  stream_record(stream, now, ready);
  stream_wait(queue->queue, now, ready);
  stream_submit(queue->queue, now, &work);
  stream_record(queue->queue, now, done);
  stream_wait(stream, now, done);
}
