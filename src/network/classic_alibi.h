/* classic_alibi.h - ALiBi, linear biases of attention by distance, as transformers' models make
 * them in each forward(). */
#ifndef HIGHWATER_NETWORK_CLASSIC_ALIBI_H
#define HIGHWATER_NETWORK_CLASSIC_ALIBI_H

#include "network/causal_lm.h"

/* BLOOM: slopes times positions, [batch * heads, 1, length] in the model's dtype, as the local
 * alibi. */
Val alibi_of_length(Builder *b, const CausalLm *lm);
/* Falcon: the same from a mask of ones, [batch, heads, 1, length]. */
Val alibi_of_mask(Builder *b, const CausalLm *lm);
/* Falcon: the boolean causal_mask becomes one of ALiBi's numbers and the lowest one, [batch, heads,
 * length, length]. */
Val alibi_in_mask(Builder *b, const CausalLm *lm);
/* MPT: in fp32 for all positions that there may be, [heads, 1, positions]. */
Val alibi_of_positions(Builder *b, gint64 heads, gint64 positions);

#endif
