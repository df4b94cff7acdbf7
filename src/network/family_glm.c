/* family_glm.c - GLM-4: fused gate and up, neighbours of half of each head rotated; the model_type
 * glm4 also has norms after attention and feed-forward. */
#include <string.h>

#include "network/transformers_decoder.h"

static void
read(Decoder *d, NetworkSpec *spec)
{
  static const char *const norms[NORM_PLACES] = {"input_layernorm", "post_self_attn_layernorm",
                                                 "post_attention_layernorm", "post_mlp_layernorm"};
  d->style.qkv_bias = network_spec_bool(spec, "attention_bias", TRUE);
  if (strcmp(spec->family, "glm4") == 0)
    memcpy(d->style.norms, norms, sizeof norms);
}

static const DecoderStyle style = {
    .names = {[NAME_UP] = "gate_up_proj", [NAME_ACTIVATION] = "activation_fn"},
    .norm = NORM_RMS,
    .qkv = {QKV_PROJECT, QKV_HEADS, QKV_TRANSPOSE},
    .rotary = ROTATE_PART_NEIGHBOURS,
    .rotary_part = 0.5,
    .mlp = MLP_GATED_FUSED,
    .kv_heads = 2,
    .head_dim = 128,
    .read = read,
};

static Network *
build(NetworkSpec *spec, const NetworkShape *shape, GError **error)
{
  return decoder_build_style(&style, spec, shape, error);
}

const NetworkFamily family_glm = {
    .name = "glm",
    .summary = "GLM-4: fused gate and up, neighbours of half of each head rotated",
    .model_types = (const char *const[]){"glm", "glm4", NULL},
    .build = build,
};
