/* segment_map.c - a sorted array of segments. */
#include "memory/segment_map.h"

void
segment_map_init(SegmentMap *map)
{
  map->segments = g_array_new(FALSE, FALSE, sizeof(MappedSegment));
}

void
segment_map_clear(SegmentMap *map)
{
  g_array_unref(map->segments);
}

static MappedSegment *
segment_at(const SegmentMap *map, guint i)
{
  return &g_array_index(map->segments, MappedSegment, i);
}

static guint64
segment_end(const MappedSegment *segment)
{
  return segment->address + (guint64) segment->bytes;
}

/* How many segments begin at or below the address. */
static guint
count_up_to(const SegmentMap *map, guint64 address)
{
  guint low = 0, high = map->segments->len;
  while (low < high) {
    guint middle = low + (high - low) / 2;
    if (segment_at(map, middle)->address <= address)
      low = middle + 1;
    else
      high = middle;
  }
  return low;
}

/* b goes on where a ends. */
static gboolean
join(const MappedSegment *a, const MappedSegment *b)
{
  return a->expandable && b->expandable && a->stream == b->stream &&
         a->small_pool == b->small_pool && segment_end(a) == b->address;
}

gboolean
segment_map_add(SegmentMap *map, const MappedSegment *segment)
{
  guint i = count_up_to(map, segment->address);
  if ((i > 0 && segment_end(segment_at(map, i - 1)) > segment->address) ||
      (i < map->segments->len && segment_at(map, i)->address < segment_end(segment)))
    return FALSE;
  g_array_insert_vals(map->segments, i, segment, 1);
  if (i + 1 < map->segments->len && join(segment_at(map, i), segment_at(map, i + 1))) {
    segment_at(map, i)->bytes += segment_at(map, i + 1)->bytes;
    g_array_remove_index(map->segments, i + 1);
  }
  if (i > 0 && join(segment_at(map, i - 1), segment_at(map, i))) {
    segment_at(map, i - 1)->bytes += segment_at(map, i)->bytes;
    g_array_remove_index(map->segments, i);
  }
  return TRUE;
}

gboolean
segment_map_remove(SegmentMap *map, guint64 address, gint64 bytes, MappedSegment *removed)
{
  guint i = count_up_to(map, address);
  guint64 end = address + (guint64) bytes;
  if (i == 0 || end > segment_end(segment_at(map, i - 1)))
    return FALSE;
  MappedSegment whole = *segment_at(map, i - 1);
  if (!whole.expandable && (whole.address != address || whole.bytes != bytes))
    return FALSE;
  if (removed) {
    *removed = whole;
    removed->address = address;
    removed->bytes = bytes;
  }
  MappedSegment before = whole, after = whole;
  before.bytes = (gint64) (address - whole.address);
  after.address = end;
  after.bytes = (gint64) (segment_end(&whole) - end);
  g_array_remove_index(map->segments, i - 1);
  if (after.bytes > 0)
    g_array_insert_vals(map->segments, i - 1, &after, 1);
  if (before.bytes > 0)
    g_array_insert_vals(map->segments, i - 1, &before, 1);
  return TRUE;
}

const MappedSegment *
segment_map_find(const SegmentMap *map, guint64 address)
{
  guint i = count_up_to(map, address);
  if (i == 0 || address >= segment_end(segment_at(map, i - 1)))
    return NULL;
  return segment_at(map, i - 1);
}
