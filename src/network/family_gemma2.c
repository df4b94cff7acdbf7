/* family_gemma2.c - Gemma 2: norms before and after, soft caps, windows in every second layer. */
#include "network/transformers_decoder.h"

static void
read(Decoder *d, NetworkSpec *spec)
{
  d->style.caps_logits = decoder_read_cap(spec, "final_logit_softcapping", 30);
  d->lm.caps_scores = decoder_read_cap(spec, "attn_logit_softcapping", 50);
  if (d->lm.impl.attention == ATTENTION_SDPA) /* which Gemma 2 does not support */
    d->lm.impl.attention = ATTENTION_EAGER;
  decoder_read_window_pattern(d, spec, 2);
}

static const DecoderStyle style = {
    .norms = {"input_layernorm", "post_attention_layernorm", "pre_feedforward_layernorm",
              "post_feedforward_layernorm"},
    .norm = NORM_RMS_ONE_PLUS,
    .qkv = {QKV_PROJECT, QKV_HEADS, QKV_TRANSPOSE},
    .embedding_buffer = TRUE,
    .activation_field = "hidden_activation",
    .activation = "gelu_pytorch_tanh",
    .head_dim = 256,
    .tied = TRUE,
    .attention_bias_field = TRUE,
    .read = read,
};

static Network *
build(NetworkSpec *spec, const NetworkShape *shape, GError **error)
{
  return decoder_build_style(&style, spec, shape, error);
}

const NetworkFamily family_gemma2 = {
    .name = "gemma2",
    .summary = "Gemma 2: four norms a block, soft caps, windows in every second layer",
    .model_types = (const char *const[]){"gemma2", NULL},
    .build = build,
};
