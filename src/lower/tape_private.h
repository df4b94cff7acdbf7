/* tape_private.h - what the files of the tape share: tape*.c, autograd.c, checkpoint.c,
 * reentrant.c. */
#ifndef HIGHWATER_LOWER_TAPE_PRIVATE_H
#define HIGHWATER_LOWER_TAPE_PRIVATE_H

#include "lower/tape.h"

/* A tensor that a node keeps: itself, or a promise that its frame recomputes it. */
typedef struct {
  TensorRef ref;
  gint32 frame; /* checkpoint frame, or -1 */
  gint32 index; /* which of the frame's tensors */
} SavedVariable;

/* Where a function runs: blocks that are alike share one. */
typedef struct {
  int function;
  int first_module, first_parameter;
} Place;

typedef enum {
  NODE_OP,
  NODE_ACCUMULATE_GRAD,
  NODE_LEAF, /* the same of a tensor that forward() made and nothing but the graph keeps */
  NODE_POST_BACKWARD,
  NODE_FLATTEN, /* all gradients of a flat parameter; VIEW nodes of its parameters follow it */
  NODE_PARAMETER_VIEW, /* keeps the gradient of one of them until then */
  NODE_COMPILED,       /* a compiled block, whole; its edges are its call's */
  NODE_REGION,         /* a reentrant checkpoint: runs its region again, and backwards */
  NODE_INPUT,          /* keeps the gradient of one of the region's inputs */
  NODE_MODULE_BEGIN,   /* at a module's output: its backward begins */
  NODE_MODULE_END,     /* at one of its inputs */
} NodeKind;

typedef struct {
  gint32 node;  /* -1: no gradient goes there */
  guint8 input; /* which of its inputs: output number of the forward op */
} Edge;

/* A recorded op.  Nodes are numbered in order of creation, which is their priority (rule L7). */
typedef struct {
  guint8 kind;
  guint8 edges;
  guint8 saves;
  guint8 stream; /* StreamId: where its inputs are joined and it runs */
  gint32
      number; /* parameter of an ACCUMULATE_GRAD or VIEW, unit of a POST_BACKWARD or FLATTEN,
                 frame of a REGION, leaf of a LEAF, module of a MODULE_ node, call of a COMPILED */
  const Op *op;
  Place place;
  gint32 first_saved;  /* into Tape.saved */
  gint32 dependencies; /* nodes that will still send it a gradient */
  gint32 hook;         /* first of its pre-hooks, into Tape.hooks, or -1 */
  Edge edge[OP_INPUTS];
  TensorRef incoming[OP_OUTPUTS];
  guint8 has_incoming[OP_OUTPUTS];
} Node;

/* A tensor that a LEAF node keeps, and its gradient, which may be NO_TENSOR. */
typedef struct {
  TensorRef tensor, gradient;
} Leaf;

/* What a function gave back; NO_TENSOR where there is none. */
typedef struct {
  TensorRef ref[FUNCTION_RESULTS];
} Results;
#define NO_RESULTS ((Results){{NO_TENSOR, NO_TENSOR, NO_TENSOR}})

/* One call of a compiled block: what its node keeps. */
typedef struct {
  int compiled; /* into Network.compiled */
  Place place;
  Edge *edges; /* by CompiledGradient */
  int edge_count;
  TensorRef *tensors; /* by buffer: those that are saved, and parameters */
} CompiledCall;

/* The unit whose parameters must be there before the node runs, or (TOKEN_INPUT) whose input's
 * gradient is there then. */
typedef struct {
  gint32 unit, token, next;
} PreHook;
#define TOKEN_INPUT G_MININT32

/* One checkpointed call. */
typedef struct {
  Place place;
  gint32 block;
  int arguments;
  TensorRef argument[STATEMENT_SLOTS]; /* tensors that the region was called with */
  int holders;                         /* tensors that nodes of the region wanted to save */
  int alive;                           /* SavedVariables that still hold the frame */
  GArray *recomputed;                  /* TensorRef by holder; empty until recomputed */
  gboolean done;
  int packed; /* during recomputation */
  /* selective_op: outputs that forward kept, in order, and how many mm were seen */
  gboolean selective;
  GArray *kept; /* TensorRef, OP_OUTPUTS an entry */
  guint next_kept;
  int mms;
} CheckpointFrame;

/* Casts of parameters that an autocast region keeps. */
typedef struct {
  gint32 parameter;
  TensorRef ref;
} CachedCast;

typedef enum { THREAD_MAIN, THREAD_ENGINE, THREAD_COUNT } Thread;

/* Ids of a function's texts and kernels in the Program, made once. */
typedef struct {
  gint32 *what;   /* by step */
  gint32 *kernel; /* by kernel */
} FunctionIds;

struct _Tape {
  StrategyContext *x;
  const Strategy *strategy;
  const Network *network;
  ProgramBuilder *builder;
  LiveStorages *live;
  FunctionIds *ids;        /* by function */
  GArray *nodes;           /* Node */
  GArray *saved;           /* SavedVariable */
  GArray *hooks;           /* PreHook */
  GPtrArray *frames;       /* CheckpointFrame * (NULL when dead) */
  GPtrArray *calls;        /* CompiledCall *: of the current graph */
  GArray *leaves;          /* Leaf: of the current graph */
  GPtrArray *compiled_ids; /* by compiled block: compiled.c's */
  GArray *ready;           /* gint32: heap of nodes, highest number first */
  GArray *casts;           /* CachedCast: of the autocast region that is open */
  gboolean autocast_open;
  StorageId workspace[THREAD_COUNT][WORKSPACE_COUNT];
  Thread thread;
  StreamId leaf_stream;       /* where gradients of parameters were left in this backward */
  CheckpointFrame *recording; /* forward inside this region: saving makes holders */
  gint32 recording_id;
  CheckpointFrame *recomputing; /* running the region again */
  gboolean stop;                /* recomputation has all it needs (early stop) */
  TensorRef kept;               /* by the training loop, from its forward to the next */
  TensorRef kept_before;        /* and still, until tape_let_go() */
  TensorRef tables[8];
  int table_count;
  int *inputs_left; /* by module (and wrapper): MODULE_END nodes of its last call that have not run
                     */
};

/* ---- tape.c ---- */

/* Runs a function with borrowed arguments; the references of its results are the caller's. */
Results tape_run(Tape *t, Place place, int n, const TensorRef *args);
/* One reference more, one less. */
void tape_hold(Tape *t, const TensorRef *ref);
void tape_drop(Tape *t, const TensorRef *ref);
/* A new tensor on the compute stream. */
TensorRef tape_new_tensor(Tape *t, gint64 bytes, DType dtype, StoragePurpose purpose);
/* Opens and closes an autocast region: cached casts die when it closes. */
void tape_autocast_begin(Tape *t);
void tape_autocast_end(Tape *t);

/* ---- tape_steps.c ---- */

/* One op's recipe being played. */
typedef struct {
  const Op *op;
  Place place;
  TensorRef buffer[BUFFER_COUNT];
  ValueInfo info[BUFFER_TEMP];   /* of inputs and outputs */
  ValueInfo temp[OP_TEMPS];      /* those that have a shape */
  ValueInfo gradient[OP_INPUTS]; /* as they are: until validation some have the output's shape */
  int launches;
} OpRun;
/* The buffers that the op has are empty, its outputs' infos filled in, the Program's module set. */
void tape_begin_run(Tape *t, OpRun *run, const Op *op, Place place);
/* The thread's workspace of this kind, made at its first use. */
void tape_use_workspace(Tape *t, Workspace kind);
/* Plays steps [first, end) of the function's. */
void tape_play(Tape *t, OpRun *run, int first, int end);

/* ---- tape_modules.c ---- */

/* Hooks before a module's forward(): args, of these shapes, become what it receives, with
 * references of their own. */
void tape_enter_module(Tape *t, int module, int n, TensorRef *args, const ValueInfo *const *infos);
/* Hooks after it, on its n outputs. */
void tape_exit_module(Tape *t, int module, int n, TensorRef *outputs);
/* Calls a block, which `function` computes, with hooks and checkpointing as the plan says. */
Results tape_call_block(Tape *t, int block, int function, int n, const TensorRef *args);
/* The call of a block inside its hooks: what checkpointing runs again when it is outside of them.
 */
Results tape_call_hooked(Tape *t, int block, Place place, int n, const TensorRef *args);
/* The module of the network that a module's (or a wrapper's) hooks work for. */
int tape_program_module(const Tape *t, int module);

/* ---- autograd.c ---- */

/* Records a node for an op whose inputs are in run; returns its number.  Inputs are saved at once,
 * outputs by autograd_save_outputs. */
gint32 autograd_record(Tape *t, const OpRun *run);
void autograd_save_outputs(Tape *t, gint32 node, const OpRun *run);
/* The node that accumulates a parameter's gradient. */
gint32 autograd_accumulate_node(Tape *t, int parameter);
/* Nodes of a unit whose parameters are views of a flat one: their gradients come to .flatten. */
void autograd_view_parameters(Tape *t, int unit, StreamId stream);
/* A node of this kind, for the unit or module `number`, on the way to the nodes of those of the
 * tensors that have one; they go through it from now on. */
void autograd_mark(Tape *t, NodeKind kind, int number, int n, TensorRef *refs);
void autograd_add_hook(Tape *t, gint32 node, int unit, int token);

/* The node of a compiled block's call, which takes its edges; and what it keeps, once it has run:
 * the tensors are taken too. */
gint32 autograd_compiled_node(Tape *t, Edge *edges, int n);
void autograd_keep_compiled(Tape *t, gint32 node, int compiled, Place place, TensorRef *tensors);
/* The node of a region that ran without a graph. */
gint32 autograd_region_node(Tape *t, gint32 frame, int n, const TensorRef *args);
/* A node that keeps what comes to it, and what has come; -1: NO_TENSOR.  The reference becomes the
 * caller's. */
gint32 autograd_input_node(Tape *t);
TensorRef autograd_take_input(Tape *t, gint32 node);
/* Plays the graph backwards from a tensor; takes its gradient. */
void autograd_play(Tape *t, const TensorRef *from, TensorRef gradient);

/* ---- checkpoint.c ---- */

/* Does the plan checkpoint this block? */
gboolean checkpoint_wants(const Tape *t, int block);
/* A frame of a call; freeing it lets go of what it holds.  Holding the arguments is the caller's.
 */
CheckpointFrame *checkpoint_frame_new(const Tape *t, int block, Place place, int n,
                                      const TensorRef *args);
void checkpoint_frame_free(Tape *t, CheckpointFrame *frame);
/* Are a block's hooks run again with it? */
gboolean checkpoint_repeats_hooks(const Tape *t);
/* Runs a region under checkpointing, which keeps nothing where no backward comes
 * (_checkpoint_without_reentrant_generator, torch/utils/checkpoint.py); run is tape_run or
 * tape_call_hooked by `hooked`. */
Results checkpoint_run(Tape *t, int block, Place place, int n, const TensorRef *args);
/* Saves a tensor for backward in the way that the moment asks for: kept, promised, or delivered to
 * the frame that is recomputed.  FALSE: recomputation stops here. */
gboolean checkpoint_pack(Tape *t, const TensorRef *ref, SavedVariable *saved);
/* The saved tensor; a promise is kept by running its region again.  A recomputed tensor's reference
 * becomes the caller's. */
TensorRef checkpoint_unpack(Tape *t, SavedVariable *saved);
/* The SavedVariable lets go. */
void checkpoint_release(Tape *t, SavedVariable *saved);
/* selective_op: gives the outputs that forward kept; FALSE when the op must run. */
gboolean checkpoint_replay(Tape *t, OpRun *run);
/* selective_op: keeps the outputs if the policy says so. */
void checkpoint_keep(Tape *t, const OpRun *run);

/* ---- compiled.c ---- */

void compiled_make_ids(Tape *t);
void compiled_ids_free(gpointer ids);
void compiled_call_free(gpointer call);
/* Runs a compiled block with borrowed arguments; the result's reference is the caller's. */
TensorRef compiled_run(Tape *t, int compiled, Place place, const TensorRef *args);
/* Runs its backward: gradients by CompiledGradient, references the caller's.  incoming is borrowed.
 */
void compiled_backward(Tape *t, CompiledCall *call, TensorRef incoming, TensorRef *gradients);

/* ---- reentrant.c ---- */

/* Is this block's checkpoint, outside its hooks, a reentrant one? */
gboolean reentrant_wants(const Tape *t, int block);
/* Calls the block inside its hooks without a graph. */
Results reentrant_run(Tape *t, int block, Place place, int n, const TensorRef *args);
/* Runs it again with one, and backwards.  incoming is borrowed; gradients of the arguments, or
 * NO_TENSOR, are the caller's. */
void reentrant_backward(Tape *t, gint32 frame, TensorRef incoming, TensorRef *gradients);

#endif
