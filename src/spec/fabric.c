/* fabric.c - reads what connects GPUs from models/fabric/NAME.json. */
#include "spec/fabric.h"

#include "base/json_reader.h"
#include "base/units.h"
#include "spec/preset.h"
#include "spec/profile_fields.h"

#define MICROSECONDS_MAX 1e6

const char *const intra_fabric_names[] = {"nvswitch", "nvlink", "pcie", NULL};
const char *const inter_fabric_names[] = {"infiniband", "roce", "efa", "slingshot", "tcp", NULL};

static const ProfileField intra_fields[] = {
    {"base_latency_us", PROFILE_DOUBLE, G_STRUCT_OFFSET(IntraFabricProfile, base_latency_ns),
     NS_PER_US, 0, MICROSECONDS_MAX},
    {"hop_latency_us", PROFILE_DOUBLE, G_STRUCT_OFFSET(IntraFabricProfile, hop_latency_ns),
     NS_PER_US, 0, MICROSECONDS_MAX},
    {"pipeline_us", PROFILE_DOUBLE, G_STRUCT_OFFSET(IntraFabricProfile, pipeline_ns), NS_PER_US, 0,
     MICROSECONDS_MAX},
    {"beyond_node_fraction", PROFILE_DOUBLE,
     G_STRUCT_OFFSET(IntraFabricProfile, beyond_node_fraction), 1, 1e-3, 1},
    {"one_way_fraction", PROFILE_DOUBLE, G_STRUCT_OFFSET(IntraFabricProfile, one_way_fraction), 1,
     1e-3, 10},
    {"nccl_bytes_per_communicator", PROFILE_BYTES,
     G_STRUCT_OFFSET(IntraFabricProfile, nccl_bytes_per_communicator), 1, 0, 1024.0 * GIB},
    {"collective_sms", PROFILE_INT, G_STRUCT_OFFSET(IntraFabricProfile, collective_sms), 1, 0,
     1024},
    {"contention_sm_factor", PROFILE_DOUBLE,
     G_STRUCT_OFFSET(IntraFabricProfile, contention_sm_factor), 1, 0, 100},
    {"contention_memory_limit", PROFILE_DOUBLE,
     G_STRUCT_OFFSET(IntraFabricProfile, contention_memory_limit), 1, 0, 0.99},
    {"contention_collective_slowdown", PROFILE_DOUBLE,
     G_STRUCT_OFFSET(IntraFabricProfile, contention_collective_slowdown), 1, 1, 100},
    {0},
};

static const ProfileField inter_fields[] = {
    {"hop_latency_us", PROFILE_DOUBLE, G_STRUCT_OFFSET(InterFabricProfile, hop_latency_ns),
     NS_PER_US, 0, MICROSECONDS_MAX},
    {"pipeline_us", PROFILE_DOUBLE, G_STRUCT_OFFSET(InterFabricProfile, pipeline_ns), NS_PER_US, 0,
     MICROSECONDS_MAX},
    {"efficiency", PROFILE_DOUBLE, G_STRUCT_OFFSET(InterFabricProfile, efficiency), 1, 1e-3, 1},
    {"gbit_per_nic", PROFILE_DOUBLE, G_STRUCT_OFFSET(InterFabricProfile, nic_bandwidth), GIGABIT,
     1e-3, 1e6},
    {"collective_sms_per_100_gbit", PROFILE_DOUBLE,
     G_STRUCT_OFFSET(InterFabricProfile, collective_sms_per_bandwidth), 1 / (100 * GIGABIT), 0,
     1024},
    {"collective_sms_min", PROFILE_INT, G_STRUCT_OFFSET(InterFabricProfile, collective_sms_min), 1,
     0, 1024},
    {0},
};

static JsonDocument *
load_document(const char *name, GError **error)
{
  g_autofree char *path = preset_find("fabric", name, error);
  return path ? json_document_load(path, error) : NULL;
}

gboolean
intra_fabric_load(IntraFabric fabric, IntraFabricProfile *profile, GError **error)
{
  g_autoptr(JsonDocument) document = load_document(intra_fabric_names[fabric], error);
  if (!document)
    return FALSE;
  g_autoptr(JsonReader) reader = json_reader_new(document);
  *profile = (IntraFabricProfile){0};
  profile_fields_read(reader, intra_fields, profile);
  protocol_lines_read(reader, "lines", profile->lines);
  profile->nvlink_busbw_fraction = json_reader_double(reader, "nvlink_busbw_fraction", 0, 1e-3, 1);
  profile->busbw = GIGA * json_reader_double(reader, "busbw_gb_per_s", 0, 1e-3, 1e6);
  if ((profile->busbw > 0) == (profile->nvlink_busbw_fraction > 0))
    json_reader_fail(reader, "busbw_gb_per_s", "give either this or nvlink_busbw_fraction");
  return json_reader_finish(reader, error);
}

gboolean
inter_fabric_load(InterFabric fabric, InterFabricProfile *profile, GError **error)
{
  g_autoptr(JsonDocument) document = load_document(inter_fabric_names[fabric], error);
  if (!document)
    return FALSE;
  g_autoptr(JsonReader) reader = json_reader_new(document);
  *profile = (InterFabricProfile){0};
  profile_fields_read(reader, inter_fields, profile);
  protocol_lines_read(reader, "lines", profile->lines);
  return json_reader_finish(reader, error);
}
