/* device_memory.h - a rank's storages in its caching allocator, which meets the device's time here.
 */
#ifndef HIGHWATER_EXEC_DEVICE_MEMORY_H
#define HIGHWATER_EXEC_DEVICE_MEMORY_H

#include "exec/gpu.h"
#include "exec/host_thread.h"
#include "exec/labels.h"
#include "memory/caching_allocator.h"
#include "program/program.h"
#include "record/recorder.h"

/* A storage while it lives; pinned and host memory, and storages of no bytes, never reach the
 * allocator. */
typedef struct {
  BlockHandle block;
  gint32 allocation; /* its number in the Recording */
} StorageBlock;

typedef struct {
  const Program *program;
  const Labels *labels;
  HostThread *host;
  Gpu *gpu;
  Recorder *recorder;
  CachingAllocator *allocator;
  StorageBlock *blocks; /* of each storage of the Program */
  GArray *waiting;      /* StorageBlock: freed, but other streams may still use them; as freed */
  double malloc_ns, free_ns;
} DeviceMemory;

/* program, labels, host, gpu and recorder are set already; the rest is filled in. */
void device_memory_init(DeviceMemory *memory, const AllocatorConfig *config,
                        const DeviceProfile *device);
void device_memory_clear(DeviceMemory *memory);

/* ALLOC.  FALSE when out of memory, which is then in the Recording. */
gboolean device_memory_allocate(DeviceMemory *memory, const ProgramOp *op);
/* FREE and RECORD_STREAM. */
void device_memory_release(DeviceMemory *memory, gint32 storage);
void device_memory_record_stream(DeviceMemory *memory, gint32 storage, StreamId stream);

/* The run is over: the Recording learns which frees still wait. */
void device_memory_finish(DeviceMemory *memory);

/* Renames storages (Carry). */
void device_memory_carry(DeviceMemory *memory, const GArray *carries);

/* RecorderLevel of a DeviceMemory. */
MemoryLevel device_memory_level(gpointer user);

#endif
