/* recording.h - what happened: spans on streams, allocations, marks.  Simulated and measured runs alike. */
#ifndef HIGHWATER_RECORD_RECORDING_H
#define HIGHWATER_RECORD_RECORDING_H

#include <glib.h>

#include "base/category.h"
#include "base/units.h"

typedef enum { SPAN_KERNEL, SPAN_COPY, SPAN_COLLECTIVE, SPAN_HOST_BLOCKED, SPAN_LOST } SpanKind;

/* Work on a stream.  name, module and group are string ids of the Recording (-1: none).  A collective's name is its kind
 * as program_collective_name() has it. */
typedef struct {
  SimTime start, end;
  guint8 kind;   /* SpanKind */
  guint8 stream; /* index into stream names */
  gint16 step;   /* from 1; 0: construction */
  gint32 name, module;
  gint32 communicator; /* string id, collectives only; else -1 */
  gint32 group;        /* collectives: the group it serves, Collective.name; else -1 */
  gint32 phase;        /* 1 + index into ranges of the phase that issued it; 0: not known */
  gint64 bytes;        /* collectives: as nccl-tests counts them */
  double flops;
} Span;

/* An allocation or a free on the host's timeline. */
typedef struct {
  SimTime time;
  gint64 requested_bytes; /* > 0: allocation, < 0: free of that much */
  gint64 block_bytes;     /* rounded size, same sign */
  gint64 allocated_after, reserved_after;
  guint64 address;
  gint32 allocation;      /* number of the allocation, from 0: pairs an allocation with its free */
  guint8 category;        /* Category */
  guint8 stream;
  gint16 step;
  gint32 module, what;    /* string ids */
} MemoryEvent;

/* Segments coming and going (cudaMalloc, cudaFree, map, unmap: SegmentAction of memory/). */
typedef struct {
  SimTime time;
  guint64 address;
  gint64 bytes;
  guint8 action, stream;
} SegmentEvent;

/* A named interval of the host's timeline. */
typedef struct {
  SimTime start, end;
  guint8 kind;  /* RangeKind of program/ */
  gint16 step;
  gint16 micro_batch;
  gint32 name, module;
  /* phases only, bytes */
  gint64 start_allocated, end_allocated, peak_allocated, peak_reserved;
} Range;

typedef struct {
  int index; /* from 1 */
  SimTime start, end; /* end: all streams done */
  gint64 peak_allocated, peak_reserved;
  gint64 end_allocated;
  gint64 allocator_retries; /* in this step */
} StepRecord;

typedef struct {
  gboolean happened;
  int step;
  gint32 phase, module, what; /* string ids */
  gint64 requested_bytes, segment_bytes, limit_bytes, allocated_bytes, reserved_bytes;
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
  gint16 micro_batch;
  SimTime time;
  gint64 allocated, reserved;
  gint64 categories[CATEGORY_COUNT]; /* sums to allocated */
  GArray *live;                      /* LiveTensor, largest first */
} PeakRecord;

typedef struct {
  char *title;           /* "llama-3-8b, fsdp2 ..." */
  GPtrArray *strings;    /* char * */
  GPtrArray *streams;    /* char *: stream names */
  GArray *spans;         /* Span, by end time */
  GArray *memory;        /* MemoryEvent, in host order */
  GArray *segments;      /* SegmentEvent */
  GArray *ranges;        /* Range, by start */
  GArray *steps;         /* StepRecord */
  GArray *cached;        /* gint64 per stream: bytes reserved but not allocated at the end of the last step */
  PeakRecord peak;
  OutOfMemoryRecord out_of_memory;
  gint64 capacity_bytes; /* limit of the allocator */
  gint64 outside_allocator_bytes;
  gint64 construction_allocated, construction_reserved;
  gint64 at_rest_bytes;
  char *stuck;           /* NULL, or the engine's report of parties that never came */
} Recording;

Recording *recording_new(void);
void recording_free(Recording *recording);
G_DEFINE_AUTOPTR_CLEANUP_FUNC(Recording, recording_free)

/* Id of a string, shared. */
gint32 recording_string(Recording *recording, const char *text);
const char *recording_text(const Recording *recording, gint32 id);

/* A RUN directory's file: one JSON document with everything above (format "highwater-recording-1"). */
gboolean recording_save(const Recording *recording, const char *path, GError **error);
Recording *recording_load(const char *path, GError **error);

#endif
