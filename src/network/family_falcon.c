/* family_falcon.c - Falcon: one head of keys and values, or a few; attention and feed-forward side
 * by side behind one norm or two; rotary embeddings or ALiBi. */
#include "network/classic_alibi.h"
#include "network/classic_decoder.h"
#include "network/strides.h"
#include "network/transformers_masks.h"
#include "network/transformers_rope.h"

typedef struct {
  Classic classic; /* comes first */
  gboolean alibi, grouped;
  gboolean multi_query; /* one head of keys and values: grouped has some */
  int norms;            /* before attention and feed-forward side by side */
  gint64 groups;        /* heads of keys and values of a grouped one */
} Falcon;

static gint64
qkv_width(const Falcon *f)
{
  const CausalLm *lm = &f->classic.lm;
  return f->grouped       ? (2 * f->groups + lm->heads) * lm->head_dim
         : f->multi_query ? lm->hidden + 2 * lm->head_dim
                          : 3 * lm->hidden;
}

static void
define_block(Builder *b, Classic *m, ClassicBlock *p, int block)
{
  static const char *const mlp[] = {"mlp", "dense_h_to_4h", "dense_4h_to_h", "act"};
  const Falcon *f = (const Falcon *) m;
  gint64 hidden = m->lm.hidden;
  (void) block;
  p->attention = builder_module(b, "self_attention", "FalconAttention");
  p->qkv = define_linear(b, "query_key_value", qkv_width(f), hidden, m->bias);
  p->out = define_linear(b, "dense", hidden, hidden, m->bias);
  builder_module_end(b);
  classic_define_mlp(b, m, p, mlp, m->bias);
  if (!m->parallel)
    p->norm2 = define_norm(b, "post_attention_layernorm", "LayerNorm", hidden, TRUE);
  p->norm1 =
      define_norm(b, f->norms == 2 ? "ln_attn" : "input_layernorm", "LayerNorm", hidden, TRUE);
  if (f->norms == 2)
    p->norm2 = define_norm(b, "ln_mlp", "LayerNorm", hidden, TRUE);
}

/* ---- what blocks are called with ---- */

static Val
prepare(Builder *b, const Classic *m, Val embeds, ClassicArguments *args)
{
  const Falcon *f = (const Falcon *) m;
  Val table = f->alibi ? let(b, "alibi", alibi_of_mask(b, &m->lm)) : NO_VAL, tables[4];
  Val positions = transformers_position_ids(b, &m->lm);
  Val mask = transformers_causal_mask(b, &m->lm, TRUE, TRUE);
  if (f->alibi)
    mask = alibi_in_mask(b, &m->lm);
  transformers_rotary_tables(b, &m->lm, tables);
  classic_argument(args, positions);
  classic_argument(args, tables[0]);
  classic_argument(args, tables[1]);
  classic_argument(args, mask);
  classic_argument(args, table);
  return embeds;
}

/* ---- blocks ---- */

/* x[..., [i], :] of the last dimension but one. */
static Val
index_one(Builder *b, Val x)
{
  OpAttributes at = {.result = builder_info(b, x)};
  at.result.shape[at.result.dims - 2] = 1;
  value_set_contiguous(&at.result);
  Val index = create(b, "index", value_shape(DTYPE_INT64, 1, (gint64) 1));
  return builder_op(b, OP_INDEX_ONE, &at, 2, (Val[]){x, index});
}

/* x[..., :-2, :], x[..., [-2], :], x[..., [-1], :] */
static void
split_last_two(Builder *b, Val x, Val qkv[3])
{
  OpAttributes at = {.result = builder_info(b, x)};
  at.result.shape[at.result.dims - 2] -= 2; /* strides stay */
  qkv[0] = builder_op(b, OP_SLICE, &at, 1, &x);
  for (int i = 1; i < 3; i++)
    qkv[i] = index_one(b, x);
}

/* _split_heads(): [batch, length, heads, head_dim] each. */
static void
split_heads_of(Builder *b, const Falcon *f, Val x, Val qkv[3])
{
  const CausalLm *lm = &f->classic.lm;
  gint64 n = lm->batch, s = lm->length, d = lm->head_dim;
  static const char *const names[] = {"query", "key", "value"};
  builder_call(b, 0, NULL);
  if (!f->grouped) {
    x = f->multi_query ? view(b, x, 4, n, s, lm->heads + 2, d)
                       : view(b, x, 5, n, s, lm->heads, (gint64) 3, d);
    x = let(b, "fused_qkv", x);
    if (f->multi_query)
      split_last_two(b, x, qkv);
    for (int i = 0; i < 3 && !f->multi_query; i++)
      qkv[i] = select_at(b, x, 3, i);
    builder_leave_with(b, 3, qkv);
    return;
  }
  x = let(b, "qkv", view(b, x, 5, n, s, f->groups, lm->heads / f->groups + 2, d));
  split_last_two(b, x, qkv);
  for (int i = 0; i < 3; i++)
    qkv[i] = let(b, names[i], qkv[i]);
  for (int i = 1; i < 3; i++)
    qkv[i] = let(b, names[i], expand(b, qkv[i], builder_info(b, qkv[0])));
  for (int i = 0; i < 3; i++)
    qkv[i] = view(b, qkv[i], 4, n, s, lm->heads, d);
  builder_leave_with(b, 3, qkv);
}

static Val
attention_forward(Builder *b, const Falcon *f, const ClassicBlock *p, Val x, const Val *args)
{
  static const char *const names[] = {"query_layer", "key_layer", "value_layer"};
  const CausalLm *lm = &f->classic.lm;
  Val qkv[3];
  x = call_module(b, p->attention, x);
  x = let(b, "fused_qkv", linear_apart(b, x, p->qkv));
  split_heads_of(b, f, x, qkv);
  let_triple(b, names, qkv);
  for (int i = 0; i < 3; i++)
    qkv[i] = let(b, names[i], transpose(b, qkv[i]));
  if (!f->alibi) {
    transformers_rotate(b, ROTATE_HALF, qkv, args[TABLE_COS], args[TABLE_SIN]);
    let_pair(b, names, qkv);
  }
  AttentionCall call = {lm->impl.attention,
                        lm->heads,
                        builder_info(b, qkv[1]).shape[1],
                        f->alibi ? lm->attention_dropout : 0,
                        args[TABLE_MASK],
                        0};
  Val o = let(b, "attn_output", attention(b, qkv[0], qkv[1], qkv[2], &call));
  o = let(b, "attn_output", transpose(b, o));
  o = let(b, "attn_output", merge_heads(b, o));
  return builder_leave(b, let(b, "attn_output", linear_apart(b, o, p->out)));
}

static Val
mlp_forward(Builder *b, const Classic *m, const ClassicBlock *p, Val x)
{
  x = call_module(b, p->mlp, x);
  x = let(b, "x", activation_call(b, m->activation, p->activation, linear_apart(b, x, p->up)));
  return builder_leave(b, let(b, "x", linear_apart(b, x, p->down)));
}

static Val
compute_block(Builder *b, const CausalLm *lm, int block, Val x, const Val *args)
{
  const Classic *m = (const Classic *) lm;
  const Falcon *f = (const Falcon *) lm;
  const ClassicBlock *p = &m->blocks[block];
  builder_enter(b, 1, (const char *const[]){"hidden_states"}, &x);
  Val residual = let(b, "residual", x);
  Val y = let(b, "attention_layernorm_out", layer_norm(b, x, p->norm1)), z = y;
  if (f->norms == 2)
    z = let(b, "mlp_layernorm_out", layer_norm(b, x, p->norm2));
  Val a = let(b, "attention_output", attention_forward(b, f, p, y, args));
  if (!m->parallel) {
    residual = let(b, "residual", classic_dropout_add(b, lm->attention_dropout, a, residual));
    z = let(b, "mlp_layernorm_out", layer_norm(b, residual, p->norm2));
  }
  z = let(b, "mlp_output", mlp_forward(b, m, p, z));
  if (m->parallel)
    z = let(b, "mlp_output", binary(b, OP_ADD_, z, a));
  z = let(b, "output", classic_dropout_add(b, m->residual_dropout, z, residual));
  return builder_leave(b, z);
}

/* ---- config.json ---- */

static void
read_norms(Falcon *f, NetworkSpec *spec)
{
  Classic *m = &f->classic;
  f->norms = (int) MIN(network_spec_int(spec, "num_ln_in_parallel_attn", f->grouped ? 2 : 1), 3);
  if (f->norms > 2 || (f->norms == 2 && !f->grouped))
    network_spec_fail(spec, "num_ln_in_parallel_attn", "must be 1, or 2 in the new architecture");
  m->parallel = network_spec_bool(spec, "parallel_attn", TRUE);
  if (f->grouped && !m->parallel)
    network_spec_fail(spec, "parallel_attn", "false is not supported in the new architecture");
}

static void
read(Classic *m, NetworkSpec *spec)
{
  Falcon *f = (Falcon *) m;
  m->bias = network_spec_bool(spec, "bias", FALSE);
  f->alibi = network_spec_bool(spec, "alibi", FALSE);
  f->grouped = network_spec_bool(spec, "new_decoder_architecture", FALSE);
  f->multi_query = network_spec_bool(spec, "multi_query", TRUE);
  f->groups = network_spec_int(spec, "num_kv_heads", m->lm.heads);
  if (f->grouped && m->lm.heads % f->groups != 0)
    network_spec_fail(spec, "num_kv_heads",
                      "%" G_GINT64_FORMAT " does not divide the %" G_GINT64_FORMAT
                      " attention heads",
                      f->groups, m->lm.heads);
  f->groups = MIN(f->groups, m->lm.heads);
  read_norms(f, spec);
  AttentionCode code = m->lm.impl.attention;
  if (code != ATTENTION_SDPA && code != ATTENTION_EFFICIENT && code != ATTENTION_MATH)
    json_reader_fail(spec->reader, "implementation",
                     "the attention of falcon is sdpa, efficient or math");
}

static const ClassicStyle style = {
    .model = "transformer",
    .keeps_keywords = TRUE,
    .embedding = "word_embeddings",
    .layers = "h",
    .block = "FalconDecoderLayer",
    .norm = "ln_f",
    .ffn_field = "ffn_hidden_size",
    .activation_field = "activation",
    .activation = "gelu",
    .attention_dropout = "attention_dropout",
    .residual_dropout = "hidden_dropout",
    .tied = TRUE,
    .rotary = TRUE,
    .returns_weights = TRUE,
    .read = read,
    .define_block = define_block,
    .prepare = prepare,
    .compute_block = compute_block,
};

static Network *
build(NetworkSpec *spec, const NetworkShape *shape, GError **error)
{
  Falcon f = {.classic = {.style = &style}};
  return classic_build(&f.classic, spec, shape, error);
}

const NetworkFamily family_falcon = {
    .name = "falcon",
    .summary = "Falcon: multi-query attention and feed-forward side by side, RoPE or ALiBi",
    .model_types = (const char *const[]){"falcon", NULL},
    .build = build,
};
