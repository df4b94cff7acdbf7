/* snapshot_recording.h - a memory snapshot as a Recording: memory, segments and the peak with who
 * was alive; steps and phases where the snapshot says them. */
#ifndef HIGHWATER_IMPORT_SNAPSHOT_RECORDING_H
#define HIGHWATER_IMPORT_SNAPSHOT_RECORDING_H

#include "import/snapshot_file.h"
#include "record/recording.h"

/* What is there when the history begins comes first, at time 0.  Blocks that do not outlive the
 * history have the size that the allocator gives them when it is replayed.  NULL and error when the
 * history cannot have happened. */
Recording *snapshot_recording(const SnapshotFile *file, GError **error);

#endif
