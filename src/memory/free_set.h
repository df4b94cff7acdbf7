/* free_set.h - an ordered set of blocks by (bytes, address): what a pool has to give on one stream.
 *
 * Best fit is a lower bound, ties go to the lowest address.  Sizes fall into bins of 1/16 of a
 * power of two, a bitmap says which hold anything, and a bin is a short sorted array: a search
 * looks at a bin or two and a handful of entries.  Zero-initialized is empty; positions die with
 * any change. */
#ifndef HIGHWATER_MEMORY_FREE_SET_H
#define HIGHWATER_MEMORY_FREE_SET_H

#include <glib.h>

#define FREE_SET_WORDS 12 /* of 64 bins: sizes up to 2^56 bytes */
#define FREE_SET_BINS (64 * FREE_SET_WORDS)

typedef struct {
  gint64 bytes;
  guint64 address;
} FreeKey;

typedef struct {
  FreeKey key;
  gint32 block;
} FreeEntry;

typedef struct {
  FreeEntry *entries; /* ascending */
  guint count, capacity;
} FreeBin;

typedef struct {
  FreeBin *bins; /* FREE_SET_BINS, or NULL as long as nothing was inserted */
  guint64 occupied[FREE_SET_WORDS];
  guint32 occupied_words; /* bit i: occupied[i] is not 0 */
  guint count;            /* entries in all bins */
} FreeSet;

typedef struct {
  guint bin, slot;
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
  return set->bins[position.bin].entries[position.slot].block;
}

static inline FreeKey
free_set_key(const FreeSet *set, FreePosition position)
{
  return set->bins[position.bin].entries[position.slot].key;
}

#endif
