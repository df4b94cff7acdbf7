/* op_pointwise.c - recipes of element-wise ops and sums, and of dropout. */
#include "network/op_recipe.h"

/* A mean's derivative, expand's sum: a new dense tensor of the input's shape. */
void
backward_dense(OpCase *c)
{
  g_autofree char *derivative = g_strconcat(c->info->name, "_backward", NULL);
  recipe_grad(c, 0, ORDER_DENSE);
  recipe_means(c, derivative, NULL, 0);
  recipe_launch(c, c->info->name, KERNEL_MEMORY, 0, "g0 >d0");
}

/* Gradients of a product: other, then self (rule L4), each of the result's shape until validation.
 */
void
backward_mul(OpCase *c)
{
  for (int i = 1; i >= 0; i--) {
    recipe_grad_full(c, i);
    recipe_launch(c, "mul", KERNEL_MEMORY, 0, i == 1 ? "g0 i0 >d1" : "g0 i1 >d0");
  }
}

void
shape_first(OpCase *c)
{
  c->outs = 1;
  c->out[0] = c->in[0];
}

/* The result is the first operand, which takes the second one's elements, or adds them up. */
void
forward_in_place(OpCase *c)
{
  recipe_alias(c, 0, 0);
  recipe_launch(c, c->info->name, KERNEL_MEMORY, 0, "i1 +o0");
}

/* x.add_(number), x.mul_(number) */
static void
forward_scalar_in_place(OpCase *c, const char *formula)
{
  recipe_alias(c, 0, 0);
  recipe_means(c, formula, c->at.key, c->at.number);
  recipe_launch(c, c->info->name, KERNEL_MEMORY, 0, "+o0");
}

void
forward_add_scalar_in_place(OpCase *c)
{
  forward_scalar_in_place(c, "add_scalar");
}

void
forward_mul_scalar_in_place(OpCase *c)
{
  forward_scalar_in_place(c, "mul_scalar");
}

void
backward_mul_scalar(OpCase *c)
{
  recipe_grad(c, 0, ORDER_LIKE_INCOMING);
  recipe_means(c, "mul_scalar", c->at.key, c->at.number);
  recipe_launch(c, "mul_scalar", KERNEL_MEMORY, 0, "g0 >d0");
}

/* -grad * ((self / other) / other) */
static void
divisor_gradient(OpCase *c)
{
  gint64 bytes = value_bytes(&c->out[0]);
  int quotient = recipe_temp(c, bytes, "self / other"), twice = recipe_temp(c, bytes, "/ other"),
      negative = recipe_temp(c, bytes, "-gradient");
  recipe_grad_full(c, 1);
  recipe_means(c, "div_grad_second", NULL, 0);
  recipe_launch(c, "mul", KERNEL_MEMORY, 0, "g0 i0 i1 >d1");
  recipe_release(c, negative);
  recipe_release(c, twice);
  recipe_release(c, quotient);
}

/* Other's, then grad / other, each of the result's shape until validation. */
void
backward_div(OpCase *c)
{
  if (recipe_wants(c, 1))
    divisor_gradient(c);
  recipe_grad_full(c, 0);
  recipe_launch(c, "div", KERNEL_MEMORY, 0, "g0 i1 >d0");
}

/* The conjugate of the table is materialised. */
void
backward_mul_complex(OpCase *c)
{
  int conjugate = recipe_temp(c, value_bytes(&c->in[1]), "conj(table)");
  recipe_grad(c, 0, ORDER_LIKE_INCOMING);
  recipe_means(c, "mul_conjugate", NULL, 0);
  recipe_launch(c, "mul", KERNEL_MEMORY, 0, "g0 i1 >d0");
  recipe_release(c, conjugate);
}

/* pow(x, 2) and rsqrt(x): grad * factor * power, two intermediate products. */
void
backward_power(OpCase *c)
{
  gint64 bytes = value_bytes(&c->out[0]);
  int power = recipe_temp(c, bytes, "power"), product = recipe_temp(c, bytes, "scaled power");
  recipe_grad(c, 0, ORDER_LIKE_INCOMING);
  recipe_means(c, c->info == op_info(OP_POW) ? "pow_backward" : "rsqrt_backward", c->at.key,
               c->at.number);
  recipe_launch(c, c->info->name, KERNEL_MEMORY, 0, "g0 i0 o0 >d0");
  recipe_release(c, product);
  recipe_release(c, power);
}

void
backward_sum(OpCase *c)
{
  recipe_view(c, 0, 0, ORDER_EXPANDED, 0);
}

/* where(condition, self, a number): the number becomes a tensor. */
void
forward_where_number(OpCase *c)
{
  int number = recipe_temp(c, dtype_size((DType) c->in[0].dtype), "scalar");
  recipe_out(c, 0, "where");
  recipe_launch(c, "where", KERNEL_MEMORY, 0, "i0 i1 >o0");
  recipe_release(c, number);
}

void
backward_where_number(OpCase *c)
{
  int zero = recipe_temp(c, dtype_size((DType) c->in[0].dtype), "scalar");
  recipe_grad(c, 0, ORDER_LIKE_INCOMING);
  recipe_launch(c, "where", KERNEL_MEMORY, 0, "g0 i1 >d0");
  recipe_release(c, zero);
}

/* Gradients of a difference: of other, the negative one; of self, it itself. */
void
backward_sub(OpCase *c)
{
  recipe_grad_full(c, 1);
  if (recipe_wants(c, 1))
    recipe_launch(c, "neg", KERNEL_MEMORY, 0, "g0 >d1");
  recipe_pass(c, 0);
}

/* where((x >= min) & (x <= max), grad, 0), whose first operand lies like x; flag: there is no lower
 * limit */
void
backward_clamp(OpCase *c)
{
  gint64 elements = value_elements(&c->in[0]);
  int zero = recipe_temp(c, dtype_size((DType) c->in[0].dtype), "zero");
  int above = c->at.flag ? 0 : recipe_temp(c, elements, "clamp mask");
  int below = recipe_temp(c, elements, "clamp mask");
  if (c->at.key != NULL)
    recipe_means(c, "is_inside", c->at.key, c->at.number);
  recipe_launch(c, "compare", KERNEL_MEMORY, 0, c->at.flag ? "i0 >t1" : "i0 i0 >t1 >t2");
  recipe_grad(c, 0, ORDER_LIKE_INPUT);
  recipe_means(c, "keep_where", NULL, 0);
  recipe_launch(c, "where", KERNEL_MEMORY, 0, c->at.flag ? "g0 t1 >d0" : "g0 t1 t2 >d0");
  recipe_release(c, below);
  if (above != 0)
    recipe_release(c, above);
  recipe_release(c, zero);
}

void
shape_dropout(OpCase *c)
{
  c->outs = 2;
  c->out[0] = c->in[0];
  value_order_like(&c->out[0], 1, c->in);
  c->out[1] = value_like(&c->out[0], DTYPE_BOOL);
}

void
forward_dropout(OpCase *c)
{
  recipe_out(c, 1, "dropout mask");
  recipe_out(c, 0, "dropout");
  if (c->at.key != NULL)
    recipe_means(c, "native_dropout", c->at.key, c->at.number);
  recipe_launch(c, "native_dropout", KERNEL_MEMORY, 0, "i0 >o0 >o1");
}

void
backward_dropout(OpCase *c)
{
  recipe_grad(c, 0, ORDER_LIKE_INCOMING);
  if (c->at.key != NULL)
    recipe_means(c, "native_dropout_backward", c->at.key, c->at.number);
  recipe_launch(c, "native_dropout_backward", KERNEL_MEMORY, 0, "g0 o1 >d0");
}
