/* item_queue.h - what a stream has still to do: items of two sizes, written and read in sequence.
 *
 * Whoever submits may be far ahead, so queues get long; they are lists of chunks, which memory
 * serves best, and empty ones keep a single chunk. */
#ifndef HIGHWATER_ENGINE_ITEM_QUEUE_H
#define HIGHWATER_ENGINE_ITEM_QUEUE_H

#include <glib.h>

#include "base/units.h"
#include "engine/pool.h"
#include "engine/stream.h"

typedef enum { ITEM_WORK, ITEM_RECORD, ITEM_WAIT } ItemKind;

typedef struct {
  SimTime not_before;
  ItemKind kind;
} Item;

typedef struct {
  Item item;
  Work work;
} WorkItem;

/* A record or a wait. */
typedef struct {
  Item item;
  SyncPoint *point;
} PointItem;

#define ITEM_CHUNK_BYTES 1008

typedef struct _ItemChunk {
  struct _ItemChunk *next;
  guint end; /* bytes written; only once there is a next one */
  guint64 items[ITEM_CHUNK_BYTES / sizeof(guint64)];
} ItemChunk;

/* Fields are private.  All zero is an empty queue.  Chunks come from a pool of ItemChunk. */
typedef struct {
  ItemChunk *first, *last;
  guint read, write; /* offsets in first and in last */
} ItemQueue;

static inline Item *
item_at(ItemChunk *chunk, guint offset)
{
  return (Item *) (gpointer) ((char *) chunk->items + offset);
}

static inline guint
item_size(const Item *item)
{
  return item->kind == ITEM_WORK ? sizeof(WorkItem) : sizeof(PointItem);
}

/* The item whose turn it is, NULL when the queue is empty. */
static inline Item *
item_queue_first(const ItemQueue *queue)
{
  if (queue->first == queue->last && queue->read == queue->write)
    return NULL;
  return item_at(queue->first, queue->read);
}

/* Starts a new chunk; for item_queue_add(). */
void item_queue_grow(ItemQueue *queue, Pool *chunks);

/* Appends an item of that kind; the caller fills in the rest. */
static inline Item *
item_queue_add(ItemQueue *queue, Pool *chunks, ItemKind kind)
{
  guint size = kind == ITEM_WORK ? sizeof(WorkItem) : sizeof(PointItem);
  Item *item;

  if (G_UNLIKELY(queue->last == NULL || queue->write + size > ITEM_CHUNK_BYTES))
    item_queue_grow(queue, chunks);
  item = item_at(queue->last, queue->write);
  item->kind = kind;
  queue->write += size;
  return item;
}

/* Removes the first item; what pointed at it is invalid from then on. */
static inline void
item_queue_remove(ItemQueue *queue, Pool *chunks)
{
  queue->read += item_size(item_at(queue->first, queue->read));
  if (queue->first == queue->last) {
    if (queue->read == queue->write)
      queue->read = queue->write = 0;
  } else if (queue->read == queue->first->end) {
    ItemChunk *chunk = queue->first;

    queue->first = chunk->next;
    queue->read = 0;
    pool_give_back(chunks, chunk);
  }
}

/* Calls visit(item, user) for every item in order. */
void item_queue_foreach(const ItemQueue *queue, void (*visit)(const Item *item, gpointer user),
                        gpointer user);

#endif
