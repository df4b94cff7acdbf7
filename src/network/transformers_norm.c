/* transformers_norm.c - norms as transformers' models write them: which copies in fp32 they make,
 * and which names keep them. */
#include "network/transformers_norm.h"

#include "network/op_recipe.h"

/* ---- modules ---- */

static const char *const types[] = {
    [NORM_RMS] = "RMSNorm",
    [NORM_RMS_FUSED] = "RMSNorm",
    [NORM_RMS_WIDE] = "RMSNorm",
    [NORM_RMS_ONE_PLUS] = "RMSNorm",
    [NORM_LAYER] = "LayerNorm",
    [NORM_LAYER_PLAIN] = "LayerNorm",
    [NORM_LAYER_COMPOSED] = "LayerNorm",
    [NORM_EACH_HEAD] = "LayerNormPerHead",
};

Norm
norm_define(Builder *b, const char *name, NormKind kind, gint64 width)
{
  Norm norm = {.kind = kind, .module = builder_module(b, name, types[kind]), .weight = -1};
  if (kind != NORM_LAYER_PLAIN)
    norm.weight = builder_parameter(b, "weight", 1, width);
  if (kind == NORM_LAYER)
    builder_parameter(b, "bias", 1, width);
  builder_module_end(b);
  return norm;
}

Norm
norm_define_heads(Builder *b, const char *name, NormKind kind, gint64 heads, gint64 width)
{
  Norm norm = {.kind = kind, .module = builder_module(b, name, types[kind])};
  norm.weight = builder_parameter(b, "weight", 2, heads, width);
  builder_module_end(b);
  return norm;
}

/* Its modules: a list, and the heads'. */
enum { LIST_MODULE = 1, FIRST_HEAD_MODULE = 2 };

Norm
norm_define_each_head(Builder *b, const char *name, gint64 heads, gint64 width)
{
  Norm norm = {.kind = NORM_EACH_HEAD, .module = builder_module(b, name, "LayerNormPerHead")};
  int list = builder_module(b, "norms", "ModuleList");
  g_assert(list == norm.module + LIST_MODULE);
  norm.heads = heads;
  for (gint64 i = 0; i < heads; i++) {
    g_autofree char *number = g_strdup_printf("%d", (int) i);
    builder_module(b, number, "LayerNorm");
    int weight = builder_parameter(b, "weight", 1, width);
    norm.weight = i == 0 ? weight : norm.weight;
    builder_module_end(b);
  }
  builder_module_end(b);
  builder_module_end(b);
  return norm;
}

/* ---- forward() ---- */

/* rsqrt(variance + eps) */
static Val
inverse_root(Builder *b, Val variance)
{
  return unary(b, OP_RSQRT, unary_with(b, OP_ADD_SCALAR, variance, "value", NORM_EPSILON));
}

/* x = x.to(float32); variance = mean_square(x); x = x * inverse_root(variance); then the gain
 * before or after the cast back. */
static Val
rms(Builder *b, Val x, const Norm *norm)
{
  DType dtype = (DType) builder_info(b, x).dtype;
  x = let(b, "hidden_states", to(b, x, DTYPE_FP32));
  Val variance = let(b, "variance", mean_square(b, x));
  Val scale = inverse_root(b, variance);
  x = let(b, "hidden_states", binary(b, OP_MUL, x, scale));
  if (norm->kind == NORM_RMS_WIDE)
    return to(b, binary(b, OP_MUL, builder_weight(b, norm->weight), x), dtype);
  Val normed = to(b, x, dtype);
  return binary(b, OP_MUL, builder_weight(b, norm->weight), normed);
}

/* output = _norm(x.float()); output = output * (1.0 + weight.float()); return output.type_as(x) */
static Val
rms_one_plus(Builder *b, Val x, const Norm *norm)
{
  DType dtype = (DType) builder_info(b, x).dtype;
  Val wide = to(b, x, DTYPE_FP32);
  builder_enter(b, 1, (const char *const[]){"x"}, &wide);
  wide = (Val){wide.slot, FALSE};
  Val scale = inverse_root(b, mean_square(b, wide));
  Val output = let(b, "output", builder_leave(b, binary(b, OP_MUL, wide, scale)));
  Val wide_gain = to(b, builder_weight(b, norm->weight), DTYPE_FP32);
  Val gain = unary_with(b, OP_ADD_SCALAR, wide_gain, "value", 1);
  output = let(b, "output", binary(b, OP_MUL, output, gain));
  return to(b, output, dtype);
}

/* x = x.to(float32); mean; variance of x - mean; x = (x - mean) * inverse_root(variance); x =
 * weight.to(float32) * x; return x.to(dtype) */
static Val
layer_composed(Builder *b, Val x, const Norm *norm)
{
  DType dtype = (DType) builder_info(b, x).dtype;
  x = let(b, "hidden_states", to(b, x, DTYPE_FP32));
  Val centre = let(b, "mean", reduce_last(b, OP_MEAN, x));
  Val variance = let(b, "variance", mean_square(b, binary(b, OP_SUB, x, centre)));
  Val centred = binary(b, OP_SUB, x, centre);
  Val scale = inverse_root(b, variance);
  x = let(b, "hidden_states", binary(b, OP_MUL, centred, scale));
  Val gain = to(b, builder_weight(b, norm->weight), DTYPE_FP32);
  x = let(b, "hidden_states", binary(b, OP_MUL, gain, x));
  return to(b, x, dtype);
}

/* F.layer_norm(x.to(float32)).to(dtype) */
static Val
layer_plain(Builder *b, Val x)
{
  DType dtype = (DType) builder_info(b, x).dtype;
  return to(b, unary(b, OP_LAYER_NORM, to(b, x, DTYPE_FP32)), dtype);
}

/* torch.cat([norm(h) for norm, h in zip(norms, torch.split(x, 1, dim=1))], dim=1) */
static Val
each_head(Builder *b, Val x, const Norm *norm)
{
  enum { HEADS = 1 };
  gint64 n = norm->heads;
  g_autofree Val *part = g_new(Val, n);
  split_equally(b, x, HEADS, n, part);
  for (gint64 i = 0; i < n; i++) {
    Val head = call_module(b, norm->module + FIRST_HEAD_MODULE + (int) i, part[i]);
    Val operands[] = {head, builder_weight(b, norm->weight + (int) i)};
    part[i] = builder_leave(b, builder_op(b, OP_LAYER_NORM, NULL, 2, operands));
  }
  return join_parts(b, HEADS, n, part);
}

Val
norm_apply(Builder *b, Val x, const Norm *norm)
{
  x = call_module(b, norm->module, x);
  switch (norm->kind) {
  case NORM_RMS:
  case NORM_RMS_WIDE:
    return builder_leave(b, rms(b, x, norm));
  case NORM_RMS_FUSED:
    return builder_leave(
        b, builder_op(b, OP_RMS_NORM, NULL, 2, (Val[]){x, builder_weight(b, norm->weight)}));
  case NORM_RMS_ONE_PLUS:
    return builder_leave(b, rms_one_plus(b, x, norm));
  case NORM_LAYER_PLAIN:
    return builder_leave(b, layer_plain(b, x));
  case NORM_LAYER_COMPOSED:
    return builder_leave(b, layer_composed(b, x, norm));
  case NORM_EACH_HEAD:
    return builder_leave(b, each_head(b, x, norm));
  default: {
    Val operands[] = {x, builder_weight(b, norm->weight), builder_weight(b, norm->weight + 1)};
    return builder_leave(b, builder_op(b, OP_LAYER_NORM, NULL, 3, operands));
  }
  }
}
