/* op.h - the table of ops: what each allocates, what autograd saves, what its backward does, what
 * it costs.
 *
 * A row is an OpInfo.  When a family's forward() calls an op, its row writes recipes for the shapes
 * at hand: forward and backward, as plain OpSteps that lower/ plays.  To add an op: a line in OPS,
 * a row in op.c, and recipe functions where the common ones do not fit (op_recipe.h has what they
 * are made of). */
#ifndef HIGHWATER_NETWORK_OP_H
#define HIGHWATER_NETWORK_OP_H

#include <glib.h>

#include "program/program.h"
#include "spec/checkpoint_spec.h"
#include "spec/dtype.h"

#define OPS(X)                                                                                     \
  /* views */                                                                                      \
  X(VIEW)                                                                                          \
  X(UNSAFE_VIEW)                                                                                   \
  X(TRANSPOSE)                                                                                     \
  X(VIEW_AS_COMPLEX)                                                                               \
  X(VIEW_AS_REAL)                                                                                  \
  X(SLICE)                                                                                         \
  X(SPLIT)                                                                                         \
  X(EXPAND)                                                                                        \
  /* element-wise and copies */                                                                    \
  X(TO_COPY)                                                                                       \
  X(TO_IF_NEEDED)                                                                                  \
  X(TO_CACHED)                                                                                     \
  X(COPY_SLICE)                                                                                    \
  X(CLONE)                                                                                         \
  X(ADD)                                                                                           \
  X(ADD_SCALAR)                                                                                    \
  X(SUB)                                                                                           \
  X(MUL)                                                                                           \
  X(MUL_COMPLEX)                                                                                   \
  X(MUL_SCALAR)                                                                                    \
  X(DIV)                                                                                           \
  X(EXP)                                                                                           \
  X(DIV_SCALAR)                                                                                    \
  X(DIV_IN_PLACE)                                                                                  \
  X(ADD_SCALAR_)                                                                                   \
  X(MUL_SCALAR_)                                                                                   \
  X(NEG)                                                                                           \
  X(POW)                                                                                           \
  X(RSQRT)                                                                                         \
  X(TANH)                                                                                          \
  X(SIGMOID)                                                                                       \
  X(SILU)                                                                                          \
  X(CLAMP_BETWEEN)                                                                                 \
  X(CLAMP)                                                                                         \
  X(MASKED_FILL)                                                                                   \
  X(GELU)                                                                                          \
  X(RELU)                                                                                          \
  X(WHERE_NUMBER)                                                                                  \
  X(MEAN)                                                                                          \
  X(SUM_ROWS)                                                                                      \
  X(SUM)                                                                                           \
  X(CAT)                                                                                           \
  X(CAT_MORE)                                                                                      \
  X(STACK)                                                                                         \
  X(PAD)                                                                                           \
  X(ADD_)                                                                                          \
  X(INDEX_ONE)                                                                                     \
  X(WHERE)                                                                                         \
  X(BLOOM_GELU)                                                                                    \
  X(DROPOUT)                                                                                       \
  /* matmuls */                                                                                    \
  X(MM)                                                                                            \
  X(MM_UNCOUNTED)                                                                                  \
  X(ADDMM)                                                                                         \
  X(BADDBMM)                                                                                       \
  X(BMM)                                                                                           \
  X(ZERO3_LINEAR)                                                                                  \
  X(CONVOLUTION)                                                                                   \
  X(GROUPED_MM)                                                                                    \
  /* norms, look-ups, losses */                                                                    \
  X(RMS_NORM)                                                                                      \
  X(LAYER_NORM)                                                                                    \
  X(EMBEDDING)                                                                                     \
  X(INDEX)                                                                                         \
  X(GATHER)                                                                                        \
  X(INDEX_ADD)                                                                                     \
  X(INDEX_PUT)                                                                                     \
  X(TOPK)                                                                                          \
  X(LOG_SOFTMAX)                                                                                   \
  X(NLL_LOSS)                                                                                      \
  X(FUSED_CROSS_ENTROPY)                                                                           \
  /* attention */                                                                                  \
  X(SOFTMAX)                                                                                       \
  X(SAFE_SOFTMAX)                                                                                  \
  X(FLASH_ATTENTION)                                                                               \
  X(EFFICIENT_ATTENTION)                                                                           \
  /* no gradient */                                                                                \
  X(CREATE)                                                                                        \
  X(LEAF)                                                                                          \
  X(BUFFER)                                                                                        \
  X(HELD)                                                                                          \
  X(CUMSUM)                                                                                        \
  X(HISTC)                                                                                         \
  X(SORT)                                                                                          \
  /* given by numbers */                                                                           \
  X(OPAQUE)                                                                                        \
  X(RECORDED)                                                                                      \
  X(RECORDED_CONSTANT)

typedef enum {
#define X(id) OP_##id,
  OPS(X)
#undef X
      OP_COUNT
} OpId;

#define OP_DIMS 5
#define OP_INPUTS 8
#define OP_OUTPUTS 5
#define OP_SAVED 8
#define OP_TEMPS 16

/* What is known of a value before anything runs: shape and memory order (strides in elements). */
typedef struct {
  guint8 dtype;
  guint8 dims;
  guint8 requires_grad;
  gint64 shape[OP_DIMS];
  gint64 stride[OP_DIMS];
} ValueInfo;

gint64 value_elements(const ValueInfo *value);
gint64 value_bytes(const ValueInfo *value);

/* Device facts that decide sizes of scratch buffers, and which kernels there are. */
typedef struct {
  int sms;
  int max_threads_per_sm;
  int compute_capability; /* 90 for sm_90 */
} DeviceLimits;

/* The tensors that recipes speak of: a base plus an index.  In a backward recipe inputs and outputs
 * are those that were saved. */
typedef enum {
  BUFFER_IN = 0,        /* inputs of the forward op */
  BUFFER_OUT = 8,       /* its outputs */
  BUFFER_TEMP = 16,     /* temporaries of one recipe */
  BUFFER_INCOMING = 32, /* backward: gradient of output i */
  BUFFER_GRAD = 40,     /* backward: gradient of input i */
  BUFFER_COUNT = 48,
} BufferBase;

typedef enum {
  STEP_ALLOC,   /* buffer := new tensor of `bytes` */
  STEP_RELEASE, /* buffer lets go */
  STEP_ALIAS,   /* forward: output := view of source, `bytes` is the offset in elements */
  STEP_PASS,    /* gradient := incoming gradient itself */
  STEP_VIEW,    /* gradient := view of an incoming gradient: its base keeps a reference (rule L5) */
  STEP_RESHAPE, /* gradient := view of an incoming gradient in the input's shape; where memory order
                   forbids one, of a copy of `bytes` */
  STEP_CONTIGUOUS,      /* the same where anything but row-major order forbids it */
  STEP_CONTIGUOUS_TEMP, /* temporary := copy of an incoming gradient, unless that is row-major, or
                           (ORDER_HEADS_INSIDE) so as attention kernels see it; else nothing */
  STEP_REPLACE,         /* gradient := source; the old one lets go (validate_outputs, rule L3) */
  STEP_LAUNCH,          /* kernel `index` */
  STEP_WORKSPACE,       /* the thread's Workspace `index`, made at its first use */
} OpAction;

/* Memory order of a gradient that a step makes. */
typedef enum {
  ORDER_DENSE,         /* row-major in the input's shape */
  ORDER_LIKE_INPUT,    /* dense, dimensions ordered as in the input: factors of a product */
  ORDER_LIKE_INCOMING, /* dense, dimensions ordered as in incoming gradient 0: element-wise ops */
  ORDER_LIKE_OPERAND,  /* empty_like of the input as attention kernels see it, [batch, length,
                          heads, head_dim] */
  ORDER_HEADS_INSIDE,  /* row-major as they see it */
  /* of views */
  ORDER_SAME,     /* the incoming gradient's strides: a part of it */
  ORDER_SWAPPED,  /* dimensions index and index + 1 have changed places */
  ORDER_EXPANDED, /* broadcast to the input's shape */
  ORDER_AS_REAL,  /* complex numbers as pairs */
} GradOrder;

typedef enum { WORKSPACE_CUBLAS, WORKSPACE_CUBLASLT, WORKSPACE_COUNT } Workspace;

typedef struct {
  guint8 action;         /* OpAction */
  guint8 buffer, source; /* STEP_ALLOC of a gradient: the source has its shape */
  guint8 order;          /* GradOrder */
  guint8 dtype;          /* of a new tensor */
  guint8 shaped;         /* of a new temporary: it has the shape of input `source`, row-major or
                            (ORDER_SAME)         in the order of that input's gradient; else it is flat */
  gint32 index;
  gint64 bytes;
  const char *what; /* name of a new tensor; static text */
} OpStep;

#define KERNEL_OPERANDS 12
#define KERNEL_MEANING 64

typedef struct {
  Kernel kernel; /* ids of its name and meaning are filled in when a Program is written */
  const char *name;
  char meaning[KERNEL_MEANING]; /* meaning.h; empty: the name says it */
  int operands;
  struct {
    guint8 buffer, role; /* Role */
  } operand[KERNEL_OPERANDS];
} OpKernel;

/* A step of a backward that was recorded (op_recorded.c). */
typedef enum {
  RECORDED_GRAD,    /* a new gradient for input `index` */
  RECORDED_PASS,    /* gradient `index` is the incoming one, or a view of it */
  RECORDED_TEMP,    /* temporary `index`, of `bytes` */
  RECORDED_RELEASE, /* it goes */
} RecordedAction;

typedef struct {
  guint8 action; /* RecordedAction */
  guint8 index;
  gint64 bytes;
} RecordedStep;

/* What was seen of an op that has no row of its own. */
typedef struct {
  int outs;
  ValueInfo out[OP_OUTPUTS];
  gint8 view_of[OP_OUTPUTS]; /* the input whose memory the output is in, -1: it is new */
  gint64 offset[OP_OUTPUTS]; /* of such a view, in elements */
  int saves;
  guint8 saved[OP_SAVED]; /* BUFFER_IN + i or BUFFER_OUT + i */
  gint64 kept;            /* bytes that the node keeps besides: one more output */
  const RecordedStep *backward;
  int steps;
  double flops;     /* of forward; backward has twice as many */
  const char *what; /* static text */
} RecordedOp;

/* Attributes of a call; each row uses some. */
typedef struct {
  ValueInfo result; /* shape and dtype of the output, for rows whose output is not implied by the
                       inputs */
  gint64 batch, heads, kv_heads, length, head_dim; /* attention */
  gint64 keys;     /* how many positions they have; 0: as many as queries */
  gboolean whole;  /* a query sees all of them, not those before it alone */
  gint64 window;   /* of those before it so many; 0: all */
  guint16 variant; /* Kernel.variant of its kernels: FusedAttention */
  double dropout;  /* of probabilities; 0: none */
  gint64 size[4];  /* numbers of the row's own; of views the first is the offset in elements */
  gint64 first;    /* where parts of a dimension begin */
  gboolean flag;
  const char *what;    /* name of the output, static text */
  const char *formula; /* what the kernel computes, if its name does not say it; static text */
  const char *key;     /* a number that it computes with: what it is called (static text; NULL:
                          none), and the number */
  double number;
  const RecordedOp *recorded; /* of the two rows that play what was recorded.  Borrowed */
} OpAttributes;

typedef struct _OpInfo OpInfo;

/* One call of an op in a function. */
typedef struct {
  const OpInfo *info;
  gint32 module; /* relative to the function's block */
  guint8 ins, outs, saves;
  guint8 node; /* TRUE: records a node, since some input requires a gradient */
  gint16 in[OP_INPUTS];
  gint16 out[OP_OUTPUTS];
  guint8 saved[OP_SAVED]; /* BUFFER_IN + i or BUFFER_OUT + i, in order of release (rule L4) */
  /* recipe steps [forward, backward), [backward, validate), [validate, end) of the function's steps
   */
  gint32 forward, backward, validate, end;
} Op;

/* A recipe being written: the call's values, and where the steps go. */
typedef struct {
  const OpInfo *info;
  OpAttributes at;
  int ins, outs;
  ValueInfo in[OP_INPUTS];
  ValueInfo out[OP_OUTPUTS];
  ValueInfo temp[OP_TEMPS];
  gboolean temp_used[OP_TEMPS];
  ValueInfo grad[OP_INPUTS]; /* what the backward recipe made so far for each input */
  gboolean has_grad[OP_INPUTS];
  int saves;
  guint8 saved[OP_SAVED];
  gboolean backward;            /* being written: of inputs and outputs only saved ones are there */
  char meaning[KERNEL_MEANING]; /* of the next kernel */
  DeviceLimits device;
  GArray *steps;   /* OpStep */
  GArray *kernels; /* OpKernel */
} OpCase;

/* Saves one of the call's tensors.  tensor: BUFFER_IN + i or BUFFER_OUT + i.  wanted_by: only when
 * that input requires a gradient; -1: whenever the op records a node. */
typedef struct {
  gint8 tensor, wanted_by;
} OpSave;

/* A row of the table. */
struct _OpInfo {
  const char *name;           /* as in ATen; NULL ends nothing: every row has one */
  OpSave saves[OP_SAVED + 1]; /* in the order in which the node releases them: alphabetical by
                                 argument name, inputs, then outputs (rule L4) */
  int save_count;
  guint8 for_backward;      /* bit i: output i is not made where autograd records nothing */
  gboolean saves_late;      /* inputs are saved after the op has run: a Python autograd.Function */
  gboolean is_leaf;         /* its output has a node of its own, which keeps the gradient */
  void (*save)(OpCase *c);  /* chooses what is saved in place of `saves`; NULL: those */
  void (*shape)(OpCase *c); /* fills out[] and outs */
  void (*forward)(OpCase *c);
  void (*backward)(OpCase *c); /* NULL: the op never records a node */
  enum {
    KIND_OTHER,
    KIND_ATTENTION,
    KIND_MM,
    KIND_MATMUL
  } kind; /* for op_is_kept(); MATMUL: every
             product but the mm it counts */
};

/* Does selective_op checkpointing keep the outputs of this call?  mms counts the calls of mm in the
 * block, this one included.  torchtitan's policy alternates (activation_checkpoint.py); every
 * matrix product is the list of compute-intensive ops in PyTorch's description of selective
 * checkpointing.
 */
gboolean op_is_kept(const OpInfo *info, KeptOps kept, int *mms);

/* The row of an op. */
const OpInfo *op_info(OpId op);

#endif
