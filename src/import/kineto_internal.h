/* kineto_internal.h - between the parts of the reader of Kineto traces. */
#ifndef HIGHWATER_IMPORT_KINETO_INTERNAL_H
#define HIGHWATER_IMPORT_KINETO_INTERNAL_H

#include "base/units.h"
#include "import/json_pull.h"
#include "import/kineto_trace.h"

/* ---- kineto_event.c: one event as it is read, all of it used again for the next */

typedef enum {
  KINETO_EVENT_OTHER,
  KINETO_EVENT_OP,
  KINETO_EVENT_LAUNCH, /* a call of the CUDA runtime or driver */
  KINETO_EVENT_KERNEL,
  KINETO_EVENT_COPY,
  KINETO_EVENT_FILL,
  KINETO_EVENT_ANNOTATION, /* record_function() and the profiler's own ranges, on the host */
  KINETO_EVENT_PYTHON,     /* calls of Python and of modules */
  KINETO_EVENT_SYNC,       /* what a wait was for */
} KinetoEventKind;

/* Arguments that say when and on what, beside those that calibration needs; times in ns.  -1: not
 * said. */
typedef struct {
  gint64 device_type, device, address; /* of "[memory]" */
  gint64 allocated, reserved, requested;
  gint64 stream, source, record; /* of waits: for that stream, for the record of that correlation */
  gint64 micro_batch, flops, step, retries;
  SimTime done, at, alone, arrived;
  GString *track;                 /* "name" of a track; "": none */
  GString *group, *group_purpose; /* "Process Group Name" and "Description" */
  GString *module, *phase, *category, *what;
  gboolean has_module; /* "" is the whole network */
} KinetoDetails;

typedef struct {
  KinetoEventKind kind;
  gboolean complete;    /* with a duration: phase X */
  gboolean timed;       /* it has a time */
  GString *name;        /* "" : none */
  GString *process;     /* pid; a device's number for its kernels */
  GString *thread;      /* tid */
  gint64 begin, length; /* ns */
  gint64 id;            /* "External id" of the op, or the op that it belongs to; 0: none */
  gint64 correlation;   /* of a launch and what it launched; 0: none */
  gint64 bytes;
  GString *shapes, *types;
  KinetoArgument arguments[KINETO_ARGUMENTS];
  guint n_arguments;
  GString *collective, *type; /* of NCCL's kernels; "": not said */
  gint64 elements[2];         /* in and out */
  gint64 ranks, stride;
  char phase; /* 'X', 'i', 'M'; 0: not said */
  KinetoDetails details;
} KinetoEvent;

void kineto_event_init(KinetoEvent *event);
void kineto_event_clear(KinetoEvent *event);
/* Reads the object that comes next; FALSE: see json_pull_ok(). */
gboolean kineto_event_read(KinetoEvent *event, JsonPull *pull);

/* Does the device do it: a kernel, a copy, a fill? */
static inline gboolean
kineto_event_is_work(const KinetoEvent *event)
{
  return event->kind >= KINETO_EVENT_KERNEL && event->kind <= KINETO_EVENT_FILL;
}

/* ---- kineto_document.c: the file */

typedef struct {
  KinetoMachine *machine; /* what the file says of it is added; borrowed, as the rest */
  GPtrArray *notes;       /* char *: likewise */
  /* Takes an event; FALSE after json_pull_fail(). */
  gboolean (*keep)(gpointer user, const KinetoEvent *event, JsonPull *pull);
  gpointer user;
  gint64 base_ns;  /* filled in: "baseTimeNanoseconds", -1: not said */
  char title[256]; /* "traceName" */
} KinetoDocument;

/* Reads all of it, or what there is of one that was cut after its first kernel (with a note). */
gboolean kineto_document_read(KinetoDocument *document, ByteSource *source, GError **error);

/* ---- kineto_trace.c: where rows are found again */

/* Index of the row with the event's name, shapes and types; kind KINETO_KERNEL and KINETO_COPY:
 * with its name (and bytes) alone. */
guint kineto_row_of(KinetoTrace *trace, KinetoRowKind kind, const KinetoEvent *event);
/* Index of the collective of a kernel of NCCL, or of the op that launches one. */
guint kineto_collective_of(KinetoTrace *trace, const KinetoEvent *event);

/* ---- kineto_link.c: from one file's events to runs of rows */

typedef struct {
  guint row;
  gint32 collective; /* -1: none */
  gint64 id, begin, end;
  guint32 thread;
  guint32 parent; /* place of the op around it, or KINETO_NO_OP */
  guint8 flags;
} TracedOp;
#define KINETO_NO_OP G_MAXUINT32

enum {
  OP_ATEN = 1,     /* an op of ATen */
  OP_NODE = 2,     /* the engine runs a node of autograd */
  OP_IN_ATEN = 4,  /* within another one of ATen */
  OP_IN_NODE = 8,  /* within a node */
  OP_LAUNCHES = 16 /* it, or an op within it, launches something */
};

typedef struct {
  gint64 correlation, id, at;
  guint32 thread;
} TracedLaunch;

typedef struct {
  gint64 correlation, id, begin, end;
  guint row;         /* of its own name */
  gint32 collective; /* -1: no kernel of NCCL */
  guint32 device;
  gboolean copy; /* from or to the host */
} TracedKernel;

/* One file's events. */
typedef struct {
  GArray *ops;      /* TracedOp */
  GArray *launches; /* TracedLaunch */
  GArray *kernels;  /* TracedKernel */
} KinetoFile;

void kineto_link(KinetoTrace *trace, KinetoFile *file);

#endif
