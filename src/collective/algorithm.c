/* algorithm.c - NCCL's algorithms as a table.  Latencies and choices: NVIDIA NCCL 2.30,
 * src/graph/tuning.cc. */
#include "collective/algorithm.h"
#include <math.h>

int
collective_passes(CollectiveKind kind)
{
  return kind == COLLECTIVE_ALL_REDUCE ? 2 : 1;
}

static gboolean
between_pairs(CollectiveKind kind)
{
  return kind == COLLECTIVE_ALL_TO_ALL || kind == COLLECTIVE_SEND_RECV;
}

/* ---- ring: every chunk goes around once */

static gboolean
ring_applies(const ClusterSpec *cluster, CollectiveKind kind, GroupShape shape)
{
  (void) cluster;
  (void) shape;
  return !between_pairs(kind);
}

static AlgorithmSteps
ring_steps(CollectiveKind kind, GroupShape shape)
{
  int passes = collective_passes(kind);
  return (AlgorithmSteps){passes * (shape.ranks - shape.nodes), passes * (shape.nodes - 1)};
}

static double
ring_busbw(CollectiveKind kind, GroupShape shape, double inside, double outside)
{
  (void) kind;
  (void) shape;
  return MIN(inside, outside);
}

/* ---- tree: up and down a double binary tree of nodes, with a chain in each.  For all-reduce only,
 * and inside one node no better than a ring. */

static gboolean
tree_applies(const ClusterSpec *cluster, CollectiveKind kind, GroupShape shape)
{
  (void) cluster;
  return kind == COLLECTIVE_ALL_REDUCE && shape.nodes > 1;
}

static AlgorithmSteps
tree_steps(CollectiveKind kind, GroupShape shape)
{
  int passes = collective_passes(kind);
  return (AlgorithmSteps){passes * (shape.ranks_per_node - 1), passes * log2(shape.nodes)};
}

/* How often the buffer leaves a node of a tree: once of two nodes (each sends its sum to the
 * other), four thirds of three, two of many, where an inner node has a parent and two children in
 * one of the two trees.  A ring sends it 2 (R-1)/R times, which is what bus bandwidth counts. */
static double
tree_busbw(CollectiveKind kind, GroupShape shape, double inside, double outside)
{
  static const double departures[] = {2, 2, 1, 1.5};
  guint nodes = (guint) shape.nodes;
  double leaves = nodes < G_N_ELEMENTS(departures) ? departures[nodes] : 2;
  return MIN(inside, outside * collective_factor(kind, shape.ranks) / leaves);
}

/* ---- NVLS: the switch adds and copies; between nodes a tree of it */

/* Multicast came with NVSwitch 3, that of compute capability 9.0. */
static gboolean
has_nvls(const ClusterSpec *cluster, CollectiveKind kind, GroupShape shape)
{
  return kind == COLLECTIVE_ALL_REDUCE && shape.ranks_per_node > 1 && cluster->device &&
         cluster->device->compute_capability >= 90;
}

static gboolean
nvls_applies(const ClusterSpec *cluster, CollectiveKind kind, GroupShape shape)
{
  return has_nvls(cluster, kind, shape) && shape.nodes == 1;
}

static gboolean
nvls_tree_applies(const ClusterSpec *cluster, CollectiveKind kind, GroupShape shape)
{
  return has_nvls(cluster, kind, shape) && shape.nodes > 1;
}

static AlgorithmSteps
nvls_steps(CollectiveKind kind, GroupShape shape)
{
  return (AlgorithmSteps){0, collective_passes(kind) * log2(shape.nodes)};
}

/* ---- PAT: parallel aggregated trees, for one rank a node */

static gboolean
pat_applies(const ClusterSpec *cluster, CollectiveKind kind, GroupShape shape)
{
  (void) cluster;
  return (kind == COLLECTIVE_ALL_GATHER || kind == COLLECTIVE_REDUCE_SCATTER) &&
         shape.ranks_per_node == 1 && shape.nodes > 1;
}

/* Each rank's share is handled locally, which takes a little for each. */
static AlgorithmSteps
pat_steps(CollectiveKind kind, GroupShape shape)
{
  (void) kind;
  return (AlgorithmSteps){shape.ranks, log2(shape.nodes)};
}

/* ---- sends and receives */

static gboolean
p2p_applies(const ClusterSpec *cluster, CollectiveKind kind, GroupShape shape)
{
  (void) cluster;
  (void) shape;
  return between_pairs(kind);
}

static AlgorithmSteps
p2p_steps(CollectiveKind kind, GroupShape shape)
{
  if (kind == COLLECTIVE_ALL_TO_ALL)
    return (AlgorithmSteps){shape.ranks_per_node - 1, shape.ranks - shape.ranks_per_node};
  return (AlgorithmSteps){shape.nodes == 1 ? 1 : 0, shape.nodes == 1 ? 0 : 1};
}

/* Of an alltoall's S bytes a rank sends S (g-1)/R inside its node and S (R-g)/R out of it, at once.
 * In a sendrecv the rank that sends to another node sets the pace, at its share of the NICs. */
static double
p2p_busbw(CollectiveKind kind, GroupShape shape, double inside, double outside)
{
  double own = outside / shape.ranks_per_node;
  double others = shape.ranks - 1, here = shape.ranks_per_node - 1;
  if (kind == COLLECTIVE_SEND_RECV)
    return MIN(inside, own);
  return MIN(here > 0 ? inside * others / here : INFINITY,
             others > here ? own * others / (others - here) : INFINITY);
}

const Algorithm algorithms[ALGORITHM_COUNT] = {
    [ALGORITHM_RING] = {"ring", "every chunk goes around once (an all-reduce's twice); all kinds",
                        ring_applies, ring_steps, ring_busbw},
    [ALGORITHM_TREE] = {"tree",
                        "double binary tree of nodes, chains inside; all-reduce between nodes",
                        tree_applies, tree_steps, tree_busbw},
    [ALGORITHM_NVLS] = {"nvls",
                        "NVSwitch adds and copies; all-reduce in a node from compute capability "
                        "9.0",
                        nvls_applies, nvls_steps, ring_busbw},
    [ALGORITHM_NVLS_TREE] = {"nvls_tree",
                             "NVSwitch in nodes, a tree of them; all-reduce from compute "
                             "capability 9.0",
                             nvls_tree_applies, nvls_steps, tree_busbw},
    [ALGORITHM_PAT] = {"pat",
                       "parallel aggregated trees; all-gather and reduce-scatter of one rank a "
                       "node",
                       pat_applies, pat_steps, ring_busbw},
    [ALGORITHM_P2P] = {"p2p", "sends and receives; alltoall and sendrecv", p2p_applies, p2p_steps,
                       p2p_busbw},
};

static const struct {
  AlgorithmId algorithm;
  const char *protocol;
} lines[LINE_COUNT] = {
    [LINE_RING_LL] = {ALGORITHM_RING, "LL"},
    [LINE_RING_LL128] = {ALGORITHM_RING, "LL128"},
    [LINE_RING_SIMPLE] = {ALGORITHM_RING, "Simple"},
    [LINE_TREE_LL] = {ALGORITHM_TREE, "LL"},
    [LINE_TREE_LL128] = {ALGORITHM_TREE, "LL128"},
    [LINE_TREE_SIMPLE] = {ALGORITHM_TREE, "Simple"},
    [LINE_NVLS] = {ALGORITHM_NVLS, "Simple"},
    [LINE_NVLS_TREE] = {ALGORITHM_NVLS_TREE, "Simple"},
    [LINE_PAT] = {ALGORITHM_PAT, "Simple"},
    [LINE_P2P] = {ALGORITHM_P2P, "Simple"},
};

AlgorithmId
line_algorithm(ProtocolLineId id)
{
  return lines[id].algorithm;
}

const char *
line_protocol(ProtocolLineId id)
{
  return lines[id].protocol;
}
