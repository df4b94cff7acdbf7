/* recorded_config.c - the network and the plan that a recorded run of the reference data is of. */
#include "recorded_config.h"
#include "import/byte_source.h"
#include "tap_main.h"
#include <string.h>

/* ---- reading */

cJSON *
recorded_document(const char *path)
{
  g_autoptr(GError) error = NULL;
  g_autoptr(ByteSource) source = byte_source_open(path, &error);
  ck_assert_msg(source != NULL, "%s", error ? error->message : path);
  g_autoptr(GString) text = g_string_new(NULL);
  while (byte_source_peek(source) >= 0) {
    g_string_append_len(text, (const char *) source->at, source->end - source->at);
    source->at = source->end;
  }
  ck_assert_msg(source->error == NULL, "%s", source->error ? source->error->message : path);
  cJSON *document = cJSON_ParseWithLength(text->str, text->len);
  ck_assert_msg(document != NULL, "%s is not JSON", path);
  return document;
}

const char *
recorded_text(const cJSON *config, const char *key)
{
  const cJSON *item = cJSON_GetObjectItemCaseSensitive(config, key);
  ck_assert_msg(cJSON_IsString(item), "config.%s is no text", key);
  return item->valuestring;
}

int
recorded_int(const cJSON *config, const char *key)
{
  const cJSON *item = cJSON_GetObjectItemCaseSensitive(config, key);
  ck_assert_msg(cJSON_IsNumber(item), "config.%s is no number", key);
  return item->valueint;
}

gboolean
recorded_flag(const cJSON *config, const char *key)
{
  const cJSON *item = cJSON_GetObjectItemCaseSensitive(config, key);
  ck_assert_msg(cJSON_IsBool(item), "config.%s is no truth value", key);
  return cJSON_IsTrue(item);
}

static gboolean
text_is(const cJSON *config, const char *key, const char *text)
{
  return strcmp(recorded_text(config, key), text) == 0;
}

/* ---- writing */

/* What one side calls it, and the other. */
typedef struct {
  const char *theirs, *ours;
} Renaming;

static const char *
renamed(const char *text, const Renaming *names, gsize n)
{
  for (gsize i = 0; i < n; i++)
    if (strcmp(names[i].theirs, text) == 0)
      return names[i].ours;
  return text;
}
#define RENAMED(text, names) renamed(text, names, G_N_ELEMENTS(names))

static void
add_flag(cJSON *object, const char *key, gboolean value)
{
  cJSON_AddBoolToObject(object, key, value);
}

static char *
printed(cJSON *document)
{
  char *raw = cJSON_PrintUnformatted(document), *text = g_strdup(raw);
  cJSON_free(raw);
  cJSON_Delete(document);
  return text;
}

static void
add_sizes(cJSON *network, const cJSON *config)
{
  static const Renaming sizes[] = {
      {"dim", "hidden_size"},
      {"n_layers", "num_hidden_layers"},
      {"n_heads", "num_attention_heads"},
      {"n_kv_heads", "num_key_value_heads"},
      {"ffn_dim", "intermediate_size"},
      {"vocab", "vocab_size"},
  };
  for (gsize i = 0; i < G_N_ELEMENTS(sizes); i++)
    cJSON_AddNumberToObject(network, sizes[i].ours, recorded_int(config, sizes[i].theirs));
  add_flag(network, "tie_word_embeddings", recorded_flag(config, "tied"));
}

char *
recorded_network(const cJSON *config)
{
  static const Renaming ropes[] = {{"half", "rotate_half"}};
  static const Renaming norms[] = {{"manual", "composite"}};
  static const Renaming losses[] = {{"float", "fp32"}, {"native", "model"}};
  gboolean llama = text_is(config, "arch", "llama");
  cJSON *network = cJSON_CreateObject();
  cJSON_AddStringToObject(network, "model_type", recorded_text(config, "arch"));
  add_sizes(network, config);
  if (!llama)
    cJSON_AddNumberToObject(network, "max_position_embeddings",
                            MAX(1024, recorded_int(config, "seq")));
  cJSON *code = cJSON_AddObjectToObject(network, "implementation");
  cJSON_AddStringToObject(code, "code", llama ? "torchtitan" : "nanogpt");
  if (llama) {
    cJSON_AddStringToObject(code, "rms_norm", RENAMED(recorded_text(config, "norm"), norms));
    cJSON_AddStringToObject(code, "rope", RENAMED(recorded_text(config, "rope"), ropes));
    cJSON_AddStringToObject(code, "kv_heads",
                            text_is(config, "gqa", "enable") ? "native" : "repeated");
  }
  cJSON_AddStringToObject(code, "attention", recorded_text(config, "sdpa"));
  cJSON_AddStringToObject(code, "loss", RENAMED(recorded_text(config, "loss"), losses));
  return printed(network);
}

const char *
recorded_strategy(const cJSON *config)
{
  static const Renaming strategies[] = {{"plain", "none"}};
  return RENAMED(recorded_text(config, "parallel"), strategies);
}

static void
add_mesh(cJSON *plan, const cJSON *config, gboolean is_fsdp)
{
  int shard = recorded_int(config, "shard"), replicate = recorded_int(config, "replicate");
  gboolean ddp = text_is(config, "parallel", "ddp");
  cJSON *mesh = cJSON_AddObjectToObject(plan, "mesh");
  cJSON_AddNumberToObject(mesh, "shard", is_fsdp ? shard : 1);
  cJSON_AddNumberToObject(mesh, "replicate", ddp ? shard * replicate : replicate);
  cJSON *batch = cJSON_AddObjectToObject(plan, "batch");
  cJSON_AddNumberToObject(batch, "micro_batch", recorded_int(config, "batch"));
  cJSON_AddNumberToObject(batch, "sequence_length", recorded_int(config, "seq"));
  cJSON *accumulation = cJSON_AddObjectToObject(plan, "accumulation");
  cJSON_AddNumberToObject(accumulation, "steps", recorded_int(config, "accum"));
  add_flag(accumulation, "sync_every_step", !recorded_flag(config, "no_sync"));
  if (!is_fsdp)
    return;
  add_flag(accumulation, "reshard_after_backward", recorded_flag(config, "accum_reshard"));
  add_flag(accumulation, "set_last_backward", recorded_flag(config, "last_bwd_flag"));
}

/* FSDP's mixed precision is ignored by what is not FSDP: there autocast says what is computed. */
static void
add_precision(cJSON *plan, const cJSON *config, gboolean is_fsdp)
{
  const char *stored = recorded_text(config, "param_dtype");
  gboolean autocast = recorded_flag(config, "autocast");
  gboolean mixed = is_fsdp && !text_is(config, "mp", "none");
  const char *reduce = text_is(config, "mp", "bf16_fp32") ? "fp32" : "bf16";
  cJSON *precision = cJSON_AddObjectToObject(plan, "precision");
  cJSON_AddStringToObject(precision, "parameters", stored);
  cJSON_AddStringToObject(precision, "compute", mixed || autocast ? "bf16" : stored);
  cJSON_AddStringToObject(precision, "reduce", mixed ? reduce : stored);
  add_flag(precision, "autocast", autocast);
  if (*recorded_text(config, "output_dtype"))
    cJSON_AddStringToObject(precision, "output", recorded_text(config, "output_dtype"));
}

static void
add_training(cJSON *plan, const cJSON *config)
{
  static const Renaming policies[] = {{"op", "selective_op"}};
  static const Renaming codes[] = {{"for", "forloop"}};
  const char *policy = recorded_text(config, "ac");
  cJSON *checkpointing = cJSON_AddObjectToObject(plan, "activation_checkpointing");
  if (g_str_has_prefix(policy, "every"))
    cJSON_AddNumberToObject(checkpointing, "every", atoi(policy + strlen("every")));
  cJSON_AddStringToObject(checkpointing, "policy",
                          g_str_has_prefix(policy, "every") ? "every_n"
                                                            : RENAMED(policy, policies));
  if (cJSON_HasObjectItem(config, "ac_around") && strcmp(policy, "none") != 0)
    cJSON_AddStringToObject(checkpointing, "around", recorded_text(config, "ac_around"));
  cJSON *optimizer = cJSON_AddObjectToObject(plan, "optimizer");
  cJSON_AddStringToObject(optimizer, "name", recorded_text(config, "opt"));
  cJSON_AddStringToObject(optimizer, "implementation",
                          RENAMED(recorded_text(config, "opt_impl"), codes));
  if (recorded_flag(config, "clip"))
    cJSON_AddNumberToObject(optimizer, "clip_grad_norm", 1.0);
  else
    cJSON_AddNullToObject(optimizer, "clip_grad_norm");
  cJSON_AddStringToObject(optimizer, "zero_grad", recorded_text(config, "zero_at"));
  cJSON *allocator = cJSON_AddObjectToObject(plan, "allocator");
  add_flag(allocator, "expandable_segments",
           strstr(recorded_text(config, "alloc_conf"), "expandable_segments:True") != NULL);
}

/* "true", "false", "default" or a number. */
static void
add_reshard(cJSON *fsdp, const char *text)
{
  const char *key = "reshard_after_forward";
  if (strcmp(text, "default") == 0)
    cJSON_AddNullToObject(fsdp, key);
  else if (g_ascii_isdigit(*text))
    cJSON_AddNumberToObject(fsdp, key, atoi(text));
  else
    add_flag(fsdp, key, strcmp(text, "true") == 0);
}

static void
add_fsdp(cJSON *plan, const cJSON *config)
{
  const char *place = text_is(config, "embed_wrap", "root") ? "root" : "own";
  cJSON *fsdp = cJSON_AddObjectToObject(plan, "fsdp");
  cJSON_AddNumberToObject(fsdp, "blocks_per_group", recorded_int(config, "wrap"));
  cJSON_AddStringToObject(fsdp, "embedding", place);
  cJSON_AddStringToObject(fsdp, "head", place);
  add_reshard(fsdp, recorded_text(config, "raf"));
  add_flag(fsdp, "reshard_head", text_is(config, "embed_wrap", "separate_all"));
  add_flag(fsdp, "reshard_last_block", !recorded_flag(config, "raf_last_false"));
  cJSON_AddNumberToObject(fsdp, "forward_prefetch", recorded_int(config, "fwd_prefetch"));
  cJSON_AddNumberToObject(fsdp, "backward_prefetch", recorded_int(config, "bwd_prefetch"));
  if (text_is(config, "parallel", "fsdp1"))
    cJSON_AddStringToObject(fsdp, "sharding_strategy", recorded_text(config, "fsdp1_strategy"));
}

char *
recorded_plan(const cJSON *config)
{
  gboolean is_fsdp = g_str_has_prefix(recorded_text(config, "parallel"), "fsdp");
  cJSON *plan = cJSON_CreateObject();
  cJSON_AddStringToObject(plan, "strategy", recorded_strategy(config));
  add_mesh(plan, config, is_fsdp);
  add_precision(plan, config, is_fsdp);
  add_training(plan, config);
  if (is_fsdp)
    add_fsdp(plan, config);
  if (text_is(config, "parallel", "ddp")) {
    cJSON *ddp = cJSON_AddObjectToObject(plan, "ddp");
    add_flag(ddp, "gradient_as_bucket_view", recorded_flag(config, "ddp_bucket_view"));
    cJSON_AddNumberToObject(ddp, "bucket_cap_mb", recorded_int(config, "ddp_bucket_mb"));
  }
  return printed(plan);
}
