/* free_set.c - sorted leaves of (bytes, address) keys. */
#include "memory/free_set.h"
#include <string.h>

static inline gboolean
key_below(FreeKey a, FreeKey b)
{
  return a.bytes < b.bytes || (a.bytes == b.bytes && a.address < b.address);
}

/* Number of keys of the leaf that are below key. */
static inline guint
leaf_rank(const FreeLeaf *leaf, FreeKey key)
{
  const FreeKey *base = leaf->keys;
  guint count = leaf->count;
  while (count > 0) {
    guint half = count / 2;
    gboolean below = key_below(base[half], key);
    base = below ? base + half + 1 : base;
    count = below ? count - half - 1 : half;
  }
  return (guint) (base - leaf->keys);
}

/* The first leaf whose last key is not below key; n_leaves when there is none. */
static guint
find_leaf(const FreeSet *set, FreeKey key)
{
  guint low = 0, high = set->n_leaves;
  while (low < high) {
    guint middle = low + (high - low) / 2;
    const FreeLeaf *leaf = set->leaves[middle];
    if (key_below(leaf->keys[leaf->count - 1], key))
      low = middle + 1;
    else
      high = middle;
  }
  return low;
}

static void
insert_leaf(FreeSet *set, guint at, FreeLeaf *leaf)
{
  if (set->n_leaves == set->capacity) {
    set->capacity = MAX(4, 2 * set->capacity);
    set->leaves = g_renew(FreeLeaf *, set->leaves, set->capacity);
  }
  memmove(set->leaves + at + 1, set->leaves + at, (set->n_leaves - at) * sizeof *set->leaves);
  set->leaves[at] = leaf;
  set->n_leaves++;
}

/* Moves the upper half of a full leaf into a new one behind it. */
static void
split_leaf(FreeSet *set, guint at)
{
  FreeLeaf *lower = set->leaves[at];
  FreeLeaf *upper = g_new(FreeLeaf, 1);
  guint half = FREE_SET_LEAF / 2;
  upper->count = FREE_SET_LEAF - half;
  memcpy(upper->keys, lower->keys + half, upper->count * sizeof *upper->keys);
  memcpy(upper->blocks, lower->blocks + half, upper->count * sizeof *upper->blocks);
  lower->count = half;
  insert_leaf(set, at + 1, upper);
}

void
free_set_clear(FreeSet *set)
{
  for (guint i = 0; i < set->n_leaves; i++)
    g_free(set->leaves[i]);
  g_free(set->leaves);
  *set = (FreeSet){0};
}

void
free_set_insert(FreeSet *set, FreeKey key, gint32 block)
{
  if (set->n_leaves == 0) {
    insert_leaf(set, 0, g_new(FreeLeaf, 1));
    set->leaves[0]->count = 0;
  }
  guint at = set->count > 0 ? MIN(find_leaf(set, key), set->n_leaves - 1) : 0;
  if (set->leaves[at]->count == FREE_SET_LEAF) {
    split_leaf(set, at);
    at += key_below(set->leaves[at]->keys[set->leaves[at]->count - 1], key);
  }
  FreeLeaf *leaf = set->leaves[at];
  guint slot = leaf_rank(leaf, key);
  guint behind = leaf->count - slot;
  memmove(leaf->keys + slot + 1, leaf->keys + slot, behind * sizeof *leaf->keys);
  memmove(leaf->blocks + slot + 1, leaf->blocks + slot, behind * sizeof *leaf->blocks);
  leaf->keys[slot] = key;
  leaf->blocks[slot] = block;
  leaf->count++;
  set->count++;
}

void
free_set_remove_at(FreeSet *set, FreePosition position)
{
  FreeLeaf *leaf = set->leaves[position.leaf];
  guint slot = position.slot, behind = leaf->count - slot - 1;
  memmove(leaf->keys + slot, leaf->keys + slot + 1, behind * sizeof *leaf->keys);
  memmove(leaf->blocks + slot, leaf->blocks + slot + 1, behind * sizeof *leaf->blocks);
  leaf->count--;
  set->count--;
  /* The last leaf stays: a set that is often empty need not allocate each time. */
  if (leaf->count > 0 || set->n_leaves == 1)
    return;
  g_free(leaf);
  set->n_leaves--;
  memmove(set->leaves + position.leaf, set->leaves + position.leaf + 1,
          (set->n_leaves - position.leaf) * sizeof *set->leaves);
}

void
free_set_remove(FreeSet *set, FreeKey key)
{
  FreePosition position;
  gboolean found = free_set_lower_bound(set, key, &position);
  g_assert(found && !key_below(key, free_set_key(set, position)));
  free_set_remove_at(set, position);
}

gboolean
free_set_lower_bound(const FreeSet *set, FreeKey key, FreePosition *position)
{
  if (set->count == 0)
    return FALSE;
  position->leaf = find_leaf(set, key);
  if (position->leaf == set->n_leaves)
    return FALSE;
  position->slot = leaf_rank(set->leaves[position->leaf], key);
  return TRUE;
}

gboolean
free_set_first(const FreeSet *set, FreePosition *position)
{
  *position = (FreePosition){0, 0};
  return set->count > 0;
}

gboolean
free_set_last(const FreeSet *set, FreePosition *position)
{
  if (set->count == 0)
    return FALSE;
  position->leaf = set->n_leaves - 1;
  position->slot = set->leaves[position->leaf]->count - 1;
  return TRUE;
}

gboolean
free_set_next(const FreeSet *set, FreePosition *position)
{
  if (position->slot + 1 < set->leaves[position->leaf]->count) {
    position->slot++;
    return TRUE;
  }
  if (position->leaf + 1 == set->n_leaves)
    return FALSE;
  *position = (FreePosition){position->leaf + 1, 0};
  return TRUE;
}

gboolean
free_set_previous(const FreeSet *set, FreePosition *position)
{
  if (position->slot > 0) {
    position->slot--;
    return TRUE;
  }
  if (position->leaf == 0)
    return FALSE;
  position->leaf--;
  position->slot = set->leaves[position->leaf]->count - 1;
  return TRUE;
}
