/* builder.h - how a family writes its forward(): values, Python frames, modules, blocks.
 *
 * The builder keeps count of Python's references while the forward() is written, so that a value is
 * dropped where CPython would drop it (rule L2):
 *  - what an op returns is a temporary: it goes right after the expression that uses it;
 *  - let() binds a name: it goes when the name is bound again, or with its frame, in order of first
 * appearance;
 *  - a module call keeps its arguments until the callee has returned; a plain function owns them.
 * C leaves open which argument of a call is evaluated first: write at most one call that makes
 * values in an argument list.
 *
 * The first error (a size that overflows, an impossible shape) is kept; later calls go on
 * harmlessly. */
#ifndef HIGHWATER_NETWORK_BUILDER_H
#define HIGHWATER_NETWORK_BUILDER_H

#include "network/network.h"

typedef struct _Builder Builder;

/* Elements that one tensor may have, far above any real one and far enough below 2^63 for formulas
 * of scratch sizes; parameters of a network, by element; blocks. */
#define BUILDER_MOST_ELEMENTS ((gint64) 1 << 46)
#define BUILDER_MOST_PARAMETERS ((gint64) 1 << 50)
#define BUILDER_MOST_BLOCKS 4096
/* An op has 65535 operands at most, and an optimizer that treats all parameters at once four of
 * each. */
#define BUILDER_MOST_TENSORS 16383

/* A value as Python code holds it: a slot and whether this is the expression's own reference. */
typedef struct {
  gint16 slot;
  gboolean temporary;
} Val;

#define NO_VAL ((Val){.slot = G_MININT16})

Builder *builder_new(const char *name, const NetworkShape *shape);
/* The finished network, or NULL and the first error.  Frees the builder. */
Network *builder_finish(Builder *b, GError **error);
Network *builder_network(Builder *b);
const NetworkShape *builder_shape(const Builder *b);
/* Records an error in the family's words; the first one stays. */
void builder_fail(Builder *b, const char *format, ...) G_GNUC_PRINTF(2, 3);

/* ---- modules and parameters, in order of definition ---- */

/* Opens a child of the module that is open; closed by builder_module_end.  Returns its index. */
int builder_module(Builder *b, const char *name, const char *type);
void builder_module_end(Builder *b);
/* A parameter of the open module: dims sizes follow as gint64.  Returns its index. */
int builder_parameter(Builder *b, const char *name, int dims, ...);
/* It does not train, whatever the plan says (requires_grad_(False) in the model's own code). */
void builder_freeze(Builder *b, int parameter);
/* It trains if `other` does: patterns saw one weight before it was split (fully_shard). */
void builder_train_like(Builder *b, int parameter, int other);
/* The model ties a weight that was split again, once it is sharded: the two have one sharded part,
 * one gradient and one optimizer state, which are `other`'s. */
void builder_tie_shards(Builder *b, int parameter, int other);
/* The open module has that parameter of another one too. */
void builder_tie(Builder *b, int parameter);
/* A registered buffer of the open module. */
void builder_buffer(Builder *b, const char *name, DType dtype, gint64 elements);
/* The same of a tensor that becomes an attribute of the module in its first forward(). */
void builder_attribute(Builder *b, const char *name, DType dtype, gint64 elements);
/* Is the open module a block's? */
gboolean builder_in_block(const Builder *b);
/* The path that a child of the open module would have.  Caller frees. */
char *builder_path(const Builder *b, const char *name);
/* The parameters of the open module, and those defined in it later, are an adapter's: they train
 * unless the plan says which do. */
void builder_adapter(Builder *b, gboolean begins);
/* Opens the next block as a module named by its number among the open module's blocks; until
 * builder_block_end it defines modules and parameters. */
void builder_block_begin(Builder *b, const char *type);
/* The same with a name of its own: of several lists. */
void builder_block_begin_named(Builder *b, const char *name, const char *type);
void builder_block_end(Builder *b);

/* ---- functions ---- */

/* Starts a function, perhaps inside of another one; its arguments come back in args.  base: the
 * block it is written for (its modules and parameters become relative to it), or -1. */
void builder_function_begin(Builder *b, const char *name, int block, int n, const ValueInfo *infos,
                            Val *args);
/* Ends it; returns its index. */
int builder_function_end(Builder *b, Val result);
/* As builder_function_end with values that live on (tables). */
int builder_function_end_keeping(Builder *b, int n, const Val *kept);

/* Does the function being written run under a Python dispatch mode (NetworkShape.dispatched)? */
gboolean builder_is_dispatched(const Builder *b);

/* ---- values ---- */

/* A parameter as an operand: at the dtype that the ops see. */
Val builder_weight(Builder *b, int parameter);
ValueInfo builder_info(const Builder *b, Val v);

/* Calls an op: its outputs come back in outs (those that autograd or the recipe only keeps are
 * dropped at once when outs is shorter).  module: on whose behalf; temporaries among the inputs go
 * afterwards. */
Val builder_op(Builder *b, OpId op, const OpAttributes *at, int ins, const Val *in);
void builder_op_multi(Builder *b, OpId op, const OpAttributes *at, int ins, const Val *in, int outs,
                      Val *out);

/* What follows is done by this module (until changed); returns the one before. */
int builder_in_module(Builder *b, int module);

/* One more reference to the same value, as an expression's own. */
Val builder_share(Builder *b, Val v);
/* The expression's own reference goes. */
void builder_discard(Builder *b, Val v);

/* ---- Python frames ---- */

/* A module's __call__: keeps the n arguments until builder_leave, after the callee's locals. */
void builder_call(Builder *b, int n, const Val *args);
/* A plain Python function: owns its arguments as its first locals, named by `names`. */
void builder_enter(Builder *b, int n, const char *const *names, const Val *args);
/* Binds a local name of the innermost frame; what it was bound to goes.  Returns the value as a
 * name. */
Val let(Builder *b, const char *name, Val v);
/* Names a, b = v, w: CPython's optimizer stores the last one first. */
void let_pair(Builder *b, const char *const names[2], Val values[2]);
void let_triple(Builder *b, const char *const names[3], Val values[3]);
/* del NAME. */
void unlet(Builder *b, const char *name);
/* Return: the result becomes the caller's temporary, then locals go in order of first appearance,
 * then a module call's arguments. */
Val builder_leave(Builder *b, Val result);
/* Return of several values. */
void builder_leave_with(Builder *b, int n, Val *results);
/* Return of a result and, unless it is NO_VAL, of what comes beside it: *beside becomes the
 * caller's. */
Val builder_leave_beside(Builder *b, Val result, Val *beside);

/* ---- module calls, which hooks see ---- */

/* The module's __call__ with n arguments: keeps them until builder_leave, as builder_call does;
 * hooks see the call and, of what builder_leave returns, the (first) result.  args become what its
 * forward() receives, as names. */
void builder_module_call(Builder *b, int module, int n, Val *args);
/* The same with an argument given by keyword: hooks do not see those. */
void builder_module_call_by_keyword(Builder *b, int module, Val *arg);
/* Without a frame.  The module is called with these values; args become what its forward()
 * receives, as temporaries. */
void builder_module_enter(Builder *b, int module, int n, Val *args);
/* Its forward() returned this. */
void builder_module_exit(Builder *b, int module, Val output);
/* The same of several. */
void builder_module_exit_with(Builder *b, int module, int n, const Val *outputs);
/* Whose forward() a block has: it is written for the block with its arguments as names.  Blocks of
 * one kind, of one model, whose parameters and arguments are alike share a function. */
typedef struct {
  Val (*forward)(Builder *b, gconstpointer model, int block, const Val *args);
  gconstpointer model;
  int kind;
  /* instead of forward: gives back several values, whose number it returns */
  int (*forward_several)(Builder *b, gconstpointer model, int block, const Val *args, Val *results);
} BlockCode;
/* Calls block i with the arguments; hooks and checkpointing happen around it. */
Val builder_block_call(Builder *b, int block, const BlockCode *code, int n, const Val *args);
/* The same with all results, at most FUNCTION_RESULTS; returns how many there are. */
int builder_block_call_several(Builder *b, int block, const BlockCode *code, int n, const Val *args,
                               Val *results);
/* A block's forward() gives back this too, which the caller of the block holds (takes a temporary).
 */
void builder_give_beside(Builder *b, Val v);
/* The same of what a hook on a module inside of the block keeps: the block's own hooks do not see
 * it. */
void builder_capture(Builder *b, Val v);
/* What the last block called gave back so; NO_VAL: nothing. */
Val builder_take_beside(Builder *b);
/* The root's hooks are done: what they kept for the last is let go. */
void builder_forward_end(Builder *b);
/* The training loop keeps the value, until it keeps another. */
void builder_keep(Builder *b, Val v);
/* The training loop's autocast region ends. */
void builder_autocast_end(Builder *b);

#endif
