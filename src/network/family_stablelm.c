/* family_stablelm.c - StableLM: LayerNorm, a part of each head rotated, perhaps a parallel
 * residual. */
#include "network/transformers_decoder.h"

/* The feed-forward's output, dropped out. */
static Val
feed_forward(Builder *b, const Decoder *d, int block, Val x)
{
  x = let(b, "mlp_output", decoder_feed_forward(b, d, block, x));
  x = call_module(b, d->blocks[block].dropout[0], x);
  x = builder_leave(b, dropout(b, d->style.block_dropout, x));
  return let(b, "mlp_output", x);
}

/* residual + attention(norm(x)) + mlp(norm(x)), or the two one after the other. */
static Val
block_forward(Builder *b, const CausalLm *lm, int block, Val x, const Val *tables)
{
  const Decoder *d = (const Decoder *) lm;
  const Norm *norms = d->blocks[block].norms;
  Val weights, out;
  builder_enter(b, 1, (const char *const[]){"hidden_states"}, &x);
  Val residual = let(b, "residual", x);
  x = let(b, "hidden_states", norm_apply(b, x, &norms[BEFORE_ATTENTION]));
  Val mixed = let(b, "self_attn_output", decoder_attention(b, d, block, x, tables, &weights));
  if (weights.slot != NO_VAL.slot)
    let(b, "_", weights);
  if (d->style.norms[BEFORE_FEED_FORWARD] == NULL) {
    out = feed_forward(b, d, block, x);
    x = binary(b, OP_ADD, binary(b, OP_ADD, residual, mixed), out);
  } else {
    residual = let(b, "residual", binary(b, OP_ADD, residual, mixed));
    out = feed_forward(b, d, block, norm_apply(b, residual, &norms[BEFORE_FEED_FORWARD]));
    x = binary(b, OP_ADD, residual, out);
  }
  return builder_leave(b, let(b, "hidden_states", x));
}

static void
read(Decoder *d, NetworkSpec *spec)
{
  DecoderStyle *style = &d->style;
  style->qkv_bias = network_spec_bool(spec, "use_qkv_bias", FALSE);
  style->block_dropout = decoder_read_dropout(d, spec, "hidden_dropout");
  if (network_spec_bool(spec, "use_parallel_residual", FALSE))
    style->norms[BEFORE_FEED_FORWARD] = NULL;
  if (network_spec_bool(spec, "qk_layernorm", FALSE))
    style->qk_norm = QK_NORM_EACH_HEAD;
}

static const DecoderStyle style = {
    .norm = NORM_LAYER,
    .names = {[NAME_Q_NORM] = "q_layernorm", [NAME_K_NORM] = "k_layernorm"},
    .qkv = {QKV_PROJECT, QKV_THEN, QKV_HEADS, QKV_TRANSPOSE, QKV_THEN, QKV_NORM},
    .rotary = ROTATE_PART_OUTSIDE,
    .rotary_part = 0.25,
    .dropout_modules = {"dropout"},
    .read = read,
    .block = block_forward,
};

static Network *
build(NetworkSpec *spec, const NetworkShape *shape, GError **error)
{
  return decoder_build_style(&style, spec, shape, error);
}

const NetworkFamily family_stablelm = {
    .name = "stablelm",
    .summary = "StableLM: LayerNorm, rotary embedding of a quarter of the head",
    .model_types = (const char *const[]){"stablelm", NULL},
    .build = build,
};
