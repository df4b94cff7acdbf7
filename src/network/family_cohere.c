/* family_cohere.c - Command R and R7B: attention and feed-forward beside each other, LayerNorm
 * without a bias; the second has windows, and rotates in those layers alone. */
#include <string.h>

#include "network/transformers_decoder.h"

/* hidden_states = residual + attention(norm(x)) + mlp(norm(x)) */
static Val
block_forward(Builder *b, const CausalLm *lm, int block, Val x, const Val *tables)
{
  const Decoder *d = (const Decoder *) lm;
  Val weights;
  builder_enter(b, 1, (const char *const[]){"hidden_states"}, &x);
  Val residual = let(b, "residual", x);
  x = let(b, "hidden_states", norm_apply(b, x, &d->blocks[block].norms[BEFORE_ATTENTION]));
  Val mixed =
      let(b, "hidden_states_attention", decoder_attention(b, d, block, x, tables, &weights));
  if (weights.slot != NO_VAL.slot)
    let(b, "_", weights);
  Val out = let(b, "hidden_states_mlp", decoder_feed_forward(b, d, block, x));
  x = binary(b, OP_ADD, binary(b, OP_ADD, residual, mixed), out);
  return builder_leave(b, let(b, "hidden_states", x));
}

static void
read_windows(Decoder *d, NetworkSpec *spec)
{
  decoder_read_window_pattern(d, spec, network_spec_int(spec, "sliding_window_pattern", 4));
  for (int i = 0; i < d->lm.layers; i++)
    if (!(d->lm.layer_kinds[i] & LAYER_WINDOWED))
      decoder_mark_layer(d, i, LAYER_UNROTATED);
}

static void
read(Decoder *d, NetworkSpec *spec)
{
  d->logits_factor = network_spec_double(spec, "logit_scale", 0.0625);
  if (strcmp(spec->family, "cohere2") == 0)
    read_windows(d, spec);
  else if (network_spec_bool(spec, "use_qk_norm", FALSE))
    d->style.qk_norm = QK_NORM_HEADS;
}

static const DecoderStyle style = {
    .norms = {"input_layernorm"},
    .norm = NORM_LAYER_COMPOSED,
    .qkv = {QKV_PROJECT, QKV_HEADS, QKV_THEN, QKV_NORM, QKV_THEN, QKV_TRANSPOSE},
    .rotary = ROTATE_INTERLEAVED_WIDE,
    .logits_scale = "logit_scale",
    .logits_scale_op = OP_MUL_SCALAR,
    .tied = TRUE,
    .attention_bias_field = TRUE,
    .read = read,
    .block = block_forward,
};

static Network *
build(NetworkSpec *spec, const NetworkShape *shape, GError **error)
{
  return decoder_build_style(&style, spec, shape, error);
}

const NetworkFamily family_cohere = {
    .name = "cohere",
    .summary = "Command R: parallel residual, interleaved rotary embedding",
    .model_types = (const char *const[]){"cohere", "cohere2", NULL},
    .build = build,
};
