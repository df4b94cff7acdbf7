/* layers_rope.c - rotary embeddings: the tables, and the ways in which models apply them. */
#include "network/causal_lm.h"
#include "network/op_recipe.h"
#include "network/strides.h"

Val
rope_complex(Builder *b, Val x, Val table)
{
  ValueInfo shape = builder_info(b, x);
  builder_enter(b, 2, (const char *const[]){"x", "freqs_cis"}, (Val[]){x, table});
  Val pairs = let(b, "x_", complex_pairs(b, (Val){x.slot, FALSE}));
  Val real = real_pairs(b, binary(b, OP_MUL_COMPLEX, pairs, table), shape);
  return builder_leave(b, to(b, real, (DType) shape.dtype));
}

/* torch.cat((-b, a), -1) of the halves a, b of x. */
Val
rotate_half(Builder *b, Val x)
{
  ValueInfo info = builder_info(b, x);
  gint64 half = info.shape[info.dims - 1] / 2;
  builder_enter(b, 1, (const char *const[]){"x"}, &x);
  x = (Val){x.slot, FALSE};
  Val first = let(b, "x1", slice_last(b, x, 0, half));
  Val second = let(b, "x2", slice_last(b, x, half, half));
  Val negated = unary(b, OP_NEG, second);
  OpAttributes at = {.result = info};
  value_set_contiguous(&at.result);
  return builder_leave(b, builder_op(b, OP_CAT, &at, 2, (Val[]){negated, first}));
}

/* A table of positions, the same for all samples and heads (reshape_for_broadcast). */
static Val
for_all_heads(Builder *b, Val table)
{
  ValueInfo info = builder_info(b, table);
  return view(b, table, 4, (gint64) 1, info.shape[0], (gint64) 1, info.shape[1]);
}

/* A table cast to x's dtype, unless a hook has already done so, of the whole table: then a part of
 * it is a view, with gaps.  Where hooks cast inputs of some blocks and not of others it is known
 * only in lowering which it is. */
static Val
table_as(Builder *b, Val table, DType dtype)
{
  ValueInfo from = builder_info(b, table), info = from;
  info.dtype = (guint8) dtype;
  if (info.dtype != from.dtype && !builder_shape(b)->casts_inputs) /* a copy has no gaps */
    value_order_like(&info, 1, &from);
  return shaped(b, OP_TO_IF_NEEDED, table.temporary ? table : builder_share(b, table), info);
}

Val
rope_half(Builder *b, Val x, Val cos, Val sin)
{
  ValueInfo info = builder_info(b, x);
  gint64 half = info.shape[info.dims - 1] / 2;
  builder_enter(b, 1, (const char *const[]){"x"}, &x);
  x = (Val){x.slot, FALSE};
  cos = let(b, "cos", table_as(b, for_all_heads(b, cos), (DType) info.dtype));
  sin = let(b, "sin", table_as(b, for_all_heads(b, sin), (DType) info.dtype));
  Val first = let(b, "a", slice_last(b, x, 0, half));
  Val second = let(b, "b", slice_last(b, x, half, half));
  Val straight = binary(b, OP_MUL, x, cos);
  Val negated = unary(b, OP_NEG, second);
  OpAttributes at = {.result = info};
  value_set_contiguous(&at.result);
  Val rotated = builder_op(b, OP_CAT, &at, 2, (Val[]){negated, first});
  rotated = binary(b, OP_MUL, rotated, sin);
  return builder_leave(b, binary(b, OP_ADD, straight, rotated));
}

Val
rope_rotated(Builder *b, Val x, Val cos, Val sin, Val (*rotate)(Builder *, Val))
{
  Val straight = binary(b, OP_MUL, x, cos);
  Val turned = binary(b, OP_MUL, rotate(b, x), sin);
  return binary(b, OP_ADD, straight, turned);
}

void
rope_joined(Builder *b, Val qk[2], Val table)
{
  static const char *const names[] = {"xq_out", "xk_out"};
  ValueInfo info = builder_info(b, qk[0]);
  gint64 width = info.shape[info.dims - 1];
  builder_enter(b, 3, (const char *const[]){"xq", "xk", "rope_cache"},
                (Val[]){qk[0], qk[1], table});
  table.temporary = FALSE;
  table = let(b, "rope_cache", for_all_heads(b, table));
  table.temporary = FALSE;
  Val cos = let(b, "cos", table_as(b, slice_last(b, table, 0, width), (DType) info.dtype));
  Val sin = let(b, "sin", table_as(b, slice_last(b, table, width, width), (DType) info.dtype));
  for (int i = 0; i < 2; i++)
    qk[i] = let(b, names[i], rope_rotated(b, (Val){qk[i].slot, FALSE}, cos, sin, rotate_half));
  builder_leave_with(b, 2, qk);
}

/* ---- complex numbers ---- */

Val
complex_pairs(Builder *b, Val x)
{
  Val wide = to(b, x, DTYPE_FP32);
  ValueInfo pairs = builder_info(b, wide);
  int last = pairs.dims - 1;
  pairs.shape[last] /= 2;
  pairs.shape[last + 1] = 2;
  pairs.dims++;
  Val both = reshape(b, wide, pairs);
  ValueInfo result = builder_info(b, both);
  result.dtype = DTYPE_COMPLEX64;
  result.dims--;
  for (int i = 0; i < result.dims; i++)
    result.stride[i] /= 2;
  return shaped(b, OP_VIEW_AS_COMPLEX, both, result);
}

Val
real_pairs(Builder *b, Val x, ValueInfo shape)
{
  ValueInfo real = builder_info(b, x);
  real.dtype = DTYPE_FP32;
  for (int i = 0; i < real.dims; i++)
    real.stride[i] *= 2;
  real.shape[real.dims] = 2;
  real.stride[real.dims] = 1;
  real.dims++;
  return reshape(b, shaped(b, OP_VIEW_AS_REAL, x, real), shape);
}

/* ---- tables ---- */

/* torch.arange(n).float() */
static Val
counted(Builder *b, gint64 n)
{
  Val integers = create(b, "arange", value_shape(DTYPE_INT64, 1, n));
  Val floats = create(b, "positions", value_shape(DTYPE_FP32, 1, n));
  builder_discard(b, integers);
  return floats;
}

static Val
rotary_table(Builder *b, ValueInfo info, const char *formula)
{
  return create_as(b, "rotary table", info, &(Creation){formula, "theta", ROTARY_THETA}, NO_VAL);
}

/* Angles [length, half] of every position and frequency. */
static Val
angles_of(Builder *b, gint64 length, gint64 half)
{
  Val rows = counted(b, length);
  Val columns = counted(b, half);
  Val angles = create(b, "angles", value_shape(DTYPE_FP32, 2, length, half));
  builder_discard(b, rows);
  builder_discard(b, columns);
  return angles;
}

/* cat((cos, sin), -1) of cat(angles, angles). */
static void
joined_table(Builder *b, CausalLm *lm, gint64 length, gint64 half, Val kept[LM_TABLES])
{
  ValueInfo part = value_shape(DTYPE_FP32, 2, length, 2 * half);
  Val twice = create(b, "cat", part);
  Val cos = rotary_table(b, part, "rotary_cos"), sin = rotary_table(b, part, "rotary_sin");
  lm->tables = 1;
  lm->table[0] = value_shape(DTYPE_FP32, 2, length, 4 * half);
  OpAttributes at = {.result = lm->table[0]};
  kept[0] = builder_op(b, OP_CAT, &at, 2, (Val[]){cos, sin});
  builder_discard(b, twice);
}

/* polar(ones, angles), or cos and sin of cat(angles, angles). */
static void
apart_tables(Builder *b, CausalLm *lm, gint64 length, gint64 half, Val kept[LM_TABLES])
{
  gboolean complex = lm->impl.rope == ROPE_COMPLEX;
  lm->tables = complex ? 1 : 2;
  for (int i = 0; i < lm->tables; i++) {
    lm->table[i] = complex ? value_shape(DTYPE_COMPLEX64, 2, length, half)
                           : value_shape(DTYPE_FP32, 2, length, 2 * half);
    Val operand = create(b, complex ? "ones" : "cat",
                         value_shape(DTYPE_FP32, 2, length, complex ? half : 2 * half));
    kept[i] = rotary_table(b, lm->table[i],
                           complex  ? "rotary_complex"
                           : i == 0 ? "rotary_cos"
                                    : "rotary_sin");
    builder_discard(b, operand);
  }
}

void
rope_tables(Builder *b, CausalLm *lm)
{
  gint64 length = lm->length, half = causal_lm_rotary_dim(lm) / 2;
  Val kept[LM_TABLES];
  if (lm->impl.rope == ROPE_NONE)
    return;
  builder_function_begin(b, "tables", -1, 0, NULL, NULL);
  Val angles = angles_of(b, length, half);
  (lm->rotary.joined ? joined_table : apart_tables)(b, lm, length, half, kept);
  builder_discard(b, angles);
  builder_network(b)->construct = builder_function_end_keeping(b, lm->tables, kept);
}
