/* grad_scaler.h - torch.amp.GradScaler, and FSDP1's ShardedGradScaler, around backward and the
 * optimizer's step (torch/amp/grad_scaler.py, torch/distributed/fsdp/sharded_grad_scaler.py;
 * accelerate 1.15, Accelerator.backward and AcceleratedOptimizer.step). */
#ifndef HIGHWATER_LOWER_GRAD_SCALER_H
#define HIGHWATER_LOWER_GRAD_SCALER_H

#include "strategy/strategy.h"

typedef struct {
  StorageId scale, growth_tracker; /* from the first loss on */
  StorageId found_inf;             /* from unscaling to the update */
  StorageId sum, gradient_scale;   /* what the optimizer is given in its step */
} GradScaler;

void grad_scaler_init(GradScaler *scaler);
/* The loss scale, which is made when it is asked for first; borrowed. */
StorageId grad_scaler_scale(StrategyContext *x, GradScaler *scaler);
/* scaler.unscale_(optimizer): before gradients are clipped. */
void grad_scaler_unscale(StrategyContext *x, const Strategy *strategy, GradScaler *scaler);
/* scaler.step(optimizer) up to the optimizer's own step(), and what comes behind that with
 * scaler.update(). */
void grad_scaler_begin_step(StrategyContext *x, const Strategy *strategy, GradScaler *scaler);
void grad_scaler_end_step(StrategyContext *x, GradScaler *scaler);

#endif
