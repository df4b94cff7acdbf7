/* compiled.h - a block as torch.compile leaves it: kernels on buffers, forward and backward, and
 * what the one saves for the other.
 *
 * network_compile is a pass from Network to Network: blocks keep their functions, and get a
 * CompiledBlock beside them.  AOTAutograd's partitioner and Inductor's scheduler are its models;
 * what is taken from them and what is assumed stands in doc/method.md. */
#ifndef HIGHWATER_NETWORK_COMPILED_H
#define HIGHWATER_NETWORK_COMPILED_H

#include "network/network.h"

/* Where a buffer comes from. */
typedef enum {
  COMPILED_ARGUMENT,  /* of the block; number: which */
  COMPILED_PARAMETER, /* number: relative to the block's first */
  COMPILED_INCOMING,  /* backward: the gradient of the result */
  COMPILED_MADE,      /* by a kernel */
} CompiledOrigin;

typedef struct {
  ValueInfo info;
  guint8 origin; /* CompiledOrigin */
  guint8 saved;  /* made (or given) in forward, and used in backward */
  gint16 number;
  gint32 takes; /* made in place: the buffer whose memory it takes over, or -1 */
  gint32 last_forward, last_backward; /* kernel that uses it last, or -1 */
  const char *what;                   /* name of the tensor; static text */
} CompiledBuffer;

typedef struct {
  gint32 buffer;
  guint8 role; /* Role */
} CompiledOperand;

/* Memory that a kernel needs while it runs. */
typedef struct {
  gint64 bytes;
  const char *what;
} CompiledScratch;

typedef struct {
  Kernel kernel; /* its name id is filled in when a Program is written */
  const char *name;
  gint32 module; /* relative to the block's first */
  gint32 first_operand, operands, first_scratch, scratch;
  guint8 workspaces;   /* bit i: Workspace i */
  gboolean recomputes; /* of backward: what forward has computed already */
} CompiledKernel;

typedef struct {
  GArray *kernels;  /* CompiledKernel, in order */
  GArray *operands; /* CompiledOperand */
  GArray *scratch;  /* CompiledScratch */
} CompiledGraph;

/* A result of backward. */
typedef struct {
  gint32 buffer;
  gint32 argument, parameter; /* whose gradient: one of them, the other -1 */
} CompiledGradient;

typedef struct {
  GArray *buffers; /* CompiledBuffer */
  CompiledGraph forward, backward;
  gint32 result;     /* buffer */
  gint32 incoming;   /* buffer of the result's gradient, or -1: there is no backward */
  GArray *gradients; /* CompiledGradient: arguments, then parameters */
} CompiledBlock;

/* Compiles each block.  Without a checkpoint it saves what AOTAutograd's partitioner chooses, with
 * one its arguments, under selective_op what that keeps.  Blocks that are alike share a
 * CompiledBlock. */
void network_compile(Network *network, const CheckpointSpec *checkpointing);
/* Frees one: the element type of Network.compiled. */
void compiled_block_free(gpointer compiled);

static inline CompiledBuffer *
compiled_buffer(const CompiledBlock *compiled, gint32 i)
{
  return &g_array_index(compiled->buffers, CompiledBuffer, i);
}

#endif
