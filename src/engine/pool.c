/* pool.c - blocks of a pool. */
#include "engine/pool.h"

/* Large enough that blocks are few, small enough that an engine with little to do stays small. */
#define BLOCK_BYTES 32768

void
pool_init(Pool *pool, gsize size)
{
  g_assert(size > 0 && size <= BLOCK_BYTES && size % sizeof(gpointer) == 0);
  *pool = (Pool){.size = size, .blocks = g_ptr_array_new_with_free_func(g_free)};
}

void
pool_clear(Pool *pool)
{
  g_ptr_array_free(pool->blocks, TRUE);
  *pool = (Pool){0};
}

void
pool_grow(Pool *pool)
{
  gsize bytes = BLOCK_BYTES / pool->size * pool->size;

  pool->next = g_malloc(bytes);
  pool->end = pool->next + bytes;
  g_ptr_array_add(pool->blocks, pool->next);
}
