/* kineto_timeline.h - between the parts of the import of traces: what one file says happened, in
 * its own times and numbers. */
#ifndef HIGHWATER_IMPORT_KINETO_TIMELINE_H
#define HIGHWATER_IMPORT_KINETO_TIMELINE_H

#include "import/kineto_internal.h"
#include "import/kineto_recording.h"

/* Figures that a Recording's file cannot hold: 104 days in ns. */
#define KINETO_MOST ((gint64) 1 << 53)

/* Threads of a process: of a device's, its streams. */
typedef struct {
  char *process, *thread;
  char *name; /* NULL: not named */
  guint works;
} TimelineTrack;

/* Work of the device.  Of the span step, stream, issued and phase are not known yet. */
typedef struct {
  Span span;
  gint64 correlation;
  gint32 phase; /* string id: of the phase that issued it, which had just begun; -1: not said */
  guint track;
} TimelineWork;

/* A call of CUDA's. */
typedef struct {
  SimTime begin, end, done; /* done: as the trace says beside, else the end */
  gint64 correlation;
  guint track;
} TimelineCall;

/* One that holds the host up. */
typedef struct {
  Span span;
  SimTime drawn_end;
  gint32 phase; /* as of a work */
} TimelineHeld;

/* What a wait of a stream or the host was for. */
typedef struct {
  SimTime begin, end;
  gint64 correlation, record;
  gint64 stream, source; /* numbers of CUDA's streams */
  gboolean is_stream;    /* a stream waited */
} TimelineSync;

typedef struct {
  Range range;
  guint order; /* of those that begin and end together the first is the outer one */
} TimelineRange;

typedef struct {
  SimTime begin, end, done; /* done: when all that it issued was; -1: not said */
  gint64 retries;           /* of the allocator */
} TimelineStep;

typedef struct {
  SimTime time;
  gint64 bytes, requested, address, allocated, reserved;
  gint64 device, stream, step; /* -1: not said */
  gint32 module, what;
  guint8 category;
  gboolean in_phase; /* one that began at that moment */
  gboolean failed;   /* there was not enough */
} TimelineMemory;

/* An op. */
typedef struct {
  SimTime begin, end;
  guint track;
  gboolean is_node; /* autograd runs one of backward's */
} TimelineOp;

typedef struct {
  Recording *recording; /* strings, and in the end the rest */
  KinetoAbout *about;
  char title[256];
  gint64 base_ns;       /* of times; -1: not said */
  SimTime first, last;  /* of all moments */
  GArray *tracks;       /* TimelineTrack */
  GArray *works;        /* TimelineWork */
  GArray *calls;        /* TimelineCall */
  GArray *held;         /* TimelineHeld */
  GArray *syncs;        /* TimelineSync */
  GArray *ranges;       /* TimelineRange */
  GArray *steps;        /* TimelineStep */
  GArray *memory;       /* TimelineMemory */
  GArray *ops;          /* TimelineOp */
  GArray *numbers;      /* gint64: CUDA's number of each stream of the Recording but the host's */
  GHashTable *track_of; /* "process/thread" -> index + 1 */
} Timeline;

/* ---- kineto_timeline.c */

Timeline *timeline_new(KinetoAbout *about);
/* Frees all but the Recording, which is NULL if somebody took it. */
void timeline_free(Timeline *timeline);
G_DEFINE_AUTOPTR_CLEANUP_FUNC(Timeline, timeline_free)
/* Reads a file; times begin at 0 then. */
gboolean timeline_read(Timeline *timeline, ByteSource *source, GError **error);

/* Index of a stream in the Recording by its number in CUDA, or -1. */
int timeline_stream(const Timeline *timeline, gint64 number);

/* ---- kineto_phases.c */

/* Adds phases that no annotation names: backward where nodes of autograd ran, forward from the
 * step's begin, or the end of what came before, until then.  Steps are in order. */
void timeline_infer_phases(Timeline *timeline);

/* ---- kineto_host.c */

/* How many steps had begun before that moment; they are in order. */
guint timeline_steps_before(const Timeline *timeline, SimTime time);

/* Plays what the host did, in order of time, through a Recorder: steps, ranges, memory.  device:
 * whose memory. */
void timeline_play_host(Timeline *timeline, gint64 device);

#endif
