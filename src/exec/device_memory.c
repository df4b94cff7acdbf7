/* device_memory.c - allocations on the host's timeline, and what segments and stream events cost
 * there. */
#include "exec/device_memory.h"

/* ---- what the allocator asks of the world; its events are points on the engine's streams ---- */

static guint64
record_event(gpointer user, int stream)
{
  DeviceMemory *memory = user;
  return (guint64) (guintptr) gpu_mark(memory->gpu, memory->host->now, (StreamId) stream);
}

static SyncPoint *
event_point(guint64 event)
{
  return (SyncPoint *) (guintptr) event;
}

static gboolean
event_done(gpointer user, guint64 event)
{
  const DeviceMemory *memory = user;
  return host_thread_sees(memory->host, event_point(event));
}

/* Before the second step segments are still being found; from then on what they cost is lost. */
static SpanKind
wait_kind(const DeviceMemory *memory)
{
  return memory->host->spans->step > 1 ? SPAN_LOST : SPAN_HOST_BLOCKED;
}

static void
synchronize_event(gpointer user, guint64 event)
{
  DeviceMemory *memory = user;
  HostThread *host = memory->host;
  SimTime start = host->now;
  SyncPoint *point = event_point(event);
  host_thread_wait(host, &point, 1);
  span_log_host(host->spans, wait_kind(memory), "cudaEventSynchronize", start, host->now);
}

/* Waits until the streams have done what was issued to them: all, or one. */
static void
synchronize(DeviceMemory *memory, gboolean all, StreamId stream)
{
  SyncPoint *points[STREAM_COUNT];
  guint n = 1;
  if (all) {
    gpu_mark_all(memory->gpu, memory->host->now, points);
    n = STREAM_COUNT;
  } else {
    points[0] = gpu_mark(memory->gpu, memory->host->now, stream);
  }
  host_thread_stall(memory->host, points, n);
}

/* What a segment's coming or going holds the host up with.  cudaMalloc and cudaFree synchronize the
 * device; PyTorch's expandable segments wait for their own stream before they unmap, and for
 * nothing before they map. */
static const struct {
  const char *call;
  enum { WAIT_NONE, WAIT_STREAM, WAIT_DEVICE } wait;
  gboolean frees;
} segment_calls[] = {
    [SEGMENT_ALLOC] = {"cudaMalloc", WAIT_DEVICE, FALSE},
    [SEGMENT_FREE] = {"cudaFree", WAIT_DEVICE, TRUE},
    [SEGMENT_MAP] = {"cuMemMap", WAIT_NONE, FALSE},
    [SEGMENT_UNMAP] = {"cuMemUnmap", WAIT_STREAM, TRUE},
};

static void
segment(gpointer user, SegmentAction action, int stream, guint64 address, gint64 bytes)
{
  DeviceMemory *memory = user;
  HostThread *host = memory->host;
  SimTime start = host->now;
  if (segment_calls[action].wait != WAIT_NONE)
    synchronize(memory, segment_calls[action].wait == WAIT_DEVICE, (StreamId) stream);
  host->now +=
      (SimTime) ((segment_calls[action].frees ? memory->free_ns : memory->malloc_ns) + 0.5);
  span_log_host(host->spans, wait_kind(memory), segment_calls[action].call, start, host->now);
  SegmentEvent event = {.time = host->now,
                        .address = address,
                        .bytes = bytes,
                        .action = (guint8) action,
                        .stream = (guint8) stream};
  recorder_segment(memory->recorder, &event);
}

static void
free_completed(gpointer user, BlockHandle block)
{
  DeviceMemory *memory = user;
  guint i = 0;
  while (g_array_index(memory->waiting, StorageBlock, i).block != block)
    i++;
  recorder_complete(memory->recorder, g_array_index(memory->waiting, StorageBlock, i).allocation,
                    memory->host->now);
  g_array_remove_index(memory->waiting, i);
}

/* ---- storages ---- */

void
device_memory_init(DeviceMemory *memory, const AllocatorConfig *config, const DeviceProfile *device)
{
  AllocatorHost host = {.user = memory,
                        .record_event = record_event,
                        .event_done = event_done,
                        .synchronize_event = synchronize_event,
                        .segment = segment,
                        .free_completed = free_completed};
  memory->allocator = caching_allocator_new(config, &host);
  memory->waiting = g_array_new(FALSE, FALSE, sizeof(StorageBlock));
  memory->malloc_ns = device->cuda_malloc_ns;
  memory->free_ns = device->cuda_free_ns;
  guint n = memory->program->storages->len;
  memory->blocks = g_new(StorageBlock, n);
  for (guint i = 0; i < n; i++)
    memory->blocks[i] = (StorageBlock){BLOCK_NONE, -1};
}

void
device_memory_clear(DeviceMemory *memory)
{
  caching_allocator_free(memory->allocator);
  g_array_unref(memory->waiting);
  g_free(memory->blocks);
}

void
device_memory_finish(DeviceMemory *memory)
{
  for (guint i = 0; i < memory->waiting->len; i++)
    recorder_complete(memory->recorder, g_array_index(memory->waiting, StorageBlock, i).allocation,
                      -1);
}

static void
record_failure(DeviceMemory *memory, const Storage *storage, int stream,
               const AllocatorFailure *failure)
{
  OutOfMemoryRecord record = {.module = labels_module(memory->labels, storage->module),
                              .what = labels_name(memory->labels, storage->what),
                              .requested_bytes = failure->requested_bytes,
                              .segment_bytes = failure->segment_bytes,
                              .limit_bytes = failure->limit_bytes,
                              .allocated_bytes = failure->allocated_bytes,
                              .reserved_bytes = failure->reserved_bytes,
                              .category = storage->category,
                              .stream = (guint8) stream};
  recorder_out_of_memory(memory->recorder, &record);
}

gboolean
device_memory_allocate(DeviceMemory *memory, const ProgramOp *op)
{
  const Storage *storage = &g_array_index(memory->program->storages, Storage, op->a);
  StorageBlock *block = &memory->blocks[op->a];
  g_assert(block->block == BLOCK_NONE);
  if (storage->space != SPACE_DEVICE || storage->bytes == 0)
    return TRUE;
  AllocatorFailure failure;
  block->block = caching_allocator_malloc(memory->allocator, storage->bytes, op->stream, &failure);
  if (block->block == BLOCK_NONE) {
    record_failure(memory, storage, op->stream, &failure);
    return FALSE;
  }
  const AllocatorStats *stats = caching_allocator_stats(memory->allocator);
  MemoryEvent event = {.time = memory->host->now,
                       .requested_bytes = storage->bytes,
                       .block_bytes = caching_allocator_block_size(memory->allocator, block->block),
                       .allocated_after = stats->allocated_bytes.current,
                       .reserved_after = stats->reserved_bytes.current,
                       .address = caching_allocator_address(memory->allocator, block->block),
                       .category = storage->category,
                       .stream = op->stream,
                       .module = labels_module(memory->labels, storage->module),
                       .what = labels_name(memory->labels, storage->what)};
  block->allocation = recorder_allocate(memory->recorder, &event);
  return TRUE;
}

void
device_memory_release(DeviceMemory *memory, gint32 storage)
{
  StorageBlock *block = &memory->blocks[storage];
  if (block->block == BLOCK_NONE)
    return;
  if (!caching_allocator_release(memory->allocator, block->block))
    g_array_append_val(memory->waiting, *block);
  const AllocatorStats *stats = caching_allocator_stats(memory->allocator);
  recorder_release(memory->recorder, block->allocation, memory->host->now,
                   stats->allocated_bytes.current, stats->reserved_bytes.current);
  block->block = BLOCK_NONE;
}

void
device_memory_record_stream(DeviceMemory *memory, gint32 storage, StreamId stream)
{
  BlockHandle block = memory->blocks[storage].block;
  if (block != BLOCK_NONE)
    caching_allocator_record_stream(memory->allocator, block, stream);
}

void
device_memory_carry(DeviceMemory *memory, const GArray *carries)
{
  /* All at once: a name may be given away and taken over. */
  g_autofree StorageBlock *moved = g_new(StorageBlock, carries->len);
  for (guint i = 0; i < carries->len; i++) {
    gint32 from = g_array_index(carries, Carry, i).from;
    moved[i] = memory->blocks[from];
    memory->blocks[from] = (StorageBlock){BLOCK_NONE, -1};
  }
  for (guint i = 0; i < carries->len; i++) {
    gint32 to = g_array_index(carries, Carry, i).to;
    g_assert(memory->blocks[to].block == BLOCK_NONE);
    memory->blocks[to] = moved[i];
  }
}

MemoryLevel
device_memory_level(gpointer user)
{
  const DeviceMemory *memory = user;
  const AllocatorStats *stats = caching_allocator_stats(memory->allocator);
  MemoryLevel level = {.allocated = stats->allocated_bytes.current,
                       .reserved = stats->reserved_bytes.current,
                       .peak_allocated = stats->allocated_bytes.peak,
                       .peak_reserved = stats->reserved_bytes.peak,
                       .retries = stats->num_alloc_retries};
  caching_allocator_reset_peak(memory->allocator);
  return level;
}
