/* layers_rope.c - rotary embeddings: the tables, and the ways in which models apply them. */
#include "network/causal_lm.h"
#include "network/op_recipe.h"

Val
rope_complex(Builder *b, Val x, Val table)
{
  ValueInfo shape = builder_info(b, x);
  gint64 *s = shape.shape;
  builder_enter(b, 2, (const char *const[]){"x", "freqs_cis"}, (Val[]){x, table});
  x = (Val){x.slot, FALSE};
  Val pairs = view(b, to(b, x, DTYPE_FP32), 5, s[0], s[1], s[2], s[3] / 2, (gint64) 2);
  Val product = shaped(b, OP_VIEW_AS_COMPLEX, pairs,
                       value_shape(DTYPE_COMPLEX64, 4, s[0], s[1], s[2], s[3] / 2));
  product = let(b, "x_", product);
  product = binary(b, OP_MUL_COMPLEX, product, table);
  Val real = shaped(b, OP_VIEW_AS_REAL, product,
                    value_shape(DTYPE_FP32, 5, s[0], s[1], s[2], s[3] / 2, (gint64) 2));
  real = view(b, real, 4, s[0], s[1], s[2], s[3]);
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

/* A table cast to x's dtype, unless a hook has already done so. */
static Val
table_as(Builder *b, Val table, DType dtype)
{
  ValueInfo info = builder_info(b, table);
  info.dtype = (guint8) dtype;
  return shaped(b, OP_TO_IF_NEEDED, builder_share(b, table), info);
}

Val
rope_half(Builder *b, Val x, Val cos, Val sin)
{
  ValueInfo info = builder_info(b, x);
  gint64 half = info.shape[info.dims - 1] / 2;
  builder_enter(b, 1, (const char *const[]){"x"}, &x);
  x = (Val){x.slot, FALSE};
  cos = let(b, "cos", table_as(b, cos, (DType) info.dtype));
  sin = let(b, "sin", table_as(b, sin, (DType) info.dtype));
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

/* outer(arange(length), arange(head_dim / 2)), then polar(ones, angles), or cos and sin of
 * cat(angles, angles). */
void
rope_tables(Builder *b, CausalLm *lm)
{
  gint64 length = lm->length, half = lm->head_dim / 2;
  if (lm->impl.rope == ROPE_NONE)
    return;
  gboolean complex = lm->impl.rope == ROPE_COMPLEX;
  builder_function_begin(b, "tables", -1, 0, NULL, NULL);
  Val rows = counted(b, length);
  Val columns = counted(b, half);
  Val angles = create(b, "angles", value_shape(DTYPE_FP32, 2, length, half));
  builder_discard(b, rows);
  builder_discard(b, columns);
  lm->tables = complex ? 1 : 2;
  Val kept[LM_TABLES];
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
  builder_discard(b, angles);
  builder_network(b)->construct = builder_function_end_keeping(b, lm->tables, kept);
}
