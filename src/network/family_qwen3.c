/* family_qwen3.c - Qwen3: Llama with norms of queries and keys, head by head. */
#include "network/torchtitan_decoder.h"
#include "network/transformers_decoder.h"

static void
read(Decoder *d, NetworkSpec *spec)
{
  decoder_read_last_windows(d, spec);
}

static const DecoderStyle style = {
    .norm = NORM_RMS,
    .qkv = {QKV_PROJECT, QKV_HEADS, QKV_NORM, QKV_TRANSPOSE},
    .qk_norm = QK_NORM_HEAD,
    .head_dim = 128,
    .attention_bias_field = TRUE,
    .read = read,
};

static const TorchtitanStyle torchtitan_style = {
    TORCHTITAN_QWEN3,
    .without = (const char *const[]){"attention_bias", "mlp_bias", "use_sliding_window", NULL},
    .head_dim = 128,
};

static Network *
build(NetworkSpec *spec, const NetworkShape *shape, GError **error)
{
  if (spec->implementation.code == CODE_TORCHTITAN)
    return torchtitan_build(&torchtitan_style, spec, shape, error);
  return decoder_build_style(&style, spec, shape, error);
}

const NetworkFamily family_qwen3 = {
    .name = "qwen3",
    .summary = "Qwen3: Llama with norms of queries and keys",
    .model_types = (const char *const[]){"qwen3", NULL},
    .build = build,
};
