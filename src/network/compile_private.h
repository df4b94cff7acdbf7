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
  CompiledPolicy policy;
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

/* Writes both graphs of kernels. */
void compile_write_forward(Compile *c);
void compile_write_backward(Compile *c);

#endif
