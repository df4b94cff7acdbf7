/* kineto_trace.h - the GPU work in traces of PyTorch's profiler (Kineto writes Chrome's trace
 * format): kernels by the op that launched them and its shapes, collectives, copies. */
#ifndef HIGHWATER_IMPORT_KINETO_TRACE_H
#define HIGHWATER_IMPORT_KINETO_TRACE_H

#include "import/byte_source.h"

/* Files are read up to this size, unpacked: what is kept of them is much smaller, */
#define KINETO_BYTE_LIMIT ((guint64) 32 << 30)
/* and at most so many ops, launches and kernels of one file. */
#define KINETO_MAX_EVENTS (8 << 20)

#define KINETO_ARGUMENTS 8
#define KINETO_DIMS 6

/* An argument of an op: a tensor, a list of tensors, or anything else, which has no elements. */
typedef struct {
  gint64 dims[KINETO_DIMS];
  guint n_dims;     /* of a tensor; 0: a scalar, a list, none, or more than KINETO_DIMS */
  double elements;  /* of the tensor, or of all tensors of the list */
  gboolean is_list; /* of tensors */
  int dtype;        /* DType of a tensor; -1: none, or one that DType does not have */
} KinetoArgument;

typedef enum {
  KINETO_OP,     /* kernels by the op that launched them */
  KINETO_KERNEL, /* kernels that no op is known of, by their own name: CUDA graphs, a cut trace */
  KINETO_COPY,   /* between host and device: "Memcpy HtoD (Pinned -> Device)" */
} KinetoRowKind;

typedef struct {
  double ns;
  gboolean beside; /* a collective of the same device ran during it */
} KinetoRun;

/* One op with one set of shapes and types. */
typedef struct {
  KinetoRowKind kind;
  char *name;   /* "aten::mm" */
  char *shapes; /* "[4096,4096] [4096,11008]", long ones cut and made distinct by a number; "" */
  char *types;  /* as the trace has them: "c10::BFloat16,c10::BFloat16" */
  KinetoArgument arguments[KINETO_ARGUMENTS]; /* the first ones */
  guint n_arguments;
  gint64 bytes;   /* KINETO_COPY */
  gint64 kernels; /* of all runs */
  GArray *runs;   /* KinetoRun: time of all kernels that one call launched itself */
} KinetoRow;

/* Kernels of NCCL with the same arguments. */
typedef struct {
  char *name;   /* "_allgather_base"; the kernel's where the trace does not say */
  char *type;   /* "BFloat16", or "" */
  gint64 bytes; /* the larger of what goes in and what comes out; 0: not known */
  int ranks;    /* 0: not known */
  int stride;   /* between the group's ranks */
  GArray *runs; /* KinetoRun: from this rank's launch to the end */
} KinetoCollective;

/* What the traces say of the machine; 0 and "" where they do not. */
typedef struct {
  char device[96], nccl[32], runtime[32];
  gint64 memory_bytes;
  gint64 outside_bytes; /* of it that the allocator cannot have; only our own traces say */
  gint64 sms, max_threads_per_sm, compute_capability;
  gint64 devices;    /* that the process saw */
  gint64 world_size; /* ranks of the job */
  gint64 rank;       /* that wrote the trace */
} KinetoMachine;

typedef enum { KINETO_FORWARD, KINETO_BACKWARD, KINETO_DIRECTION_COUNT } KinetoDirection;

typedef struct {
  KinetoMachine machine;
  GPtrArray *rows;                      /* KinetoRow; those that launched nothing have no runs */
  GPtrArray *collectives;               /* KinetoCollective, likewise */
  guint64 events;                       /* of all kinds */
  guint64 ops, kernels;                 /* of them; kernels with copies, fills and collectives */
  guint64 unlinked;                     /* kernels that no op is known of */
  guint steps;                          /* ProfilerStep ranges */
  GArray *host[KINETO_DIRECTION_COUNT]; /* double, ns: from one op that launches kernels to the next
                                           of its thread; of autograd nodes in backward */
  GPtrArray *notes;                     /* char *: "FILE: cut short at byte 1234 ..." */
  /* private */
  GHashTable *row_of, *collective_of;
} KinetoTrace;

KinetoTrace *kineto_trace_new(void);
void kineto_trace_free(KinetoTrace *trace);
G_DEFINE_AUTOPTR_CLEANUP_FUNC(KinetoTrace, kineto_trace_free)

/* TRUE when the text, the beginning of a file, is that of such a trace. */
gboolean kineto_trace_recognized(const char *text, gsize length);

/* Adds what a trace has: an object with traceEvents, or the bare array.  A trace that ends before
 * its end (its program died) is used up to there, with a note, if a kernel was read by then; all
 * else that is not as it should be: FALSE and error "FILE: byte 1234: ...", and the trace is then
 * of no use.  A trace without any kernel is added; whoever needs kernels looks. */
gboolean kineto_trace_read(KinetoTrace *trace, ByteSource *source, GError **error);
gboolean kineto_trace_load(KinetoTrace *trace, const char *path, GError **error);

/* DType of an element type by its name in ops ("c10::BFloat16") and collectives ("BFloat16"), or
 * -1. */
int kineto_dtype(const char *type);

#endif
