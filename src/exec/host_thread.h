/* host_thread.h - the clock of a rank's host: what its work costs and when it is held up. */
#ifndef HIGHWATER_EXEC_HOST_THREAD_H
#define HIGHWATER_EXEC_HOST_THREAD_H

#include "engine/engine.h"
#include "exec/host_turns.h"
#include "exec/progress.h"
#include "exec/span_log.h"
#include "spec/device_profile.h"

/* The host runs ahead of the engine's clock, never behind it. */
typedef struct {
  Engine *engine;
  SpanLog *spans;
  Progress *progress;
  HostTurn *turn; /* NULL: it is the only host */
  SimTime now;
  double work_ns[HOST_WORK_COUNT]; /* of one */
} HostThread;

/* engine, spans, progress and turn are set already; the rest is filled in. */
void host_thread_init(HostThread *host, const DeviceProfile *device);

/* Passes the time of count works. */
static inline void
host_thread_work(HostThread *host, HostWork kind, int count)
{
  host->now += (SimTime) (host->work_ns[kind] * count + 0.5);
}

/* Brings the engine up to the host's time: what the host would see if it looked at the device now.
 */
void host_thread_look(HostThread *host);

/* Whether the host, looking now, finds the point done (cudaEventQuery). */
gboolean host_thread_sees(HostThread *host, SyncPoint *point);

/* Waits until all points have fired.  FALSE when one never will; no time passes for that one. */
gboolean host_thread_wait(HostThread *host, SyncPoint *const *points, guint n);
/* The same where the driver waits of its own accord (cudaMalloc): an endless device has done
 * nothing by then. */
gboolean host_thread_stall(HostThread *host, SyncPoint *const *points, guint n);

#endif
