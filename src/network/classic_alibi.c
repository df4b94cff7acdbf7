/* classic_alibi.c - ALiBi, linear biases of attention by distance, as BLOOM, Falcon and MPT make
 * them in each forward(). */
#include "network/classic_alibi.h"

/* ---- BLOOM ---- */

/* 2^(-8 i / n) for the largest power of two of heads, and numbers between them for the rest. */
static Val
slopes_of(Builder *b, gint64 heads, gboolean inside)
{
  gint64 power = 1, rest;
  while (2 * power <= heads)
    power *= 2;
  if (!inside)
    builder_call(b, 0, NULL);
  let(b, "base", create(b, "base", value_shape(DTYPE_FP32, 1, (gint64) 1)));
  let(b, "powers", create(b, "powers", value_shape(DTYPE_INT32, 1, power)));
  Val slopes = let(b, "slopes", create(b, "slopes", value_shape(DTYPE_FP32, 1, power)));
  if ((rest = MIN(power, heads - power)) > 0) {
    let(b, "extra_base", create(b, "base", value_shape(DTYPE_FP32, 1, (gint64) 1)));
    let(b, "extra_powers", create(b, "powers", value_shape(DTYPE_INT32, 1, rest)));
    Val more = create(b, "slopes", value_shape(DTYPE_FP32, 1, rest));
    Val all = create(b, "slopes", value_shape(DTYPE_FP32, 1, heads));
    builder_discard(b, more);
    slopes = let(b, "slopes", all);
  }
  return inside ? slopes : builder_leave(b, slopes);
}

Val
alibi_of_length(Builder *b, const CausalLm *lm)
{
  gint64 rows = lm->batch * lm->heads;
  let(b, "slopes", slopes_of(b, lm->heads, FALSE));
  Val range = create(b, "arange", value_shape(DTYPE_INT64, 1, lm->length));
  let(b, "alibi",
      create(b, "alibi", value_shape(DTYPE_FP32, 3, lm->heads, (gint64) 1, lm->length)));
  builder_discard(b, range);
  Val repeated = create(b, "alibi", value_shape(DTYPE_FP32, 3, rows, (gint64) 1, lm->length));
  return let(b, "alibi", to(b, repeated, lm->dtype));
}

/* ---- Falcon ---- */

/* build_alibi_tensor of a mask of ones. */
Val
alibi_of_mask(Builder *b, const CausalLm *lm)
{
  gint64 s = lm->length;
  Val ones = let(b, "mask", create(b, "ones", value_shape(DTYPE_INT64, 2, lm->batch, s)));
  builder_call(b, 0, NULL);
  Val slopes = let(b, "slopes", slopes_of(b, lm->heads, TRUE));
  Val counts = unary(b, OP_CUMSUM, ones);
  Val less = create(b, "positions", value_shape(DTYPE_INT64, 2, lm->batch, s));
  builder_discard(b, counts);
  let(b, "arange_tensor", create(b, "positions", value_shape(DTYPE_INT64, 2, lm->batch, s)));
  builder_discard(b, less);
  Val narrow = create(b, "slopes", value_shape(DTYPE_BF16, 1, lm->heads));
  ValueInfo wide = value_shape(DTYPE_BF16, 4, lm->batch, lm->heads, (gint64) 1, s);
  Val table = let(b, "alibi", create(b, "alibi", wide));
  builder_discard(b, narrow);
  (void) slopes;
  return builder_leave(b, to(b, table, lm->dtype));
}

/* The boolean mask becomes one of ALiBi's numbers: where(), a quotient, a comparison, masked_fill.
 */
Val
alibi_in_mask(Builder *b, const CausalLm *lm)
{
  gint64 n = lm->batch, h = lm->heads, s = lm->length;
  Val zero = create(b, "zero", value_shape(lm->dtype, 1, (gint64) 1));
  Val lowest = create(b, "lowest", value_shape(lm->dtype, 1, (gint64) 1));
  Val wide = create(b, "attention mask", value_shape(lm->dtype, 4, n, (gint64) 1, s, s));
  builder_discard(b, lowest);
  builder_discard(b, zero);
  let(b, "causal_mask", wide);
  Val quotient = create(b, "alibi", value_shape(lm->dtype, 4, n, h, (gint64) 1, s));
  Val hidden = create(b, "hidden", value_shape(DTYPE_BOOL, 4, n, (gint64) 1, s, s));
  Val filled = create(b, "attention mask", value_shape(lm->dtype, 4, n, h, s, s));
  builder_discard(b, hidden);
  builder_discard(b, quotient);
  return let(b, "causal_mask", filled);
}

/* ---- MPT ---- */

static Val
vector(Builder *b, const char *what, DType dtype, gint64 n)
{
  return create(b, what, value_shape(dtype, 1, n));
}

/* 1 / 2^(bias i / n) for the next power of two of heads, every second of them first when there are
 * too many. */
static Val
positions_slopes(Builder *b, gint64 heads)
{
  gint64 power = 1;
  while (power < heads)
    power *= 2;
  Val counts = vector(b, "counts", DTYPE_INT64, power);
  Val wide = vector(b, "counts", DTYPE_FP32, power);
  builder_discard(b, counts);
  let(b, "base", vector(b, "base", DTYPE_FP32, power));
  builder_discard(b, wide);
  Val powers = vector(b, "powers", DTYPE_FP32, power);
  Val two = vector(b, "two", DTYPE_INT64, 1); /* pow's base as a tensor */
  builder_discard(b, two);
  Val reciprocal = vector(b, "reciprocals", DTYPE_FP32, power);
  Val slopes = let(b, "slopes", vector(b, "slopes", DTYPE_FP32, power));
  builder_discard(b, reciprocal);
  builder_discard(b, powers);
  return power == heads ? slopes : let(b, "slopes", vector(b, "slopes", DTYPE_FP32, power));
}

/* build_mpt_alibi_tensor: as long as max_seq_len. */
Val
alibi_of_positions(Builder *b, gint64 heads, gint64 positions)
{
  builder_call(b, 0, NULL);
  let(b, "alibi", vector(b, "positions", DTYPE_INT32, positions));
  positions_slopes(b, heads);
  ValueInfo table = value_shape(DTYPE_FP32, 3, heads, (gint64) 1, positions);
  return builder_leave(b, let(b, "alibi", create(b, "alibi", table)));
}
