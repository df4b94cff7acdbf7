/* address_space.h - a range of device addresses handed out first fit, from either end.
 *
 * cudaMalloc takes the lowest hole that fits, address reservations of expandable segments the
 * highest, in granules of 2 MiB: what the driver really does is not documented, but the caching
 * allocator breaks ties by address, so some rule must be fixed. */
#ifndef HIGHWATER_MEMORY_ADDRESS_SPACE_H
#define HIGHWATER_MEMORY_ADDRESS_SPACE_H

#include <glib.h>

/* Physical memory comes in pages of 2 MiB (cuMemGetAllocationGranularity). */
#define ADDRESS_GRANULE ((gint64) 1 << 21)

typedef struct {
  guint64 begin, end;
} AddressRange;

typedef struct {
  AddressRange whole;
  GArray *holes; /* AddressRange, ascending, never touching each other */
} AddressSpace;

/* All addresses from begin to end, end excluded; both are multiples of the granule. */
void address_space_init(AddressSpace *space, guint64 begin, guint64 end);
void address_space_clear(AddressSpace *space);

/* The lowest or highest free range of at least bytes > 0, rounded up to granules.  FALSE: none. */
gboolean address_space_take_lowest(AddressSpace *space, gint64 bytes, guint64 *address);
gboolean address_space_take_highest(AddressSpace *space, gint64 bytes, guint64 *address);
/* Takes exactly that range.  FALSE when part of it is taken, outside, or not on granules. */
gboolean address_space_claim(AddressSpace *space, guint64 address, gint64 bytes);
/* Gives a taken range back. */
void address_space_release(AddressSpace *space, guint64 address, gint64 bytes);

#endif
