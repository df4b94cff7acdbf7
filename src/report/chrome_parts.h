/* chrome_parts.h - between the parts of the Chrome trace: which tracks there are, and who writes
 * what. */
#ifndef HIGHWATER_REPORT_CHROME_PARTS_H
#define HIGHWATER_REPORT_CHROME_PARTS_H

#include "record/recording.h"
#include "report/chrome_event.h"
#include "report/run_info.h"

/* Processes of the trace: PyTorch's profiler numbers GPUs from 0 as processes beside the host's. */
enum { DEVICE_PROCESS = 0, HOST_PROCESS = 1, COMMUNICATOR_PROCESS = 2 };

/* Threads of the host: slices of one must lie in each other, and a call may reach over the end of a
 * range. */
enum { HOST_THREAD = 1, RUNTIME_THREAD = 2 };

/* CUDA numbers the default stream 7 in the profiler's traces.  (Thread 0 of process 0 is the idle
 * task to Perfetto, which does not draw it.) */
enum { FIRST_STREAM = 7 };

typedef struct {
  const Recording *recording;
  const RunInfo *info;
  ChromeEvents out;
  GPtrArray *of_stream; /* GArray of guint: the device's spans of each stream, by end */
} ChromeTrace;

static inline int
chrome_stream(guint8 stream)
{
  return FIRST_STREAM + stream;
}

/* Is the span work of the device, not the host's? */
static inline gboolean
chrome_is_on_device(const Span *span)
{
  return span->kind <= SPAN_COLLECTIVE;
}

/* What launches and their work are known by: the span at that index, and calls that launch nothing
 * (of wait i the record and the wait). */
static inline gint64
chrome_correlation(guint span)
{
  return (gint64) span + 1;
}

static inline gint64
chrome_call_correlation(const ChromeTrace *trace, guint call)
{
  return (gint64) trace->recording->spans->len + 1 + call;
}

/* The global ranks of a communicator, "[0, 8, 16]".  FALSE when they are not known. */
gboolean chrome_group_ranks(const ChromeTrace *trace, const char *communicator, int *ranks,
                            GString *list);

/* chrome_device.c: kernels, copies and collectives, on tracks of streams and communicators; what
 * streams waited for. */
void chrome_device_write(ChromeTrace *trace);
/* chrome_host.c: steps, phases, hooks and modules. */
void chrome_host_write(ChromeTrace *trace);
/* chrome_calls.c: what the host calls of CUDA: launches, events, waits; flows from and to them. */
void chrome_calls_write(ChromeTrace *trace);
/* chrome_memory.c: allocations and frees, counters. */
void chrome_memory_write(ChromeTrace *trace);

/* Argument "phase" of an event: where the time at which it was issued does not tell, since the
 * phase began then. */
void chrome_phase_write(ChromeTrace *trace, const Span *span);

/* The span of the stream that ended last by that time, or the first that began at it or later; NULL
 * if there is none.  *index is its place among the spans. */
const Span *chrome_span_before(const ChromeTrace *trace, guint8 stream, SimTime time, guint *index);
const Span *chrome_span_after(const ChromeTrace *trace, guint8 stream, SimTime time, guint *index);

/* A moment within the span near its end, at which nothing else of its track has begun. */
ChromeEnd chrome_end_of(const Span *span);

#endif
