/* model_call.c - what happens to a model's outputs and to the loss around its call. */
#include "network/model_call.h"

#include "network/layers.h"

static gboolean
is_floating(const Builder *b, Val x)
{
  guint8 dtype = builder_info(b, x).dtype;
  return dtype == DTYPE_FP32 || dtype == DTYPE_BF16 || dtype == DTYPE_FP16;
}

/* All casts are there before the first original goes. */
static void
cast_outputs(Builder *b, int n, Val *outputs, gboolean hook)
{
  g_autofree Val *before = g_new(Val, (gsize) n);
  for (int i = 0; i < n; i++) {
    before[i] = outputs[i];
    Val read = {outputs[i].slot, FALSE};
    outputs[i] = builder_share(
        b, is_floating(b, read) ? to(b, read, builder_shape(b)->precision.output) : read);
  }
  if (hook)
    builder_forward_end(b);
  for (int i = 0; i < n; i++)
    builder_discard(b, before[i]);
}

/* accelerate's convert_outputs_to_fp32(autocast(forward)) (Accelerator.prepare_model). */
void
model_call_wrapped(Builder *b, int n, Val *outputs)
{
  if (!builder_shape(b)->precision.wraps_forward)
    return;
  builder_autocast_end(b);
  cast_outputs(b, n, outputs, FALSE);
}

void
model_call_end(Builder *b, int n, Val *outputs)
{
  const NetworkPrecision *precision = &builder_shape(b)->precision;
  if (precision->has_output && !precision->wraps_forward)
    cast_outputs(b, n, outputs, TRUE);
  else
    builder_forward_end(b);
  receive_outputs(b, n, outputs);
}

void
model_call_autocast_end(Builder *b)
{
  if (!builder_shape(b)->precision.wraps_forward)
    builder_autocast_end(b);
}

Val
model_call_items(const Builder *b, const Val *inputs)
{
  const Network *network = builder_network((Builder *) (gsize) b);
  return network->items >= 0 ? inputs[network->items] : NO_VAL;
}

static gboolean
is_of_items(Builder *b)
{
  return builder_network(b)->items >= 0;
}

/* Trainer.compute_loss: of a loss that was divided by the items of all ranks, as many as there are
 * ranks, since gradients are averaged over them. */
Val
model_call_bind_loss(Builder *b, Val loss)
{
  const NetworkShape *shape = builder_shape(b);
  loss = let(b, "loss", loss);
  if (shape->keeps_loss && !shape->trainer)
    builder_keep(b, loss);
  if (shape->trainer && is_of_items(b) && shape->loss_factor > 0)
    loss = let(b, "loss", unary_with(b, OP_MUL_SCALAR_, loss, "value", shape->loss_factor));
  return loss;
}

/* Trainer.training_step: only a loss that was not divided by items is by micro-batches; what it
 * gives back is that.  Accelerator.backward() then divides a copy by one. */
static Val
trainer_loss(Builder *b, Val loss)
{
  const NetworkShape *shape = builder_shape(b);
  if (!is_of_items(b))
    loss = let(b, "loss", unary_with(b, OP_DIV_SCALAR, loss, "value", shape->micro_batches));
  if (shape->keeps_loss)
    builder_keep(b, loss);
  if (shape->divides_loss)
    loss = let(b, "loss", unary_with(b, OP_DIV_SCALAR, loss, "value", 1));
  return loss;
}

Val
model_call_loss(Builder *b, Val loss)
{
  const NetworkShape *shape = builder_shape(b);
  if (shape->trainer)
    return trainer_loss(b, loss);
  if (shape->micro_batches > 1 || shape->divides_loss)
    loss = let(b, "loss", unary_with(b, OP_DIV_SCALAR, loss, "value", shape->micro_batches));
  return loss;
}
