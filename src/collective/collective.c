/* collective.c - shapes of communicators, and NCCL's algorithms and protocols as lines of latency
 * and bandwidth. */
#include "collective/collective.h"
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

/* Passes over the data: an all-reduce is a reduce-scatter and an all-gather. */
static const int passes[COLLECTIVE_KIND_COUNT] = {
    [COLLECTIVE_ALL_GATHER] = 1, [COLLECTIVE_REDUCE_SCATTER] = 1, [COLLECTIVE_ALL_REDUCE] = 2,
    [COLLECTIVE_BROADCAST] = 1,  [COLLECTIVE_REDUCE] = 1,
};

/* nccl-tests, doc/PERFORMANCE.md: what the links carry, in units of the buffer, whatever the
 * algorithm. */
double
collective_factor(CollectiveKind kind, int ranks)
{
  double others = ranks - 1;

  if (ranks <= 1)
    return 0;
  gboolean rooted = kind == COLLECTIVE_BROADCAST || kind == COLLECTIVE_REDUCE;
  return rooted ? 1 : passes[kind] * others / ranks;
}

double
collective_bytes_sent(CollectiveKind kind, int ranks, gint64 bytes)
{
  return collective_factor(kind, ranks) * (double) bytes;
}

/* ---- lines ---- */

typedef enum { ALGORITHM_RING, ALGORITHM_TREE } Algorithm;

/* A protocol of an algorithm: latencies in us, and the fraction of the bus bandwidth that it
 * reaches.  From NVIDIA NCCL 2.30, src/graph/tuning.cc: base latencies, hardware latencies of
 * NVLink and network (plus 1 us in the NIC, twice where the protocol flushes), and what its
 * bandwidth rules come to: LL half of a ring and 1/3.8 of a tree, LL128 120 of 128 bytes less its
 * limits, Simple all of a ring.  The cluster's own latencies are those of the ring with Simple; the
 * others keep NCCL's proportions to it. */
typedef struct {
  Algorithm algorithm;
  double base, intra_hop, inter_hop;
  double bandwidth;
} ProtocolLine;

enum { RING_SIMPLE, RING_LL128, RING_LL, TREE_SIMPLE, TREE_LL128, TREE_LL };

static const ProtocolLine lines[] = {
    [RING_SIMPLE] = {ALGORITHM_RING, 8.4, 3.4, 16.0, 1.00},
    [RING_LL128] = {ALGORITHM_RING, 14.0, 1.9, 5.0, 0.92},
    [RING_LL] = {ALGORITHM_RING, 6.6, 0.6, 3.7, 0.50},
    [TREE_SIMPLE] = {ALGORITHM_TREE, 8.4, 4.0, 14.0, 0.85},
    [TREE_LL128] = {ALGORITHM_TREE, 14.0, 1.25, 8.5, 0.85},
    [TREE_LL] = {ALGORITHM_TREE, 6.8, 0.6, 5.0, 0.25},
};

/* NCCL builds trees for all-reduce only, and inside a node they are chains: no better than rings.
 */
static gboolean
line_applies(const ProtocolLine *line, CollectiveKind kind, GroupShape shape)
{
  return line->algorithm == ALGORITHM_RING || (kind == COLLECTIVE_ALL_REDUCE && shape.nodes > 1);
}

/* Steps of one pass that stay in a node, and that cross nodes (same file): along a ring, or down a
 * double binary tree of nodes with a chain in each. */
static double
line_latency_ns(const ClusterSpec *cluster, const ProtocolLine *line, CollectiveKind kind,
                GroupShape shape)
{
  const ProtocolLine *unit = &lines[RING_SIMPLE];
  double base = cluster->base_latency_ns * line->base / unit->base;
  double intra = cluster->intra_hop_ns * line->intra_hop / unit->intra_hop;
  double inter = cluster->inter_hop_ns * line->inter_hop / unit->inter_hop;
  gboolean ring = line->algorithm == ALGORITHM_RING;
  double crossing = ring ? shape.nodes - 1 : log2(shape.nodes);
  double staying = ring ? shape.ranks - shape.nodes : shape.ranks_per_node - 1;

  return base + passes[kind] * (staying * intra + crossing * inter);
}

/* A ring that leaves the node reaches this much of what it does inside: all-gathers of 2 x 8 H200
 * (332 to 336 of 365 GB/s, public nccl-tests tables). */
#define RING_BEYOND_NODE 0.92

/* The slower of what a node's links and its NICs let through. */
static double
bus_bandwidth(const ClusterSpec *cluster, GroupShape shape)
{
  double nics = shape.nics_per_group * cluster->nic_bandwidth * cluster->inter_efficiency;

  if (shape.nodes == 1)
    return cluster->intra_busbw;
  if (shape.ranks_per_node == 1)
    return nics;
  return MIN(RING_BEYOND_NODE * cluster->intra_busbw, nics);
}

/* A pipeline of k steps over chunks of c bytes takes (k + S/c)(a + bc); with the best c that is ka
 * + bS and a term with sqrt(S).  This much makes it fit public nccl-tests tables; it is also NCCL's
 * buffer per channel (src/init.cc). */
#define PIPELINE_BYTES 4e6

static double
pipeline_ns(double factor, double bytes, double busbw)
{
  return factor * sqrt(PIPELINE_BYTES * bytes) / busbw * NS_PER_S;
}

/* The best line's time without the pipeline's. */
static double
best_line_ns(const ClusterSpec *cluster, CollectiveKind kind, GroupShape shape, double carried_ns)
{
  double best = INFINITY;

  for (guint i = 0; i < G_N_ELEMENTS(lines); i++) {
    const ProtocolLine *line = &lines[i];

    if (line_applies(line, kind, shape))
      best = fmin(best, line_latency_ns(cluster, line, kind, shape) + carried_ns / line->bandwidth);
  }
  return best;
}

CollectiveCost
collective_cost(const ClusterSpec *cluster, CollectiveKind kind, GroupShape shape)
{
  CollectiveCost cost = {.busbw = bus_bandwidth(cluster, shape)};

  if (shape.ranks > 1)
    cost.latency_ns = best_line_ns(cluster, kind, shape, 0);
  return cost;
}

SimTime
collective_duration(const ClusterSpec *cluster, CollectiveKind kind, GroupShape shape, gint64 bytes)
{
  double busbw = bus_bandwidth(cluster, shape);
  double factor = collective_factor(kind, shape.ranks);
  double carried_ns = factor * (double) bytes / busbw * NS_PER_S;

  if (shape.ranks <= 1)
    return 0;
  return (SimTime) (best_line_ns(cluster, kind, shape, carried_ns) +
                    pipeline_ns(factor, (double) bytes, busbw) + 0.5);
}
