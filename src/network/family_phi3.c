/* family_phi3.c - Phi-3 and Phi-4-mini: one projection for queries, keys and values, one for gate
 * and up. */
#include "network/transformers_decoder.h"

static void
read(Decoder *d, NetworkSpec *spec)
{
  d->style.block_dropout = decoder_read_dropout(d, spec, "resid_pdrop");
  d->lm.window = network_spec_int(spec, "sliding_window", 0);
}

static const DecoderStyle style = {
    .names = {[NAME_UP] = "gate_up_proj", [NAME_ACTIVATION] = "activation_fn"},
    .norm = NORM_RMS,
    .qkv = {QKV_PROJECT, QKV_THEN, QKV_HEADS, QKV_TRANSPOSE},
    .fused_qkv = TRUE,
    .o_first = TRUE,
    .rotary = ROTATE_PART,
    .rotary_part = 1,
    .mlp = MLP_GATED_FUSED,
    .dropout_modules = {"resid_attn_dropout", "resid_mlp_dropout"},
    .read = read,
};

static Network *
build(NetworkSpec *spec, const NetworkShape *shape, GError **error)
{
  return decoder_build_style(&style, spec, shape, error);
}

const NetworkFamily family_phi3 = {
    .name = "phi3",
    .summary = "Phi-3 and Phi-4-mini: fused projections, rotary embedding of a part of the head",
    .model_types = (const char *const[]){"phi3", NULL},
    .build = build,
};
