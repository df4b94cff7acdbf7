/* family_gpt_neox.c - GPT-NeoX and Pythia: one projection for q, k and v, rotary embeddings of a
 * part of each head, attention and feed-forward side by side. */
#include "network/classic_decoder.h"
#include "network/transformers_rope.h"

static void
define_block(Builder *b, Classic *m, ClassicBlock *p, int block)
{
  static const char *const mlp[] = {"mlp", "dense_h_to_4h", "dense_4h_to_h", "act"};
  gint64 hidden = m->lm.hidden;
  (void) block;
  p->norm1 = define_norm(b, "input_layernorm", "LayerNorm", hidden, TRUE);
  p->norm2 = define_norm(b, "post_attention_layernorm", "LayerNorm", hidden, TRUE);
  p->attention = builder_module(b, "attention", "GPTNeoXAttention");
  p->qkv = define_linear(b, "query_key_value", 3 * hidden, hidden, m->bias);
  p->out = define_linear(b, "dense", hidden, hidden, m->bias);
  builder_module_end(b);
  classic_define_mlp(b, m, p, mlp, TRUE);
}

static Val
attention_forward(Builder *b, const Classic *m, const ClassicBlock *p, Val x, const Val *args,
                  Val *weights)
{
  static const char *const names[] = {"query_states", "key_states", "value_states"};
  const CausalLm *lm = &m->lm;
  x = call_module(b, p->attention, x);
  Val y = linear(b, x, p->qkv), qkv[3];
  y = view(b, y, 4, lm->batch, lm->length, lm->heads, 3 * lm->head_dim);
  y = let(b, "qkv", transpose(b, y));
  chunk(b, y, 3, qkv);
  let_triple(b, names, qkv);
  transformers_rotate(b, ROTATE_PART_LATER, qkv, args[TABLE_COS], args[TABLE_SIN]);
  let_pair(b, names, qkv);
  Val o = classic_attend(b, m, p, qkv, transformers_mask(lm, 0, args), weights);
  return builder_leave_beside(b, o, weights);
}

static Val
compute_block(Builder *b, const CausalLm *lm, int block, Val x, const Val *args)
{
  const Classic *m = (const Classic *) lm;
  const ClassicBlock *p = &m->blocks[block];
  Val weights;
  builder_enter(b, 1, (const char *const[]){"hidden_states"}, &x);
  Val y = layer_norm(b, x, p->norm1);
  Val a = let(b, "attn_output", attention_forward(b, m, p, y, args, &weights));
  if (weights.slot != NO_VAL.slot)
    let(b, "_", weights);
  a = let(b, "attn_output", dropout(b, m->residual_dropout, a));
  if (!m->parallel)
    a = let(b, "attn_output", binary(b, OP_ADD, a, x));
  y = layer_norm(b, m->parallel ? x : a, p->norm2);
  y = let(b, "mlp_output", classic_mlp(b, m, p, y));
  y = binary(b, OP_ADD, y, a);
  if (m->parallel)
    y = binary(b, OP_ADD, y, x);
  return builder_leave(b, let(b, "hidden_states", y));
}

static void
read(Classic *m, NetworkSpec *spec)
{
  m->bias = network_spec_bool(spec, "attention_bias", TRUE);
  m->parallel = network_spec_bool(spec, "use_parallel_residual", TRUE);
  m->embedding_dropout = m->residual_dropout;
}

static const ClassicStyle style = {
    .model = "gpt_neox",
    .embedding = "embed_in",
    .layers = "layers",
    .block = "GPTNeoXLayer",
    .norm = "final_layer_norm",
    .ffn_field = "intermediate_size",
    .activation_field = "hidden_act",
    .activation = "gelu",
    .attention_dropout = "attention_dropout",
    .residual_dropout = "hidden_dropout",
    .rotary = TRUE,
    .rotary_fraction_field = "rotary_pct",
    .rotary_fraction = 0.25,
    .read = read,
    .define_block = define_block,
    .prepare = classic_prepare_rotary,
    .compute_block = compute_block,
};

static Network *
build(NetworkSpec *spec, const NetworkShape *shape, GError **error)
{
  return classic_build_style(&style, spec, shape, error);
}

const NetworkFamily family_gpt_neox = {
    .name = "gpt_neox",
    .summary = "GPT-NeoX and Pythia: parallel attention and feed-forward, partial RoPE",
    .model_types = (const char *const[]){"gpt_neox", NULL},
    .build = build,
};
