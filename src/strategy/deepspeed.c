/* deepspeed.c - the section "deepspeed" of a plan: its options, and what they mean for every stage.
 */
#include "strategy/deepspeed.h"

#include <string.h>

#define ELEMENTS_MAX (G_GINT64_CONSTANT(1) << 52)
#define HPZ_MAX (1 << 20)

static const char *const devices[] = {"none", "cpu", "nvme", NULL};
enum { DEVICE_NONE, DEVICE_CPU, DEVICE_NVME };
static const char *const accumulation_dtypes[] = {"fp32", "fp16", "bf16", NULL};
static const DType accumulation_dtype[] = {DTYPE_FP32, DTYPE_FP16, DTYPE_BF16};

static const OptionInfo options[] = {
    {"stage", OPTION_INT, "null", 0, 3, NULL, "the same number as in the strategy's name"},
    {"contiguous_gradients", OPTION_BOOL, "true", 0, 0, NULL,
     "gradients are copied into buckets as they come"},
    {"reduce_scatter", OPTION_BOOL, "true", 0, 0, NULL,
     "each rank keeps its slices only; false: plain all-reduce of the bucket"},
    {"reduce_bucket_size", OPTION_INT_OR_AUTO, "500000000", 1, ELEMENTS_MAX, NULL,
     "elements reduced at once; auto: hidden size squared"},
    {"use_multi_rank_bucket_allreduce", OPTION_BOOL, "true", 0, 0, NULL,
     "one all-reduce for the slices of all ranks; false: a reduce for each rank"},
    {"allgather_partitions", OPTION_BOOL, "true", 0, 0, NULL, "no effect on a step"},
    {"allgather_bucket_size", OPTION_INT, "500000000", 0, ELEMENTS_MAX, NULL,
     "no effect with NCCL, which gathers all at once"},
    {"overlap_comm", OPTION_BOOL, "null", 0, 0, NULL,
     "reduce on a stream of its own; null: true in stage 3, else false"},
    {"compute_grad_norm", OPTION_BOOL, "true", 0, 0, NULL,
     "stages 1 and 2: false leaves the norm out; needs clipping off"},
    {"load_from_fp32_weights", OPTION_BOOL, "true", 0, 0, NULL, "no effect on a step"},
    {"elastic_checkpoint", OPTION_BOOL, "false", 0, 0, NULL, "no effect on a step"},
    {"offload_param.device", OPTION_ENUM, "\"none\"", 0, 0, devices,
     "stage 3: where parameters are kept"},
    {"offload_param.nvme_path", OPTION_TEXT, "null", 0, 0, NULL, "for nvme"},
    {"offload_param.buffer_count", OPTION_INT, "5", 0, ELEMENTS_MAX, NULL, "for nvme"},
    {"offload_param.buffer_size", OPTION_INT, "100000000", 0, ELEMENTS_MAX, NULL, "for nvme"},
    {"offload_param.max_in_cpu", OPTION_INT, "1000000000", 0, ELEMENTS_MAX, NULL, "for nvme"},
    {"offload_param.pin_memory", OPTION_BOOL, "true", 0, 0, NULL, "in page-locked memory"},
    {"offload_optimizer.device", OPTION_ENUM, "\"none\"", 0, 0, devices,
     "where optimizer states and master weights are kept"},
    {"offload_optimizer.nvme_path", OPTION_TEXT, "null", 0, 0, NULL, "for nvme"},
    {"offload_optimizer.buffer_count", OPTION_INT, "4", 0, ELEMENTS_MAX, NULL, "for nvme"},
    {"offload_optimizer.pin_memory", OPTION_BOOL, "true", 0, 0, NULL, "in page-locked memory"},
    {"offload_optimizer.pipeline_read", OPTION_BOOL, "false", 0, 0, NULL, "for nvme"},
    {"offload_optimizer.pipeline_write", OPTION_BOOL, "false", 0, 0, NULL, "for nvme"},
    {"offload_optimizer.fast_init", OPTION_BOOL, "false", 0, 0, NULL, "for nvme"},
    {"offload_optimizer.ratio", OPTION_REAL, "1.0", 0, 1, NULL,
     "stage 3: the part that is offloaded"},
    {"offload_optimizer.super_offload", OPTION_BOOL, "false", 0, 0, NULL, "not yet supported"},
    {"offload_optimizer.cpuadam_cores_perc", OPTION_REAL, "0.8", 0, 1, NULL, "for super_offload"},
    {"zenflow", OPTION_ABSENT, "null", 0, 0, NULL, "not yet supported"},
    {"sub_group_size", OPTION_INT, "1000000000", 0, ELEMENTS_MAX, NULL,
     "stage 3: local elements that one part of the step treats"},
    {"cpu_offload_param", OPTION_BOOL, "null", 0, 0, NULL, "deprecated: offload_param"},
    {"cpu_offload_use_pin_memory", OPTION_BOOL, "null", 0, 0, NULL, "deprecated, no effect"},
    {"cpu_offload", OPTION_BOOL, "null", 0, 0, NULL, "deprecated: offload_optimizer"},
    {"stage3_prefetch_bucket_size", OPTION_INT_OR_AUTO, "50000000", 0, ELEMENTS_MAX, NULL,
     "elements fetched ahead; auto: 0.9 times hidden size squared"},
    {"stage3_param_persistence_threshold", OPTION_INT_OR_AUTO, "100000", 0, ELEMENTS_MAX, NULL,
     "parameters up to this size stay gathered; auto: 10 times hidden size"},
    {"stage3_model_persistence_threshold", OPTION_INT, "null", 0, ELEMENTS_MAX, NULL,
     "the most elements that stay gathered; null: no limit"},
    {"stage3_max_live_parameters", OPTION_INT, "1000000000", 0, ELEMENTS_MAX, NULL,
     "the most elements gathered at once"},
    {"stage3_max_reuse_distance", OPTION_INT, "1000000000", 0, ELEMENTS_MAX, NULL,
     "not released when used again within so many elements"},
    {"stage3_gather_16bit_weights_on_model_save", OPTION_BOOL, "false", 0, 0, NULL,
     "no effect on a step"},
    {"stage3_module_granularity_threshold", OPTION_INT, "0", 0, ELEMENTS_MAX, NULL,
     "modules finer than this are fetched as one; 0: off"},
    {"stage3_use_all_reduce_for_fetch_params", OPTION_BOOL, "false", 0, 0, NULL,
     "fetch by all-reduce"},
    {"stage3_allgather_sequential", OPTION_BOOL, "false", 0, 0, NULL,
     "one all-gather for each parameter"},
    {"stage3_gather_fp16_weights_on_model_save", OPTION_BOOL, "false", 0, 0, NULL,
     "deprecated, no effect on a step"},
    {"ignore_unused_parameters", OPTION_BOOL, "true", 0, 0, NULL, "no effect on a step"},
    {"legacy_stage1", OPTION_BOOL, "false", 0, 0, NULL, "no effect: the old stage 1 is gone"},
    {"round_robin_gradients", OPTION_BOOL, "false", 0, 0, NULL,
     "stages 1 and 2: neighbouring parameters belong to different ranks"},
    {"parameter_alignment", OPTION_BOOL, "false", 0, 0, NULL,
     "stages 1 and 2: every parameter begins at 16 bytes"},
    {"zero_hpz_partition_size", OPTION_INT, "1", 0, HPZ_MAX, NULL,
     "stage 3: ranks that hold a second copy for backward"},
    {"zero_quantized_weights", OPTION_BOOL, "false", 0, 0, NULL, "not yet supported"},
    {"zero_quantized_nontrainable_weights", OPTION_BOOL, "false", 0, 0, NULL, "not yet supported"},
    {"zero_quantized_gradients", OPTION_BOOL, "false", 0, 0, NULL, "not yet supported"},
    {"memory_efficient_linear", OPTION_BOOL, "true", 0, 0, NULL,
     "stage 3: linear layers save the parameter, not its data"},
    {"pipeline_loading_checkpoint", OPTION_BOOL, "false", 0, 0, NULL, "no effect on a step"},
    {"override_module_apply", OPTION_BOOL, "true", 0, 0, NULL, "no effect on a step"},
    {"log_trace_cache_warnings", OPTION_BOOL, "false", 0, 0, NULL, "no effect on a step"},
    {"enable_sanity_checks", OPTION_BOOL, "false", 0, 0, NULL, "no effect on a step"},
    {"save_muon_momentum_buffer_in_memory", OPTION_BOOL, "false", 0, 0, NULL, "for nvme"},
    {"leaf_module", OPTION_ABSENT, "null", 0, 0, NULL, "not yet supported"},
    {"zero_init", OPTION_BOOL, "false", 0, 0, NULL,
     "stage 3: the model is built under deepspeed.zero.Init"},
    {"grad_accum_dtype", OPTION_ENUM, "null", 0, 0, accumulation_dtypes,
     "data_types.grad_accum_dtype; null: the parameters' dtype"},
    {0},
};

const OptionSection deepspeed_section = {"deepspeed", options};

/* ---- reading ---- */

static gboolean
flag(const PlanSpec *plan, const char *key)
{
  return plan_spec_number(plan, key) != 0;
}

static gint64
number_or_auto(const PlanSpec *plan, const char *key, gint64 chosen)
{
  const OptionValue *value = plan_spec_option(plan, key);
  return value->is_auto ? chosen : value->number;
}

/* Host, by the key or by the deprecated one. */
static DeepSpeedPlace
place(const PlanSpec *plan, const char *key, const char *deprecated)
{
  gboolean host = plan_spec_number(plan, key) == DEVICE_CPU || flag(plan, deprecated);
  return host ? DEEPSPEED_ON_HOST : DEEPSPEED_ON_DEVICE;
}

static void
read_gradients(DeepSpeed *d, const PlanSpec *plan)
{
  const OptionValue *overlap = plan_spec_option(plan, "overlap_comm");
  const OptionValue *accumulation = plan_spec_option(plan, "grad_accum_dtype");
  d->contiguous_gradients = flag(plan, "contiguous_gradients");
  d->reduce_scatter = flag(plan, "reduce_scatter");
  d->multi_rank_allreduce = flag(plan, "use_multi_rank_bucket_allreduce");
  d->overlap_comm = overlap->is_null ? d->stage == 3 : overlap->number != 0;
  d->round_robin_gradients = flag(plan, "round_robin_gradients");
  d->parameter_alignment = flag(plan, "parameter_alignment");
  d->compute_grad_norm = flag(plan, "compute_grad_norm");
  d->checks_overflow = d->element == 2;
  d->accumulation = accumulation->is_null ? d->model : accumulation_dtype[accumulation->number];
  d->reduce_stream = d->overlap_comm && d->stage > 0 ? STREAM_REDUCE_SCATTER : STREAM_COMPUTE;
  d->gather_stream = d->overlap_comm && d->stage == 3 ? STREAM_ALL_GATHER : STREAM_COMPUTE;
}

/* Stage 3 fetches one parameter at a time when it gathers sequentially (runtime/zero/stage3.py). */
static void
read_stage3(DeepSpeed *d, const PlanSpec *plan, gint64 hidden)
{
  const OptionValue *model_limit = plan_spec_option(plan, "stage3_model_persistence_threshold");
  gint64 prefetch = (gint64) (0.9 * (double) hidden * (double) hidden);
  d->sub_group = plan_spec_number(plan, "sub_group_size");
  d->prefetch_bucket = number_or_auto(plan, "stage3_prefetch_bucket_size", prefetch);
  d->persistence_threshold =
      number_or_auto(plan, "stage3_param_persistence_threshold", 10 * hidden);
  d->model_persistence_threshold = model_limit->is_null ? G_MAXINT64 : model_limit->number;
  d->max_live = plan_spec_number(plan, "stage3_max_live_parameters");
  d->max_reuse = plan_spec_number(plan, "stage3_max_reuse_distance");
  d->module_granularity = plan_spec_number(plan, "stage3_module_granularity_threshold");
  d->all_reduce_for_fetch = flag(plan, "stage3_use_all_reduce_for_fetch_params");
  d->allgather_sequential = flag(plan, "stage3_allgather_sequential");
  d->memory_efficient_linear = flag(plan, "memory_efficient_linear");
  d->zero_init = flag(plan, "zero_init");
  d->secondary_ranks = (int) MAX(plan_spec_number(plan, "zero_hpz_partition_size"), 1);
}

int
deepspeed_stage(const PlanSpec *plan)
{
  return plan->strategy[strlen("zero")] - '0';
}

void
deepspeed_read(DeepSpeed *d, const PlanSpec *plan, const Network *network, int stage, int rank)
{
  *d = (DeepSpeed){
      .stage = stage,
      .ranks = plan->shard * plan->replicate,
      .rank = rank,
      .model = plan->precision.parameters,
      .element = dtype_size(plan->precision.parameters),
      .accumulation_steps = plan->accumulation.steps,
      .clip = plan->optimizer.clip_grad_norm,
      .communicator = -1,
      .reduce_bucket =
          number_or_auto(plan, "reduce_bucket_size", network->hidden * network->hidden),
      .optimizer_place = place(plan, "offload_optimizer.device", "cpu_offload"),
      .parameter_place = place(plan, "offload_param.device", "cpu_offload_param"),
      .optimizer_pinned = flag(plan, "offload_optimizer.pin_memory"),
      .parameter_pinned = flag(plan, "offload_param.pin_memory"),
      .offload_ratio = plan_spec_option(plan, "offload_optimizer.ratio")->real,
  };
  read_gradients(d, plan);
  read_stage3(d, plan, network->hidden);
}

void
deepspeed_begin(DeepSpeed *d, StrategyContext *x, int stage)
{
  deepspeed_read(d, x->plan, x->network, stage, x->rank);
  d->communicator = program_builder_communicator(x->builder, "shard", d->ranks, 1);
}

gboolean
deepspeed_is_bf16_optimizer(const DeepSpeed *d)
{
  return d->stage == 1 && d->model == DTYPE_BF16 && d->accumulation == DTYPE_FP32 &&
         d->optimizer_place == DEEPSPEED_ON_DEVICE;
}

/* engine.backward() divides by the accumulation steps; an optimizer with a loss scaler multiplies
 * by its scale (runtime/engine.py; runtime/zero/stage_1_and_2.py and stage3.py, backward). */
LossScaling
deepspeed_loss(const PlanSpec *plan, int stage)
{
  const OptionValue *accumulation = plan_spec_option(plan, "grad_accum_dtype");
  gboolean fp32 = !accumulation->is_null && accumulation_dtype[accumulation->number] == DTYPE_FP32;
  gboolean on_device =
      place(plan, "offload_optimizer.device", "cpu_offload") == DEEPSPEED_ON_DEVICE;
  gboolean bf16_optimizer =
      stage == 1 && plan->precision.parameters == DTYPE_BF16 && fp32 && on_device;
  return stage == 0 || bf16_optimizer ? LOSS_DIVIDED : LOSS_DIVIDED_AND_SCALED;
}

/* ---- refusals ---- */

static gboolean
accept_options(const PlanSpec *plan, int stage, GError **error)
{
  static const char *const unsupported[] = {
      "offload_optimizer.super_offload", "zero_quantized_weights",
      "zero_quantized_nontrainable_weights", "zero_quantized_gradients"};
  const OptionValue *given = plan_spec_option(plan, "stage");
  if (given->given && given->number != stage)
    return plan_spec_refuse(plan, error, "deepspeed.stage", "strategy %s is stage %d",
                            plan->strategy, stage);
  for (gsize i = 0; i < G_N_ELEMENTS(unsupported); i++) {
    g_autofree char *key = g_strdup_printf("deepspeed.%s", unsupported[i]);
    if (flag(plan, unsupported[i]))
      return plan_spec_refuse(plan, error, key, "not yet supported");
  }
  if (plan_spec_number(plan, "offload_optimizer.device") == DEVICE_NVME)
    return plan_spec_refuse(plan, error, "deepspeed.offload_optimizer.device",
                            "nvme is not yet supported: none or cpu");
  if (plan_spec_number(plan, "offload_param.device") == DEVICE_NVME)
    return plan_spec_refuse(plan, error, "deepspeed.offload_param.device",
                            "nvme is not yet supported: none or cpu");
  if (place(plan, "offload_optimizer.device", "cpu_offload") == DEEPSPEED_ON_HOST && stage == 0)
    return plan_spec_refuse(plan, error, "deepspeed.offload_optimizer.device",
                            "stage 0 offloads nothing");
  if (place(plan, "offload_param.device", "cpu_offload_param") == DEEPSPEED_ON_HOST && stage != 3)
    return plan_spec_refuse(plan, error, "deepspeed.offload_param.device",
                            "only stage 3 offloads parameters");
  if (plan_spec_option(plan, "offload_optimizer.ratio")->real < 1 && stage != 3)
    return plan_spec_refuse(plan, error, "deepspeed.offload_optimizer.ratio",
                            "only stage 3 offloads a part");
  return TRUE;
}

static gboolean
accept_norm(const PlanSpec *plan, int stage, GError **error)
{
  if (flag(plan, "compute_grad_norm"))
    return TRUE;
  if (stage != 1 && stage != 2)
    return plan_spec_refuse(plan, error, "deepspeed.compute_grad_norm",
                            "false is for stages 1 and 2");
  if (plan->optimizer.clip_grad_norm > 0)
    return plan_spec_refuse(plan, error, "deepspeed.compute_grad_norm",
                            "false needs optimizer.clip_grad_norm off");
  if (place(plan, "offload_optimizer.device", "cpu_offload") == DEEPSPEED_ON_HOST)
    return plan_spec_refuse(plan, error, "deepspeed.compute_grad_norm",
                            "false does not go with optimizer offload");
  return TRUE;
}

gboolean
deepspeed_accept(const PlanSpec *plan, const Network *network, int stage, GError **error)
{
  (void) network;
  if (stage > 0 && plan->replicate != 1)
    return plan_spec_refuse(plan, error, "mesh.replicate",
                            "%s shards over all ranks: use mesh.shard", plan->strategy);
  if (plan->precision.autocast)
    return plan_spec_refuse(plan, error, "precision.autocast", "not yet supported under DeepSpeed");
  if (plan->optimizer.name == OPTIMIZER_NONE)
    return plan_spec_refuse(plan, error, "optimizer.name",
                            "DeepSpeed's engine needs an optimizer: adamw, adam or sgd");
  if (plan->optimizer.implementation == OPTIMIZER_COMPOSER)
    return plan_spec_refuse(plan, error, "optimizer.implementation",
                            "'composer' does not run under DeepSpeed: fused, foreach or forloop");
  if (plan->accumulation.sync_every_step_given && plan->accumulation.sync_every_step && stage < 2)
    return plan_spec_refuse(plan, error, "accumulation.sync_every_step",
                            "%s reduces at the last micro-batch only", plan->strategy);
  return strategy_accept_unsharded(plan, error) && accept_options(plan, stage, error) &&
         accept_norm(plan, stage, error);
}

/* ---- the throughput timer ---- */

#define TIMED_FROM_STEP 3

/* torch.cuda.synchronize(). */
static void
synchronize(StrategyContext *x)
{
  for (int stream = 0; stream < STREAM_HOST; stream++)
    program_builder_stream_sync(x->builder, (StreamId) stream);
}

void
deepspeed_begin_forward(StrategyContext *x)
{
  if (x->step >= TIMED_FROM_STEP)
    synchronize(x);
}

void
deepspeed_end_step(StrategyContext *x)
{
  if (x->step >= TIMED_FROM_STEP)
    synchronize(x);
}
