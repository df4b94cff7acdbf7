/* cluster_spec.c - reads the machine: which GPU, how many in a node, what connects them. */
#include "spec/cluster_spec.h"

#include "base/json_reader.h"
#include "base/units.h"
#include "spec/preset.h"
#include "spec/profile_fields.h"
#include <string.h>

#define GPUS_PER_NODE_MAX 1024
/* Far above any GPU, far below what a sum of a few could overflow. */
#define PROCESS_BYTES_MAX (1024 * GIB)

/* What the files of the device and of the two fabrics say, for keys that the cluster leaves out. */
typedef struct {
  IntraFabricProfile intra;
  InterFabricProfile inter;
} FabricDefaults;

/* A quantity in the file's unit: `scale` struct units each, in [min, max]. */
typedef struct {
  double scale, min, max;
} Unit;

static const Unit gb_per_s = {GIGA, 1e-3, 1e6};
static const Unit gbit_per_s = {GIGABIT, 1e-3, 1e6};
static const Unit microseconds = {NS_PER_US, 0, 1e6};

/* fallback is in the struct's unit. */
static double
read_quantity(JsonReader *reader, const char *key, Unit unit, double fallback)
{
  if (!json_reader_has(reader, key))
    return fallback;
  return unit.scale * json_reader_double(reader, key, unit.min, unit.min, unit.max);
}

/* A profile that stands in the cluster's file. */
static void
read_own_device(JsonReader *reader, ClusterSpec *spec)
{
  g_autoptr(JsonReader) section = json_reader_section(reader, "device");
  spec->device = device_profile_read(section, json_reader_string(section, "name", spec->name));
  json_reader_finish(section, NULL);
}

static void
read_device(JsonReader *reader, ClusterSpec *spec)
{
  if (cJSON_IsObject(json_reader_raw(reader, "device"))) {
    read_own_device(reader, spec);
    return;
  }
  const char *name = json_reader_required_string(reader, "device");
  if (g_str_equal(name, "-")) {
    json_reader_fail(reader, "device", "cannot be standard input");
    return;
  }
  g_autoptr(GError) error = NULL;
  spec->device = device_profile_load(name, &error);
  if (!spec->device)
    json_reader_fail(reader, "device", "%s", error->message);
}

static void
read_intra_node(JsonReader *reader, ClusterSpec *spec, FabricDefaults *defaults)
{
  g_autoptr(JsonReader) section = json_reader_section(reader, "intra_node");
  spec->intra_node =
      (IntraFabric) json_reader_enum(section, "fabric", intra_fabric_names, FABRIC_NVSWITCH);
  g_autoptr(GError) error = NULL;
  if (!intra_fabric_load(spec->intra_node, &defaults->intra, &error))
    json_reader_fail(section, "fabric", "%s", error->message);
  json_reader_finish(section, NULL);
}

static void
read_inter_node(JsonReader *reader, ClusterSpec *spec, FabricDefaults *defaults)
{
  g_autoptr(JsonReader) section = json_reader_section(reader, "inter_node");
  spec->inter_node =
      (InterFabric) json_reader_enum(section, "fabric", inter_fabric_names, FABRIC_INFINIBAND);
  g_autoptr(GError) error = NULL;
  if (!inter_fabric_load(spec->inter_node, &defaults->inter, &error))
    json_reader_fail(section, "fabric", "%s", error->message);
  spec->nics = (int) json_reader_int(section, "nics", spec->gpus_per_node, 1, GPUS_PER_NODE_MAX);
  spec->nic_bandwidth =
      read_quantity(section, "gbit_per_nic", gbit_per_s, defaults->inter.nic_bandwidth);
  json_reader_finish(section, NULL);
}

/* Latencies of the ring with Simple that a cluster sets set the pace of all other lines too. */
static void
scale_lines(ProtocolLine lines[LINE_COUNT], gsize offset, double from, double to)
{
  for (int id = 0; id < LINE_COUNT && from > 0; id++)
    *(double *) (gpointer) ((char *) &lines[id] + offset) *= to / from;
}

/* The constants of lines: the fabrics', as the cluster's latencies scale them, and its own. */
static void
read_lines(JsonReader *section, ClusterSpec *spec, const FabricDefaults *defaults)
{
  const IntraFabricProfile *intra = &defaults->intra;
  const InterFabricProfile *inter = &defaults->inter;
  memcpy(spec->intra_lines, intra->lines, sizeof spec->intra_lines);
  memcpy(spec->inter_lines, inter->lines, sizeof spec->inter_lines);
  scale_lines(spec->intra_lines, G_STRUCT_OFFSET(ProtocolLine, base_ns), intra->base_latency_ns,
              spec->base_latency_ns);
  scale_lines(spec->intra_lines, G_STRUCT_OFFSET(ProtocolLine, hop_ns), intra->hop_latency_ns,
              spec->intra_hop_ns);
  scale_lines(spec->inter_lines, G_STRUCT_OFFSET(ProtocolLine, hop_ns), inter->hop_latency_ns,
              spec->inter_hop_ns);
  protocol_lines_read(section, "intra_lines", spec->intra_lines);
  protocol_lines_read(section, "inter_lines", spec->inter_lines);
}

static void
read_nccl(JsonReader *reader, ClusterSpec *spec, const FabricDefaults *defaults)
{
  const IntraFabricProfile *intra = &defaults->intra;
  double nvlink_busbw = spec->device ? spec->device->nvlink_busbw : 0;
  double intra_busbw =
      intra->busbw > 0 ? intra->busbw : intra->nvlink_busbw_fraction * nvlink_busbw;
  g_autoptr(JsonReader) section = json_reader_section(reader, "nccl");
  spec->intra_busbw = read_quantity(section, "intra_busbw_gb_per_s", gb_per_s, intra_busbw);
  spec->inter_efficiency =
      json_reader_double(section, "inter_efficiency", defaults->inter.efficiency, 1e-3, 1);
  spec->base_latency_ns =
      read_quantity(section, "base_latency_us", microseconds, intra->base_latency_ns);
  spec->intra_hop_ns =
      read_quantity(section, "intra_hop_latency_us", microseconds, intra->hop_latency_ns);
  spec->inter_hop_ns =
      read_quantity(section, "inter_hop_latency_us", microseconds, defaults->inter.hop_latency_ns);
  if (spec->device != NULL && spec->intra_busbw <= 0)
    json_reader_fail(reader, "intra_node", "%s has no NVLink: its fabric is pcie",
                     spec->device->name);
  spec->intra_pipeline_ns =
      read_quantity(section, "intra_pipeline_us", microseconds, intra->pipeline_ns);
  spec->inter_pipeline_ns =
      read_quantity(section, "inter_pipeline_us", microseconds, defaults->inter.pipeline_ns);
  spec->beyond_node =
      json_reader_double(section, "beyond_node_fraction", intra->beyond_node_fraction, 1e-3, 1);
  spec->one_way =
      json_reader_double(section, "one_way_fraction", intra->one_way_fraction, 1e-3, 10);
  read_lines(section, spec, defaults);
  spec->tables = collective_tables_read(section, "tables");
  json_reader_finish(section, NULL);
}

static void
read_process_memory(JsonReader *reader, ClusterSpec *spec, const FabricDefaults *defaults)
{
  g_autoptr(JsonReader) section = json_reader_section(reader, "process_memory");
  gint64 context_bytes = spec->device ? spec->device->context_bytes : 0;
  spec->context_bytes =
      json_reader_size_between(section, "context_bytes", context_bytes, 0, PROCESS_BYTES_MAX);
  spec->nccl_bytes_per_communicator =
      json_reader_size_between(section, "nccl_bytes_per_communicator",
                               defaults->intra.nccl_bytes_per_communicator, 0, PROCESS_BYTES_MAX);
  json_reader_finish(section, NULL);
}

static void
read_contention(JsonReader *reader, ClusterSpec *spec, const FabricDefaults *defaults)
{
  const IntraFabricProfile *intra = &defaults->intra;
  ContentionSpec *contention = &spec->contention;
  g_autoptr(JsonReader) section = json_reader_section(reader, "contention");
  contention->enabled = json_reader_bool(section, "enabled", TRUE);
  contention->intra_sms =
      (int) json_reader_int(section, "collective_sms", intra->collective_sms, 0, 1024);
  contention->inter_sms_per_bandwidth = defaults->inter.collective_sms_per_bandwidth;
  contention->inter_sms_min = defaults->inter.collective_sms_min;
  contention->sm_factor =
      json_reader_double(section, "sm_factor", intra->contention_sm_factor, 0, 100);
  contention->memory_limit =
      json_reader_double(section, "memory_limit", intra->contention_memory_limit, 0, 0.99);
  contention->collective_slowdown = json_reader_double(
      section, "collective_slowdown", intra->contention_collective_slowdown, 1, 100);
  json_reader_finish(section, NULL);
}

/* Takes name and document. */
static ClusterSpec *
cluster_spec_from_document(char *name, JsonDocument *owned, GError **error)
{
  g_autoptr(JsonDocument) document = owned;
  g_autoptr(JsonReader) reader = json_reader_new(document);
  g_autoptr(ClusterSpec) spec = g_new0(ClusterSpec, 1);
  FabricDefaults defaults = {0};
  spec->name = name;
  read_device(reader, spec);
  spec->gpus_per_node =
      (int) json_reader_required_int(reader, "gpus_per_node", 1, GPUS_PER_NODE_MAX);
  read_intra_node(reader, spec, &defaults);
  read_inter_node(reader, spec, &defaults);
  read_nccl(reader, spec, &defaults);
  read_process_memory(reader, spec, &defaults);
  read_contention(reader, spec, &defaults);
  if (!json_reader_finish(reader, error))
    return NULL;
  return g_steal_pointer(&spec);
}

ClusterSpec *
cluster_spec_load(const char *preset_or_path, GError **error)
{
  g_autofree char *path = preset_find("cluster", preset_or_path, error);
  if (!path)
    return NULL;
  JsonDocument *document = json_document_load(path, error);
  return document ? cluster_spec_from_document(preset_name_of(path), document, error) : NULL;
}

ClusterSpec *
cluster_spec_parse(const char *name, const char *text, gsize length, GError **error)
{
  JsonDocument *document = json_document_parse(name, text, length, error);
  return document ? cluster_spec_from_document(preset_name_of(name), document, error) : NULL;
}

void
cluster_spec_free(ClusterSpec *spec)
{
  if (!spec)
    return;
  device_profile_free(spec->device);
  g_clear_pointer(&spec->tables, g_ptr_array_unref);
  g_free(spec->name);
  g_free(spec);
}
