/* torch_optimizer.h - torch.optim.AdamW, Adam and SGD over a list of tensors: their states,
 * temporaries and kernels. */
#ifndef HIGHWATER_STRATEGY_TORCH_OPTIMIZER_H
#define HIGHWATER_STRATEGY_TORCH_OPTIMIZER_H

#include "strategy/strategy.h"

enum { OPTIMIZER_MOMENTS = 2 };

/* How many of them the plan's optimizer keeps: Adam both, SGD its momentum buffer. */
static inline int
optimizer_moments(const PlanSpec *plan)
{
  return plan->optimizer.name != OPTIMIZER_SGD ? OPTIMIZER_MOMENTS : 1;
}

/* One tensor of the optimizer's parameter groups. */
typedef struct {
  StorageId value, gradient; /* what is updated, and what it reads: as they are now */
  gint64 elements;           /* on this rank */
  gint64 value_offset;       /* elements into `value` at which it begins */
  gint64 gradient_offset;    /* the same of `gradient` */
  gboolean stepped; /* it has a gradient, which may be empty; else the optimizer skips it */
  gint32 parameter; /* whose it is, or -1: it holds many */
  gboolean made;    /* the states are: from the first step on */
  StorageId step;
  StorageId moment[OPTIMIZER_MOMENTS];
} OptimizedTensor;

#define OPTIMIZED_TENSOR_INIT                                                                      \
  {                                                                                                \
    .value = NO_STORAGE, .gradient = NO_STORAGE, .parameter = -1, .step = NO_STORAGE, .moment = {  \
      NO_STORAGE,                                                                                  \
      NO_STORAGE                                                                                   \
    }                                                                                              \
  }

/* optimizer.step() of the plan's optimizer on n tensors of one dtype, on the device or, where the
 * strategy offloads, all on the host. */
void torch_optimizer_step(StrategyContext *x, DType dtype, int n, OptimizedTensor *tensors);

/* What the host computes in an update of one tensor there, without the time that it takes: makes
 * nothing, states included. */
void torch_optimizer_compute_on_host(StrategyContext *x, DType dtype, OptimizedTensor *tensor);

#endif
