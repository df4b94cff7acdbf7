/* transformers_lm.h - decoder models as Hugging Face transformers runs them: rotary tables made in
 * forward, masks, and the loss inside the model. */
#ifndef HIGHWATER_NETWORK_TRANSFORMERS_LM_H
#define HIGHWATER_NETWORK_TRANSFORMERS_LM_H

#include "network/causal_lm.h"

/* What a layer takes besides hidden states, in this order; a family without rotary embeddings has
 * only positions and mask. */
enum { TABLE_POSITIONS, TABLE_COS, TABLE_SIN, TABLE_MASK };

/* Refuses an "implementation" that asks for what transformers' code does not do. */
void transformers_check(NetworkSpec *spec);
/* The same of a model whose code in no other code base is known. */
void transformers_check_only(NetworkSpec *spec);
/* Refuses another rope. */
void transformers_check_rope(NetworkSpec *spec);
/* x / cap, tanh, * cap, each bound to the name. */
Val transformers_soft_cap(Builder *b, const char *name, Val x, double cap);
/* attention_interface(...): q, k, v [batch, heads, length, head_dim] to [batch, length, heads,
 * head_dim].  window: what the kernel is told of (transformers_window), 0: none.  *weights: the
 * probabilities that eager attention returns beside, else NO_VAL. */
Val transformers_attend(Builder *b, const CausalLm *lm, gint64 kv_heads, gint64 window,
                        const Val qkv[3], Val mask, Val *weights);
/* What follows it in an attention module: heads merged, and the output projection.  It and the
 * probabilities become names. */
Val transformers_project(Builder *b, Val output, Linear projection, Val *weights);
/* What eager attention begins and ends with, in the frame of a function of its own: attn_weights,
 * q k^T scaled and masked, and values with as many heads as queries; then their product and the
 * function's return. */
Val transformers_eager_scores(Builder *b, const CausalLm *lm, gint64 kv_heads, const Val qkv[3],
                              Val mask, Val *values);
Val transformers_eager_output(Builder *b, Val w, Val values, Val *weights);
/* arange(length).unsqueeze(0), as position_ids of the model's forward(). */
Val transformers_position_ids(Builder *b, const CausalLm *lm);
/* The mask among a layer's tables, or NO_VAL. */
Val transformers_mask(const CausalLm *lm, int block, const Val *tables);
/* Writes main and the blocks' function. */
void transformers_write(Builder *b, CausalLm *lm);

#endif
