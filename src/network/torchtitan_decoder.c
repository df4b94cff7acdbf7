/* torchtitan_decoder.c - decoders as torchtitan writes them: RMSNorm, RoPE, grouped-query or latent
 * attention, SwiGLU or mixtures of experts. */
#include "network/torchtitan_decoder.h"

#include <string.h>

/* ---- modules, in order of definition ---- */

static void
define_attention(Builder *b, const Torchtitan *m, TorchtitanBlock *p)
{
  gint64 hidden = m->lm.hidden, q = m->lm.heads * m->lm.head_dim, kv = m->kv_heads * m->lm.head_dim;
  p->attention = builder_module(b, "attention", "Attention");
  if (m->style.qk_norm) {
    p->q_norm = define_norm(b, "q_norm", "RMSNorm", m->lm.head_dim, FALSE);
    p->k_norm = define_norm(b, "k_norm", "RMSNorm", m->lm.head_dim, FALSE);
  }
  p->q = define_linear(b, "wq", q, hidden, m->style.qkv_bias);
  p->k = define_linear(b, "wk", kv, hidden, m->style.qkv_bias);
  p->v = define_linear(b, "wv", kv, hidden, m->style.qkv_bias);
  p->o = define_linear(b, "wo", hidden, q, m->style.o_bias);
  builder_module_end(b);
}

static gboolean
is_mixture(const Torchtitan *m, int block)
{
  return m->mixed && block >= m->dense;
}

static void
define_norms(Builder *b, const Torchtitan *m, TorchtitanBlock *p)
{
  p->norm1 = define_norm(b, "attention_norm", "RMSNorm", m->lm.hidden, FALSE);
  p->norm2 = define_norm(b, "ffn_norm", "RMSNorm", m->lm.hidden, FALSE);
}

static TorchtitanBlock
define_block(Builder *b, const Torchtitan *m, int block)
{
  TorchtitanBlock p = {0};
  builder_block_begin(b, "TransformerBlock");
  if (m->style.latent)
    p.latent = torchtitan_latent_define(b, &m->lm, &m->latent);
  else
    define_attention(b, m, &p);
  if (m->style.norms_first)
    define_norms(b, m, &p);
  if (is_mixture(m, block))
    p.moe = torchtitan_moe_define(b, &m->moe);
  else
    p.feed_forward =
        torchtitan_feed_forward_define(b, "feed_forward", m->lm.hidden, m->ffn, m->mlp_bias);
  if (!m->style.norms_first)
    define_norms(b, m, &p);
  builder_block_end(b);
  return p;
}

static void
define_modules(Builder *b, Torchtitan *m)
{
  causal_lm_define_embedding(b, &m->lm, "tok_embeddings");
  builder_module(b, "layers", "ModuleList");
  m->blocks = g_new(TorchtitanBlock, m->lm.layers);
  for (int i = 0; i < m->lm.layers; i++)
    m->blocks[i] = define_block(b, m, i);
  builder_module_end(b);
  m->lm.norm_weight = define_norm(b, "norm", "RMSNorm", m->lm.hidden, FALSE);
  m->lm.norm_module = parameter_module(b, m->lm.norm_weight);
  causal_lm_define_head(b, &m->lm, "output");
}

/* ---- forward() ---- */

/* Queries and keys (of qkv) are rotated, as names. */
static void
rotate(Builder *b, const Torchtitan *m, Val qkv[3], const Val *tables)
{
  static const char *const names[] = {"q", "k"};
  RopeCode rope = m->lm.impl.rope;
  if (rope == ROPE_NONE)
    return;
  if (m->style.rotation == TORCHTITAN_ROTATE_TOGETHER) {
    rope_joined(b, qkv, tables[0]);
    for (int i = 0; i < 2; i++)
      qkv[i] = let(b, names[i], qkv[i]);
    return;
  }
  for (int i = 0; i < 2; i++)
    qkv[i] = rope == ROPE_ROTATE_HALF ? rope_half(b, qkv[i], tables[0], tables[1])
                                      : rope_complex(b, qkv[i], tables[0]);
  let_pair(b, names, qkv);
}

static Val
attention_forward(Builder *b, const Torchtitan *m, const TorchtitanBlock *p, Val x,
                  const Val *tables)
{
  const CausalLm *lm = &m->lm;
  x = call_module(b, p->attention, x);
  Val qkv[3];
  qkv[0] = split_heads(b, linear(b, x, p->q), lm->heads, lm->head_dim);
  qkv[1] = split_heads(b, linear(b, x, p->k), m->kv_heads, lm->head_dim);
  qkv[2] = split_heads(b, linear(b, x, p->v), m->kv_heads, lm->head_dim);
  let_triple(b, (const char *const[]){"q", "k", "v"}, qkv);
  if (m->style.qk_norm) {
    qkv[0] = let(b, "q", rms_norm(b, qkv[0], p->q_norm, m->norm));
    qkv[1] = let(b, "k", rms_norm(b, qkv[1], p->k_norm, m->norm));
  }
  rotate(b, m, qkv, tables);
  AttentionCall call = {lm->impl.attention, lm->heads, m->kv_heads, FALSE, NO_VAL, 0};
  if (lm->impl.kv_heads == KV_HEADS_REPEATED && m->kv_heads != lm->heads) {
    Val k = repeat_heads(b, qkv[1], lm->heads, FALSE);
    Val v = repeat_heads(b, qkv[2], lm->heads, FALSE);
    qkv[1] = let(b, "k", k);
    qkv[2] = let(b, "v", v);
    call.kv_heads = lm->heads;
  }
  Val q = transpose(b, qkv[0]);
  Val k = transpose(b, qkv[1]);
  Val v = transpose(b, qkv[2]);
  Val o = attention(b, q, k, v, &call);
  if (!m->style.output_late)
    o = let(b, "o", o);
  o = contiguous(b, transpose(b, o));
  if (m->style.output_late)
    o = let(b, "o", o);
  return builder_leave(b, linear(b, merge_heads(b, o), p->o));
}

static Val
attend(Builder *b, const Torchtitan *m, const TorchtitanBlock *p, Val x, const Val *tables)
{
  if (!m->style.latent)
    return attention_forward(b, m, p, x, tables);
  LatentModel latent = {&m->lm, m->latent, m->norm};
  return torchtitan_latent(b, &latent, &p->latent, x, tables);
}

/* h = x + attention(norm(x)); return h + feed_forward(norm(h)), where h may be called x again. */
static Val
block_forward(Builder *b, const CausalLm *lm, int block, Val x, const Val *tables)
{
  const Torchtitan *m = (const Torchtitan *) lm;
  const TorchtitanBlock *p = &m->blocks[block];
  const char *stream = m->style.stream;
  builder_call(b, 0, NULL);
  Val mixed = attend(b, m, p, rms_norm(b, x, p->norm1, m->norm), tables);
  Val h = let(b, stream != NULL ? stream : "h", binary(b, OP_ADD, x, mixed));
  Val out = rms_norm(b, h, p->norm2, m->norm);
  out = is_mixture(m, block) ? torchtitan_moe(b, &p->moe, out)
                             : torchtitan_feed_forward(b, &p->feed_forward, out);
  out = binary(b, OP_ADD, h, out);
  return builder_leave(b, stream != NULL ? let(b, stream, out) : out);
}

/* ---- around the blocks ---- */

static Val
embed(Builder *b, const CausalLm *lm, Val tokens)
{
  return embedding(b, lm->embedding_weight, tokens);
}

static Val
final_norm(Builder *b, const CausalLm *lm, Val x)
{
  return rms_norm(b, x, lm->norm_weight, ((const Torchtitan *) lm)->norm);
}

static void
write_balance(Builder *b, const Torchtitan *m)
{
  g_autofree int *blocks = g_new(int, m->lm.layers);
  int n = 0;
  for (int i = 0; i < m->lm.layers; i++)
    if (is_mixture(m, i))
      blocks[n++] = i;
  if (m->balances && n > 0)
    torchtitan_moe_balance(b, m->moe.experts, n, blocks);
}

/* ---- config.json ---- */

/* What torchtitan's model does not have. */
static void
check_without(const Torchtitan *m, NetworkSpec *spec)
{
  static const char why[] = "torchtitan's model has no such thing";
  const char *const *field = m->style.without;
  if (field == NULL)
    return;
  for (; *field != NULL; field++)
    network_spec_expect(spec, *field, FALSE, why);
  if (network_spec_double(spec, "attention_dropout", 0) > 0)
    network_spec_fail(spec, "attention_dropout", "%s", why);
}

/* What only torchtitan's Llama is asked for. */
static void
check_implementation(const Torchtitan *m, NetworkSpec *spec)
{
  if (!m->style.rotates_alike)
    return;
  if (spec->implementation.rope != ROPE_COMPLEX)
    network_spec_fail(spec, "implementation", "'rope' is of torchtitan's Llama alone");
  if (spec->implementation.kv_heads != KV_HEADS_NATIVE)
    network_spec_fail(spec, "implementation", "'kv_heads' is of torchtitan's Llama alone");
}

static gboolean
read_config(Torchtitan *m, NetworkSpec *spec, const NetworkShape *shape, GError **error)
{
  causal_lm_read(&m->lm, spec, shape);
  gint64 share = MAX(m->lm.hidden / MAX(m->lm.heads, 1), 1);
  m->kv_heads = network_spec_int(spec, "num_key_value_heads", m->lm.heads);
  m->ffn = network_spec_int(spec, "intermediate_size", -1);
  m->lm.head_dim =
      network_spec_int(spec, "head_dim", m->style.head_dim > 0 ? m->style.head_dim : share);
  m->lm.tied = network_spec_bool(spec, "tie_word_embeddings", FALSE);
  m->mlp_bias = network_spec_bool(spec, "mlp_bias", FALSE);
  m->norm = m->lm.impl.rms_norm == RMS_NORM_FUSED ? NORM_FUSED : NORM_COMPOSITE;
  m->lm.ties_again = m->style.ties_again;
  m->lm.rotary.joined = m->style.rotation == TORCHTITAN_ROTATE_TOGETHER;
  causal_lm_check_matrix(spec, "intermediate_size", m->ffn, m->lm.hidden);
  check_implementation(m, spec);
  check_without(m, spec);
  const char *activation = network_spec_string(spec, "hidden_act", "silu");
  if (strcmp(activation, "silu") != 0)
    network_spec_fail(spec, "hidden_act", "'%s' is not supported, only silu", activation);
  if (m->style.read != NULL)
    m->style.read(m, spec);
  return causal_lm_check(&m->lm, m->kv_heads, spec, error);
}

Network *
torchtitan_build(const TorchtitanStyle *style, NetworkSpec *spec, const NetworkShape *shape,
                 GError **error)
{
  Torchtitan m = {.style = *style};
  if (!read_config(&m, spec, shape, error))
    return NULL;
  Builder *b = builder_new(spec->name, shape);
  define_modules(b, &m);
  m.lm.embed = embed;
  m.lm.norm = final_norm;
  m.lm.block = block_forward;
  rope_tables(b, &m.lm);
  causal_lm_write(b, &m.lm);
  if (m.style.latent) /* FLOPs of attention: products with keys and with values */
    builder_network(b)->attention_width = latent_attention_width(&m.latent, m.lm.heads);
  write_balance(b, &m);
  g_free(m.blocks);
  return builder_finish(b, error);
}
