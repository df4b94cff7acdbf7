/* item_queue.c - chunks of an item queue. */
#include "engine/item_queue.h"

void
item_queue_grow(ItemQueue *queue, Pool *chunks)
{
  ItemChunk *chunk = pool_take(chunks);

  if (queue->last != NULL) {
    queue->last->end = queue->write;
    queue->last->next = chunk;
  } else {
    queue->first = chunk;
  }
  queue->last = chunk;
  queue->write = 0;
}

void
item_queue_foreach(const ItemQueue *queue, void (*visit)(const Item *item, gpointer user),
                   gpointer user)
{
  guint offset = queue->read;

  for (ItemChunk *chunk = queue->first; chunk != NULL; chunk = chunk->next, offset = 0) {
    guint end = chunk == queue->last ? queue->write : chunk->end;

    while (offset < end) {
      const Item *item = item_at(chunk, offset);

      visit(item, user);
      offset += item_size(item);
    }
    if (chunk == queue->last)
      break;
  }
}
