/* snapshot_sizes.h - how large the blocks of a snapshot's history were, of which it says only what
 * was requested. */
#ifndef HIGHWATER_IMPORT_SNAPSHOT_SIZES_H
#define HIGHWATER_IMPORT_SNAPSHOT_SIZES_H

#include "import/snapshot_start.h"
#include "import/trace_replay.h"

/* Fills bytes, one for each slot of the trace that was made of the snapshot: as it says of blocks
 * that are there at its end; as the allocator makes them where it hands out the same addresses
 * (replay; NULL: nowhere); as it rounds otherwise. */
void snapshot_block_sizes(const SnapshotFile *file, const SnapshotStart *start,
                          const AllocationTrace *trace, const TraceReplay *replay, gint64 *bytes);

/* The same of what was requested. */
void snapshot_requested_sizes(const SnapshotStart *start, const AllocationTrace *trace,
                              gint64 *bytes);

#endif
