/* family_bloom.c - BLOOM: ALiBi in place of positions, a norm behind the embeddings, one projection
 * for q, k and v, eager attention, and a GELU of its own. */
#include "network/classic_alibi.h"
#include "network/classic_decoder.h"
#include "network/transformers_masks.h"

static void
define_first(Builder *b, Classic *m)
{
  m->embedding_norm = define_norm(b, "word_embeddings_layernorm", "LayerNorm", m->lm.hidden, TRUE);
}

static void
define_block(Builder *b, Classic *m, ClassicBlock *p, int block)
{
  gint64 hidden = m->lm.hidden;
  (void) block;
  p->norm1 = define_norm(b, "input_layernorm", "LayerNorm", hidden, TRUE);
  p->attention = builder_module(b, "self_attention", "BloomAttention");
  p->qkv = define_linear(b, "query_key_value", 3 * hidden, hidden, TRUE);
  p->out = define_linear(b, "dense", hidden, hidden, TRUE);
  builder_module_end(b);
  p->norm2 = define_norm(b, "post_attention_layernorm", "LayerNorm", hidden, TRUE);
  p->mlp = builder_module(b, "mlp", "BloomMLP");
  p->up = define_linear(b, "dense_h_to_4h", m->ffn, hidden, TRUE);
  p->activation = builder_module(b, "gelu_impl", "BloomGelu");
  builder_module_end(b);
  p->down = define_linear(b, "dense_4h_to_h", hidden, m->ffn, TRUE);
  builder_module_end(b);
}

static Val
prepare(Builder *b, const Classic *m, Val embeds, ClassicArguments *args)
{
  Val x = let(b, "hidden_states", layer_norm(b, embeds, m->embedding_norm));
  classic_argument(args, alibi_of_length(b, &m->lm));
  classic_argument(args, transformers_causal_mask(b, &m->lm, FALSE, FALSE));
  return x;
}

/* Queries, keys and values as [batch * heads, length, head_dim], keys transposed. */
static void
split_qkv(Builder *b, const CausalLm *lm, Val x, Val qkv[3])
{
  static const char *const names[] = {"query_layer", "key_layer", "value_layer"};
  x = let(b, "fused_qkv", x);
  Val fused = view(b, x, 5, lm->batch, lm->length, lm->heads, (gint64) 3, lm->head_dim);
  for (int i = 0; i < 3; i++)
    qkv[i] = let(b, names[i], transpose(b, select_at(b, (Val){fused.slot, FALSE}, 3, i)));
  builder_discard(b, fused);
  for (int i = 0; i < 3; i++) {
    qkv[i] = view(b, qkv[i], 3, lm->batch * lm->heads, lm->length, lm->head_dim);
    qkv[i] = let(b, names[i], i == 1 ? transpose_last(b, qkv[i]) : qkv[i]);
  }
}

static Val
attention_forward(Builder *b, const Classic *m, const ClassicBlock *p, Val x, Val residual,
                  const Val *args, Val *weights)
{
  const CausalLm *lm = &m->lm;
  Val qkv[3];
  x = call_module(b, p->attention, x);
  split_qkv(b, lm, linear(b, x, p->qkv), qkv);
  Val scores = builder_op(b, OP_BADDBMM, &(OpAttributes){.what = "attention scores"}, 3,
                          (Val[]){args[0], qkv[0], qkv[1]});
  scores = let(b, "attention_scores", scores);
  Val w = view(b, scores, 4, lm->batch, lm->heads, lm->length, lm->length);
  w = let(b, "attn_weights", binary(b, OP_ADD, w, args[1]));
  w = to(b, unary(b, OP_SOFTMAX, to(b, w, DTYPE_FP32)), lm->dtype);
  w = let(b, "attention_probs", w);
  *weights = let(b, "attention_probs", dropout(b, lm->attention_dropout, w));
  w = view(b, *weights, 3, lm->batch * lm->heads, lm->length, lm->length);
  w = let(b, "attention_probs_reshaped", w);
  Val o = let(b, "context_layer", binary(b, OP_BMM, w, qkv[2]));
  o = transpose(b, view(b, o, 4, lm->batch, lm->heads, lm->length, lm->head_dim));
  o = let(b, "context_layer", merge_heads(b, o));
  o = let(b, "output_tensor", linear(b, o, p->out));
  o = let(b, "output_tensor", classic_dropout_add(b, m->residual_dropout, o, residual));
  return builder_leave_beside(b, o, weights);
}

static Val
mlp_forward(Builder *b, const Classic *m, const ClassicBlock *p, Val x, Val residual)
{
  x = call_module(b, p->mlp, x);
  Val up = call_module(b, p->activation, linear(b, x, p->up));
  x = let(b, "hidden_states", builder_leave(b, unary(b, OP_BLOOM_GELU, up)));
  Val y = let(b, "intermediate_output", linear(b, x, p->down));
  return builder_leave(b,
                       let(b, "output", classic_dropout_add(b, m->residual_dropout, y, residual)));
}

static Val
compute_block(Builder *b, const CausalLm *lm, int block, Val x, const Val *args)
{
  const Classic *m = (const Classic *) lm;
  const ClassicBlock *p = &m->blocks[block];
  Val weights;
  builder_enter(b, 1, (const char *const[]){"hidden_states"}, &x);
  Val y = let(b, "layernorm_output", layer_norm(b, x, p->norm1));
  Val residual = let(b, "residual", m->norm_first ? x : y);
  Val a = attention_forward(b, m, p, y, residual, args, &weights);
  a = let(b, "attention_output", a);
  weights = let(b, "attn_weights", weights);
  y = let(b, "layernorm_output", layer_norm(b, a, p->norm2));
  residual = let(b, "residual", m->norm_first ? a : y);
  x = let(b, "output", mlp_forward(b, m, p, y, residual));
  return classic_block_leave(b, m, x, weights);
}

static void
read(Classic *m, NetworkSpec *spec)
{
  m->norm_first = !network_spec_bool(spec, "apply_residual_connection_post_layernorm", FALSE);
  if (network_spec_int(spec, "pretraining_tp", 1) > 1)
    network_spec_expect(spec, "slow_but_exact", FALSE, "true is not supported");
}

static const ClassicStyle style = {
    .model = "transformer",
    .keeps_keywords = TRUE,
    .embedding = "word_embeddings",
    .layers = "h",
    .block = "BloomBlock",
    .norm = "ln_f",
    .attention_dropout = "attention_dropout",
    .residual_dropout = "hidden_dropout",
    .tied = TRUE,
    .returns_weights = TRUE,
    .no_sdpa = TRUE,
    .read = read,
    .define_first = define_first,
    .define_block = define_block,
    .prepare = prepare,
    .compute_block = compute_block,
};

static Network *
build(NetworkSpec *spec, const NetworkShape *shape, GError **error)
{
  return classic_build_style(&style, spec, shape, error);
}

const NetworkFamily family_bloom = {
    .name = "bloom",
    .summary = "BLOOM: ALiBi, a norm behind the embeddings, eager attention",
    .model_types = (const char *const[]){"bloom", NULL},
    .build = build,
};
