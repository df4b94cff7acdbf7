/* allocation_trace.h - a recorded sequence of allocations and frees, as the allocator can replay
 * it.
 *
 * Three formats are read, gzip or plain (doc/formats.md): a pickled memory snapshot of PyTorch, the
 * JSON of a memory history, with the segments it began with, and a list of lines "alloc ID BYTES
 * [STREAM]", "free ID", "empty_cache". */
#ifndef HIGHWATER_IMPORT_ALLOCATION_TRACE_H
#define HIGHWATER_IMPORT_ALLOCATION_TRACE_H

#include "import/byte_source.h"
#include "memory/caching_allocator.h"

typedef enum {
  TRACE_ALLOC,
  TRACE_FREE_REQUESTED,
  TRACE_FREE_COMPLETED,
  TRACE_SEGMENT_ALLOC,
  TRACE_SEGMENT_FREE,
  TRACE_SEGMENT_MAP,
  TRACE_SEGMENT_UNMAP,
  TRACE_OUT_OF_MEMORY,
  TRACE_SNAPSHOT,
  TRACE_EMPTY_CACHE,
  TRACE_ACTION_COUNT
} TraceAction;

typedef struct {
  guint64 address;
  gint64 bytes;        /* alloc, free: requested; segments: their size */
  gint32 stream;       /* index into streams */
  gint32 slot;         /* alloc, free: index into slots; else -1 */
  gint32 phase, frame; /* indices into phases and frames, or -1 */
  guint8 action;       /* TraceAction */
} TraceEvent;

/* One allocation from birth to death: what its events share. */
typedef struct {
  gint32 freed_at;     /* event that requests the free; -1: before the trace; G_MAXINT32: never */
  gint32 completed_at; /* event that completes it; G_MAXINT32: never */
  gint32 lane;         /* a free that waits: which of n_lanes queues explains its order; else -1 */
} TraceSlot;

typedef struct {
  guint64 address;
  gint32 stream;
  gboolean small_pool;
  guint first_block, n_blocks; /* in blocks */
  guint64 reservation_address; /* expandable: where its reservation begins; 0: not known */
} TraceSegment;

typedef struct {
  gint64 bytes, requested_bytes;
  gint32 slot;           /* allocated or waiting for its free; -1: free */
  gboolean pending_free; /* its free was requested before the trace */
} TraceBlock;

typedef struct {
  char *name;
  gboolean has_segment_events; /* FALSE: a list, there is nothing to compare with */
  AllocatorConfig config;
  gint64 reservation_bytes;   /* size of the expandable reservations that exist at the beginning */
  GArray *segments;           /* TraceSegment, by address: what there is at the beginning */
  GArray *blocks;             /* TraceBlock */
  GArray *events;             /* TraceEvent */
  GArray *slots;              /* TraceSlot; those of blocks come first, in their order */
  GArray *streams;            /* guint64, ascending: what the trace calls them */
  GPtrArray *phases, *frames; /* char *, owned */
  int n_lanes;
  /* What the recording says its peaks were; -1: it does not. */
  gint64 recorded_peak_allocated, recorded_peak_reserved;
} AllocationTrace;

/* Reads and checks a trace; "-" is standard input.  NULL and error ("FILE: event 12: free of ...")
 * when it is damaged, malformed, too large, or cannot have happened. */
AllocationTrace *allocation_trace_load(const char *path, GError **error);
/* The same from any source. */
AllocationTrace *allocation_trace_read(ByteSource *source, GError **error);
void allocation_trace_free(AllocationTrace *trace);
G_DEFINE_AUTOPTR_CLEANUP_FUNC(AllocationTrace, allocation_trace_free)

/* "alloc", "free_requested", ...: as in the JSON format. */
const char *trace_action_name(TraceAction action);

static inline const TraceEvent *
trace_event(const AllocationTrace *trace, guint i)
{
  return &g_array_index(trace->events, TraceEvent, i);
}

#endif
