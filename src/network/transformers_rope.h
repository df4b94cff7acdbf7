/* transformers_rope.h - rotary embeddings as transformers' models write them: tables made in each
 * forward(), and the ways of applying them. */
#ifndef HIGHWATER_NETWORK_TRANSFORMERS_ROPE_H
#define HIGHWATER_NETWORK_TRANSFORMERS_ROPE_H

#include "network/causal_lm.h"

/* How queries and keys are rotated. */
typedef enum {
  ROTATE_HALF,
  ROTATE_HALF_WIDE,        /* with fp32 tables; the result is cast back */
  ROTATE_INTERLEAVED_WIDE, /* neighbours instead of halves, all of it in fp32 */
  ROTATE_PART,             /* the first elements of each head, in apply_rotary_pos_emb */
  ROTATE_PART_LATER,       /* the same; queries are put together after keys have been rotated */
  ROTATE_NEIGHBOURS,       /* the even and the odd elements, with half of the tables */
  ROTATE_CHUNKS,           /* the two halves, with tables of half the width */
  ROTATE_PART_NEIGHBOURS,  /* that with neighbours instead of halves, by tables made for it */
  ROTATE_PART_OUTSIDE,     /* as ROTATE_PART, in the attention module */
} RotaryKind;

/* Reads rope_parameters, or rope_scaling as it was called: which kind of frequencies they are, and
 * which part of a head is rotated (part: where nothing says so; 0: always all of it).  Refuses
 * kinds that are not known. */
void transformers_rope_read(CausalLm *lm, NetworkSpec *spec, double part);
/* The rotary module, with its buffers of frequencies. */
void transformers_define_rotary(Builder *b, CausalLm *lm);
/* The rotary module's calls: cos and sin, then cos and sin of windowed blocks if they have others,
 * as locals of the model's forward(). */
void transformers_rotary_tables(Builder *b, const CausalLm *lm, Val tables[4]);
/* The block's pair of them. */
const Val *transformers_choose_table(const CausalLm *lm, int block, const Val tables[4]);
/* apply_rotary_pos_emb: qk, names or temporaries, become their rotated selves.  ROTATE_PART_OUTSIDE
 * binds names in the caller's frame. */
void transformers_rotate(Builder *b, RotaryKind kind, Val qk[2], Val cos, Val sin);
/* What that is made of: x[..., :dim] and x[..., dim:], bound to the names. */
void transformers_part_heads(Builder *b, Val x, gint64 dim, const char *const names[2], Val out[2]);
/* torch.stack([-x2, x1], dim=-1).flatten(-2) of neighbours x1, x2. */
Val transformers_rotate_neighbours(Builder *b, Val x);

#endif
