/* plan_formats.c - what plans become in the formats of accelerate, DeepSpeed and torchtitan. */
#include "import/plan_format.h"

#include <string.h>

#include "base/json_output.h"
#include "strategy/deepspeed.h"

#define MACHINE_RANKS 8 /* of the usual machine, to say how many there are */

const char *
plan_value_text(const cJSON *values, const char *key)
{
  const char *text = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(values, key));
  return text != NULL ? text : "";
}

gboolean
plan_value_true(const cJSON *values, const char *key)
{
  return cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(values, key));
}

static gboolean
is(const cJSON *values, const char *key, const char *text)
{
  return g_str_equal(plan_value_text(values, key), text);
}

static void
text(cJSON *object, const char *key, const char *value)
{
  cJSON_AddStringToObject(object, key, value);
}

static void
number(cJSON *object, const char *key, double value)
{
  cJSON_AddNumberToObject(object, key, value);
}

static void
truth(cJSON *object, const char *key, gboolean value)
{
  cJSON_AddBoolToObject(object, key, value);
}

/* ---- DeepSpeed ---- */

/* Options that the plan gives, under the keys of zero_optimization. */
static void
put_zero_options(cJSON *zero, const PlanSpec *spec, const cJSON *values)
{
  for (guint i = 0; deepspeed_section.options[i].key != NULL; i++) {
    const char *key = deepspeed_section.options[i].key;
    gboolean elsewhere = g_str_equal(key, "stage") || g_str_equal(key, "zero_init") ||
                         g_str_equal(key, "grad_accum_dtype");
    if (!spec->options[i].given || elsewhere)
      continue;
    g_autofree char *ours = g_strconcat("deepspeed.", key, NULL);
    json_replace_path(zero, key,
                      cJSON_Duplicate(cJSON_GetObjectItemCaseSensitive(values, ours), TRUE));
  }
}

static int
zero_stage(const PlanSpec *spec)
{
  return spec->strategy[strlen("zero")] - '0';
}

static cJSON *
write_deepspeed(const PlanSpec *spec, const cJSON *values)
{
  cJSON *root = cJSON_CreateObject();
  double rank_batch = (double) spec->micro_batch * spec->accumulation.steps;
  number(root, "train_batch_size", rank_batch * spec->shard * spec->replicate);
  number(root, "train_micro_batch_size_per_gpu", spec->micro_batch);
  number(root, "gradient_accumulation_steps", spec->accumulation.steps);
  number(root, "gradient_clipping", spec->optimizer.clip_grad_norm);
  const char *dtype = plan_value_text(values, "precision.parameters");
  if (!g_str_equal(dtype, "fp32"))
    truth(cJSON_AddObjectToObject(root, dtype), "enabled", TRUE);
  cJSON *zero = cJSON_AddObjectToObject(root, "zero_optimization");
  number(zero, "stage", zero_stage(spec));
  put_zero_options(zero, spec, values);
  const char *accumulation = plan_value_text(values, "deepspeed.grad_accum_dtype");
  if (*accumulation != '\0')
    text(cJSON_AddObjectToObject(root, "data_types"), "grad_accum_dtype", accumulation);
  return root;
}

/* ---- accelerate ---- */

static void
put_parallelism(cJSON *root, const PlanSpec *spec)
{
  cJSON *section = cJSON_AddObjectToObject(root, "parallelism_config");
  number(section, "parallelism_config_dp_replicate_size", spec->replicate);
  number(section, "parallelism_config_dp_shard_size", spec->shard);
}

static void
put_fsdp1(cJSON *fsdp, const cJSON *values)
{
  static const char *const moments[][2] = {
      {"pre", "BACKWARD_PRE"}, {"post", "BACKWARD_POST"}, {"none", "NO_PREFETCH"}};
  const char *strategy = plan_value_text(values, "fsdp.sharding_strategy");
  text(fsdp, "fsdp_sharding_strategy", strategy + (*strategy == '_'));
  for (guint i = 0; i < G_N_ELEMENTS(moments); i++)
    if (is(values, "fsdp.backward_prefetch", moments[i][0]))
      text(fsdp, "fsdp_backward_prefetch", moments[i][1]);
  const cJSON *forward = cJSON_GetObjectItemCaseSensitive(values, "fsdp.forward_prefetch");
  truth(fsdp, "fsdp_forward_prefetch", cJSON_GetNumberValue(forward) > 0);
  truth(fsdp, "fsdp_use_orig_params", plan_value_true(values, "fsdp.use_orig_params"));
}

static void
put_fsdp(cJSON *root, const PlanSpec *spec, const cJSON *values)
{
  cJSON *fsdp = cJSON_AddObjectToObject(root, "fsdp_config");
  const cJSON *blocks = cJSON_GetObjectItemCaseSensitive(values, "fsdp.blocks_per_group");
  gboolean is_new = g_str_equal(spec->strategy, "fsdp2");
  const CheckpointSpec *checkpointing = &spec->checkpointing;
  gboolean wrapped = is_new ? checkpointing->around == AROUND_FSDP
                            : checkpointing->around == AROUND_MODULE && checkpointing->wrapper;
  gboolean checkpoints = checkpointing->policy == CHECKPOINT_FULL && wrapped &&
                         checkpointing->early_stop && checkpointing->blocks == NULL;
  number(fsdp, "fsdp_version", is_new ? 2 : 1);
  if (is_new)
    truth(fsdp, "fsdp_reshard_after_forward",
          plan_value_true(values, "fsdp.reshard_after_forward"));
  else
    put_fsdp1(fsdp, values);
  text(fsdp, "fsdp_auto_wrap_policy",
       cJSON_GetNumberValue(blocks) > 0 ? "TRANSFORMER_BASED_WRAP" : "NO_WRAP");
  truth(fsdp, "fsdp_offload_params", plan_value_true(values, "fsdp.cpu_offload"));
  truth(fsdp, "fsdp_activation_checkpointing", checkpoints);
  truth(fsdp, "fsdp_cpu_ram_efficient_loading", TRUE);
  text(fsdp, "fsdp_state_dict_type", "SHARDED_STATE_DICT");
  if (is_new && spec->replicate > 1)
    put_parallelism(root, spec);
}

static void
put_device(cJSON *section, const char *key, const cJSON *values, const char *ours)
{
  const char *device = plan_value_text(values, ours);
  if (!g_str_equal(device, "none"))
    text(section, key, device);
}

static void
put_deepspeed(cJSON *root, const PlanSpec *spec, const cJSON *values)
{
  cJSON *section = cJSON_AddObjectToObject(root, "deepspeed_config");
  number(section, "zero_stage", zero_stage(spec));
  number(section, "gradient_accumulation_steps", spec->accumulation.steps);
  number(section, "gradient_clipping", spec->optimizer.clip_grad_norm);
  put_device(section, "offload_optimizer_device", values, "deepspeed.offload_optimizer.device");
  put_device(section, "offload_param_device", values, "deepspeed.offload_param.device");
  if (zero_stage(spec) == 3)
    truth(section, "zero3_init_flag", plan_value_true(values, "deepspeed.zero_init"));
}

/* FSDP1's hybrid sharding takes machines for replicas. */
static int
machines_of(const PlanSpec *spec)
{
  int ranks = spec->shard * spec->replicate;
  if (g_str_equal(spec->strategy, "fsdp1") && spec->shard > 1 && spec->replicate > 1)
    return spec->replicate;
  return ranks > MACHINE_RANKS && ranks % MACHINE_RANKS == 0 ? ranks / MACHINE_RANKS : 1;
}

static cJSON *
write_accelerate(const PlanSpec *spec, const cJSON *values)
{
  gboolean zero = g_str_has_prefix(spec->strategy, "zero");
  gboolean fsdp = g_str_has_prefix(spec->strategy, "fsdp");
  gboolean one = g_str_equal(spec->strategy, "none");
  gboolean mixed = zero ? spec->precision.parameters != DTYPE_FP32
                        : spec->precision.compute != spec->precision.parameters;
  cJSON *root = cJSON_CreateObject();
  text(root, "compute_environment", "LOCAL_MACHINE");
  text(root, "distributed_type", zero ? "DEEPSPEED" : fsdp ? "FSDP" : one ? "NO" : "MULTI_GPU");
  text(root, "mixed_precision", !mixed ? "no" : plan_value_text(values, "precision.compute"));
  number(root, "num_machines", machines_of(spec));
  number(root, "num_processes", spec->shard * spec->replicate);
  number(root, "machine_rank", 0);
  text(root, "main_training_function", "main");
  text(root, "rdzv_backend", "static");
  truth(root, "same_network", TRUE);
  truth(root, "use_cpu", FALSE);
  if (spec->compile_per_block)
    text(cJSON_AddObjectToObject(root, "dynamo_config"), "dynamo_backend", "INDUCTOR");
  if (fsdp)
    put_fsdp(root, spec, values);
  else if (zero)
    put_deepspeed(root, spec, values);
  return root;
}

/* ---- torchtitan ---- */

static const char *
titan_dtype(const cJSON *values, const char *key)
{
  return is(values, key, "bf16") ? "bfloat16" : is(values, key, "fp16") ? "float16" : "float32";
}

static void
put_titan_training(cJSON *root, const PlanSpec *spec, const cJSON *values)
{
  cJSON *training = cJSON_AddObjectToObject(root, "training");
  int ranks = spec->shard * spec->replicate;
  number(training, "local_batch_size", spec->micro_batch);
  number(training, "global_batch_size",
         (double) spec->micro_batch * spec->accumulation.steps * ranks);
  number(training, "seq_len", spec->sequence_length);
  if (spec->optimizer.clip_grad_norm > 0)
    number(training, "max_norm", spec->optimizer.clip_grad_norm);
  text(training, "dtype", titan_dtype(values, "precision.parameters"));
  text(training, "mixed_precision_param", titan_dtype(values, "precision.compute"));
  text(training, "mixed_precision_reduce", titan_dtype(values, "precision.reduce"));
  truth(training, "enable_cpu_offload", plan_value_true(values, "fsdp.cpu_offload"));
}

static void
put_titan_parallelism(cJSON *root, const PlanSpec *spec, const cJSON *values)
{
  cJSON *parallelism = cJSON_AddObjectToObject(root, "parallelism");
  gboolean always = plan_value_true(values, "fsdp.reshard_head");
  gboolean reshards = plan_value_true(values, "fsdp.reshard_after_forward");
  number(parallelism, "data_parallel_replicate_degree", spec->replicate);
  number(parallelism, "data_parallel_shard_degree", spec->shard);
  text(parallelism, "fsdp_reshard_after_forward",
       always     ? "always"
       : reshards ? "default"
                  : "never");
  number(parallelism, "tensor_parallel_degree", 1);
  number(parallelism, "pipeline_parallel_degree", 1);
  number(parallelism, "context_parallel_degree", 1);
}

static void
put_titan_checkpointing(cJSON *root, const PlanSpec *spec)
{
  cJSON *section = cJSON_AddObjectToObject(root, "activation_checkpoint");
  const CheckpointSpec *c = &spec->checkpointing;
  gboolean selective = c->policy == CHECKPOINT_EVERY_N || c->policy == CHECKPOINT_SELECTIVE_OP;
  g_autofree char *every = g_strdup_printf("%d", c->every);
  text(section, "mode", selective ? "selective" : c->policy == CHECKPOINT_FULL ? "full" : "none");
  if (selective)
    text(section, "selective_ac_option", c->policy == CHECKPOINT_EVERY_N ? every : "op");
  if (checkpoint_spec_recomputes(c))
    truth(section, "early_stop", c->early_stop);
}

static cJSON *
write_torchtitan(const PlanSpec *spec, const cJSON *values)
{
  static const char *const codes[] = {"fused", "foreach", "for-loop", "fused"};
  cJSON *root = cJSON_CreateObject();
  cJSON *optimizer = cJSON_AddObjectToObject(root, "optimizer");
  text(optimizer, "name", spec->optimizer.name == OPTIMIZER_ADAM ? "Adam" : "AdamW");
  text(optimizer, "implementation", codes[spec->optimizer.implementation]);
  put_titan_training(root, spec, values);
  put_titan_parallelism(root, spec, values);
  put_titan_checkpointing(root, spec);
  cJSON *compile = cJSON_AddObjectToObject(root, "compile");
  truth(compile, "enable", spec->compile_per_block);
  if (spec->compile_per_block)
    cJSON_AddItemToObject(compile, "components",
                          cJSON_CreateStringArray((const char *const[]){"model"}, 1));
  return root;
}

/* ---- the formats ---- */

const PlanFormat plan_format_accelerate = {
    .name = "accelerate",
    .title = "accelerate",
    .language = CONFIG_YAML,
    .strategies = (const char *const[]){"none", "ddp", "fsdp1", "fsdp2", "zero0", "zero1", "zero2",
                                        "zero3", NULL},
    .script = (const char *const[]){"batch",
                                    "accumulation",
                                    "activation_checkpointing",
                                    "optimizer",
                                    "precision.parameters",
                                    "precision.autocast",
                                    "precision.output",
                                    "precision.grad_scaler",
                                    "fsdp.embedding",
                                    "fsdp.head",
                                    "fsdp.reshard_root",
                                    "fsdp.cast_buffers",
                                    "trainable",
                                    "lora",
                                    "phases",
                                    "retain",
                                    "allocator",
                                    "ranks",
                                    "failure",
                                    "ddp",
                                    "loop",
                                    "trainer",
                                    NULL},
    .write = write_accelerate,
};

const PlanFormat plan_format_deepspeed = {
    .name = "deepspeed",
    .title = "DeepSpeed",
    .language = CONFIG_JSON,
    .strategies = (const char *const[]){"zero0", "zero1", "zero2", "zero3", NULL},
    .script =
        (const char *const[]){"batch.sequence_length", "activation_checkpointing", "optimizer.name",
                              "optimizer.implementation", "optimizer.zero_grad",
                              "deepspeed.zero_init", "accumulation.sync_every_step", "trainable",
                              "lora", "phases", "retain", "allocator", "ranks", "failure",
                              "compile", "loop", "trainer", NULL},
    .write = write_deepspeed,
};

const PlanFormat plan_format_torchtitan = {
    .name = "torchtitan",
    .title = "torchtitan",
    .language = CONFIG_TOML,
    .strategies = (const char *const[]){"none", "ddp", "fsdp2", NULL},
    .script = (const char *const[]){"trainable", "phases", "retain", "allocator", "ranks",
                                    "failure", "loop", "trainer", NULL},
    .write = write_torchtitan,
};
