/* trace_replay_internal.h - a replay on its way: shared by its driver, the comparison and the
 * moments.
 */
#ifndef HIGHWATER_IMPORT_TRACE_REPLAY_INTERNAL_H
#define HIGHWATER_IMPORT_TRACE_REPLAY_INTERNAL_H

#include "import/trace_replay.h"

/* A slot of the trace as it is replayed. */
typedef struct {
  BlockHandle block;
  gint32 stream;
  gboolean waited; /* the allocator has waited for its free */
} SlotState;

typedef struct {
  const AllocationTrace *trace;
  TraceReplay *replay;
  CachingAllocator *allocator;
  SlotState *slots;
  gint32 freeing;     /* slot whose free is being requested */
  guint event;        /* the event being replayed */
  guint group;        /* the first event after the last call of the program */
  guint call;         /* the next event that is a call of the program */
  gboolean releasing; /* the trace released segments for that call */
  guint ready;        /* frees completed in the trace before this event are ready to be seen */
  guint compared;     /* events before this one have been compared */
  gboolean restoring;
  const BlockHandle *restored; /* handles of the blocks that the trace begins with */
  guint n_restored;
  GArray *pending; /* slots whose free was requested before the trace */
} ReplayDriver;

static inline const TraceSlot *
replay_slot(const ReplayDriver *driver, gint32 slot)
{
  return &g_array_index(driver->trace->slots, TraceSlot, slot);
}

static inline ReplayStream *
replay_stream(const ReplayDriver *driver, int stream)
{
  return &g_array_index(driver->replay->streams, ReplayStream, stream);
}

/* ---- trace_compare.c */
gboolean trace_event_is_release(const TraceEvent *event);
gboolean trace_event_is_growth(const TraceEvent *event);
/* What the program does; all else is the allocator's answer, and comes before the call's own event.
 */
gboolean trace_event_is_call(const TraceEvent *event);
/* The replay did this to a segment: the trace's next segment event should be the same. */
void trace_compare_segment(ReplayDriver *driver, TraceAction action, int stream, guint64 address,
                           gint64 bytes);
/* An allocation got this address. */
void trace_compare_address(ReplayDriver *driver, guint64 expected, guint64 address);
/* The call is over: whatever else the trace did for it, the replay did not. */
void trace_compare_finish(ReplayDriver *driver);
/* Notes the first divergence; takes both texts. */
void trace_compare_diverge(ReplayDriver *driver, guint event, char *trace_did, char *replay_did);

/* ---- trace_moments.c */
ReplayMoment trace_moments_now(const ReplayDriver *driver);
void trace_moments_note_peaks(ReplayDriver *driver);
/* Reserved memory may be higher within an allocation than after it. */
void trace_moments_note_reserved(ReplayDriver *driver);
void trace_moments_follow_phase(ReplayDriver *driver, const TraceEvent *event);
/* The last moment, and the peaks of complete steps; the statistics are final. */
void trace_moments_finish(ReplayDriver *driver);
/* Allocated memory of a stream grows by that much. */
void trace_moments_count(ReplayDriver *driver, int stream, gint64 bytes);

#endif
