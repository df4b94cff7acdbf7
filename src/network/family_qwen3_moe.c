/* family_qwen3_moe.c - Qwen3 with mixtures of experts. */
#include "network/moe_decoder.h"
#include "network/torchtitan_decoder.h"

static const MoeFields fields = {.experts = "num_experts|num_local_experts",
                                 .experts_default = 128,
                                 .top_k_default = 8,
                                 .ffn = "moe_intermediate_size",
                                 .ffn_default = 768,
                                 .norm_topk_prob = TRUE,
                                 .balance = 0.001};

static void
read(Decoder *d, NetworkSpec *spec)
{
  moe_decoder_read(d, spec, &fields);
  moe_decoder_read_sparse_layers(d, spec);
  d->style.qkv_bias = d->style.o_bias = network_spec_bool(spec, "attention_bias", FALSE);
  if (network_spec_bool(spec, "use_sliding_window", FALSE))
    d->lm.window = network_spec_int(spec, "sliding_window", 4096);
}

static const DecoderStyle style = {
    .norm = NORM_RMS,
    .qkv = {QKV_PROJECT, QKV_HEADS, QKV_NORM, QKV_TRANSPOSE},
    .qk_norm = QK_NORM_HEAD,
    .read = read,
};

static const MoeStyle moe = {
    .type = "Qwen3MoeSparseMoeBlock",
    .route = moe_route_softmax,
    .order = "eg",
};

/* torchtitan has a mixture in every block. */
static void
read_torchtitan(Torchtitan *m, NetworkSpec *spec)
{
  const cJSON *dense = json_reader_raw(spec->reader, "mlp_only_layers");
  m->mixed = m->moe.softmax_scores = TRUE;
  moe_style_read(&m->moe, m->lm.hidden, m->ffn, spec, &fields);
  if (cJSON_GetArraySize(dense) > 0)
    network_spec_fail(spec, "mlp_only_layers", "torchtitan has a mixture in every block");
  if (network_spec_int(spec, "decoder_sparse_step", 1) != 1)
    network_spec_fail(spec, "decoder_sparse_step", "torchtitan has a mixture in every block");
}

static const TorchtitanStyle torchtitan_style = {
    TORCHTITAN_QWEN3,
    .without = (const char *const[]){"attention_bias", "mlp_bias", "use_sliding_window",
                                     "output_router_logits", NULL},
    .read = read_torchtitan,
};

static Network *
build(NetworkSpec *spec, const NetworkShape *shape, GError **error)
{
  if (spec->implementation.code == CODE_TORCHTITAN)
    return torchtitan_build(&torchtitan_style, spec, shape, error);
  return moe_decoder_build(&style, &moe, spec, shape, error);
}

const NetworkFamily family_qwen3_moe = {
    .name = "qwen3_moe",
    .summary = "Qwen3 with mixtures of experts",
    .model_types = (const char *const[]){"qwen3_moe", NULL},
    .build = build,
};
