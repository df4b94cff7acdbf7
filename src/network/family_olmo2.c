/* family_olmo2.c - OLMo 2: norms after attention and feed-forward, and of whole queries and keys.
 */
#include "network/transformers_decoder.h"

static void
read(Decoder *d, NetworkSpec *spec)
{
  d->style.qkv_bias = d->style.o_bias = network_spec_bool(spec, "attention_bias", FALSE);
  d->lm.rotary.wide = TRUE;
}

static const DecoderStyle style = {
    .norms = {[AFTER_ATTENTION] = "post_attention_layernorm",
              [AFTER_FEED_FORWARD] = "post_feedforward_layernorm"},
    .norm = NORM_RMS_WIDE,
    .qkv = {QKV_PROJECT, QKV_NORM, QKV_THEN, QKV_HEADS, QKV_TRANSPOSE},
    .qk_norm = QK_NORM_PROJECTION,
    .rotary = ROTATE_HALF_WIDE,
    .read = read,
};

static Network *
build(NetworkSpec *spec, const NetworkShape *shape, GError **error)
{
  return decoder_build_style(&style, spec, shape, error);
}

const NetworkFamily family_olmo2 = {
    .name = "olmo2",
    .summary = "OLMo 2: norms after attention and feed-forward",
    .model_types = (const char *const[]){"olmo2", NULL},
    .build = build,
};
