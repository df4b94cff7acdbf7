/* free_set.h - an ordered set of blocks by (bytes, address): what a pool has to give on one stream.
 *
 * Best fit is a lower bound, ties go to the lowest address.  Entries lie in sorted leaves of at
 * most FREE_SET_LEAF entries, so an insertion moves less than a leaf and the common set of some
 * dozen blocks is one sorted array.  Zero-initialized is empty; positions die with any change. */
#ifndef HIGHWATER_MEMORY_FREE_SET_H
#define HIGHWATER_MEMORY_FREE_SET_H

#include <glib.h>

#define FREE_SET_LEAF 64

typedef struct {
  gint64 bytes;
  guint64 address;
} FreeKey;

typedef struct {
  guint count;
  FreeKey keys[FREE_SET_LEAF];
  gint32 blocks[FREE_SET_LEAF];
} FreeLeaf;

/* Leaves are sorted among each other; only the leaf of an empty set is empty. */
typedef struct {
  FreeLeaf **leaves;
  guint n_leaves;
  guint capacity;
  guint count; /* entries in all leaves */
} FreeSet;

typedef struct {
  guint leaf, slot;
} FreePosition;

/* Frees what the set holds. */
void free_set_clear(FreeSet *set);
/* Adds a block; its key must not be there yet. */
void free_set_insert(FreeSet *set, FreeKey key, gint32 block);
/* Removes the entry of that key, which must be there. */
void free_set_remove(FreeSet *set, FreeKey key);
void free_set_remove_at(FreeSet *set, FreePosition position);

/* The first entry not below key; FALSE when all are. */
gboolean free_set_lower_bound(const FreeSet *set, FreeKey key, FreePosition *position);
/* The first and the last entry; FALSE when the set is empty. */
gboolean free_set_first(const FreeSet *set, FreePosition *position);
gboolean free_set_last(const FreeSet *set, FreePosition *position);
/* Steps to the neighbour; FALSE (and position unchanged) at the end. */
gboolean free_set_next(const FreeSet *set, FreePosition *position);
gboolean free_set_previous(const FreeSet *set, FreePosition *position);

static inline gint32
free_set_block(const FreeSet *set, FreePosition position)
{
  return set->leaves[position.leaf]->blocks[position.slot];
}

static inline FreeKey
free_set_key(const FreeSet *set, FreePosition position)
{
  return set->leaves[position.leaf]->keys[position.slot];
}

#endif
