/* transformers_root.c - the call of a model of transformers in the training loop. */
#include "network/transformers_root.h"

#include <string.h>

#include "network/layers.h"
#include "network/model_call.h"

/* A scalar of the fake-tensor context that to_empty() runs under. */
enum { CONSTRUCTION_SCRATCH = 4 };

/* loss = out.loss; del out; loss / n */
static Val
loss_of(Builder *b, int n, Val *results)
{
  Val loss = model_call_bind_loss(b, results[0]);
  for (int i = 1; i < n; i++)
    builder_discard(b, results[i]);
  return model_call_loss(b, loss);
}

/* The root's inputs, and behind them the number of items that the Trainer gives to every model
 * whose forward() takes further keywords.  Returns how many. */
static int
add_inputs(Builder *b, const TransformersRoot *root)
{
  Network *network = builder_network(b);
  ValueInfo items = value_shape(DTYPE_FP32, 0);
  g_array_append_vals(network->inputs, root->input, (guint) root->inputs);
  if (builder_shape(b)->trainer && !root->without_labels) {
    network->items = root->inputs;
    g_array_append_val(network->inputs, items);
  }
  g_assert(network->inputs->len <= TRANSFORMERS_INPUTS);
  return (int) network->inputs->len;
}

/* The items as hooks have cast them, where they do that. */
static Val
received_items(Builder *b, Val items)
{
  const NetworkShape *shape = builder_shape(b);
  ValueInfo info = builder_info(b, items);
  if (!shape->casts_inputs && !shape->casts_root_inputs)
    return items;
  info.dtype = (guint8) shape->precision.weights;
  return shaped(b, OP_TO_IF_NEEDED, items, info);
}

void
transformers_write_root(Builder *b, const TransformersRoot *root)
{
  Network *network = builder_network(b);
  Val inputs[TRANSFORMERS_INPUTS], received[TRANSFORMERS_INPUTS];
  g_autofree Val *results = g_new(Val, TRANSFORMERS_RESULTS);
  int count = add_inputs(b, root);
  builder_function_begin(b, "main", -1, count, (const ValueInfo *) (gpointer) network->inputs->data,
                         inputs);
  builder_call(b, 0, NULL);
  memcpy(received, inputs, sizeof(received));
  builder_module_enter(b, 0, count, received);
  if (network->items >= 0)
    received[network->items] = received_items(b, received[network->items]);
  for (int i = 0; i < count; i++)
    inputs[i] = (Val){received[i].slot, FALSE};
  int n = root->forward(b, root->model, inputs, results);
  model_call_wrapped(b, n, results);
  builder_module_exit(b, 0, results[0]);
  for (int i = 0; i < count; i++)
    builder_discard(b, received[i]);
  model_call_end(b, n, results);
  Val loss = builder_leave(b, loss_of(b, n, results));
  model_call_autocast_end(b);
  network->main = builder_function_end(b, loss);
  network->construction_scratch = CONSTRUCTION_SCRATCH;
  network->loss_inside = TRUE;
  network->checkpoints_forward = TRUE; /* GradientCheckpointingLayer */
}
