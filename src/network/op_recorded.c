/* op_recorded.c - recipes of ops that have no row of their own: what was recorded of a call is
 * played again. */
#include <string.h>

#include "network/op_recipe.h"

void
shape_recorded(OpCase *c)
{
  const RecordedOp *r = c->at.recorded;
  c->outs = r->outs;
  memcpy(c->out, r->out, sizeof(c->out));
  if (r->kept > 0)
    c->out[c->outs++] = value_vector(r->kept, DTYPE_UINT8);
}

void
save_recorded(OpCase *c)
{
  const RecordedOp *r = c->at.recorded;
  for (int i = 0; i < r->saves; i++)
    c->saved[c->saves++] = r->saved[i];
  if (r->kept > 0)
    c->saved[c->saves++] = (guint8) OUT(r->outs);
}

/* "i0 i1 >o0": a kernel's operands by their letters, as many as a kernel may have. */
static void
add_operands(GString *text, const char *letter, int n, int most)
{
  for (int i = 0; i < MIN(n, most); i++)
    g_string_append_printf(text, "%s%d ", letter, i);
}

void
forward_recorded(OpCase *c)
{
  const RecordedOp *r = c->at.recorded;
  g_autoptr(GString) operands = g_string_new(NULL);
  gboolean makes = r->kept > 0;
  for (int i = 0; i < r->outs; i++) {
    makes |= r->view_of[i] < 0;
    if (r->view_of[i] < 0)
      recipe_out(c, i, r->what);
    else
      recipe_alias_of(c, i, r->view_of[i], r->offset[i]);
  }
  if (r->kept > 0)
    recipe_out(c, r->outs, "kept activations");
  if (!makes && r->flops <= 0)
    return; /* a view */
  add_operands(operands, "i", c->ins, KERNEL_OPERANDS - OP_OUTPUTS);
  add_operands(operands, ">o", c->outs, OP_OUTPUTS);
  recipe_launch(c, r->what, KERNEL_MEMORY, r->flops, operands->str);
}

/* The incoming gradient itself where the shapes are the same, a view of it where the elements are,
 * a part of it or itself spread out; else a new tensor. */
static void
pass_recorded(OpCase *c, int i)
{
  const ValueInfo *in = &c->in[i], *out = &c->out[0];
  gint64 more = value_elements(out) - value_elements(in);
  gboolean same = in->dims == out->dims;
  if (more == 0 && same && memcmp(in->shape, out->shape, sizeof(gint64) * in->dims) == 0)
    recipe_pass(c, i);
  else if (more == 0)
    recipe_reshape(c, i);
  else if (same && more > 0)
    recipe_view(c, i, 0, ORDER_SAME, 0);
  else if (out->dims == 0)
    recipe_view(c, i, 0, ORDER_EXPANDED, 0);
  else
    recipe_grad(c, i, ORDER_DENSE);
}

static void
play_step(OpCase *c, const RecordedStep *step, int *temps)
{
  switch ((RecordedAction) step->action) {
  case RECORDED_GRAD:
    recipe_grad(c, step->index, ORDER_DENSE);
    break;
  case RECORDED_PASS:
    pass_recorded(c, step->index);
    break;
  case RECORDED_TEMP:
    temps[step->index] = recipe_temp(c, step->bytes, "temporary");
    break;
  case RECORDED_RELEASE:
    recipe_release(c, temps[step->index]);
    break;
  }
}

/* The step behind the last gradient: then the kernels have run. */
static int
last_gradient(const RecordedOp *r)
{
  int n = r->steps;
  while (n > 0 && r->backward[n - 1].action == RECORDED_RELEASE)
    n--;
  return n;
}

/* An operand whose gradient was not seen, since it trains only now, gets a dense one. */
void
backward_recorded(OpCase *c)
{
  const RecordedOp *r = c->at.recorded;
  int temps[OP_TEMPS], made = last_gradient(r);
  g_autoptr(GString) operands = g_string_new("g0 ");
  for (int i = 0; i < made; i++)
    play_step(c, &r->backward[i], temps);
  for (int i = 0; i < c->ins; i++)
    if (!c->has_grad[i])
      recipe_grad(c, i, ORDER_DENSE);
  add_operands(operands, "i", c->ins, 3);
  add_operands(operands, "o", c->outs, 1);
  add_operands(operands, ">d", c->ins, KERNEL_OPERANDS - 5);
  recipe_launch(c, r->what, KERNEL_MEMORY, 2 * r->flops, operands->str);
  for (int i = made; i < r->steps; i++)
    play_step(c, &r->backward[i], temps);
}
