/* config_arguments.c - TrainingArguments of Hugging Face's Trainer (and of trainers made of it). */
#include <string.h>

#include "import/config_batch.h"
#include "import/config_deepspeed.h"
#include "import/config_file.h"
#include "import/config_fsdp.h"

#define RANKS_MOST (1 << 24)
#define CLIP_DEFAULT 1.0
#define MICRO_DEFAULT 8
#define WHO "TrainingArguments"
#define LOGS "prints and records only"
#define EVAL "evaluation, which is no part of a step (the plan's phases.evaluate)"
#define SAVE "checkpoints, which are no part of a step (the plan's phases.save)"
#define VALUES "values of the update, not sizes"
#define LENGTH "how long, or which random numbers"
#define DATA "the host's data pipeline"
#define LAUNCH "how processes are started and talk"
#define MODEL "the network is given beside the plan"

static const ConfigRow rows[] = {
    {"per_device_train_batch_size", config_later, NULL, NULL},
    {"per_gpu_train_batch_size", config_later, NULL, NULL},
    {"gradient_accumulation_steps", config_later, NULL, NULL},
    {"bf16", config_later, NULL, NULL},
    {"fp16", config_later, NULL, NULL},
    {"max_grad_norm", config_later, NULL, NULL},
    {"optim", config_later, NULL, NULL},
    {"optim_args", config_later, NULL, NULL},
    {"gradient_checkpointing", config_later, NULL, NULL},
    {"gradient_checkpointing_kwargs", config_later, NULL, NULL},
    {"activation_checkpointing", config_later, NULL, NULL},
    {"activation_checkpointing_kwargs", config_later, NULL, NULL},
    {"torch_compile", config_later, NULL, NULL},
    {"torch_compile_backend", config_later, NULL, NULL},
    {"torch_compile_mode", config_later, NULL, NULL},
    {"fsdp", config_later, NULL, NULL},
    {"fsdp_config", config_later, NULL, NULL},
    {"fsdp_min_num_params", config_later, NULL, NULL},
    {"fsdp_transformer_layer_cls_to_wrap", config_later, NULL, NULL},
    {"deepspeed", config_later, NULL, NULL},
    {"max_seq_length", config_copy, "batch.sequence_length", "the longest sequence"},
    {"max_length", config_copy, "batch.sequence_length", "the longest sequence"},
    {"block_size", config_copy, "batch.sequence_length", NULL},
    {"model_max_length", config_copy, "batch.sequence_length", "the longest sequence"},
    {"cutoff_len", config_copy, "batch.sequence_length", "the longest sequence"},
    {"ddp_find_unused_parameters", config_later, NULL, NULL},
    {"ddp_bucket_cap_mb", config_later, NULL, NULL},
    {"ddp_broadcast_buffers", config_later, NULL, NULL},
    {"ddp_static_graph", config_later, NULL, NULL},
    {"use_cpu", config_refuse_on, NULL, "training on the CPU"},
    {"adafactor", config_refuse_on, NULL, "Adafactor"},
    {"sharded_ddp", config_refuse_on, NULL, "fairscale's sharded DDP"},
    {"fp16_backend", config_refuse_on, NULL, "another backend of mixed precision"},
    {"half_precision_backend", config_later, NULL, NULL},
    {"fp16_opt_level", config_ignore, NULL, "of apex"},
    {"parallelism_config", config_refuse_on, NULL, "parallelism_config"},
    {"auto_find_batch_size", config_refuse_on, NULL,
     "a batch size that is found by running out of memory"},
    {"neftune_noise_alpha", config_refuse_positive, NULL, "noise on embeddings"},
    {"load_in_8bit", config_refuse_on, NULL, "8-bit weights"},
    {"load_in_4bit", config_refuse_on, NULL, "4-bit weights"},
    {"use_peft", config_refuse_on, NULL, "adapters (the plan's lora says which)"},
    {"full_determinism", config_ignore, NULL,
     "NOT SIMULATED: deterministic kernels, which may take memory of their own"},
    {"torch_empty_cache_steps", config_ignore, NULL,
     "NOT SIMULATED: the allocator's cache is emptied every so many steps"},
    {"use_liger_kernel", config_ignore, NULL,
     "NOT SIMULATED: the network says its kernels (implementation.loss)"},
    {"liger_kernel_config", config_ignore, NULL, "of Liger kernels"},
    {"use_liger", config_ignore, NULL,
     "NOT SIMULATED: the network says its kernels (implementation.loss)"},
    {"tf32", config_ignore, NULL, "NOT SIMULATED: products of fp32 take the device's fp32 rate"},
    {"optim_target_modules", config_ignore, NULL, "of GaLore and APOLLO only"},
    {"logging_dir", config_ignore, NULL, LOGS},
    {"logging_strategy", config_ignore, NULL, LOGS},
    {"logging_steps", config_ignore, NULL, LOGS},
    {"logging_first_step", config_ignore, NULL, LOGS},
    {"log_on_each_node", config_ignore, NULL, LOGS},
    {"logging_nan_inf_filter", config_copy_bool, "trainer.nan_filter", NULL},
    {"include_num_input_tokens_seen", config_ignore, NULL, LOGS},
    {"include_tokens_per_second", config_ignore, NULL, LOGS},
    {"log_level", config_ignore, NULL, LOGS},
    {"log_level_replica", config_ignore, NULL, LOGS},
    {"disable_tqdm", config_ignore, NULL, LOGS},
    {"report_to", config_ignore, NULL, LOGS},
    {"run_name", config_ignore, NULL, LOGS},
    {"project", config_ignore, NULL, LOGS},
    {"trackio_space_id", config_ignore, NULL, LOGS},
    {"trackio_bucket_id", config_ignore, NULL, LOGS},
    {"trackio_static_space_id", config_ignore, NULL, LOGS},
    {"skip_memory_metrics", config_ignore, NULL, LOGS},
    {"debug", config_ignore, NULL, LOGS},
    {"use_legacy_prediction_loop", config_ignore, NULL, LOGS},
    {"mp_parameters", config_ignore, NULL, LOGS},
    {"evaluation_strategy", config_ignore, NULL, EVAL},
    {"eval_strategy", config_ignore, NULL, EVAL},
    {"eval_steps", config_ignore, NULL, EVAL},
    {"eval_delay", config_ignore, NULL, EVAL},
    {"per_device_eval_batch_size", config_ignore, NULL, EVAL},
    {"per_gpu_eval_batch_size", config_ignore, NULL, EVAL},
    {"prediction_loss_only", config_ignore, NULL, EVAL},
    {"eval_on_start", config_ignore, NULL, EVAL},
    {"eval_do_concat_batches", config_ignore, NULL, EVAL},
    {"eval_use_gather_object", config_ignore, NULL, EVAL},
    {"eval_accumulation_steps", config_ignore, NULL, EVAL},
    {"include_for_metrics", config_ignore, NULL, EVAL},
    {"include_inputs_for_metrics", config_ignore, NULL, EVAL},
    {"batch_eval_metrics", config_ignore, NULL, EVAL},
    {"bf16_full_eval", config_ignore, NULL, EVAL},
    {"fp16_full_eval", config_ignore, NULL, EVAL},
    {"do_eval", config_ignore, NULL, EVAL},
    {"do_predict", config_ignore, NULL, EVAL},
    {"metric_for_best_model", config_ignore, NULL, EVAL},
    {"greater_is_better", config_ignore, NULL, EVAL},
    {"load_best_model_at_end", config_ignore, NULL, EVAL},
    {"label_names", config_ignore, NULL, EVAL},
    {"predict_with_generate", config_ignore, NULL, EVAL},
    {"generation_max_length", config_ignore, NULL, EVAL},
    {"generation_num_beams", config_ignore, NULL, EVAL},
    {"generation_config", config_ignore, NULL, EVAL},
    {"sortish_sampler", config_ignore, NULL, EVAL},
    {"dispatch_batches", config_ignore, NULL, EVAL},
    {"split_batches", config_ignore, NULL, EVAL},
    {"output_dir", config_ignore, NULL, SAVE},
    {"overwrite_output_dir", config_ignore, NULL, SAVE},
    {"save_only_model", config_ignore, NULL, SAVE},
    {"save_strategy", config_ignore, NULL, SAVE},
    {"save_steps", config_ignore, NULL, SAVE},
    {"save_on_each_node", config_ignore, NULL, SAVE},
    {"save_total_limit", config_ignore, NULL, SAVE},
    {"save_safetensors", config_ignore, NULL, SAVE},
    {"enable_jit_checkpoint", config_ignore, NULL, SAVE},
    {"push_to_hub", config_ignore, NULL, SAVE},
    {"hub_token", config_ignore, NULL, SAVE},
    {"hub_private_repo", config_ignore, NULL, SAVE},
    {"hub_model_id", config_ignore, NULL, SAVE},
    {"hub_strategy", config_ignore, NULL, SAVE},
    {"hub_always_push", config_ignore, NULL, SAVE},
    {"hub_revision", config_ignore, NULL, SAVE},
    {"push_to_hub_model_id", config_ignore, NULL, SAVE},
    {"push_to_hub_organization", config_ignore, NULL, SAVE},
    {"push_to_hub_token", config_ignore, NULL, SAVE},
    {"resume_from_checkpoint", config_ignore, NULL, SAVE},
    {"restore_callback_states_from_checkpoint", config_ignore, NULL, SAVE},
    {"ignore_data_skip", config_ignore, NULL, SAVE},
    {"learning_rate", config_ignore, NULL, VALUES},
    {"lr_scheduler_type", config_ignore, NULL, VALUES},
    {"lr_scheduler_kwargs", config_ignore, NULL, VALUES},
    {"warmup_steps", config_ignore, NULL, VALUES},
    {"warmup_ratio", config_ignore, NULL, VALUES},
    {"weight_decay", config_ignore, NULL, VALUES},
    {"adam_beta1", config_ignore, NULL, VALUES},
    {"adam_beta2", config_ignore, NULL, VALUES},
    {"adam_epsilon", config_ignore, NULL, VALUES},
    {"label_smoothing_factor", config_refuse_positive, NULL, "another loss, of smoothed labels"},
    {"average_tokens_across_devices", config_copy_bool, "trainer.average_tokens", NULL},
    {"loss_type", config_ignore, NULL, VALUES},
    {"num_train_epochs", config_ignore, NULL, LENGTH},
    {"max_steps", config_ignore, NULL, LENGTH},
    {"do_train", config_ignore, NULL, LENGTH},
    {"seed", config_ignore, NULL, LENGTH},
    {"data_seed", config_ignore, NULL, LENGTH},
    {"jit_mode_eval", config_ignore, NULL, LENGTH},
    {"past_index", config_ignore, NULL, LENGTH},
    {"use_ipex", config_ignore, NULL, LENGTH},
    {"torchdynamo", config_ignore, NULL, LENGTH},
    {"ray_scope", config_ignore, NULL, LENGTH},
    {"dataloader_drop_last", config_ignore, NULL, DATA},
    {"dataloader_num_workers", config_ignore, NULL, DATA},
    {"dataloader_pin_memory", config_ignore, NULL, DATA},
    {"dataloader_persistent_workers", config_ignore, NULL, DATA},
    {"dataloader_prefetch_factor", config_ignore, NULL, DATA},
    {"dataloader_multiprocessing_context", config_ignore, NULL, DATA},
    {"dataloader_in_order", config_ignore, NULL, DATA},
    {"remove_unused_columns", config_ignore, NULL, DATA},
    {"group_by_length", config_ignore, NULL, DATA},
    {"train_sampling_strategy", config_ignore, NULL, DATA},
    {"length_column_name", config_ignore, NULL, DATA},
    {"accelerator_config", config_later, NULL, NULL},
    {"dataset_name", config_ignore, NULL, DATA},
    {"dataset_mixer", config_ignore, NULL, DATA},
    {"dataset_splits", config_ignore, NULL, DATA},
    {"dataset_text_field", config_ignore, NULL, DATA},
    {"dataset_num_proc", config_ignore, NULL, DATA},
    {"dataset_kwargs", config_ignore, NULL, DATA},
    {"preprocessing_num_workers", config_ignore, NULL, DATA},
    {"packing", config_ignore, NULL, DATA},
    {"local_rank", config_ignore, NULL, LAUNCH},
    {"ddp_backend", config_ignore, NULL, LAUNCH},
    {"ddp_timeout", config_ignore, NULL, LAUNCH},
    {"no_cuda", config_ignore, NULL, LAUNCH},
    {"use_mps_device", config_ignore, NULL, LAUNCH},
    {"tpu_num_cores", config_ignore, NULL, LAUNCH},
    {"tpu_metrics_debug", config_ignore, NULL, LAUNCH},
    {"xpu_backend", config_ignore, NULL, LAUNCH},
    {"model_name_or_path", config_ignore, NULL, MODEL},
    {"model_revision", config_ignore, NULL, MODEL},
    {"tokenizer_name", config_ignore, NULL, MODEL},
    {"config_name", config_ignore, NULL, MODEL},
    {"cache_dir", config_ignore, NULL, MODEL},
    {"trust_remote_code", config_ignore, NULL, MODEL},
    {"torch_dtype", config_later, NULL, NULL},
    {"dtype", config_later, NULL, NULL},
    {"attn_implementation", config_ignore, NULL, MODEL},
    {"use_cache", config_ignore, NULL, MODEL},
    {"model_init_kwargs", config_ignore, NULL, MODEL},
    {0},
};

typedef struct {
  const char *dtype; /* "bf16", "fp16", NULL: neither */
  const char *optimizer, *implementation;
  int micro, steps, ranks;
  double clip;
  gboolean checkpoints;
} Arguments;

/* ---- precision ---- */

static void
read_precision(ConfigReader *r, Arguments *a)
{
  gboolean bf16 = config_bool(r, "bf16", FALSE), fp16 = config_bool(r, "fp16", FALSE);
  if (bf16 && fp16)
    config_fail(r, "fp16", "contradicts 'bf16': only one of them can be true");
  a->dtype = bf16 ? "bf16" : fp16 ? "fp16" : NULL;
  if (config_has(r, "half_precision_backend"))
    config_note(r, CONFIG_IGNORED, "half_precision_backend", "PyTorch's autocast is simulated");
}

/* Says what the two switches became, once it is known under what. */
static void
tell_precision(ConfigReader *r, const Arguments *a, const char *ours)
{
  static const char *const keys[] = {"bf16", "fp16"};
  for (guint i = 0; i < G_N_ELEMENTS(keys); i++)
    if (config_has(r, keys[i]) && g_strcmp0(a->dtype, keys[i]) != 0)
      config_note(r, CONFIG_IGNORED, keys[i], "off");
    else if (config_has(r, keys[i]) && ours != NULL)
      config_use(r, keys[i], ours, cJSON_CreateString(keys[i]), NULL);
    else if (config_has(r, keys[i]))
      config_note(r, CONFIG_USED, keys[i], "precision.parameters = %s", keys[i]);
}

/* ---- optimizer ---- */

static const struct {
  const char *optim, *name, *implementation;
} optimizers[] = {{"adamw_torch", "adamw", "foreach"},
                  {"adamw_torch_fused", "adamw", "fused"},
                  {"adamw_apex_fused", "adamw", "fused"},
                  {"adamw_hf", "adamw", "forloop"},
                  {"sgd", "sgd", "foreach"}};

static void
read_optimizer(ConfigReader *r, Arguments *a)
{
  const char *optim = config_text(r, "optim", "adamw_torch_fused");
  const char *arguments = config_text(r, "optim_args", "");
  for (guint i = 0; i < G_N_ELEMENTS(optimizers); i++)
    if (g_str_equal(optim, optimizers[i].optim)) {
      a->optimizer = optimizers[i].name;
      a->implementation = optimizers[i].implementation;
    }
  if (a->optimizer == NULL) {
    config_fail(r, "optim",
                "'%.60s': its states are not simulated, only those of adamw_torch, "
                "adamw_torch_fused, adamw_apex_fused, adamw_hf and sgd",
                optim);
    return;
  }
  gboolean momentum = strstr(arguments, "momentum") != NULL;
  if (g_str_equal(optim, "sgd") && !momentum)
    config_fail(r, "optim", "sgd without momentum (optim_args) is not simulated");
  if (config_has(r, "optim_args"))
    config_note(r, CONFIG_IGNORED, "optim_args", "values of the update, not sizes");
}

static void
tell_optimizer(ConfigReader *r, const Arguments *a)
{
  if (config_has(r, "optim") && !config_is_set(r, "optimizer.implementation")) {
    config_set(r, "optimizer.name", cJSON_CreateString(a->optimizer));
    config_use(r, "optim", "optimizer.implementation", cJSON_CreateString(a->implementation),
               "optimizer.name = %s", a->optimizer);
  } else if (config_has(r, "optim")) {
    config_note(r, CONFIG_USED, "optim", "optimizer.name = %s, as far as DeepSpeed leaves it open",
                a->optimizer);
  }
  config_default(r, "optimizer.name", cJSON_CreateString(a->optimizer),
                 "the Trainer's default, adamw_torch_fused (PyTorch 2.8)");
  config_default(r, "optimizer.implementation", cJSON_CreateString(a->implementation),
                 "the Trainer's default, adamw_torch_fused (PyTorch 2.8)");
  if (config_has(r, "max_grad_norm") && !config_is_set(r, "optimizer.clip_grad_norm"))
    config_use(r, "max_grad_norm", "optimizer.clip_grad_norm", cJSON_CreateNumber(a->clip), NULL);
  else if (config_has(r, "max_grad_norm"))
    config_note(r, CONFIG_USED, "max_grad_norm", "optimizer.clip_grad_norm = %g", a->clip);
  config_default(r, "optimizer.clip_grad_norm", cJSON_CreateNumber(a->clip),
                 "the Trainer's default");
}

/* ---- activation checkpointing ---- */

/* The new name of the key where it is given, else the old one. */
static const char *
checkpointing_key(const ConfigReader *r, const char *suffix)
{
  g_autofree char *key = g_strconcat("activation_checkpointing", suffix, NULL);
  g_autofree char *old = g_strconcat("gradient_checkpointing", suffix, NULL);
  return g_intern_string(config_has(r, key) ? key : old);
}

static void
read_checkpointing_arguments(ConfigReader *r, gboolean is_on)
{
  const char *key = checkpointing_key(r, "_kwargs");
  const cJSON *item = config_get(r, key);
  if (!config_has(r, key))
    return;
  if (!cJSON_IsObject(item)) {
    config_fail(r, key, "an object is needed");
    return;
  }
  static const ConfigRow argument_rows[] = {
      {"use_reentrant", config_later, NULL, NULL},
      {"preserve_rng_state", config_ignore, NULL, "random numbers"},
      {"determinism_check", config_ignore, NULL, "a check"},
      {"every_n_layers", config_refuse_on, NULL, "checkpoints of every n-th layer"},
      {"offload", config_refuse_on, NULL, "activations in the host's memory"},
      {0},
  };
  g_autofree char *prefix = g_strconcat(key, ".", NULL);
  ConfigReader part = config_reader_part(r, prefix, item, argument_rows);
  config_reader_walk(&part);
  gboolean reentrant = config_bool(&part, "use_reentrant", FALSE);
  if (config_has(&part, "use_reentrant") && is_on && !config_failed(r))
    config_use(&part, "use_reentrant", "activation_checkpointing.early_stop",
               cJSON_CreateBool(!reentrant),
               reentrant ? "a reentrant checkpoint recomputes to its end" : NULL);
  config_reader_end(&part);
  if (item->child == NULL)
    config_note(r, CONFIG_IGNORED, key, "empty");
  g_hash_table_remove(r->left, item);
}

static void
read_checkpointing(ConfigReader *r, Arguments *a)
{
  const char *key = checkpointing_key(r, "");
  a->checkpoints = config_bool(r, key, FALSE);
  if (a->checkpoints)
    config_use(r, key, "activation_checkpointing.policy", cJSON_CreateString("full"), "each block");
  else if (config_has(r, key))
    config_note(r, CONFIG_IGNORED, key, "off");
  read_checkpointing_arguments(r, a->checkpoints);
}

/* ---- FSDP ---- */

static void
add_word(FsdpOutside *outside, ConfigReader *r, const char *word)
{
  const char *strategy = config_sharding_strategy(word);
  if (strategy != NULL && outside->strategy != NULL && outside->strategy != strategy)
    config_fail(r, "fsdp", "contradicts itself: %s and %s", outside->strategy, strategy);
  else if (strategy != NULL)
    outside->strategy = strategy;
  else if (g_str_equal(word, "auto_wrap"))
    outside->wraps = TRUE;
  else if (g_str_equal(word, "offload"))
    outside->offloads = TRUE;
  else if (!g_str_equal(word, ""))
    config_fail(r, "fsdp",
                "'%.60s' is not one of full_shard, shard_grad_op, no_shard, hybrid_shard, "
                "hybrid_shard_zero2, auto_wrap, offload",
                word);
}

/* True, or words in a text or a list. */
static gboolean
read_fsdp_words(ConfigReader *r, FsdpOutside *outside)
{
  const cJSON *item = config_get(r, "fsdp"), *element;
  if (!config_has(r, "fsdp") || cJSON_IsFalse(item))
    return FALSE;
  outside->wraps = cJSON_IsTrue(item);
  if (cJSON_IsTrue(item))
    return TRUE;
  g_autoptr(GString) words = g_string_new(cJSON_IsString(item) ? item->valuestring : "");
  cJSON_ArrayForEach(element, item) if (cJSON_IsString(element))
      g_string_append_printf(words, " %s", element->valuestring);
  g_auto(GStrv) list = g_strsplit_set(words->str, " ,", -1);
  for (char **word = list; *word != NULL; word++)
    add_word(outside, r, *word);
  return outside->strategy != NULL || outside->wraps || outside->offloads;
}

/* Keys that lay at the top before fsdp_config was there. */
static void
read_old_fsdp_keys(ConfigReader *r, FsdpOutside *outside)
{
  if (config_number(r, "fsdp_min_num_params", 0) > 0)
    config_fail(r, "fsdp_min_num_params",
                "which modules are wrapped follows from their sizes: not supported");
  else if (config_has(r, "fsdp_min_num_params"))
    config_note(r, CONFIG_IGNORED, "fsdp_min_num_params", "off");
  if (!config_has(r, "fsdp_transformer_layer_cls_to_wrap"))
    return;
  outside->wraps = TRUE;
  config_note(r, CONFIG_USED, "fsdp_transformer_layer_cls_to_wrap",
              "fsdp.blocks_per_group = 1 (taken to be the class of the network's blocks)");
}

static void
read_fsdp(ConfigReader *r, const Arguments *a, FsdpOutside *outside)
{
  cJSON *empty = cJSON_CreateObject();
  const cJSON *section = config_get(r, "fsdp_config");
  if (cJSON_IsString(section))
    config_fail(r, "fsdp_config", "names another file: write its keys here");
  ConfigReader part =
      config_reader_part(r, "fsdp_config.", cJSON_IsObject(section) ? section : empty, NULL);
  gboolean is_new = cJSON_IsTrue(config_get(r, "fsdp"));
  outside->version = is_new ? 2 : 1;
  outside->version_reason =
      is_new ? "transformers 5 takes FSDP2 where fsdp_config.version is missing"
             : "names of FSDP1's strategies without fsdp_config.version (transformers 5 would take "
               "FSDP2: give version 2 then)";
  outside->ranks = a->ranks;
  outside->dtype = a->dtype;
  outside->checkpoints = a->checkpoints;
  read_old_fsdp_keys(r, outside);
  config_note(r, CONFIG_USED, "fsdp", "%s%s%s",
              outside->strategy != NULL ? outside->strategy : "sharded",
              outside->wraps ? ", each block a group" : "",
              outside->offloads ? ", parameters on the host" : "");
  if (!config_failed(r))
    config_read_fsdp(&part, outside);
  if (section != NULL)
    g_hash_table_remove(r->left, section);
  tell_precision(r, a, "precision.compute");
  cJSON_Delete(empty);
}

/* ---- DDP ---- */

/* The dtype in which the script loads the model (TRL's ModelConfig): DDP leaves it. */
static void
read_loaded_dtype(ConfigReader *r)
{
  static const char *const names[][2] = {
      {"bfloat16", "bf16"}, {"float16", "fp16"}, {"float32", "fp32"}};
  const char *key = config_has(r, "dtype") ? "dtype" : "torch_dtype";
  const char *text = config_text(r, key, NULL);
  for (guint i = 0; text != NULL && i < G_N_ELEMENTS(names); i++)
    if (g_str_equal(text, names[i][0]))
      config_use(r, key, "precision.parameters", cJSON_CreateString(names[i][1]),
                 "the model is loaded in it");
  if (text != NULL && !config_is_set(r, "precision.parameters"))
    config_note(r, CONFIG_IGNORED, key, "the model's own dtype is not known here");
}

/* accelerate hands over only what differs from its defaults, a cap of 25 among them. */
static void
read_ddp_buckets(ConfigReader *r, gboolean one)
{
  int cap = config_int(r, "ddp_bucket_cap_mb", 25, 1, 1 << 20);
  if (one || config_failed(r))
    return;
  if (config_has(r, "ddp_bucket_cap_mb") && cap != 25)
    config_use(r, "ddp_bucket_cap_mb", "ddp.bucket_cap_mb", cJSON_CreateNumber(cap), NULL);
  else if (config_has(r, "ddp_bucket_cap_mb"))
    config_note(r, CONFIG_USED, "ddp_bucket_cap_mb", "accelerate's default, which DDP never sees");
  config_default_ddp(r);
  gboolean buffers = config_bool(r, "ddp_broadcast_buffers", TRUE);
  if (config_has(r, "ddp_broadcast_buffers") && !config_failed(r))
    config_use(r, "ddp_broadcast_buffers", "ddp.broadcast_buffers", cJSON_CreateBool(buffers),
               NULL);
}

static void
read_ddp(ConfigReader *r, const Arguments *a)
{
  gboolean one = a->ranks == 1;
  config_default(r, "strategy", cJSON_CreateString(one ? "none" : "ddp"),
                 "neither fsdp nor deepspeed is given");
  if (!one)
    config_default(r, "mesh.replicate", cJSON_CreateNumber(config_ranks_or_usual(a->ranks)),
                   a->ranks > 0 ? "--ranks" : "the file does not say how many ranks there are");
  if (config_has(r, "ddp_find_unused_parameters") && !one)
    config_use(r, "ddp_find_unused_parameters", "ddp.find_unused_parameters",
               cJSON_CreateBool(config_bool(r, "ddp_find_unused_parameters", FALSE)), NULL);
  if (!one)
    config_default(r, "ddp.find_unused_parameters", cJSON_CreateBool(!a->checkpoints),
                   "the Trainer's default is whether nothing is checkpointed");
  read_ddp_buckets(r, one);
  if (config_bool(r, "ddp_static_graph", FALSE))
    config_fail(r, "ddp_static_graph", "static graphs are not supported");
  tell_precision(r, a, "precision.compute");
  read_loaded_dtype(r);
  if (a->dtype != NULL)
    config_default_autocast(r);
}

/* ---- DeepSpeed ---- */

static void
read_deepspeed(ConfigReader *r, const Arguments *a)
{
  DeepSpeedOutside outside = {.who = WHO,
                              .ranks = a->ranks,
                              .micro = a->micro,
                              .steps = a->steps,
                              .clip = a->clip,
                              .dtype = a->dtype != NULL ? a->dtype : "fp32",
                              .is_dtype_strict = TRUE,
                              .optimizer = a->optimizer,
                              .implementation = a->implementation};
  const cJSON *section = config_get(r, "deepspeed");
  tell_precision(r, a, NULL);
  if (cJSON_IsObject(section)) {
    ConfigReader part = config_reader_part(r, "deepspeed.", section, NULL);
    config_read_deepspeed(&part, &outside);
    g_hash_table_remove(r->left, section);
  } else {
    config_read_file(r, "deepspeed", &outside);
  }
  cJSON *strategy = cJSON_GetObjectItem(r->result->plan, "strategy");
  if (!config_failed(r) && g_strcmp0(cJSON_GetStringValue(strategy), "zero3") == 0)
    config_default(r, "deepspeed.zero_init", cJSON_CreateTrue(),
                   "from_pretrained() builds a model under deepspeed.zero.Init once "
                   "TrainingArguments of stage 3 exist");
}

/* ---- all of it ---- */

static void
read_batches(ConfigReader *r, Arguments *a)
{
  const char *key = config_has(r, "per_device_train_batch_size") ? "per_device_train_batch_size"
                                                                 : "per_gpu_train_batch_size";
  a->ranks = r->result->settings->ranks;
  a->clip = config_number(r, "max_grad_norm", CLIP_DEFAULT);
  ConfigBatch batch = {.micro_key = key,
                       .steps_key = "gradient_accumulation_steps",
                       .micro_default = MICRO_DEFAULT,
                       .ranks = config_ranks_or_usual(a->ranks),
                       .micro_reason = "the Trainer's default",
                       .steps_reason = "the Trainer's default"};
  config_batch_resolve(r, &batch);
  a->micro = batch.micro > 0 ? batch.micro : MICRO_DEFAULT;
  a->steps = MAX(batch.steps, 1);
}

static const ConfigRow accelerator_rows[] = {
    {"split_batches", config_refuse_on, NULL, "batches that are split over the ranks"},
    {"dispatch_batches", config_ignore, NULL, DATA},
    {"even_batches", config_ignore, NULL, DATA},
    {"use_seedable_sampler", config_ignore, NULL, DATA},
    {"non_blocking", config_ignore, NULL, DATA},
    {"use_configured_state", config_ignore, NULL, LAUNCH},
    {"gradient_accumulation_kwargs.sync_each_batch", config_later, NULL, NULL},
    {"gradient_accumulation_kwargs.num_steps", config_later, NULL, NULL},
    {"gradient_accumulation_kwargs.*", config_ignore, NULL, "when the scheduler steps"},
    {0},
};

/* AcceleratorConfig: a section, or a file that is not looked into. */
static void
read_accelerator(ConfigReader *r)
{
  const cJSON *section = config_get(r, "accelerator_config");
  const char *sync = "gradient_accumulation_kwargs.sync_each_batch";
  const char *steps = "gradient_accumulation_kwargs.num_steps";
  if (config_has(r, "accelerator_config") && !cJSON_IsObject(section))
    config_fail(r, "accelerator_config", "names another file: write its keys here");
  if (!cJSON_IsObject(section) || config_failed(r))
    return;
  ConfigReader part = config_reader_part(r, "accelerator_config.", section, accelerator_rows);
  config_reader_walk(&part);
  gboolean each = config_bool(&part, sync, FALSE);
  if (config_has(&part, sync))
    config_use(&part, sync, "accumulation.sync_every_step", cJSON_CreateBool(each), NULL);
  if (config_has(&part, steps))
    config_fail(&part, steps, "say it in gradient_accumulation_steps, which the Trainer reads");
  if (section->child == NULL)
    config_note(r, CONFIG_IGNORED, "accelerator_config", "empty");
  config_reader_end(&part);
  g_hash_table_remove(r->left, section);
}

static void
read_compile(ConfigReader *r)
{
  static const char *const keys[] = {"torch_compile_backend", "torch_compile_mode"};
  gboolean is_on =
      config_bool(r, "torch_compile", config_has(r, keys[0]) || config_has(r, keys[1]));
  if (config_has(r, "torch_compile") && is_on)
    config_use(r, "torch_compile", "compile", cJSON_CreateString("per_block"),
               "highwater compiles blocks one by one, the Trainer the whole model");
  else if (config_has(r, "torch_compile"))
    config_note(r, CONFIG_IGNORED, "torch_compile", "off");
  for (guint i = 0; i < G_N_ELEMENTS(keys); i++)
    if (config_has(r, keys[i]) && is_on)
      config_use(r, keys[i], "compile", cJSON_CreateString("per_block"),
                 "turns torch_compile on; Inductor's default is simulated");
    else if (config_has(r, keys[i]))
      config_note(r, CONFIG_IGNORED, keys[i], "torch_compile is false");
}

static void
read_parallelism(ConfigReader *r, const Arguments *a)
{
  FsdpOutside outside = {0};
  gboolean fsdp = read_fsdp_words(r, &outside);
  const cJSON *item = config_get(r, "deepspeed");
  gboolean deepspeed =
      cJSON_IsObject(item) || (cJSON_IsString(item) && item->valuestring[0] != '\0');
  if (config_failed(r))
    return;
  if (fsdp && deepspeed)
    config_fail(r, "deepspeed", "contradicts 'fsdp': only one of them can be given");
  else if (deepspeed)
    read_deepspeed(r, a);
  else if (fsdp)
    read_fsdp(r, a, &outside);
  else
    read_ddp(r, a);
  const cJSON *config = config_get(r, "fsdp_config");
  if (!fsdp && cJSON_IsObject(config) && !config_failed(r))
    config_note(r, CONFIG_IGNORED, "fsdp_config", "fsdp is not given");
}

/* The Trainer accumulates under no_sync, and frees gradients after its step. */
static void
default_rest(ConfigReader *r, const Arguments *a)
{
  const char *strategy = cJSON_GetStringValue(cJSON_GetObjectItem(r->result->plan, "strategy"));
  gboolean deepspeed = strategy != NULL && g_str_has_prefix(strategy, "zero");
  config_default(r, "loop", cJSON_CreateString("trainer"),
                 "the Trainer moves batches, counts their items and adds up losses");
  if (!deepspeed) {
    config_default_scaler(r, a->dtype);
    config_default(r, "accumulation.sync_every_step", cJSON_CreateFalse(),
                   "the Trainer accumulates under no_sync");
    config_default(r, "optimizer.zero_grad", cJSON_CreateString("end"),
                   "the Trainer frees gradients after the optimizer's step");
  }
  config_default(r, "precision.parameters", cJSON_CreateString("fp32"),
                 "neither bf16 nor fp16 is true");
  config_default(r, "activation_checkpointing.policy", cJSON_CreateString("none"),
                 "the Trainer's default");
}

static void
read(ConfigReader *r)
{
  Arguments a = {0};
  r->rows = rows;
  config_reader_walk(r);
  if (!config_failed(r)) {
    read_precision(r, &a);
    read_optimizer(r, &a);
    read_batches(r, &a);
    read_checkpointing(r, &a);
    read_compile(r);
    read_accelerator(r);
  }
  if (!config_failed(r))
    read_parallelism(r, &a);
  if (!config_failed(r)) {
    tell_optimizer(r, &a);
    default_rest(r, &a);
  }
  config_reader_end(r);
}

static const char *const marks[] = {"per_device_train_batch_size",
                                    "per_gpu_train_batch_size",
                                    "output_dir",
                                    "gradient_checkpointing",
                                    "max_grad_norm",
                                    "learning_rate",
                                    "num_train_epochs",
                                    "logging_steps",
                                    "optim",
                                    NULL};

const ConfigKind config_kind_arguments = {
    .title = "TrainingArguments",
    .marks = marks,
    .read = read,
};
