/* memory_snapshot.h - a run's memory as torch.cuda.memory._snapshot() would have it, pickled, for
 * PyTorch's viewer (pytorch.org/memory_viz) and torch.cuda._memory_viz.
 *
 * Frames name, innermost first, what was allocated for which module, the phase and step, and that
 * it was simulated (record/snapshot_names.h); an entry's category is that of the memory. */
#ifndef HIGHWATER_REPORT_MEMORY_SNAPSHOT_H
#define HIGHWATER_REPORT_MEMORY_SNAPSHOT_H

#include "memory/caching_allocator.h"
#include "record/recording.h"

/* The allocator's whole history on device 0 and its segments at the end, or when memory ran out.
 * config: of the allocator.  Free with g_byte_array_unref. */
GByteArray *memory_snapshot(const Recording *recording, const AllocatorConfig *config);

#endif
