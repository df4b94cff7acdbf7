/* recording.h - what happened in a run, simulated or measured: spans on streams, allocations,
 * marks. */
#ifndef HIGHWATER_RECORD_RECORDING_H
#define HIGHWATER_RECORD_RECORDING_H

#include <glib.h>

#include "base/category.h"
#include "base/units.h"

typedef enum { SPAN_KERNEL, SPAN_COPY, SPAN_COLLECTIVE, SPAN_HOST_BLOCKED, SPAN_LOST } SpanKind;

/* Work on a stream, or what holds the host up.  name (the kernel, "all_gather", "cudaMalloc") and
 * module (on whose behalf; of a collective, the group it serves; of the host, the hook it is in)
 * are string ids of the Recording, -1: none. */
typedef struct {
  SimTime start, end;
  SimTime issued;  /* when the host issued it; 0: not known */
  SimTime arrived; /* collectives: when this rank had come to it; else, or not known: 0 */
  SimTime alone;   /* how long it would have taken with nothing beside it; 0: not known */
  guint8 kind;     /* SpanKind */
  guint8 stream;   /* index into stream names */
  gint16 step;     /* from 1; 0: construction */
  gint32 name, module;
  gint32 communicator; /* string id, collectives only; else -1 */
  gint32 phase;        /* 1 + index into ranges of the phase that issued it; 0: not known */
  gint32 dtype;        /* 1 + string id of the elements' type ("bf16"), collectives; 0: not known */
  gint64 bytes;        /* collectives: as nccl-tests counts them; copies: what they move */
  double flops;
} Span;

/* What held a stream or the host up: it had come to a wait for what another stream was to do. */
typedef struct {
  SimTime start, end; /* it had come to the wait; what it waited for was done */
  SimTime issued;     /* when the host issued the wait; the host's own: start */
  SimTime recorded;   /* when the host recorded the event; 0: it waits for all of the stream */
  guint8 stream;      /* which waited: index into stream names, that of "host" for the host */
  guint8 source;      /* which it waited for */
  gint16 step;        /* from 1; 0: construction */
} Wait;

/* An allocation or a free on the host's timeline. */
typedef struct {
  SimTime time;
  gint64 requested_bytes; /* > 0: allocation, < 0: free of that much */
  gint64 block_bytes;     /* rounded size, same sign */
  gint64 allocated_after, reserved_after;
  guint64 address;
  gint32 allocation; /* number of the allocation, from 0: pairs an allocation with its free */
  guint8 category;   /* Category */
  guint8 stream;
  gint16 step;
  gint32 module, what; /* string ids */
} MemoryEvent;

/* Segments coming and going (cudaMalloc, cudaFree, map, unmap: SegmentAction of memory/). */
typedef struct {
  SimTime time;
  guint64 address;
  gint64 bytes;
  gint32 memory_events; /* how many memory events came before it */
  guint8 action, stream;
} SegmentEvent;

/* A free that had to wait for what other streams did with the block (record_stream): from here on
 * the block can be used again.  A free that waits for nothing has none of these. */
typedef struct {
  SimTime time;         /* -1: it still waited when the run ended */
  gint32 allocation;    /* of the memory event that freed it */
  gint32 memory_events; /* how many of them came before */
  gint32 segment_events;
} CompletionEvent;

/* What a Range is; the same numbers as RangeKind of program/. */
typedef enum { RECORDED_PHASE, RECORDED_MODULE, RECORDED_HOOK, RECORDED_RANGE_KINDS } RecordedRange;

/* A named interval of the host's timeline. */
typedef struct {
  SimTime start, end;
  guint8 kind; /* RecordedRange */
  gint16 step;
  gint32 micro_batch; /* -1: none */
  gint32 name, module;
  /* phases only, bytes */
  gint64 start_allocated, end_allocated, peak_allocated, peak_reserved;
} Range;

/* Which memory events happened while a range was open: first to end - 1, indices into memory. Times
 * do not tell: a host does much in no time. */
typedef struct {
  gint32 first, end;
} RangeEvents;

/* Steps follow each other without draining the device: a step starts when the host begins to issue
 * it, which may be before the end of the previous one.  Its duration is recording_step_duration().
 */
typedef struct {
  int index;          /* from 1 */
  SimTime start, end; /* end: all that it issued is done, on every stream */
  gint64 peak_allocated, peak_reserved;
  gint64 end_allocated;
  gint64 allocator_retries; /* in this step */
} StepRecord;

/* A phase that is no part of a step: load, evaluate, save.  It comes after the step (0: the
 * construction) and before the next one. */
typedef struct {
  gint32 range;       /* index into ranges: name and bytes */
  SimTime start, end; /* start: all that came before is done; end: all that it issued, on every
                         stream */
} BeyondRecord;

typedef struct {
  gboolean happened;
  int step;
  gint32 phase, module, what; /* string ids */
  gint64 requested_bytes, segment_bytes, limit_bytes, allocated_bytes, reserved_bytes;
  guint8 category, stream; /* of what asked for the bytes */
} OutOfMemoryRecord;

typedef struct {
  gint64 bytes; /* rounded */
  guint8 category;
  gint32 module, what;
} LiveTensor;

/* Who was alive when allocated memory was highest. */
typedef struct {
  int step;
  gint32 phase, module; /* string ids: where the host was */
  gint32 micro_batch;   /* -1: none */
  SimTime time;
  gint64 allocated, reserved;
  gint64 categories[CATEGORY_COUNT]; /* sums to allocated */
  GArray *live;                      /* LiveTensor, largest first */
} PeakRecord;

typedef struct {
  char *title;          /* "llama-3-8b, fsdp2 ..." */
  GPtrArray *strings;   /* char * */
  GPtrArray *streams;   /* char *: stream names */
  GArray *spans;        /* Span, by end time */
  GArray *memory;       /* MemoryEvent, in host order */
  GArray *segments;     /* SegmentEvent */
  GArray *completions;  /* CompletionEvent, in host order; those that still waited last */
  GArray *ranges;       /* Range, by start */
  GArray *steps;        /* StepRecord */
  GArray *beyond;       /* BeyondRecord, by start */
  GArray *waits;        /* Wait, by end: of steps whose spans are there */
  GArray *cached;       /* gint64 per stream: bytes cached (reserved, not active) at the end */
  GArray *range_events; /* RangeEvents, parallel to ranges; empty: not known */
  PeakRecord peak;
  OutOfMemoryRecord out_of_memory;
  gint64 capacity_bytes; /* limit of the allocator */
  gint64 outside_allocator_bytes;
  gint64 construction_allocated, construction_reserved;           /* when it was done */
  gint64 construction_peak_allocated, construction_peak_reserved; /* and the most until then */
  gint64 at_rest_bytes;
  char *stuck;            /* NULL, or the engine's report of parties that never came */
  GHashTable *string_ids; /* private: text -> id + 1 */
} Recording;

Recording *recording_new(void);
void recording_free(Recording *recording);
G_DEFINE_AUTOPTR_CLEANUP_FUNC(Recording, recording_free)

/* Id of a string, shared. */
gint32 recording_string(Recording *recording, const char *text);
/* Of one that is there already; -1 otherwise. */
gint32 recording_find_string(const Recording *recording, const char *text);
const char *recording_text(const Recording *recording, gint32 id);

/* Was the range, or what issued the span, a phase beyond the steps?  range: index into ranges. */
gboolean recording_is_beyond(const Recording *recording, gint32 range);

/* Time between the end of step i (index into steps) and that of what came before it, a step or a
 * phase beyond; of the first: its end - start. */
SimTime recording_step_duration(const Recording *recording, guint i);

/* Tensors alive after the first `events` memory events, largest first, equal sizes in order of
 * allocation.  LiveTensor; free with g_array_unref. */
GArray *recording_live(const Recording *recording, guint events);

/* NULL, or the first rule broken between its values (caller frees), *key then names the part:
 * allocations are numbered in order and freed once as they were, times of events do not go back,
 * spans, ranges and steps are in order. */
char *recording_check(const Recording *recording, const char **key);

/* A RUN directory's file: one JSON document with everything above (format "highwater-recording-1").
 */
gboolean recording_save(const Recording *recording, const char *path, GError **error);
/* Every id, index and pairing in the file is checked.  NULL and error ("FILE: key 'memory': row 3:
 * ...") otherwise. */
Recording *recording_load(const char *path, GError **error);
/* The same from memory; name is used in messages. */
Recording *recording_parse(const char *name, const char *text, gsize length, GError **error);

#endif
