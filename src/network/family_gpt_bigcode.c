/* family_gpt_bigcode.c - GPTBigCode, the code of StarCoder and SantaCoder: GPT-2 with one head of
 * keys and values. */
#include "network/classic_decoder.h"

static void
define_block(Builder *b, Classic *m, ClassicBlock *p, int block)
{
  static const char *const mlp[] = {"mlp", "c_fc", "c_proj", "act"};
  gint64 hidden = m->lm.hidden;
  (void) block;
  p->norm1 = define_norm(b, "ln_1", "LayerNorm", hidden, TRUE);
  p->attention = builder_module(b, "attn", "GPTBigCodeAttention");
  p->qkv = define_linear(b, "c_attn", hidden + 2 * m->kv_heads * m->lm.head_dim, hidden, TRUE);
  p->out = define_linear(b, "c_proj", hidden, hidden, TRUE);
  builder_module_end(b);
  p->norm2 = define_norm(b, "ln_2", "LayerNorm", hidden, TRUE);
  classic_define_mlp(b, m, p, mlp, TRUE);
}

/* The causal mask of the model, which its own attention of other releases used. */
static void
define_last(Builder *b, Classic *m)
{
  classic_define_last_norm(b, m, "ln_f");
  builder_buffer(b, "transformer.bias", DTYPE_BOOL, m->positions * m->positions);
}

/* c_attn(x) in heads: one of keys and values after those of queries, or a triple for each. */
static void
split_qkv(Builder *b, const Classic *m, Val x, Val qkv[3])
{
  const CausalLm *lm = &m->lm;
  if (m->kv_heads == lm->heads) {
    x = view(b, x, 4, lm->batch, lm->length, lm->heads, 3 * lm->head_dim);
    chunk(b, transpose(b, x), 3, qkv);
    return;
  }
  gint64 width = lm->hidden + 2 * lm->head_dim;
  x = view(b, x, 4, lm->batch, (gint64) 1, lm->length, width);
  split_parts(b, x, 3, 3, (const gint64[]){lm->hidden, lm->head_dim, lm->head_dim}, qkv);
}

static Val
attention_forward(Builder *b, const Classic *m, int block, Val x, const Val *args, Val *weights)
{
  static const char *const names[] = {"query", "key", "value"};
  const ClassicBlock *p = &m->blocks[block];
  Val qkv[3];
  x = call_module(b, p->attention, x);
  split_qkv(b, m, linear(b, x, p->qkv), qkv);
  let_triple(b, names, qkv);
  if (m->kv_heads == 1)
    qkv[0] = let(b, "query", classic_heads(b, m, qkv[0]));
  gboolean eager = m->lm.impl.attention == ATTENTION_EAGER;
  Val o = classic_attend(b, m, p, qkv, eager ? args[0] : NO_VAL, weights);
  o = let(b, "attn_output", dropout(b, m->residual_dropout, o));
  return builder_leave_beside(b, o, weights);
}

static void
read(Classic *m, NetworkSpec *spec)
{
  m->kv_heads = network_spec_bool(spec, "multi_query", TRUE) ? 1 : m->lm.heads;
  network_spec_expect(spec, "add_cross_attention", FALSE, "true is not supported");
}

static const ClassicStyle style = {
    .model = "transformer",
    .embedding = "wte",
    .layers = "h",
    .block = "GPTBigCodeBlock",
    .ffn_field = "n_inner",
    .positions_field = "n_positions|max_position_embeddings",
    .positions = 1024,
    .activation_field = "activation_function",
    .activation = "gelu_pytorch_tanh",
    .attention_dropout = "attn_pdrop",
    .residual_dropout = "resid_pdrop",
    .embedding_dropout = "embd_pdrop",
    .attention_dropout_default = 0.1,
    .dropout_default = 0.1,
    .tied = TRUE,
    .learned_positions = TRUE,
    .position_embedding = "wpe",
    .read = read,
    .define_block = define_block,
    .define_last = define_last,
    .prepare = classic_prepare_learned,
    .compute_block = classic_block,
    .attention = attention_forward,
};

static Network *
build(NetworkSpec *spec, const NetworkShape *shape, GError **error)
{
  return classic_build_style(&style, spec, shape, error);
}

const NetworkFamily family_gpt_bigcode = {
    .name = "gpt_bigcode",
    .summary = "StarCoder: GPT-2 with multi-query attention",
    .model_types = (const char *const[]){"gpt_bigcode", NULL},
    .build = build,
};
