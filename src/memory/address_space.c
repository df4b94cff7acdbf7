/* address_space.c - first fit over a sorted list of holes. */
#include "memory/address_space.h"
#include "base/units.h"

void
address_space_init(AddressSpace *space, guint64 begin, guint64 end)
{
  g_assert(begin < end && begin % ADDRESS_GRANULE == 0 && end % ADDRESS_GRANULE == 0);
  space->whole = (AddressRange){begin, end};
  space->holes = g_array_new(FALSE, FALSE, sizeof(AddressRange));
  g_array_append_val(space->holes, space->whole);
}

void
address_space_clear(AddressSpace *space)
{
  g_array_free(space->holes, TRUE);
  space->holes = NULL;
}

static inline AddressRange *
hole(const AddressSpace *space, guint i)
{
  return &g_array_index(space->holes, AddressRange, i);
}

static inline gboolean
hole_fits(const AddressRange *range, guint64 bytes)
{
  return range->end - range->begin >= bytes;
}

/* Cuts [begin, end) out of hole i, which contains it. */
static void
cut(AddressSpace *space, guint i, guint64 begin, guint64 end)
{
  AddressRange *range = hole(space, i);
  AddressRange above = {end, range->end};
  if (range->begin == begin && range->end == end) {
    g_array_remove_index(space->holes, i);
  } else if (range->begin == begin) {
    range->begin = end;
  } else {
    range->end = begin;
    if (above.begin < above.end)
      g_array_insert_val(space->holes, i + 1, above);
  }
}

gboolean
address_space_take_lowest(AddressSpace *space, gint64 bytes, guint64 *address)
{
  guint64 size = (guint64) round_up(bytes, ADDRESS_GRANULE);
  for (guint i = 0; i < space->holes->len; i++) {
    if (!hole_fits(hole(space, i), size))
      continue;
    *address = hole(space, i)->begin;
    cut(space, i, *address, *address + size);
    return TRUE;
  }
  return FALSE;
}

gboolean
address_space_take_highest(AddressSpace *space, gint64 bytes, guint64 *address)
{
  guint64 size = (guint64) round_up(bytes, ADDRESS_GRANULE);
  for (guint i = space->holes->len; i-- > 0;) {
    if (!hole_fits(hole(space, i), size))
      continue;
    *address = hole(space, i)->end - size;
    cut(space, i, *address, *address + size);
    return TRUE;
  }
  return FALSE;
}

/* The first hole that begins above address. */
static guint
hole_above(const AddressSpace *space, guint64 address)
{
  guint low = 0, high = space->holes->len;
  while (low < high) {
    guint middle = low + (high - low) / 2;
    if (hole(space, middle)->begin <= address)
      low = middle + 1;
    else
      high = middle;
  }
  return low;
}

gboolean
address_space_claim(AddressSpace *space, guint64 address, gint64 bytes)
{
  guint64 end = address + (guint64) round_up(bytes, ADDRESS_GRANULE);
  guint above = hole_above(space, address);
  if (above == 0 || end < address || address % ADDRESS_GRANULE != 0)
    return FALSE;
  if (hole(space, above - 1)->end < end)
    return FALSE;
  cut(space, above - 1, address, end);
  return TRUE;
}

void
address_space_release(AddressSpace *space, guint64 address, gint64 bytes)
{
  AddressRange range = {address, address + (guint64) round_up(bytes, ADDRESS_GRANULE)};
  guint at = hole_above(space, address);
  gboolean joins_above = at < space->holes->len && hole(space, at)->begin == range.end;
  gboolean joins_below = at > 0 && hole(space, at - 1)->end == range.begin;
  if (joins_below && joins_above) {
    hole(space, at - 1)->end = hole(space, at)->end;
    g_array_remove_index(space->holes, at);
  } else if (joins_below) {
    hole(space, at - 1)->end = range.end;
  } else if (joins_above) {
    hole(space, at)->begin = range.begin;
  } else {
    g_array_insert_val(space->holes, at, range);
  }
}
