/* transformers_root.c - the call of a model of transformers in the training loop. */
#include "network/transformers_root.h"

#include <string.h>

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

void
transformers_write_root(Builder *b, const TransformersRoot *root)
{
  Network *network = builder_network(b);
  Val inputs[TRANSFORMERS_INPUTS], received[TRANSFORMERS_INPUTS];
  g_autofree Val *results = g_new(Val, TRANSFORMERS_RESULTS);
  g_array_append_vals(network->inputs, root->input, (guint) root->inputs);
  builder_function_begin(b, "main", -1, root->inputs, root->input, inputs);
  builder_call(b, 0, NULL);
  memcpy(received, inputs, sizeof(received));
  builder_module_enter(b, 0, root->inputs, received);
  for (int i = 0; i < root->inputs; i++)
    inputs[i] = (Val){received[i].slot, FALSE};
  int n = root->forward(b, root->model, inputs, results);
  model_call_wrapped(b, n, results);
  builder_module_exit(b, 0, results[0]);
  for (int i = 0; i < root->inputs; i++)
    builder_discard(b, received[i]);
  model_call_end(b, n, results);
  Val loss = builder_leave(b, loss_of(b, n, results));
  model_call_autocast_end(b);
  network->main = builder_function_end(b, loss);
  network->construction_scratch = CONSTRUCTION_SCRATCH;
  network->loss_inside = TRUE;
  network->checkpoints_forward = TRUE; /* GradientCheckpointingLayer */
}
