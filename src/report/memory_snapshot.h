/* memory_snapshot.h - a run's memory as torch.cuda.memory._snapshot() would have it, pickled, for
 * PyTorch's viewer (pytorch.org/memory_viz) and torch.cuda._memory_viz.
 *
 * Frames name, innermost first, what was allocated for which module, the phase and step, and that
 * it was simulated; an entry's category is that of the memory. */
#ifndef HIGHWATER_REPORT_MEMORY_SNAPSHOT_H
#define HIGHWATER_REPORT_MEMORY_SNAPSHOT_H

#include "memory/caching_allocator.h"
#include "record/recording.h"

/* The last frame of each entry. */
#define SNAPSHOT_FRAME_NAME "simulated"
#define SNAPSHOT_FRAME_FILE "highwater"
/* What its last frame but one is in: of a step, behind one, before the first. */
#define SNAPSHOT_STEP "step %d"
#define SNAPSHOT_AFTER_STEP "after step %d"
#define SNAPSHOT_CONSTRUCTION "construction"
/* The category of entries that are no tensor's: the viewer needs it to be there. */
#define SNAPSHOT_NO_CATEGORY "unknown"

/* The allocator's whole history on device 0 and its segments at the end, or when memory ran out.
 * config: of the allocator.  Free with g_byte_array_unref. */
GByteArray *memory_snapshot(const Recording *recording, const AllocatorConfig *config);

#endif
