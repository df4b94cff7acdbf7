/* family_qwen2_moe.c - Qwen2 with mixtures of experts, and a shared expert that has a gate. */
#include "network/moe_decoder.h"

/* Every other one of the first `most` layers, where windows are used. */
static gboolean
is_windowed(int block, gint64 most)
{
  return (block + 1) % 2 != 0 && block < most;
}

static void
read_window(Decoder *d, NetworkSpec *spec)
{
  d->lm.mask_kwargs = TRUE;
  if (!network_spec_bool(spec, "use_sliding_window", FALSE)) {
    /* the window is 0 then, which every sequence reaches: its mask is made, though no layer has it
     */
    d->lm.window = 1;
    decoder_mark_layer(d, 0, 0);
    return;
  }
  d->lm.window = network_spec_int(spec, "sliding_window", 4096);
  decoder_read_layer_types(d, spec, is_windowed, network_spec_int(spec, "max_window_layers", 28));
}

static void
read(Decoder *d, NetworkSpec *spec)
{
  static const MoeFields fields = {.experts = "num_experts|num_local_experts",
                                   .experts_default = 60,
                                   .top_k_default = 4,
                                   .ffn = "moe_intermediate_size",
                                   .ffn_default = 1408,
                                   .norm_topk_prob = TRUE,
                                   .balance = 0.001};
  MoeStyle *moe = moe_decoder_style(d);
  moe_decoder_read(d, spec, &fields);
  moe_decoder_read_sparse_layers(d, spec);
  moe->shared_ffn = network_spec_int(spec, "shared_expert_intermediate_size", 5632);
  causal_lm_check_matrix(spec, "shared_expert_intermediate_size", moe->shared_ffn, d->lm.hidden);
  d->style.qkv_bias = network_spec_bool(spec, "qkv_bias", TRUE);
  read_window(d, spec);
}

static const DecoderStyle style = {
    .norm = NORM_RMS,
    .qkv = {QKV_PROJECT, QKV_HEADS, QKV_TRANSPOSE},
    .read = read,
};

static const MoeStyle moe = {
    .type = "Qwen2MoeSparseMoeBlock",
    .route = moe_route_softmax,
    .shared = SHARED_GATED,
    .shared_module = "shared_expert",
    .shared_gate = "shared_expert_gate",
    .order = "gesS",
};

static Network *
build(NetworkSpec *spec, const NetworkShape *shape, GError **error)
{
  return moe_decoder_build(&style, &moe, spec, shape, error);
}

const NetworkFamily family_qwen2_moe = {
    .name = "qwen2_moe",
    .summary = "Qwen2 with mixtures of experts and a shared expert",
    .model_types = (const char *const[]){"qwen2_moe", NULL},
    .build = build,
};
