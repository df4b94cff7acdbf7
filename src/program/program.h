/* program.h - what one rank's host issues, step by step: a closed set of ops on storages, streams,
 * events and communicators.
 *
 * A Program has a construction list and one list per distinct step.  Lists are flat arrays of
 * ProgramOp; names are ids into the Program's tables.  It is plain data: built once
 * (program_builder.h), then printed, checked and executed. */
#ifndef HIGHWATER_PROGRAM_PROGRAM_H
#define HIGHWATER_PROGRAM_PROGRAM_H

#include <glib.h>

#include "base/category.h"
#include "spec/dtype.h"

/* Streams of a rank.  Their order is that of creation. */
#define PROGRAM_STREAMS(X)                                                                         \
  X(COMPUTE, "compute")                                                                            \
  X(COPY_IN, "copy_in")                                                                            \
  X(ALL_GATHER, "all_gather")                                                                      \
  X(REDUCE_SCATTER, "reduce_scatter")                                                              \
  X(ALL_REDUCE, "all_reduce")                                                                      \
  X(HOST, "host")

typedef enum {
#define X(name, text) STREAM_##name,
  PROGRAM_STREAMS(X)
#undef X
      STREAM_COUNT
} StreamId;

/* The closed set of ops.  One list gives the enum, the printer, the parser, the checker's ranges
 * and the folding: X(NAME, "text", whether stream matters, what a is, what b is, what c is, whether
 * it has operands) a, b and c are ids into the Program's tables (or counts); those that are NONE
 * are 0, and a stream that does not matter is that of the storage (FREE) or STREAM_HOST. HOST_WORK
 * host time LAUNCH         a kernel on stream COPY           a copy kernel or DMA on stream
 *   HOST_COMPUTE   what the host computes in its memory; the time is HOST_WORK's
 *   HOST_REDUCE    hosts of a communicator's ranks sum the number that each has in hand; no time
 *   COLLECTIVE     on stream, through its communicator
 *   EVENT_RECORD   on stream
 *   STREAM_WAIT    stream waits for the event's last record
 *   EVENT_SYNC     the host waits
 *   STREAM_SYNC    the host waits for all of stream
 *   ALLOC          on stream
 *   FREE
 *   RECORD_STREAM  the storage is used on stream too
 *   EMPTY_CACHE    torch.cuda.empty_cache()
 *   RANGE_PUSH     a named interval of the host begins; a phase has its micro-batch in c (-1: none)
 *   RANGE_POP */
#define PROGRAM_OPS(X)                                                                             \
  X(HOST_WORK, "host_work", NO_STREAM, HOST_WORK, COUNT, NONE, NO_OPERANDS)                        \
  X(HOST_COMPUTE, "host_compute", NO_STREAM, KERNEL, NONE, NONE, OPERANDS)                         \
  X(HOST_REDUCE, "host_reduce", NO_STREAM, COMMUNICATOR, NONE, NONE, NO_OPERANDS)                  \
  X(LAUNCH, "launch", STREAM, KERNEL, NONE, NONE, OPERANDS)                                        \
  X(COPY, "copy", STREAM, KERNEL, NONE, NONE, OPERANDS)                                            \
  X(COLLECTIVE, "collective", STREAM, COLLECTIVE, NONE, NONE, OPERANDS)                            \
  X(EVENT_RECORD, "event_record", STREAM, EVENT, NONE, NONE, NO_OPERANDS)                          \
  X(STREAM_WAIT, "stream_wait", STREAM, EVENT, NONE, NONE, NO_OPERANDS)                            \
  X(EVENT_SYNC, "event_sync", NO_STREAM, EVENT, NONE, NONE, NO_OPERANDS)                           \
  X(STREAM_SYNC, "stream_sync", STREAM, NONE, NONE, NONE, NO_OPERANDS)                             \
  X(ALLOC, "alloc", STREAM, STORAGE, NONE, NONE, NO_OPERANDS)                                      \
  X(FREE, "free", STREAM, STORAGE, NONE, NONE, NO_OPERANDS)                                        \
  X(RECORD_STREAM, "record_stream", STREAM, STORAGE, NONE, NONE, NO_OPERANDS)                      \
  X(EMPTY_CACHE, "empty_cache", NO_STREAM, NONE, NONE, NONE, NO_OPERANDS)                          \
  X(RANGE_PUSH, "range_push", NO_STREAM, NAME, RANGE_KIND, MICRO_BATCH, NO_OPERANDS)               \
  X(RANGE_POP, "range_pop", NO_STREAM, NONE, NONE, NONE, NO_OPERANDS)

typedef enum {
#define X(name, text, stream, a, b, c, operands) PROGRAM_##name,
  PROGRAM_OPS(X)
#undef X
      PROGRAM_OP_COUNT
} ProgramOpKind;

/* What a value in an op or a table row is: how it is written, and its range. */
typedef enum {
  VALUE_NONE,
  VALUE_COUNT,       /* 0 .. 2^31 - 1 */
  VALUE_POSITIVE,    /* 1 .. 2^31 - 1 */
  VALUE_INTEGER,     /* 0 .. 2^63 - 1 */
  VALUE_REAL,        /* a finite double >= 0 */
  VALUE_SHORT,       /* 0 .. 2^16 - 1 */
  VALUE_MICRO_BATCH, /* -1 (none), 0 .. */
  VALUE_NAME,        /* ids of the tables */
  VALUE_ANY_NAME,    /* or -1 */
  VALUE_MEANING,     /* a name's id + 1, or 0: none, and then it is not written */
  VALUE_ANY_MODULE,  /* or -1 */
  VALUE_COMMUNICATOR,
  VALUE_LAYOUT,
  VALUE_KERNEL,
  VALUE_COLLECTIVE,
  VALUE_STORAGE,
  VALUE_TENSOR,
  VALUE_EVENT,
  VALUE_STREAM, /* the enums, written by name */
  VALUE_HOST_WORK,
  VALUE_RANGE_KIND,
  VALUE_SPACE,
  VALUE_CATEGORY,
  VALUE_DTYPE,
  VALUE_KERNEL_KIND,
  VALUE_COLLECTIVE_KIND,
  VALUE_ROLE,
  VALUE_KIND_COUNT
} ValueKind;

/* A row of PROGRAM_OPS. */
typedef struct {
  const char *name;
  gboolean stream;    /* printed and parsed */
  gboolean operands;  /* may have them */
  guint8 argument[3]; /* ValueKind of a, b, c */
} ProgramOpForm;

extern const ProgramOpForm program_op_form[PROGRAM_OP_COUNT];

/* Host work kinds; the device profile has the time of each. */
#define HOST_WORKS(X)                                                                              \
  X(OP_FORWARD, "op_forward")   /* one eager op with its autograd bookkeeping */                   \
  X(OP_BACKWARD, "op_backward") /* one autograd node */                                            \
  X(HOOK, "hook")               /* one framework hook of a group */                                \
  X(COLLECTIVE_CALL, "collective_call")                                                            \
  X(OPTIMIZER, "optimizer") /* per parameter of an optimizer step */                               \
  X(MODULE, "module")       /* Python overhead of one module call */                               \
  X(MEMORY, "memory")       /* a MiB that the CPU reads or writes: an optimizer on the host */     \
  X(COMPILED_REGION, "compiled_region") /* one call of a compiled block */                         \
  X(COMPILED_KERNEL, "compiled_kernel") /* one kernel that it launches */

typedef enum {
#define X(name, text) HOST_WORK_##name,
  HOST_WORKS(X)
#undef X
      HOST_WORK_COUNT
} HostWork;

#define RANGE_KINDS(X)                                                                             \
  X(PHASE, "phase")   /* zero_grad, forward, backward, metrics, clip, optimizer: its name;         \
                         micro-batch in c */                                                       \
  X(MODULE, "module") /* a module's forward, recomputation or backward */                          \
  X(HOOK, "hook") /* a framework hook, named as in the framework (unshard, post_backward ...) */   \
  X(BEYOND, "beyond") /* a phase that is no part of a step, after it (or after the construction):  \
                         evaluate, save, load */

typedef enum {
#define X(name, text) RANGE_##name,
  RANGE_KINDS(X)
#undef X
      RANGE_KIND_COUNT
} RangeKind;

typedef struct {
  guint8 kind;      /* ProgramOpKind */
  guint8 stream;    /* StreamId */
  guint16 operands; /* how many, from operand[first_operand] */
  gint32 first_operand;
  gint32 a, b, c;
  gint32 module; /* id of the module on whose behalf, or -1 */
} ProgramOp;

#define SPACES(X)                                                                                  \
  X(DEVICE, "device")                                                                              \
  X(PINNED, "pinned")                                                                              \
  X(HOST, "host")

typedef enum {
#define X(name, text) SPACE_##name,
  SPACES(X)
#undef X
      SPACE_COUNT
} Space;

/* What is allocated. */
typedef struct {
  gint64 bytes;    /* as requested of the allocator */
  guint8 space;    /* Space */
  guint8 category; /* Category */
  guint8 stream;   /* StreamId that owns it */
  gint32 module;   /* id, or -1 */
  gint32 what;     /* name id: "log_softmax", "wq.weight", "unsharded parameters of layers.3" */
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

#define ROLES(X)                                                                                   \
  X(READ, "read")                                                                                  \
  X(WRITE, "write")                                                                                \
  X(ACCUMULATE, "accumulate") /* reads and writes */

typedef enum {
#define X(name, text) ROLE_##name,
  ROLES(X)
#undef X
      ROLE_COUNT
} Role;

typedef struct {
  gint32 tensor;
  gint32 role; /* Role */
} Operand;

/* What a storage that the construction makes holds of a parameter: elements of it from `first` on,
 * from the storage's element `offset` on.  What no part says is padding. */
typedef struct {
  gint32 storage;
  gint32 parameter; /* name id */
  guint8 dtype;     /* of the storage's elements */
  gint64 offset, first, elements;
} ParameterPart;

/* Kernel kinds: what the kernel model distinguishes. */
#define KERNEL_KINDS(X)                                                                            \
  X(MEMORY, "memory") /* bound by bytes: element-wise, norms, casts, reductions */                 \
  X(GEMM, "gemm")     /* m, n, k */                                                                \
  X(ATTENTION_FORWARD, "attention_forward") /* m: batch*heads, n: length, k: head dim */           \
  X(ATTENTION_BACKWARD, "attention_backward")                                                      \
  /* the same where queries see all keys, or are told by a mask which: FLOPs of the whole square   \
   */                                                                                              \
  X(WHOLE_ATTENTION_FORWARD, "whole_attention_forward")                                            \
  X(WHOLE_ATTENTION_BACKWARD, "whole_attention_backward")                                          \
  X(OPTIMIZER, "optimizer")                                                                        \
  X(COPY, "copy")

typedef enum {
#define X(name, text) KERNEL_##name,
  KERNEL_KINDS(X)
#undef X
      KERNEL_KIND_COUNT
} KernelKind;

static inline gboolean
kernel_is_attention(KernelKind kind)
{
  return kind == KERNEL_ATTENTION_FORWARD || kind == KERNEL_ATTENTION_BACKWARD ||
         kind == KERNEL_WHOLE_ATTENTION_FORWARD || kind == KERNEL_WHOLE_ATTENTION_BACKWARD;
}

static inline gboolean
kernel_is_attention_backward(KernelKind kind)
{
  return kind == KERNEL_ATTENTION_BACKWARD || kind == KERNEL_WHOLE_ATTENTION_BACKWARD;
}

/* A kernel as the host launches it; durations come from the device profile at execution.  Equal
 * ones are shared. */
typedef struct {
  guint8 kind;     /* KernelKind */
  guint8 dtype;    /* DType of the computation */
  guint16 variant; /* tells kernels of one kind apart; 0: nothing to tell */
  gint32 name;     /* name id: "mm", "flash_attention_backward" */
  gint32 launches; /* device kernels in it, >= 1 */
  gint64 m, n, k;
  double flops;
  double bytes;   /* read and written */
  gint32 meaning; /* what it computes (meaning.h): a name's id + 1; 0: the name says it */
} Kernel;

#define COLLECTIVE_KINDS(X)                                                                        \
  X(ALL_GATHER, "all_gather")                                                                      \
  X(REDUCE_SCATTER, "reduce_scatter")                                                              \
  X(ALL_REDUCE, "all_reduce")                                                                      \
  X(BROADCAST, "broadcast")                                                                        \
  X(REDUCE, "reduce") /* to one rank */                                                            \
  X(ALL_TO_ALL, "alltoall")                                                                        \
  X(SEND_RECV, "sendrecv") /* to the next rank, from the one before */

typedef enum {
#define X(name, text) COLLECTIVE_##name,
  COLLECTIVE_KINDS(X)
#undef X
      COLLECTIVE_KIND_COUNT
} CollectiveKind;

/* One collective operation.  bytes: the full gathered or reduced buffer, what a rank sends to all
 * others and itself (alltoall) or to one (sendrecv), as nccl-tests counts it. */
typedef struct {
  guint8 kind; /* CollectiveKind */
  guint8 dtype;
  gint32 communicator; /* index */
  gint32 name;         /* name id of the group it serves, or -1 */
  gint64 bytes;
  gint32 meaning; /* of a reduction (meaning.h), a name's id + 1; 0: a sum */
} Collective;

/* A communicator of `ranks` members: the one that the described rank is in. */
typedef struct {
  gint32 name; /* "shard", "replicate" */
  int ranks;
  int stride; /* distance between the global ranks of neighbours: 1 for the shard group, shard for
                 the replicate group */
} Communicator;

/* Renames storages (or events) before a list is executed again: what the last run knew as `from` is
 * now `to`.  All carries of a list happen at once, so chains and swaps are possible. */
typedef struct {
  gint32 from, to;
} Carry;

typedef struct {
  GArray *ops;           /* ProgramOp */
  GArray *carries;       /* Carry of storages: applied when the list runs right after itself */
  GArray *event_carries; /* Carry of events, likewise; only where a step waits for what an earlier
                            one recorded */
} OpList;

typedef struct {
  GPtrArray *names;      /* char *, id -> text */
  GArray *storages;      /* Storage */
  GArray *layouts;       /* Layout */
  GArray *tensors;       /* Tensor */
  GArray *parts;         /* ParameterPart */
  GArray *operands;      /* Operand */
  GArray *kernels;       /* Kernel */
  GArray *collectives;   /* Collective */
  GArray *communicators; /* Communicator */
  GPtrArray *modules;    /* char *, id -> dotted path ("layers.3.attention.wq") */
  int events;            /* number of event ids */
  GPtrArray *lists;      /* OpList *: lists[0] is the construction, lists[i] a distinct step */
  int steps;             /* how many steps were asked for */
  GArray *step_list;     /* int: step k (from 0) executes lists[step_list[k]] */
} Program;

Program *program_new(void);
void program_free(Program *program);
G_DEFINE_AUTOPTR_CLEANUP_FUNC(Program, program_free)

const char *program_op_name(ProgramOpKind kind);
const char *program_stream_name(StreamId stream);
const char *program_host_work_name(HostWork kind);
const char *program_kernel_kind_name(KernelKind kind);
const char *program_collective_name(CollectiveKind kind);
const char *program_range_kind_name(RangeKind kind);
const char *program_space_name(Space space);
const char *program_role_name(Role role);

/* Text of a name or module id; "-" for -1. */
const char *program_text(const Program *program, gint32 name);
const char *program_module_path(const Program *program, gint32 module);

/* The i-th operand of an op, and what it is a view of. */
static inline const Operand *
program_operand(const Program *program, const ProgramOp *op, int i)
{
  return &g_array_index(program->operands, Operand, op->first_operand + i);
}

static inline const Tensor *
program_operand_tensor(const Program *program, const ProgramOp *op, int i)
{
  return &g_array_index(program->tensors, Tensor, program_operand(program, op, i)->tensor);
}

/* Elements from a view's first to its last, both counted; 0 when it has none. */
gint64 layout_reach(const Layout *layout);

OpList *op_list_new(void);
void op_list_free(OpList *list);

/* The list of step k (from 0). */
const OpList *program_step(const Program *program, int step);

/* Text form (one op a line, tables first): printing what was parsed gives the same text. */
void program_print(const Program *program, GString *out);
/* Only one list, human oriented: tensors and storages spelled out.  list: index into
 * program->lists. */
void program_print_list(const Program *program, int list, GString *out);
/* The list's allocations and frees in order, one a line: sign, requested bytes, stream, category,
 * module, what. */
void program_print_allocations(const Program *program, const OpList *list, GString *out);
/* Is this text one of a Program, by its first line that is not empty and no comment? */
gboolean program_text_begins(const char *text);
/* Parses program_print()'s form.  NULL and error ("NAME: line L: ...") when malformed. */
Program *program_parse(const char *name, const char *text, GError **error);

/* Checks the rules below over the construction and all steps in order; FALSE and error naming step,
 * op and storage: use before alloc or after free in host order; double alloc or free; a read that
 * no happens-before path (host order of issue, stream order, record/wait, host syncs) orders after
 * its write, and a write not ordered after earlier reads; unbalanced ranges; unknown ids; waiting
 * for an event never recorded. */
gboolean program_check(const Program *program, GError **error);
/* Checks that two ranks' programs agree on every communicator: order, kind, bytes, dtype. */
gboolean program_check_agreement(const Program *a, const Program *b, GError **error);

#endif
