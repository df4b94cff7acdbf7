/* snapshot_start.h - what a device had when a snapshot's history began: its segments at the end,
 * followed back. */
#ifndef HIGHWATER_IMPORT_SNAPSHOT_START_H
#define HIGHWATER_IMPORT_SNAPSHOT_START_H

#include "import/snapshot_file.h"
#include "memory/segment_map.h"

typedef struct {
  guint64 address;
  gint64 bytes; /* as the snapshot says, if it outlives the history; else as it must have been */
  gint64 requested_bytes;
  gint32 label;     /* index into labels, or -1 */
  gboolean pending; /* its free had been asked for */
} StartBlock;

typedef struct {
  SegmentMap map;
  GArray *blocks; /* StartBlock, by address, each within a segment */
} SnapshotStart;

/* FALSE and error when the history cannot have led to the segments at the end.  The caller clears
 * the start either way. */
gboolean snapshot_start_find(SnapshotStart *start, const SnapshotFile *file, GError **error);
void snapshot_start_clear(SnapshotStart *start);

#endif
