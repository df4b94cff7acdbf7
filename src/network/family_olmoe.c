/* family_olmoe.c - OLMoE: mixtures of experts, norms of whole projections of queries and keys. */
#include <string.h>

#include "network/moe_decoder.h"

static void
read(Decoder *d, NetworkSpec *spec)
{
  static const QkvStep clipped[QKV_STEPS] = {QKV_PROJECT, QKV_NORM,  QKV_THEN,     QKV_CLIP,
                                             QKV_THEN,    QKV_HEADS, QKV_TRANSPOSE};
  static const MoeFields fields = {.experts = "num_experts|num_local_experts",
                                   .experts_default = 64,
                                   .top_k_default = 8,
                                   .norm_topk_prob = TRUE,
                                   .balance = 0.01};
  moe_decoder_read(d, spec, &fields);
  d->style.qkv_bias = d->style.o_bias = network_spec_bool(spec, "attention_bias", FALSE);
  if (json_reader_has(spec->reader, "clip_qkv")) {
    network_spec_double(spec, "clip_qkv", 0);
    memcpy(d->style.qkv, clipped, sizeof(clipped));
  }
}

static const DecoderStyle style = {
    .norm = NORM_RMS,
    .qkv = {QKV_PROJECT, QKV_NORM, QKV_THEN, QKV_HEADS, QKV_TRANSPOSE},
    .qk_norm = QK_NORM_PROJECTION,
    .read = read,
};

static const MoeStyle moe = {
    .route = moe_route_softmax,
};

static Network *
build(NetworkSpec *spec, const NetworkShape *shape, GError **error)
{
  return moe_decoder_build(&style, &moe, spec, shape, error);
}

const NetworkFamily family_olmoe = {
    .name = "olmoe",
    .summary = "OLMoE: mixtures of many small experts",
    .model_types = (const char *const[]){"olmoe", NULL},
    .build = build,
};
