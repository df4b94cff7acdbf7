/* family_granite.c - Granite: Llama with embeddings, residuals and logits multiplied by numbers. */
#include "network/transformers_decoder.h"

static const DecoderStyle style = {
    .norm = NORM_RMS,
    .qkv = {QKV_PROJECT, QKV_HEADS, QKV_TRANSPOSE},
    .embedding_scale = "embedding_multiplier",
    .residual_scale = "residual_multiplier",
    .logits_scale = "logits_scaling",
    .logits_scale_op = OP_DIV_SCALAR,
    .mlp_bias_field = TRUE,
    .attention_bias_field = TRUE,
};

static Network *
build(NetworkSpec *spec, const NetworkShape *shape, GError **error)
{
  return decoder_build_style(&style, spec, shape, error);
}

const NetworkFamily family_granite = {
    .name = "granite",
    .summary = "Granite: Llama with multipliers",
    .model_types = (const char *const[]){"granite", NULL},
    .build = build,
};
