/* progress.h - what a device that never gets anywhere by itself has done: only what is ordered
 * before something that the host waited for.
 *
 * Order is that of the Program alone (streams, records, waits), followed with vector clocks. */
#ifndef HIGHWATER_EXEC_PROGRESS_H
#define HIGHWATER_EXEC_PROGRESS_H

#include "engine/sync_point.h"
#include "program/access_map.h"

typedef struct {
  gboolean endless;            /* FALSE: a point is done when it has fired; nothing is followed */
  Clock streams[STREAM_COUNT]; /* by stream: the records that it is ordered after */
  Clock done;
  GHashTable *points; /* SyncPoint * -> Clock * */
} Progress;

void progress_init(Progress *progress, gboolean endless);
void progress_clear(Progress *progress);

/* The point is recorded on a stream; a stream waits for it. */
void progress_record(Progress *progress, StreamId stream, SyncPoint *point);
void progress_wait(Progress *progress, StreamId stream, SyncPoint *point);
/* The host has waited for the point. */
void progress_finish(Progress *progress, SyncPoint *point);
gboolean progress_is_done(const Progress *progress, SyncPoint *point);

#endif
