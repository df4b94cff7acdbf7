/* tape.h - eager PyTorch while a Program is written: functions are run, nodes recorded, the graph
 * played backwards.
 *
 * tape.c runs functions forward, autograd.c runs nodes, checkpoint.c keeps what recomputation
 * needs.  All three share the Tape; nobody else looks inside. */
#ifndef HIGHWATER_LOWER_TAPE_H
#define HIGHWATER_LOWER_TAPE_H

#include "strategy/strategy.h"

typedef struct _Tape Tape;

/* context and strategy are borrowed. */
Tape *tape_new(StrategyContext *context, const Strategy *strategy);
void tape_free(Tape *tape);
/* Another tape of the same model for another shape of batches, without a graph of its own.  What
 * both keep - tables, workspaces - is handed over with tape_share(). */
Tape *tape_new_beside(const Tape *tape, const Network *network);
void tape_share(Tape *to, const Tape *from);

/* Runs the function that makes tables; keeps them. */
void tape_construct(Tape *tape);
/* Runs one forward of the model and the loss; returns the loss, one reference of which is the
 * caller's.  inputs: the storages of the micro-batch's tensors. */
TensorRef tape_forward(Tape *tape, const StorageId *inputs);
/* Runs a function of one argument, which is borrowed; the result's reference is the caller's. */
TensorRef tape_apply(Tape *tape, int function, TensorRef argument);
/* The same of two. */
TensorRef tape_apply_two(Tape *tape, int function, TensorRef argument, TensorRef other);
/* What the training loop computes after backward() from the micro-batch and what it kept. */
void tape_after_backward(Tape *tape, const StorageId *inputs);
/* The training loop lets go of the loss that it kept before the one it keeps now: transformers'
 * Trainer, after backward(); others at once. */
void tape_let_go(Tape *tape);
/* The one it keeps now, borrowed. */
TensorRef tape_kept(const Tape *tape);
/* What a hook of the optimizer's step computes before it. */
void tape_before_step(Tape *tape);
/* Plays the graph backwards from the loss and forgets it.  ones: the gradient of the loss, a
 * reference of which goes with its first node. */
void tape_backward(Tape *tape, TensorRef loss, TensorRef ones);
/* The loss lets go of its graph, which is the last to hold what forward() made and gave gradients.
 */
void tape_forget_leaves(Tape *tape);

#endif
