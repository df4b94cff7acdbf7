/* network_spec.c - reads a model description: whose network it is, whose code runs it, and what
 * cannot be simulated. */
#include "spec/network_spec.h"

#include <float.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/units.h"
#include "spec/preset.h"

/* Sizes in configs; above it no product of two of them would fit in 63 bits. */
#define INT_FIELD_MAX ((gint64) 1 << 40)

static const char *const code_names[] = {"transformers", "torchtitan", "nanogpt", "llm-foundry",
                                         NULL};
static const char *const rms_norm_names[] = {"fused", "composite", NULL};
static const char *const rope_names[] = {"complex", "rotate_half", "none", NULL};
static const char *const kv_heads_names[] = {"native", "repeated", NULL};
static const char *const attention_names[] = {"sdpa",  "flash",     "flash1", "triton", "flash3",
                                              "cudnn", "efficient", "math",   "eager",  NULL};
static const char *const loss_names[] = {"fp32", "model", "fused", "compiled", NULL};

/* What each code base does where a file does not say: transformers' modeling_llama.py (LlamaRMSNorm
 * in Python, rotate_half, enable_gqa in its SDPA path), torchtitan's models/llama3 (nn.RMSNorm,
 * apply_rotary_emb on complex numbers), nanoGPT's model.py (LayerNorm, learned positions),
 * llm-foundry's models/mpt (loss_fn fused_crossentropy, use_train_metrics). */
static const Implementation code_defaults[] = {
    [CODE_TRANSFORMERS] = {CODE_TRANSFORMERS, RMS_NORM_COMPOSITE, ROPE_ROTATE_HALF, KV_HEADS_NATIVE,
                           ATTENTION_SDPA, LOSS_FP32, .train_metrics = FALSE},
    [CODE_TORCHTITAN] = {CODE_TORCHTITAN, RMS_NORM_FUSED, ROPE_COMPLEX, KV_HEADS_NATIVE,
                         ATTENTION_SDPA, LOSS_FP32, .train_metrics = FALSE},
    [CODE_NANOGPT] = {CODE_NANOGPT, RMS_NORM_FUSED, ROPE_NONE, KV_HEADS_NATIVE, ATTENTION_SDPA,
                      LOSS_FP32, .train_metrics = FALSE},
    [CODE_LLM_FOUNDRY] = {CODE_LLM_FOUNDRY, RMS_NORM_FUSED, ROPE_NONE, KV_HEADS_NATIVE,
                          ATTENTION_SDPA, LOSS_FUSED, .train_metrics = TRUE},
};

/* Keys that change what is computed or stored, in configs of transformers, PEFT, bitsandbytes and
 * compressed-tensors. */
static const struct {
  const char *key;
  const char *what;
} refused_keys[] = {
    {"quantization_config", "a quantized network"},
    {"quantization", "a quantized network"},
    {"quant_method", "a quantized network"},
    {"compression_config", "a quantized network"},
    {"adapter_config", "a network with adapters"},
    {"adapters", "a network with adapters"},
    {"adapter", "a network with adapters"},
    {"peft_config", "a network with adapters"},
    {"peft_type", "a network with adapters"},
    {"peft", "a network with adapters"},
    {"lora_config", "a network with adapters"},
    {"lora", "a network with adapters"},
    {"lora_rank", "a network with adapters"},
    {"lora_alpha", "a network with adapters"},
    {"output_hidden_states", "an output that holds hidden states"},
    {"output_attentions", "an output that holds attention's probabilities"},
};

const char *
implementation_code_name(ImplementationCode code)
{
  return code_names[code];
}

/* Configs are dumped with every field, so a feature that is off is null, false or empty. */
static gboolean
is_switched_off(const cJSON *value)
{
  return !value || cJSON_IsNull(value) || cJSON_IsFalse(value) ||
         ((cJSON_IsObject(value) || cJSON_IsArray(value)) && !value->child);
}

static void
refuse_unsupported(JsonReader *reader)
{
  for (gsize i = 0; i < G_N_ELEMENTS(refused_keys); i++)
    if (!is_switched_off(json_reader_raw(reader, refused_keys[i].key)))
      json_reader_fail(reader, refused_keys[i].key, "%s is not supported", refused_keys[i].what);
}

/* "2.5" or "2.5.0". */
static int
read_torch_version(JsonReader *section)
{
  const char *text = json_reader_string(section, "torch", NULL);
  int part[3] = {0, 0, TORCH_LAST_PATCH};
  char rest;
  if (text == NULL)
    return 0;
  int parts = sscanf(text, "%3d.%3d.%3d%c", &part[0], &part[1], &part[2], &rest);
  if (parts < 2 || parts > 3 || part[0] < 1 || part[1] < 0 || part[2] < 0) {
    json_reader_fail(section, "torch", "'%s' is not a version of PyTorch: \"2.5\" or \"2.5.0\"",
                     text);
    return 0;
  }
  return TORCH_VERSION(part[0], part[1], part[2]);
}

static void
read_implementation_object(JsonReader *reader, Implementation *implementation)
{
  g_autoptr(JsonReader) section = json_reader_section(reader, "implementation");
  int code = json_reader_enum(section, "code", code_names, (int) implementation->code);
  *implementation = code_defaults[code];
  implementation->rms_norm = (RmsNormCode) json_reader_enum(section, "rms_norm", rms_norm_names,
                                                            (int) implementation->rms_norm);
  implementation->rope =
      (RopeCode) json_reader_enum(section, "rope", rope_names, (int) implementation->rope);
  implementation->kv_heads = (KvHeadsCode) json_reader_enum(section, "kv_heads", kv_heads_names,
                                                            (int) implementation->kv_heads);
  implementation->attention = (AttentionCode) json_reader_enum(
      section, "attention", attention_names, (int) implementation->attention);
  implementation->loss =
      (LossCode) json_reader_enum(section, "loss", loss_names, (int) implementation->loss);
  implementation->torch = read_torch_version(section);
  implementation->train_metrics =
      json_reader_bool(section, "train_metrics", implementation->train_metrics);
  json_reader_finish(section, NULL);
}

/* llm-foundry has MPT, and nobody else has its train metrics. */
static void
refuse_misplaced(JsonReader *reader, const Implementation *implementation, gboolean mpt)
{
  gboolean foundry = implementation->code == CODE_LLM_FOUNDRY;
  if (foundry && !mpt)
    json_reader_fail(reader, "implementation", "llm-foundry's code is of mpt alone");
  if (mpt && !foundry && implementation->code != CODE_TRANSFORMERS)
    json_reader_fail(reader, "implementation", "mpt has llm-foundry's code or transformers'");
  if (implementation->train_metrics && !foundry)
    json_reader_fail(reader, "implementation", "train_metrics are llm-foundry's alone");
}

/* transformers' name of it. */
static gboolean
find_attention(const char *name, AttentionCode *code)
{
  static const struct {
    const char *name;
    AttentionCode code;
  } known[] = {{"sdpa", ATTENTION_SDPA},
               {"eager", ATTENTION_EAGER},
               {"flash_attention_2", ATTENTION_FLASH},
               {"flash_attention_3", ATTENTION_FLASH3}};
  for (gsize i = 0; i < G_N_ELEMENTS(known); i++)
    if (g_str_equal(name, known[i].name)) {
      *code = known[i].code;
      return TRUE;
    }
  return FALSE;
}

/* A config.json may say how its model attends, which our own key overrules. */
static void
read_attention_of_config(JsonReader *reader, Implementation *implementation)
{
  static const char *const keys[] = {"attn_implementation", "_attn_implementation"};
  const cJSON *own = json_reader_raw(reader, "implementation");
  gboolean overruled = cJSON_GetObjectItemCaseSensitive(own, "attention") != NULL;
  for (gsize i = 0; i < G_N_ELEMENTS(keys); i++) {
    const char *value = cJSON_GetStringValue(json_reader_raw(reader, keys[i]));
    if (value != NULL && !overruled && !find_attention(value, &implementation->attention))
      json_reader_fail(reader, keys[i],
                       "'%.60s' is not sdpa, eager, flash_attention_2 or flash_attention_3", value);
  }
}

/* A plain Hugging Face config.json means transformers' own code, but for MPT: its configs name
 * llm-foundry's (auto_map). */
static Implementation
read_implementation(JsonReader *reader, const char *family)
{
  gboolean mpt = g_str_equal(family, "mpt");
  Implementation implementation = code_defaults[mpt ? CODE_LLM_FOUNDRY : CODE_TRANSFORMERS];
  const cJSON *value = json_reader_raw(reader, "implementation");
  if (cJSON_IsString(value))
    implementation =
        code_defaults[json_reader_enum(reader, "implementation", code_names, CODE_TRANSFORMERS)];
  else if (cJSON_IsObject(value))
    read_implementation_object(reader, &implementation);
  else if (value && !cJSON_IsNull(value))
    json_reader_fail(reader, "implementation", "must be a name or an object");
  if (implementation.code == CODE_TRANSFORMERS && !json_reader_has(reader, "family"))
    read_attention_of_config(reader, &implementation);
  refuse_misplaced(reader, &implementation, mpt);
  return implementation;
}

/* Our own formats say "family"; everything else is a config.json, which says "model_type". */
static const char *
read_family(JsonReader *reader)
{
  if (json_reader_has(reader, "family"))
    return json_reader_required_string(reader, "family");
  json_reader_allow_unknown(reader);
  refuse_unsupported(reader);
  return json_reader_required_string(reader, "model_type");
}

gboolean
network_spec_is_own_format(NetworkSpec *spec)
{
  return json_reader_has(spec->reader, "family");
}

/* Takes the document. */
static NetworkSpec *
network_spec_from_document(char *name, JsonDocument *document, GError **error)
{
  g_autoptr(NetworkSpec) spec = g_new0(NetworkSpec, 1);
  spec->name = name;
  spec->document = document;
  spec->reader = json_reader_new(document);
  spec->family = g_strdup(read_family(spec->reader));
  spec->implementation = read_implementation(spec->reader, spec->family);
  const GError *wrong = json_document_error(document);
  if (wrong) {
    g_propagate_error(error, g_error_copy(wrong));
    return NULL;
  }
  return g_steal_pointer(&spec);
}

NetworkSpec *
network_spec_load(const char *preset_or_path, GError **error)
{
  g_autofree char *path = preset_find("network", preset_or_path, error);
  if (!path)
    return NULL;
  JsonDocument *document = json_document_load(path, error);
  if (!document)
    return NULL;
  return network_spec_from_document(preset_name_of(path), document, error);
}

NetworkSpec *
network_spec_parse(const char *name, const char *text, gsize length, GError **error)
{
  JsonDocument *document = json_document_parse(name, text, length, error);
  if (!document)
    return NULL;
  return network_spec_from_document(preset_name_of(name), document, error);
}

void
network_spec_free(NetworkSpec *spec)
{
  if (!spec)
    return;
  json_reader_free(spec->reader);
  json_document_free(spec->document);
  g_free(spec->family);
  g_free(spec->name);
  g_free(spec);
}

/* Of "hidden_size|n_embd", the first name that is present and not null, else the first: messages
 * then name the field in its usual spelling.  Caller frees. */
static char *
choose_name(NetworkSpec *spec, const char *names, gboolean *found)
{
  g_auto(GStrv) list = g_strsplit(names, "|", -1);
  for (int i = 0; list[i]; i++)
    if (json_reader_has(spec->reader, list[i])) {
      *found = TRUE;
      return g_strdup(list[i]);
    }
  *found = FALSE;
  return g_strdup(list[0]);
}

gint64
network_spec_int(NetworkSpec *spec, const char *names, gint64 fallback)
{
  gboolean found;
  g_autofree char *name = choose_name(spec, names, &found);
  if (found)
    return json_reader_int(spec->reader, name, MAX(fallback, 1), 1, INT_FIELD_MAX);
  if (fallback >= 0)
    return fallback;
  return json_reader_required_int(spec->reader, name, 1, INT_FIELD_MAX);
}

double
network_spec_double(NetworkSpec *spec, const char *names, double fallback)
{
  gboolean found;
  g_autofree char *name = choose_name(spec, names, &found);
  return found ? json_reader_double(spec->reader, name, fallback, -DBL_MAX, DBL_MAX) : fallback;
}

gboolean
network_spec_bool(NetworkSpec *spec, const char *names, gboolean fallback)
{
  gboolean found;
  g_autofree char *name = choose_name(spec, names, &found);
  return found ? json_reader_bool(spec->reader, name, fallback) : fallback;
}

void
network_spec_expect(NetworkSpec *spec, const char *names, gboolean value, const char *why)
{
  if (network_spec_bool(spec, names, value) != value)
    network_spec_fail(spec, names, "%s", why);
}

const char *
network_spec_string(NetworkSpec *spec, const char *names, const char *fallback)
{
  gboolean found;
  g_autofree char *name = choose_name(spec, names, &found);
  return found ? json_reader_string(spec->reader, name, fallback) : fallback;
}

void
network_spec_fail(NetworkSpec *spec, const char *names, const char *format, ...)
{
  gboolean found;
  g_autofree char *name = choose_name(spec, names, &found);
  va_list arguments;
  va_start(arguments, format);
  g_autofree char *message = g_strdup_vprintf(format, arguments);
  va_end(arguments);
  json_reader_fail(spec->reader, name, "%s", message);
}
