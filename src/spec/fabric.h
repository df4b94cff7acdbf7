/* fabric.h - what connects GPUs, inside a node and between nodes: the constants that a cluster file
 * need not repeat. */
#ifndef HIGHWATER_SPEC_FABRIC_H
#define HIGHWATER_SPEC_FABRIC_H

#include <glib.h>

#include "spec/protocol_line.h"

typedef enum { FABRIC_NVSWITCH, FABRIC_NVLINK, FABRIC_PCIE } IntraFabric;
typedef enum {
  FABRIC_INFINIBAND,
  FABRIC_ROCE,
  FABRIC_EFA,
  FABRIC_SLINGSHOT,
  FABRIC_TCP
} InterFabric;

/* Names as in cluster files, NULL-terminated, in the order of the enums.  Each has a file
 * models/fabric/NAME.json. */
extern const char *const intra_fabric_names[];
extern const char *const inter_fabric_names[];

/* Links inside a node.  Of the two bandwidths one is 0. */
typedef struct {
  double nvlink_busbw_fraction; /* of the device's nvlink_busbw */
  double busbw;                 /* bytes per second, where NVLink plays no role */
  double beyond_node_fraction;  /* of its bus bandwidth that a ring reaches which leaves the node */
  double one_way_fraction; /* times the bus bandwidth, where data flow one way: broadcast, reduce */
  double base_latency_ns;  /* of any collective; these two are the ring's with Simple */
  double hop_latency_ns;   /* per step of the ring that stays in the node */
  double pipeline_ns;      /* see ProtocolLine */
  ProtocolLine lines[LINE_COUNT]; /* but ring with Simple */
  gint64
      nccl_bytes_per_communicator; /* device memory a communicator takes, outside the allocator */
  int collective_sms;              /* SMs that a collective inside a node holds: NCCL's channels */
  double contention_sm_factor, contention_memory_limit, contention_collective_slowdown;
} IntraFabricProfile;

/* Links between nodes. */
typedef struct {
  double hop_latency_ns;          /* per step of the ring with Simple that crosses nodes */
  double pipeline_ns;             /* see ProtocolLine */
  double efficiency;              /* fraction of the line rate that collectives reach */
  double nic_bandwidth;           /* bytes per second of the usual NIC */
  ProtocolLine lines[LINE_COUNT]; /* but ring with Simple */
  double
      collective_sms_per_bandwidth; /* SMs that a collective holds, per byte per second of NICs */
  int collective_sms_min;           /* but at least so many */
} InterFabricProfile;

/* Load the constants of a fabric from its file.  Errors: missing file, key or value, as for every
 * file of ours. */
gboolean intra_fabric_load(IntraFabric fabric, IntraFabricProfile *profile, GError **error);
gboolean inter_fabric_load(InterFabric fabric, InterFabricProfile *profile, GError **error);

#endif
