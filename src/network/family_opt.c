/* family_opt.c - OPT: learned positions from 2 on, ReLU; the 350m's projections around the blocks
 * and its norms behind attention and feed-forward. */
#include "network/classic_decoder.h"
#include "network/transformers_masks.h"

static void
define_first(Builder *b, Classic *m)
{
  gint64 width = m->lm.embedding_width;
  if (width != m->lm.hidden) {
    m->project_out = define_linear(b, "project_out", width, m->lm.hidden, FALSE);
    m->lm.norm_module = network_parameter(builder_network(b), m->project_out.weight)
                            ->module; /* until there is one */
    m->project_in = define_linear(b, "project_in", m->lm.hidden, width, FALSE);
  }
  if (m->final_norm)
    classic_define_last_norm(b, m, "final_layer_norm");
}

static void
define_last(Builder *b, Classic *m)
{
  (void) b, (void) m; /* all of it came before the blocks */
}

static void
define_block(Builder *b, Classic *m, ClassicBlock *p, int block)
{
  gint64 hidden = m->lm.hidden;
  (void) block;
  p->attention = builder_module(b, "self_attn", "OPTAttention");
  p->k = define_linear(b, "k_proj", hidden, hidden, m->bias);
  p->v = define_linear(b, "v_proj", hidden, hidden, m->bias);
  p->q = define_linear(b, "q_proj", hidden, hidden, m->bias);
  p->out = define_linear(b, "out_proj", hidden, hidden, m->bias);
  builder_module_end(b);
  p->activation = activation_define(b, m->activation, "activation_fn");
  p->norm1 = define_norm(b, "self_attn_layer_norm", "LayerNorm", hidden, TRUE);
  p->up = define_linear(b, "fc1", m->ffn, hidden, m->bias);
  p->down = define_linear(b, "fc2", hidden, m->ffn, m->bias);
  p->norm2 = define_norm(b, "final_layer_norm", "LayerNorm", hidden, TRUE);
}

static Val
attention_forward(Builder *b, const Classic *m, int block, Val x, const Val *args, Val *weights)
{
  static const char *const names[] = {"query_states", "key_states", "value_states"};
  const ClassicBlock *p = &m->blocks[block];
  gboolean eager = m->lm.impl.attention == ATTENTION_EAGER;
  Val qkv[3];
  x = call_module_by_keyword(b, p->attention, x);
  qkv[0] = let(b, names[0], unary(b, OP_MUL_SCALAR, linear(b, x, p->q)));
  qkv[0] = let(b, names[0], classic_heads(b, m, qkv[0]));
  qkv[1] = let(b, names[1], linear(b, x, p->k));
  qkv[2] = let(b, names[2], linear(b, x, p->v));
  for (int i = 1; i < 3; i++)
    qkv[i] = let(b, names[i], classic_heads(b, m, qkv[i]));
  Val o = classic_attend(b, m, p, qkv, eager ? args[1] : NO_VAL, weights);
  return builder_leave_beside(b, o, weights);
}

static Val
compute_block(Builder *b, const CausalLm *lm, int block, Val x, const Val *args)
{
  const Classic *m = (const Classic *) lm;
  const ClassicBlock *p = &m->blocks[block];
  Val weights;
  builder_enter(b, 1, (const char *const[]){"hidden_states"}, &x);
  Val residual = let(b, "residual", x);
  if (m->norm_first)
    x = let(b, "hidden_states", layer_norm(b, x, p->norm1));
  x = let(b, "hidden_states", attention_forward(b, m, block, x, args, &weights));
  if (weights.slot != NO_VAL.slot)
    let(b, "_", weights);
  x = let(b, "hidden_states", dropout(b, m->residual_dropout, x));
  x = let(b, "hidden_states", binary(b, OP_ADD, residual, x));
  if (!m->norm_first)
    x = let(b, "hidden_states", layer_norm(b, x, p->norm1));
  x = let(b, "hidden_states", view(b, x, 2, lm->batch * lm->length, lm->hidden));
  residual = let(b, "residual", x);
  if (m->norm_first)
    x = let(b, "hidden_states", layer_norm(b, x, p->norm2));
  x = let(b, "hidden_states", linear(b, x, p->up));
  x = let(b, "hidden_states", activation_call(b, m->activation, p->activation, x));
  x = let(b, "hidden_states", linear(b, x, p->down));
  x = let(b, "hidden_states", dropout(b, m->residual_dropout, x));
  x = binary(b, OP_ADD, residual, x);
  x = let(b, "hidden_states", view(b, x, 3, lm->batch, lm->length, lm->hidden));
  if (!m->norm_first)
    x = let(b, "hidden_states", layer_norm(b, x, p->norm2));
  return builder_leave(b, x);
}

/* cumsum(ones) * ones - 1 as integers, per sequence. */
static Val
position_ids(Builder *b, const CausalLm *lm)
{
  ValueInfo counts = value_shape(DTYPE_FP32, 2, lm->batch, lm->length);
  Val ones = let(b, "position_attention_mask", create(b, "ones", counts));
  Val sums = let(b, "position_ids", unary(b, OP_CUMSUM, ones));
  (void) sums;
  Val product = create(b, "positions", counts);
  Val less = create(b, "positions", counts);
  builder_discard(b, product);
  Val ids = create(b, "position_ids", value_like_dtype(counts, DTYPE_INT64));
  builder_discard(b, less);
  return let(b, "position_ids", ids);
}

static Val
prepare(Builder *b, const Classic *m, Val embeds, ClassicArguments *args)
{
  const CausalLm *lm = &m->lm;
  Val ids = position_ids(b, lm);
  Val mask = transformers_causal_mask(b, lm, FALSE, FALSE);
  Val later =
      create(b, "positions behind the offset", value_shape(DTYPE_INT64, 2, lm->batch, lm->length));
  Val p = let(b, "pos_embeds", embedding(b, m->position_weight, later));
  if (m->project_in.weight > 0)
    embeds = let(b, "inputs_embeds", linear(b, embeds, m->project_in));
  classic_argument(args, ids);
  classic_argument(args, mask);
  return let(b, "hidden_states", binary(b, OP_ADD, embeds, p));
}

static Val
finish(Builder *b, const Classic *m, Val x)
{
  return m->project_out.weight > 0 ? let(b, "hidden_states", linear(b, x, m->project_out)) : x;
}

static void
read(Classic *m, NetworkSpec *spec)
{
  m->bias = network_spec_bool(spec, "enable_bias", TRUE);
  m->norm_first = network_spec_bool(spec, "do_layer_norm_before", TRUE);
  m->final_norm = m->norm_first && !network_spec_bool(spec, "_remove_final_layer_norm", FALSE);
  m->lm.embedding_width = network_spec_int(spec, "word_embed_proj_dim", m->lm.hidden);
  causal_lm_check_matrix(spec, "word_embed_proj_dim", m->lm.embedding_width, m->lm.hidden);
  causal_lm_check_matrix(spec, "word_embed_proj_dim", m->lm.embedding_width, m->lm.vocabulary);
  if (!network_spec_bool(spec, "layer_norm_elementwise_affine", TRUE))
    network_spec_fail(spec, "layer_norm_elementwise_affine", "false is not supported");
  if (network_spec_double(spec, "layerdrop", 0) != 0)
    network_spec_fail(spec, "layerdrop", "layers that are left out are not supported: 0");
}

static const ClassicStyle style = {
    .model = "model",
    .inner_model = "decoder",
    .embedding = "embed_tokens",
    .layers = "layers",
    .block = "OPTDecoderLayer",
    .ffn_field = "ffn_dim",
    .positions_field = "max_position_embeddings",
    .positions = 2048,
    .activation_field = "activation_function",
    .activation = "relu",
    .attention_dropout = "attention_dropout",
    .residual_dropout = "dropout",
    .dropout_default = 0.1,
    .tied = TRUE,
    .learned_positions = TRUE,
    .position_embedding = "embed_positions",
    .position_offset = 2,
    .read = read,
    .define_first = define_first,
    .define_last = define_last,
    .define_block = define_block,
    .prepare = prepare,
    .compute_block = compute_block,
    .finish = finish,
};

static Network *
build(NetworkSpec *spec, const NetworkShape *shape, GError **error)
{
  return classic_build_style(&style, spec, shape, error);
}

const NetworkFamily family_opt = {
    .name = "opt",
    .summary = "OPT: learned positions, LayerNorm, ReLU",
    .model_types = (const char *const[]){"opt", NULL},
    .build = build,
};
