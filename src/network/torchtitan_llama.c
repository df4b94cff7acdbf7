/* torchtitan_llama.c - Llama as torchtitan writes it (models/llama3/model.py): RMSNorm, RoPE on
 * complex numbers or halves, grouped-query attention, SwiGLU. */
#include "network/torchtitan_llama.h"

#include <string.h>

/* Parameters (by index) and modules of a block. */
typedef struct {
  Linear q, k, v, o, gate, up, down;
  int norm1, norm2, attention, feed_forward;
} BlockParts;

typedef struct {
  CausalLm lm; /* what every language model has */
  gint64 kv_heads, ffn;
  gboolean qkv_bias, o_bias, mlp_bias;
  NormCode norm;
  BlockParts *blocks;
} Llama;

/* ---- modules, in order of definition ---- */

static BlockParts
define_block(Builder *b, const Llama *m)
{
  gint64 hidden = m->lm.hidden, q = m->lm.heads * m->lm.head_dim, kv = m->kv_heads * m->lm.head_dim;
  BlockParts p;
  builder_block_begin(b, "TransformerBlock");
  p.attention = builder_module(b, "attention", "Attention");
  p.q = define_linear(b, "wq", q, hidden, m->qkv_bias);
  p.k = define_linear(b, "wk", kv, hidden, m->qkv_bias);
  p.v = define_linear(b, "wv", kv, hidden, m->qkv_bias);
  p.o = define_linear(b, "wo", hidden, q, m->o_bias);
  builder_module_end(b);
  p.feed_forward = builder_module(b, "feed_forward", "FeedForward");
  p.gate = define_linear(b, "w1", m->ffn, hidden, m->mlp_bias);
  p.down = define_linear(b, "w2", hidden, m->ffn, m->mlp_bias);
  p.up = define_linear(b, "w3", m->ffn, hidden, m->mlp_bias);
  builder_module_end(b);
  p.norm1 = define_norm(b, "attention_norm", "RMSNorm", hidden, FALSE);
  p.norm2 = define_norm(b, "ffn_norm", "RMSNorm", hidden, FALSE);
  builder_block_end(b);
  return p;
}

static void
define_modules(Builder *b, Llama *m)
{
  causal_lm_define_embedding(b, &m->lm, "tok_embeddings");
  builder_module(b, "layers", "ModuleList");
  m->blocks = g_new(BlockParts, m->lm.layers);
  for (int i = 0; i < m->lm.layers; i++)
    m->blocks[i] = define_block(b, m);
  builder_module_end(b);
  m->lm.norm_weight = define_norm(b, "norm", "RMSNorm", m->lm.hidden, FALSE);
  m->lm.norm_module = network_parameter(builder_network(b), m->lm.norm_weight)->module;
  causal_lm_define_head(b, &m->lm, "output");
}

/* ---- forward() ---- */

static Val
attention_forward(Builder *b, const Llama *m, const BlockParts *p, Val x, const Val *tables)
{
  const CausalLm *lm = &m->lm;
  x = call_module(b, p->attention, x);
  Val qkv[3];
  qkv[0] = split_heads(b, linear(b, x, p->q), lm->heads, lm->head_dim);
  qkv[1] = split_heads(b, linear(b, x, p->k), m->kv_heads, lm->head_dim);
  qkv[2] = split_heads(b, linear(b, x, p->v), m->kv_heads, lm->head_dim);
  let_triple(b, (const char *const[]){"q", "k", "v"}, qkv);
  if (lm->impl.rope != ROPE_NONE) {
    for (int i = 0; i < 2; i++)
      qkv[i] = lm->impl.rope == ROPE_ROTATE_HALF ? rope_half(b, qkv[i], tables[0], tables[1])
                                                 : rope_complex(b, qkv[i], tables[0]);
    let_pair(b, (const char *const[]){"q", "k"}, qkv);
  }
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
  Val o = let(b, "o", attention(b, q, k, v, &call));
  return builder_leave(b, linear(b, merge_heads(b, contiguous(b, transpose(b, o))), p->o));
}

static Val
feed_forward(Builder *b, const BlockParts *p, Val x)
{
  x = call_module(b, p->feed_forward, x);
  Val gate = unary(b, OP_SILU, linear(b, x, p->gate));
  Val up = linear(b, x, p->up);
  return builder_leave(b, linear(b, binary(b, OP_MUL, gate, up), p->down));
}

/* h = x + attention(norm(x)); return h + feed_forward(norm(h)) */
static Val
block_forward(Builder *b, const CausalLm *lm, int block, Val x, const Val *tables)
{
  const Llama *m = (const Llama *) lm;
  const BlockParts *p = &m->blocks[block];
  builder_call(b, 0, NULL);
  Val mixed = attention_forward(b, m, p, rms_norm(b, x, p->norm1, m->norm), tables);
  Val h = let(b, "h", binary(b, OP_ADD, x, mixed));
  Val out = feed_forward(b, p, rms_norm(b, h, p->norm2, m->norm));
  return builder_leave(b, binary(b, OP_ADD, h, out));
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
  return rms_norm(b, x, lm->norm_weight, ((const Llama *) lm)->norm);
}

/* ---- config.json ---- */

static gboolean
read_config(Llama *m, const TorchtitanLlama *style, NetworkSpec *spec, const NetworkShape *shape,
            GError **error)
{
  causal_lm_read(&m->lm, spec, shape);
  m->kv_heads = network_spec_int(spec, "num_key_value_heads", m->lm.heads);
  m->ffn = network_spec_int(spec, "intermediate_size", -1);
  m->lm.head_dim = network_spec_int(spec, "head_dim", MAX(m->lm.hidden / MAX(m->lm.heads, 1), 1));
  m->lm.tied = network_spec_bool(spec, "tie_word_embeddings", FALSE);
  m->qkv_bias = style->qkv_bias;
  m->o_bias = style->o_bias;
  m->mlp_bias = network_spec_bool(spec, "mlp_bias", FALSE);
  m->norm = m->lm.impl.rms_norm == RMS_NORM_FUSED ? NORM_FUSED : NORM_COMPOSITE;
  causal_lm_check_matrix(spec, "intermediate_size", m->ffn, m->lm.hidden);
  const char *activation = network_spec_string(spec, "hidden_act", "silu");
  if (strcmp(activation, "silu") != 0)
    network_spec_fail(spec, "hidden_act", "'%s' is not supported, only silu", activation);
  return causal_lm_check(&m->lm, m->kv_heads, spec, error);
}

Network *
torchtitan_llama_build(const TorchtitanLlama *style, NetworkSpec *spec, const NetworkShape *shape,
                       GError **error)
{
  Llama m = {0};
  if (!read_config(&m, style, spec, shape, error))
    return NULL;
  Builder *b = builder_new(spec->name, shape);
  define_modules(b, &m);
  m.lm.embed = embed;
  m.lm.norm = final_norm;
  m.lm.block = block_forward;
  rope_tables(b, &m.lm);
  causal_lm_write(b, &m.lm);
  g_free(m.blocks);
  return builder_finish(b, error);
}
