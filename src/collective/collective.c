/* collective.c - shapes of communicators, and the lines of NCCL's algorithms and protocols on them.
 */
#include "collective/collective.h"

#include "collective/algorithm.h"
#include "collective/measured.h"
#include <math.h>

#define NS_PER_S 1e9

/* ---- shapes ---- */

GroupShape
group_shape(const ClusterSpec *cluster, int ranks, int stride)
{
  gint64 gpus = cluster->gpus_per_node;
  gint64 last = (gint64) (ranks - 1) * stride;
  GroupShape shape = {.ranks = ranks};

  shape.nodes = stride < gpus ? (int) (last / gpus) + 1 : ranks;
  shape.ranks_per_node = (int) MIN(ranks, ceil_div(gpus, stride));
  shape.nics_per_group = (double) cluster->nics * shape.ranks_per_node / (double) gpus;
  return shape;
}

/* ---- volume ---- */

static gboolean
flows_one_way(CollectiveKind kind)
{
  return kind == COLLECTIVE_BROADCAST || kind == COLLECTIVE_REDUCE;
}

/* nccl-tests, doc/PERFORMANCE.md: what the links carry, in units of the buffer, whatever the
 * algorithm. */
double
collective_factor(CollectiveKind kind, int ranks)
{
  double others = ranks - 1;

  if (ranks <= 1)
    return 0;
  if (flows_one_way(kind) || kind == COLLECTIVE_SEND_RECV)
    return 1;
  return collective_passes(kind) * others / ranks;
}

double
collective_bytes_sent(CollectiveKind kind, int ranks, gint64 bytes)
{
  return collective_factor(kind, ranks) * (double) bytes;
}

/* ---- links ---- */

/* A mesh wires a GPU to each other one of the node, up to four of them (the hybrid cube mesh of 8
 * V100): g of the n GPUs have the links between them only. */
static double
mesh_share(const ClusterSpec *cluster, GroupShape shape)
{
  double others = MIN(cluster->gpus_per_node - 1, 4), here = shape.ranks_per_node - 1;
  gboolean part = cluster->intra_node == FABRIC_NVLINK && here > 0 && here < others;
  return part ? here / others : 1;
}

/* Bus bandwidth inside a node that the group has there. */
static double
inside_busbw(const ClusterSpec *cluster, CollectiveKind kind, GroupShape shape)
{
  double one_way = flows_one_way(kind) && cluster->one_way > 0 ? cluster->one_way : 1;
  return cluster->intra_busbw * mesh_share(cluster, shape) * one_way;
}

/* What the group's NICs of a node let through.  On PCIe the way from GPU to NIC is no wider than
 * that between GPUs, unless the data flow one way. */
static double
outside_busbw(const ClusterSpec *cluster, CollectiveKind kind, GroupShape shape)
{
  double nics = shape.nics_per_group * cluster->nic_bandwidth * cluster->inter_efficiency;
  gboolean shared = cluster->intra_node == FABRIC_PCIE && !flows_one_way(kind);
  return shared ? MIN(nics, shape.ranks_per_node * cluster->intra_busbw) : nics;
}

/* ---- lines ---- */

/* Constants of a line on the links of a node and between nodes. */
typedef struct {
  ProtocolLine intra, inter;
} LineConstants;

static LineConstants
line_constants(const ClusterSpec *cluster, ProtocolLineId id)
{
  if (id == LINE_RING_SIMPLE)
    return (LineConstants){
        .intra = {TRUE, cluster->base_latency_ns, cluster->intra_hop_ns, 1, 0,
                  cluster->intra_pipeline_ns},
        .inter = {TRUE, 0, cluster->inter_hop_ns, 1, 0, cluster->inter_pipeline_ns},
    };
  return (LineConstants){cluster->intra_lines[id], cluster->inter_lines[id]};
}

/* Sends and receives are as fast as a ring's where nothing is known of them. */
static LineConstants
constants_of(const ClusterSpec *cluster, ProtocolLineId id, GroupShape shape)
{
  LineConstants constants = line_constants(cluster, id);
  gboolean known = constants.intra.present && (shape.nodes == 1 || constants.inter.present);
  return !known && id == LINE_P2P ? line_constants(cluster, LINE_RING_SIMPLE) : constants;
}

static double
fraction(double bandwidth)
{
  return bandwidth > 0 ? bandwidth : 1;
}

static double
capped(double busbw, const ProtocolLine *line)
{
  return line->busbw_max > 0 ? MIN(busbw, line->busbw_max) : busbw;
}

static double
line_busbw(const ClusterSpec *cluster, ProtocolLineId id, CollectiveKind kind, GroupShape shape)
{
  const LineConstants c = constants_of(cluster, id, shape);
  const Algorithm *algorithm = &algorithms[line_algorithm(id)];
  double inside = inside_busbw(cluster, kind, shape) * fraction(c.intra.bandwidth);
  double outside = outside_busbw(cluster, kind, shape) * fraction(c.inter.bandwidth);
  AlgorithmId chain = line_algorithm(id);

  if (shape.nodes == 1)
    return capped(algorithm->busbw(kind, shape, inside, INFINITY), &c.intra);
  if (shape.ranks_per_node == 1)
    inside = INFINITY;
  else if (chain == ALGORITHM_RING || chain == ALGORITHM_TREE)
    inside *= fraction(cluster->beyond_node);
  return capped(algorithm->busbw(kind, shape, inside, outside), &c.inter);
}

gboolean
collective_line(const ClusterSpec *cluster, ProtocolLineId id, CollectiveKind kind,
                GroupShape shape, CollectiveLine *line)
{
  const Algorithm *algorithm = &algorithms[line_algorithm(id)];
  const LineConstants c = constants_of(cluster, id, shape);
  gboolean crosses = shape.nodes > 1;

  if (!c.intra.present || (crosses && !c.inter.present) ||
      !algorithm->applies(cluster, kind, shape))
    return FALSE;
  AlgorithmSteps steps = algorithm->steps(kind, shape);
  *line = (CollectiveLine){
      .alpha_ns = c.intra.base_ns + steps.staying * c.intra.hop_ns,
      .busbw = line_busbw(cluster, id, kind, shape),
      .pipeline_ns = crosses ? c.inter.pipeline_ns : c.intra.pipeline_ns,
  };
  if (crosses)
    line->alpha_ns += c.inter.base_ns + steps.crossing * c.inter.hop_ns;
  return TRUE;
}

double
collective_line_ns(const CollectiveLine *line, double factor, gint64 bytes)
{
  double carried = factor * (double) bytes / line->busbw * NS_PER_S;
  return line->alpha_ns + carried + 2 * sqrt(line->pipeline_ns * carried);
}

/* The best line, and its time. */
static double
best_line(const ClusterSpec *cluster, CollectiveKind kind, GroupShape shape, gint64 bytes,
          ProtocolLineId *best)
{
  double factor = collective_factor(kind, shape.ranks), least = INFINITY;

  for (int id = 0; id < LINE_COUNT; id++) {
    CollectiveLine line;
    if (!collective_line(cluster, (ProtocolLineId) id, kind, shape, &line))
      continue;
    double time = collective_line_ns(&line, factor, bytes);
    if (time < least) {
      least = time;
      *best = (ProtocolLineId) id;
    }
  }
  return least;
}

ProtocolLineId
collective_best_line(const ClusterSpec *cluster, CollectiveKind kind, GroupShape shape,
                     gint64 bytes)
{
  ProtocolLineId best = LINE_RING_SIMPLE;
  best_line(cluster, kind, shape, bytes, &best);
  return best;
}

/* ---- answers ---- */

static CollectiveCost
measured_cost(const CollectiveTable *table, double factor)
{
  const CollectivePoint *points = (const CollectivePoint *) (gpointer) table->points->data;
  const CollectivePoint *last = &points[table->points->len - 1];
  double slope = measured_tail_slope(table), overall = last->time_ns / (double) last->bytes;
  return (CollectiveCost){
      .latency_ns = points[0].time_ns,
      .busbw = factor / (slope > 0 ? slope : overall) * NS_PER_S,
  };
}

CollectiveCost
collective_cost(const ClusterSpec *cluster, CollectiveKind kind, GroupShape shape)
{
  CollectiveCost cost = {INFINITY, 0};
  const CollectiveTable *table = measured_table(cluster, kind, shape);

  if (table && shape.ranks > 1)
    return measured_cost(table, collective_factor(kind, shape.ranks));
  for (int id = 0; id < LINE_COUNT; id++) {
    CollectiveLine line;
    if (!collective_line(cluster, (ProtocolLineId) id, kind, shape, &line))
      continue;
    cost.latency_ns = fmin(cost.latency_ns, line.alpha_ns);
    cost.busbw = fmax(cost.busbw, line.busbw);
  }
  if (shape.ranks <= 1)
    cost.latency_ns = 0;
  return cost;
}

SimTime
collective_duration(const ClusterSpec *cluster, CollectiveKind kind, GroupShape shape, gint64 bytes)
{
  const CollectiveTable *table = measured_table(cluster, kind, shape);
  ProtocolLineId best;

  if (shape.ranks <= 1 || bytes <= 0)
    return 0;
  if (table)
    return (SimTime) (measured_time_ns(table, bytes) + 0.5);
  return (SimTime) (best_line(cluster, kind, shape, bytes, &best) + 0.5);
}

SimTime
collective_startup(const ClusterSpec *cluster, CollectiveKind kind, GroupShape shape, gint64 bytes)
{
  const CollectiveTable *table = measured_table(cluster, kind, shape);
  SimTime whole = collective_duration(cluster, kind, shape, bytes);

  if (shape.ranks <= 1 || bytes <= 0)
    return 0;
  if (table)
    return MIN(whole, (SimTime) (measured_cost(table, 1).latency_ns + 0.5));
  CollectiveLine line = {0};
  collective_line(cluster, collective_best_line(cluster, kind, shape, bytes), kind, shape, &line);
  return MIN(whole, (SimTime) (line.alpha_ns + 0.5));
}
