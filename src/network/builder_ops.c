/* builder_ops.c - calls of ops: their shapes, their recipes and what their nodes save. */
#include <string.h>

#include "network/builder.h"
#include "network/builder_private.h"
#include "network/op_recipe.h"

/* Which tensors the node saves, given which inputs want a gradient. */
static void
choose_saved(OpCase *c)
{
  if (c->info->save != NULL)
    c->info->save(c);
  for (int i = 0; i < c->info->save_count; i++) {
    OpSave save = c->info->saves[i];
    gboolean exists =
        save.tensor >= BUFFER_OUT ? save.tensor - BUFFER_OUT < c->outs : save.tensor < c->ins;
    if (exists && (save.wanted_by < 0 || recipe_wants(c, save.wanted_by)))
      c->saved[c->saves++] = (guint8) save.tensor;
  }
}

/* Writes the recipes of one call into the function; fills op. */
static void
write_recipes(OpCase *c, Op *op)
{
  op->forward = (gint32) c->steps->len;
  c->info->forward(c);
  op->backward = op->validate = op->end = (gint32) c->steps->len;
  gboolean wanted = FALSE;
  for (int i = 0; i < c->ins; i++)
    wanted |= recipe_wants(c, i);
  op->node = (wanted && c->info->backward != NULL) || c->info->is_leaf;
  if (!op->node || c->info->is_leaf)
    return;
  choose_saved(c);
  op->saves = (guint8) c->saves;
  memcpy(op->saved, c->saved, sizeof(c->saved));
  memset(c->temp_used, 0, sizeof(c->temp_used));
  c->backward = TRUE;
  c->info->backward(c);
  op->validate = (gint32) c->steps->len;
  recipe_validate(c);
  op->end = (gint32) c->steps->len;
}

/* The call's shapes; FALSE after an error, this one's or an earlier one's. */
static gboolean
fill_case(Builder *b, OpCase *c, const OpAttributes *at, const Val *in)
{
  if (b->error != NULL)
    return FALSE;
  if (at != NULL)
    c->at = *at;
  for (int i = 0; i < c->ins; i++)
    c->in[i] = builder_info_of(b, in[i].slot);
  c->info->shape(c);
  for (int i = 0; i < c->outs; i++)
    c->out[i] = builder_checked_value(b, c->info->name, &c->out[i]);
  return b->error == NULL;
}

/* Outputs of a call: the caller's, or nobody's but the node's. */
static void
hand_out(Builder *b, const OpCase *c, const Op *op, int outs, Val *out)
{
  for (int i = 0; i < c->outs; i++) {
    if (i < outs)
      out[i] = (Val){op->out[i], TRUE};
    else
      builder_unreference(b, op->out[i]);
  }
}

/* Numbers that are not real or complex have none: what topk gives besides values. */
static gboolean
has_gradient(DType dtype)
{
  return dtype == DTYPE_FP32 || dtype == DTYPE_BF16 || dtype == DTYPE_FP16 ||
         dtype == DTYPE_COMPLEX64;
}

void
builder_op_multi(Builder *b, OpId op_id, const OpAttributes *at, int ins, const Val *in, int outs,
                 Val *out)
{
  OpCase c = {.info = op_info(op_id),
              .ins = ins,
              .device = b->network->shape.device,
              .steps = b->now.function->steps,
              .kernels = b->now.function->kernels};
  Op op = {.info = c.info, .module = b->now.module - b->now.base_module, .ins = (guint8) ins};
  if (fill_case(b, &c, at, in))
    write_recipes(&c, &op);
  else
    c.outs = outs; /* values to go on with */
  op.outs = (guint8) c.outs;
  for (int i = 0; i < ins; i++)
    op.in[i] = in[i].slot;
  for (int i = 0; i < c.outs; i++) {
    c.out[i].requires_grad = op.node && has_gradient((DType) c.out[i].dtype);
    op.out[i] = builder_new_slot(b, &c.out[i]);
  }
  gint32 index = (gint32) b->now.function->ops->len;
  g_array_append_val(b->now.function->ops, op);
  builder_add_statement(b, &(Statement){.kind = STATEMENT_OP, .a = index});
  hand_out(b, &c, &op, outs, out);
  for (int i = 0; i < ins; i++)
    builder_discard(b, in[i]);
}

Val
builder_op(Builder *b, OpId op, const OpAttributes *at, int ins, const Val *in)
{
  Val out;
  builder_op_multi(b, op, at, ins, in, 1, &out);
  return out;
}
