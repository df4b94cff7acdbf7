/* transformers_lm.h - decoder models as Hugging Face transformers runs them: rotary tables in forward, masks, and the loss
 * inside the model. */
#ifndef HIGHWATER_NETWORK_TRANSFORMERS_LM_H
#define HIGHWATER_NETWORK_TRANSFORMERS_LM_H

#include "network/causal_lm.h"

/* What a layer takes besides hidden states, in this order. */
enum { TABLE_POSITIONS, TABLE_COS, TABLE_SIN, TABLE_MASK };

/* sliding_window of a config whose model has one; 0: none. */
gint64 transformers_window(NetworkSpec *spec);
/* The rotary module's buffers. */
void transformers_define_rotary(Builder *b, CausalLm *lm);
/* apply_rotary_pos_emb: q and k become their rotated selves. */
void rope_transformers(Builder *b, Val qk[2], Val cos, Val sin);
/* attention_interface(...): q, k, v [batch, heads, length, head_dim] to [batch, length, heads, head_dim]. */
Val transformers_attend(Builder *b, const CausalLm *lm, gint64 kv_heads, Val q, Val k, Val v, const Val *tables);
/* Writes main and the blocks' function. */
void transformers_write(Builder *b, CausalLm *lm);

#endif
