/* family_mixtral.c - Mixtral: Mistral with a mixture of experts in every block. */
#include "network/moe_decoder.h"

static void
read(Decoder *d, NetworkSpec *spec)
{
  static const MoeFields fields = {.experts = "num_local_experts|num_experts",
                                   .experts_default = 8,
                                   .top_k_default = 2,
                                   .balance = 0.001};
  moe_decoder_read(d, spec, &fields);
  d->lm.window = network_spec_int(spec, "sliding_window", 0);
  if (network_spec_double(spec, "router_jitter_noise", 0) != 0)
    network_spec_fail(spec, "router_jitter_noise", "noise on hidden states is not supported");
}

static const DecoderStyle style = {
    .norm = NORM_RMS,
    .qkv = {QKV_PROJECT, QKV_HEADS, QKV_TRANSPOSE},
    .read = read,
};

static const MoeStyle moe = {
    .type = "MixtralSparseMoeBlock",
    .route = moe_route_softmax_fp32,
    .normalized = TRUE,
};

static Network *
build(NetworkSpec *spec, const NetworkShape *shape, GError **error)
{
  return moe_decoder_build(&style, &moe, spec, shape, error);
}

const NetworkFamily family_mixtral = {
    .name = "mixtral",
    .summary = "Mixtral: Mistral with mixtures of experts",
    .model_types = (const char *const[]){"mixtral", NULL},
    .build = build,
};
