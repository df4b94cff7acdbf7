/* transformers_masks.c - masks as transformers' masking_utils.py makes them in each forward(). */
#include "network/transformers_masks.h"

/* Does attention of this block see a window only? */
static gboolean
is_windowed(const CausalLm *lm, int block)
{
  return lm->window > 0 && (lm->layer_kinds == NULL || lm->layer_kinds[block] & LAYER_WINDOWED);
}

/* flash-attn knows causal masks and windows itself (flash_attention_mask). */
static gboolean
takes_masks(const CausalLm *lm)
{
  return lm->impl.attention != ATTENTION_FLASH && lm->impl.attention != ATTENTION_FLASH3;
}

gint64
transformers_window(const CausalLm *lm, int block)
{
  return is_windowed(lm, block) && !takes_masks(lm) && lm->length > lm->window ? lm->window : 0;
}

/* A mask is made when the default causal one will not do: a window shorter than the sequence, or
 * eager attention. */
gboolean
transformers_has_mask(const CausalLm *lm, int block)
{
  return lm->impl.attention == ATTENTION_EAGER ||
         (takes_masks(lm) && is_windowed(lm, block) && lm->length >= lm->window);
}

/* ---- tensors of index arithmetic, none of which needs a gradient ---- */

static Val
integers(Builder *b, const char *what, gint64 n)
{
  return create(b, what, value_shape(DTYPE_INT64, 1, n));
}

static Val
booleans(Builder *b, const char *what, gint64 n)
{
  return create(b, what, value_shape(DTYPE_BOOL, 1, n));
}

/* find_packed_sequence_indices: are positions restarted inside a row? */
static void
packed_sequence_test(Builder *b, const CausalLm *lm)
{
  gint64 n = lm->batch, s = lm->length;
  Val first = integers(b, "first positions", n);
  Val padded = integers(b, "positions with a dummy", n * (s + 1));
  Val difference = integers(b, "position differences", n * s);
  builder_discard(b, padded);
  Val restarts = create(b, "restarts", value_shape(DTYPE_BOOL, 2, n, s));
  Val sequences = unary(b, OP_CUMSUM, (Val){restarts.slot, FALSE});
  builder_discard(b, restarts);
  Val last = booleans(b, "last is first", n);
  Val all = booleans(b, "all", 1);
  builder_discard(b, last);
  builder_discard(b, all);
  builder_discard(b, first);
  builder_discard(b, difference);
  builder_discard(b, sequences);
}

/* The broadcast index tensors that mask functions are called with. */
static void
index_tensors(Builder *b, const CausalLm *lm, Val out[4])
{
  out[0] = integers(b, "batch index", lm->batch);
  out[1] = integers(b, "head index", 1);
  for (int i = 2; i < 4; i++) { /* arange, then the offset is added */
    Val range = integers(b, "arange", lm->length);
    out[i] = integers(b, i == 2 ? "query index" : "key index", lm->length);
    builder_discard(b, range);
  }
}

static Val
square(Builder *b, const CausalLm *lm, const char *what)
{
  return create(b, what,
                value_shape(DTYPE_BOOL, 4, (gint64) 1, (gint64) 1, lm->length, lm->length));
}

/* The one that they end with: whether a position is seen. */
static Val
seen_mask(Builder *b, const CausalLm *lm, gboolean windowed)
{
  const Creation seen = {"seen", "window", windowed ? (double) lm->window : 0};
  ValueInfo info = value_shape(DTYPE_BOOL, 4, (gint64) 1, (gint64) 1, lm->length, lm->length);
  return create_as(b, "attention mask", info, &seen, NO_VAL);
}

/* sdpa_mask of a sliding window: true & (key > query - window) & (key <= query) in boolean
 * arithmetic; without one, only the last. */
static Val
boolean_mask(Builder *b, const CausalLm *lm, gboolean windowed)
{
  Val index[4], both = NO_VAL, mask;
  index_tensors(b, lm, index);
  if (windowed) {
    Val truth = booleans(b, "true", 1);
    Val start = integers(b, "window start", lm->length);
    Val inside = square(b, lm, "inside the window");
    builder_discard(b, start);
    both = square(b, lm, "window mask");
    builder_discard(b, inside);
    builder_discard(b, truth);
  }
  mask = windowed ? square(b, lm, "causal") : seen_mask(b, lm, FALSE);
  if (windowed) {
    Val causal = mask;
    mask = seen_mask(b, lm, TRUE);
    builder_discard(b, causal);
    builder_discard(b, both);
  }
  for (int i = 0; i < 4; i++)
    builder_discard(b, index[i]);
  return mask;
}

/* The same with a mask that says which tokens are padding: true & causal & mask[batch, key]. */
static Val
padded_mask(Builder *b, const CausalLm *lm)
{
  Val index[4], lookups[2];
  index_tensors(b, lm, index);
  Val truth = booleans(b, "true", 1);
  Val causal = square(b, lm, "causal");
  Val both = square(b, lm, "causal");
  builder_discard(b, causal);
  builder_discard(b, truth);
  for (int i = 0; i < 2; i++)
    lookups[i] = integers(b, "expanded index", lm->batch * lm->length);
  Val padding = booleans(b, "is no padding", lm->batch * lm->length);
  for (int i = 1; i >= 0; i--)
    builder_discard(b, lookups[i]);
  Val mask = booleans(b, "attention mask", lm->batch * lm->length * lm->length);
  builder_discard(b, padding);
  builder_discard(b, both);
  for (int i = 0; i < 4; i++)
    builder_discard(b, index[i]);
  return mask;
}

/* eager_mask: the boolean mask becomes zeros and the lowest number of the model's dtype. */
static Val
eager_mask(Builder *b, const CausalLm *lm, Val seen)
{
  Val zero = create(b, "zero", value_shape(lm->dtype, 1, (gint64) 1));
  Val lowest = create(b, "lowest", value_shape(lm->dtype, 1, (gint64) 1));
  static const Creation lowered = {"lowest_unless", NULL, 0};
  ValueInfo info = value_shape(lm->dtype, 4, lm->batch, (gint64) 1, lm->length, lm->length);
  Val mask = create_as(b, "attention mask", info, &lowered, seen);
  builder_discard(b, lowest);
  builder_discard(b, zero);
  builder_discard(b, seen);
  return mask;
}

/* create_causal_mask, create_sliding_window_causal_mask: the mask, or NO_VAL. */
static Val
make_mask(Builder *b, const CausalLm *lm, gboolean windowed)
{
  if (!lm->mask_without_positions)
    packed_sequence_test(b, lm);
  if (lm->impl.attention == ATTENTION_EAGER)
    return eager_mask(b, lm, boolean_mask(b, lm, windowed));
  gboolean wanted = takes_masks(lm) && windowed && lm->length >= lm->window;
  return wanted ? boolean_mask(b, lm, TRUE) : NO_VAL;
}

void
transformers_make_masks(Builder *b, const CausalLm *lm, Val masks[2])
{
  static const char *const names[] = {"full_attention", "sliding_attention"};
  gboolean any = lm->window > 0;
  masks[0] = masks[1] = NO_VAL;
  for (int i = 0; i < 2; i++)
    if (i == 1 ? any : (lm->mask_kwargs || !any)) {
      masks[i] = make_mask(b, lm, i == 1);
      if (masks[i].slot != NO_VAL.slot)
        masks[i] = let(b, names[i], masks[i]);
    }
}

Val
transformers_choose_mask(const CausalLm *lm, int block, const Val masks[2])
{
  return masks[is_windowed(lm, block) ? 1 : 0];
}

Val
transformers_causal_mask(Builder *b, const CausalLm *lm, gboolean positions, gboolean always)
{
  if (positions)
    packed_sequence_test(b, lm);
  if (lm->impl.attention == ATTENTION_EAGER)
    return let(b, "causal_mask", eager_mask(b, lm, boolean_mask(b, lm, FALSE)));
  return always ? let(b, "causal_mask", boolean_mask(b, lm, FALSE)) : NO_VAL;
}

Val
transformers_padded_mask(Builder *b, const CausalLm *lm)
{
  return eager_mask(b, lm, padded_mask(b, lm));
}
