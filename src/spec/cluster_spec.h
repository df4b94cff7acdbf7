/* cluster_spec.h - the machine: which GPU, how many in a node, what connects them. */
#ifndef HIGHWATER_SPEC_CLUSTER_SPEC_H
#define HIGHWATER_SPEC_CLUSTER_SPEC_H

#include <glib.h>

#include "spec/collective_table.h"
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
  /* section "nccl"; defaults: the two fabrics' */
  double intra_busbw;      /* bytes per second of bus bandwidth inside a node, of all its GPUs */
  double beyond_node;      /* fraction of it that a ring reaches which leaves the node; 0: all */
  double one_way;          /* times it, where data flow one way; 0 counts as 1 */
  double inter_efficiency; /* fraction of the NICs' bandwidth reached */
  /* The ring's with Simple; _pipeline_ns as in ProtocolLine. */
  double base_latency_ns, intra_hop_ns, inter_hop_ns, intra_pipeline_ns, inter_pipeline_ns;
  ProtocolLine intra_lines[LINE_COUNT], inter_lines[LINE_COUNT]; /* the others, if present */
  GPtrArray *tables; /* CollectiveTable: measured, used instead of lines; NULL: none */
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
