/* program.h - what one rank's host issues, step by step: a closed set of ops on storages, streams, events and
 * communicators.
 *
 * A Program has a construction list and one list per distinct step.  Lists are flat arrays of ProgramOp; names are ids
 * into the Program's tables.  It is plain data: built once (program_builder.h), then printed, checked and executed. */
#ifndef HIGHWATER_PROGRAM_PROGRAM_H
#define HIGHWATER_PROGRAM_PROGRAM_H

#include <glib.h>

#include "base/category.h"
#include "spec/dtype.h"

/* Streams of a rank.  Their order is that of creation. */
#define PROGRAM_STREAMS(X)                                                                                             \
  X(COMPUTE, "compute")                                                                                                \
  X(COPY_IN, "copy_in")                                                                                                \
  X(ALL_GATHER, "all_gather")                                                                                          \
  X(REDUCE_SCATTER, "reduce_scatter")                                                                                  \
  X(ALL_REDUCE, "all_reduce")                                                                                          \
  X(HOST, "host")

typedef enum {
#define X(name, text) STREAM_##name,
  PROGRAM_STREAMS(X)
#undef X
      STREAM_COUNT
} StreamId;

/* One list gives the enum, the printer's and the parser's names.  What a, b, c mean:
 *   HOST_WORK     a: HostWork kind, b: count                        host time
 *   LAUNCH        a: kernel id, operands                            a kernel on stream
 *   COPY          a: kernel id, operands                            a copy kernel or DMA on stream
 *   COLLECTIVE    a: collective id, operands                        on stream, through its communicator
 *   EVENT_RECORD  a: event id                                       on stream
 *   STREAM_WAIT   a: event id                                       stream waits
 *   EVENT_SYNC    a: event id                                       the host waits
 *   STREAM_SYNC                                                     the host waits for all of stream
 *   ALLOC         a: storage id                                     on stream
 *   FREE          a: storage id
 *   RECORD_STREAM a: storage id                                     used on stream too
 *   EMPTY_CACHE                                                     torch.cuda.empty_cache()
 *   RANGE_PUSH    a: name id, b: RangeKind
 *   RANGE_POP */
#define PROGRAM_OPS(X)                                                                                                 \
  X(HOST_WORK, "host_work")                                                                                            \
  X(LAUNCH, "launch")                                                                                                  \
  X(COPY, "copy")                                                                                                      \
  X(COLLECTIVE, "collective")                                                                                          \
  X(EVENT_RECORD, "event_record")                                                                                      \
  X(STREAM_WAIT, "stream_wait")                                                                                        \
  X(EVENT_SYNC, "event_sync")                                                                                          \
  X(STREAM_SYNC, "stream_sync")                                                                                        \
  X(ALLOC, "alloc")                                                                                                    \
  X(FREE, "free")                                                                                                      \
  X(RECORD_STREAM, "record_stream")                                                                                    \
  X(EMPTY_CACHE, "empty_cache")                                                                                        \
  X(RANGE_PUSH, "range_push")                                                                                          \
  X(RANGE_POP, "range_pop")

typedef enum {
#define X(name, text) PROGRAM_##name,
  PROGRAM_OPS(X)
#undef X
      PROGRAM_OP_COUNT
} ProgramOpKind;

/* Host work kinds; the device profile has the time of each. */
#define HOST_WORKS(X)                                                                                                  \
  X(OP_FORWARD, "op_forward")       /* one eager op with its autograd bookkeeping */                                   \
  X(OP_BACKWARD, "op_backward")     /* one autograd node */                                                            \
  X(HOOK, "hook")                   /* one framework hook of a group */                                                \
  X(COLLECTIVE_CALL, "collective_call")                                                                                \
  X(OPTIMIZER, "optimizer")         /* per parameter of an optimizer step */                                           \
  X(MODULE, "module")               /* Python overhead of one module call */

typedef enum {
#define X(name, text) HOST_WORK_##name,
  HOST_WORKS(X)
#undef X
      HOST_WORK_COUNT
} HostWork;

typedef enum {
  RANGE_PHASE,  /* zero_grad, forward, backward, clip, optimizer: name is one of these; micro-batch in c */
  RANGE_MODULE, /* a module's forward, recomputation or backward */
  RANGE_HOOK,   /* a framework hook, named as in the framework (unshard, post_backward ...) */
} RangeKind;

typedef struct {
  guint8 kind;      /* ProgramOpKind */
  guint8 stream;    /* StreamId */
  guint16 operands; /* how many, from operand[first_operand] */
  gint32 first_operand;
  gint32 a, b, c;
  gint32 module;    /* id of the module on whose behalf, or -1 */
} ProgramOp;

typedef enum { SPACE_DEVICE, SPACE_PINNED, SPACE_HOST } Space;

/* What is allocated. */
typedef struct {
  gint64 bytes;   /* as requested of the allocator */
  guint8 space;   /* Space */
  guint8 category; /* Category */
  guint8 stream;  /* StreamId that owns it */
  gint32 module;  /* id, or -1 */
  gint32 what;    /* name id: "log_softmax", "wq.weight", "unsharded parameters of layers.3" */
} Storage;

#define TENSOR_MAX_DIMS 5

/* Shape, strides (elements) and dtype of a view; shared between tensors. */
typedef struct {
  guint8 dtype; /* DType */
  guint8 dims;
  gint64 shape[TENSOR_MAX_DIMS];
  gint64 stride[TENSOR_MAX_DIMS];
} Layout;

/* A view of a storage. */
typedef struct {
  gint32 storage;
  gint32 layout;
  gint64 offset; /* elements */
} Tensor;

typedef enum { ROLE_READ, ROLE_WRITE, ROLE_ACCUMULATE } Role;

typedef struct {
  gint32 tensor;
  gint32 role; /* Role */
} Operand;

/* Kernel kinds: what the kernel model distinguishes. */
#define KERNEL_KINDS(X)                                                                                                \
  X(MEMORY, "memory")                       /* bound by bytes: element-wise, norms, casts, reductions */               \
  X(GEMM, "gemm")                           /* m, n, k */                                                              \
  X(ATTENTION_FORWARD, "attention_forward") /* m: batch*heads, n: length, k: head dim */                               \
  X(ATTENTION_BACKWARD, "attention_backward")                                                                          \
  X(OPTIMIZER, "optimizer")                                                                                            \
  X(COPY, "copy")

typedef enum {
#define X(name, text) KERNEL_##name,
  KERNEL_KINDS(X)
#undef X
      KERNEL_KIND_COUNT
} KernelKind;

/* A kernel as the host launches it; durations come from the device profile at execution.  Equal ones are shared. */
typedef struct {
  guint8 kind;       /* KernelKind */
  guint8 dtype;      /* DType of the computation */
  guint16 variant;   /* attention: AttentionKernel of network/; else 0 */
  gint32 name;       /* name id: "mm", "flash_attention_backward" */
  gint32 launches;   /* device kernels in it, >= 1 */
  gint64 m, n, k;
  double flops;
  double bytes;      /* read and written */
} Kernel;

#define COLLECTIVE_KINDS(X)                                                                                            \
  X(ALL_GATHER, "all_gather")                                                                                          \
  X(REDUCE_SCATTER, "reduce_scatter")                                                                                  \
  X(ALL_REDUCE, "all_reduce")                                                                                          \
  X(BROADCAST, "broadcast")

typedef enum {
#define X(name, text) COLLECTIVE_##name,
  COLLECTIVE_KINDS(X)
#undef X
      COLLECTIVE_KIND_COUNT
} CollectiveKind;

/* One collective operation.  bytes: the full gathered or reduced buffer, as nccl-tests counts it. */
typedef struct {
  guint8 kind;         /* CollectiveKind */
  guint8 dtype;
  gint32 communicator; /* index */
  gint32 name;         /* name id of the group it serves, or -1 */
  gint64 bytes;
} Collective;

/* A communicator of `ranks` members, `nodes` nodes apart: ranks/nodes of them on each node. */
typedef struct {
  gint32 name;  /* "shard", "replicate" */
  int ranks;
  int stride;   /* distance between the global ranks of neighbours: 1 for the shard group, shard for the replicate group */
} Communicator;

/* Renames storages before a list is executed again: what the last run knew as `from` is now `to`. */
typedef struct {
  gint32 from, to;
} Carry;

typedef struct {
  GArray *ops;    /* ProgramOp */
  GArray *carries; /* Carry: applied when the list runs right after itself */
} OpList;

typedef struct {
  GPtrArray *names;        /* char *, id -> text */
  GArray *storages;        /* Storage */
  GArray *layouts;         /* Layout */
  GArray *tensors;         /* Tensor */
  GArray *operands;        /* Operand */
  GArray *kernels;         /* Kernel */
  GArray *collectives;     /* Collective */
  GArray *communicators;   /* Communicator */
  GPtrArray *modules;      /* char *, id -> dotted path ("layers.3.attention.wq") */
  int events;              /* number of event ids */
  GPtrArray *lists;        /* OpList *: lists[0] is the construction, lists[i] a distinct step */
  int steps;               /* how many steps were asked for */
  GArray *step_list;       /* int: step k (from 0) executes lists[step_list[k]] */
} Program;

Program *program_new(void);
void program_free(Program *program);
G_DEFINE_AUTOPTR_CLEANUP_FUNC(Program, program_free)

const char *program_op_name(ProgramOpKind kind);
const char *program_stream_name(StreamId stream);
const char *program_host_work_name(HostWork kind);
const char *program_kernel_kind_name(KernelKind kind);
const char *program_collective_name(CollectiveKind kind);

/* The list of step k (from 0). */
const OpList *program_step(const Program *program, int step);

/* Text form (one op a line, tables first): printing what was parsed gives the same text. */
void program_print(const Program *program, GString *out);
/* Only one list, human oriented: tensors and storages spelled out.  list: index into program->lists. */
void program_print_list(const Program *program, int list, GString *out);
/* Parses program_print()'s form.  NULL and error ("NAME: line L: ...") when malformed. */
Program *program_parse(const char *name, const char *text, GError **error);

/* Checks the rules below over the construction and all steps in order; FALSE and error naming step, op and storage:
 * use before alloc or after free in host order; double alloc or free; a read that no happens-before path (host order of
 * issue, stream order, record/wait, host syncs) orders after its write, and a write not ordered after earlier reads;
 * unbalanced ranges; unknown ids; waiting for an event never recorded. */
gboolean program_check(const Program *program, GError **error);
/* Checks that two ranks' programs agree on every communicator: order, kind, bytes, dtype. */
gboolean program_check_agreement(const Program *a, const Program *b, GError **error);

#endif
