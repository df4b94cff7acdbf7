/* fuzz_cluster.c - any bytes as a cluster file and as a device file. */
#include "fuzz.h"
#include "spec/cluster_spec.h"

int
LLVMFuzzerTestOneInput(const guint8 *data, gsize size)
{
  const char *text = (const char *) data;
  g_autoptr(GError) error = NULL;
  g_autoptr(ClusterSpec) cluster = cluster_spec_parse("input", text, size, &error);
  g_assert((cluster == NULL) == (error != NULL));
  if (cluster) {
    g_assert(cluster->device && cluster->gpus_per_node >= 1 && cluster->nics >= 1);
    g_assert(cluster->intra_busbw > 0 && cluster->nic_bandwidth > 0);
    g_assert(cluster->context_bytes >= 0 && cluster->nccl_bytes_per_communicator >= 0);
  }

  g_clear_error(&error);
  g_autoptr(DeviceProfile) device = device_profile_parse("input", text, size, &error);
  g_assert((device == NULL) == (error != NULL));
  if (device)
    g_assert(device->sms >= 1 && device->memory_bytes > 0 && device->memory_bandwidth > 0);
  return 0;
}
