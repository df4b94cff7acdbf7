/* timing.c - durations from the models, and rates of works beside each other. */
#include "exec/timing.h"

/* How often a collective's data passes through each rank's memory, in units of the whole buffer: an
 * all-gather reads what it sends and writes what it receives; one that reduces reads its own part
 * too; an all-reduce does the one, then the other, less the pass that both have. */
static const double memory_passes[COLLECTIVE_KIND_COUNT] = {
    [COLLECTIVE_ALL_GATHER] = 2, [COLLECTIVE_REDUCE_SCATTER] = 3, [COLLECTIVE_ALL_REDUCE] = 4,
    [COLLECTIVE_BROADCAST] = 2,  [COLLECTIVE_REDUCE] = 3,         [COLLECTIVE_ALL_TO_ALL] = 2,
    [COLLECTIVE_SEND_RECV] = 2,
};

/* Channels, of one CTA each, that NCCL opens for a group: as its links inside the node allow, or
 * over the network as many as its NICs keep busy. */
static double
collective_sms(const ClusterSpec *cluster, GroupShape shape)
{
  const ContentionSpec *contention = &cluster->contention;
  if (shape.nodes == 1)
    return contention->intra_sms;
  double bandwidth = shape.nics_per_group * cluster->nic_bandwidth;
  double sms = MAX(contention->inter_sms_per_bandwidth * bandwidth, contention->inter_sms_min);
  return MIN(sms, contention->intra_sms);
}

static CollectiveTiming
collective_timing(const Timing *timing, const Collective *collective)
{
  const ClusterSpec *cluster = timing->cluster;
  GroupShape shape = timing->shapes[collective->communicator];
  CollectiveTiming result = {0};
  if (cluster->device->clock != CLOCK_RUNNING || shape.ranks <= 1)
    return result;
  result.alone = collective_duration(cluster, collective->kind, shape, collective->bytes);
  CollectiveCost cost = collective_cost(cluster, collective->kind, shape);
  result.latency = MIN(result.alone, (SimTime) cost.latency_ns);
  result.sms = collective_sms(cluster, shape);
  double moved = memory_passes[collective->kind] * (double) collective->bytes;
  result.leaves_node = shape.nodes > 1;
  if (result.alone == 0)
    return result;
  double seconds = (double) result.alone * 1e-9;
  double carried = collective_bytes_sent(collective->kind, shape.ranks, collective->bytes);
  result.memory = moved / seconds / cluster->device->memory_bandwidth;
  if (shape.ranks_per_node > 1)
    result.fabric = MIN(carried / seconds / cluster->intra_busbw, 1);
  return result;
}

/* The collective's load, new when none before it takes the same. */
static int
find_load(Timing *timing, const CollectiveTiming *collective)
{
  const CollectiveLoad load = {.sms = collective->sms,
                               .memory = collective->memory,
                               .fabric = collective->fabric,
                               .leaves_node = collective->leaves_node};
  for (int i = 0; i < timing->n_loads; i++) {
    const CollectiveLoad *known = &timing->loads[i];
    if (known->sms == load.sms && known->memory == load.memory && known->fabric == load.fabric &&
        known->leaves_node == load.leaves_node)
      return i;
  }
  timing->loads[timing->n_loads] = load;
  return timing->n_loads++;
}

/* Whether collectives of both kinds use the links inside a node. */
static gboolean
loads_mix(const Timing *timing)
{
  gboolean inside = FALSE, outside = FALSE;
  for (int i = 0; i < timing->n_loads; i++) {
    const CollectiveLoad *load = &timing->loads[i];
    inside |= load->fabric > 0 && !load->leaves_node;
    outside |= load->fabric > 0 && load->leaves_node;
  }
  return inside && outside;
}

/* How many ranks work on the Program: a communicator's members lie `stride` apart. */
static int
ranks_of(const Program *program)
{
  int ranks = 1;
  for (guint i = 0; i < program->communicators->len; i++) {
    const Communicator *c = &g_array_index(program->communicators, Communicator, i);
    ranks = MAX(ranks, c->ranks * c->stride);
  }
  return ranks;
}

static void
init_kernels(Timing *timing, const Program *program, const ClusterSpec *cluster)
{
  guint kernels = program->kernels->len;
  KernelModel model = kernel_model(cluster->device, &(KernelRun){.ranks = ranks_of(program)});
  timing->kernels = g_new(SimTime, kernels);
  timing->parts = timing->contends ? g_new(KernelParts, kernels) : NULL;
  timing->known = timing->contends ? g_new0(KnownRate, kernels) : NULL;
  for (guint i = 0; i < kernels; i++) {
    const Kernel *kernel = &g_array_index(program->kernels, Kernel, i);
    if (!timing->contends) {
      timing->kernels[i] = kernel_model_duration(&model, kernel);
      continue;
    }
    timing->parts[i] = kernel_model_parts(&model, kernel);
    timing->kernels[i] = kernel_parts_duration(&timing->parts[i]);
  }
}

void
timing_init(Timing *timing, const Program *program, const ClusterSpec *cluster)
{
  guint collectives = program->collectives->len, communicators = program->communicators->len;
  *timing = (Timing){.program = program, .cluster = cluster};
  timing->contends = cluster->contention.enabled && cluster->device->clock == CLOCK_RUNNING;
  timing->shapes = g_new(GroupShape, communicators);
  for (guint i = 0; i < communicators; i++) {
    const Communicator *c = &g_array_index(program->communicators, Communicator, i);
    timing->shapes[i] = group_shape(cluster, c->ranks, c->stride);
  }
  timing->collectives = g_new(CollectiveTiming, collectives);
  timing->loads = g_new(CollectiveLoad, collectives);
  for (guint i = 0; i < collectives; i++) {
    timing->collectives[i] =
        collective_timing(timing, &g_array_index(program->collectives, Collective, i));
    timing->collectives[i].load = find_load(timing, &timing->collectives[i]);
  }
  timing->mixes = loads_mix(timing);
  init_kernels(timing, program, cluster);
}

SimTime
timing_kernel(const Timing *timing, gint32 kernel, double slowness)
{
  SimTime alone = timing->kernels[kernel];
  if (g_array_index(timing->program->kernels, Kernel, kernel).kind == KERNEL_COPY)
    return alone;
  return (SimTime) ((double) alone * slowness + 0.5);
}

void
timing_clear(Timing *timing)
{
  g_free(timing->shapes);
  g_free(timing->collectives);
  g_free(timing->loads);
  g_free(timing->kernels);
  g_free(timing->parts);
  g_free(timing->known);
}

/* ---- contention ---- */

/* What the running collectives take together. */
typedef struct {
  int count;
  double sms, memory;
} Load;

static Load
running_load(const Timing *timing, const int *running)
{
  Load load = {0};
  for (int i = 0; i < timing->n_loads; i++) {
    load.count += running[i];
    load.sms += running[i] * timing->loads[i].sms;
    load.memory += running[i] * timing->loads[i].memory;
  }
  return load;
}

/* Kernels keep half of the SMs, however many collectives there are. */
static double
kernel_rate(Timing *timing, int kernel, const Load *load)
{
  KnownRate *known = &timing->known[kernel];
  if (known->rate > 0 && known->sms == load->sms && known->memory == load->memory)
    return known->rate;
  const ClusterSpec *cluster = timing->cluster;
  KernelRivals rivals = {
      .sms = MIN(load->sms, cluster->device->sms / 2),
      .sm_factor = cluster->contention.sm_factor,
      .memory = MIN(load->memory, cluster->contention.memory_limit),
  };
  double rate = 1 / kernel_slowdown(cluster->device, &timing->parts[kernel], &rivals);
  *known = (KnownRate){load->sms, load->memory, rate};
  return rate;
}

/* ---- the links inside a node ---- */

/* Whether running collectives that stay in the node and others that leave it need its links. */
static gboolean
both_kinds_run(const Timing *timing, const int *running)
{
  gboolean inside = FALSE, outside = FALSE;
  for (int i = 0; i < timing->n_loads; i++) {
    gboolean uses = running[i] > 0 && timing->loads[i].fabric > 0;
    inside |= uses && !timing->loads[i].leaves_node;
    outside |= uses && timing->loads[i].leaves_node;
  }
  return inside && outside;
}

/* How much of the links each of the running collectives gets at most: an equal part, but none more
 * than it can use, and what that leaves goes to the others (max-min fair: Bertsekas and Gallager,
 * Data Networks, section 6.5.2).  1 where there is enough for all. */
static double
fabric_level(const Timing *timing, const int *running)
{
  double left = 1, below = 0, level = 1;
  int open = 0;
  gboolean limited = TRUE;
  for (int i = 0; i < timing->n_loads; i++)
    open += timing->loads[i].fabric > 0 ? running[i] : 0;
  while (open > 0 && limited) {
    level = left / open;
    limited = FALSE;
    for (int i = 0; i < timing->n_loads; i++) {
      double fabric = timing->loads[i].fabric;
      if (running[i] == 0 || fabric <= below || fabric > level)
        continue;
      left -= running[i] * fabric;
      open -= running[i];
      limited = TRUE;
    }
    below = level;
  }
  return open > 0 ? level : 1;
}

/* Of its speed alone.  Collectives that all stay in the node share its links as a SharedLink. */
static double
collective_rate(const Timing *timing, const CollectiveLoad *load, const int *running,
                gboolean beside_kernels)
{
  double rate = beside_kernels ? 1 / timing->cluster->contention.collective_slowdown : 1;
  if (timing->mixes && load->fabric > 0 && both_kinds_run(timing, running))
    rate = MIN(rate, fabric_level(timing, running) / load->fabric);
  return rate;
}

/* A RateFunction. */
static double
rate_beside(gpointer user, int rate_class, const int *running, int total)
{
  Timing *timing = user;
  if (total == 1)
    return 1;
  Load load = running_load(timing, running);
  if (rate_class < timing->n_loads)
    return collective_rate(timing, &timing->loads[rate_class], running, load.count < total);
  return load.count > 0 ? kernel_rate(timing, rate_class - timing->n_loads, &load) : 1;
}

RateGroup *
timing_group_new(Timing *timing, Engine *engine)
{
  int classes = timing->n_loads + (int) timing->program->kernels->len;
  if ((!timing->contends && !timing->mixes) || timing->n_loads == 0)
    return NULL;
  return rate_group_new(engine, classes, rate_beside, timing);
}
