/* collective.h - how long a collective takes on a communicator: a measured table, or the best of
 * the lines alpha + f(kind, ranks) * bytes / busbw of NCCL's algorithms and protocols. */
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

/* Bus-bandwidth factor: 2(R-1)/R all-reduce, (R-1)/R all-gather, reduce-scatter and alltoall, 1
 * broadcast, reduce and sendrecv; 0 for one rank. */
double collective_factor(CollectiveKind kind, int ranks);
/* Bytes a rank sends in the ring algorithm (the last of a broadcast's ring sends none). */
double collective_bytes_sent(CollectiveKind kind, int ranks, gint64 bytes);

/* A line of one algorithm and protocol on one communicator.  A message of b bytes takes
 *     alpha + c + 2 sqrt(pipeline c),  c = factor b / busbw:
 * a pipeline of k steps that take a each, over chunks of the best size, adds k a, which is in
 * alpha, and twice the root of k a c. */
typedef struct {
  double alpha_ns;
  double busbw; /* bytes per second */
  double pipeline_ns;
} CollectiveLine;
/* Duration in ns; factor as above. */
double collective_line_ns(const CollectiveLine *line, double factor, gint64 bytes);
/* The line, if NCCL has it for this kind of collective on this communicator of more than one rank.
 */
gboolean collective_line(const ClusterSpec *cluster, ProtocolLineId id, CollectiveKind kind,
                         GroupShape shape, CollectiveLine *line);
/* The line that is fastest for a message, as NCCL's tuner chooses; more than one rank. */
ProtocolLineId collective_best_line(const ClusterSpec *cluster, CollectiveKind kind,
                                    GroupShape shape, gint64 bytes);

/* Latency (ns) of a message of no bytes, and bus bandwidth (bytes per second) that large ones
 * approach. */
typedef struct {
  double latency_ns;
  double busbw;
} CollectiveCost;
CollectiveCost collective_cost(const ClusterSpec *cluster, CollectiveKind kind, GroupShape shape);

/* What a message pays before its bytes count, the same for every size on its line: alpha of the
 * line that is fastest for it; where its time is from a measured table, that of the table's
 * smallest message.  One rank, or no bytes: 0.  Never more than the duration. */
SimTime collective_startup(const ClusterSpec *cluster, CollectiveKind kind, GroupShape shape,
                           gint64 bytes);

/* Duration alone on its links, from the cluster's measured table for it if there is one.  One rank,
 * or no bytes: 0, NCCL launches nothing.  Monotone in bytes; never less than the latency, nor than
 * factor * bytes / busbw. */
SimTime collective_duration(const ClusterSpec *cluster, CollectiveKind kind, GroupShape shape,
                            gint64 bytes);

#endif
