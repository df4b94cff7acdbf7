/* access_map.h - who last wrote and read which bytes of each storage, and whether that is ordered
 * before now.
 *
 * Order is that of vector clocks: work item p of stream s is ordered before whatever has seen
 * clock.at[s] >= p. */
#ifndef HIGHWATER_PROGRAM_ACCESS_MAP_H
#define HIGHWATER_PROGRAM_ACCESS_MAP_H

#include "program/program.h"

/* How far into each stream something has seen. */
typedef struct {
  gint32 at[STREAM_COUNT];
} Clock;

/* Sees all that other has seen too. */
void access_clock_join(Clock *clock, const Clock *other);

typedef enum {
  ACCESS_ORDERED,
  ACCESS_UNWRITTEN,   /* a read of bytes that nothing wrote */
  ACCESS_AFTER_WRITE, /* not ordered after the last write */
  ACCESS_AFTER_READ   /* a write not ordered after an earlier read */
} AccessResult;

/* One access: work item now->at[stream] of stream touches bytes [begin, end), begin < end, of a
 * storage. */
typedef struct {
  gint32 storage;
  gint64 begin, end;
  StreamId stream;
  const Clock *now;
} Access;

typedef struct _AccessMap AccessMap;

AccessMap *access_map_new(guint storages);
void access_map_free(AccessMap *map);
G_DEFINE_AUTOPTR_CLEANUP_FUNC(AccessMap, access_map_free)

/* The storage's bytes are new: nobody touched them; or written by the outside, before everything.
 */
void access_map_begin(AccessMap *map, gint32 storage, gboolean written);
/* The storage is gone. */
void access_map_end(AccessMap *map, gint32 storage);
/* Takes what is known of a storage, leaving it as after access_map_end(); gives it to one in that
 * state. */
gint32 access_map_take(AccessMap *map, gint32 storage);
void access_map_give(AccessMap *map, gint32 storage, gint32 taken);

/* Remembers the access to a storage that has begun.  Where it is not ordered, other is set to the
 * stream whose access is in the way. */
AccessResult access_map_read(AccessMap *map, const Access *access, StreamId *other);
AccessResult access_map_write(AccessMap *map, const Access *access, StreamId *other);

#endif
