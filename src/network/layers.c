/* layers.c - linear, norms, RoPE and losses as eager PyTorch runs them. */
#include "network/layers.h"

#include <stdarg.h>

#include "network/layers_lora.h"
#include "network/op_recipe.h"

static ValueInfo
shape_of(DType dtype, int dims, va_list sizes)
{
  ValueInfo info = {.dtype = (guint8) dtype, .dims = (guint8) dims};
  for (int i = 0; i < dims; i++)
    info.shape[i] = va_arg(sizes, gint64);
  value_set_contiguous(&info);
  return info;
}

ValueInfo
value_shape(DType dtype, int dims, ...)
{
  va_list sizes;
  va_start(sizes, dims);
  ValueInfo info = shape_of(dtype, dims, sizes);
  va_end(sizes);
  return info;
}

ValueInfo
value_like_dtype(ValueInfo info, DType dtype)
{
  info.dtype = (guint8) dtype;
  return info;
}

Val
shaped(Builder *b, OpId op, Val x, ValueInfo result)
{
  OpAttributes at = {.result = result};
  return builder_op(b, op, &at, 1, &x);
}

Val
reshape(Builder *b, Val x, ValueInfo shape)
{
  ValueInfo info = builder_info(b, x);
  shape.dtype = info.dtype;
  if (value_view(&info, &shape))
    return shaped(b, OP_VIEW, x, shape);
  value_set_contiguous(&shape);
  return shaped(b, OP_UNSAFE_VIEW, contiguous(b, x), shape);
}

Val
view(Builder *b, Val x, int dims, ...)
{
  va_list sizes;
  va_start(sizes, dims);
  ValueInfo shape = shape_of((DType) builder_info(b, x).dtype, dims, sizes);
  va_end(sizes);
  return reshape(b, x, shape);
}

static Val
swap_dimensions(Builder *b, Val x, int first)
{
  OpAttributes at = {.result = builder_info(b, x), .size = {first}};
  if (first < 0) /* after a fault values have no dimensions */
    return x;
  value_swap(&at.result, first, first + 1);
  return builder_op(b, OP_TRANSPOSE, &at, 1, &x);
}

Val
transpose(Builder *b, Val x)
{
  return swap_dimensions(b, x, builder_info(b, x).dims == 2 ? 0 : 1);
}

Val
transpose_last(Builder *b, Val x)
{
  return swap_dimensions(b, x, builder_info(b, x).dims - 2);
}

Val
transpose_first(Builder *b, Val x)
{
  return swap_dimensions(b, x, 0);
}

Val
to(Builder *b, Val x, DType dtype)
{
  ValueInfo info = builder_info(b, x), result = info;
  if (info.dtype == dtype)
    return x;
  result.dtype = (guint8) dtype;
  value_order_like(&result, 1, &info);
  return shaped(b, OP_TO_COPY, x, result);
}

static Val
clone(Builder *b, Val x)
{
  ValueInfo info = builder_info(b, x);
  value_set_contiguous(&info);
  return shaped(b, OP_CLONE, x, info);
}

void
receive_outputs(Builder *b, int n, Val *outputs)
{
  g_autofree Val *originals = g_new(Val, (gsize) n);
  if (!builder_shape(b)->clones_outputs)
    return;
  for (int i = 0; i < n; i++) { /* all are there before the first original goes */
    originals[i] = outputs[i];
    outputs[i] = clone(b, (Val){outputs[i].slot, FALSE});
  }
  for (int i = 0; i < n; i++) {
    gboolean has_node =
        !builder_shape(b)->evaluation && builder_info(b, originals[i]).requires_grad;
    Val gone = has_node ? originals[i] : outputs[i];
    outputs[i] = has_node ? outputs[i] : originals[i];
    builder_discard(b, gone);
  }
}

Val
contiguous(Builder *b, Val x)
{
  ValueInfo info = builder_info(b, x);
  return value_is_contiguous(&info) ? x : clone(b, x);
}

Val
binary(Builder *b, OpId op, Val x, Val y)
{
  return builder_op(b, op, NULL, 2, (Val[]){x, y});
}

Val
unary(Builder *b, OpId op, Val x)
{
  return builder_op(b, op, NULL, 1, &x);
}

Val
unary_with(Builder *b, OpId op, Val x, const char *key, double number)
{
  OpAttributes at = {.key = key, .number = number};
  return builder_op(b, op, &at, 1, &x);
}

Val
dropout(Builder *b, double p, Val x)
{
  return p > 0 ? unary_with(b, OP_DROPOUT, x, "p", p) : x;
}

Val
create(Builder *b, const char *what, ValueInfo info)
{
  OpAttributes at = {.result = info, .what = what};
  return builder_op(b, OP_CREATE, &at, 0, NULL);
}

Val
create_as(Builder *b, const char *what, ValueInfo info, const Creation *how, Val from)
{
  OpAttributes at = {.result = info,
                     .what = what,
                     .formula = how->formula,
                     .key = how->key,
                     .number = how->number};
  from.temporary = FALSE;
  return builder_op(b, OP_CREATE, &at, from.slot != NO_VAL.slot, &from);
}

Val
buffer_value(Builder *b, ValueInfo info)
{
  OpAttributes at = {.result = info};
  return builder_op(b, OP_BUFFER, &at, 0, NULL);
}

/* ---- module calls ---- */

Val
call_module(Builder *b, int module, Val x)
{
  builder_module_call(b, module, 1, &x);
  return x;
}

Val
call_module_by_keyword(Builder *b, int module, Val x)
{
  builder_module_call_by_keyword(b, module, &x);
  return x;
}

int
parameter_module(Builder *b, int parameter)
{
  return network_parameter(builder_network(b), parameter)->module;
}

/* ---- matmuls ---- */

/* Under autocast: the operand in the matmul's dtype.  Casts of parameters that require a gradient
 * are kept until the region ends, so one copy serves all uses (at::autocast::cached_cast). */
static Val
autocast(Builder *b, Val x)
{
  const NetworkPrecision *precision = &builder_shape(b)->precision;
  ValueInfo info = builder_info(b, x);
  if (!precision->autocast || info.dtype == precision->matmul)
    return x;
  if (x.slot >= 0 || !info.requires_grad)
    return to(b, x, precision->matmul);
  info.dtype = (guint8) precision->matmul;
  return shaped(b, OP_TO_CACHED, x, info);
}

Val
autocast_wide(Builder *b, Val x)
{
  return builder_shape(b)->precision.autocast ? to(b, x, DTYPE_FP32) : x;
}

/* x as a matrix [rows, width]. */
static Val
flatten_rows(Builder *b, Val x)
{
  ValueInfo info = builder_info(b, x);
  gint64 width = info.shape[info.dims - 1];
  return view(b, x, 2, value_elements(&info) / width, width);
}

/* A matrix's rows spread again over x's leading dimensions. */
static Val
unflatten_rows(Builder *b, Val y, ValueInfo x, OpId op)
{
  ValueInfo result = builder_info(b, y);
  gint64 width = result.shape[1];
  x.shape[x.dims - 1] = width;
  x.dtype = result.dtype;
  value_set_contiguous(&x);
  return shaped(b, op, y, x);
}

/* t, view, mm, _unsafe_view; of a matrix t, mm. */
static Val
product_by(Builder *b, OpId mm, Val x, Val weight)
{
  Val w = autocast(b, weight);
  x = autocast(b, x);
  ValueInfo shape = builder_info(b, x);
  w = transpose(b, w);
  if (shape.dims == 2)
    return builder_op(b, mm, NULL, 2, (Val[]){x, w});
  x = flatten_rows(b, x);
  Val y = builder_op(b, mm, NULL, 2, (Val[]){x, w});
  return unflatten_rows(b, y, shape, OP_UNSAFE_VIEW);
}

Val
linear_by(Builder *b, Val x, Val weight, Val bias)
{
  gboolean has_bias = bias.slot != NO_VAL.slot;
  if (builder_shape(b)->zero3_linear)
    return builder_op(b, OP_ZERO3_LINEAR, NULL, has_bias ? 3 : 2, (Val[]){x, weight, bias});
  if (!has_bias)
    return product_by(b, OP_MM, x, weight);
  Val c = autocast(b, bias); /* view, t, addmm, view */
  Val w = autocast(b, weight);
  x = autocast(b, x);
  ValueInfo shape = builder_info(b, x);
  x = flatten_rows(b, x);
  w = transpose(b, w);
  Val y = builder_op(b, OP_ADDMM, NULL, 3, (Val[]){c, x, w});
  return unflatten_rows(b, y, shape, OP_VIEW);
}

static Val
linear_ops(Builder *b, Val x, int weight, int bias)
{
  return linear_by(b, x, builder_weight(b, weight), bias >= 0 ? builder_weight(b, bias) : NO_VAL);
}

static Val
call_linear(Builder *b, Val x, Linear parameters)
{
  x = call_module(
      b, parameters.module > 0 ? parameters.module : parameter_module(b, parameters.weight), x);
  return builder_leave(b, linear_ops(b, x, parameters.weight, parameters.bias));
}

Val
linear(Builder *b, Val x, Linear parameters)
{
  return parameters.adapter > 0 ? lora_linear(b, x, parameters, call_linear)
                                : call_linear(b, x, parameters);
}

Val
linear_uncounted(Builder *b, Val x, Linear parameters)
{
  Val weight = builder_weight(b, parameters.weight);
  x = call_module(b, parameter_module(b, parameters.weight), x);
  return builder_leave(b, builder_shape(b)->zero3_linear
                              ? linear_by(b, x, weight, NO_VAL)
                              : product_by(b, OP_MM_UNCOUNTED, x, weight));
}

static Val
call_linear_apart(Builder *b, Val x, Linear parameters)
{
  const NetworkPrecision *precision = &builder_shape(b)->precision;
  x = call_module(b, parameter_module(b, parameters.weight), x);
  Val w = transpose(b, builder_weight(b, parameters.weight));
  if (precision->autocast)
    w = to(b, w, precision->matmul);
  x = autocast(b, x);
  ValueInfo shape = builder_info(b, x);
  x = flatten_rows(b, x);
  Val y = builder_op(b, OP_MM, NULL, 2, (Val[]){x, w});
  y = let(b, "hidden_states", unflatten_rows(b, y, shape, OP_UNSAFE_VIEW));
  if (parameters.bias >= 0)
    y = binary(b, OP_ADD, y, builder_weight(b, parameters.bias));
  return builder_leave(b, y);
}

Val
linear_apart(Builder *b, Val x, Linear parameters)
{
  return parameters.adapter > 0 ? lora_linear(b, x, parameters, call_linear_apart)
                                : call_linear_apart(b, x, parameters);
}

static Val
call_conv1d(Builder *b, Val x, Linear parameters)
{
  x = call_module(b, parameter_module(b, parameters.weight), x);
  ValueInfo shape = builder_info(b, x);
  x = flatten_rows(b, x);
  Val w = autocast(b, builder_weight(b, parameters.weight)); /* the last argument first */
  x = autocast(b, x);
  Val c = autocast(b, builder_weight(b, parameters.bias));
  Val y = builder_op(b, OP_ADDMM, NULL, 3, (Val[]){c, x, w});
  return builder_leave(b, unflatten_rows(b, y, shape, OP_VIEW));
}

Val
conv1d(Builder *b, Val x, Linear parameters)
{
  return parameters.adapter > 0 ? lora_linear(b, x, parameters, call_conv1d)
                                : call_conv1d(b, x, parameters);
}

Val
embedding(Builder *b, int weight, Val indices)
{
  indices = call_module(b, parameter_module(b, weight), indices);
  return builder_leave(
      b, builder_op(b, OP_EMBEDDING, NULL, 2, (Val[]){builder_weight(b, weight), indices}));
}

Convolution
define_convolution(Builder *b, const char *name, gint64 out, gint64 in, int directions,
                   const Convolution *sizes)
{
  Convolution c = *sizes;
  builder_module(b, name, directions == 1 ? "Conv1d" : "Conv2d");
  if (directions == 1)
    c.weight = builder_parameter(b, "weight", 3, out, in, c.kernel);
  else
    c.weight = builder_parameter(b, "weight", 4, out, in, c.kernel, c.kernel);
  if (c.bias >= 0)
    c.bias = builder_parameter(b, "bias", 1, out);
  builder_module_end(b);
  return c;
}

Val
convolution(Builder *b, Val x, const Convolution *c)
{
  x = call_module(b, parameter_module(b, c->weight), x);
  Val bias = c->bias >= 0 ? autocast(b, builder_weight(b, c->bias)) : NO_VAL;
  Val weight = autocast(b, builder_weight(b, c->weight));
  x = autocast(b, x);
  OpAttributes at = {.result = builder_info(b, x), .flag = c->transposed};
  at.result.shape[1] = builder_info(b, weight).shape[0];
  for (int i = 2; i < at.result.dims; i++)
    at.result.shape[i] = (at.result.shape[i] + 2 * c->padding - c->kernel) / c->stride + 1;
  value_set_contiguous(&at.result);
  Val operands[3] = {x, weight, bias};
  return builder_leave(b, builder_op(b, OP_CONVOLUTION, &at, c->bias >= 0 ? 3 : 2, operands));
}

Linear
define_linear(Builder *b, const char *name, gint64 out, gint64 in, gboolean bias)
{
  int adapter = lora_begin(b, name);
  builder_module(b, adapter > 0 ? "base_layer" : name, "Linear");
  Linear parameters = {.weight = builder_parameter(b, "weight", 2, out, in), .bias = -1};
  if (bias)
    parameters.bias = builder_parameter(b, "bias", 1, out);
  builder_module_end(b);
  lora_end(b, adapter, out, in, &parameters);
  return parameters;
}

Linear
define_conv1d(Builder *b, const char *name, gint64 out, gint64 in)
{
  int adapter = lora_begin(b, name);
  builder_module(b, adapter > 0 ? "base_layer" : name, "Conv1D");
  Linear parameters = {.weight = builder_parameter(b, "weight", 2, in, out)};
  parameters.bias = builder_parameter(b, "bias", 1, out);
  builder_module_end(b);
  lora_end(b, adapter, out, in, &parameters);
  return parameters;
}

/* ---- heads ---- */

/* A dimension after the heads, broadcast to so many copies of each. */
static Val
expand_heads(Builder *b, Val x, int dim, gint64 times)
{
  ValueInfo info = builder_info(b, x), wide = info;
  wide.dims++;
  for (int i = wide.dims - 1; i > dim + 1; i--)
    wide.shape[i] = info.shape[i - 1];
  wide.shape[dim + 1] = 1;
  Val y = reshape(b, x, wide);
  wide = builder_info(b, y);
  wide.shape[dim + 1] = times;
  return expand(b, y, wide);
}

Val
repeat_heads(Builder *b, Val x, gint64 heads, gboolean heads_second)
{
  int dim = heads_second ? 1 : 2;
  ValueInfo info = builder_info(b, x);
  Val y = expand_heads(b, x, dim, heads / info.shape[dim]);
  info.shape[dim] = heads;
  return reshape(b, y, info);
}

Val
interleave_heads(Builder *b, Val x, gint64 heads)
{
  ValueInfo info = builder_info(b, x);
  Val y = clone(b, expand_heads(b, x, 1, heads / info.shape[1]));
  info.shape[1] = heads;
  return reshape(b, y, info);
}

Val
split_heads(Builder *b, Val x, gint64 heads, gint64 head_dim)
{
  ValueInfo info = builder_info(b, x);
  return view(b, x, 4, info.shape[0], info.shape[1], heads, head_dim);
}

Val
merge_heads(Builder *b, Val x)
{
  ValueInfo info = builder_info(b, x);
  return view(b, x, 3, info.shape[0], info.shape[1], info.shape[2] * info.shape[3]);
}

/* ---- loss ---- */

static Val
reduced_cross_entropy(Builder *b, Val logits, Val labels, gboolean sum)
{
  const OpAttributes at = {.flag = sum};
  gboolean autocast_on = builder_shape(b)->precision.autocast;
  builder_enter(b, 1, (const char *const[]){"input"}, &logits);
  Val probabilities = unary(b, OP_LOG_SOFTMAX, (Val){logits.slot, FALSE});
  Val input = {probabilities.slot, FALSE}; /* cross_entropy_loss holds it until it returns */
  if (autocast_on)                         /* nll_loss runs in fp32 under autocast */
    input = to(b, input, DTYPE_FP32);
  Val loss = builder_op(b, OP_NLL_LOSS, &at, 2, (Val[]){input, labels});
  builder_discard(b, probabilities);
  return builder_leave(b, loss);
}

Val
cross_entropy(Builder *b, Val logits, Val labels)
{
  return reduced_cross_entropy(b, logits, labels, FALSE);
}

Val
cross_entropy_of_items(Builder *b, Val logits, Val labels, Val items)
{
  return binary(b, OP_DIV, reduced_cross_entropy(b, logits, labels, TRUE), items);
}

/* Two reductions over each row, and a sum of one element of each; backward is one kernel. */
Val
compiled_cross_entropy(Builder *b, Val logits, Val labels)
{
  return fused_cross_entropy(b, logits, labels);
}

Val
fused_cross_entropy(Builder *b, Val logits, Val labels)
{
  double rows = (double) builder_info(b, logits).shape[0];
  Val losses = builder_op(b, OP_FUSED_CROSS_ENTROPY, NULL, 2, (Val[]){logits, labels});
  ValueInfo scalar = builder_info(b, losses);
  scalar.dims = 0;
  return unary_with(b, OP_DIV_SCALAR, shaped(b, OP_SUM, losses, scalar), "value", rows);
}
