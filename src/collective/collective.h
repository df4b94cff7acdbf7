/* collective.h - how long a collective takes on a communicator: alpha + f(kind, ranks) * bytes /
 * busbw, the best of the protocols' lines. */
#ifndef HIGHWATER_COLLECTIVE_COLLECTIVE_H
#define HIGHWATER_COLLECTIVE_COLLECTIVE_H

#include "base/units.h"
#include "program/program.h"
#include "spec/cluster_spec.h"

/* Where a communicator's ranks sit. */
typedef struct {
  int ranks;
  int nodes;             /* how many nodes they span */
  int ranks_per_node;    /* largest number of them on one node */
  double nics_per_group; /* NICs of a node that this group can use when the node's other GPUs are in
                            groups like it: all of them, one GPU's share, which may be a fraction,
                            or what lies between */
} GroupShape;

/* Shape of a communicator whose neighbours are `stride` global ranks apart, on nodes of
 * gpus_per_node: of the one that global rank 0 is in. */
GroupShape group_shape(const ClusterSpec *cluster, int ranks, int stride);

/* Bus-bandwidth factor: 2(R-1)/R all-reduce, (R-1)/R all-gather and reduce-scatter, 1 broadcast; 0
 * for one rank. */
double collective_factor(CollectiveKind kind, int ranks);
/* Bytes a rank sends in the ring algorithm (the last of a broadcast's ring sends none). */
double collective_bytes_sent(CollectiveKind kind, int ranks, gint64 bytes);

/* Latency (ns) of a message of no bytes, and bus bandwidth (bytes per second) that large ones
 * approach. */
typedef struct {
  double latency_ns;
  double busbw;
} CollectiveCost;
CollectiveCost collective_cost(const ClusterSpec *cluster, CollectiveKind kind, GroupShape shape);

/* Duration alone on its links.  One rank: 0.  Monotone in bytes; never less than the latency, nor
 * than factor * bytes / busbw. */
SimTime collective_duration(const ClusterSpec *cluster, CollectiveKind kind, GroupShape shape,
                            gint64 bytes);

#endif
