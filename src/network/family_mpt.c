/* family_mpt.c - MPT in llm-foundry's code (llmfoundry/models/mpt, models/layers): learned
 * positions or ALiBi, LayerNorm, one projection for q, k and v, GELU, the embedding's weight as
 * output layer; and Composer's training loop around it. */
#include <string.h>

#include "network/causal_lm.h"
#include "network/family.h"
#include "network/transformers_mpt.h"

/* Parameters (by index) and modules of a block. */
typedef struct {
  Linear qkv, out, up, down;
  int norm1, norm2, q_norm, k_norm, attention, mlp, activation;
} BlockParts;

typedef struct {
  CausalLm lm; /* what every language model has */
  gint64 kv_heads, ffn, positions;
  gboolean bias, learned_positions, alibi, clips_qkv, norms_qk, low_precision_norm, train_metrics;
  double residual_dropout, embedding_dropout;
  int position_weight;
  BlockParts *blocks;
} Mpt;

/* ---- modules, in order of definition ---- */

static int
define_layer_norm(Builder *b, const Mpt *m, const char *name, gint64 width)
{
  return define_norm(b, name, m->low_precision_norm ? "LPLayerNorm" : "LayerNorm", width, m->bias);
}

static BlockParts
define_block(Builder *b, const Mpt *m)
{
  BlockParts p = {0};
  gint64 hidden = m->lm.hidden, kv = m->kv_heads * m->lm.head_dim;
  builder_block_begin(b, "MPTBlock");
  p.norm1 = define_layer_norm(b, m, "norm_1", hidden);
  p.attention = builder_module(b, "attn", "MultiheadAttention");
  p.qkv = define_linear(b, "Wqkv", hidden + 2 * kv, hidden, m->bias);
  if (m->norms_qk) {
    p.q_norm = define_layer_norm(b, m, "q_ln", hidden);
    p.k_norm = define_layer_norm(b, m, "k_ln", kv);
  }
  p.out = define_linear(b, "out_proj", hidden, hidden, m->bias);
  builder_module_end(b);
  p.norm2 = define_layer_norm(b, m, "norm_2", hidden);
  p.mlp = builder_module(b, "ffn", "MPTMLP");
  p.up = define_linear(b, "up_proj", m->ffn, hidden, m->bias);
  p.activation = builder_module(b, "act", "GELU");
  builder_module_end(b);
  p.down = define_linear(b, "down_proj", hidden, m->ffn, m->bias);
  builder_module_end(b);
  builder_block_end(b);
  return p;
}

/* SharedEmbedding: the module that looks tokens up multiplies by its weight at the end. */
static void
share_embedding(Builder *b, Mpt *m)
{
  if (builder_shape(b)->splits_tied)
    builder_fail(b, "key 'tie_word_embeddings': the output layer is the embedding itself, so "
                    "fsdp.embedding and fsdp.head "
                    "can only be root");
  m->lm.head =
      (Linear){.weight = m->lm.embedding_weight, .bias = -1, .module = m->lm.embedding_module};
  m->lm.head_module = m->lm.embedding_module;
  Tie twice = {-1, m->lm.embedding_weight};
  g_array_append_val(builder_network(b)->ties, twice);
}

static void
define_modules(Builder *b, Mpt *m)
{
  builder_module(b, "transformer", "MPTModel");
  causal_lm_define_embedding(b, &m->lm, "wte");
  if (m->learned_positions) {
    builder_module(b, "wpe", "Embedding");
    m->position_weight = builder_parameter(b, "weight", 2, m->positions, m->lm.hidden);
    builder_module_end(b);
  }
  builder_module(b, "blocks", "ModuleList");
  m->blocks = g_new(BlockParts, m->lm.layers);
  for (int i = 0; i < m->lm.layers; i++)
    m->blocks[i] = define_block(b, m);
  builder_module_end(b);
  m->lm.norm_weight = define_layer_norm(b, m, "norm_f", m->lm.hidden);
  m->lm.norm_module = parameter_module(b, m->lm.norm_weight);
  builder_module_end(b);
  if (m->lm.tied)
    share_embedding(b, m);
  else
    causal_lm_define_head(b, &m->lm, "lm_head");
}

/* ---- forward() ---- */

/* nn.LayerNorm, or LPLayerNorm: under autocast in the matmuls' dtype, with casts that nobody keeps.
 */
static Val
norm(Builder *b, const Mpt *m, Val x, int gain)
{
  const NetworkPrecision *precision = &builder_shape(b)->precision;
  int n = m->bias ? 3 : 2;
  x = call_module(b, parameter_module(b, gain), x);
  Val operands[3] = {x, builder_weight(b, gain), m->bias ? builder_weight(b, gain + 1) : NO_VAL};
  if (m->low_precision_norm && precision->autocast)
    for (int i = 0; i < n; i++)
      operands[i] = let(b,
                        i == 0   ? "downcast_x"
                        : i == 1 ? "downcast_weight"
                                 : "downcast_bias",
                        to(b, operands[i], precision->matmul));
  return builder_leave(b, builder_op(b, OP_LAYER_NORM, NULL, n, operands));
}

/* qkv.split([d_model, kv, kv], dim=2) */
static void
split_qkv(Builder *b, const Mpt *m, Val qkv, Val out[3])
{
  gint64 kv = m->kv_heads * m->lm.head_dim;
  split_parts(b, qkv, 2, 3, (const gint64[]){m->lm.hidden, kv, kv}, out);
}

/* (x, heads) as attention takes it: [batch, heads, length, head_dim], a view. */
static Val
heads_first(Builder *b, Val x, gint64 heads, gint64 head_dim)
{
  return transpose(b, split_heads(b, x, heads, head_dim));
}

/* flash_attn_fn and triton_flash_attn_fn: a fused kernel, which adds the positions' bias by itself.
 * Triton's and the first FlashAttention want a key head for each query head. */
static Val
fused_attention(Builder *b, const Mpt *m, Val qkv[3])
{
  const CausalLm *lm = &m->lm;
  static const char *const names[] = {"query", "key", "value"};
  AttentionCall call = {lm->impl.attention,    lm->heads, m->kv_heads,
                        lm->attention_dropout, NO_VAL,    0};
  gboolean native = lm->impl.kv_heads == KV_HEADS_NATIVE &&
                    lm->impl.attention != ATTENTION_TRITON &&
                    lm->impl.attention != ATTENTION_FLASH1;
  builder_enter(b, 3, names, qkv);
  Val heads[3];
  for (int i = 0; i < 3; i++) {
    gint64 n = i == 0 ? lm->heads : m->kv_heads;
    Val x = split_heads(b, (Val){qkv[i].slot, FALSE}, n, lm->head_dim);
    if (!native && n != lm->heads)
      x = repeat_heads(b, x, lm->heads, FALSE);
    qkv[i] = let(b, names[i], x);
  }
  if (!native)
    call.kv_heads = lm->heads;
  for (int i = 0; i < 3; i++)
    heads[i] = transpose(b, qkv[i]);
  Val output = let(b, "attn_output", attention(b, heads[0], heads[1], heads[2], &call));
  return builder_leave(b, merge_heads(b, contiguous(b, transpose(b, output))));
}

/* The causal part of scaled_multihead_dot_product_attention: a mask made anew in each block. */
static Val
fill_masked(Builder *b, gint64 length, Val weights)
{
  Val ones = create(b, "ones", value_shape(DTYPE_FP32, 2, length, length));
  Val mask = let(b, "causal_mask", ones);
  mask = let(b, "causal_mask", create(b, "tril", value_shape(DTYPE_FP32, 2, length, length)));
  for (int i = 0; i < 2; i++) /* .to(torch.bool), ~ */
    mask = let(b, "causal_mask", create(b, "mask", value_shape(DTYPE_BOOL, 2, length, length)));
  return binary(b, OP_MASKED_FILL, weights, mask);
}

/* scaled_multihead_dot_product_attention, of attn_impl torch. */
static Val
torch_attention(Builder *b, const Mpt *m, Val qkv[3], Val bias)
{
  const CausalLm *lm = &m->lm;
  static const char *const names[] = {"query", "key", "value"}, *const short_names[] = {"q", "k",
                                                                                        "v"};
  builder_enter(b, 3, names, qkv);
  Val part[3];
  for (int i = 0; i < 3; i++)
    part[i] = let(
        b, short_names[i],
        heads_first(b, (Val){qkv[i].slot, FALSE}, i == 0 ? lm->heads : m->kv_heads, lm->head_dim));
  for (int i = 1; i < 3 && m->kv_heads != lm->heads; i++)
    part[i] = let(b, short_names[i], interleave_heads(b, part[i], lm->heads));
  Val transposed = let(b, "k", transpose_last(b, part[1]));
  Val scores = batched_matmul(b, part[0], transposed, "attention scores");
  Val weights = let(b, "attn_weight", unary(b, OP_MUL_SCALAR, scores));
  if (bias.slot != NO_VAL.slot)
    weights = let(b, "attn_weight", binary(b, OP_ADD, weights, bias));
  weights = let(b, "attn_weight", fill_masked(b, lm->length, weights));
  weights = let(b, "attn_weight", unary(b, OP_SOFTMAX, weights));
  if (m->lm.attention_dropout > 0)
    weights = let(b, "attn_weight", unary(b, OP_DROPOUT, weights));
  Val narrow = to(b, weights, (DType) builder_info(b, part[2]).dtype);
  narrow = builder_share(b, narrow);
  Val out = let(b, "out", batched_matmul(b, (Val){narrow.slot, FALSE}, part[2], NULL));
  builder_discard(b, narrow);
  return builder_leave(b, merge_heads(b, contiguous(b, transpose(b, out))));
}

static Val
multihead_attention(Builder *b, const Mpt *m, const BlockParts *p, Val x, Val bias)
{
  static const char *const names[] = {"query", "key", "value"};
  x = call_module(b, p->attention, x);
  Val qkv = let(b, "qkv", linear(b, x, p->qkv)), part[3];
  if (m->clips_qkv)
    qkv = let(b, "qkv", unary(b, OP_CLAMP, qkv));
  split_qkv(b, m, qkv, part);
  let_triple(b, names, part);
  for (int i = 0; i < 2 && m->norms_qk; i++)
    part[i] = let(b, names[i], norm(b, m, part[i], i == 0 ? p->q_norm : p->k_norm));
  gboolean torch = m->lm.impl.attention == ATTENTION_EAGER;
  Val context = torch ? torch_attention(b, m, part, bias) : fused_attention(b, m, part);
  context = let(b, "context", context);
  return builder_leave(b, linear(b, context, p->out));
}

static Val
feed_forward(Builder *b, const BlockParts *p, Val x)
{
  x = call_module(b, p->mlp, x);
  Val hidden = call_module(b, p->activation, linear(b, x, p->up));
  return builder_leave(b, linear(b, builder_leave(b, unary(b, OP_GELU, hidden)), p->down));
}

static Val
block_forward(Builder *b, const CausalLm *lm, int block, Val x, const Val *tables)
{
  const Mpt *m = (const Mpt *) lm;
  const BlockParts *p = &m->blocks[block];
  builder_enter(b, 1, (const char *const[]){"x"}, &x);
  x = (Val){x.slot, FALSE};
  Val a = let(b, "a", norm(b, m, x, p->norm1));
  Val mixed = let(b, "b", multihead_attention(b, m, p, a, m->alibi ? tables[0] : NO_VAL));
  x = let(b, "x", binary(b, OP_ADD, x, dropout(b, m->residual_dropout, mixed)));
  Val second = let(b, "m", norm(b, m, x, p->norm2));
  Val n = let(b, "n", feed_forward(b, p, second));
  x = let(b, "x", binary(b, OP_ADD, x, dropout(b, m->residual_dropout, n)));
  return builder_leave(b, x);
}

/* wte(tokens) + wpe(arange(length).unsqueeze(0)), then dropout; pos lives until the model returns.
 */
static Val
embed(Builder *b, const CausalLm *lm, Val tokens)
{
  const Mpt *m = (const Mpt *) lm;
  Val x = let(b, "h", embedding(b, lm->embedding_weight, tokens));
  if (m->learned_positions) {
    Val pos =
        let(b, "pos", create(b, "positions", value_shape(DTYPE_INT64, 2, (gint64) 1, lm->length)));
    x = let(b, "h", binary(b, OP_ADD, x, embedding(b, m->position_weight, pos)));
  }
  return dropout(b, m->embedding_dropout, x);
}

static Val
final_norm(Builder *b, const CausalLm *lm, Val x)
{
  return norm(b, (const Mpt *) lm, x, lm->norm_weight);
}

/* ---- Composer's training loop ---- */

/* Trainer.state.outputs keeps the logits until the next micro-batch's; labels are rolled anew. */
static Val
composer_loss(Builder *b, const CausalLm *lm, Val logits, Val labels)
{
  builder_keep(b, logits);
  Val targets = create(b, "targets", builder_info(b, labels));
  Val loss = causal_lm_loss(b, lm, (Val){logits.slot, FALSE}, (Val){targets.slot, FALSE});
  builder_discard(b, targets);
  return loss;
}

/* Trainer._eval_train_metrics: LanguageCrossEntropy and LanguagePerplexity, each a cross entropy of
 * the logits that were kept (composer/metrics/nlp.py), without a graph, in the autocast of its
 * precision: that leaves log_softmax, which is called with a dtype, and casts for nll_loss. */
static void
write_metrics(Builder *b, const CausalLm *lm)
{
  enum { METRICS = 2 };
  const NetworkPrecision *precision = &builder_shape(b)->precision;
  DType logits = precision->has_output ? precision->output : precision->matmul;
  ValueInfo tokens = value_shape(DTYPE_INT64, 2, lm->batch, lm->length);
  ValueInfo infos[3] = {tokens, tokens,
                        value_shape(logits, 3, lm->batch, lm->length, lm->vocabulary)};
  Val args[3];
  builder_function_begin(b, "train_metrics", -1, 3, infos, args);
  for (int i = 0; i < METRICS; i++) {
    Val flat = view(b, args[2], 2, lm->batch * lm->length, lm->vocabulary);
    Val logarithms = unary(b, OP_LOG_SOFTMAX, flat);
    Val input = to(b, (Val){logarithms.slot, FALSE}, DTYPE_FP32);
    builder_discard(b, builder_op(b, OP_NLL_LOSS, NULL, 2, (Val[]){input, args[1]}));
    builder_discard(b, logarithms);
  }
  builder_network(b)->after_backward = builder_function_end(b, NO_VAL);
}

/* build_alibi_bias: one row of fp32 biases for each head, made once. */
static void
write_alibi_table(Builder *b, CausalLm *lm)
{
  builder_function_begin(b, "tables", -1, 0, NULL, NULL);
  lm->tables = 1;
  lm->table[0] = value_shape(DTYPE_FP32, 4, (gint64) 1, lm->heads, (gint64) 1, lm->length);
  Val kept = create(b, "ALiBi bias", lm->table[0]);
  builder_network(b)->construct = builder_function_end_keeping(b, 1, &kept);
}

/* ---- config.json ---- */

static double
read_dropout(JsonReader *reader, const char *name)
{
  return json_reader_double(reader, name, 0, 0, 1);
}

static const char *const attention_names[] = {"torch", "flash", "triton", NULL};
static const AttentionCode attention_codes[] = {ATTENTION_EAGER, ATTENTION_FLASH, ATTENTION_TRITON};
static const char *const attention_types[] = {"multihead_attention", "multiquery_attention",
                                              "grouped_query_attention", NULL};

/* attn_config.  A network file's implementation.attention overrides its attn_impl. */
static void
read_attention(Mpt *m, NetworkSpec *spec)
{
  g_autoptr(JsonReader) at = json_reader_section(spec->reader, "attn_config");
  json_reader_allow_unknown(at);
  int type = json_reader_enum(at, "attn_type", attention_types, 0);
  int code = json_reader_enum(at, "attn_impl", attention_names, 1);
  m->kv_heads = type == 0   ? m->lm.heads
                : type == 1 ? 1
                            : json_reader_required_int(at, "kv_n_heads", 1, (gint64) 1 << 20);
  if (m->lm.heads % MAX(m->kv_heads, 1) != 0)
    json_reader_fail(at, "kv_n_heads",
                     "%" G_GINT64_FORMAT " does not divide the %" G_GINT64_FORMAT " heads",
                     m->kv_heads, m->lm.heads);
  m->alibi = json_reader_bool(at, "alibi", FALSE);
  m->clips_qkv = json_reader_has(at, "clip_qkv");
  m->norms_qk = json_reader_bool(at, "qk_ln", FALSE);
  m->lm.attention_dropout = read_dropout(at, "attn_pdrop");
  if (m->lm.impl.attention == ATTENTION_SDPA)
    m->lm.impl.attention = attention_codes[code];
  static const char *const refused[] = {"rope", "prefix_lm", "attn_uses_sequence_id", "qk_gn"};
  for (guint i = 0; i < G_N_ELEMENTS(refused); i++)
    if (json_reader_bool(at, refused[i], FALSE))
      json_reader_fail(at, refused[i], "is not supported");
  json_reader_finish(at, NULL);
}

static void
read_norm(Mpt *m, NetworkSpec *spec)
{
  const char *name = network_spec_string(spec, "norm_type", "low_precision_layernorm");
  m->low_precision_norm = g_ascii_strcasecmp(name, "low_precision_layernorm") == 0;
  if (!m->low_precision_norm && g_ascii_strcasecmp(name, "layernorm") != 0)
    network_spec_fail(spec, "norm_type",
                      "'%s' is not supported: layernorm, low_precision_layernorm", name);
}

static void
check_sizes(const Mpt *m, NetworkSpec *spec)
{
  const CausalLm *lm = &m->lm;
  causal_lm_check_layers(spec, "n_layers", lm->layers);
  causal_lm_check_width(spec, "n_heads", lm->heads, lm->hidden);
  causal_lm_check_matrix(spec, "d_model", 3 * lm->hidden, lm->hidden);
  causal_lm_check_matrix(spec, "expansion_ratio", m->ffn, lm->hidden);
  causal_lm_check_matrix(spec, "vocab_size", lm->vocabulary, lm->hidden);
  causal_lm_check_matrix(spec, "max_seq_len", m->positions, lm->hidden);
  causal_lm_check_positions(spec, "max_seq_len", m->positions, lm->length);
}

static gboolean
read_config(Mpt *m, NetworkSpec *spec, const NetworkShape *shape, GError **error)
{
  CausalLm *lm = &m->lm;
  lm->hidden = network_spec_int(spec, "d_model", -1);
  lm->layers = network_spec_int(spec, "n_layers", -1);
  lm->heads = network_spec_int(spec, "n_heads", -1);
  lm->vocabulary = network_spec_int(spec, "vocab_size", -1);
  m->positions = network_spec_int(spec, "max_seq_len", 2048);
  m->ffn = network_spec_int(spec, "expansion_ratio", 4);
  m->ffn =
      m->ffn > BUILDER_MOST_ELEMENTS / lm->hidden ? BUILDER_MOST_ELEMENTS : m->ffn * lm->hidden;
  lm->head_dim = MAX(lm->hidden / MAX(lm->heads, 1), 1);
  lm->impl = spec->implementation;
  lm->batch = shape->micro_batch;
  lm->length = shape->sequence_length;
  lm->dtype = shape->precision.weights;
  lm->tied = network_spec_bool(spec, "tie_word_embeddings", TRUE);
  m->bias = !network_spec_bool(spec, "no_bias", FALSE);
  m->residual_dropout = read_dropout(spec->reader, "resid_pdrop");
  m->embedding_dropout = read_dropout(spec->reader, "emb_pdrop");
  m->train_metrics = spec->implementation.train_metrics;
  read_attention(m, spec);
  m->learned_positions = network_spec_bool(spec, "learned_pos_emb", TRUE) && !m->alibi;
  read_norm(m, spec);
  check_sizes(m, spec);
  return json_reader_finish(spec->reader, error);
}

static Network *
build(NetworkSpec *spec, const NetworkShape *shape, GError **error)
{
  if (spec->implementation.code == CODE_TRANSFORMERS)
    return transformers_mpt_build(spec, shape, error);
  Mpt m = {0};
  if (!read_config(&m, spec, shape, error))
    return NULL;
  Builder *b = builder_new(spec->name, shape);
  define_modules(b, &m);
  m.lm.embed = embed;
  m.lm.norm = final_norm;
  m.lm.block = block_forward;
  m.lm.loss = composer_loss;
  if (m.alibi)
    write_alibi_table(b, &m.lm);
  causal_lm_write(b, &m.lm);
  if (m.train_metrics)
    write_metrics(b, &m.lm);
  if (m.learned_positions)
    builder_network(b)->embedding_parameters += m.positions * m.lm.hidden;
  g_free(m.blocks);
  return builder_finish(b, error);
}

const NetworkFamily family_mpt = {
    .name = "mpt",
    .summary = "MPT of llm-foundry: learned positions or ALiBi, LayerNorm, fused q, k, v, GELU",
    .model_types = (const char *const[]){"mpt", NULL},
    .build = build,
};
