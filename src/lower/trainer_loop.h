/* trainer_loop.h - what the loop of transformers' Trainer allocates around the model: the batches
 * of a step, how many items they have, and the losses that it adds up for its log (trainer.py of
 * release 5.24: _run_epoch, get_batch_samples, _get_num_items_in_batch; accelerate 1.15,
 * DataLoaderShard). */
#ifndef HIGHWATER_LOWER_TRAINER_LOOP_H
#define HIGHWATER_LOWER_TRAINER_LOOP_H

#include "lower/step_walk.h"

/* The running loss, before the first step. */
void trainer_loop_construct(StepWalk *w);
/* A step's batches come to the device, all of them before its first forward, and their items are
 * counted; then those of the step before go. */
void trainer_loop_fetch(StepWalk *w);
/* backward() is over: the loss before this one goes, this one is looked at and added up. */
void trainer_loop_add_loss(StepWalk *w);

#endif
