/* reentrant.c - reentrant checkpointing: a region runs without a graph, and a node of it runs the
 * whole region again with one, backwards too, from inside backward (torch/utils/checkpoint.py,
 * CheckpointFunction). */
#include <string.h>

#include "lower/tape_private.h"

gboolean
reentrant_wants(const Tape *t, int block)
{
  const PlanSpec *plan = t->x->plan;
  return !t->x->evaluating && t->strategy->reentrant_outside &&
         plan->checkpointing.around == AROUND_FSDP &&
         checkpoint_spec_of_block(&plan->checkpointing, block) == CHECKPOINT_FULL;
}

Results
reentrant_run(Tape *t, int block, Place place, int n, const TensorRef *args)
{
  gboolean wants = FALSE;
  for (int i = 0; i < n; i++)
    wants |= args[i].node >= 0;
  gint32 number = (gint32) t->frames->len;
  CheckpointFrame *frame = checkpoint_frame_new(t, block, place, n, args);
  g_ptr_array_add(t->frames, frame);
  for (int i = 0; i < n; i++) {
    tape_hold(t, &args[i]);
    live_storage_promote(t->live, args[i].storage, CATEGORY_ACTIVATION);
  }
  gint32 node = wants ? autograd_region_node(t, number, n, args) /* older than all of the call's */
                      : -1;
  t->x->no_grad = TRUE;
  Results results = tape_call_hooked(t, block, place, n, args);
  t->x->no_grad = FALSE;
  results.ref[0].node = node;
  results.ref[0].output = 0;
  if (!wants) { /* no node keeps it */
    g_ptr_array_index(t->frames, number) = NULL;
    checkpoint_frame_free(t, frame);
  }
  return results;
}

/* Runs the region on tensors that stand for its inputs; inputs[i] is where the gradient of argument
 * i will be kept, or -1. */
static Results
run_again(Tape *t, const CheckpointFrame *frame, gint32 *inputs)
{
  TensorRef args[STATEMENT_SLOTS];
  memcpy(args, frame->argument, sizeof(args));
  for (int i = 0; i < frame->arguments; i++) {
    inputs[i] = args[i].node >= 0 ? autograd_input_node(t) : -1;
    args[i].node = inputs[i];
    args[i].output = 0;
  }
  program_builder_push(t->builder, RANGE_HOOK, "recompute", 0);
  Results results = tape_call_hooked(t, frame->block, frame->place, frame->arguments, args);
  program_builder_pop(t->builder);
  return results;
}

void
reentrant_backward(Tape *t, gint32 frame_number, TensorRef incoming, TensorRef *gradients)
{
  CheckpointFrame *frame = g_ptr_array_index(t->frames, frame_number);
  gint32 inputs[STATEMENT_SLOTS];
  Results results = run_again(t, frame, inputs);
  tape_hold(t, &incoming);
  autograd_play(t, &results.ref[0], incoming);
  for (int i = 0; i < FUNCTION_RESULTS; i++)
    tape_drop(t, &results.ref[i]);
  for (int i = 0; i < frame->arguments; i++)
    gradients[i] = autograd_take_input(t, inputs[i]);
  g_ptr_array_index(t->frames, frame_number) = NULL;
  checkpoint_frame_free(t, frame);
}
