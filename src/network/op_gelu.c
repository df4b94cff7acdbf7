/* op_gelu.c - recipes of activations and masks that Python writes out: BLOOM's GELU as an
 * autograd.Function of its own, and where() with a number. */
#include "network/op_recipe.h"

/* where(mask, grad, 0): the number becomes a tensor. */
void
backward_where(OpCase *c)
{
  int zero = recipe_temp(c, dtype_size((DType) c->in[0].dtype), "zero");
  recipe_grad(c, 0, ORDER_LIKE_INCOMING);
  recipe_launch(c, "where", KERNEL_MEMORY, 0, "g0 >d0");
  recipe_release(c, zero);
}

/* One kernel and the tensor that it makes. */
static int
step(OpCase *c, const char *name)
{
  return recipe_temp(c, value_bytes(&c->in[0]), name);
}

/* tanh(0.79788456 * x * (1 + 0.044715 * x * x)) */
static int
inner_tanh(OpCase *c)
{
  int scaled = step(c, "0.798 x");
  int cubic = step(c, "0.0447 x");
  int square = step(c, "0.0447 x^2");
  recipe_release(c, cubic);
  int more = step(c, "1 + 0.0447 x^2");
  recipe_release(c, square);
  int product = step(c, "argument of tanh");
  recipe_release(c, more);
  recipe_release(c, scaled);
  int t = step(c, "tanh");
  recipe_release(c, product);
  recipe_launch(c, "bloom_gelu", KERNEL_MEMORY, 0, "i0 i0 i0 i0 i0 i0 >t0");
  return t;
}

/* x * 0.5 * (1 + tanh(...)) */
void
forward_bloom_gelu(OpCase *c)
{
  int half = step(c, "0.5 x");
  int t = inner_tanh(c);
  int more = step(c, "1 + tanh");
  recipe_release(c, t);
  recipe_out(c, 0, "bloom_gelu");
  recipe_launch(c, "mul", KERNEL_MEMORY, 0, "i0 i0 i0 i0 >o0");
  recipe_release(c, more);
  recipe_release(c, half);
}

/* 0.5 * x * ((1 - t * t) * (0.79788456 + 0.1070322243 * x * x)) + 0.5 * (1 + t), times the gradient
 */
void
backward_bloom_gelu(OpCase *c)
{
  int t = inner_tanh(c);
  int half = step(c, "0.5 x");
  int square = step(c, "tanh^2");
  int less = step(c, "1 - tanh^2");
  recipe_release(c, square);
  int scaled = step(c, "0.107 x");
  int quadratic = step(c, "0.107 x^2");
  recipe_release(c, scaled);
  int sum = step(c, "0.798 + 0.107 x^2");
  recipe_release(c, quadratic);
  int slope = step(c, "derivative of tanh");
  recipe_release(c, sum);
  recipe_release(c, less);
  int first = step(c, "first term");
  recipe_release(c, slope);
  recipe_release(c, half);
  int more = step(c, "1 + tanh");
  int second = step(c, "second term");
  recipe_release(c, more);
  int derivative = step(c, "derivative");
  recipe_release(c, second);
  recipe_release(c, first);
  recipe_grad(c, 0, ORDER_LIKE_INCOMING);
  recipe_launch(c, "bloom_gelu_backward", KERNEL_MEMORY, 0, "g0 i0 i0 i0 i0 i0 i0 >d0");
  recipe_release(c, t);
  recipe_release(c, derivative);
}
