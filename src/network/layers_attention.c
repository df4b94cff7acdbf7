/* layers_attention.c - scaled_dot_product_attention: which kernel runs, and the composed (math,
 * eager) forms. */
#include <math.h>

#include "base/units.h"
#include "network/layers.h"
#include "network/op_recipe.h"
#include "spec/fused_attention.h"

/* Can the memory-efficient kernel run?  As many key heads as query heads; head dims of whole 16
 * bytes (check_head_dim_size_mem_efficient). */
static gboolean
efficient_accepts(const AttentionCall *call, const ValueInfo *q)
{
  return call->kv_heads == call->heads && q->shape[3] % (16 / dtype_size((DType) q->dtype)) == 0;
}

/* Can flash run?  16-bit operands, no explicit mask, head dims up to 256
 * (check_head_dim_size_flash), sm_80 or later (check_sm_version). */
static gboolean
flash_accepts(const AttentionCall *call, const ValueInfo *q, int compute_capability)
{
  return dtype_size((DType) q->dtype) == 2 && call->mask.slot == NO_VAL.slot &&
         q->shape[3] <= 256 && compute_capability >= 80;
}

/* The first of flash, memory-efficient and math that is enabled and can run
 * (aten/src/ATen/native/transformers/cuda/sdp_utils.cpp, select_sdp_backend). */
AttentionCode
attention_choice(const AttentionCall *call, const ValueInfo *q, int compute_capability)
{
  if (call->code == ATTENTION_MATH || call->code == ATTENTION_EAGER)
    return call->code;
  if (call->code != ATTENTION_EFFICIENT && flash_accepts(call, q, compute_capability))
    return ATTENTION_FLASH;
  return efficient_accepts(call, q) ? ATTENTION_EFFICIENT : ATTENTION_MATH;
}

/* What a call is about besides: positions see those before them, or all, and scores get a bias. */
typedef struct {
  AttentionCall call;
  gboolean causal, between;
  Val bias;
} Attention;

/* Flash wants values as wide as queries. */
static AttentionCode
choose(Builder *b, Val q, Val v, const AttentionCall *call)
{
  ValueInfo queries = builder_info(b, q), values = builder_info(b, v);
  AttentionCode code =
      attention_choice(call, &queries, builder_shape(b)->device.compute_capability);
  if (code != ATTENTION_FLASH || values.shape[3] == queries.shape[3])
    return code;
  return efficient_accepts(call, &queries) ? ATTENTION_EFFICIENT : ATTENTION_MATH;
}

static OpAttributes
attention_attributes(Builder *b, Val q, Val k, const Attention *attention, FusedAttention kernel)
{
  const AttentionCall *call = &attention->call;
  ValueInfo info = builder_info(b, q);
  return (OpAttributes){
      .batch = info.shape[0],
      .heads = call->heads,
      .kv_heads = call->kv_heads,
      .length = info.shape[2],
      .keys = builder_info(b, k).shape[2],
      .whole = !attention->causal,
      .head_dim = info.shape[3],
      .variant = (guint16) kernel,
      .flag = call->dropout > 0,
      .dropout = call->dropout,
      .window = call->window,
  };
}

/* ---- fused kernels ---- */

/* F.pad of the head dimension. */
static Val
pad_heads(Builder *b, Val x, gint64 head_dim)
{
  OpAttributes at = {.result = builder_info(b, x), .what = "padded heads"};
  at.result.shape[3] = head_dim;
  value_set_contiguous(&at.result);
  return builder_op(b, OP_PAD, &at, 1, &x);
}

/* Flash attention wants head dims that are multiples of 8: operands are padded, the output is a
 * slice. */
static Val
flash(Builder *b, Val q, Val k, Val v, const Attention *attention)
{
  const NetworkShape *shape = builder_shape(b);
  FusedAttention kernel =
      fused_attention_of(attention->call.code, shape->torch, shape->device.compute_capability);
  OpAttributes at = attention_attributes(b, q, k, attention, kernel);
  gint64 head_dim = at.head_dim;
  if (head_dim % 8 == 0)
    return builder_op(b, OP_FLASH_ATTENTION, &at, 3, (Val[]){q, k, v});
  at.head_dim = round_up(head_dim, 8);
  at.key = "scale";
  at.number = 1 / sqrt((double) head_dim);
  Val qp = pad_heads(b, (Val){q.slot, FALSE}, at.head_dim);
  Val kp = pad_heads(b, (Val){k.slot, FALSE}, at.head_dim);
  Val vp = pad_heads(b, (Val){v.slot, FALSE}, at.head_dim);
  Val padded[] = {{qp.slot, FALSE}, {kp.slot, FALSE}, {vp.slot, FALSE}};
  Val out = builder_op(b, OP_FLASH_ATTENTION, &at, 3, padded);
  builder_discard(b, vp);
  builder_discard(b, kp);
  builder_discard(b, qp);
  out = slice_last(b, out, 0, head_dim);
  builder_discard(b, q);
  builder_discard(b, k);
  builder_discard(b, v);
  return out;
}

/* A boolean mask becomes a bias of zeros and -inf in the operands' dtype, one per sequence
 * (convert_boolean_attn_mask); one that is a bias stays. */
static Val
mask_bias(Builder *b, Val q, Val mask)
{
  ValueInfo info = builder_info(b, q);
  DType dtype = (DType) info.dtype;
  gint64 batch = info.shape[0], length = info.shape[2];
  if (builder_info(b, mask).dtype != DTYPE_BOOL)
    return mask;
  Val zero = create(b, "zero", value_shape(dtype, 1, (gint64) 1));
  Val infinity = create(b, "-inf", value_shape(dtype, 1, (gint64) 1));
  static const Creation hidden = {"infinite_unless", NULL, 0};
  Val bias = create_as(b, "attention bias",
                       value_shape(dtype, 4, batch, (gint64) 1, length, length), &hidden, mask);
  builder_discard(b, infinity);
  builder_discard(b, zero);
  return bias;
}

/* Its rows padded to a multiple of 8 elements (pad_bias). */
static Val
pad_bias(Builder *b, Val bias)
{
  ValueInfo wide = builder_info(b, bias);
  if (wide.shape[3] % 8 == 0)
    return bias;
  wide.shape[3] = round_up(wide.shape[3], 8);
  value_set_contiguous(&wide);
  static const Creation pad = {"constant_pad_nd", NULL, 0};
  Val padded = create_as(b, "padded attention bias", wide, &pad, bias);
  builder_discard(b, bias);
  return padded;
}

static gboolean
is_there(Val v)
{
  return v.slot != NO_VAL.slot;
}

/* The kernel wants one for each sequence, with rows of whole 16 bytes (preprocess_mask,
 * attention.cpp). */
static Val
expand_bias(Builder *b, Val bias, gint64 batch)
{
  enum { ROW_MULTIPLE = 8 };
  if (!is_there(bias))
    return bias;
  ValueInfo one = builder_info(b, bias);
  if (one.shape[3] % ROW_MULTIPLE != 0)
    builder_fail(b,
                 "sdpa attention with position biases is known for sequences (the plan's "
                 "batch.sequence_length, batch.target_length) that are multiples of %d, not for "
                 "%" G_GINT64_FORMAT,
                 ROW_MULTIPLE, one.shape[3]);
  if (one.shape[0] == batch)
    return bias;
  one.shape[0] = batch;
  return expand(b, bias, one);
}

static Val
efficient(Builder *b, Val q, Val k, Val v, const Attention *attention)
{
  OpAttributes at = attention_attributes(b, q, k, attention, FUSED_EFFICIENT);
  Val mask = attention->call.mask, bias = expand_bias(b, attention->bias, at.batch);
  if (is_there(mask))
    bias = pad_bias(b, mask_bias(b, q, mask));
  Val operands[] = {q, k, v, bias};
  return builder_op(b, OP_EFFICIENT_ATTENTION, &at, is_there(bias) ? 4 : 3, operands);
}

/* ---- math: _scaled_dot_product_attention_math (aten/src/ATen/native/transformers/attention.cpp)
 * ---- */

/* An operand of bmm, [batch * heads, rows, columns]. */
static Val
bmm_operand(Builder *b, Val x)
{
  ValueInfo info = builder_info(b, x);
  return view(b, x, 3, info.shape[0] * info.shape[1], info.shape[2], info.shape[3]);
}

/* One head for as many as are wanted. */
static Val
expand_to(Builder *b, Val x, gint64 heads)
{
  ValueInfo wide = builder_info(b, x);
  if (wide.shape[1] == heads)
    return x;
  wide.shape[1] = heads;
  return expand(b, x, wide);
}

Val
batched_matmul(Builder *b, Val x, Val y, const char *what)
{
  ValueInfo shape = builder_info(b, x);
  shape.shape[3] = builder_info(b, y).shape[3];
  value_set_contiguous(&shape);
  OpAttributes at = {.what = what};
  Val rows = bmm_operand(b, x);
  Val columns = bmm_operand(b, expand_to(b, y, shape.shape[1]));
  Val out = builder_op(b, OP_BMM, &at, 2, (Val[]){{rows.slot, FALSE}, {columns.slot, FALSE}});
  builder_discard(b, columns); /* locals of at::matmul */
  builder_discard(b, rows);
  return shaped(b, OP_UNSAFE_VIEW, out, shape);
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

/* Times the root of the scale: both factors have it. */
static Val
scaled(Builder *b, Val x, gint64 head_dim)
{
  return unary_with(b, OP_MUL_SCALAR, x, "value", pow((double) head_dim, -0.25));
}

/* What the mask does is in what these mean; window: 0 for none. */
static Val
meaning(Builder *b, OpId op, Val x, const char *formula, gint64 window)
{
  OpAttributes at = {.formula = formula};
  if (window > 0) {
    at.key = "window";
    at.number = (double) window;
  }
  return builder_op(b, op, &at, 1, &x);
}

/* The same with a bias (borrowed). */
static Val
with_bias(Builder *b, OpId op, const char *formula, Val x, Val bias)
{
  const OpAttributes at = {.formula = formula};
  return builder_op(b, op, &at, 2, (Val[]){x, {bias.slot, FALSE}});
}

/* softmax(q k^T + mask) with the scale on both factors.  Under a Python dispatch mode the mask is
 * added out of place.  bias: a mask of its own, or NO_VAL. */
static Val
math_weights(Builder *b, Val query, Val key, const Attention *how, Val bias)
{
  gboolean causal = how->causal && !is_there(how->call.mask);
  gint64 window = how->call.window;
  Val scaled_key = scaled(b, transpose_last(b, key), builder_info(b, key).shape[3]);
  Val scores = batched_matmul(b, query, (Val){scaled_key.slot, FALSE}, "attention scores");
  builder_discard(b, scaled_key);
  Val attn = let(b, "attn", scores);
  if (builder_is_dispatched(b))
    attn = let(b, "attn",
               is_there(bias) ? with_bias(b, OP_ADD_SCALAR, "add", attn, bias)
                              : meaning(b, OP_ADD_SCALAR, attn,
                                        causal ? "add_causal_mask" : "add_mask", window));
  if (is_there(bias))
    return let(b, "attn", with_bias(b, OP_SAFE_SOFTMAX, "masked_softmax", attn, bias));
  return let(b, "attn",
             meaning(b, OP_SAFE_SOFTMAX, attn, causal ? "causal_softmax" : NULL, window));
}

/* The composed attention, in fp32.  Its results are the output and the probabilities in the
 * operands' dtype, which the caller drops; C++ evaluates the second first. */
static Val
math(Builder *b, Val q, Val k, Val v, const Attention *attention)
{
  const AttentionCall *call = &attention->call;
  if (attention->between && (is_there(attention->bias) || call->dropout > 0))
    builder_fail(b,
                 "key 'implementation': composed attention, which heads of %" G_GINT64_FORMAT
                 " elements may fall back to, is not known with a bias or dropout",
                 builder_info(b, q).shape[3]);
  ValueInfo info = builder_info(b, q);
  DType dtype = (DType) info.dtype;
  gboolean narrow = dtype != DTYPE_FP32, masked = is_there(call->mask);
  gboolean causal = attention->causal && !masked;
  gboolean grouped =
      call->kv_heads != call->heads && !masked; /* else matmul repeats the one head */
  Val bias = masked ? mask_bias(b, q, call->mask) : NO_VAL;
  builder_call(b, 3, (Val[]){q, k, v});
  q = let(b, "query_acc", to(b, (Val){q.slot, FALSE}, DTYPE_FP32));
  k = let(b, "key_acc", to(b, (Val){k.slot, FALSE}, DTYPE_FP32));
  v = let(b, "value_acc", to(b, (Val){v.slot, FALSE}, DTYPE_FP32));
  Val query = let(b, "query", scaled(b, q, info.shape[3]));
  if (causal)
    let(b, "attn_mask", causal_mask(b, info.shape[2], DTYPE_FP32));
  Val key = let(b, "key_expanded", grouped ? interleave_heads(b, k, call->heads) : k);
  Val value = let(b, "value_expanded", grouped ? interleave_heads(b, v, call->heads) : v);
  Val attn = math_weights(b, query, key, attention, bias);
  if (call->dropout > 0)
    attn = let(b, "attn", dropout(b, call->dropout, (Val){attn.slot, FALSE}));
  Val weights = narrow
                    ? create(b, "attention weights", value_like_dtype(builder_info(b, attn), dtype))
                    : builder_share(b, attn);
  Val out = to(b, batched_matmul(b, attn, value, NULL), dtype);
  static const char *const order[] = {"attn",      "key_expanded", "value_expanded", "query",
                                      "attn_mask", "value_acc",    "key_acc",        "query_acc"};
  for (guint i = 0; i < G_N_ELEMENTS(order); i++)
    if (causal || strcmp(order[i], "attn_mask") != 0)
      unlet(b, order[i]);
  builder_discard(b, weights);
  out = builder_leave(b, out);
  if (masked)
    builder_discard(b, bias);
  return out;
}

/* Autocast's list of ops in a 16-bit dtype has scaled_dot_product_attention, mm and bmm: its
 * wrapper casts the operands, the last one first (aten/src/ATen/autocast_mode.h,
 * AT_FORALL_LOWER_PRECISION_FP).
 * Positions that were computed in fp32 make queries and keys fp32. */
Val
autocast_operand(Builder *b, Val x)
{
  const NetworkPrecision *precision = &builder_shape(b)->precision;
  return precision->autocast ? to(b, x, precision->matmul) : x;
}

static Val
run(Builder *b, Val q, Val k, Val v, const Attention *asked)
{
  Attention cast = *asked, *how = &cast;
  if (is_there(how->bias))
    how->bias = autocast_operand(b, (Val){how->bias.slot, FALSE});
  v = autocast_operand(b, v);
  k = autocast_operand(b, k);
  q = autocast_operand(b, q);
  AttentionCall call = how->call;
  if (is_there(how->bias))
    call.mask = how->bias;
  switch (choose(b, q, v, &call)) {
  case ATTENTION_FLASH:
    return flash(b, q, k, v, how);
  case ATTENTION_EFFICIENT:
    return efficient(b, q, k, v, how);
  default:
    return math(b, q, k, v, how);
  }
}

Val
attention(Builder *b, Val q, Val k, Val v, const AttentionCall *call)
{
  return run(b, q, k, v, &(Attention){*call, TRUE, FALSE, NO_VAL});
}

Val
attention_between(Builder *b, Val q, Val k, Val v, const AttentionBetween *call)
{
  const Attention how = {
      .call = {call->code, call->heads, call->heads, call->dropout, NO_VAL, 0},
      .causal = call->causal,
      .between = TRUE,
      .bias = call->bias,
  };
  return run(b, q, k, v, &how);
}
