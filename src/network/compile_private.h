/* compile_private.h - what the files of the compiler share: the joint graph of a block's forward
 * and backward, and the state of a compilation. */
#ifndef HIGHWATER_NETWORK_COMPILE_PRIVATE_H
#define HIGHWATER_NETWORK_COMPILE_PRIVATE_H

#include "network/compiled.h"

/* What becomes of an op. */
typedef enum {
  FUSE_VIEW,   /* nothing: indices */
  FUSE_FUSED,  /* part of a generated kernel */
  FUSE_EXTERN, /* a kernel of a library */
} FuseClass;

/* A value of forward is a slot of the function, or after them a parameter.  Views are their base.
 */
typedef struct {
  ValueInfo info;
  int base;
  int producer; /* op, or -1: an argument, a parameter */
  /* by base */
  gboolean reduces; /* a reduction made it */
  gboolean needed;  /* by backward, directly */
  gboolean banned;  /* cannot be computed again in backward */
  gboolean saved;
  gint32 buffer;      /* in forward, or saved; -1: not in memory */
  gint32 again;       /* recomputed in backward, or -1 */
  int seen;           /* by the generated kernel of that number, which follows it no further */
  int first_gradient; /* contributions of consumers: a list in Compile.contributions, or -1 */
} Value;

typedef struct {
  FuseClass class;
  gboolean reduces;
  int depth; /* library kernels on the way to it */
  int group; /* of ops that one kernel computes: the first of them */
} OpNode;

/* A gradient while backward is planned. */
typedef struct {
  ValueInfo info;
  int producer; /* BackwardOp, or -1: the incoming one */
  gboolean result;
  gint32 buffer;
  int seen; /* as of a Value */
} Gradient;

enum { BACKWARD_EDGES = 8 };

/* An op of backward. */
typedef struct {
  enum { BACKWARD_FUSED, BACKWARD_EXTERN, BACKWARD_COLUMN } kind;
  int op; /* whose derivative it is, or -1: a sum of gradients */
  int reads, needs, writes;
  int read[BACKWARD_EDGES];  /* Gradient */
  int need[BACKWARD_EDGES];  /* Value of forward */
  int write[BACKWARD_EDGES]; /* Gradient */
  int input[BACKWARD_EDGES]; /* BACKWARD_EXTERN: which input of the op each write is of */
  gboolean reduces;
  int depth, group;
  gboolean emitted;
} BackwardOp;

typedef struct {
  int gradient, next;
} Contribution;

typedef struct {
  const Network *network;
  const Function *f;
  CheckpointPolicy policy; /* none, full or selective_op */
  KeptOps kept;            /* of selective_op */
  int slots, values, ops;
  int *same;  /* by slot: where a module is called it receives another slot's value */
  int result; /* value */
  Value *value;
  OpNode *node;
  gboolean *emitted;     /* by op: its group's kernel (the group's first op), or its own */
  GArray *gradients;     /* Gradient */
  GArray *backward;      /* BackwardOp */
  GArray *contributions; /* Contribution */
  CompiledBlock *out;
  int generated; /* kernels begun */
} Compile;

static inline const Op *
compile_op(const Compile *c, int i)
{
  return &g_array_index(c->f->ops, Op, i);
}

/* The value that a slot of an op names. */
static inline int
compile_value(const Compile *c, gint16 slot)
{
  return slot >= 0 ? c->same[slot] : c->slots + PARAMETER_OF_SLOT(slot);
}

static inline Value *
compile_base(const Compile *c, int value)
{
  return &c->value[c->value[value].base];
}

static inline Gradient *
compile_gradient(const Compile *c, int i)
{
  return &g_array_index(c->gradients, Gradient, i);
}

static inline BackwardOp *
compile_backward_op(const Compile *c, int i)
{
  return &g_array_index(c->backward, BackwardOp, i);
}

/* ---- compile_graph.c ---- */

/* Reads the function: values, classes, depths and groups of ops. */
void compile_graph(Compile *c, int parameters, int first_parameter);
/* Plans the ops of backward, and notes what they need of forward. */
void compile_plan_backward(Compile *c);

/* ---- compile_partition.c ---- */

/* Chooses what is saved. */
void compile_partition(Compile *c);

/* ---- compile_kernels.c ---- */

/* A value that few reads give is computed again by each kernel that wants it
 * (realize_reads_threshold of torch/_inductor/config.py). */
enum { CHEAP_READS = 4, DEAR = 1000, NAMED_OPS = 5 };

/* What a kernel reads: bytes by buffer. */
typedef struct {
  gint32 buffer;
  double bytes;
} Read;

typedef struct {
  GArray *reads;  /* Read */
  GArray *writes; /* gint32: buffers */
  GString *name;
  int named;
  int number; /* marks what it has followed */
} Fused;

/* A kernel begins; what it reads, and is called after, is added; it is written, unless it would
 * write nothing. */
Fused compile_fused_begin(Compile *c, const char *prefix);
void compile_fused_read(Compile *c, Fused *fused, gint32 buffer, double bytes);
void compile_fused_name(Fused *fused, const char *op);
void compile_fused_end(Compile *c, CompiledGraph *graph, Fused *fused, gboolean recomputes);
/* TRUE the first time that the kernel comes to something that it computes by itself. */
gboolean compile_fused_follows(const Fused *fused, int *seen);

/* A new buffer; what: name of the tensor, static text. */
gint32 compile_new_buffer(Compile *c, CompiledOrigin origin, int number, ValueInfo info,
                          const char *what);
/* Which buffer of the block a recipe's buffer is; -1: none that is an operand. */
typedef gint32 (*BufferOf)(Compile *c, const Op *op, int buffer, gpointer data);
/* A library's kernels as the op's recipe has them. */
void compile_library_kernels(Compile *c, CompiledGraph *graph, const Op *op, gboolean backward,
                             BufferOf buffer_of, gpointer data);

void compile_write_forward(Compile *c);

/* ---- compile_backward.c ---- */

void compile_write_backward(Compile *c);

#endif
