/* family_llama.c - Llama and its nearest relatives: RMSNorm, RoPE, grouped-query attention, SwiGLU.
 */
#include <string.h>

#include "network/torchtitan_decoder.h"
#include "network/transformers_decoder.h"

/* Which projections of a model_type have biases: queries, keys and values of Qwen2 always do. */
static TorchtitanStyle
read_biases(NetworkSpec *spec)
{
  gboolean qwen = strcmp(spec->family, "qwen2") == 0;
  gboolean bias = network_spec_bool(spec, "attention_bias", FALSE);
  return (TorchtitanStyle){.qkv_bias = qwen || bias, .o_bias = !qwen && bias};
}

static void
read(Decoder *d, NetworkSpec *spec)
{
  TorchtitanStyle biases = read_biases(spec);
  d->style.qkv_bias = biases.qkv_bias;
  d->style.o_bias = biases.o_bias;
  d->style.mlp_bias = network_spec_bool(spec, "mlp_bias", FALSE);
  if (strcmp(spec->family, "qwen2") == 0)
    decoder_read_last_windows(d, spec);
  else
    d->lm.window = network_spec_int(spec, "sliding_window", 0);
}

static const DecoderStyle style = {
    .model_class = "LlamaModel",
    .norm = NORM_RMS,
    .qkv = {QKV_PROJECT, QKV_HEADS, QKV_TRANSPOSE},
    .read = read,
};

static Network *
build(NetworkSpec *spec, const NetworkShape *shape, GError **error)
{
  if (spec->implementation.code == CODE_TRANSFORMERS)
    return decoder_build_style(&style, spec, shape, error);
  TorchtitanStyle biases = read_biases(spec);
  return torchtitan_build(&biases, spec, shape, error);
}

const NetworkFamily family_llama = {
    .name = "llama",
    .summary = "Llama 1-3, Mistral, Qwen2 and other decoders with RMSNorm, RoPE and SwiGLU",
    .model_types = (const char *const[]){"llama", "mistral", "qwen2", NULL},
    .build = build,
};
