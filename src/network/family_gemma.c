/* family_gemma.c - Gemma: gains of 1 + w, GELU, embeddings times the root of their width. */
#include "network/transformers_decoder.h"

static const DecoderStyle style = {
    .norm = NORM_RMS_ONE_PLUS,
    .qkv = {QKV_PROJECT, QKV_HEADS, QKV_TRANSPOSE},
    .embedding_buffer = TRUE,
    .activation = "gelu_pytorch_tanh",
    .head_dim = 256,
    .tied = TRUE,
    .attention_bias_field = TRUE,
};

static Network *
build(NetworkSpec *spec, const NetworkShape *shape, GError **error)
{
  return decoder_build_style(&style, spec, shape, error);
}

const NetworkFamily family_gemma = {
    .name = "gemma",
    .summary = "Gemma: RMSNorm with gains of 1 + w, GELU, scaled embeddings",
    .model_types = (const char *const[]){"gemma", NULL},
    .build = build,
};
