/* config_accelerate.c - what `accelerate config` writes: plain multi-GPU, FSDP 1 and 2, DeepSpeed.
 */
#include "import/config_batch.h"
#include "import/config_deepspeed.h"
#include "import/config_file.h"
#include "import/config_fsdp.h"

#include <string.h>

#define RANKS_MOST (1 << 24)
#define LAUNCH "how processes are started"
#define NOT_GPU "of other hardware"
#define INNER "deepspeed_config."

static const ConfigRow rows[] = {
    {"compute_environment", config_later, NULL, NULL},
    {"distributed_type", config_later, NULL, NULL},
    {"mixed_precision", config_later, NULL, NULL},
    {"fp16", config_later, NULL, NULL},
    {"num_processes", config_later, NULL, NULL},
    {"num_machines", config_later, NULL, NULL},
    {"gpu_ids", config_later, NULL, NULL},
    {"fsdp_config", config_later, NULL, NULL},
    {"deepspeed_config", config_later, NULL, NULL},
    {"parallelism_config", config_later, NULL, NULL},
    {"gradient_accumulation_steps", config_later, NULL, NULL},
    {"dynamo_backend", config_later, NULL, NULL},
    {"dynamo_config.dynamo_backend", config_later, NULL, NULL},
    {"dynamo_config.dynamo_mode", config_ignore, NULL, "how kernels are tuned"},
    {"dynamo_config.*", config_ignore, NULL, "of the compiler; blocks are compiled one by one"},
    {"dynamo_*", config_ignore, NULL, "of the compiler; blocks are compiled one by one"},
    {"use_cpu", config_refuse_on, NULL, "training on the CPU"},
    {"megatron_lm_config", config_refuse_on, NULL, "Megatron-LM"},
    {"tp_config", config_refuse_on, NULL, "tensor parallelism"},
    {"fp8_config", config_refuse_on, NULL, "8-bit floating point"},
    {"debug", config_ignore, NULL, "checks of collectives' shapes"},
    {"machine_rank", config_ignore, NULL, LAUNCH},
    {"main_process_ip", config_ignore, NULL, LAUNCH},
    {"main_process_port", config_ignore, NULL, LAUNCH},
    {"rdzv_backend", config_ignore, NULL, LAUNCH},
    {"rdzv_conf", config_ignore, NULL, LAUNCH},
    {"same_network", config_ignore, NULL, LAUNCH},
    {"main_training_function", config_ignore, NULL, LAUNCH},
    {"enable_cpu_affinity", config_ignore, NULL, "where host threads run"},
    {"mpirun_config", config_ignore, NULL, LAUNCH},
    {"command_file", config_ignore, NULL, LAUNCH},
    {"commands", config_ignore, NULL, LAUNCH},
    {"max_restarts", config_ignore, NULL, LAUNCH},
    {"monitor_interval", config_ignore, NULL, LAUNCH},
    {"ipex_config", config_ignore, NULL, NOT_GPU},
    {"downcast_bf16", config_ignore, NULL, NOT_GPU},
    {"tpu_name", config_ignore, NULL, NOT_GPU},
    {"tpu_zone", config_ignore, NULL, NOT_GPU},
    {"tpu_use_cluster", config_ignore, NULL, NOT_GPU},
    {"tpu_use_sudo", config_ignore, NULL, NOT_GPU},
    {"tpu_vm", config_ignore, NULL, NOT_GPU},
    {"tpu_env", config_ignore, NULL, NOT_GPU},
    {0},
};

/* What several parts of the file need. */
typedef struct {
  const char *type;  /* distributed_type */
  const char *dtype; /* mixed precision, or NULL */
  gboolean is_plain; /* mixed_precision is no */
  int ranks, machines;
} Accelerate;

/* ---- processes ---- */

static void
check_gpu_ids(ConfigReader *r, const Accelerate *a)
{
  const char *ids = config_text(r, "gpu_ids", NULL);
  if (ids == NULL)
    return;
  g_auto(GStrv) list = g_strsplit(ids, ",", -1);
  int n = (int) g_strv_length(list);
  if (g_ascii_strcasecmp(ids, "all") != 0 && a->machines <= 1 && a->ranks > 0 && n != a->ranks)
    config_fail(r, "gpu_ids", "contradicts num_processes: %d GPUs for %d processes", n, a->ranks);
  else
    config_note(r, CONFIG_IGNORED, "gpu_ids", "which GPUs, not how many");
}

static void
read_processes(ConfigReader *r, Accelerate *a)
{
  int said = config_int(r, "num_processes", 0, -1, RANKS_MOST);
  a->machines = config_int(r, "num_machines", 1, 1, RANKS_MOST);
  a->ranks = config_ranks(r, "num_processes", MAX(said, 0));
  if (a->ranks == 0 && a->machines > 1)
    a->ranks = CONFIG_RANKS_USUAL * a->machines;
  if (a->ranks % a->machines != 0)
    config_fail(r, "num_processes", "%d processes do not divide over %d machines", a->ranks,
                a->machines);
  if (config_has(r, "num_processes") && said > 0)
    config_note(r, CONFIG_USED, "num_processes", "the mesh has %d ranks", said);
  else if (config_has(r, "num_processes"))
    config_note(r, CONFIG_IGNORED, "num_processes", "left to the launcher");
  if (config_has(r, "num_machines"))
    config_note(r, CONFIG_USED, "num_machines", "%d machines of %d ranks", a->machines,
                config_ranks_or_usual(a->ranks) / a->machines);
  check_gpu_ids(r, a);
}

static void
read_type(ConfigReader *r, Accelerate *a)
{
  static const char *const known[] = {"NO", "MULTI_GPU", "FSDP", "DEEPSPEED", NULL};
  const char *environment = config_text(r, "compute_environment", "LOCAL_MACHINE");
  if (!g_str_equal(environment, "LOCAL_MACHINE"))
    config_fail(r, "compute_environment", "'%.60s' is not supported, only LOCAL_MACHINE",
                environment);
  else if (config_has(r, "compute_environment"))
    config_note(r, CONFIG_IGNORED, "compute_environment", LAUNCH);
  gboolean is_off = cJSON_IsFalse(config_get(r, "distributed_type")); /* YAML's NO */
  a->type = is_off ? "NO" : config_text(r, "distributed_type", NULL);
  if (a->type == NULL) {
    a->type = config_has(r, "deepspeed_config") ? "DEEPSPEED"
              : config_has(r, "fsdp_config")    ? "FSDP"
              : a->ranks > 1                    ? "MULTI_GPU"
                                                : "NO";
  } else if (!g_strv_contains(known, a->type)) {
    config_fail(r, "distributed_type",
                "'%.60s' is not supported, only NO, MULTI_GPU, FSDP and DEEPSPEED", a->type);
  }
}

static void
read_precision(ConfigReader *r, Accelerate *a)
{
  const char *key = "mixed_precision", *text = config_text(r, key, NULL);
  if (text == NULL && config_has(r, "fp16")) {
    key = "fp16";
    text = config_bool(r, key, FALSE) ? "fp16" : "no";
  }
  if (text == NULL || g_ascii_strcasecmp(text, "no") == 0) {
    a->is_plain = text != NULL;
    if (text != NULL)
      config_note(r, CONFIG_USED, key, "parameters are computed with as they are");
    return;
  }
  a->dtype = g_ascii_strcasecmp(text, "bf16") == 0   ? "bf16"
             : g_ascii_strcasecmp(text, "fp16") == 0 ? "fp16"
                                                     : NULL;
  if (a->dtype == NULL)
    config_fail(r, key, "'%.60s' is not supported, only no, bf16 and fp16", text);
  else if (!g_str_equal(a->type, "DEEPSPEED"))
    config_use(r, key, "precision.compute", cJSON_CreateString(a->dtype), NULL);
}

static void
read_compile(ConfigReader *r)
{
  const char *key =
      config_has(r, "dynamo_backend") ? "dynamo_backend" : "dynamo_config.dynamo_backend";
  if (!config_has(r, key))
    return;
  if (g_ascii_strcasecmp(config_text(r, key, "no"), "no") == 0)
    config_note(r, CONFIG_IGNORED, key, "off");
  else
    config_use(r, key, "compile", cJSON_CreateString("per_block"),
               "highwater compiles blocks one by one");
}

/* ---- FSDP ---- */

static const ConfigRow parallelism_rows[] = {
    {"parallelism_config_dp_replicate_size", config_later, NULL, NULL},
    {"parallelism_config_dp_shard_size", config_later, NULL, NULL},
    {"parallelism_config_tp_size", config_refuse_on, NULL, "tensor parallelism"},
    {"parallelism_config_cp_size", config_refuse_on, NULL, "context parallelism"},
    {"parallelism_config_sp_size", config_refuse_on, NULL, "sequence parallelism"},
    {"parallelism_config_*", config_ignore, NULL, "of parallelism that is off"},
    {0},
};

static void
read_parallelism(ConfigReader *r, FsdpOutside *outside)
{
  const cJSON *section = config_get(r, "parallelism_config");
  if (!cJSON_IsObject(section))
    return;
  ConfigReader part = config_reader_part(r, "parallelism_config.", section, parallelism_rows);
  config_reader_walk(&part);
  const char *replicate = "parallelism_config_dp_replicate_size";
  const char *shard = "parallelism_config_dp_shard_size";
  outside->replicate = config_int(&part, replicate, 1, 1, RANKS_MOST);
  outside->shard =
      config_int(&part, shard, MAX(outside->ranks / outside->replicate, 1), 1, RANKS_MOST);
  if (outside->ranks > 0 && (gint64) outside->shard * outside->replicate != outside->ranks)
    config_fail(&part, shard, "contradicts num_processes: %d x %d ranks are not %d",
                outside->replicate, outside->shard, outside->ranks);
  if (config_has(&part, replicate) && !config_failed(r))
    config_use(&part, replicate, "mesh.replicate", cJSON_CreateNumber(outside->replicate), NULL);
  if (config_has(&part, shard) && !config_failed(r))
    config_use(&part, shard, "mesh.shard", cJSON_CreateNumber(outside->shard), NULL);
  config_reader_end(&part);
  g_hash_table_remove(r->left, section);
}

static gboolean
is_filled(const cJSON *item)
{
  return cJSON_IsObject(item) && item->child != NULL;
}

/* The part of the file under a key; what is not an object is an error.  An absent one is empty. */
static const cJSON *
section_of(ConfigReader *r, const char *key, const cJSON *empty)
{
  const cJSON *item = config_get(r, key);
  if (config_has(r, key) && !cJSON_IsObject(item))
    config_fail(r, key, "a section with keys of its own is needed");
  return cJSON_IsObject(item) ? item : empty;
}

static void
read_fsdp(ConfigReader *r, const Accelerate *a)
{
  FsdpOutside outside = {.version = 1,
                         .version_reason = "accelerate takes FSDP1 where fsdp_version is missing",
                         .ranks = a->ranks,
                         .machines = a->machines,
                         .dtype = a->dtype};
  cJSON *empty = cJSON_CreateObject();
  read_parallelism(r, &outside);
  const cJSON *section = section_of(r, "fsdp_config", empty);
  ConfigReader part = config_reader_part(r, "fsdp_config.", section, NULL);
  if (!config_failed(r))
    config_read_fsdp(&part, &outside);
  cJSON_Delete(empty);
}

/* ---- plain ---- */

static void
read_plain(ConfigReader *r, const Accelerate *a)
{
  gboolean one = g_str_equal(a->type, "NO");
  if (one && a->ranks > 1)
    config_fail(r, "distributed_type", "NO contradicts num_processes: %d", a->ranks);
  int ranks = one ? 1 : config_ranks_or_usual(a->ranks);
  if (!one)
    config_default(r, "mesh.replicate", cJSON_CreateNumber(ranks),
                   a->ranks > 0 ? "each process has a copy of the model"
                                : "the file does not say how many processes there are");
  if (!one)
    config_default_ddp(r);
  if (a->dtype != NULL)
    config_default_autocast(r);
}

/* ---- DeepSpeed ---- */

static const ConfigRow deepspeed_rows[] = {
    {"deepspeed_config_file", config_later, NULL, NULL},
    {"zero_stage", config_later, NULL, NULL},
    {"gradient_accumulation_steps", config_later, NULL, NULL},
    {"gradient_clipping", config_later, NULL, NULL},
    {"offload_optimizer_device", config_later, NULL, NULL},
    {"offload_param_device", config_later, NULL, NULL},
    {"offload_optimizer_nvme_path", config_ignore, NULL, "for NVMe"},
    {"offload_param_nvme_path", config_ignore, NULL, "for NVMe"},
    {"zero3_init_flag", config_later, NULL, NULL},
    {"zero3_save_16bit_model", config_ignore, NULL, "how checkpoints are saved"},
    {"deepspeed_hostfile", config_ignore, NULL, LAUNCH},
    {"deepspeed_exclusion_filter", config_ignore, NULL, LAUNCH},
    {"deepspeed_inclusion_filter", config_ignore, NULL, LAUNCH},
    {"deepspeed_multinode_launcher", config_ignore, NULL, LAUNCH},
    {"deepspeed_moe_layer_cls_names", config_ignore, NULL,
     "modules that are not split when parameters are fetched"},
    {0},
};

/* The keys that a file of DeepSpeed's own makes void: accelerate refuses them beside it. */
static const char *const of_the_file[] = {"zero_stage",
                                          "gradient_accumulation_steps",
                                          "gradient_clipping",
                                          "offload_optimizer_device",
                                          "offload_param_device",
                                          "zero3_save_16bit_model",
                                          NULL};

static void
read_deepspeed_file(ConfigReader *part, const Accelerate *a)
{
  const char *key = "deepspeed_config_file";
  for (const char *const *other = of_the_file; *other != NULL; other++)
    if (config_has(part, *other))
      config_fail(part, *other, "contradicts '%s': accelerate refuses both", key);
  DeepSpeedOutside outside = deepspeed_outside_none();
  outside.who = "accelerate's configuration";
  outside.ranks = a->ranks;
  outside.dtype = a->is_plain ? "fp32" : a->dtype;
  config_read_file(part, key, &outside);
}

static void
read_device(ConfigReader *part, const char *key, const char *ours)
{
  const char *device = config_text(part, key, NULL);
  if (device != NULL && g_str_equal(device, "no"))
    device = "none";
  if (device != NULL)
    config_use(part, key, ours, cJSON_CreateString(device), NULL);
}

static void
read_deepspeed_inline(ConfigReader *part, const Accelerate *a)
{
  static const char *const strategies[] = {"zero0", "zero1", "zero2", "zero3"};
  int stage = config_int(part, "zero_stage", 2, 0, 3);
  int steps = config_int(part, "gradient_accumulation_steps", 1, 1, 1024);
  double clip = config_number(part, "gradient_clipping", 1);
  if (config_failed(part))
    return;
  if (config_has(part, "zero_stage"))
    config_use(part, "zero_stage", "strategy", cJSON_CreateString(strategies[stage]), NULL);
  config_default(part, "strategy", cJSON_CreateString(strategies[stage]), "accelerate's default");
  if (config_has(part, "gradient_accumulation_steps"))
    config_use(part, "gradient_accumulation_steps", "accumulation.steps", cJSON_CreateNumber(steps),
               config_is_auto(part, "gradient_accumulation_steps") ? "auto: the training script"
                                                                   : NULL);
  if (config_has(part, "gradient_clipping"))
    config_use(part, "gradient_clipping", "optimizer.clip_grad_norm", cJSON_CreateNumber(clip),
               config_is_auto(part, "gradient_clipping") ? "auto: the training script" : NULL);
  config_default(part, "optimizer.clip_grad_norm", cJSON_CreateNumber(clip),
                 "DeepSpeed 0.19.8 clips at 1 where nothing is said");
  read_device(part, "offload_optimizer_device", "deepspeed.offload_optimizer.device");
  read_device(part, "offload_param_device", "deepspeed.offload_param.device");
  config_default(part, "mesh.shard", cJSON_CreateNumber(config_ranks_or_usual(a->ranks)),
                 a->ranks > 0 ? "all ranks share the states"
                              : "the file does not say how many processes there are");
  config_default(part, "precision.parameters",
                 cJSON_CreateString(a->dtype != NULL ? a->dtype : "fp32"),
                 a->dtype != NULL ? "mixed_precision: DeepSpeed casts the model to it"
                                  : "mixed_precision is off");
}

static void
read_deepspeed(ConfigReader *r, const Accelerate *a)
{
  cJSON *empty = cJSON_CreateObject();
  const cJSON *section = section_of(r, "deepspeed_config", empty);
  ConfigReader part = config_reader_part(r, INNER, section, deepspeed_rows);
  if (a->dtype != NULL)
    config_note(r, CONFIG_USED, "mixed_precision", "precision.parameters = %s", a->dtype);
  config_reader_walk(&part);
  if (!config_failed(r) && config_has(&part, "deepspeed_config_file"))
    read_deepspeed_file(&part, a);
  else if (!config_failed(r))
    read_deepspeed_inline(&part, a);
  gboolean zero3 = g_strcmp0(cJSON_GetStringValue(cJSON_GetObjectItem(r->result->plan, "strategy")),
                             "zero3") == 0;
  gboolean init = config_bool(&part, "zero3_init_flag", FALSE);
  if (config_has(&part, "zero3_init_flag") && init && zero3)
    config_use(&part, "zero3_init_flag", "deepspeed.zero_init", cJSON_CreateTrue(), NULL);
  else if (config_has(&part, "zero3_init_flag"))
    config_note(&part, CONFIG_IGNORED, "zero3_init_flag", init ? "of stage 3 only" : "off");
  config_reader_end(&part);
  cJSON_Delete(empty);
}

/* ---- all of it ---- */

static const struct {
  const char *type, *strategy;
  void (*read)(ConfigReader *r, const Accelerate *a);
  const char *section;
} types[] = {{"NO", "none", read_plain, NULL},
             {"MULTI_GPU", "ddp", read_plain, NULL},
             {"FSDP", NULL, read_fsdp, "fsdp_config"},
             {"DEEPSPEED", NULL, read_deepspeed, "deepspeed_config"}};

/* A filled section of another type: which of the two was meant? */
static void
check_other_sections(ConfigReader *r, const char *type)
{
  for (guint i = 0; i < G_N_ELEMENTS(types); i++) {
    const char *section = types[i].section;
    const cJSON *item = section != NULL && config_has(r, section) ? config_get(r, section) : NULL;
    if (item == NULL)
      continue;
    if (!g_str_equal(types[i].type, type) && is_filled(item))
      config_fail(r, section, "contradicts distributed_type, which is %s", type);
    else if (!g_str_equal(types[i].type, type) || !is_filled(item))
      config_note(r, CONFIG_IGNORED, section, "empty");
    g_hash_table_remove(r->left, item);
  }
}

static void
default_script(ConfigReader *r, const Accelerate *a)
{
  const char *type = a->type;
  const char *script = "the training script says it";
  config_default(r, "batch.micro_batch", cJSON_CreateNumber(1), script);
  if (config_has(r, "gradient_accumulation_steps"))
    config_use(r, "gradient_accumulation_steps", "accumulation.steps",
               cJSON_CreateNumber(config_int(r, "gradient_accumulation_steps", 1, 1, 1024)), NULL);
  config_default(r, "accumulation.steps", cJSON_CreateNumber(1), script);
  config_default_loop(r);
  if (!g_str_equal(type, "DEEPSPEED")) {
    config_default_scaler(r, a->dtype);
    config_default(r, "accumulation.sync_every_step", cJSON_CreateFalse(),
                   "accelerator.accumulate() runs under no_sync");
    config_default(r, "optimizer.zero_grad", cJSON_CreateString("end"),
                   "loops with accelerate free gradients after the optimizer's step");
  }
  config_default(r, "activation_checkpointing.policy", cJSON_CreateString("none"),
                 "the model says it (gradient_checkpointing_enable)");
  const char *trainer = "the training script makes the optimizer (the Trainer's default)";
  config_default(r, "optimizer.name", cJSON_CreateString("adamw"), trainer);
  config_default(r, "optimizer.implementation", cJSON_CreateString("fused"), trainer);
  const char *dtype = "fp32";
  config_default(r, "precision.parameters", cJSON_CreateString(dtype),
                 "the training script loads the model");
}

static void
read(ConfigReader *r)
{
  Accelerate a = {0};
  r->rows = rows;
  config_reader_walk(r);
  if (!config_failed(r))
    read_processes(r, &a);
  if (!config_failed(r))
    read_type(r, &a);
  if (!config_failed(r)) {
    read_precision(r, &a);
    read_compile(r);
    check_other_sections(r, a.type);
  }
  for (guint i = 0; i < G_N_ELEMENTS(types) && !config_failed(r); i++) {
    if (!g_str_equal(types[i].type, a.type))
      continue;
    if (config_has(r, "distributed_type") && types[i].strategy != NULL)
      config_use(r, "distributed_type", "strategy", cJSON_CreateString(types[i].strategy), NULL);
    else if (config_has(r, "distributed_type"))
      config_note(r, CONFIG_USED, "distributed_type", "%s says how", types[i].section);
    else if (types[i].strategy != NULL)
      config_default(r, "strategy", cJSON_CreateString(types[i].strategy),
                     "from the number of processes");
    types[i].read(r, &a);
  }
  if (!config_failed(r))
    default_script(r, &a);
  config_reader_end(r);
}

static const char *const marks[] = {"compute_environment", "distributed_type", "fsdp_config",
                                    "deepspeed_config",    "num_processes",    "mixed_precision",
                                    "machine_rank",        "num_machines",     NULL};

const ConfigKind config_kind_accelerate = {
    .title = "accelerate",
    .marks = marks,
    .read = read,
};
