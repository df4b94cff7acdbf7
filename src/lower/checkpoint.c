/* checkpoint.c - activation checkpointing: regions keep their inputs and are run again when
 * backward asks for the first tensor (torch/utils/checkpoint.py, non-reentrant, with early stop),
 * whole or with the outputs of some ops kept. */
#include <string.h>

#include "lower/tape_private.h"

gboolean
checkpoint_wants(const Tape *t, int block)
{
  return plan_spec_checkpoints(t->x->plan, block);
}

/* Does a block checkpoint its own forward(), or does a wrapper the call of the block? */
static gboolean
is_in_forward(const Tape *t)
{
  const CheckpointSpec *spec = &t->x->plan->checkpointing;
  return t->network->checkpoints_forward && !spec->wrapper && spec->around != AROUND_FSDP;
}

gboolean
checkpoint_repeats_hooks(const Tape *t)
{
  if (t->strategy->before_module != NULL)
    return !is_in_forward(t);
  return t->x->plan->checkpointing.around == AROUND_FSDP;
}

/* ---- frames ---- */

CheckpointFrame *
checkpoint_frame_new(const Tape *t, int block, Place place, int n, const TensorRef *args)
{
  CheckpointFrame *frame = g_new0(CheckpointFrame, 1);
  frame->place = place;
  frame->block = block;
  frame->arguments = n;
  memcpy(frame->argument, args, sizeof(TensorRef) * (gsize) n);
  frame->recomputed = g_array_new(FALSE, FALSE, sizeof(TensorRef));
  frame->kept = g_array_new(FALSE, FALSE, sizeof(TensorRef));
  frame->selective =
      checkpoint_spec_of_block(&t->x->plan->checkpointing, block) == CHECKPOINT_SELECTIVE_OP;
  return frame;
}

/* Which input goes as the i-th one.  Layers of transformers get all but the first as keywords, in
 * the order from the last; where the forward() is a partial that carries them, they go before it.
 */
static int
input_to_drop(const Tape *t, int n, int i)
{
  if (!t->network->checkpoints_forward)
    return i;
  if (is_in_forward(t))
    return n - 1 - i;
  return i == 0 ? 0 : n - i;
}

/* Nobody can ask it any more: what selective_op kept goes first, then the region's inputs. */
void
checkpoint_frame_free(Tape *t, CheckpointFrame *frame)
{
  for (guint i = frame->next_kept * OP_OUTPUTS; i < frame->kept->len; i++)
    tape_drop(t, &g_array_index(frame->kept, TensorRef, i));
  for (int i = 0; i < frame->arguments; i++)
    tape_drop(t, &frame->argument[input_to_drop(t, frame->arguments, i)]);
  g_array_unref(frame->recomputed);
  g_array_unref(frame->kept);
  g_free(frame);
}

static Results
run_region(Tape *t, int block, Place place, int n, const TensorRef *args)
{
  if (checkpoint_repeats_hooks(t))
    return tape_call_hooked(t, block, place, n, args);
  return tape_run(t, place, n, args);
}

Results
checkpoint_run(Tape *t, int block, Place place, int n, const TensorRef *args)
{
  if (t->x->evaluating)
    return run_region(t, block, place, n, args);
  CheckpointFrame *frame = checkpoint_frame_new(t, block, place, n, args);
  for (int i = 0; i < n; i++) {
    tape_hold(t, &frame->argument[i]);
    live_storage_promote(t->live, frame->argument[i].storage, CATEGORY_ACTIVATION);
  }
  g_ptr_array_add(t->frames, frame);
  t->recording = frame;
  t->recording_id = (gint32) t->frames->len - 1;
  Results results = run_region(t, block, place, n, args);
  t->recording = NULL;
  if (frame->alive == 0) { /* nothing in it wants to be saved */
    g_ptr_array_index(t->frames, t->recording_id) = NULL;
    checkpoint_frame_free(t, frame);
  }
  return results;
}

/* Runs the region again until every tensor that was promised is there, or without early stop to its
 * end. */
static void
recompute(Tape *t, CheckpointFrame *frame)
{
  TensorRef args[STATEMENT_SLOTS];
  memcpy(args, frame->argument, sizeof(args));
  for (int i = 0; i < frame->arguments; i++)
    args[i].node = -1;
  g_array_set_size(frame->recomputed, (guint) frame->holders);
  frame->packed = 0;
  frame->mms = 0;
  program_builder_push(t->builder, RANGE_HOOK, "recompute", 0);
  t->recomputing = frame;
  t->x->recomputing = TRUE;
  tape_autocast_begin(t);
  Results results = run_region(t, frame->block, frame->place, frame->arguments, args);
  for (int i = 0; i < FUNCTION_RESULTS && !t->stop; i++)
    tape_drop(t, &results.ref[i]);
  t->stop = FALSE;
  tape_autocast_end(t);
  t->recomputing = NULL;
  t->x->recomputing = FALSE;
  program_builder_pop(t->builder);
  frame->done = TRUE;
}

/* ---- saved tensors ---- */

/* The tensor as a node keeps it.  A Parameter is kept as such; a tensor made of its data - a view,
 * or what a recomputation delivers of one that requires a gradient (_recomputation_hook detaches
 * those) - is one of its own, with the memory that the parameter had then: where parameters are
 * resized in place that is the parameter's, where their data is swapped it lives on. */
static TensorRef
kept_tensor(const Tape *t, const TensorRef *ref)
{
  TensorRef kept = *ref;
  if (ref->parameter < 0 || !t->strategy->swaps_parameters)
    return kept;
  gboolean detached =
      t->recomputing != NULL && network_parameter(t->network, ref->parameter)->requires_grad;
  if (!detached && !ref->is_view)
    return kept;
  kept.storage = t->x->parameters[ref->parameter].unsharded;
  kept.offset += t->x->parameters[ref->parameter].offset;
  kept.parameter = -1;
  return kept;
}

gboolean
checkpoint_pack(Tape *t, const TensorRef *ref, SavedVariable *saved)
{
  CheckpointFrame *frame = t->recomputing;
  if (frame != NULL) {
    g_assert(frame->packed < frame->holders);
    TensorRef kept = kept_tensor(t, ref);
    tape_hold(t, &kept);
    live_storage_promote(t->live, kept.storage, CATEGORY_ACTIVATION);
    g_array_index(frame->recomputed, TensorRef, frame->packed++) = kept;
    return frame->packed < frame->holders || !t->x->plan->checkpointing.early_stop;
  }
  *saved = (SavedVariable){.ref = kept_tensor(t, ref), .frame = -1};
  frame = t->recording;
  if (frame != NULL) {
    saved->ref = NO_TENSOR;
    saved->frame = t->recording_id;
    saved->index = frame->holders++;
    frame->alive++;
    return TRUE;
  }
  tape_hold(t, &saved->ref);
  live_storage_promote(t->live, saved->ref.storage, CATEGORY_ACTIVATION);
  return TRUE;
}

TensorRef
checkpoint_unpack(Tape *t, SavedVariable *saved)
{
  if (saved->frame < 0)
    return saved->ref;
  CheckpointFrame *frame = g_ptr_array_index(t->frames, saved->frame);
  if (!frame->done)
    recompute(t, frame);
  TensorRef *slot = &g_array_index(frame->recomputed, TensorRef, saved->index), ref = *slot;
  *slot = NO_TENSOR;
  return ref;
}

void
checkpoint_release(Tape *t, SavedVariable *saved)
{
  if (saved->frame < 0) {
    tape_drop(t, &saved->ref);
    return;
  }
  CheckpointFrame *frame = g_ptr_array_index(t->frames, saved->frame);
  if (--frame->alive > 0)
    return;
  g_ptr_array_index(t->frames, saved->frame) = NULL;
  checkpoint_frame_free(t, frame);
}

/* ---- selective_op ---- */

gboolean
checkpoint_replay(Tape *t, OpRun *run)
{
  CheckpointFrame *frame = t->recomputing;
  if (frame == NULL || !frame->selective ||
      !op_is_kept(run->op->info, t->x->plan->checkpointing.keep, &frame->mms))
    return FALSE;
  const TensorRef *kept = &g_array_index(frame->kept, TensorRef, frame->next_kept++ * OP_OUTPUTS);
  for (int i = 0; i < run->op->outs; i++)
    run->buffer[BUFFER_OUT + i] = kept[i];
  return TRUE;
}

void
checkpoint_keep(Tape *t, const OpRun *run)
{
  CheckpointFrame *frame = t->recording;
  if (frame == NULL || !frame->selective ||
      !op_is_kept(run->op->info, t->x->plan->checkpointing.keep, &frame->mms))
    return;
  for (int i = 0; i < OP_OUTPUTS; i++) {
    TensorRef out = i < run->op->outs ? run->buffer[BUFFER_OUT + i] : NO_TENSOR;
    tape_hold(t, &out);
    live_storage_promote(t->live, out.storage, CATEGORY_ACTIVATION);
    g_array_append_val(frame->kept, out);
  }
}
