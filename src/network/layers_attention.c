/* layers_attention.c - scaled_dot_product_attention: which kernel runs, and the composed (math,
 * eager) forms. */
#include "base/units.h"
#include "network/layers.h"
#include "network/op_recipe.h"

/* torch/nn/functional and aten/src/ATen/native/transformers/cuda/sdp_utils.cpp: flash needs 16-bit
 * operands and no explicit mask; the memory-efficient kernel needs as many key heads as query
 * heads; else math. */
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

/* Flash attention wants head dims that are multiples of 8: operands are padded, the output is a
 * slice. */
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

/* A boolean mask becomes a bias of zeros and -inf in the operands' dtype, one per sequence, its
 * rows padded to a multiple of 8 elements (convert_boolean_attn_mask, pad_bias). */
static Val
mask_bias(Builder *b, Val q)
{
  ValueInfo info = builder_info(b, q);
  DType dtype = (DType) info.dtype;
  gint64 batch = info.shape[0], length = info.shape[2];
  Val zero = create(b, "zero", value_shape(dtype, 1, (gint64) 1));
  Val infinity = create(b, "-inf", value_shape(dtype, 1, (gint64) 1));
  Val bias = create(b, "attention bias", value_shape(dtype, 4, batch, (gint64) 1, length, length));
  builder_discard(b, infinity);
  builder_discard(b, zero);
  if (length % 8 == 0)
    return bias;
  ValueInfo wide = value_shape(dtype, 4, batch, (gint64) 1, length, round_up(length, 8));
  Val padded = create(b, "padded attention bias", wide);
  builder_discard(b, bias);
  return padded;
}

static Val
efficient(Builder *b, Val q, Val k, Val v, const AttentionCall *call)
{
  OpAttributes at = attention_attributes(b, q, call);
  gboolean masked = call->mask.slot != NO_VAL.slot;
  Val operands[] = {q, k, v, masked ? mask_bias(b, q) : NO_VAL};
  return builder_op(b, OP_EFFICIENT_ATTENTION, &at, masked ? 4 : 3, operands);
}

/* ---- math: _scaled_dot_product_attention_math (aten/src/ATen/native/transformers/attention.cpp)
 * ---- */

/* With a batch of one it never is a copy. */
Val
bmm_operand(Builder *b, Val x, gint64 rows, gint64 columns)
{
  ValueInfo info = builder_info(b, x);
  ValueInfo flat = value_shape((DType) info.dtype, 3, info.shape[0] * info.shape[1], rows, columns);
  flat.requires_grad = info.requires_grad;
  if (!info.strided || info.shape[0] == 1)
    return shaped(b, OP_VIEW, x, flat);
  return shaped(b, OP_UNSAFE_VIEW, contiguous(b, x), flat);
}

/* is_causal: ones(L, L).tril(), then a mask of zeros and -inf. */
static Val
causal_mask(Builder *b, gint64 length, DType dtype)
{
  Val ones = create(b, "ones", value_shape(DTYPE_BOOL, 2, length, length));
  Val lower = create(b, "tril", value_shape(DTYPE_BOOL, 2, length, length));
  builder_discard(b, ones);
  Val zero = create(b, "zero", value_shape(dtype, 1, (gint64) 1));
  Val infinity = create(b, "-inf", value_shape(dtype, 1, (gint64) 1));
  Val mask = create(b, "attention mask", value_shape(dtype, 2, length, length));
  builder_discard(b, infinity);
  builder_discard(b, zero);
  builder_discard(b, lower);
  return mask;
}

/* Scores: q [n, L, d] times k^T [n, d, L], the mask added.  Under a Python dispatch mode the sum is
 * out of place. */
static Val
masked_scores(Builder *b, Val q, Val k, gint64 length, gint64 head_dim)
{
  Val rows = bmm_operand(b, q, length, head_dim);
  Val columns = bmm_operand(b, k, head_dim, length);
  OpAttributes at = {.what = "attention scores"};
  Val scores = builder_op(b, OP_BMM, &at, 2, (Val[]){rows, columns});
  return scores;
}

/* Operands and results of the composed attention, with C++'s locals: what is held until it returns.
 */
static Val
math(Builder *b, Val q, Val k, Val v, const AttentionCall *call)
{
  ValueInfo shape = builder_info(b, q);
  gint64 batch = shape.shape[0], length = shape.shape[2], head_dim = shape.shape[3];
  DType dtype = (DType) shape.dtype;
  gboolean narrow = dtype != DTYPE_FP32, grouped = call->kv_heads != call->heads;
  builder_call(b, 3, (Val[]){q, k, v});
  q = let(b, "q", to(b, (Val){q.slot, FALSE}, DTYPE_FP32));
  k = let(b, "k", to(b, (Val){k.slot, FALSE}, DTYPE_FP32));
  v = let(b, "v", to(b, (Val){v.slot, FALSE}, DTYPE_FP32));
  Val scaled = let(b, "q * scale", unary(b, OP_MUL_SCALAR, q));
  let(b, "mask", causal_mask(b, length, DTYPE_FP32));
  Val keys = let(b, "keys", grouped ? repeat_heads(b, k, call->heads, TRUE) : k);
  Val values = let(b, "values", grouped ? repeat_heads(b, v, call->heads, TRUE) : v);
  Val scaled_keys = let(b, "k * scale", unary(b, OP_MUL_SCALAR, keys));
  Val scores = let(b, "scores", masked_scores(b, scaled, scaled_keys, length, head_dim));
  unlet(b, "k * scale");
  if (builder_shape(b)->dispatch_mode)
    scores = let(b, "scores", unary(b, OP_ADD_SCALAR, scores));
  Val weights = let(b, "scores", unary(b, OP_SAFE_SOFTMAX, scores));
  if (narrow) /* the second result: probabilities in the operands' dtype */
    let(b, "weights",
        create(b, "attention weights", value_like_dtype(builder_info(b, weights), dtype)));
  Val rows = bmm_operand(b, values, length, head_dim);
  Val out = builder_op(b, OP_BMM, NULL, 2, (Val[]){weights, rows});
  OpAttributes at = {.result = value_shape(DTYPE_FP32, 4, batch, call->heads, length, head_dim),
                     .batch = batch};
  out = to(b, builder_op(b, OP_UNSAFE_VIEW, &at, 1, &out), dtype);
  static const char *const order[] = {"keys", "q * scale", "mask", "values", "scores",
                                      "v",    "k",         "q",    "weights"};
  for (guint i = 0; i < G_N_ELEMENTS(order); i++)
    unlet(b, order[i]);
  return builder_leave(b, out);
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
