/* free_set.c - bins of sorted (bytes, address) keys. */
#include "memory/free_set.h"
#include <string.h>

#define NO_BIN FREE_SET_BINS

static inline gboolean
key_below(FreeKey a, FreeKey b)
{
  return a.bytes < b.bytes || (a.bytes == b.bytes && a.address < b.address);
}

/* Blocks are multiples of 512 bytes.  Up to 16 of these have a bin each, then every power of two
 * has 16 bins. */
static inline guint
bin_of(gint64 bytes)
{
  guint64 units = (guint64) bytes >> 9;
  if (units < 16)
    return (guint) units;
  guint exponent = 63 - (guint) __builtin_clzll(units);
  return (exponent - 3) * 16 + (guint) (units >> (exponent - 4) & 15);
}

/* Number of entries of the bin that are below key. */
static inline guint
bin_rank(const FreeBin *bin, FreeKey key)
{
  guint low = 0, count = bin->count;
  while (count > 0) {
    guint half = count / 2;
    gboolean below = key_below(bin->entries[low + half].key, key);
    low = below ? low + half + 1 : low;
    count = below ? count - half - 1 : half;
  }
  return low;
}

/* The first occupied bin from bin on, or NO_BIN. */
static inline guint
occupied_from(const FreeSet *set, guint bin)
{
  guint word = bin / 64;
  if (word >= FREE_SET_WORDS)
    return NO_BIN;
  guint64 bits = set->occupied[word] & (~(guint64) 0 << (bin % 64));
  if (bits == 0) {
    guint32 words = set->occupied_words & (guint32) ((guint64) ~(guint32) 0 << (word + 1));
    if (words == 0)
      return NO_BIN;
    word = (guint) __builtin_ctz(words);
    bits = set->occupied[word];
  }
  return word * 64 + (guint) __builtin_ctzll(bits);
}

/* The last occupied bin below bin, or NO_BIN. */
static guint
occupied_below(const FreeSet *set, guint bin)
{
  while (bin-- > 0) {
    if (set->occupied[bin / 64] >> (bin % 64) & 1)
      return bin;
  }
  return NO_BIN;
}

static inline void
mark_occupied(FreeSet *set, guint bin)
{
  set->occupied[bin / 64] |= (guint64) 1 << (bin % 64);
  set->occupied_words |= 1u << (bin / 64);
}

static inline void
mark_empty(FreeSet *set, guint bin)
{
  set->occupied[bin / 64] &= ~((guint64) 1 << (bin % 64));
  if (set->occupied[bin / 64] == 0)
    set->occupied_words &= ~(1u << (bin / 64));
}

void
free_set_clear(FreeSet *set)
{
  for (guint i = 0; set->bins && i < FREE_SET_BINS; i++)
    g_free(set->bins[i].entries);
  g_free(set->bins);
  *set = (FreeSet){0};
}

static void
grow_bin(FreeBin *bin)
{
  bin->capacity = MAX(4, 2 * bin->capacity);
  bin->entries = g_renew(FreeEntry, bin->entries, bin->capacity);
}

void
free_set_insert(FreeSet *set, FreeKey key, gint32 block)
{
  if (!set->bins)
    set->bins = g_new0(FreeBin, FREE_SET_BINS);
  guint at = bin_of(key.bytes);
  FreeBin *bin = &set->bins[at];
  if (bin->count == bin->capacity)
    grow_bin(bin);
  guint slot = bin_rank(bin, key);
  if (slot < bin->count)
    memmove(&bin->entries[slot + 1], &bin->entries[slot],
            (bin->count - slot) * sizeof *bin->entries);
  bin->entries[slot] = (FreeEntry){key, block};
  bin->count++;
  set->count++;
  mark_occupied(set, at);
}

void
free_set_remove_at(FreeSet *set, FreePosition position)
{
  FreeBin *bin = &set->bins[position.bin];
  bin->count--;
  set->count--;
  if (position.slot < bin->count)
    memmove(&bin->entries[position.slot], &bin->entries[position.slot + 1],
            (bin->count - position.slot) * sizeof *bin->entries);
  if (bin->count == 0)
    mark_empty(set, position.bin);
}

void
free_set_remove(FreeSet *set, FreeKey key)
{
  g_assert(set->bins);
  FreePosition position = {.bin = bin_of(key.bytes)};
  const FreeBin *bin = &set->bins[position.bin];
  position.slot = bin_rank(bin, key);
  g_assert(position.slot < bin->count && !key_below(key, bin->entries[position.slot].key));
  free_set_remove_at(set, position);
}

gboolean
free_set_lower_bound(const FreeSet *set, FreeKey key, FreePosition *position)
{
  if (set->count == 0)
    return FALSE;
  guint bin = bin_of(key.bytes);
  guint slot = bin_rank(&set->bins[bin], key);
  if (slot == set->bins[bin].count) {
    slot = 0;
    bin = occupied_from(set, bin + 1);
    if (bin == NO_BIN)
      return FALSE;
  }
  *position = (FreePosition){bin, slot};
  return TRUE;
}

gboolean
free_set_first(const FreeSet *set, FreePosition *position)
{
  return free_set_lower_bound(set, (FreeKey){0, 0}, position);
}

/* The last entry of the bins below a bin. */
static gboolean
last_below(const FreeSet *set, guint bin, FreePosition *position)
{
  bin = occupied_below(set, bin);
  if (bin == NO_BIN)
    return FALSE;
  *position = (FreePosition){bin, set->bins[bin].count - 1};
  return TRUE;
}

gboolean
free_set_last(const FreeSet *set, FreePosition *position)
{
  return last_below(set, FREE_SET_BINS, position);
}

gboolean
free_set_next(const FreeSet *set, FreePosition *position)
{
  if (position->slot + 1 < set->bins[position->bin].count) {
    position->slot++;
    return TRUE;
  }
  guint bin = occupied_from(set, position->bin + 1);
  if (bin == NO_BIN)
    return FALSE;
  *position = (FreePosition){bin, 0};
  return TRUE;
}

gboolean
free_set_previous(const FreeSet *set, FreePosition *position)
{
  if (position->slot > 0) {
    position->slot--;
    return TRUE;
  }
  return last_below(set, position->bin, position);
}
