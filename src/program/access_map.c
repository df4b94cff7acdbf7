/* access_map.c - who last wrote and read which bytes of each storage.
 *
 * The bytes of a storage are cut into segments, each with its last write and the last read of each
 * stream since.  They are a doubly linked list in a common pool, and each storage remembers the
 * segment it was last touched at: slices of a buffer are nearly always visited one after the other,
 * in either direction, which makes a visit constant time. */
#include "program/access_map.h"

#define NO_SEGMENT (-1)
#define NO_STREAM (-1)

typedef struct {
  gint64 begin, end;
  gint32 previous, next;     /* by bytes; next also links free segments */
  gint32 read[STREAM_COUNT]; /* the last read of each stream; 0: none */
  gint32 write;              /* work item of the last write; 0: before everything */
  gint8 writer;              /* its stream, or NO_STREAM: never written */
} Segment;

struct _AccessMap {
  GArray *segments; /* Segment */
  gint32 free;      /* first free segment, or NO_SEGMENT */
  gint32 *last;     /* per storage: the segment touched last, or NO_SEGMENT */
};

void
access_clock_join(Clock *clock, const Clock *other)
{
  for (int i = 0; i < STREAM_COUNT; i++)
    clock->at[i] = MAX(clock->at[i], other->at[i]);
}

static Segment *
segment_at(const AccessMap *map, gint32 id)
{
  return &g_array_index(map->segments, Segment, id);
}

AccessMap *
access_map_new(guint storages)
{
  AccessMap *map = g_new0(AccessMap, 1);

  map->segments = g_array_sized_new(FALSE, FALSE, sizeof(Segment), storages);
  map->free = NO_SEGMENT;
  map->last = g_new(gint32, storages);
  for (guint i = 0; i < storages; i++)
    map->last[i] = NO_SEGMENT;
  return map;
}

void
access_map_free(AccessMap *map)
{
  if (map == NULL)
    return;
  g_array_unref(map->segments);
  g_free(map->last);
  g_free(map);
}

static gint32
take_segment(AccessMap *map)
{
  gint32 id = map->free;

  if (id != NO_SEGMENT) {
    map->free = segment_at(map, id)->next;
    return id;
  }
  g_array_set_size(map->segments, map->segments->len + 1);
  return (gint32) map->segments->len - 1;
}

static void
give_segment(AccessMap *map, gint32 id)
{
  segment_at(map, id)->next = map->free;
  map->free = id;
}

void
access_map_begin(AccessMap *map, gint32 storage, gboolean written)
{
  gint32 id = take_segment(map);

  g_assert(map->last[storage] == NO_SEGMENT);
  *segment_at(map, id) = (Segment){
      .end = G_MAXINT64,
      .previous = NO_SEGMENT,
      .next = NO_SEGMENT,
      .writer = written ? STREAM_HOST : NO_STREAM,
  };
  map->last[storage] = id;
}

void
access_map_end(AccessMap *map, gint32 storage)
{
  gint32 id = map->last[storage];

  g_assert(id != NO_SEGMENT);
  while (segment_at(map, id)->previous != NO_SEGMENT)
    id = segment_at(map, id)->previous;
  while (id != NO_SEGMENT) {
    gint32 next = segment_at(map, id)->next;

    give_segment(map, id);
    id = next;
  }
  map->last[storage] = NO_SEGMENT;
}

gint32
access_map_take(AccessMap *map, gint32 storage)
{
  gint32 taken = map->last[storage];

  map->last[storage] = NO_SEGMENT;
  return taken;
}

void
access_map_give(AccessMap *map, gint32 storage, gint32 taken)
{
  g_assert(map->last[storage] == NO_SEGMENT);
  map->last[storage] = taken;
}

/* Cuts the segment at a byte inside of it; its head keeps the id.  Returns the tail. */
static gint32
split_segment(AccessMap *map, gint32 id, gint64 at)
{
  gint32 tail = take_segment(map);
  Segment *head = segment_at(map, id);

  *segment_at(map, tail) = *head;
  segment_at(map, tail)->begin = at;
  segment_at(map, tail)->previous = id;
  if (head->next != NO_SEGMENT)
    segment_at(map, head->next)->previous = tail;
  head->end = at;
  head->next = tail;
  return tail;
}

/* The first of the segments that together are exactly the bytes of the access. */
static gint32
isolate(AccessMap *map, const Access *access)
{
  gint32 id = map->last[access->storage], first;

  while (segment_at(map, id)->begin > access->begin)
    id = segment_at(map, id)->previous;
  while (segment_at(map, id)->end <= access->begin)
    id = segment_at(map, id)->next;
  if (segment_at(map, id)->begin < access->begin)
    id = split_segment(map, id, access->begin);
  first = id;
  while (segment_at(map, id)->end < access->end)
    id = segment_at(map, id)->next;
  if (segment_at(map, id)->end > access->end)
    split_segment(map, id, access->end);
  map->last[access->storage] = first;
  return first;
}

static gboolean
after_write(const Segment *segment, const Clock *now)
{
  return segment->writer == NO_STREAM || segment->write <= now->at[segment->writer];
}

/* A stream that read the segment and may not have done so yet, or NO_STREAM. */
static int
pending_reader(const Segment *segment, const Clock *now)
{
  for (int i = 0; i < STREAM_COUNT; i++)
    if (segment->read[i] > now->at[i])
      return i;
  return NO_STREAM;
}

AccessResult
access_map_read(AccessMap *map, const Access *access, StreamId *other)
{
  gboolean written = FALSE;

  for (gint32 id = isolate(map, access); id != NO_SEGMENT;) {
    Segment *segment = segment_at(map, id);

    if (segment->begin >= access->end)
      break;
    if (!after_write(segment, access->now)) {
      *other = (StreamId) segment->writer;
      return ACCESS_AFTER_WRITE;
    }
    written |= segment->writer != NO_STREAM;
    segment->read[access->stream] = access->now->at[access->stream];
    id = segment->next;
  }
  return written ? ACCESS_ORDERED : ACCESS_UNWRITTEN;
}

/* Joins the segments from first up to the end of the access into one. */
static Segment *
unite(AccessMap *map, gint32 first, gint64 end)
{
  Segment *united = segment_at(map, first);

  while (united->end < end) {
    gint32 absorbed = united->next;
    const Segment *segment = segment_at(map, absorbed);

    united->end = segment->end;
    united->next = segment->next;
    give_segment(map, absorbed);
  }
  if (united->next != NO_SEGMENT)
    segment_at(map, united->next)->previous = first;
  return united;
}

AccessResult
access_map_write(AccessMap *map, const Access *access, StreamId *other)
{
  gint32 first = isolate(map, access);
  Segment *united;

  for (gint32 id = first; id != NO_SEGMENT; id = segment_at(map, id)->next) {
    const Segment *segment = segment_at(map, id);
    int reader = pending_reader(segment, access->now);

    if (segment->begin >= access->end)
      break;
    if (!after_write(segment, access->now)) {
      *other = (StreamId) segment->writer;
      return ACCESS_AFTER_WRITE;
    }
    if (reader != NO_STREAM) {
      *other = (StreamId) reader;
      return ACCESS_AFTER_READ;
    }
  }
  /* Earlier reads may stay: what is ordered after this write is ordered after them. */
  united = unite(map, first, access->end);
  united->write = access->now->at[access->stream];
  united->writer = (gint8) access->stream;
  return ACCESS_ORDERED;
}
