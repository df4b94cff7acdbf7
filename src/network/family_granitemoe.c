/* family_granitemoe.c - Granite with mixtures of experts: multipliers, and a softmax of the chosen
 * logits. */
#include "network/moe_decoder.h"

static void
read(Decoder *d, NetworkSpec *spec)
{
  static const MoeFields fields = {.experts = "num_local_experts|num_experts",
                                   .experts_default = 8,
                                   .top_k_default = 2,
                                   .balance = 0.001};
  moe_decoder_read(d, spec, &fields);
  d->style.qkv_bias = d->style.o_bias = network_spec_bool(spec, "attention_bias", FALSE);
}

static const DecoderStyle style = {
    .norm = NORM_RMS,
    .qkv = {QKV_PROJECT, QKV_HEADS, QKV_TRANSPOSE},
    .mlp_last = TRUE,
    .embedding_scale_late = "embedding_multiplier",
    .residual_scale = "residual_multiplier",
    .logits_scale = "logits_scaling",
    .logits_scale_op = OP_DIV_SCALAR,
    .read = read,
};

static const MoeStyle moe = {
    .route = moe_route_largest,
    .module = "block_sparse_moe",
    .router = "router",
};

static Network *
build(NetworkSpec *spec, const NetworkShape *shape, GError **error)
{
  return moe_decoder_build(&style, &moe, spec, shape, error);
}

const NetworkFamily family_granitemoe = {
    .name = "granitemoe",
    .summary = "Granite with mixtures of experts",
    .model_types = (const char *const[]){"granitemoe", NULL},
    .build = build,
};
