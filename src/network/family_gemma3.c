/* family_gemma3.c - Gemma 3: Gemma 2 with norms of queries and keys, and tables of their own for
 * windows. */
#include <string.h>

#include "network/transformers_decoder.h"

static void
read(Decoder *d, NetworkSpec *spec)
{
  d->style.caps_logits = decoder_read_cap(spec, "final_logit_softcapping", 0);
  d->lm.rotary.by_kind = TRUE;
  decoder_read_window_pattern(d, spec, network_spec_int(spec, "sliding_window_pattern", 6));
}

static const DecoderStyle style = {
    .norms = {"input_layernorm", "post_attention_layernorm", "pre_feedforward_layernorm",
              "post_feedforward_layernorm"},
    .norm = NORM_RMS_ONE_PLUS,
    .qkv = {QKV_PROJECT, QKV_HEADS, QKV_TRANSPOSE, QKV_THEN, QKV_NORM},
    .qk_norm = QK_NORM_HEAD,
    .embedding_buffer = TRUE,
    .activation_field = "hidden_activation",
    .activation = "gelu_pytorch_tanh",
    .heads = 8,
    .kv_heads = 4,
    .head_dim = 256,
    .vocabulary = 262208,
    .tied = TRUE,
    .attention_bias_field = TRUE,
    .read = read,
};

/* A config of the whole model has one of its text model inside.  Of images nothing is known here.
 */
static Network *
build_text(NetworkSpec *spec, const NetworkShape *shape, GError **error)
{
  JsonReader *whole = spec->reader;
  const cJSON *vision = json_reader_raw(whole, "vision_config");
  if (vision != NULL && !cJSON_IsNull(vision))
    json_reader_fail(
        whole, "vision_config",
        "images are not supported: of the text model alone, text_config is the config");
  if (!json_reader_require(whole, "text_config"))
    return json_reader_finish(whole, error), NULL;
  spec->reader = json_reader_section(whole, "text_config");
  json_reader_allow_unknown(spec->reader);
  Network *network = decoder_build_style(&style, spec, shape, error);
  json_reader_free(spec->reader);
  spec->reader = whole;
  return network;
}

static Network *
build(NetworkSpec *spec, const NetworkShape *shape, GError **error)
{
  if (strcmp(spec->family, "gemma3") == 0)
    return build_text(spec, shape, error);
  return decoder_build_style(&style, spec, shape, error);
}

const NetworkFamily family_gemma3 = {
    .name = "gemma3",
    .summary = "Gemma 3 (text): norms of queries and keys, five windowed layers to one",
    .model_types = (const char *const[]){"gemma3_text", "gemma3", NULL},
    .build = build,
};
