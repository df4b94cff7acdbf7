/* host_thread.c - the host's clock: costs from the device profile, waits from the engine. */
#include "exec/host_thread.h"

#include "base/units.h"
#include <string.h>

/* Of a MiB; a device whose work takes no time has a host whose work does not either. */
static double
memory_ns(const DeviceProfile *device)
{
  gboolean running = device->clock == CLOCK_RUNNING && device->host_memory_bandwidth > 0;
  return running ? MIB / device->host_memory_bandwidth * 1e9 : 0;
}

void
host_thread_init(HostThread *host, const DeviceProfile *device)
{
  const double work_ns[HOST_WORK_COUNT] = {
      [HOST_WORK_OP_FORWARD] = device->host_op_forward_ns,
      [HOST_WORK_OP_BACKWARD] = device->host_op_backward_ns,
      [HOST_WORK_HOOK] = device->host_hook_ns,
      [HOST_WORK_COLLECTIVE_CALL] = device->host_collective_ns,
      [HOST_WORK_OPTIMIZER] = device->host_optimizer_ns,
      [HOST_WORK_MODULE] = device->host_module_ns,
      [HOST_WORK_COMPILED_REGION] = device->host_compiled_region_ns,
      [HOST_WORK_COMPILED_KERNEL] = device->host_compiled_kernel_ns,
      [HOST_WORK_MEMORY] = memory_ns(device),
  };
  memcpy(host->work_ns, work_ns, sizeof(work_ns));
}

void
host_thread_look(HostThread *host)
{
  if (host->turn != NULL)
    host_turn_look(host->turn, host->now);
  else
    engine_run_to(host->engine, host->now);
}

gboolean
host_thread_sees(HostThread *host, SyncPoint *point)
{
  host_thread_look(host);
  return progress_is_done(host->progress, point);
}

static gboolean
wait_for(HostThread *host, SyncPoint *point)
{
  return host->turn != NULL ? host_turn_wait(host->turn, host->now, point)
                            : engine_run_until(host->engine, point);
}

gboolean
host_thread_stall(HostThread *host, SyncPoint *const *points, guint n)
{
  gboolean all = TRUE;
  for (guint i = 0; i < n; i++) {
    if (wait_for(host, points[i]))
      host->now = MAX(host->now, sync_point_time(points[i]));
    else
      all = FALSE;
  }
  return all;
}

gboolean
host_thread_wait(HostThread *host, SyncPoint *const *points, guint n)
{
  for (guint i = 0; i < n; i++)
    progress_finish(host->progress, points[i]);
  return host_thread_stall(host, points, n);
}
