/* transformers_mpt.c - MPT as transformers writes it (modeling_mpt.py): ALiBi, LayerNorm without
 * bias, one projection for q, k and v, eager attention. */
#include "network/transformers_mpt.h"

#include "network/classic_alibi.h"
#include "network/classic_decoder.h"
#include "network/transformers_masks.h"

typedef struct {
  Classic classic; /* comes first */
  gboolean clips_qkv;
} Mpt;

static void
define_block(Builder *b, Classic *m, ClassicBlock *p, int block)
{
  static const char *const mlp[] = {"ffn", "up_proj", "down_proj", "act"};
  gint64 hidden = m->lm.hidden;
  (void) block;
  p->norm1 = define_norm(b, "norm_1", "LayerNorm", hidden, FALSE);
  p->attention = builder_module(b, "attn", "MptAttention");
  p->qkv = define_linear(b, "Wqkv", 3 * hidden, hidden, FALSE);
  p->out = define_linear(b, "out_proj", hidden, hidden, FALSE);
  builder_module_end(b);
  p->norm2 = define_norm(b, "norm_2", "LayerNorm", hidden, FALSE);
  classic_define_mlp(b, m, p, mlp, FALSE);
}

static void
define_last(Builder *b, Classic *m)
{
  m->lm.norm_weight = define_norm(b, "norm_f", "LayerNorm", m->lm.hidden, FALSE);
  m->lm.norm_module = parameter_module(b, m->lm.norm_weight);
}

static Val
finish(Builder *b, const Classic *m, Val x)
{
  return let(b, "hidden_states", layer_norm_unbiased(b, x, m->lm.norm_weight));
}

/* ---- what blocks are called with ---- */

static Val
prepare(Builder *b, const Classic *m, Val embeds, ClassicArguments *args)
{
  const CausalLm *lm = &m->lm;
  Val x = let(b, "hidden_states", embeds);
  classic_argument(args, let(b, "alibi", alibi_of_positions(b, m->lm.heads, m->positions)));
  transformers_causal_mask(b, lm, FALSE, FALSE);
  ValueInfo square = value_shape(DTYPE_BOOL, 4, lm->batch, (gint64) 1, lm->length, lm->length);
  classic_argument(args, let(b, "causal_mask", create(b, "attention mask", square)));
  return x;
}

/* ---- blocks ---- */

/* The part of ALiBi's table that the sequence needs, in the dtype that hooks gave it. */
static Val
position_bias(Builder *b, const CausalLm *lm, Val table)
{
  ValueInfo info = builder_info(b, table);
  if (builder_shape(b)->casts_inputs && info.dtype != lm->dtype) {
    info.dtype = (guint8) lm->dtype;
    table = let(b, "position_bias", shaped(b, OP_TO_IF_NEEDED, builder_share(b, table), info));
  }
  gint64 longest = info.shape[2];
  return let(b, "position_bias", slice_last(b, table, longest - lm->length, lm->length));
}

static void
split_qkv(Builder *b, const Mpt *f, Val x, Val qkv[3])
{
  static const char *const names[] = {"query_states", "key_states", "value_states"};
  x = let(b, "mixed_qkv", x);
  if (f->clips_qkv)
    x = let(b, "mixed_qkv", unary(b, OP_CLAMP, x));
  chunk(b, x, 3, qkv);
  let_triple(b, names, qkv);
  for (int i = 0; i < 3; i++)
    qkv[i] = let(b, names[i], classic_heads(b, &f->classic, qkv[i]));
}

static Val
attention_forward(Builder *b, const Mpt *f, const ClassicBlock *p, Val x, const Val *args,
                  Val *weights)
{
  const CausalLm *lm = &f->classic.lm;
  Val qkv[3];
  x = call_module(b, p->attention, x);
  split_qkv(b, f, linear(b, x, p->qkv), qkv);
  Val columns = transpose_last(b, qkv[1]);
  Val w = batched_matmul(b, qkv[0], (Val){columns.slot, FALSE}, "attention scores");
  builder_discard(b, columns);
  w = let(b, "attention_scores", unary(b, OP_MUL_SCALAR, w));
  w = let(b, "attention_scores", binary(b, OP_ADD, w, position_bias(b, lm, args[0])));
  w = let(b, "attention_scores", binary(b, OP_MASKED_FILL, w, args[1]));
  w = to(b, unary(b, OP_SOFTMAX, to(b, w, DTYPE_FP32)), lm->dtype);
  w = let(b, "attn_weights", w);
  *weights = let(b, "attn_weights", dropout(b, lm->attention_dropout, w));
  Val o = let(b, "context_states", batched_matmul(b, *weights, qkv[2], NULL));
  o = let(b, "context_states", merge_heads(b, contiguous(b, transpose(b, o))));
  o = let(b, "attn_output", linear(b, o, p->out));
  return builder_leave_beside(b, o, weights);
}

static Val
mlp_forward(Builder *b, const Classic *m, const ClassicBlock *p, Val x, Val residual)
{
  x = call_module(b, p->mlp, x);
  x = let(b, "hidden_states",
          activation_call(b, m->activation, p->activation, linear(b, x, p->up)));
  Val y = let(b, "intermediate_output", linear(b, x, p->down));
  y = let(b, "output", dropout(b, m->lm.attention_dropout, y));
  return builder_leave(b, let(b, "output", binary(b, OP_ADD, y, residual)));
}

static Val
compute_block(Builder *b, const CausalLm *lm, int block, Val x, const Val *args)
{
  const Classic *m = (const Classic *) lm;
  const ClassicBlock *p = &m->blocks[block];
  Val weights;
  builder_enter(b, 1, (const char *const[]){"hidden_states"}, &x);
  Val y = let(b, "layernorm_output", layer_norm_unbiased(b, x, p->norm1));
  Val residual = let(b, "residual", x);
  Val a = let(b, "attn_outputs", attention_forward(b, (const Mpt *) m, p, y, args, &weights));
  weights = let(b, "attn_weights", weights);
  Val dropped = dropout(b, m->lm.attention_dropout, a);
  x = let(b, "hidden_states", binary(b, OP_ADD, dropped, residual));
  y = let(b, "layernorm_output", layer_norm_unbiased(b, x, p->norm2));
  residual = let(b, "residual", x);
  y = let(b, "output", mlp_forward(b, m, p, y, residual));
  return classic_block_leave(b, m, y, weights);
}

/* ---- config.json ---- */

/* What this code does not look at, or does in one way only: expansion_ratio, no_bias, norm_type,
 * learned_pos_emb and the dropouts outside of attn_config are without effect in it. */
static void
read(Classic *m, NetworkSpec *spec)
{
  static const char *const refused[] = {"prefix_lm", "qk_ln"};
  Mpt *f = (Mpt *) m;
  m->final_norm = FALSE; /* finish() has it */
  m->activation = activation_find("gelu");
  if (!json_reader_has(spec->reader, "attn_config"))
    return;
  g_autoptr(JsonReader) at = json_reader_section(spec->reader, "attn_config");
  json_reader_allow_unknown(at);
  m->lm.attention_dropout = json_reader_double(at, "attn_pdrop", 0, 0, 1);
  if (m->evaluation)
    m->lm.attention_dropout = 0;
  f->clips_qkv = json_reader_double(at, "clip_qkv", 0, 0, 1e30) != 0;
  for (guint i = 0; i < G_N_ELEMENTS(refused); i++)
    if (json_reader_bool(at, refused[i], FALSE))
      json_reader_fail(at, refused[i], "is not supported");
  json_reader_finish(at, NULL);
}

static const ClassicStyle style = {
    .model = "transformer",
    .embedding = "wte",
    .layers = "blocks",
    .block = "MptBlock",
    .positions_field = "max_seq_len",
    .positions = 2048,
    .tied = TRUE,
    .returns_weights = TRUE,
    .no_sdpa = TRUE,
    .read = read,
    .define_block = define_block,
    .define_last = define_last,
    .prepare = prepare,
    .compute_block = compute_block,
    .finish = finish,
};

Network *
transformers_mpt_build(NetworkSpec *spec, const NetworkShape *shape, GError **error)
{
  Mpt f = {.classic = {.style = &style}};
  return classic_build(&f.classic, spec, shape, error);
}
