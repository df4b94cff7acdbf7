/* transformers_masks.h - masks as transformers makes them in each forward(), for full attention and
 * for a sliding window. */
#ifndef HIGHWATER_NETWORK_TRANSFORMERS_MASKS_H
#define HIGHWATER_NETWORK_TRANSFORMERS_MASKS_H

#include "network/causal_lm.h"

/* Does the block get a mask? */
/* The window of this block's attention that its kernel is told of; 0: none, or a mask has it. */
gint64 transformers_window(const CausalLm *lm, int block);
gboolean transformers_has_mask(const CausalLm *lm, int block);
/* The masks of full and of windowed attention as locals of the model's forward(); NO_VAL: not
 * needed. */
void transformers_make_masks(Builder *b, const CausalLm *lm, Val masks[2]);
/* create_causal_mask as a local of the model's forward(), or NO_VAL where the kernel's own will do.
 * positions: it is given them, and tests whether they restart.  always: even where it would do. */
Val transformers_causal_mask(Builder *b, const CausalLm *lm, gboolean positions, gboolean always);
/* The same for eager attention, of a mask that says which tokens are padding. */
Val transformers_padded_mask(Builder *b, const CausalLm *lm);
/* The one that the block gets, or NO_VAL. */
Val transformers_choose_mask(const CausalLm *lm, int block, const Val masks[2]);

#endif
