/* config_fsdp.c - the settings of FSDP 1 and 2 as accelerate has them. */
#include "import/config_fsdp.h"

#include <string.h>

#include "import/config_batch.h"

#define LOADING "how weights are loaded, not how they train"
#define XLA "FSDP of torch_xla"

static const ConfigRow rows[] = {
    {"version", config_later, NULL, NULL},
    {"sharding_strategy", config_later, NULL, NULL},
    {"reshard_after_forward", config_later, NULL, NULL},
    {"offload_params", config_later, NULL, NULL},
    {"cpu_offload", config_later, NULL, NULL},
    {"auto_wrap_policy", config_later, NULL, NULL},
    {"transformer_layer_cls_to_wrap", config_later, NULL, NULL},
    {"transformer_cls_names_to_wrap", config_later, NULL, NULL},
    {"min_num_params", config_later, NULL, NULL},
    {"backward_prefetch", config_later, NULL, NULL},
    {"backward_prefetch_policy", config_later, NULL, NULL},
    {"forward_prefetch", config_later, NULL, NULL},
    {"use_orig_params", config_later, NULL, NULL},
    {"limit_all_gathers", config_later, NULL, NULL},
    {"activation_checkpointing", config_later, NULL, NULL},
    {"activation_checkpointing_offload", config_refuse_on, NULL,
     "activations in the host's memory"},
    {"cpu_ram_efficient_loading", config_ignore, NULL, LOADING},
    {"sync_module_states", config_ignore, NULL, LOADING},
    {"state_dict_type", config_ignore, NULL,
     "how checkpoints are saved, which is no part of a step (the plan's phases.save)"},
    {"xla", config_refuse_on, NULL, XLA},
    {"xla_fsdp_v2", config_refuse_on, NULL, XLA},
    {"xla_fsdp_grad_ckpt", config_refuse_on, NULL, XLA},
    {"xla_fsdp_settings", config_refuse_on, NULL, XLA},
    {"enable_auto_wrap", config_ignore, NULL, "auto_wrap_policy says it"},
    {"ignored_modules", config_refuse_on, NULL, "modules that FSDP leaves out"},
    {0},
};

const char *
config_sharding_strategy(const char *text)
{
  static const char *const names[][3] = {
      {"1", "FULL_SHARD", "FULL_SHARD"},
      {"2", "SHARD_GRAD_OP", "SHARD_GRAD_OP"},
      {"3", "NO_SHARD", "NO_SHARD"},
      {"4", "HYBRID_SHARD", "HYBRID_SHARD"},
      {"5", "HYBRID_SHARD_ZERO2", "_HYBRID_SHARD_ZERO2"},
      {"5", "_HYBRID_SHARD_ZERO2", "_HYBRID_SHARD_ZERO2"},
  };
  for (guint i = 0; i < G_N_ELEMENTS(names); i++)
    if (g_str_equal(text, names[i][0]) || g_ascii_strcasecmp(text, names[i][1]) == 0)
      return names[i][2];
  return NULL;
}

static gboolean
is_truth(const cJSON *item)
{
  return cJSON_IsBool(item) ||
         (cJSON_IsString(item) && (g_ascii_strcasecmp(item->valuestring, "true") == 0 ||
                                   g_ascii_strcasecmp(item->valuestring, "false") == 0));
}

/* ---- what is sharded ---- */

static int
read_version(ConfigReader *r, const FsdpOutside *outside)
{
  int version = config_int(r, "version", outside->version, 1, 2);
  const char *strategy = version == 2 ? "fsdp2" : "fsdp1";
  if (config_has(r, "version"))
    config_use(r, "version", "strategy", cJSON_CreateString(strategy), NULL);
  else
    config_default(r, "strategy", cJSON_CreateString(strategy), outside->version_reason);
  return version;
}

/* FSDP1's strategy, from the keys that may say it: they have to agree. */
static const char *
read_strategy1(ConfigReader *r, const FsdpOutside *outside)
{
  static const char *const keys[] = {"sharding_strategy", "reshard_after_forward"};
  const char *strategy = outside->strategy;
  if (strategy != NULL)
    config_set(r, "fsdp.sharding_strategy", cJSON_CreateString(strategy));
  for (guint i = 0; i < G_N_ELEMENTS(keys) && !config_failed(r); i++) {
    if (!config_has(r, keys[i]))
      continue;
    if (i == 1 && is_truth(config_get(r, keys[i]))) {
      config_fail(r, keys[i],
                  "true and false are FSDP2's, but fsdp_version is 1: say fsdp_version: 2, or "
                  "fsdp_sharding_strategy");
      return NULL;
    }
    const char *text = config_text(r, keys[i], "");
    strategy = config_sharding_strategy(text);
    if (strategy == NULL)
      config_fail(r, keys[i],
                  "'%.60s' is not one of FULL_SHARD, SHARD_GRAD_OP, NO_SHARD, HYBRID_SHARD, "
                  "HYBRID_SHARD_ZERO2, or 1 to 5",
                  text);
    else
      config_use(r, keys[i], "fsdp.sharding_strategy", cJSON_CreateString(strategy), NULL);
  }
  if (strategy == NULL && !config_failed(r)) {
    strategy = "FULL_SHARD";
    config_default(r, "fsdp.sharding_strategy", cJSON_CreateString(strategy), "FSDP's default");
  }
  return strategy;
}

static void
read_strategy2(ConfigReader *r, const FsdpOutside *outside)
{
  const char *key = "sharding_strategy", *text = config_text(r, key, outside->strategy);
  const char *strategy = text != NULL ? config_sharding_strategy(text) : NULL;
  gboolean reshard = TRUE;
  if (config_has(r, "reshard_after_forward")) {
    const cJSON *item = config_get(r, "reshard_after_forward");
    if (!is_truth(item) && !cJSON_IsNumber(item)) {
      config_fail(r, "reshard_after_forward",
                  "fsdp_version 2 takes true or false; names of strategies are FSDP1's");
      return;
    }
    reshard = config_bool(r, "reshard_after_forward", TRUE);
    config_use(r, "reshard_after_forward", "fsdp.reshard_after_forward", cJSON_CreateBool(reshard),
               NULL);
  } else if (strategy != NULL && outside->strategy == strategy) {
    reshard = g_str_equal(strategy, "FULL_SHARD") || g_str_equal(strategy, "HYBRID_SHARD");
  }
  config_default(r, "fsdp.reshard_after_forward", cJSON_CreateBool(reshard),
                 "the default of fsdp_version 2");
  if (!config_has(r, key))
    return;
  if (strategy == NULL || !g_str_equal(strategy, reshard ? "FULL_SHARD" : "SHARD_GRAD_OP"))
    config_fail(r, key,
                "'%.60s' is FSDP1's, but fsdp_version is 2, which has fsdp_reshard_after_forward "
                "%s",
                text, reshard ? "true" : "false");
  else
    config_note(r, CONFIG_IGNORED, key, "FSDP1's: reshard_after_forward says the same in FSDP2");
}

/* ---- the mesh ---- */

static void
lay_out_mesh(ConfigReader *r, const FsdpOutside *outside, const char *strategy)
{
  int ranks = config_ranks_or_usual(outside->ranks);
  int machines = MAX(outside->machines, 1), shard = ranks, replicate = 1;
  const char *reason = outside->ranks > 0 ? "all ranks share the parameters"
                                          : "the file does not say how many ranks there are";
  if (strategy != NULL && g_str_equal(strategy, "NO_SHARD")) {
    shard = 1, replicate = ranks;
    reason = "NO_SHARD: each rank has all parameters";
  } else if (strategy != NULL && strstr(strategy, "HYBRID") != NULL) {
    shard = ranks / machines, replicate = machines;
    reason = "hybrid: the ranks of a machine share the parameters, machines are replicas";
  }
  if (outside->shard > 0 && outside->replicate > 0) {
    shard = outside->shard, replicate = outside->replicate;
    reason = "parallelism_config";
  }
  config_default(r, "mesh.shard", cJSON_CreateNumber(shard), reason);
  config_default(r, "mesh.replicate", cJSON_CreateNumber(replicate), reason);
}

/* ---- groups ---- */

static void
note_classes(ConfigReader *r, const char *key, gboolean by_class)
{
  const cJSON *item = config_get(r, key);
  if (!config_has(r, key))
    return;
  int classes = cJSON_IsArray(item) ? cJSON_GetArraySize(item) : 1;
  if (cJSON_IsString(item) && strchr(item->valuestring, ',') != NULL)
    classes = 2;
  if (!by_class)
    config_note(r, CONFIG_IGNORED, key, "of TRANSFORMER_BASED_WRAP only");
  else
    config_note(r, CONFIG_USED, key, "fsdp.blocks_per_group = 1 (%s)",
                classes > 1 ? "several classes: those of the network's blocks count"
                            : "taken to be the class of the network's blocks");
}

static void
read_groups(ConfigReader *r, const FsdpOutside *outside)
{
  const char *key = "auto_wrap_policy", *classes = "transformer_layer_cls_to_wrap";
  if (!config_has(r, classes))
    classes = "transformer_cls_names_to_wrap";
  const char *policy = config_text(r, key, NULL);
  double least = config_number(r, "min_num_params", 0);
  gboolean by_size = policy != NULL && g_str_equal(policy, "SIZE_BASED_WRAP");
  gboolean whole = policy != NULL ? g_str_equal(policy, "NO_WRAP") || g_str_equal(policy, "no")
                                  : !outside->wraps && !config_has(r, classes);
  if (by_size || (policy == NULL && least > 0)) {
    config_fail(r, by_size ? key : "min_num_params",
                "which modules are wrapped follows from their sizes: not supported; use "
                "TRANSFORMER_BASED_WRAP, or a plan with fsdp.groups");
    return;
  }
  if (policy != NULL && !whole && !g_str_equal(policy, "TRANSFORMER_BASED_WRAP")) {
    config_fail(r, key, "'%.60s' is not one of TRANSFORMER_BASED_WRAP, SIZE_BASED_WRAP, NO_WRAP",
                policy);
    return;
  }
  if (policy != NULL)
    config_use(r, key, "fsdp.blocks_per_group", cJSON_CreateNumber(whole ? 0 : 1),
               whole ? "the whole model is one group" : "each block is a group");
  note_classes(r, classes, !whole);
  config_default(r, "fsdp.blocks_per_group", cJSON_CreateNumber(whole ? 0 : 1),
                 whole ? "no policy wraps blocks: the whole model is one group"
                       : "each block is a group");
  if (config_has(r, "min_num_params"))
    config_note(r, CONFIG_IGNORED, "min_num_params", "of SIZE_BASED_WRAP only");
}

/* ---- when things are gathered ---- */

static void
read_backward_prefetch(ConfigReader *r, int version)
{
  static const char *const names[][3] = {
      {"1", "BACKWARD_PRE", "pre"}, {"2", "BACKWARD_POST", "post"}, {"3", "NO_PREFETCH", "none"}};
  const char *key = "backward_prefetch", *old = "backward_prefetch_policy";
  if (config_has(r, key) && config_has(r, old) &&
      g_ascii_strcasecmp(config_text(r, key, ""), config_text(r, old, "")) != 0)
    config_fail(r, old, "contradicts 'fsdp_backward_prefetch'");
  if (!config_has(r, key))
    key = old;
  if (!config_has(r, key)) {
    if (version == 1)
      config_default(r, "fsdp.backward_prefetch", cJSON_CreateString("none"),
                     "NO_PREFETCH is accelerate's default");
    return;
  }
  if (version == 2) {
    config_note(r, CONFIG_IGNORED, key, "FSDP1's: FSDP2 prefetches by itself");
    return;
  }
  const char *text = config_text(r, key, "");
  for (guint i = 0; i < G_N_ELEMENTS(names); i++)
    if (g_str_equal(text, names[i][0]) || g_ascii_strcasecmp(text, names[i][1]) == 0) {
      config_use(r, key, "fsdp.backward_prefetch", cJSON_CreateString(names[i][2]), NULL);
      return;
    }
  config_fail(r, key, "'%.60s' is not one of BACKWARD_PRE, BACKWARD_POST, NO_PREFETCH", text);
}

static void
read_fsdp1_switches(ConfigReader *r, int version)
{
  static const struct {
    const char *key, *ours;
    gboolean fallback, is_number;
  } switches[] = {{"forward_prefetch", "fsdp.forward_prefetch", FALSE, TRUE},
                  {"use_orig_params", "fsdp.use_orig_params", TRUE, FALSE},
                  {"limit_all_gathers", "fsdp.limit_all_gathers", TRUE, FALSE}};
  for (guint i = 0; i < G_N_ELEMENTS(switches); i++) {
    const char *key = switches[i].key;
    gboolean value = config_bool(r, key, switches[i].fallback);
    if (!config_has(r, key) || config_failed(r))
      continue;
    if (version == 2)
      config_note(r, CONFIG_IGNORED, key, "FSDP1's: FSDP2 does not have it");
    else
      config_use(r, key, switches[i].ours,
                 switches[i].is_number ? cJSON_CreateNumber(value) : cJSON_CreateBool(value), NULL);
  }
}

/* ---- memory ---- */

static void
read_offload(ConfigReader *r, const FsdpOutside *outside)
{
  const char *key = config_has(r, "offload_params") ? "offload_params" : "cpu_offload";
  gboolean offload = config_bool(r, key, outside->offloads);
  if (config_has(r, key) && offload != outside->offloads && outside->offloads)
    config_fail(r, key, "contradicts 'fsdp', which says offload");
  if (config_has(r, key))
    config_use(r, key, "fsdp.cpu_offload", cJSON_CreateBool(offload), NULL);
  else if (outside->offloads)
    config_set(r, "fsdp.cpu_offload", cJSON_CreateTrue());
}

static void
read_checkpointing(ConfigReader *r, const FsdpOutside *outside, int version)
{
  const char *key = "activation_checkpointing";
  gboolean own = config_bool(r, key, FALSE);
  if (own && outside->checkpoints) {
    config_fail(r, key, "contradicts gradient_checkpointing: only one of them can be true");
  } else if (own) {
    config_use(r, key, "activation_checkpointing.policy", cJSON_CreateString("full"),
               "each block, not reentrant");
    if (version == 1)
      config_default(r, "activation_checkpointing.wrapper", cJSON_CreateTrue(),
                     "checkpoint_wrapper, not the model's own");
    config_default(r, "activation_checkpointing.around",
                   cJSON_CreateString(version == 2 ? "fsdp" : "module"),
                   version == 2 ? "accelerate wraps for checkpoints before fully_shard"
                                : "accelerate wraps for checkpoints inside of FSDP1's modules");
  } else if (config_has(r, key)) {
    config_note(r, CONFIG_IGNORED, key, "off");
  }
}

/* Accelerator.prepare_model, fsdp2_prepare_model and set_mixed_precision of accelerate 1.15. */
static void
read_mixed_precision(ConfigReader *r, const FsdpOutside *outside, int version)
{
  const char *why = "accelerate keeps parameters in fp32 and computes and reduces in the mixed "
                    "precision's dtype";
  if (outside->dtype == NULL)
    return;
  config_default(r, "precision.parameters", cJSON_CreateString("fp32"), why);
  config_default(r, "precision.reduce", cJSON_CreateString(outside->dtype), why);
  if (version == 2) {
    config_default(r, "precision.output", cJSON_CreateString(outside->dtype),
                   "accelerate's output_dtype under FSDP2, which it does not autocast");
    return;
  }
  config_default(r, "fsdp.cast_buffers", cJSON_CreateTrue(), "accelerate's buffer_dtype");
  config_default_autocast(r);
}

/* fsdp2_prepare_model of accelerate 1.15: whatever the policy wraps, embedding and head are groups
 * of their own; root and head stay gathered. */
static void
default_groups2(ConfigReader *r)
{
  const char *why = "accelerate 1.15 wraps the embedding, and final norm with output layer";
  config_default(r, "fsdp.embedding", cJSON_CreateString("untied"), why);
  config_default(r, "fsdp.head", cJSON_CreateString("own"), why);
  config_default(r, "fsdp.reshard_root", cJSON_CreateFalse(),
                 "accelerate leaves the root to FSDP2's default");
}

void
config_read_fsdp(ConfigReader *r, const FsdpOutside *outside)
{
  r->rows = rows;
  r->strip = "fsdp_";
  config_reader_walk(r);
  if (!config_failed(r)) {
    int version = read_version(r, outside);
    const char *strategy = NULL;
    if (version == 2)
      read_strategy2(r, outside);
    else
      strategy = read_strategy1(r, outside);
    lay_out_mesh(r, outside, version == 2 ? outside->strategy : strategy);
    read_groups(r, outside);
    if (version == 2)
      default_groups2(r);
    read_backward_prefetch(r, version);
    read_fsdp1_switches(r, version);
    read_offload(r, outside);
    read_checkpointing(r, outside, version);
    read_mixed_precision(r, outside, version);
  }
  config_reader_end(r);
}
