/* family_phi.c - Phi 1 and 2: one norm before attention and feed-forward side by side, rotary
 * embeddings of a part of each head, biases everywhere. */
#include "network/classic_decoder.h"
#include "network/transformers_rope.h"

static void
define_block(Builder *b, Classic *m, ClassicBlock *p, int block)
{
  static const char *const mlp[] = {"mlp", "fc1", "fc2", "activation_fn"};
  gint64 hidden = m->lm.hidden, kv = m->kv_heads * m->lm.head_dim;
  (void) block;
  p->attention = builder_module(b, "self_attn", "PhiAttention");
  p->q = define_linear(b, "q_proj", m->lm.heads * m->lm.head_dim, hidden, TRUE);
  p->k = define_linear(b, "k_proj", kv, hidden, TRUE);
  p->v = define_linear(b, "v_proj", kv, hidden, TRUE);
  p->out = define_linear(b, "dense", hidden, m->lm.heads * m->lm.head_dim, TRUE);
  builder_module_end(b);
  classic_define_mlp(b, m, p, mlp, TRUE);
  p->norm1 = define_norm(b, "input_layernorm", "LayerNorm", hidden, TRUE);
}

static Val
attention_forward(Builder *b, const Classic *m, int block, Val x, const Val *args, Val *weights)
{
  static const char *const names[] = {"query_states", "key_states", "value_states"};
  const ClassicBlock *p = &m->blocks[block];
  const Linear *projections[] = {&p->q, &p->k, &p->v};
  Val qkv[3];
  x = call_module_by_keyword(b, p->attention, x);
  for (int i = 0; i < 3; i++)
    qkv[i] = let(b, names[i], classic_heads(b, m, linear(b, x, *projections[i])));
  transformers_rotate(b, ROTATE_PART_OUTSIDE, qkv, args[TABLE_COS], args[TABLE_SIN]);
  for (int i = 0; i < 2; i++)
    qkv[i] = let(b, names[i], qkv[i]);
  Val o = classic_attend(b, m, p, qkv, transformers_mask(&m->lm, 0, args), weights);
  return builder_leave_beside(b, o, weights);
}

static void
read(Classic *m, NetworkSpec *spec)
{
  m->kv_heads = network_spec_int(spec, "num_key_value_heads", m->lm.heads);
  network_spec_expect(spec, "qk_layernorm", FALSE, "true is not supported");
}

static const ClassicStyle style = {
    .model = "model",
    .embedding = "embed_tokens",
    .layers = "layers",
    .block = "PhiDecoderLayer",
    .norm = "final_layernorm",
    .ffn_field = "intermediate_size",
    .activation_field = "hidden_act",
    .activation = "gelu_new",
    .attention_dropout = "attention_dropout",
    .residual_dropout = "resid_pdrop",
    .embedding_dropout = "embd_pdrop",
    .head_bias = TRUE,
    .rotary = TRUE,
    .renames_embeddings = TRUE,
    .drops_outside = TRUE,
    .rotary_before_norm = TRUE,
    .rotary_fraction_field = "partial_rotary_factor",
    .rotary_fraction = 0.5,
    .read = read,
    .define_block = define_block,
    .prepare = classic_prepare_rotary,
    .compute_block = classic_block_parallel,
    .attention = attention_forward,
};

static Network *
build(NetworkSpec *spec, const NetworkShape *shape, GError **error)
{
  return classic_build_style(&style, spec, shape, error);
}

const NetworkFamily family_phi = {
    .name = "phi",
    .summary = "Phi 1 and 2: parallel attention and feed-forward behind one norm, partial RoPE",
    .model_types = (const char *const[]){"phi", NULL},
    .build = build,
};
