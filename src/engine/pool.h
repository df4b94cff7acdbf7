/* pool.h - many small objects of one size: blocks, and a list of those given back. */
#ifndef HIGHWATER_ENGINE_POOL_H
#define HIGHWATER_ENGINE_POOL_H

#include <glib.h>

/* Fields are private. */
typedef struct {
  gsize size;
  gpointer given_back; /* the first of a list linked through the objects' first word */
  char *next, *end;    /* unused rest of the newest block */
  GPtrArray *blocks;
} Pool;

/* Objects of that many bytes, a multiple of the size of a pointer. */
void pool_init(Pool *pool, gsize size);
/* Frees all objects, given back or not. */
void pool_clear(Pool *pool);
/* Starts a new block; for pool_take(). */
void pool_grow(Pool *pool);

/* An object with undefined contents; belongs to the pool. */
static inline gpointer
pool_take(Pool *pool)
{
  gpointer object = pool->given_back;

  if (G_LIKELY(object != NULL)) {
    pool->given_back = *(gpointer *) object;
    return object;
  }
  if (G_UNLIKELY(pool->next == pool->end))
    pool_grow(pool);
  object = pool->next;
  pool->next += pool->size;
  return object;
}

/* Makes the object available to the next pool_take(). */
static inline void
pool_give_back(Pool *pool, gpointer object)
{
  *(gpointer *) object = pool->given_back;
  pool->given_back = object;
}

#endif
