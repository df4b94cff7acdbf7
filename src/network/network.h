/* network.h - a model as a value: modules with parameters, and functions made of ops.
 *
 * A family file builds it by calling the model's forward() once (builder.h); lower/ plays the
 * functions as eager PyTorch would.  Everything that Python decides before a kernel runs is already
 * in the functions: which op, on which values, and when the last Python reference to a value goes
 * (STATEMENT_DROP). */
#ifndef HIGHWATER_NETWORK_NETWORK_H
#define HIGHWATER_NETWORK_NETWORK_H

#include <glib.h>

#include "network/op.h"
#include "spec/dtype.h"
#include "spec/plan_spec.h"

/* A parameter of a module.  Sharding is along dimension 0. */
typedef struct {
  char *name; /* full: "layers.3.attention.wq.weight" */
  int module; /* index of the module that owns it */
  int dims;
  gint64 shape[4];
  gint64 elements;
  gboolean adapter;       /* was added to the finished model */
  gboolean trainable;     /* requires a gradient */
  int shard_of;           /* the parameter whose sharded part is this one's too, or -1 */
  gboolean requires_grad; /* what ops see does: it, or the flat tensor that it is a view of */
} Parameter;

/* A non-parameter tensor that lives as long as the model (registered buffers, allocated with the
 * parameters). */
typedef struct {
  char *name;
  int module;
  DType dtype;
  gint64 elements;
  gboolean attribute; /* no registered one, which the first forward() makes: nothing that walks over
                         buffers finds it */
} Buffer;

/* A module that has a parameter of another one too.  module -1: the parameter's own uses it twice,
 * and no other has it. */
typedef struct {
  int module, parameter;
} Tie;

/* Modules in the order of named_modules(): parents before children, children in order of
 * definition. */
typedef struct {
  char *path;          /* "" for the model itself, "layers.3.attention" */
  const char *type;    /* "Linear", "RMSNorm"; static text */
  int parent;          /* index, or -1 */
  int first_parameter; /* its own parameters are contiguous: first and count */
  int parameter_count;
  int block; /* which block it belongs to, or -1 */
} Module;

typedef enum {
  STATEMENT_OP,          /* a: index into ops */
  STATEMENT_DROP,        /* a: slot whose last Python reference goes */
  STATEMENT_ENTER,       /* a: module; arguments in, new slots out: the module is called */
  STATEMENT_EXIT,        /* a: module; in: its outputs */
  STATEMENT_CALL,        /* a: function; b: module (a block); in: arguments, out: results */
  STATEMENT_KEEP,        /* in[0]: the training loop keeps it, and lets go of what it kept before */
  STATEMENT_FORWARD_END, /* the root module's hooks are done */
  STATEMENT_AUTOCAST_END, /* the autocast region of the training loop ends: cached casts die */
} StatementKind;

#define STATEMENT_SLOTS 8

typedef struct {
  guint8 kind;
  guint8 ins, outs;
  gint32 a, b;
  gint16 in[STATEMENT_SLOTS];
  gint16 out[STATEMENT_SLOTS];
} Statement;

/* Slots below 0 in an op's inputs are parameters: -1 - k is parameter k of the function's module
 * range. */
#define SLOT_OF_PARAMETER(k) ((gint16) (-1 - (k)))
#define PARAMETER_OF_SLOT(slot) (-1 - (int) (slot))

/* What a function may give back. */
#define FUNCTION_RESULTS 3

/* A function: statements over numbered slots.  Results may be arguments.  Blocks that are alike
 * share one; modules and parameters in it are then relative to the block's first module and
 * parameter. */
typedef struct {
  char *name;
  GArray *values;     /* ValueInfo by slot */
  GArray *depths;     /* guint8 by slot: how deep in Python calls it is held, twice the number of
                         frames,     and one more for a temporary (unwinding goes from the deepest) */
  GArray *statements; /* Statement */
  GArray *ops;        /* Op */
  GArray *steps;      /* OpStep: recipes of all ops */
  GArray *kernels;    /* OpKernel */
  int arguments;      /* slots 0 .. arguments-1 */
  gint16 result;      /* slot, or -1 */
  int others;         /* results besides it */
  gint16 other[FUNCTION_RESULTS - 1];
  int captured; /* the last so many of them are not what the block returns */
} Function;

/* One of the repeated units that checkpointing and grouping speak of. */
typedef struct {
  int module;  /* its root module */
  int modules; /* how many modules, itself included: contiguous */
  int first_parameter, parameter_count;
  int function;
  int compiled; /* into Network.compiled, or -1: it is computed op by op */
} Block;

/* Dtypes of a forward pass, derived from the plan's precision. */
typedef struct {
  DType stored;  /* parameters as allocated */
  DType weights; /* parameters as the ops see them (FSDP's param_dtype) */
  DType matmul;  /* operands of matmuls: differs from weights under autocast */
  gboolean autocast;
  gboolean has_output; /* the root casts its outputs */
  DType output;
  gboolean wraps_forward; /* under autocast: the region is the root's forward() alone, and casts
                             them where it ends */
} NetworkPrecision;

typedef struct _Network Network;

/* What the functions are built for. */
typedef struct {
  gint64 micro_batch, sequence_length;
  gint64 target_length;      /* of what a decoder gets beside an encoder; 0: sequence_length */
  int micro_batches;         /* accumulation steps: the loop divides the loss when > 1 */
  gboolean divides_loss;     /* or always */
  gboolean keeps_loss;       /* the loop holds a loss until it has the next one */
  gboolean scales_loss;      /* a GradScaler multiplies it by its scale, a tensor */
  gboolean keeps_loss_dtype; /* and casts it back to its dtype */
  gboolean trainer;   /* the loop is transformers' Trainer: models take the number of items, and it
                       divides the loss in   an engine's place */
  double loss_factor; /* what it then multiplies a loss by that was divided by them; 0: nothing */
  int loss_steps;     /* what an engine does to the loss after that: 0 nothing, 1 divides it, 2
                         divides and scales it */
  NetworkPrecision precision;
  const CheckpointSpec *dispatched; /* blocks that it checkpoints by op run under a Python dispatch
                                       mode; NULL: none.  Borrowed */
  gboolean zero3_linear; /* F.linear is DeepSpeed's, which saves the Parameter and not a view of its
                            data */
  const NamePatterns
      *trainable;       /* parameters that are; NULL: all, with adapters those.  Borrowed */
  const LoraSpec *lora; /* adapters; NULL: none.  Borrowed */
  /* Parameters are views of flat tensors: fills in the number of each one's; NULL: they are tensors
   * of their own. */
  void (*flat_tensors)(const PlanSpec *plan, const Network *network, int *tensor);
  const PlanSpec *plan;       /* for that.  Borrowed */
  gboolean clones_outputs;    /* the training loop gets copies of what the model gives back */
  gboolean splits_tied;       /* a tied weight becomes two: Strategy.splits_tied */
  gboolean casts_inputs;      /* hooks give floating inputs of blocks the weights' dtype */
  gboolean casts_root_inputs; /* those of the model alone get it */
  gboolean casts_buffers;     /* floating buffers are in the weights' dtype */
  gboolean evaluation;        /* the model is in eval(): nothing is dropped out */
  DeviceLimits device;
  int torch; /* Implementation.torch */
} NetworkShape;

/* Engines divide the loss by the accumulation steps, then multiply it by a loss scale. */
enum { LOSS_STEPS = 2 };

/* What engines multiply a loss by, taken to be static: the scale that fp16 begins with (deepspeed
 * 0.19.8, runtime/config.py, FP16_INITIAL_SCALE_POWER; InternEvo has the same); one for other
 * dtypes. */
static inline double
network_loss_scale(DType parameters)
{
  return parameters == DTYPE_FP16 ? 65536 : 1;
}

struct _Network {
  char *name;
  const char *family;
  NetworkShape shape;
  GArray *modules;      /* Module */
  GArray *parameters;   /* Parameter, in the order of model.parameters() */
  GArray *buffers;      /* Buffer */
  GArray *blocks;       /* Block */
  GPtrArray *functions; /* Function * */
  GPtrArray *compiled;  /* CompiledBlock *: network/compiled.h */
  int main;      /* function: one forward of the model and the loss.  Arguments: inputs, in order */
  int construct; /* function that makes `tables` after the parameters, or -1.  No arguments */
  int after_backward; /* function that the loop calls after each backward(), without a graph, or -1.
                         Arguments: inputs, then what STATEMENT_KEEP kept */
  int before_step; /* function that a hook of optimizer.step() calls before it, without a graph, or
                      -1.  No arguments */
  int scale_loss;  /* function of the loss and a GradScaler's scale, or -1 */
  int loss_step[LOSS_STEPS]; /* functions of the loss that an engine calls in turn, or -1 */
  GArray *tables; /* gint16: slots of `construct` that live on; main's arguments after the inputs,
                     in order */
  GArray *inputs; /* ValueInfo: tensors of a micro-batch (tokens, labels), made before training */
  int items;      /* the input that is the number of the step's items, or -1: it takes none */
  gboolean shifts_labels;    /* the first label of a sequence is none of them */
  GArray *ties;              /* Tie, in order of modules */
  gboolean split;            /* the model ties two weights, which shape.splits_tied has made two */
  GArray *embedding_modules; /* int: what "embedding: own" groups, one group each */
  GArray *head_modules; /* int: what "head: own" groups together: final norm and output layer */
  gint64 vocabulary, hidden, attention_width; /* for FLOP conventions */
  gint64 positions;       /* of a sample, where the config and not the plan says how many; else 0 */
  int stacks;             /* of blocks that see sequences of their own; 0: one */
  int mixtures;           /* of experts */
  gint64 idle_parameters; /* elements that no token meets but those sent to their expert */
  /* a model's parameters are usually counted as another class than is trained has them; 0: as it is
   */
  gint64 base_parameters;
  const char *base_class, *trained_class; /* static text, where base_parameters is not 0 */
  gint64 embedding_parameters; /* elements of pure look-up tables (not used in a matmul) */
  int construction_scratch;    /* bytes of a temporary before the first parameter, 0: none (family's
                                  note says why) */
  gboolean loss_is_sum;        /* over all samples, and no mean of them */
  gboolean loss_inside;        /* the loss is computed inside the root module */
  gboolean checkpoints_forward; /* checkpointing runs a block's forward() again, inside its hooks;
                                   FALSE: a module around the block runs the block's call again,
                                   hooks included */
};

void network_free(Network *network);
/* Frees one Function: the element type of `functions`. */
void network_function_free(gpointer function);
G_DEFINE_AUTOPTR_CLEANUP_FUNC(Network, network_free)

/* Positions of a sample: what FLOPs are counted by. */
gint64 network_positions(const Network *network);
gint64 network_parameter_count(const Network *network);
/* As a model's parameters are usually counted (base_parameters). */
gint64 network_usual_count(const Network *network);
/* Has a tied weight become two that stay so? */
gboolean network_splits_weight(const Network *network);
gint64 network_trainable_count(const Network *network);
/* Tensors, not elements. */
int network_trainable_tensors(const Network *network);
/* The type of a module that puts an adapter around a layer. */
#define NETWORK_ADAPTER_TYPE "lora.Linear"
/* Parameters as a state dict names them: by modules, a tied weight again where its second name is.
 * An array of int; the caller frees. */
GArray *network_state_order(const Network *network);
/* Parameters that a module has: its own, then those of other modules. */
int network_module_parameters(const Network *network, int module);
int network_module_parameter(const Network *network, int module, int i);
/* How many modules besides its own have the parameter. */
int network_ties_of(const Network *network, int parameter);
/* By module: how many calls of modules begin before its first one in a forward; -1: it is never
 * called (a container).  Caller frees. */
int *network_call_order(const Network *network);
/* The last part of a parameter's name: "weight".  Borrowed. */
const char *parameter_short_name(const Parameter *parameter);

/* The module that checkpointing puts around a block: an id after those of the network's own
 * modules. */
static inline int
network_wrapper(const Network *network, int block)
{
  return (int) network->modules->len + block;
}

static inline const Module *
network_module(const Network *network, int i)
{
  return &g_array_index(network->modules, Module, i);
}

static inline const Parameter *
network_parameter(const Network *network, int i)
{
  return &g_array_index(network->parameters, Parameter, i);
}

static inline const Tie *
network_tie(const Network *network, int i)
{
  return &g_array_index(network->ties, Tie, i);
}

static inline const Block *
network_block(const Network *network, int i)
{
  return &g_array_index(network->blocks, Block, i);
}

static inline const Function *
network_function(const Network *network, int i)
{
  return g_ptr_array_index(network->functions, i);
}

#endif
