/* model_call.h - what happens to a model's outputs and to the loss around its call: who wraps
 * forward(), what the root's hooks cast, what the training loop does before backward. */
#ifndef HIGHWATER_NETWORK_MODEL_CALL_H
#define HIGHWATER_NETWORK_MODEL_CALL_H

#include "network/builder.h"

/* The model's own forward() has returned, its module has not: where a wrapper of forward() has the
 * autocast region in it (NetworkPrecision.wraps_forward), the region ends and outputs in 16 bits
 * become the output dtype.  Takes the outputs and replaces them. */
void model_call_wrapped(Builder *b, int n, Val *outputs);
/* The root's post-forward hook ends: floating outputs in the dtype that mixed precision wants.
 * What the hook's frame holds, the last all-gather, goes after the casts and before the outputs as
 * they were (FSDPState._post_forward).  Then the training loop receives them. */
void model_call_end(Builder *b, int n, Val *outputs);
/* The training loop gives the loss its name, and may keep it until the next one.  Takes the loss.
 */
Val model_call_bind_loss(Builder *b, Val loss);
/* The loss as the training loop hands it to backward(): divided by the micro-batches.  Takes it. */
Val model_call_loss(Builder *b, Val loss);
/* The number of the step's items as the model was given it, among its inputs; NO_VAL: it is not. */
Val model_call_items(const Builder *b, const Val *inputs);
/* A region of autocast that the training loop opened ends. */
void model_call_autocast_end(Builder *b);

#endif
