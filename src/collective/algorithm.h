/* algorithm.h - NCCL's algorithms: what they are for, how many steps they take, what they ask of
 * the links. */
#ifndef HIGHWATER_COLLECTIVE_ALGORITHM_H
#define HIGHWATER_COLLECTIVE_ALGORITHM_H

#include "collective/collective.h"

/* Steps one after the other: inside nodes and between them. */
typedef struct {
  double staying, crossing;
} AlgorithmSteps;

typedef struct {
  const char *name;    /* "nvls_tree" */
  const char *summary; /* one line: how it goes, and when NCCL has it */
  gboolean (*applies)(const ClusterSpec *cluster, CollectiveKind kind, GroupShape shape);
  AlgorithmSteps (*steps)(CollectiveKind kind, GroupShape shape);
  /* Bus bandwidth (bytes per second) that the links allow, of `inside` in a node and `outside`
   * through a node's NICs. */
  double (*busbw)(CollectiveKind kind, GroupShape shape, double inside, double outside);
} Algorithm;

typedef enum {
  ALGORITHM_RING,
  ALGORITHM_TREE,
  ALGORITHM_NVLS,
  ALGORITHM_NVLS_TREE,
  ALGORITHM_PAT,
  ALGORITHM_P2P,
  ALGORITHM_COUNT
} AlgorithmId;

extern const Algorithm algorithms[ALGORITHM_COUNT];

/* Which algorithm a line is of, and its protocol: "LL", "LL128" or "Simple". */
AlgorithmId line_algorithm(ProtocolLineId id);
const char *line_protocol(ProtocolLineId id);

/* Passes over the data: an all-reduce is a reduce-scatter and an all-gather. */
int collective_passes(CollectiveKind kind);

#endif
