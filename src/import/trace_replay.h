/* trace_replay.h - feeds a recorded trace through the caching allocator and compares what it does.
 */
#ifndef HIGHWATER_IMPORT_TRACE_REPLAY_H
#define HIGHWATER_IMPORT_TRACE_REPLAY_H

#include "import/allocation_trace.h"

typedef struct {
  /* Segments go where the trace had them as long as both agree; FALSE: first fit decides alone. */
  gboolean follow_addresses;
} ReplayOptions;

/* Bytes of one stream. */
typedef struct {
  guint64 stream;                             /* its name in the trace */
  gint64 allocated, reserved;                 /* at the end */
  gint64 peak_allocated, peak_reserved;       /* each at its own time */
  gint64 allocated_at_peak, reserved_at_peak; /* when the sum of all streams was at its peak */
  gint64 cached;                              /* free at the end */
} ReplayStream;

/* A run of events in one phase (forward, backward, ...); events outside any belong to the one
 * before. */
typedef struct {
  gint32 phase; /* index into the trace's phases */
  gint32 first_event;
  gint64 peak_allocated, peak_reserved; /* what it begins with included */
} ReplayPhase;

/* A moment of the replay. */
typedef struct {
  gint32 event; /* -1: before the first */
  gint32 phase; /* index into the trace's phases, or -1 */
  gint64 allocated, reserved, active, requested, inactive_split;
} ReplayMoment;

typedef struct {
  AllocatorStats stats; /* at the end; peaks are those of the replay */
  GArray *streams;      /* ReplayStream */
  GArray *phases;       /* ReplayPhase, in order of time */
  GArray *blocks;       /* BlockInfo: all blocks at the end */
  gint64 *slot_bytes;   /* of each slot of the trace: bytes of its block; 0: the replay did not make
                           it, or elsewhere */
  ReplayMoment peak_allocated, peak_reserved, end;
  /* Peaks of the steps that were completed: when memory runs out in the middle of one, those before
   * it.  A step begins with the phase that the trace begins with; without phases, or in the first
   * step, all counts. */
  gint64 complete_peak_allocated, complete_peak_reserved;
  /* Which event the allocator could not serve; -1: none.  The replay ends there. */
  gint32 out_of_memory_at;
  AllocatorFailure failure;
  /* Where replay and trace first did something else with segments; -1: nowhere (or there is nothing
   * to compare).  What each did, in words. */
  gint32 first_divergence;
  char *trace_did, *replay_did;
  guint segment_events_compared;
  /* The first allocation that got another address than in the trace (another free block was
   * chosen); -1: none.  It may come before the first divergence. */
  gint32 first_misplaced;
  guint64 trace_address, replay_address;
  /* Releases in the trace that no allocation of the replay explains: taken as empty_cache(). */
  guint empty_caches;
} TraceReplay;

/* The allocator is configured as trace->config says.  NULL and error when the trace's first
 * segments cannot be a state of the allocator. */
TraceReplay *trace_replay_run(const AllocationTrace *trace, const ReplayOptions *options,
                              GError **error);
void trace_replay_free(TraceReplay *replay);
G_DEFINE_AUTOPTR_CLEANUP_FUNC(TraceReplay, trace_replay_free)

#endif
