/* deepspeed.h - what DeepSpeed's ZeRO stages share: their section of the plan, and what follows
 * from it for all of them.
 *
 * The keys are those of DeepSpeed's "zero_optimization" with its defaults (deepspeed 0.19.8,
 * runtime/zero/config.py and offload_config.py), and two that stand elsewhere: "zero_init" and
 * "grad_accum_dtype".  Bucket sizes are elements, not bytes.  What "auto" stands for is Hugging
 * Face's choice (transformers, integrations/deepspeed.py). */
#ifndef HIGHWATER_STRATEGY_DEEPSPEED_H
#define HIGHWATER_STRATEGY_DEEPSPEED_H

#include "strategy/strategy.h"

/* The section "deepspeed" of a plan. */
extern const OptionSection deepspeed_section;

/* The training loop keeps tokens and labels apart, also where the model takes the tokens for both.
 */
enum { DEEPSPEED_BATCH_TENSORS = 2 };

/* Where something is kept ("offload_optimizer.device"). */
typedef enum { DEEPSPEED_ON_DEVICE, DEEPSPEED_ON_HOST } DeepSpeedPlace;

/* The section as the engine sees it: "auto", null and defaults that depend on the stage are
 * resolved. */
typedef struct {
  int stage;       /* 0 to 3 */
  int ranks, rank; /* of the data-parallel group */
  DType model; /* of parameters, their gradients and buckets; optimizer state and master weights are
                  fp32 */
  int element; /* its size in bytes */
  DType accumulation; /* grad_accum_dtype: the model's unless it is given */
  int accumulation_steps;
  double clip;         /* gradient_clipping, 0: off */
  gint32 communicator; /* of the data-parallel group; valid after deepspeed_begin */
  StreamId reduce_stream,
      gather_stream; /* streams of their own with overlap_comm, else the compute stream */

  gboolean contiguous_gradients, reduce_scatter, multi_rank_allreduce, overlap_comm;
  gboolean round_robin_gradients, parameter_alignment, compute_grad_norm;
  gboolean
      checks_overflow;  /* 16-bit gradients: fp16 always, bf16 by default (check_grad_overflow) */
  gint64 reduce_bucket; /* elements */
  /* stage 3; elements */
  gint64 sub_group, prefetch_bucket, persistence_threshold, model_persistence_threshold, max_live,
      max_reuse;
  gint64 module_granularity;
  gboolean all_reduce_for_fetch, allgather_sequential, memory_efficient_linear, zero_init;
  int secondary_ranks; /* zero_hpz_partition_size: 1 is off */
  /* offload */
  DeepSpeedPlace optimizer_place, parameter_place;
  gboolean optimizer_pinned, parameter_pinned;
  double offload_ratio; /* stage 3: the part of the sub-groups that is offloaded */
} DeepSpeed;

/* The stage of a plan of zero0 to zero3. */
int deepspeed_stage(const PlanSpec *plan);
/* Resolves a plan's section.  rank: in the data-parallel group. */
void deepspeed_read(DeepSpeed *d, const PlanSpec *plan, const Network *network, int stage,
                    int rank);
/* The same for a walk that begins, with the communicator. */
void deepspeed_begin(DeepSpeed *d, StrategyContext *x, int stage);
/* Refuses what no stage can honour, and keys that only another stage has a use for where DeepSpeed
 * refuses them too. */
gboolean deepspeed_accept(const PlanSpec *plan, const Network *network, int stage, GError **error);
/* Stage 1 with bf16 parameters and fp32 accumulation is another class in DeepSpeed: BF16_Optimizer
 * (runtime/engine.py, _configure_zero_optimizer and its callers). */
gboolean deepspeed_is_bf16_optimizer(const DeepSpeed *d);
/* ThroughputTimer (utils/timer.py) waits for the whole device at the start of every forward, and
 * when a micro-batch's step is over: from the third step on, which is its start_step.  On by
 * default.  The first is a Strategy's .begin_forward; the second is called at the end of
 * .optimizer_step (between micro-batches the next forward's start follows at once). */
void deepspeed_begin_forward(StrategyContext *x);
void deepspeed_end_step(StrategyContext *x);
/* loss / accumulation_steps, and times the scale where the stage's optimizer does that: the
 * Strategy's .loss hook. */
LossScaling deepspeed_loss(const PlanSpec *plan, int stage);

#endif
