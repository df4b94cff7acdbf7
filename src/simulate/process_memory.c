/* process_memory.c - what the allocator may reserve of a device, beside what the process holds
 * outside of it. */
#include "simulate/process_memory.h"

/* The context, and buffers of communicators. */
static gint64
outside_allocator(const ClusterSpec *cluster, const Program *program)
{
  gint64 bytes = cluster->context_bytes;
  for (guint i = 0; i < program->communicators->len; i++)
    if (g_array_index(program->communicators, Communicator, i).ranks > 1)
      bytes += cluster->nccl_bytes_per_communicator;
  return bytes;
}

void
limit_memory(ExecutorConfig *config, const Program *program, gint64 limit)
{
  const ClusterSpec *cluster = config->cluster;
  config->outside_allocator_bytes = outside_allocator(cluster, program);
  gint64 left = cluster->device->memory_bytes - config->outside_allocator_bytes;
  config->allocator.memory_limit = limit > 0 ? limit : MAX(left, 1);
  config->allocator.device_total_bytes = cluster->device->memory_bytes;
}
