/* cluster_spec.h - the machine: which GPU, how many in a node, what connects them. */
#ifndef HIGHWATER_SPEC_CLUSTER_SPEC_H
#define HIGHWATER_SPEC_CLUSTER_SPEC_H

#include <glib.h>

#include "spec/device_profile.h"
#include "spec/fabric.h"

/* What running collectives take from kernels, and kernels from them; section "contention", defaults
 * the fabrics'. */
typedef struct {
  gboolean enabled;
  int intra_sms;                  /* SMs that a collective inside a node holds */
  double inter_sms_per_bandwidth; /* and one over the network, per byte per second of NICs, */
  int inter_sms_min;              /* at least, and never more than inside a node */
  double sm_factor;               /* see KernelRivals */
  double memory_limit;            /* fraction of the memory's bandwidth, at most */
  double collective_slowdown;     /* >= 1: of a collective while kernels run */
} ContentionSpec;

typedef struct {
  char *name;
  DeviceProfile *device;
  int gpus_per_node;
  IntraFabric intra_node;
  InterFabric inter_node;
  int nics;             /* per node */
  double nic_bandwidth; /* bytes per second of one NIC */
  /* section "nccl": alpha-beta of this first model, per link kind; defaults: the two fabrics' */
  double intra_busbw;      /* bytes per second of bus bandwidth inside a node */
  double inter_efficiency; /* fraction of the NICs' bandwidth reached */
  double base_latency_ns, intra_hop_ns, inter_hop_ns;
  /* section "process_memory": bytes outside the caching allocator */
  gint64 context_bytes;               /* default: the device's */
  gint64 nccl_bytes_per_communicator; /* default: the intra-node fabric's */
  ContentionSpec contention;
} ClusterSpec;

/* Loads a preset name or file ("-": standard input). */
ClusterSpec *cluster_spec_load(const char *preset_or_path, GError **error);
ClusterSpec *cluster_spec_parse(const char *name, const char *text, gsize length, GError **error);
void cluster_spec_free(ClusterSpec *spec);
G_DEFINE_AUTOPTR_CLEANUP_FUNC(ClusterSpec, cluster_spec_free)

#endif
