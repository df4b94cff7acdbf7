/* zero_gradients.h - gradients of ZeRO stages 1 and 2: buckets, their reduction, and what a rank
 * keeps of them (deepspeed 0.19.8, runtime/zero/stage_1_and_2.py). */
#ifndef HIGHWATER_STRATEGY_ZERO_GRADIENTS_H
#define HIGHWATER_STRATEGY_ZERO_GRADIENTS_H

#include "strategy/torch_optimizer.h"
#include "strategy/zero_flat.h"

enum { ZERO_BUCKETS = 2 };

/* A view of a storage that it holds. */
typedef struct {
  StorageId storage;
  gint64 offset, elements;
} GradientPiece;

/* DeepSpeedZeroOptimizer while a Program is written. */
typedef struct {
  DeepSpeed d;
  ZeroFlat flat;
  OptimizedTensor master; /* this rank's fp32 partition */
  StorageId global_norm;  /* of the last step: the engine keeps it */

  gboolean apart; /* gradients are summed in fp32 in another attribute of each parameter (stage 1
                     with 16-bit parameters: use_grad_accum_attribute) */
  DType waiting;  /* of gradients that wait for their reduction */
  int waiting_size;

  gint64 *gradient_offset; /* by parameter: elements into the storage of its gradient */
  /* the bucket that gradients are copied into, and the other one with overlap_comm */
  gboolean ready;
  StorageId bucket[ZERO_BUCKETS];
  int filling;
  gint64 filled;  /* elements that are listed */
  GArray *listed; /* int: parameters that wait for their reduction */
  int oversized;  /* one that is larger than a bucket and waits alone, or -1 */
  GArray *stale;  /* int: reduced, owned by others, dropped at the next reduction */
  /* what this rank keeps */
  StorageId owned;     /* copies of the gradients of own parameters, of this backward */
  gint64 owned_filled; /* elements */
  StorageId compact;   /* the fp32 partition that stage 2 adds to with fp32 accumulation */
  GArray *kept;        /* GradientPiece by own parameter: summed over micro-batches */
  /* with the optimizer on the host: on the host but for device_staging; norms (StorageId) */
  StorageId host_parameters, host_staging, device_staging;
  StorageId *host_gradients; /* by parameter: summed over micro-batches */
  GArray *norms;
  GArray *averaged; /* GradientPiece: what fills the partition, for the step */
} Zero;

static inline Zero *
zero_of(const StrategyContext *x)
{
  return x->state;
}

/* Are reduced slices added to an fp32 partition at once? */
gboolean zero_is_compact(const Zero *z);
void zero_gradients_init(Zero *z, const Network *network);
void zero_gradients_clear(Zero *z);
/* Where the gradient that is reduced is: .grad, or the other attribute. */
StorageId *zero_gradient_slot(const StrategyContext *x, const Zero *z, int parameter);
/* Gradients in the other attribute go: the engine's zero_grad after a step. */
void zero_forget_gradients(StrategyContext *x);
/* The hook of a parameter whose gradient was accumulated. */
void zero_gradient_ready(StrategyContext *x, int parameter);
/* After backward: what is left is reduced, own gradients are summed up, buckets are freed. */
void zero_epilogue(StrategyContext *x);
/* A view of a part of a storage as an operand. */
void zero_operand(StrategyContext *x, StorageId storage, gint64 offset, gint64 elements,
                  DType dtype, Role role);
/* Pieces let go. */
void zero_pieces_drop(StrategyContext *x, GArray *pieces);

/* ---- zero_step.c ---- */

/* The optimizer's step of both stages. */
void zero_optimizer_step(StrategyContext *x);
/* bool(is_invalid_grad_norm(norm)): the host waits for it. */
void zero_test_norm(StrategyContext *x, StorageId norm);
/* What the norm that the engine keeps from step to step is. */
StoragePurpose zero_norm_purpose(const StrategyContext *x);
/* The updated fp32 partition, in the model's dtype, into the flat parameters. */
void zero_write_back(StrategyContext *x, const Zero *z);

#endif
