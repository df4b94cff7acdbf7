/* family_llama.c - Llama and its relatives: RMSNorm, RoPE, grouped-query attention, SwiGLU. */
#include <string.h>

#include "network/family.h"
#include "network/transformers_lm.h"
#include "network/transformers_rope.h"

/* Parameters (by index) and modules of a block. */
typedef struct {
  Linear q, k, v, o, gate, up, down;
  int norm1, norm2, attention, feed_forward;
  int activation; /* a module of its own, or -1 */
} BlockParts;

typedef struct {
  CausalLm lm; /* what every language model has */
  gint64 kv_heads, ffn;
  gboolean qkv_bias, o_bias, mlp_bias;
  NormCode norm;
  BlockParts *blocks;
} Llama;

/* What the implementations call their modules. */
typedef struct {
  const char *embedding, *attention, *q, *k, *v, *o, *feed_forward, *gate, *up, *down, *norm1,
      *norm2, *head;
  const char *activation; /* NULL: a function */
  gboolean up_before_down;
} Names;

static const Names torchtitan_names = {
    .embedding = "tok_embeddings",
    .attention = "attention",
    .q = "wq",
    .k = "wk",
    .v = "wv",
    .o = "wo",
    .feed_forward = "feed_forward",
    .gate = "w1",
    .down = "w2",
    .up = "w3",
    .norm1 = "attention_norm",
    .norm2 = "ffn_norm",
    .head = "output",
};
static const Names transformers_names = {
    .embedding = "embed_tokens",
    .attention = "self_attn",
    .q = "q_proj",
    .k = "k_proj",
    .v = "v_proj",
    .o = "o_proj",
    .feed_forward = "mlp",
    .gate = "gate_proj",
    .up = "up_proj",
    .down = "down_proj",
    .norm1 = "input_layernorm",
    .norm2 = "post_attention_layernorm",
    .head = "lm_head",
    .up_before_down = TRUE,
    .activation = "act_fn",
};

/* ---- modules, in order of definition ---- */

static BlockParts
define_block(Builder *b, const Llama *m, const Names *names)
{
  gint64 hidden = m->lm.hidden, q = m->lm.heads * m->lm.head_dim, kv = m->kv_heads * m->lm.head_dim;
  BlockParts p;
  builder_block_begin(b, "TransformerBlock");
  p.attention = builder_module(b, names->attention, "Attention");
  p.q = define_linear(b, names->q, q, hidden, m->qkv_bias);
  p.k = define_linear(b, names->k, kv, hidden, m->qkv_bias);
  p.v = define_linear(b, names->v, kv, hidden, m->qkv_bias);
  p.o = define_linear(b, names->o, hidden, q, m->o_bias);
  builder_module_end(b);
  p.feed_forward = builder_module(b, names->feed_forward, "FeedForward");
  p.gate = define_linear(b, names->gate, m->ffn, hidden, m->mlp_bias);
  if (names->up_before_down)
    p.up = define_linear(b, names->up, m->ffn, hidden, m->mlp_bias);
  p.down = define_linear(b, names->down, hidden, m->ffn, m->mlp_bias);
  if (!names->up_before_down)
    p.up = define_linear(b, names->up, m->ffn, hidden, m->mlp_bias);
  p.activation = -1;
  if (names->activation != NULL) {
    p.activation = builder_module(b, names->activation, "SiLUActivation");
    builder_module_end(b);
  }
  builder_module_end(b);
  p.norm1 = define_norm(b, names->norm1, "RMSNorm", hidden, FALSE);
  p.norm2 = define_norm(b, names->norm2, "RMSNorm", hidden, FALSE);
  builder_block_end(b);
  return p;
}

static void
define_modules(Builder *b, Llama *m)
{
  gboolean hub = m->lm.impl.code == CODE_TRANSFORMERS;
  const Names *names = hub ? &transformers_names : &torchtitan_names;
  if (hub)
    builder_module(b, "model", "LlamaModel");
  causal_lm_define_embedding(b, &m->lm, names->embedding);
  builder_module(b, "layers", "ModuleList");
  m->blocks = g_new(BlockParts, m->lm.layers);
  for (int i = 0; i < m->lm.layers; i++)
    m->blocks[i] = define_block(b, m, names);
  builder_module_end(b);
  m->lm.norm_weight = define_norm(b, "norm", "RMSNorm", m->lm.hidden, FALSE);
  m->lm.norm_module = network_parameter(builder_network(b), m->lm.norm_weight)->module;
  if (hub) {
    transformers_define_rotary(b, &m->lm);
    builder_module_end(b);
  }
  causal_lm_define_head(b, &m->lm, names->head);
}

/* ---- forward() as torchtitan writes it ---- */

static Val
torchtitan_attention(Builder *b, const Llama *m, const BlockParts *p, Val x, const Val *tables)
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
  AttentionCall call = {lm->impl.attention, lm->heads, m->kv_heads, FALSE, NO_VAL};
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

/* F.silu(x), or a module that calls it. */
static Val
activation(Builder *b, const BlockParts *p, Val x)
{
  if (p->activation < 0)
    return unary(b, OP_SILU, x);
  x = call_module(b, p->activation, x);
  return builder_leave(b, unary(b, OP_SILU, x));
}

static Val
feed_forward(Builder *b, const BlockParts *p, Val x)
{
  x = call_module(b, p->feed_forward, x);
  Val gate = activation(b, p, linear(b, x, p->gate));
  Val up = linear(b, x, p->up);
  return builder_leave(b, linear(b, binary(b, OP_MUL, gate, up), p->down));
}

/* h = x + attention(norm(x)); return h + feed_forward(norm(h)) */
static Val
torchtitan_block(Builder *b, const CausalLm *lm, int block, Val x, const Val *tables)
{
  const Llama *m = (const Llama *) lm;
  const BlockParts *p = &m->blocks[block];
  builder_call(b, 0, NULL);
  Val mixed = torchtitan_attention(b, m, p, rms_norm(b, x, p->norm1, m->norm), tables);
  Val h = let(b, "h", binary(b, OP_ADD, x, mixed));
  Val out = feed_forward(b, p, rms_norm(b, h, p->norm2, m->norm));
  return builder_leave(b, binary(b, OP_ADD, h, out));
}

/* ---- forward() as transformers writes it ---- */

/* Returns the output; *weights: eager attention's probabilities, or NO_VAL. */
static Val
transformers_attention(Builder *b, const Llama *m, const BlockParts *p, Val x, const Val *tables,
                       Val *weights)
{
  const CausalLm *lm = &m->lm;
  x = call_module_by_keyword(b, p->attention, x);
  Val qkv[3];
  qkv[0] =
      let(b, "query", transpose(b, split_heads(b, linear(b, x, p->q), lm->heads, lm->head_dim)));
  qkv[1] =
      let(b, "key", transpose(b, split_heads(b, linear(b, x, p->k), m->kv_heads, lm->head_dim)));
  qkv[2] =
      let(b, "value", transpose(b, split_heads(b, linear(b, x, p->v), m->kv_heads, lm->head_dim)));
  transformers_rotate(b, ROTATE_HALF, qkv, tables[TABLE_COS], tables[TABLE_SIN]);
  qkv[0] = let(b, "query", qkv[0]);
  qkv[1] = let(b, "key", qkv[1]);
  Val mask = transformers_mask(lm, 0, tables);
  Val o = transformers_attend(b, lm, m->kv_heads, FALSE, qkv, mask, weights);
  o = let(b, "output", o);
  if (weights->slot != NO_VAL.slot)
    *weights = let(b, "attn_weights", *weights);
  o = let(b, "output", merge_heads(b, o));
  o = let(b, "output", linear(b, o, p->o));
  Val results[2] = {o, *weights};
  builder_leave_with(b, weights->slot != NO_VAL.slot ? 2 : 1, results);
  *weights = results[1];
  return results[0];
}

/* residual + attention(norm(x)), residual + mlp(norm(x)), with every step bound to hidden_states */
static Val
transformers_block(Builder *b, const CausalLm *lm, int block, Val x, const Val *tables)
{
  const Llama *m = (const Llama *) lm;
  const BlockParts *p = &m->blocks[block];
  Val weights;
  builder_enter(b, 1, (const char *const[]){"hidden_states"}, &x);
  Val residual = let(b, "residual", x);
  x = let(b, "hidden_states", rms_norm(b, x, p->norm1, m->norm));
  x = let(b, "hidden_states", transformers_attention(b, m, p, x, tables, &weights));
  if (weights.slot != NO_VAL.slot)
    let(b, "_", weights);
  x = let(b, "hidden_states", binary(b, OP_ADD, residual, x));
  residual = let(b, "residual", x);
  x = let(b, "hidden_states", rms_norm(b, x, p->norm2, m->norm));
  x = let(b, "hidden_states", feed_forward(b, p, x));
  x = let(b, "hidden_states", binary(b, OP_ADD, residual, x));
  return builder_leave(b, x);
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
read_config(Llama *m, NetworkSpec *spec, const NetworkShape *shape, GError **error)
{
  causal_lm_read(&m->lm, spec, shape);
  gboolean qwen = g_str_has_prefix(spec->family, "qwen2");
  m->kv_heads = network_spec_int(spec, "num_key_value_heads", m->lm.heads);
  m->ffn = network_spec_int(spec, "intermediate_size", -1);
  m->lm.head_dim = network_spec_int(spec, "head_dim", MAX(m->lm.hidden / MAX(m->lm.heads, 1), 1));
  m->lm.tied = network_spec_bool(spec, "tie_word_embeddings", FALSE);
  gboolean bias = network_spec_bool(spec, "attention_bias", FALSE);
  m->qkv_bias = qwen || bias;
  m->o_bias = !qwen && bias;
  m->mlp_bias = network_spec_bool(spec, "mlp_bias", FALSE);
  m->lm.window = network_spec_int(spec, "sliding_window", 0);
  m->lm.mask_kwargs = qwen;
  if (m->lm.impl.code == CODE_TRANSFORMERS)
    transformers_check(spec);
  if (m->lm.impl.code == CODE_TRANSFORMERS && m->lm.impl.rope != ROPE_ROTATE_HALF)
    json_reader_fail(spec->reader, "implementation", "the rope of transformers is rotate_half");
  const Implementation *impl = &spec->implementation;
  m->norm = impl->rms_norm == RMS_NORM_FUSED  ? NORM_FUSED
            : impl->code == CODE_TRANSFORMERS ? NORM_TRANSFORMERS
                                              : NORM_COMPOSITE;
  causal_lm_check_matrix(spec, "intermediate_size", m->ffn, m->lm.hidden);
  const char *activation = network_spec_string(spec, "hidden_act", "silu");
  if (strcmp(activation, "silu") != 0)
    network_spec_fail(spec, "hidden_act", "'%s' is not supported, only silu", activation);
  return causal_lm_check(&m->lm, m->kv_heads, spec, error);
}

static Network *
build(NetworkSpec *spec, const NetworkShape *shape, GError **error)
{
  Llama m = {0};
  if (!read_config(&m, spec, shape, error))
    return NULL;
  Builder *b = builder_new(spec->name, shape);
  define_modules(b, &m);
  m.lm.embed = embed;
  m.lm.norm = final_norm;
  if (m.lm.impl.code == CODE_TRANSFORMERS) {
    m.lm.block = transformers_block;
    transformers_write(b, &m.lm);
  } else {
    m.lm.block = torchtitan_block;
    rope_tables(b, &m.lm);
    causal_lm_write(b, &m.lm);
  }
  g_free(m.blocks);
  return builder_finish(b, error);
}

const NetworkFamily family_llama = {
    .name = "llama",
    .summary = "Llama 1-3, Mistral, Qwen2 and other decoders with RMSNorm, RoPE and SwiGLU",
    .model_types = (const char *const[]){"llama", "mistral", "qwen2", NULL},
    .build = build,
};
