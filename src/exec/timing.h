/* timing.h - how long the kernels and collectives of a Program take alone on a cluster, and how
 * they slow each other down: worked out once, used by every rank. */
#ifndef HIGHWATER_EXEC_TIMING_H
#define HIGHWATER_EXEC_TIMING_H

#include "collective/collective.h"
#include "compute/kernel_slowdown.h"
#include "engine/engine.h"
#include "program/program.h"

/* A collective alone, and what it takes from kernels meanwhile. */
typedef struct {
  SimTime alone;
  SimTime latency; /* of it; nobody shares that */
  double sms;      /* that its channels hold */
  double memory;   /* fraction of the memory's bandwidth */
  double fabric;   /* fraction of a GPU's links inside the node */
  gboolean leaves_node;
  int load; /* which of the Timing's loads that is */
} CollectiveTiming;

/* What collectives take from others: those that take the same are of one load. */
typedef struct {
  double sms, memory, fabric;
  gboolean leaves_node;
} CollectiveLoad;

/* A kernel's slowdown under the load that it met last. */
typedef struct {
  double sms, memory;
  double rate; /* 0: none yet */
} KnownRate;

typedef struct {
  const Program *program;
  const ClusterSpec *cluster;
  GroupShape *shapes;            /* of each communicator of the Program */
  SimTime *kernels;              /* of each kernel, alone */
  CollectiveTiming *collectives; /* of each collective */
  CollectiveLoad *loads;         /* distinct ones, of collectives among several ranks */
  int n_loads;
  gboolean mixes;     /* collectives in a node and between nodes use the same links */
  gboolean contends;  /* FALSE: kernels and collectives do not slow each other down */
  KernelParts *parts; /* of each kernel; only if it contends */
  KnownRate *known;
} Timing;

void timing_init(Timing *timing, const Program *program, const ClusterSpec *cluster);
void timing_clear(Timing *timing);

/* A device's group of works that slow each other down; NULL when nothing does.  Kernels belong to
 * it only if the Timing contends.  Rate classes are timing_collective_class() and
 * timing_kernel_class(). */
RateGroup *timing_group_new(Timing *timing, Engine *engine);

/* How long a kernel takes alone on a rank whose kernels take so many times as long; what moves over
 * the host's link takes no longer. */
SimTime timing_kernel(const Timing *timing, gint32 kernel, double slowness);

static inline int
timing_collective_class(const Timing *timing, gint32 collective)
{
  return timing->collectives[collective].load;
}

static inline int
timing_kernel_class(const Timing *timing, gint32 kernel)
{
  return timing->n_loads + kernel;
}

#endif
