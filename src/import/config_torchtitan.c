/* config_torchtitan.c - torchtitan's TOML, of today and as it was in its first year. */
#include <string.h>

#include "import/config_batch.h"

#define DEGREE_MOST (1 << 20)
#define LOCAL_DEFAULT 8
#define SEQUENCE_DEFAULT 2048
#define PRINTS "prints and records only"
#define DATA "the host's data pipeline"
#define MODEL "the network is given beside the plan"
#define SAVING "checkpoints, which are no part of a step (the plan's phases.save and phases.load)"
#define LEARNING "values of the update, not sizes"
#define PIPELINE "of pipeline parallelism, which is off"
#define EVALUATION "evaluation, which is no part of a step (the plan's phases.evaluate)"
#define BALANCED "experts have the same load, as moe.load_imbalance 1 (the default) says"
#define EIGHT_BITS "of converters, of which there are none"

static void refuse_degree(ConfigReader *r, const ConfigRow *row, const char *key,
                          const cJSON *item);
static void check_uncounted(ConfigReader *r, const ConfigRow *row, const char *key,
                            const cJSON *item);

static const ConfigRow rows[] = {
    {"job.*", config_ignore, NULL, "names and folders"},
    {"profiling.*", config_ignore, NULL, PRINTS},
    {"metrics.*", config_ignore, NULL, PRINTS},
    {"comm.*", config_ignore, NULL, "timeouts"},
    {"debug.moe_force_load_balance", config_ignore, NULL, BALANCED},
    {"debug.*", config_ignore, NULL, "checks and random numbers"},
    {"lr_scheduler.*", config_ignore, NULL, LEARNING},
    {"checkpoint.*", config_ignore, NULL, SAVING},
    {"memory_estimation.*", config_ignore, NULL, "torchtitan's own estimate"},
    {"validation.*", config_ignore, NULL, EVALUATION},
    {"fault_tolerance.*", config_refuse_enabled, NULL, "TorchFT"},
    {"float8.*", config_ignore, NULL, EIGHT_BITS},
    {"mx.*", config_ignore, NULL, EIGHT_BITS},
    {"quantize.*", config_ignore, NULL, EIGHT_BITS},
    {"model.converters", config_refuse_on, NULL, "converters of the model (float8)"},
    {"model.*", config_ignore, NULL, MODEL},
    {"tokenizer.*", config_ignore, NULL, MODEL},
    {"optimizer.name", config_later, NULL, NULL},
    {"optimizer.implementation", config_later, NULL, NULL},
    {"optimizer.fused", config_later, NULL, NULL},
    {"optimizer.early_step_in_backward", config_refuse_on, NULL, "the optimizer inside backward"},
    {"optimizer.*", config_ignore, NULL, LEARNING},
    {"training.local_batch_size", config_later, NULL, NULL},
    {"training.batch_size", config_later, NULL, NULL},
    {"training.global_batch_size", config_later, NULL, NULL},
    {"training.gradient_accumulation_steps", config_later, NULL, NULL},
    {"training.seq_len", config_copy, "batch.sequence_length", NULL},
    {"training.max_norm", config_copy, "optimizer.clip_grad_norm", NULL},
    {"training.mixed_precision_param", config_later, NULL, NULL},
    {"training.mixed_precision_reduce", config_later, NULL, NULL},
    {"training.dtype", config_later, NULL, NULL},
    {"training.enable_cpu_offload", config_later, NULL, NULL},
    {"training.compile", config_later, NULL, NULL},
    {"training.data_parallel_degree", config_later, NULL, NULL},
    {"training.data_parallel_shard_degree", config_later, NULL, NULL},
    {"training.data_parallel_replicate_degree", config_later, NULL, NULL},
    {"training.tensor_parallel_degree", refuse_degree, NULL, "tensor parallelism"},
    {"training.pipeline_parallel_degree", refuse_degree, NULL, "pipeline parallelism"},
    {"training.context_parallel_degree", refuse_degree, NULL, "context parallelism"},
    {"training.enable_fp8_linear", config_refuse_on, NULL, "8-bit floating point"},
    {"training.fp8_linear", config_refuse_on, NULL, "8-bit floating point"},
    {"training.enable_float8_linear", config_refuse_on, NULL, "8-bit floating point"},
    {"training.steps", config_ignore, NULL, "how long, not how (--steps)"},
    {"training.warmup_steps", config_ignore, NULL, LEARNING},
    {"training.dataset", config_ignore, NULL, DATA},
    {"training.dataset_path", config_ignore, NULL, DATA},
    {"training.gc_freq", config_ignore, NULL, "the host's garbage collection"},
    {"training.gc_debug", config_ignore, NULL, "the host's garbage collection"},
    {"training.seed", config_ignore, NULL, "random numbers"},
    {"training.deterministic", config_ignore, NULL, "random numbers"},
    {"training.debug_moe_force_load_balance", config_ignore, NULL, BALANCED},
    {"training.dataloader.*", config_ignore, NULL, DATA},
    {"parallelism.data_parallel_shard_degree", config_later, NULL, NULL},
    {"parallelism.data_parallel_replicate_degree", config_later, NULL, NULL},
    {"parallelism.fsdp_reshard_after_forward", config_later, NULL, NULL},
    {"parallelism.tensor_parallel_degree", refuse_degree, NULL, "tensor parallelism"},
    {"parallelism.pipeline_parallel_degree", refuse_degree, NULL, "pipeline parallelism"},
    {"parallelism.context_parallel_degree", refuse_degree, NULL, "context parallelism"},
    {"parallelism.expert_parallel_degree", refuse_degree, NULL, "expert parallelism"},
    {"parallelism.expert_tensor_parallel_degree", refuse_degree, NULL, "expert parallelism"},
    {"parallelism.enable_compiled_autograd", config_refuse_on, NULL, "compiled autograd"},
    {"parallelism.pipeline_*", config_ignore, NULL, PIPELINE},
    {"parallelism.module_fqns_per_model_part", config_ignore, NULL, PIPELINE},
    {"parallelism.disable_loss_parallel", config_ignore, NULL, "of tensor parallelism"},
    {"parallelism.enable_async_tensor_parallel", config_ignore, NULL, "of tensor parallelism"},
    {"parallelism.context_parallel_*", config_ignore, NULL, "of context parallelism"},
    {"parallelism.expert_parallel_*", config_ignore, NULL, "of expert parallelism"},
    {"experimental.pipeline_parallel_degree", refuse_degree, NULL, "pipeline parallelism"},
    {"experimental.context_parallel_degree", refuse_degree, NULL, "context parallelism"},
    {"experimental.enable_compiled_autograd", config_refuse_on, NULL, "compiled autograd"},
    {"experimental.*", config_ignore, NULL, "of parallelism that is off, or code to import"},
    {"activation_checkpoint.mode", config_later, NULL, NULL},
    {"activation_checkpoint.selective_ac_option", config_later, NULL, NULL},
    {"activation_checkpoint.early_stop", config_later, NULL, NULL},
    {"activation_checkpoint.per_op_sac_force_recompute_mm_shapes_by_fqns", check_uncounted, NULL,
     "the router of experts, as torchtitan's networks have it"},
    {"activation_checkpoint.preserve_rng_state", config_ignore, NULL, "random numbers"},
    {"activation_checkpoint.determinism_check", config_ignore, NULL, "a check"},
    {"activation_checkpoint.debug", config_ignore, NULL, "a check"},
    {"activation_checkpoint.*", config_ignore, NULL, "of modes that are not simulated"},
    {"compile.enable", config_later, NULL, NULL},
    {"compile.components", config_later, NULL, NULL},
    {"compile.*", config_ignore, NULL, "of the compiler; Inductor is simulated"},
    {0},
};

/* A degree above 1; -1 and 1 are off. */
static void
refuse_degree(ConfigReader *r, const ConfigRow *row, const char *key, const cJSON *item)
{
  if (config_number(r, key, 1) > 1)
    config_fail(r, key, "%s is not supported: only 1 (off)", row->note);
  else
    config_ignore(r, &(ConfigRow){row->key, NULL, NULL, "1: off"}, key, item);
}

/* Products that selective checkpointing does not count: the router's alone, or none. */
static void
check_uncounted(ConfigReader *r, const ConfigRow *row, const char *key, const cJSON *item)
{
  const cJSON *name;
  cJSON_ArrayForEach(name, item)
  {
    if (!cJSON_IsString(name) || !g_str_equal(name->valuestring, "moe.router.gate"))
      config_fail(r, key, "only moe.router.gate is known of layers whose products are recomputed");
  }
  config_ignore(r, row, key, item);
}

/* The key in the section where it is today, else where it was. */
static const char *
moved_key(const ConfigReader *r, const char *today, const char *once)
{
  return config_has(r, today) || !config_has(r, once) ? today : once;
}

/* ---- ranks ---- */

typedef struct {
  int shard, replicate; /* at least 1 */
  gboolean is_ddp;      /* nothing is sharded */
} Mesh;

static int
read_degree(ConfigReader *r, const char *key, int fallback)
{
  int degree = config_int(r, key, fallback, -1, DEGREE_MOST);
  if (degree == 0)
    config_fail(r, key, "0 is neither a number of ranks nor -1");
  return degree;
}

static Mesh
read_mesh(ConfigReader *r)
{
  const char *shard_key = moved_key(r, "parallelism.data_parallel_shard_degree",
                                    config_has(r, "training.data_parallel_degree")
                                        ? "training.data_parallel_degree"
                                        : "training.data_parallel_shard_degree");
  const char *replicate_key = moved_key(r, "parallelism.data_parallel_replicate_degree",
                                        "training.data_parallel_replicate_degree");
  int replicate = read_degree(r, replicate_key, 1), shard = read_degree(r, shard_key, -1);
  int ranks = r->result->settings->ranks;
  if (replicate < 0)
    config_fail(r, replicate_key, "-1: only data_parallel_shard_degree can be what is left");
  if (shard > 0 && ranks > 0 && (gint64) shard * replicate != ranks)
    config_fail(r, shard_key, "%d x %d ranks, but --ranks says %d", replicate, shard, ranks);
  else if (shard < 0 && ranks > 0 && replicate > 0 && ranks % replicate != 0)
    config_fail(r, replicate_key, "%d ranks (--ranks) are no multiple of it", ranks);
  if (config_failed(r))
    return (Mesh){1, 1, TRUE};
  const char *left = ranks > 0 ? "what --ranks leaves"
                               : "-1, all ranks that are left, and nothing says how many: 8";
  int wanted =
      shard > 0 ? shard : MAX((ranks > 0 ? ranks : CONFIG_RANKS_USUAL * replicate) / replicate, 1);
  if (config_has(r, shard_key))
    config_use(r, shard_key, "mesh.shard", cJSON_CreateNumber(wanted), shard < 0 ? "%s" : NULL,
               left);
  config_default(r, "mesh.shard", cJSON_CreateNumber(wanted), left);
  if (config_has(r, replicate_key))
    config_use(r, replicate_key, "mesh.replicate", cJSON_CreateNumber(replicate), NULL);
  return (Mesh){wanted, replicate, wanted == 1};
}

/* ---- batches ---- */

static void
read_batches(ConfigReader *r, Mesh mesh)
{
  gboolean open = config_number(r, "training.global_batch_size", -1) < 0;
  if (open && config_has(r, "training.global_batch_size"))
    config_note(r, CONFIG_IGNORED, "training.global_batch_size", "-1: follows from the others");
  ConfigBatch batch = {
      .total_key = open ? NULL : "training.global_batch_size",
      .micro_key = moved_key(r, "training.local_batch_size", "training.batch_size"),
      .steps_key = "training.gradient_accumulation_steps",
      .micro = config_has(r, "training.local_batch_size") || config_has(r, "training.batch_size")
                   ? 0
                   : LOCAL_DEFAULT,
      .micro_default = LOCAL_DEFAULT,
      .ranks = mesh.shard * mesh.replicate,
      .micro_reason = "torchtitan's default",
      .steps_reason = "one, without global_batch_size",
  };
  if (config_is_set(r, "batch.micro_batch"))
    batch.micro = 0;
  config_batch_resolve(r, &batch);
  config_default(r, "batch.sequence_length", cJSON_CreateNumber(SEQUENCE_DEFAULT),
                 "torchtitan's default");
}

/* ---- precision ---- */

static const char *
read_dtype(ConfigReader *r, const char *key, const char *fallback)
{
  static const char *const names[][2] = {
      {"bfloat16", "bf16"}, {"float32", "fp32"}, {"float16", "fp16"}};
  const char *text = config_text(r, key, NULL);
  for (guint i = 0; text != NULL && i < G_N_ELEMENTS(names); i++)
    if (g_str_equal(text, names[i][0]))
      return names[i][1];
  if (text != NULL)
    config_fail(r, key, "'%.60s' is not one of bfloat16, float32, float16", text);
  return fallback;
}

static void
put_dtype(ConfigReader *r, const char *key, const char *ours, const char *dtype)
{
  if (config_has(r, key))
    config_use(r, key, ours, cJSON_CreateString(dtype), NULL);
  config_default(r, ours, cJSON_CreateString(dtype), "torchtitan's default");
}

static void
read_precision(ConfigReader *r, Mesh mesh)
{
  const char *parameters = read_dtype(r, "training.dtype", "fp32");
  const char *compute = read_dtype(r, "training.mixed_precision_param", "bf16");
  const char *reduce = read_dtype(r, "training.mixed_precision_reduce", "fp32");
  if (config_failed(r))
    return;
  put_dtype(r, "training.dtype", "precision.parameters", parameters);
  put_dtype(r, "training.mixed_precision_param", "precision.compute", compute);
  if (!mesh.is_ddp) {
    put_dtype(r, "training.mixed_precision_reduce", "precision.reduce", reduce);
    return;
  }
  if (config_has(r, "training.mixed_precision_reduce"))
    config_note(r, CONFIG_IGNORED, "training.mixed_precision_reduce", "of FSDP only");
  gboolean mixed = !g_str_equal(compute, "fp32") && g_str_equal(parameters, "fp32");
  config_default(r, "precision.autocast", cJSON_CreateBool(mixed),
                 "torchtitan takes autocast where nothing is sharded");
}

/* ---- strategy ---- */

static void
read_resharding(ConfigReader *r)
{
  const char *key = "parallelism.fsdp_reshard_after_forward";
  const char *policy = config_text(r, key, "default");
  gboolean never = g_str_equal(policy, "never"), always = g_str_equal(policy, "always");
  if (!never && !always && !g_str_equal(policy, "default")) {
    config_fail(r, key, "'%.60s' is not one of default, always, never", policy);
    return;
  }
  if (config_has(r, key))
    config_use(r, key, "fsdp.reshard_after_forward", cJSON_CreateBool(!never),
               always ? "of norm and output too" : NULL);
  config_default(r, "fsdp.reshard_after_forward", cJSON_CreateTrue(), "torchtitan's default");
  if (always)
    config_set(r, "fsdp.reshard_head", cJSON_CreateTrue());
}

static void
read_strategy(ConfigReader *r, Mesh mesh)
{
  const char *groups = "torchtitan's groups: embedding, each block, norm with output";
  const char *reshard = "parallelism.fsdp_reshard_after_forward";
  const char *offload = "training.enable_cpu_offload";
  gboolean offloads = config_bool(r, offload, FALSE);
  config_default(r, "strategy",
                 cJSON_CreateString(!mesh.is_ddp         ? "fsdp2"
                                    : mesh.replicate > 1 ? "ddp"
                                                         : "none"),
                 "from the degrees of data parallelism");
  if (mesh.is_ddp) {
    if (config_has(r, reshard))
      config_note(r, CONFIG_IGNORED, reshard, "nothing is sharded");
    if (config_has(r, offload))
      config_note(r, CONFIG_IGNORED, offload, offloads ? "of FSDP only" : "off");
    return;
  }
  config_default(r, "fsdp.blocks_per_group", cJSON_CreateNumber(1), groups);
  config_default(r, "fsdp.embedding", cJSON_CreateString("own"), groups);
  config_default(r, "fsdp.head", cJSON_CreateString("own"), groups);
  read_resharding(r);
  if (config_has(r, offload))
    config_use(r, offload, "fsdp.cpu_offload", cJSON_CreateBool(offloads), NULL);
}

/* ---- activation checkpointing ---- */

static void
read_selective(ConfigReader *r)
{
  const char *key = "activation_checkpoint.selective_ac_option";
  const char *option = config_text(r, key, "2");
  char *end;
  gint64 every = g_ascii_strtoll(option, &end, 10);
  if (g_str_equal(option, "op")) {
    config_use(r, "activation_checkpoint.mode", "activation_checkpointing.policy",
               cJSON_CreateString("selective_op"), NULL);
    config_use(r, key, "activation_checkpointing.keep", cJSON_CreateString("alternate_mm"), NULL);
  } else if (*end == '\0' && every >= 1 && every <= DEGREE_MOST) {
    config_use(r, "activation_checkpoint.mode", "activation_checkpointing.policy",
               cJSON_CreateString("every_n"), NULL);
    if (config_has(r, key))
      config_use(r, key, "activation_checkpointing.every", cJSON_CreateNumber((double) every),
                 NULL);
    config_default(r, "activation_checkpointing.every", cJSON_CreateNumber((double) every),
                   "torchtitan's default");
  } else {
    config_fail(r, key, "'%.60s' is neither a number of blocks nor op", option);
  }
}

/* Is this a file of torchtitan's first year?  Until 0.2.0 checkpoints had PyTorch's default. */
static gboolean
is_old(const ConfigReader *r)
{
  static const char *const keys[] = {"training.batch_size", "training.compile",
                                     "training.data_parallel_degree",
                                     "training.data_parallel_shard_degree"};
  for (guint i = 0; i < G_N_ELEMENTS(keys); i++)
    if (config_has(r, keys[i]))
      return TRUE;
  return FALSE;
}

static void
read_checkpointing(ConfigReader *r)
{
  const char *key = "activation_checkpoint.mode", *mode = config_text(r, key, NULL);
  const char *option = "activation_checkpoint.selective_ac_option";
  const char *early = "activation_checkpoint.early_stop";
  gboolean is_plain = mode != NULL && (g_str_equal(mode, "none") || g_str_equal(mode, "full"));
  if (mode == NULL) {
    config_default(r, "activation_checkpointing.policy", cJSON_CreateString("every_n"),
                   "torchtitan's default, selective: every second block");
    config_default(r, "activation_checkpointing.every", cJSON_CreateNumber(2),
                   "torchtitan's default");
  } else if (is_plain) {
    config_use(r, key, "activation_checkpointing.policy", cJSON_CreateString(mode), NULL);
  } else if (g_str_equal(mode, "selective")) {
    read_selective(r);
  } else {
    config_fail(r, key, "'%.60s' is not supported, only none, full and selective", mode);
  }
  if (is_plain && config_has(r, option))
    config_note(r, CONFIG_IGNORED, option, "of mode selective only");
  gboolean stops = config_bool(r, early, is_old(r));
  if (g_strcmp0(mode, "none") == 0)
    return;
  if (config_has(r, early))
    config_use(r, early, "activation_checkpointing.early_stop", cJSON_CreateBool(stops), NULL);
  config_default(r, "activation_checkpointing.early_stop", cJSON_CreateBool(stops),
                 "torchtitan's default");
}

/* ---- optimizer, compile ---- */

static void
read_optimizer(ConfigReader *r)
{
  static const char *const codes[][2] = {
      {"fused", "fused"}, {"foreach", "foreach"}, {"for-loop", "forloop"}};
  const char *name = config_text(r, "optimizer.name", "AdamW");
  if (!g_str_equal(name, "AdamW") && !g_str_equal(name, "Adam")) {
    config_fail(r, "optimizer.name", "'%.60s' is not supported, only AdamW and Adam", name);
    return;
  }
  const char *ours = g_str_equal(name, "Adam") ? "adam" : "adamw";
  if (config_has(r, "optimizer.name"))
    config_use(r, "optimizer.name", "optimizer.name", cJSON_CreateString(ours), NULL);
  config_default(r, "optimizer.name", cJSON_CreateString(ours), "torchtitan's default");

  const char *key = moved_key(r, "optimizer.implementation", "optimizer.fused"), *code = NULL;
  if (g_str_equal(key, "optimizer.fused"))
    code = config_bool(r, key, TRUE) ? "fused" : "foreach";
  const char *text = code != NULL ? code : config_text(r, key, "fused");
  for (guint i = 0; i < G_N_ELEMENTS(codes); i++)
    if (g_str_equal(text, codes[i][0]))
      code = codes[i][1];
  if (code == NULL)
    config_fail(r, key, "'%.60s' is not one of fused, foreach, for-loop", text);
  else if (config_has(r, key))
    config_use(r, key, "optimizer.implementation", cJSON_CreateString(code), NULL);
  if (code != NULL)
    config_default(r, "optimizer.implementation", cJSON_CreateString(code), "torchtitan's default");
  config_default(r, "optimizer.clip_grad_norm", cJSON_CreateNumber(1), "torchtitan's default");
}

static void
read_compile(ConfigReader *r)
{
  const char *key = moved_key(r, "compile.enable", "training.compile");
  const char *parts = "compile.components";
  const cJSON *components = config_get(r, parts), *element;
  gboolean model = components == NULL;
  cJSON_ArrayForEach(element, components) model =
      model || (cJSON_IsString(element) && g_str_equal(element->valuestring, "model"));
  gboolean is_on = config_bool(r, key, FALSE);
  if (config_has(r, key) && is_on && model)
    config_use(r, key, "compile", cJSON_CreateString("per_block"),
               "the loss as the network says (implementation.loss)");
  else if (config_has(r, key))
    config_note(r, CONFIG_IGNORED, key, is_on ? "blocks are not among compile.components" : "off");
  if (config_has(r, parts))
    config_note(r, is_on ? CONFIG_USED : CONFIG_IGNORED, parts,
                model ? "blocks are compiled with compile.enable" : "blocks are not compiled");
}

static void
read(ConfigReader *r)
{
  r->rows = rows;
  config_reader_walk(r);
  if (!config_failed(r)) {
    Mesh mesh = read_mesh(r);
    if (!config_failed(r)) {
      read_strategy(r, mesh);
      read_batches(r, mesh);
      read_precision(r, mesh);
      read_checkpointing(r);
      read_optimizer(r);
      read_compile(r);
    }
  }
  config_reader_end(r);
}

static const char *const marks[] = {
    "job",          "parallelism", "lr_scheduler", "training", "activation_checkpoint", "metrics",
    "model.flavor", NULL};

const ConfigKind config_kind_torchtitan = {
    .title = "torchtitan",
    .marks = marks,
    .read = read,
};
