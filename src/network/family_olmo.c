/* family_olmo.c - OLMo: Llama with norms that have no parameters, and clipped queries, keys and
 * values. */
#include <string.h>

#include "network/transformers_decoder.h"

static const QkvStep clipped[] = {QKV_PROJECT, QKV_THEN,      QKV_CLIP, QKV_THEN,
                                  QKV_HEADS,   QKV_TRANSPOSE, QKV_END};

static void
read(Decoder *d, NetworkSpec *spec)
{
  d->clip = network_spec_double(spec, "clip_qkv", 0);
  if (d->clip != 0)
    memcpy(d->style.qkv, clipped, sizeof clipped);
}

static const DecoderStyle style = {
    .norm = NORM_LAYER_PLAIN,
    .qkv = {QKV_PROJECT, QKV_THEN, QKV_HEADS, QKV_TRANSPOSE},
    .rotary = ROTATE_HALF_WIDE,
    .attention_bias_field = TRUE,
    .read = read,
};

static Network *
build(NetworkSpec *spec, const NetworkShape *shape, GError **error)
{
  return decoder_build_style(&style, spec, shape, error);
}

const NetworkFamily family_olmo = {
    .name = "olmo",
    .summary = "OLMo: LayerNorm without parameters, clipped projections",
    .model_types = (const char *const[]){"olmo", NULL},
    .build = build,
};
