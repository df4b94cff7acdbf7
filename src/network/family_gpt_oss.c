/* family_gpt_oss.c - gpt-oss: mixtures of experts with biases and a clamped gate, windows in every
 * other layer, and sinks of attention. */
#include "network/moe_decoder.h"
#include "network/strides.h"

typedef struct {
  MoeDecoder moe; /* comes first */
  int *sinks;     /* parameter, by block */
} GptOss;

/* ---- config.json ---- */

static gboolean
is_windowed(int block, gint64 every)
{
  return (block + 1) % every != 0;
}

static void
read(Decoder *d, NetworkSpec *spec)
{
  static const MoeFields fields = {.experts = "num_local_experts|num_experts",
                                   .experts_default = 128,
                                   .top_k_default = 4,
                                   .balance = 0.001};
  Implementation *impl = &d->lm.impl;
  moe_decoder_read(d, spec, &fields);
  d->style.qkv_bias = d->style.o_bias = network_spec_bool(spec, "attention_bias", TRUE);
  d->lm.window = network_spec_int(spec, "sliding_window", 128);
  decoder_read_layer_types(d, spec, is_windowed, 2);
  d->lm.mask_kwargs = d->lm.mask_without_positions = TRUE;
  d->lm.rotary.halved = TRUE;
  if (impl->attention != ATTENTION_SDPA && impl->attention != ATTENTION_EAGER)
    json_reader_fail(spec->reader, "implementation", "the attention of gpt_oss is eager");
  impl->attention = ATTENTION_EAGER;
}

/* ---- attention with sinks: one more column of scores that has no value ---- */

static void
define_sinks(Builder *b, Decoder *d, int block)
{
  ((GptOss *) d)->sinks[block] = builder_parameter(b, "sinks", 1, d->lm.heads);
}

/* sinks.reshape(1, -1, 1, 1).expand(batch, -1, length, -1) */
static Val
sinks_of(Builder *b, const Decoder *d, int block)
{
  Val sinks = builder_weight(b, ((const GptOss *) d)->sinks[block]);
  sinks = view(b, sinks, 4, (gint64) 1, d->lm.heads, (gint64) 1, (gint64) 1);
  ValueInfo wide = builder_info(b, sinks);
  wide.shape[0] = d->lm.batch;
  wide.shape[2] = d->lm.length;
  return expand(b, sinks, wide);
}

/* logits - logits.max(dim=-1, keepdim=True).values */
static Val
below_largest(Builder *b, Val logits)
{
  OpAttributes at = {.size = {1}, .what = "largest logit"};
  return binary(b, OP_SUB, logits, builder_op(b, OP_TOPK, &at, 1, &logits));
}

/* Probabilities without the sink's. */
static Val
probabilities(Builder *b, const Decoder *d, int block, Val scores)
{
  gint64 length = d->lm.length;
  OpAttributes at = {.result = builder_info(b, scores)};
  at.result.shape[3]++;
  value_set_contiguous(&at.result);
  Val sinks = let(b, "sinks", sinks_of(b, d, block));
  Val logits = builder_op(b, OP_CAT, &at, 2, (Val[]){scores, sinks});
  logits = let(b, "combined_logits", logits);
  logits = let(b, "combined_logits", below_largest(b, logits));
  Val all = let(b, "probs", unary(b, OP_SOFTMAX, logits));
  Val kept = let(b, "scores", slice_last(b, all, 0, length));
  return dropout(b, d->lm.attention_dropout, kept);
}

static Val
attend(Builder *b, const Decoder *d, int block, const Val qkv[3], Val mask, Val *weights)
{
  Val values;
  builder_call(b, 0, NULL);
  Val w = transformers_eager_scores(b, &d->lm, d->kv_heads, qkv, mask, &values);
  w = let(b, "attn_weights", probabilities(b, d, block, w));
  return transformers_eager_output(b, w, values, weights);
}

/* ---- the experts' gate ---- */

/* gate, up = x[..., ::2], x[..., 1::2], clamped; (up + 1) * gate * sigmoid(alpha gate) */
static Val
apply_gate(Builder *b, const Moe *m, Val x)
{
  static const char *const names[] = {"gate", "up"};
  Val part[2];
  (void) m;
  builder_enter(b, 1, (const char *const[]){"gate_up"}, &x);
  x = (Val){x.slot, FALSE};
  for (int i = 0; i < 2; i++)
    part[i] = let(b, names[i], every_second(b, x, i));
  for (int i = 0; i < 2; i++) {
    OpAttributes at = {.flag = i == 0}; /* the gate has an upper limit only */
    part[i] = let(b, names[i], builder_op(b, OP_CLAMP, &at, 1, &part[i]));
  }
  Val sigmoid = unary(b, OP_SIGMOID, unary(b, OP_MUL_SCALAR, part[0]));
  Val glu = let(b, "glu", binary(b, OP_MUL, part[0], sigmoid));
  Val up = unary(b, OP_ADD_SCALAR, part[1]);
  return builder_leave(b, let(b, "gated_output", binary(b, OP_MUL, up, glu)));
}

static const DecoderStyle style = {
    .norm = NORM_RMS_WIDE,
    .qkv = {QKV_PROJECT, QKV_HEADS, QKV_TRANSPOSE},
    .rotary = ROTATE_CHUNKS,
    .head_dim = 64,
    .read = read,
    .define_in_attention = define_sinks,
    .attend = attend,
};

static const MoeStyle moe = {
    .route = moe_route_largest_narrow,
    .router_bias = TRUE,
    .expert_bias = TRUE,
    .transposed = TRUE,
    .gate = apply_gate,
    .router = "router",
};

static Network *
build(NetworkSpec *spec, const NetworkShape *shape, GError **error)
{
  GptOss m = {.moe = {.decoder = {.style = style}, .style = moe}};
  m.sinks = g_new0(int, BUILDER_MOST_BLOCKS);
  Network *network = moe_decoder_build_in(&m.moe, spec, shape, error);
  g_free(m.sinks);
  return network;
}

const NetworkFamily family_gpt_oss = {
    .name = "gpt_oss",
    .summary = "gpt-oss: mixtures of experts, sinks of attention, windows in every other layer",
    .model_types = (const char *const[]){"gpt_oss", NULL},
    .build = build,
};
