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
/* sliding_window of a config whose model has one; 0: none.  Refuses layers of different kinds. */
gint64 transformers_window(NetworkSpec *spec);
/* The rotary module, with its two buffers of frequencies. */
void transformers_define_rotary(Builder *b, CausalLm *lm);
/* apply_rotary_pos_emb: qk become their rotated selves. */
void transformers_rope(Builder *b, Val qk[2], Val cos, Val sin);
/* attention_interface(...): q, k, v [batch, heads, length, head_dim] to [batch, length, heads,
 * head_dim].  *weights: the probabilities that eager attention returns beside, else NO_VAL. */
Val transformers_attend(Builder *b, const CausalLm *lm, gint64 kv_heads, gboolean dropout,
                        const Val qkv[3], Val mask, Val *weights);
/* The mask among a layer's tables, or NO_VAL. */
Val transformers_mask(const CausalLm *lm, const Val *tables);
/* Writes main and the blocks' function. */
void transformers_write(Builder *b, CausalLm *lm);

#endif
