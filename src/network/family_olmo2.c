/* family_olmo2.c - OLMo 2 and 3: norms after attention and feed-forward, and of whole queries and
 * keys; the third has windows in three of four layers. */
#include <string.h>

#include "network/transformers_decoder.h"

static void
read(Decoder *d, NetworkSpec *spec)
{
  if (strcmp(spec->family, "olmo3") != 0)
    return;
  d->lm.rotary.by_kind = TRUE;
  decoder_read_window_pattern(d, spec, 4);
}

static const DecoderStyle style = {
    .norms = {[AFTER_ATTENTION] = "post_attention_layernorm",
              [AFTER_FEED_FORWARD] = "post_feedforward_layernorm"},
    .norm = NORM_RMS_WIDE,
    .qkv = {QKV_PROJECT, QKV_NORM, QKV_THEN, QKV_HEADS, QKV_TRANSPOSE},
    .qk_norm = QK_NORM_PROJECTION,
    .rotary = ROTATE_HALF_WIDE,
    .attention_bias_field = TRUE,
    .read = read,
};

static Network *
build(NetworkSpec *spec, const NetworkShape *shape, GError **error)
{
  return decoder_build_style(&style, spec, shape, error);
}

const NetworkFamily family_olmo2 = {
    .name = "olmo2",
    .summary = "OLMo 2 and 3: norms after attention and feed-forward",
    .model_types = (const char *const[]){"olmo2", "olmo3", NULL},
    .build = build,
};
