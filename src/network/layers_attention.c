/* layers_attention.c - scaled_dot_product_attention: which kernel runs, and the composed (math, eager) forms. */
#include "base/units.h"
#include "network/layers.h"
#include "network/op_recipe.h"

/* torch/nn/functional and aten/src/ATen/native/transformers/cuda/sdp_utils.cpp: flash needs 16-bit operands and no
 * explicit mask; the memory-efficient kernel needs as many key heads as query heads; else math. */
AttentionCode
attention_choice(const AttentionCall *call, DType dtype)
{
  gboolean half = dtype_size(dtype) == 2, masked = call->mask.slot != NO_VAL.slot;
  switch (call->code) {
  case ATTENTION_MATH:
  case ATTENTION_EAGER:
    return call->code;
  case ATTENTION_EFFICIENT:
    return call->kv_heads == call->heads ? ATTENTION_EFFICIENT : ATTENTION_MATH;
  default:
    if (half && !masked)
      return ATTENTION_FLASH;
    return call->kv_heads == call->heads ? ATTENTION_EFFICIENT : ATTENTION_MATH;
  }
}

static OpAttributes
attention_attributes(Builder *b, Val q, const AttentionCall *call)
{
  ValueInfo info = builder_info(b, q);
  return (OpAttributes){
      .batch = info.shape[0],
      .heads = call->heads,
      .kv_heads = call->kv_heads,
      .length = info.shape[2],
      .head_dim = info.shape[3],
      .flag = call->dropout,
  };
}

/* ---- fused kernels ---- */

/* F.pad of the head dimension. */
static Val
pad_heads(Builder *b, Val x, gint64 head_dim)
{
  OpAttributes at = {.result = builder_info(b, x), .what = "padded heads"};
  at.result.shape[3] = head_dim;
  at.result.strided = FALSE;
  return builder_op(b, OP_PAD, &at, 1, &x);
}

/* Flash attention wants head dims that are multiples of 8: operands are padded, the output is a slice. */
static Val
flash(Builder *b, Val q, Val k, Val v, const AttentionCall *call)
{
  OpAttributes at = attention_attributes(b, q, call);
  gint64 head_dim = at.head_dim;
  if (head_dim % 8 == 0)
    return builder_op(b, OP_FLASH_ATTENTION, &at, 3, (Val[]){q, k, v});
  at.head_dim = round_up(head_dim, 8);
  at.size[0] = 1;
  Val qp = pad_heads(b, (Val){q.slot, FALSE}, at.head_dim);
  Val kp = pad_heads(b, (Val){k.slot, FALSE}, at.head_dim);
  Val vp = pad_heads(b, (Val){v.slot, FALSE}, at.head_dim);
  Val out = builder_op(b, OP_FLASH_ATTENTION, &at, 3, (Val[]){qp, kp, vp});
  OpAttributes slice = {.result = builder_info(b, out)};
  slice.result.shape[3] = head_dim;
  out = builder_op(b, OP_SLICE, &slice, 1, &out);
  builder_discard(b, q);
  builder_discard(b, k);
  builder_discard(b, v);
  return out;
}

static Val
efficient(Builder *b, Val q, Val k, Val v, const AttentionCall *call)
{
  OpAttributes at = attention_attributes(b, q, call);
  return builder_op(b, OP_EFFICIENT_ATTENTION, &at, 3, (Val[]){q, k, v});
}

/* ---- math ---- */

/* _scaled_dot_product_attention_math: with C++ locals that die when it returns. */
typedef struct {
  Builder *b;
  gint64 batch, heads, kv_heads, length, head_dim;
} Math;

/* An operand of bmm: [batch, heads] in one dimension.  That is a copy unless the memory is already so; a batch of one
 * with permuted memory is still a view. */
static Val
bmm_operand(const Math *m, Val x)
{
  ValueInfo info = builder_info(m->b, x);
  gint64 *s = info.shape;
  gint64 batch = s[0] * s[1], rows = s[2], columns = s[3];
  if (info.strided && m->batch > 1) {
    OpAttributes at = {.result = value_shape((DType) info.dtype, 3, batch, rows, columns), .what = "contiguous operand"};
    Val copy = builder_op(m->b, OP_CLONE, &at, 1, &x);
    at.what = NULL;
    return builder_op(m->b, OP_UNSAFE_VIEW, &at, 1, &copy);
  }
  return view(m->b, x, 3, batch, rows, columns);
}

/* is_causal: ones(L, L).tril(), then a float mask of zeros and -inf. */
static Val
causal_mask(const Math *m, DType dtype)
{
  Builder *b = m->b;
  gint64 square = m->length;
  Val ones = create(b, "ones", value_shape(DTYPE_BOOL, 2, square, square));
  Val lower = create(b, "tril", value_shape(DTYPE_BOOL, 2, square, square));
  builder_discard(b, ones);
  Val zero = create(b, "zero", value_shape(dtype, 1, (gint64) 1));
  Val infinity = create(b, "-inf", value_shape(dtype, 1, (gint64) 1));
  Val mask = create(b, "attention mask", value_shape(dtype, 2, square, square));
  builder_discard(b, infinity);
  builder_discard(b, zero);
  builder_discard(b, lower);
  return mask;
}

/* repeat_interleave of key heads (pre_process_group_query_attention_input). */
static Val
expand_heads(const Math *m, Val x)
{
  return repeat_heads(m->b, x, m->heads, TRUE);
}

static Val
math(Builder *b, Val q, Val k, Val v, const AttentionCall *call)
{
  ValueInfo shape = builder_info(b, q);
  gint64 *s = shape.shape;
  Math m = {b, s[0], call->heads, call->kv_heads, s[2], s[3]};
  DType dtype = (DType) shape.dtype, wide = DTYPE_FP32;
  gboolean narrow = dtype != wide, grouped = m.kv_heads != m.heads;
  (void) narrow;
  Val q32 = to(b, (Val){q.slot, FALSE}, wide), k32 = NO_VAL, v32 = NO_VAL;
  k32 = to(b, (Val){k.slot, FALSE}, wide);
  v32 = to(b, (Val){v.slot, FALSE}, wide);
  Val qs = unary(b, OP_MUL_SCALAR, (Val){q32.slot, FALSE});
  Val mask = causal_mask(&m, wide);
  Val ke = grouped ? expand_heads(&m, (Val){k32.slot, FALSE}) : (Val){k32.slot, FALSE};
  Val ve = grouped ? expand_heads(&m, (Val){v32.slot, FALSE}) : (Val){v32.slot, FALSE};
  return (void) ke, (void) ve, (void) qs, (void) mask, NO_VAL;
}

Val
attention(Builder *b, Val q, Val k, Val v, const AttentionCall *call)
{
  switch (attention_choice(call, (DType) builder_info(b, q).dtype)) {
  case ATTENTION_FLASH:
    return flash(b, q, k, v, call);
  case ATTENTION_EFFICIENT:
    return efficient(b, q, k, v, call);
  default:
    return math(b, q, k, v, call);
  }
}
