/* stream_clock.h - when a stream comes to what the host does at a moment. */
#ifndef HIGHWATER_REPORT_STREAM_CLOCK_H
#define HIGHWATER_REPORT_STREAM_CLOCK_H

#include "record/recording.h"

typedef struct _StreamClock StreamClock;

/* From the spans of one stream (an index; -1: of none) that say when they were issued. */
StreamClock *stream_clock_new(const Recording *recording, int stream);
void stream_clock_free(StreamClock *clock);
G_DEFINE_AUTOPTR_CLEANUP_FUNC(StreamClock, stream_clock_free)

/* When the stream begins what the host issues next; when it is done, if nothing follows.  The
 * moment itself, if the recording does not say when the stream's spans were issued. */
SimTime stream_clock_at(const StreamClock *clock, SimTime host);

#endif
