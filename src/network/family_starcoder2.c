/* family_starcoder2.c - StarCoder 2: LayerNorm, a plain feed-forward, biases, dropouts. */
#include "network/transformers_decoder.h"

static void
read(Decoder *d, NetworkSpec *spec)
{
  DecoderStyle *style = &d->style;
  style->qkv_bias = style->o_bias = style->mlp_bias = network_spec_bool(spec, "use_bias", TRUE);
  style->inner_dropout = decoder_read_dropout(d, spec, "residual_dropout");
  style->embedding_dropout = decoder_read_dropout(d, spec, "embedding_dropout");
  d->lm.window = network_spec_int(spec, "sliding_window", 0);
}

static const DecoderStyle style = {
    .names = {[NAME_UP] = "c_fc", [NAME_DOWN] = "c_proj", [NAME_ACTIVATION] = "act"},
    .norm = NORM_LAYER,
    .qkv = {QKV_PROJECT, QKV_HEADS, QKV_TRANSPOSE},
    .mlp = MLP_PLAIN,
    .activation = "gelu_pytorch_tanh",
    .tied = TRUE,
    .read = read,
};

static Network *
build(NetworkSpec *spec, const NetworkShape *shape, GError **error)
{
  return decoder_build_style(&style, spec, shape, error);
}

const NetworkFamily family_starcoder2 = {
    .name = "starcoder2",
    .summary = "StarCoder 2: LayerNorm, GELU, biases, windows",
    .model_types = (const char *const[]){"starcoder2", NULL},
    .build = build,
};
