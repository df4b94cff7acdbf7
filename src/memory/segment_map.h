/* segment_map.h - which segments a device has, as they come and go in a recorded history, forwards
 * or backwards. */
#ifndef HIGHWATER_MEMORY_SEGMENT_MAP_H
#define HIGHWATER_MEMORY_SEGMENT_MAP_H

#include <glib.h>

/* A cudaMalloc segment, or pages of an expandable one that touch each other. */
typedef struct {
  guint64 address;
  gint64 bytes; /* > 0; address + bytes is below 2^63 */
  gint64 stream;
  gint32 origin; /* whatever the caller wants to know of it; kept from the lower of two that join */
  guint8 small_pool, expandable;
} MappedSegment;

/* MappedSegment, by address, never overlapping. */
typedef struct {
  GArray *segments;
} SegmentMap;

void segment_map_init(SegmentMap *map);
void segment_map_clear(SegmentMap *map);

/* Expandable pages join those of the same stream and pool that they touch.  FALSE, and nothing is
 * done: part of it is there already. */
gboolean segment_map_add(SegmentMap *map, const MappedSegment *segment);
/* Takes bytes at address away: a whole cudaMalloc segment, or any pages of one expandable range.
 * *removed (may be NULL) is that part of it.  FALSE, and nothing is done: there is no such. */
gboolean segment_map_remove(SegmentMap *map, guint64 address, gint64 bytes, MappedSegment *removed);
/* The segment that the address is in; NULL: none.  Valid until the next change. */
const MappedSegment *segment_map_find(const SegmentMap *map, guint64 address);

#endif
