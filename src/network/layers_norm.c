/* layers_norm.c - layer norms and RMSNorm, in one kernel or op by op. */
#include "network/layers.h"

int
define_norm(Builder *b, const char *name, const char *type, gint64 width, gboolean bias)
{
  builder_module(b, name, type);
  int gain = builder_parameter(b, "weight", 1, width);
  if (bias)
    builder_parameter(b, "bias", 1, width);
  builder_module_end(b);
  return gain;
}

Val
layer_norm(Builder *b, Val x, int gain)
{
  x = call_module(b, parameter_module(b, gain), x);
  Val c = autocast_wide(b, builder_weight(b, gain + 1));
  Val w = autocast_wide(b, builder_weight(b, gain));
  x = autocast_wide(b, x);
  return builder_leave(b, builder_op(b, OP_LAYER_NORM, NULL, 3, (Val[]){x, w, c}));
}

Val
layer_norm_unbiased(Builder *b, Val x, int gain)
{
  x = call_module(b, parameter_module(b, gain), x);
  Val w = autocast_wide(b, builder_weight(b, gain));
  x = autocast_wide(b, x);
  return builder_leave(b, builder_op(b, OP_LAYER_NORM, NULL, 2, (Val[]){x, w}));
}

Val
mean_square(Builder *b, Val x)
{
  return reduce_last(b, OP_MEAN, unary(b, OP_POW, x));
}

/* In the module's frame: x = x.float(); x = x * rsqrt(mean_square(x) + eps); return w *
 * x.to(dtype). */
static Val
composite_rms_norm(Builder *b, Val x, int weight)
{
  DType dtype = (DType) builder_info(b, x).dtype;
  x = let(b, "x", to(b, x, DTYPE_FP32));
  Val scale =
      unary(b, OP_RSQRT, unary_with(b, OP_ADD_SCALAR, mean_square(b, x), "value", NORM_EPSILON));
  x = let(b, "x", binary(b, OP_MUL, x, scale));
  Val normed = to(b, x, dtype);
  return binary(b, OP_MUL, builder_weight(b, weight), normed);
}

/* rms_norm_composite (aten/src/ATen/native/layer_norm.cpp): what F.rms_norm does where input and
 * weight differ in dtype. */
static Val
mixed_rms_norm(Builder *b, Val x, Val weight)
{
  DType dtype = (DType) builder_info(b, x).dtype;
  Val wide = to(b, x, DTYPE_FP32), input = {wide.slot, FALSE};
  Val square = unary(b, OP_POW, input);
  Val mean = reduce_last(b, OP_MEAN, (Val){square.slot, FALSE});
  Val scale = unary(b, OP_RSQRT, unary_with(b, OP_ADD_SCALAR_, mean, "value", NORM_EPSILON));
  builder_discard(b, square);
  Val y = binary(b, OP_MUL, input, (Val){scale.slot, FALSE});
  y = to(b, binary(b, OP_MUL, y, weight), dtype);
  builder_discard(b, scale);
  builder_discard(b, wide);
  return y;
}

static Val
fused_rms_norm(Builder *b, Val x, Val weight)
{
  if (builder_info(b, x).dtype != builder_info(b, weight).dtype)
    return mixed_rms_norm(b, x, weight);
  return builder_op(b, OP_RMS_NORM, NULL, 2, (Val[]){x, weight});
}

Val
rms_norm(Builder *b, Val x, int weight, NormCode code)
{
  x = call_module(b, parameter_module(b, weight), x);
  Val y = code == NORM_FUSED ? fused_rms_norm(b, x, builder_weight(b, weight))
                             : composite_rms_norm(b, x, weight);
  return builder_leave(b, y);
}
