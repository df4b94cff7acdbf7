/* snapshot_names.h - what memory snapshots of simulated runs say beyond what PyTorch's do: one
 * description for writing and reading. */
#ifndef HIGHWATER_RECORD_SNAPSHOT_NAMES_H
#define HIGHWATER_RECORD_SNAPSHOT_NAMES_H

/* Frames of an entry: of an allocation {name: what, filename: module}; {name: phase, filename: one
 * of the places below, line: micro-batch + 1}; and, last, this one. */
#define SNAPSHOT_FRAME_NAME "simulated"
#define SNAPSHOT_FRAME_FILE "highwater"

/* A name or a module that there is not, as in PyTorch's frames. */
#define SNAPSHOT_NOTHING "??"

#define SNAPSHOT_STEP "step %d"
#define SNAPSHOT_AFTER_STEP "after step %d"
#define SNAPSHOT_CONSTRUCTION "construction"

/* The category of entries that are no tensor's: the viewer needs it to be there. */
#define SNAPSHOT_NO_CATEGORY "unknown"

/* Steps are annotated as PyTorch's profiler does. */
#define SNAPSHOT_ANNOTATED_STEP "ProfilerStep#%d"

/* Keys of allocator_settings: bytes, -1 for no limit. */
#define SNAPSHOT_DEVICE_BYTES "device_total_bytes"
#define SNAPSHOT_MEMORY_LIMIT "memory_limit_bytes"
#define SNAPSHOT_PROCESS_LIMIT "process_limit_bytes"

#endif
