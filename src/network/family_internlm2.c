/* family_internlm2.c - InternLM2, whose code comes with its configs (modeling_internlm2.py): Llama
 * with one projection for queries, keys and values, and names of its own. */
#include "network/transformers_decoder.h"

static void
read(Decoder *d, NetworkSpec *spec)
{
  d->style.qkv_bias = d->style.o_bias = network_spec_bool(spec, "bias", TRUE);
}

static const DecoderStyle style = {
    .names = {[NAME_EMBEDDING] = "tok_embeddings",
              [NAME_ATTENTION] = "attention",
              [NAME_QKV] = "wqkv",
              [NAME_O] = "wo",
              [NAME_FEED_FORWARD] = "feed_forward",
              [NAME_GATE] = "w1",
              [NAME_UP] = "w3",
              [NAME_DOWN] = "w2",
              [NAME_HEAD] = "output"},
    .norms = {[BEFORE_ATTENTION] = "attention_norm", [BEFORE_FEED_FORWARD] = "ffn_norm"},
    .norm = NORM_RMS,
    .qkv = {QKV_PROJECT, QKV_THEN, QKV_TRANSPOSE},
    .fused_qkv = TRUE,
    .grouped_qkv = TRUE,
    .read = read,
};

static Network *
build(NetworkSpec *spec, const NetworkShape *shape, GError **error)
{
  return decoder_build_style(&style, spec, shape, error);
}

const NetworkFamily family_internlm2 = {
    .name = "internlm2",
    .summary = "InternLM2: Llama with one projection for queries, keys and values",
    .model_types = (const char *const[]){"internlm2", NULL},
    .build = build,
};
