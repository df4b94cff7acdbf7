/* allocation_trace_snapshot.h - the history of a memory snapshot as a trace that can be replayed.
 */
#ifndef HIGHWATER_IMPORT_ALLOCATION_TRACE_SNAPSHOT_H
#define HIGHWATER_IMPORT_ALLOCATION_TRACE_SNAPSHOT_H

#include "import/snapshot_start.h"

/* Its events are the file's entries, one for one; it begins with the segments and blocks of start,
 * slots in the order of these blocks.  NULL and error when that cannot have happened. */
AllocationTrace *allocation_trace_of_snapshot(const SnapshotFile *file, const SnapshotStart *start,
                                              GError **error);

#endif
