/* family_gpt2.c - GPT-2: learned positions, LayerNorm, one projection for q, k and v, GELU. */
#include <math.h>
#include <string.h>

#include "network/family.h"
#include "network/transformers_lm.h"

/* Parameters (by index) and modules of a block. */
typedef struct {
  Linear qkv, projection, fc, fc_projection;
  int norm1, norm2, attention, mlp, activation;
} BlockParts;

typedef struct {
  CausalLm lm; /* what every language model has */
  gint64 ffn, positions;
  double residual_dropout, embedding_dropout;
  gboolean fused_gelu; /* one kernel, not transformers' NewGELUActivation in Python */
  gboolean tanh_gelu;  /* which approximates */
  int position_weight, position_module;
  BlockParts *blocks;
} Gpt2;

/* ---- modules, in order of definition ---- */

/* nanoGPT as the training script has it: everything in the block itself. */
static BlockParts
define_nanogpt_block(Builder *b, const Gpt2 *m)
{
  BlockParts p = {0};
  gint64 hidden = m->lm.hidden;
  builder_block_begin(b, "Block");
  p.norm1 = define_norm(b, "ln_1", "LayerNorm", hidden, TRUE);
  p.norm2 = define_norm(b, "ln_2", "LayerNorm", hidden, TRUE);
  p.qkv = define_linear(b, "c_attn", 3 * hidden, hidden, TRUE);
  p.projection = define_linear(b, "c_proj", hidden, hidden, TRUE);
  p.fc = define_linear(b, "fc", m->ffn, hidden, TRUE);
  p.fc_projection = define_linear(b, "proj", hidden, m->ffn, TRUE);
  builder_block_end(b);
  return p;
}

static BlockParts
define_transformers_block(Builder *b, const Gpt2 *m)
{
  BlockParts p = {0};
  gint64 hidden = m->lm.hidden;
  builder_block_begin(b, "GPT2Block");
  p.norm1 = define_norm(b, "ln_1", "LayerNorm", hidden, TRUE);
  p.attention = builder_module(b, "attn", "GPT2Attention");
  p.qkv = define_conv1d(b, "c_attn", 3 * hidden, hidden);
  p.projection = define_conv1d(b, "c_proj", hidden, hidden);
  builder_module_end(b);
  p.norm2 = define_norm(b, "ln_2", "LayerNorm", hidden, TRUE);
  p.mlp = builder_module(b, "mlp", "GPT2MLP");
  p.fc = define_conv1d(b, "c_fc", m->ffn, hidden);
  p.fc_projection = define_conv1d(b, "c_proj", hidden, m->ffn);
  p.activation = builder_module(b, "act", "NewGELUActivation");
  builder_module_end(b);
  builder_module_end(b);
  builder_block_end(b);
  return p;
}

static void
define_modules(Builder *b, Gpt2 *m)
{
  gboolean hub = m->lm.impl.code == CODE_TRANSFORMERS;
  if (hub)
    builder_module(b, "transformer", "GPT2Model");
  causal_lm_define_embedding(b, &m->lm, hub ? "wte" : "tok_embeddings");
  m->position_module = builder_module(b, "wpe", "Embedding");
  m->position_weight = builder_parameter(b, "weight", 2, m->positions, m->lm.hidden);
  builder_module_end(b);
  builder_module(b, hub ? "h" : "layers", "ModuleList");
  m->blocks = g_new(BlockParts, m->lm.layers);
  for (int i = 0; i < m->lm.layers; i++)
    m->blocks[i] = (hub ? define_transformers_block : define_nanogpt_block)(b, m);
  builder_module_end(b);
  m->lm.norm_weight = define_norm(b, hub ? "ln_f" : "norm", "LayerNorm", m->lm.hidden, TRUE);
  m->lm.norm_module = parameter_module(b, m->lm.norm_weight);
  if (hub)
    builder_module_end(b);
  causal_lm_define_head(b, &m->lm, hub ? "lm_head" : "output");
}

/* ---- forward() as nanoGPT writes it ---- */

static Val
nanogpt_block(Builder *b, const CausalLm *lm, int block, Val x, const Val *tables)
{
  const BlockParts *p = &((const Gpt2 *) lm)->blocks[block];
  (void) tables;
  builder_enter(b, 1, (const char *const[]){"x"}, &x);
  Val qkv[3];
  chunk(b, linear(b, layer_norm(b, x, p->norm1), p->qkv), 3, qkv);
  static const char *const names[] = {"q", "k", "v"};
  for (int i = 0; i < 3; i++)
    qkv[i] = let(b, names[i], qkv[i]);
  Val heads[3]; /* a generator: each is made, then all are bound */
  for (int i = 0; i < 3; i++)
    heads[i] = transpose(b, view(b, qkv[i], 4, lm->batch, lm->length, lm->heads, lm->head_dim));
  for (int i = 0; i < 3; i++)
    qkv[i] = let(b, names[i], heads[i]);
  AttentionCall call = {lm->impl.attention, lm->heads, lm->heads, FALSE, NO_VAL, 0};
  Val o = attention(b, qkv[0], qkv[1], qkv[2], &call);
  o = let(b, "o", merge_heads(b, contiguous(b, transpose(b, o))));
  x = let(b, "x", binary(b, OP_ADD, x, linear(b, o, p->projection)));
  Val hidden = unary(b, OP_GELU, linear(b, layer_norm(b, x, p->norm2), p->fc));
  return builder_leave(b, binary(b, OP_ADD, x, linear(b, hidden, p->fc_projection)));
}

/* tok_embeddings(tokens) + wpe(arange(length)) */
static Val
nanogpt_embed(Builder *b, const CausalLm *lm, Val tokens)
{
  const Gpt2 *m = (const Gpt2 *) lm;
  Val x = embedding(b, lm->embedding_weight, tokens);
  static const Creation counted = {"arange", NULL, 0};
  Val positions =
      create_as(b, "positions", value_shape(DTYPE_INT64, 1, lm->length), &counted, NO_VAL);
  Val p = embedding(b, m->position_weight, positions);
  return binary(b, OP_ADD, x, p);
}

/* ---- forward() as transformers writes it ---- */

static Val
cube(Builder *b, Val x)
{
  return unary_with(b, OP_POW, x, "power", 3);
}

/* 0.5 * x * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 * x^3))); autocast computes powers in fp32. */
static Val
new_gelu(Builder *b, int module, Val x)
{
  x = call_module(b, module, x);
  Val half = unary_with(b, OP_MUL_SCALAR, x, "value", 0.5);
  Val base = builder_shape(b)->precision.autocast ? to(b, x, DTYPE_FP32) : x;
  Val cubic = binary(b, OP_ADD, x, unary_with(b, OP_MUL_SCALAR, cube(b, base), "value", 0.044715));
  Val t = unary(b, OP_TANH, unary_with(b, OP_MUL_SCALAR, cubic, "value", sqrt(2 / G_PI)));
  return builder_leave(b, binary(b, OP_MUL, half, unary_with(b, OP_ADD_SCALAR, t, "value", 1)));
}

static Val
activation(Builder *b, const Gpt2 *m, const BlockParts *p, Val x)
{
  if (!m->fused_gelu)
    return new_gelu(b, p->activation, x);
  x = call_module(b, p->activation, x);
  return builder_leave(b,
                       m->tanh_gelu ? unary_with(b, OP_GELU, x, "tanh", 1) : unary(b, OP_GELU, x));
}

static Val
transformers_attention(Builder *b, const Gpt2 *m, const BlockParts *p, Val x)
{
  const CausalLm *lm = &m->lm;
  x = call_module(b, p->attention, x);
  Val qkv[3];
  chunk(b, conv1d(b, x, p->qkv), 3, qkv);
  static const char *const names[] = {"query", "key", "value"};
  for (int i = 0; i < 3; i++)
    qkv[i] = let(b, names[i], qkv[i]);
  static const int order[] = {1, 2, 0}; /* keys and values first */
  for (int i = 0; i < 3; i++) {
    int j = order[i];
    qkv[j] = let(b, names[j], transpose(b, split_heads(b, qkv[j], lm->heads, lm->head_dim)));
  }
  Val weights, o = transformers_attend(b, lm, lm->heads, 0, qkv, NO_VAL, &weights);
  o = let(b, "output", o);
  o = let(b, "output", merge_heads(b, o));
  o = let(b, "output", conv1d(b, o, p->projection));
  o = let(b, "output", dropout(b, m->residual_dropout, o));
  return builder_leave(b, o);
}

static Val
transformers_mlp(Builder *b, const Gpt2 *m, const BlockParts *p, Val x)
{
  x = call_module(b, p->mlp, x);
  x = let(b, "hidden_states", conv1d(b, x, p->fc));
  x = let(b, "hidden_states", activation(b, m, p, x));
  x = let(b, "hidden_states", conv1d(b, x, p->fc_projection));
  x = let(b, "hidden_states", dropout(b, m->residual_dropout, x));
  return builder_leave(b, x);
}

static Val
transformers_block(Builder *b, const CausalLm *lm, int block, Val x, const Val *tables)
{
  const Gpt2 *m = (const Gpt2 *) lm;
  const BlockParts *p = &m->blocks[block];
  (void) tables;
  builder_enter(b, 1, (const char *const[]){"hidden_states"}, &x);
  Val residual = let(b, "residual", x);
  x = let(b, "hidden_states", layer_norm(b, x, p->norm1));
  Val a = let(b, "attn_output", transformers_attention(b, m, p, x));
  x = let(b, "hidden_states", binary(b, OP_ADD, a, residual));
  residual = let(b, "residual", x);
  x = let(b, "hidden_states", layer_norm(b, x, p->norm2));
  Val f = let(b, "feed_forward_hidden_states", transformers_mlp(b, m, p, x));
  x = let(b, "hidden_states", binary(b, OP_ADD, residual, f));
  return builder_leave(b, x);
}

/* inputs_embeds + position_embeds, then dropout; both live until the model returns. */
static Val
transformers_embed(Builder *b, const CausalLm *lm, Val inputs_embeds, Val positions)
{
  const Gpt2 *m = (const Gpt2 *) lm;
  Val p = let(b, "position_embeds", embedding(b, m->position_weight, positions));
  Val hidden = let(b, "hidden_states", binary(b, OP_ADD, inputs_embeds, p));
  return hidden;
}

static Val
embedding_drop(Builder *b, const CausalLm *lm, Val x)
{
  return dropout(b, ((const Gpt2 *) lm)->embedding_dropout, x);
}

/* ---- around the blocks ---- */

static Val
final_norm(Builder *b, const CausalLm *lm, Val x)
{
  return layer_norm(b, x, lm->norm_weight);
}

/* ---- config.json ---- */

/* Names of transformers.activations; nanoGPT has one of its own. */
static void
read_activation(Gpt2 *m, NetworkSpec *spec)
{
  const char *name = network_spec_string(spec, "activation_function", "gelu_new");
  m->tanh_gelu = strcmp(name, "gelu_pytorch_tanh") == 0;
  m->fused_gelu = strcmp(name, "gelu") == 0 || m->tanh_gelu;
  if (!m->fused_gelu && strcmp(name, "gelu_new") != 0)
    network_spec_fail(spec, "activation_function",
                      "'%s' is not supported: gelu_new, gelu, gelu_pytorch_tanh", name);
}

static void
check_sizes(const Gpt2 *m, NetworkSpec *spec)
{
  causal_lm_check_matrix(spec, "hidden_size|n_embd", 3 * m->lm.hidden, m->lm.hidden);
  causal_lm_check_matrix(spec, "n_inner|intermediate_size", m->ffn, m->lm.hidden);
  causal_lm_check_matrix(spec, "n_positions|max_position_embeddings", m->positions, m->lm.hidden);
  causal_lm_check_positions(spec, "n_positions|max_position_embeddings", m->positions,
                            m->lm.length);
}

static gboolean
read_config(Gpt2 *m, NetworkSpec *spec, const NetworkShape *shape, GError **error)
{
  causal_lm_read(&m->lm, spec, shape);
  m->ffn = network_spec_int(spec, "n_inner|intermediate_size", 4 * m->lm.hidden);
  m->positions = network_spec_int(spec, "n_positions|max_position_embeddings", 1024);
  m->lm.head_dim = MAX(m->lm.hidden / MAX(m->lm.heads, 1), 1);
  m->lm.tied = network_spec_bool(spec, "tie_word_embeddings", TRUE);
  m->residual_dropout = causal_lm_read_dropout(spec, "resid_pdrop", 0.1, shape->evaluation);
  m->embedding_dropout = causal_lm_read_dropout(spec, "embd_pdrop", 0.1, shape->evaluation);
  m->lm.attention_dropout = causal_lm_read_dropout(spec, "attn_pdrop", 0.1, shape->evaluation);
  m->lm.impl.rope = ROPE_NONE;
  if (m->lm.impl.code == CODE_TRANSFORMERS)
    transformers_check(spec);
  if (m->lm.impl.code == CODE_TRANSFORMERS && m->lm.impl.attention == ATTENTION_EAGER)
    json_reader_fail(spec->reader, "implementation",
                     "eager attention of gpt2 is not yet supported");
  network_spec_expect(spec, "add_cross_attention", FALSE, "true is not supported");
  read_activation(m, spec);
  check_sizes(m, spec);
  return causal_lm_check(&m->lm, m->lm.heads, spec, error);
}

static Network *
build(NetworkSpec *spec, const NetworkShape *shape, GError **error)
{
  Gpt2 m = {0};
  if (!read_config(&m, spec, shape, error))
    return NULL;
  Builder *b = builder_new(spec->name, shape);
  define_modules(b, &m);
  m.lm.norm = final_norm;
  if (m.lm.impl.code == CODE_TRANSFORMERS) {
    m.lm.block = transformers_block;
    m.lm.add_positions = transformers_embed;
    m.lm.embedding_drop = embedding_drop;
    transformers_write(b, &m.lm);
    /* the Trainer knows losses that shift by ForCausalLM in the class's name: GPT2LMHeadModel */
    builder_network(b)->shifts_labels = FALSE;
  } else {
    m.lm.embed = nanogpt_embed;
    m.lm.block = nanogpt_block;
    causal_lm_write(b, &m.lm);
  }
  builder_network(b)->embedding_parameters += m.positions * m.lm.hidden;
  g_free(m.blocks);
  return builder_finish(b, error);
}

const NetworkFamily family_gpt2 = {
    .name = "gpt2",
    .summary = "GPT-2: learned positions, LayerNorm, fused q, k, v projection, GELU",
    .model_types = (const char *const[]){"gpt2", NULL},
    .build = build,
};
