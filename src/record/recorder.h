/* recorder.h - fills a Recording while a run goes on, and says at the end who was alive at the
 * peak.
 *
 * The run reports what happens in host order; the recorder keeps the open ranges, the peaks of
 * phases and steps and where the highest memory was.  It knows neither Program nor allocator:
 * levels come through a callback. */
#ifndef HIGHWATER_RECORD_RECORDER_H
#define HIGHWATER_RECORD_RECORDER_H

#include "record/recording.h"

typedef struct _Recorder Recorder;

/* Bytes now, and their maxima since the level was last read. */
typedef struct {
  gint64 allocated, reserved;
  gint64 peak_allocated, peak_reserved;
  gint64 retries; /* allocator retries since the run began */
} MemoryLevel;

/* Reads the level; the maxima start again from what is there now. */
typedef MemoryLevel (*RecorderLevel)(gpointer user);

/* The Recording is borrowed and must outlive the recorder. */
Recorder *recorder_new(Recording *recording, RecorderLevel level, gpointer user);
void recorder_free(Recorder *recorder);
G_DEFINE_AUTOPTR_CLEANUP_FUNC(Recorder, recorder_free)

/* The Recording gets what is known of steps and of the construction, and no rows for events, ranges
 * and spans: for ranks that nobody looks at one by one.  It has no peak then. */
void recorder_keep_only_peaks(Recorder *recorder);

/* Nobody says when steps begin: the peak is that of all that is recorded. */
void recorder_count_all(Recorder *recorder);

/* Gradients are not dropped between steps: they count in at_rest_bytes. */
void recorder_keep_gradients(Recorder *recorder);

/* About so many memory events, ranges and spans are to come: saves growing. */
void recorder_reserve(Recorder *recorder, guint memory, guint ranges, guint spans);

/* Closes all ranges that are open: the run ends in them. */
void recorder_close_ranges(Recorder *recorder, SimTime time);
/* Construction is over: its levels, and at_rest_bytes if no step follows. */
void recorder_end_construction(Recorder *recorder);
/* Steps count from 1; the host begins to issue this one. */
void recorder_begin_step(Recorder *recorder, SimTime time);
/* The host has issued all of it, or gives up: open ranges end here. */
void recorder_end_step(Recorder *recorder, SimTime time);
/* All that step i (index into steps) issued was done at this time. */
void recorder_step_done(Recorder *recorder, guint i, SimTime time);

/* Opens a range: kind, name, module and micro_batch of *range are read. */
void recorder_push(Recorder *recorder, SimTime time, const Range *range);
/* The same for a phase beyond the step or the construction, which are over then; their end is not
 * said again.  recorder_pop() closes it. */
void recorder_begin_beyond(Recorder *recorder, SimTime time, const Range *range);
/* Phase i (index into beyond) began when all before it was done, and all that it issued was done at
 * end. */
void recorder_beyond_done(Recorder *recorder, guint i, SimTime start, SimTime end);
/* Closes the innermost open range. */
void recorder_pop(Recorder *recorder, SimTime time);

/* The phase the host is in, as Span.phase has it. */
gint32 recorder_phase(const Recorder *recorder);

/* Name (string id) of the innermost open hook, -1 when the host is in none. */
gint32 recorder_hook(const Recorder *recorder);

/* An allocation; its step and number are filled in.  Returns the number, to be given when it is
 * freed. */
gint32 recorder_allocate(Recorder *recorder, const MemoryEvent *event);
/* Allocation `allocation` is free again, or will be when recorder_complete() says so. */
void recorder_release(Recorder *recorder, gint32 allocation, SimTime time, gint64 allocated,
                      gint64 reserved);
/* The free waited, and is complete.  time -1: it is not, and the run is over. */
void recorder_complete(Recorder *recorder, gint32 allocation, SimTime time);
/* Its memory_events are filled in. */
void recorder_segment(Recorder *recorder, const SegmentEvent *event);
/* Spans come in order of their ends. */
void recorder_span(Recorder *recorder, const Span *span);
/* The run ends here: module (when the host is in none), what and the byte counts of *record are
 * read. */
void recorder_out_of_memory(Recorder *recorder, const OutOfMemoryRecord *record);

/* The run is over: attributes the peak. */
void recorder_finish(Recorder *recorder);

#endif
