/* plan_spec.h - how the network is trained: strategy, mesh, batch, precision, checkpointing,
 * optimizer, allocator. */
#ifndef HIGHWATER_SPEC_PLAN_SPEC_H
#define HIGHWATER_SPEC_PLAN_SPEC_H

#include <glib.h>

#include "base/json_reader.h"
#include "spec/checkpoint_spec.h"
#include "spec/dtype.h"
#include "spec/failure_spec.h"
#include "spec/lora_spec.h"
#include "spec/name_patterns.h"
#include "spec/option.h"
#include "spec/phase_spec.h"

typedef enum { OPTIMIZER_ADAMW, OPTIMIZER_ADAM, OPTIMIZER_SGD, OPTIMIZER_NONE } OptimizerName;
typedef enum {
  OPTIMIZER_FUSED,
  OPTIMIZER_FOREACH,
  OPTIMIZER_FORLOOP,
  OPTIMIZER_COMPOSER
} OptimizerCode;
typedef enum { ZERO_GRAD_START, ZERO_GRAD_END } ZeroGradAt;
typedef enum { RETAIN_CLONE, RETAIN_UNSHARDED, RETAIN_REFERENCE } RetainAs;
typedef enum {
  RETAIN_END_OF_FORWARD,
  RETAIN_END_OF_BACKWARD,
  RETAIN_END_OF_STEP,
  RETAIN_END_OF_RUN
} RetainUntil;

/* How a layer's experts are computed: one grouped product, gathered matrices, a loop. */
typedef enum { MOE_GROUPED, MOE_BATCHED, MOE_EAGER } MoeExperts;

/* What plans call the loss of a micro-batch among what they retain. */
#define RETAIN_LOSS "loss"

/* Most sequences of a micro-batch. */
#define PLAN_MICRO_BATCH_MOST (1 << 20)

/* Full parameters of a group (or of a module), or a loss, kept as a debugging hook or a list of the
 * training script would. */
typedef struct {
  char *group; /* "layers.15", the path of a module in a group, or RETAIN_LOSS */
  RetainAs as;
  RetainUntil until;
} RetainSpec;

/* Whose code calls the model and backward(): a plain loop, which divides the loss by the
 * micro-batches when there are several and lets go of it after backward(), one with accelerate's
 * Accelerator, which always divides a copy, or transformers' Trainer, which moves the batches of
 * every step to the device, counts their items and sums up losses. */
typedef enum { LOOP_PLAIN, LOOP_ACCELERATE, LOOP_TRAINER } LoopCode;

/* A rank that computes more slowly (or faster) than the others. */
typedef struct {
  int rank;
  double compute; /* its kernels take so many times as long */
} SlowRank;

typedef struct {
  char *name;           /* preset name, or file name without folder and .json */
  char *file;           /* for messages */
  char *strategy;       /* "fsdp2" */
  int shard, replicate; /* mesh: ranks = shard * replicate */
  int micro_batch;      /* sequences a rank computes at once */
  int sequence_length;  /* tokens */
  gboolean sequence_length_given;
  int target_length; /* tokens that an encoder-decoder's decoder gets; 0: sequence_length */
  struct {
    int steps;
    gboolean sync_every_step, reshard_after_backward, set_last_backward;
    int all_reduce_every; /* micro-batches: of HSDP's replicas */
    gboolean reshard_after_backward_given, set_last_backward_given, sync_every_step_given;
  } accumulation;
  struct {
    DType parameters, compute, reduce;
    DType output; /* valid when has_output */
    gboolean has_output, autocast;
    gboolean grad_scaler; /* the loss is multiplied by a scale, as fp16 needs */
    gboolean compute_given, reduce_given;
  } precision;
  CheckpointSpec checkpointing;
  struct {
    OptimizerName name;
    OptimizerCode implementation;
    double clip_grad_norm; /* 0: off (null) */
    ZeroGradAt zero_grad;
  } optimizer;
  struct {
    gboolean expandable_segments;
    gint64 max_split_size; /* G_MAXINT64: null */
    double garbage_collection_threshold;
    int roundup_power2_divisions;
  } allocator;
  struct {
    GArray *slow;  /* SlowRank */
    double jitter; /* standard deviation of every rank's compute time, step by step; 0: none */
    gint64 seed;
  } ranks;
  struct {
    MoeExperts experts;
    double load_imbalance; /* tokens of the busiest expert over the mean, >= 1 */
  } moe;
  gboolean compile_per_block;
  LoopCode loop;
  struct {
    gboolean average_tokens; /* items are counted over all ranks */
    gboolean nan_filter;     /* each loss is looked at before it is added up */
  } trainer;                 /* of LOOP_TRAINER */
  GPtrArray *retain;         /* RetainSpec * */
  NamePatterns
      *trainable; /* parameters that require gradients; NULL: all, or with adapters those */
  LoraSpec *lora; /* adapters; NULL: none */
  PhaseSpec phases;
  FailureSpec failure;
  /* The strategy's own section: values parallel to section->options. */
  const OptionSection *section; /* NULL: the strategy has none */
  OptionValue *options;
} PlanSpec;

/* What a plan is read against: every strategy and its section (NULL section: none).  Ends with a
 * NULL strategy. */
typedef struct {
  const char *strategy;
  const OptionSection *section;
} PlanStrategy;

/* Loads a preset name or file ("-": standard input), applies the assignments ("mesh.shard=8") in
 * order, and reads it. Defaults are the frameworks'.  Errors: an unknown key or strategy, a value
 * out of range, a section that the strategy does not use, reserved keys (offload), a mesh that
 * overflows. */
PlanSpec *plan_spec_load(const char *preset_or_path, const char *const *assignments,
                         const PlanStrategy *strategies, GError **error);
PlanSpec *plan_spec_parse(const char *name, const char *text, gsize length,
                          const char *const *assignments, const PlanStrategy *strategies,
                          GError **error);
void plan_spec_free(PlanSpec *spec);
G_DEFINE_AUTOPTR_CLEANUP_FUNC(PlanSpec, plan_spec_free)

/* Names as written in plans: "adamw", "foreach". */
const char *plan_optimizer_name(OptimizerName name);
const char *plan_optimizer_code_name(OptimizerCode code);
const char *plan_loop_name(LoopCode code);
/* Are gradients clipped?  The Trainer's always are, if only by an infinite norm: it wants to know
 * theirs. */
gboolean plan_spec_clips(const PlanSpec *spec);
/* By which norm they are. */
double plan_spec_clip_norm(const PlanSpec *spec);

/* Does the plan checkpoint this block (from 0)? */
gboolean plan_spec_checkpoints(const PlanSpec *spec, int block);
/* Is there a MixedPrecisionPolicy?  Not where everything is in the parameters' dtype. */
gboolean plan_spec_has_mixed_precision(const PlanSpec *spec);

/* Value of an option of the strategy's section; the key must be in its table. */
const OptionValue *plan_spec_option(const PlanSpec *spec, const char *key);
static inline gint64
plan_spec_number(const PlanSpec *spec, const char *key)
{
  return plan_spec_option(spec, key)->number;
}

/* Reports that this plan asks for what its strategy cannot do: "FILE: key 'KEY': MESSAGE".  Always
 * FALSE, for the caller to return. */
gboolean plan_spec_refuse(const PlanSpec *spec, GError **error, const char *key, const char *format,
                          ...) G_GNUC_PRINTF(4, 5);

#endif
