/* allocator_events.c - memory used on several streams: recorded uses, and frees that wait for
 * events.
 *
 * c10/cuda/CUDACachingAllocator.cpp: recordStream, insert_events, process_events,
 * synchronize_and_free_events. */
#include "memory/allocator_internal.h"

static StreamUse *
use_at(const CachingAllocator *allocator, gint32 index)
{
  return &g_array_index(allocator->uses, StreamUse, index);
}

void
stream_uses_add(CachingAllocator *allocator, BlockHandle block, int stream)
{
  Block *entry = block_at(allocator, block);
  for (gint32 i = entry->uses; i >= 0; i = use_at(allocator, i)->next) {
    if (use_at(allocator, i)->stream == stream)
      return;
  }
  StreamUse use = {stream, entry->uses};
  gint32 index = allocator->unused_use;
  if (index >= 0) {
    allocator->unused_use = use_at(allocator, index)->next;
    *use_at(allocator, index) = use;
  } else {
    index = (gint32) allocator->uses->len;
    g_array_append_val(allocator->uses, use);
  }
  entry->uses = index;
}

static void
queue_push(PendingQueue *queue, PendingFree pending)
{
  if (queue->count == queue->capacity) {
    guint capacity = MAX(16, 2 * queue->capacity);
    PendingFree *items = g_new(PendingFree, capacity);
    for (guint i = 0; i < queue->count; i++)
      items[i] = queue->items[(queue->head + i) & (queue->capacity - 1)];
    g_free(queue->items);
    *queue = (PendingQueue){items, 0, queue->count, capacity};
  }
  queue->items[(queue->head + queue->count) & (queue->capacity - 1)] = pending;
  queue->count++;
}

static PendingFree
queue_pop(PendingQueue *queue)
{
  PendingFree pending = queue->items[queue->head];
  queue->head = (queue->head + 1) & (queue->capacity - 1);
  queue->count--;
  return pending;
}

void
pending_free_record(CachingAllocator *allocator, BlockHandle block)
{
  const AllocatorHost *host = &allocator->host;
  gint32 use = block_at(allocator, block)->uses;
  block_at(allocator, block)->uses = -1;
  while (use >= 0) {
    StreamUse *node = use_at(allocator, use);
    guint64 event = host->record_event ? host->record_event(host->user, node->stream) : 0;
    queue_push(&block_pool_stream(allocator, node->stream)->pending, (PendingFree){event, block});
    block_at(allocator, block)->events++;
    allocator->n_pending++;
    gint32 next = node->next;
    node->next = allocator->unused_use;
    allocator->unused_use = use;
    use = next;
  }
}

/* TRUE when the oldest event of the queue is over, waiting for it if told so. */
static gboolean
head_is_done(const AllocatorHost *host, const PendingQueue *queue, gboolean wait)
{
  guint64 event = queue->items[queue->head].event;
  if (!wait)
    return !host->event_done || host->event_done(host->user, event);
  if (host->synchronize_event)
    host->synchronize_event(host->user, event);
  return TRUE;
}

void
pending_free_process(CachingAllocator *allocator, gboolean wait)
{
  /* An event that is not over holds up those behind it on its own stream only. */
  for (int i = 0; allocator->n_pending > 0 && i < allocator->n_streams; i++) {
    PendingQueue *queue = &allocator->streams[i]->pending;
    while (queue->count > 0 && head_is_done(&allocator->host, queue, wait)) {
      BlockHandle block = queue_pop(queue).block;
      allocator->n_pending--;
      if (--block_at(allocator, block)->events > 0)
        continue;
      if (allocator->host.free_completed)
        allocator->host.free_completed(allocator->host.user, block);
      block_free(allocator, block);
    }
  }
}
