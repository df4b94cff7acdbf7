/* zero_scalars.h - the small tensors with which DeepSpeed looks for overflows, takes norms and
 * clips: each a kernel of its own, allocated and freed in Python's order.
 *
 * Sources: deepspeed 0.19.8, runtime/utils.py (has_inf_or_nan, is_invalid_grad_norm,
 * mask_nan_or_inf_with_val_inplace, combine_grad_norm_groups) and runtime/zero/stage_1_and_2.py. */
#ifndef HIGHWATER_STRATEGY_ZERO_SCALARS_H
#define HIGHWATER_STRATEGY_ZERO_SCALARS_H

#include "strategy/strategy.h"

/* Elements of a storage, all of one size. */
typedef struct {
  StorageId storage;
  gint64 count;
} Scalars;

/* A new tensor that one kernel makes from n others: what it is called, what it means (meaning.h;
 * NULL: its name says it). */
typedef struct {
  gint64 bytes, count;
  const char *what, *meaning;
} SmallTensor;
StorageId zero_make(StrategyContext *x, StreamId stream, const SmallTensor *tensor, int n,
                    const Scalars *from);
/* One element of so many bytes, made from one. */
StorageId zero_scalar(StrategyContext *x, gint64 bytes, const char *what, const char *meaning,
                      StorageId from);

/* A new tensor of so many bytes that one kernel makes; from: the tensor it reads (a storage that
 * is read whole), or NO_STORAGE. */
StorageId zero_small(StrategyContext *x, StreamId stream, gint64 bytes, const char *what,
                     StorageId from);
/* Adds a scalar of so many bytes to another one, in place. */
void zero_add(StrategyContext *x, StreamId stream, gint64 bytes, StorageId addend, StorageId sum);
/* One that a kernel makes of a view; reads: elements of it, each of size bytes. */
StorageId zero_reduced(StrategyContext *x, StreamId stream, gint64 bytes, const char *what,
                       gint32 tensor, double bytes_read);
/* Its elements, in so many bytes each. */
StorageId zero_widened(StrategyContext *x, StreamId stream, gint64 elements, int bytes,
                       gint32 tensor, double bytes_read);
/* Reducing so many contiguous elements to one takes several thread blocks: their partial results
 * and a counter, made and freed on the way (aten/src/ATen/native/cuda/Reduce.cuh).  accumulator:
 * bytes of a partial result. */
void zero_reduction_scratch(StrategyContext *x, StreamId stream, gint64 elements, int accumulator);
/* torch.isfinite of count values; leaves count booleans. */
StorageId zero_is_finite(StrategyContext *x, StreamId stream, StorageId values, gint64 count);
typedef struct {
  gint64 elements;
  int element; /* bytes */
} ReducedTensor;

/* has_inf_or_nan of a view; leaves a boolean. */
StorageId zero_has_inf_or_nan(StrategyContext *x, StreamId stream, gint32 tensor,
                              const ReducedTensor *size);
/* (~isfinite(norms) | (norms < 0)).any() of count norms: the host reads it, the tensor of the
 * result is still the caller's. */
StorageId zero_any_invalid(StrategyContext *x, StorageId norms, gint64 count);
/* Replaces an infinite or invalid norm by -1, in place.  element: bytes of the scalars. */
void zero_mask_invalid(StrategyContext *x, StorageId norm, int element);
/* All-reduces a scalar of dtype. */
void zero_all_reduce_scalar(StrategyContext *x, gint32 communicator, StorageId scalar, DType dtype);
/* What a division by the loss scale of a model of this dtype means, or a multiplication with it
 * (formula: div_scalar, mul_scalar); and what the product of gradients with its inverse does.
 * Caller frees. */
char *zero_by_loss_scale(DType model, const char *formula);
char *zero_unscaling(DType model);
/* The host waits for a value (.item(), bool()). */
void zero_read_back(StrategyContext *x, StreamId stream);

#endif
