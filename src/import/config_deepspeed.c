/* config_deepspeed.c - DeepSpeed's JSON: batch sizes, precision, optimizer and ZeRO. */
#include "import/config_deepspeed.h"

#include <string.h>

#include "base/nearest_name.h"
#include "import/config_batch.h"
#include "strategy/deepspeed.h"

#define ZERO "zero_optimization."
#define CLIP_DEFAULT 1.0 /* deepspeed 0.19.8, runtime/constants.py */
#define CLIP_MOST 1e9

static void copy_zero(ConfigReader *r, const ConfigRow *row, const char *key, const cJSON *item);

#define VALUES "values of the update, not sizes"
#define PRINTS "prints and records only"
#define FILES "files, not steps"

static const ConfigRow rows[] = {
    {"train_batch_size", config_later, NULL, NULL},
    {"train_micro_batch_size_per_gpu", config_later, NULL, NULL},
    {"gradient_accumulation_steps", config_later, NULL, NULL},
    {"gradient_clipping", config_later, NULL, NULL},
    {"fp16.enabled", config_later, NULL, NULL},
    {"fp16.fp16_master_weights_and_grads", config_refuse_on, NULL, "16-bit master weights"},
    {"fp16.*", config_ignore, NULL, "scaling of the loss: values, not sizes"},
    {"bf16.enabled", config_later, NULL, NULL},
    {"bf16.bf16_master_weights_and_grads", config_refuse_on, NULL, "16-bit master weights"},
    {"bf16.bf16_optimizer_states", config_refuse_on, NULL, "16-bit optimizer states"},
    {"bf16.*", config_ignore, NULL, "checks and order of updates, not sizes"},
    {"bfloat16.enabled", config_later, NULL, NULL},
    {"amp.*", config_refuse_enabled, NULL, "apex amp"},
    {"torch_autocast.*", config_refuse_enabled, NULL, "autocast under DeepSpeed"},
    {"optimizer.type", config_later, NULL, NULL},
    {"optimizer.params.torch_adam", config_later, NULL, NULL},
    {"optimizer.params.momentum", config_later, NULL, NULL},
    {"optimizer.params.*", config_ignore, NULL, VALUES},
    {"optimizer.legacy_fusion", config_ignore, NULL, "of LAMB only"},
    {"scheduler.*", config_ignore, NULL, "the learning rate: values, not sizes"},
    {ZERO "*", copy_zero, NULL, NULL},
    {"zero_optimization", config_later, NULL, NULL},
    {"data_types.grad_accum_dtype", config_later, NULL, NULL},
    {"communication_data_type", config_later, NULL, NULL},
    {"seq_parallel_communication_data_type", config_ignore, NULL, "of sequence parallelism"},
    {"zero_allow_untested_optimizer", config_ignore, NULL, "a check"},
    {"zero_force_ds_cpu_optimizer", config_ignore, NULL,
     "which code updates on the host; no memory of the device"},
    {"steps_per_print", config_ignore, NULL, PRINTS},
    {"wall_clock_breakdown", config_ignore, NULL, PRINTS},
    {"memory_breakdown", config_ignore, NULL, PRINTS},
    {"dump_state", config_ignore, NULL, PRINTS},
    {"tensorboard.*", config_ignore, NULL, PRINTS},
    {"wandb.*", config_ignore, NULL, PRINTS},
    {"comet.*", config_ignore, NULL, PRINTS},
    {"csv_monitor.*", config_ignore, NULL, PRINTS},
    {"monitor_config.*", config_ignore, NULL, PRINTS},
    {"flops_profiler.*", config_ignore, NULL, PRINTS},
    {"comms_logger.*", config_ignore, NULL, PRINTS},
    {"timers.*", config_ignore, NULL, PRINTS},
    {"prescale_gradients", config_ignore, NULL, "where gradients are divided: values, not sizes"},
    {"gradient_predivide_factor", config_ignore, NULL, "values, not sizes"},
    {"sparse_gradients", config_refuse_on, NULL, "sparse gradients of embeddings"},
    {"fp32_allreduce", config_refuse_on, NULL, "reduction in another dtype than the gradients'"},
    {"disable_allgather", config_ignore, NULL, "not used by ZeRO"},
    {"activation_checkpointing.*", config_ignore, NULL,
     "settings of deepspeed.checkpointing, which a model has to call itself; give the plan's "
     "activation_checkpointing"},
    {"aio.*", config_ignore, NULL, "for NVMe"},
    {"checkpoint.*", config_ignore, NULL, FILES},
    {"load_universal_checkpoint", config_ignore, NULL, FILES},
    {"nebula.*", config_ignore, NULL, FILES},
    {"dataloader_drop_last", config_ignore, NULL, "which samples, not how many at once"},
    {"seed", config_ignore, NULL, "random numbers"},
    {"disable_python_gc", config_ignore, NULL, "the host's garbage collection"},
    {"elasticity.*", config_refuse_enabled, NULL, "elastic training"},
    {"autotuning.*", config_refuse_enabled, NULL, "autotuning, which replaces the other settings"},
    {"compile.*", config_refuse_enabled, NULL, "DeepSpeed's compilation"},
    {"compression_training.*", config_refuse_enabled, NULL, "compression of weights"},
    {"data_efficiency.*", config_refuse_enabled, NULL, "sampling that changes sequence lengths"},
    {"curriculum_learning.*", config_refuse_enabled, NULL, "sequence lengths that change"},
    {"progressive_layer_drop.*", config_refuse_enabled, NULL, "dropping layers"},
    {"eigenvalue.*", config_refuse_enabled, NULL, "eigenvalues of layers"},
    {"quantize_training.*", config_refuse_enabled, NULL, "quantized training"},
    {"hybrid_engine.*", config_refuse_enabled, NULL, "the hybrid engine"},
    {"sparse_attention.*", config_ignore, NULL, "of DeepSpeed's own attention layer only"},
    {"pipeline.*", config_ignore, NULL, "of PipelineModule only"},
    {"tensor_parallel.autotp_size", config_refuse_on, NULL, "tensor parallelism"},
    {"tensor_parallel.*", config_ignore, NULL, "of tensor parallelism, which is off"},
    {"sequence_parallel_size", config_refuse_on, NULL, "sequence parallelism"},
    {"data_parallel_size", config_ignore, NULL, "follows from the others"},
    {"use_data_before_expert_parallelism", config_ignore, NULL, "of expert parallelism"},
    {"train_steps", config_ignore, NULL, "how long, not how"},
    {0},
};

DeepSpeedOutside
deepspeed_outside_none(void)
{
  return (DeepSpeedOutside){.clip = -1};
}

/* ---- zero_optimization ---- */

/* What DeepSpeed's pydantic model takes as well: names without stage3_, and what has gone. */
static const ConfigRow zero_rows[] = {
    {"grad_hooks", config_ignore, NULL, "no longer read by DeepSpeed"},
    {"mics_shard_size", config_refuse_on, NULL, "MiCS"},
    {"mics_hierarchical_params_gather", config_refuse_on, NULL, "MiCS"},
    {"zeropp_loco_param", config_refuse_on, NULL, "compressed gradients"},
    {"zero_hpz_partition_size_auto", config_ignore, NULL, "no longer read by DeepSpeed"},
    {"use_all_reduce_for_fetch_params", config_refuse_on, NULL, "fetching by all-reduce"},
    {0},
};

static const OptionInfo *
find_option(const char *key)
{
  int index = option_section_index(&deepspeed_section, key);
  return index >= 0 ? &deepspeed_section.options[index] : NULL;
}

static void
unknown_zero(ConfigReader *r, const char *key, const char *inner)
{
  g_autoptr(GPtrArray) names = g_ptr_array_new();
  for (const OptionInfo *o = deepspeed_section.options; o->key != NULL; o++)
    g_ptr_array_add(names, (gpointer) (gsize) o->key);
  g_ptr_array_add(names, NULL);
  const char *near = misspelt_name(inner, (const char *const *) names->pdata);
  if (near != NULL)
    config_fail(r, key, "unknown; did you mean '%s'?", near);
  else
    config_note(r, CONFIG_IGNORED, key,
                "not known to highwater: taken to change neither memory nor time");
}

/* The item as the option's type has it; NULL after an error. */
static cJSON *
option_value(ConfigReader *r, const OptionInfo *option, const char *key, const cJSON *item)
{
  switch (option->type) {
  case OPTION_BOOL:
    return cJSON_CreateBool(config_bool(r, key, FALSE));
  case OPTION_INT:
  case OPTION_INT_OR_AUTO:
  case OPTION_REAL:
    return cJSON_CreateNumber(config_number(r, key, 0));
  default:
    return cJSON_Duplicate(item, TRUE);
  }
}

static void
copy_option(ConfigReader *r, const OptionInfo *option, const char *key, const cJSON *item)
{
  g_autofree char *ours = g_strconcat("deepspeed.", option->key, NULL);
  if (!config_is_auto(r, key)) {
    cJSON *value = option_value(r, option, key, item);
    if (config_failed(r))
      cJSON_Delete(value);
    else
      config_use(r, key, ours, value, NULL);
  } else if (option->type == OPTION_INT_OR_AUTO) {
    config_use(r, key, ours, cJSON_CreateString("auto"), "from the hidden size");
  } else {
    config_note(r, CONFIG_IGNORED, key, "auto: DeepSpeed's default, %s", option->fallback);
  }
}

static void
copy_zero(ConfigReader *r, const ConfigRow *row, const char *key, const cJSON *item)
{
  (void) row;
  const char *inner = key + strlen(ZERO);
  if (g_str_equal(inner, "stage")) {
    config_later(r, row, key, item);
    return;
  }
  g_autofree char *long_name = g_strconcat("stage3_", inner, NULL);
  const OptionInfo *option = find_option(inner);
  if (option == NULL || g_str_equal(inner, "zero_init") || g_str_equal(inner, "grad_accum_dtype"))
    option = find_option(long_name);
  if (option != NULL) {
    copy_option(r, option, key, item);
    return;
  }
  for (const ConfigRow *other = zero_rows; other->key != NULL; other++)
    if (g_str_equal(other->key, inner)) {
      other->action(r, other, key, item);
      return;
    }
  unknown_zero(r, key, inner);
}

static void
read_stage(ConfigReader *r)
{
  static const char *const strategies[] = {"zero0", "zero1", "zero2", "zero3"};
  int stage = config_int(r, ZERO "stage", 0, 0, 3);
  const cJSON *zero = config_get(r, "zero_optimization");
  if (cJSON_IsBool(zero)) {
    stage = cJSON_IsTrue(zero);
    config_use(r, "zero_optimization", "strategy", cJSON_CreateString(strategies[stage]),
               "DeepSpeed's first form of the section");
  } else if (config_has(r, ZERO "stage") && !config_is_auto(r, ZERO "stage")) {
    config_use(r, ZERO "stage", "strategy", cJSON_CreateString(strategies[stage]), NULL);
  } else {
    config_default(r, "strategy", cJSON_CreateString("zero0"),
                   "zero_optimization.stage is missing: DeepSpeed without ZeRO");
  }
}

/* ---- precision ---- */

static gboolean
is_enabled(ConfigReader *r, const char *key, const DeepSpeedOutside *outside, const char *dtype)
{
  if (!config_is_auto(r, key))
    return config_bool(r, key, FALSE);
  return outside->dtype != NULL && g_str_equal(outside->dtype, dtype);
}

static void
tell_switch(ConfigReader *r, const char *key, const char *dtype, const char *chosen,
            const DeepSpeedOutside *outside)
{
  if (!config_has(r, key))
    return;
  gboolean is_auto = config_is_auto(r, key);
  const char *who = outside->who != NULL ? outside->who : "the training script";
  if (g_str_equal(dtype, chosen))
    config_use(r, key, "precision.parameters", cJSON_CreateString(dtype),
               is_auto ? "auto: %s%s" : NULL, who,
               outside->dtype != NULL ? "" : " says; taken to be on");
  else if (is_auto)
    config_note(r, CONFIG_IGNORED, key, "auto: %s%s", who,
                outside->dtype != NULL ? " says otherwise" : " says; taken to be off");
  else
    config_note(r, CONFIG_IGNORED, key, "off");
}

static void
read_precision(ConfigReader *r, const DeepSpeedOutside *outside)
{
  const char *bf16_key = config_has(r, "bf16.enabled") ? "bf16.enabled" : "bfloat16.enabled";
  gboolean bf16 = is_enabled(r, bf16_key, outside, "bf16");
  gboolean fp16 = is_enabled(r, "fp16.enabled", outside, "fp16");
  if (bf16 && fp16)
    config_fail(r, "fp16.enabled", "contradicts '%s': only one of them can be true", bf16_key);
  const char *said = outside->dtype;
  if (said != NULL && (bf16 || fp16) && !g_str_equal(said, bf16 ? "bf16" : "fp16") &&
      (outside->is_dtype_strict || !g_str_equal(said, "fp32")))
    config_fail(r, bf16 ? bf16_key : "fp16.enabled", "contradicts %s, which says %s", outside->who,
                said);
  gboolean given = config_has(r, bf16_key) || config_has(r, "fp16.enabled");
  if (!bf16 && !fp16 && said == NULL && config_is_auto(r, bf16_key))
    bf16 = TRUE;
  else if (!bf16 && !fp16 && said == NULL && config_is_auto(r, "fp16.enabled"))
    fp16 = TRUE;
  const char *chosen = bf16 ? "bf16" : fp16 ? "fp16" : !given && said != NULL ? said : "fp32";
  tell_switch(r, bf16_key, "bf16", chosen, outside);
  tell_switch(r, "fp16.enabled", "fp16", chosen, outside);
  g_autofree char *reason =
      !given && said != NULL
          ? g_strdup_printf("from %s", outside->who)
          : g_strdup("neither bf16.enabled nor fp16.enabled is true: DeepSpeed trains in fp32");
  config_default(r, "precision.parameters", cJSON_CreateString(chosen), reason);
}

/* ---- dtypes that stand elsewhere ---- */

static const char *
dtype_of(const char *name)
{
  static const char *const names[][2] = {
      {"fp32", "fp32"}, {"float32", "fp32"}, {"float", "fp32"},
      {"fp16", "fp16"}, {"float16", "fp16"}, {"half", "fp16"},
      {"bf16", "bf16"}, {"bfp16", "bf16"},   {"bfloat16", "bf16"},
  };
  for (guint i = 0; i < G_N_ELEMENTS(names); i++)
    if (g_str_equal(name, names[i][0]))
      return names[i][1];
  return NULL;
}

static void
read_dtypes(ConfigReader *r)
{
  const char *key = "data_types.grad_accum_dtype", *name = config_text(r, key, NULL);
  if (name != NULL && config_is_auto(r, key))
    config_note(r, CONFIG_IGNORED, key, "auto: the parameters' dtype");
  else if (name != NULL && dtype_of(name) == NULL)
    config_fail(r, key, "'%.60s' is not one of fp32, fp16, bf16", name);
  else if (name != NULL)
    config_use(r, key, "deepspeed.grad_accum_dtype", cJSON_CreateString(dtype_of(name)), NULL);

  key = "communication_data_type", name = config_text(r, key, NULL);
  const cJSON *precision = cJSON_GetObjectItem(r->result->plan, "precision");
  const char *own = cJSON_GetStringValue(cJSON_GetObjectItem(precision, "parameters"));
  if (name == NULL)
    return;
  if (config_is_auto(r, key) || g_strcmp0(dtype_of(name), own) == 0)
    config_note(r, CONFIG_IGNORED, key, "the dtype of the gradients, as without it");
  else
    config_fail(r, key, "'%.60s': reduction in another dtype than the gradients' is not supported",
                name);
}

/* ---- optimizer, clipping ---- */

/* DeepSpeed's Adam is its fused AdamW unless told otherwise (runtime/engine.py,
 * _configure_basic_optimizer); SGD is PyTorch's. */
static void
read_optimizer(ConfigReader *r, const DeepSpeedOutside *outside)
{
  const char *type = config_text(r, "optimizer.type", NULL);
  if (type == NULL) {
    config_default(r, "optimizer.name",
                   cJSON_CreateString(outside->optimizer != NULL ? outside->optimizer : "adamw"),
                   outside->optimizer != NULL
                       ? "from the enclosing configuration"
                       : "the training script makes the optimizer (the Trainer's default)");
    config_default(
        r, "optimizer.implementation",
        cJSON_CreateString(outside->implementation != NULL ? outside->implementation : "fused"),
        outside->implementation != NULL
            ? "from the enclosing configuration"
            : "the training script makes the optimizer (the Trainer's default)");
    return;
  }
  g_autofree char *lower = g_ascii_strdown(type, -1);
  gboolean adam = g_str_equal(lower, "adam") || g_str_equal(lower, "adamw");
  if (!adam && !g_str_equal(lower, "sgd")) {
    config_fail(r, "optimizer.type",
                "'%.60s': its states are not simulated, only those of Adam, AdamW and SGD", type);
    return;
  }
  config_use(r, "optimizer.type", "optimizer.name", cJSON_CreateString(adam ? "adamw" : "sgd"),
             NULL);
  gboolean torch = !adam || config_bool(r, "optimizer.params.torch_adam", FALSE);
  if (adam && config_has(r, "optimizer.params.torch_adam"))
    config_use(r, "optimizer.params.torch_adam", "optimizer.implementation",
               cJSON_CreateString(torch ? "foreach" : "fused"), NULL);
  else
    config_default(r, "optimizer.implementation", cJSON_CreateString(torch ? "foreach" : "fused"),
                   adam ? "DeepSpeed's own Adam is one fused kernel" : "PyTorch's default");
  if (!adam && config_number(r, "optimizer.params.momentum", 0) <= 0)
    config_fail(r, "optimizer.type", "SGD without momentum is not simulated");
  else if (!adam)
    config_note(r, CONFIG_USED, "optimizer.params.momentum", "a momentum for each parameter");
}

static void
read_clipping(ConfigReader *r, const DeepSpeedOutside *outside)
{
  const char *key = "gradient_clipping";
  double clip = config_number(r, key, outside->clip >= 0 ? outside->clip : CLIP_DEFAULT);
  if (config_failed(r))
    return;
  if (clip < 0 || clip > CLIP_MOST)
    config_fail(r, key, "%.17g is not in 0..%g", clip, CLIP_MOST);
  else if (config_has(r, key) && !config_is_auto(r, key) && outside->clip >= 0 &&
           (clip < outside->clip || clip > outside->clip))
    config_fail(r, key, "%g contradicts %s, which says %g", clip, outside->who, outside->clip);
  else if (config_has(r, key))
    config_use(r, key, "optimizer.clip_grad_norm", cJSON_CreateNumber(clip),
               config_is_auto(r, key) ? "auto: %s" : NULL,
               outside->clip >= 0 ? outside->who : "DeepSpeed's default");
  else
    config_default(r, "optimizer.clip_grad_norm", cJSON_CreateNumber(clip),
                   outside->clip >= 0 ? "from the enclosing configuration"
                                      : "DeepSpeed 0.19.8 clips at 1 where gradient_clipping is "
                                        "missing (older ones do not clip)");
}

/* ---- all of it ---- */

static void
check_outside(ConfigReader *r, const char *key, int outside, const char *who)
{
  int own = config_int(r, key, outside, 0, G_MAXINT32);
  if (outside > 0 && own > 0 && own != outside)
    config_fail(r, key, "%d contradicts %s, which says %d", own, who, outside);
}

static void
read_batches(ConfigReader *r, const DeepSpeedOutside *outside)
{
  check_outside(r, "train_micro_batch_size_per_gpu", outside->micro, outside->who);
  check_outside(r, "gradient_accumulation_steps", outside->steps, outside->who);
  g_autofree char *reason =
      g_strdup_printf("from %s", outside->who != NULL ? outside->who : "the training script");
  ConfigBatch batch = {
      .total_key = "train_batch_size",
      .micro_key = "train_micro_batch_size_per_gpu",
      .steps_key = "gradient_accumulation_steps",
      .micro = outside->micro,
      .steps = outside->steps,
      .ranks = outside->ranks > 0 ? outside->ranks : r->result->settings->ranks,
      .micro_reason = reason,
      .steps_reason = outside->steps > 0 ? reason : "DeepSpeed's default",
  };
  gboolean known = batch.ranks > 0;
  config_batch_resolve(r, &batch);
  if (config_failed(r))
    return;
  gboolean derived =
      batch.total > 0 && config_has(r, batch.micro_key) && config_has(r, batch.steps_key) && !known;
  config_default(r, "mesh.shard", cJSON_CreateNumber(batch.ranks),
                 outside->ranks > 0 ? "ranks, from the enclosing configuration"
                 : known            ? "--ranks"
                 : derived          ? "ranks: train_batch_size / (micro batch x accumulation)"
                                    : "DeepSpeed's file does not say how many ranks there are");
}

void
config_read_deepspeed(ConfigReader *r, const DeepSpeedOutside *outside)
{
  r->rows = rows;
  config_reader_walk(r);
  if (!config_failed(r)) {
    read_stage(r);
    read_batches(r, outside);
    read_precision(r, outside);
    read_dtypes(r);
    read_optimizer(r, outside);
    read_clipping(r, outside);
  }
  config_reader_end(r);
}

static void
read(ConfigReader *r)
{
  DeepSpeedOutside none = deepspeed_outside_none();
  config_read_deepspeed(r, &none);
  config_default(r, "activation_checkpointing.policy", cJSON_CreateString("none"),
                 "the model says it (gradient_checkpointing_enable)");
}

static const char *const marks[] = {"train_batch_size",
                                    "train_micro_batch_size_per_gpu",
                                    "zero_optimization",
                                    "gradient_clipping",
                                    "zero_allow_untested_optimizer",
                                    "steps_per_print",
                                    "wall_clock_breakdown",
                                    "bf16.enabled",
                                    "fp16.enabled",
                                    "optimizer.params",
                                    CONFIG_SCRIPT_KEY,
                                    NULL};

const ConfigKind config_kind_deepspeed = {
    .title = "DeepSpeed",
    .marks = marks,
    .read = read,
};
