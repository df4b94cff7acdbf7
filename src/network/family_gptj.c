/* family_gptj.c - GPT-J: one norm before attention and feed-forward side by side, rotary embeddings
 * of neighbouring elements in a part of each head. */
#include <math.h>
#include <string.h>

#include "network/classic_decoder.h"
#include "network/transformers_masks.h"
#include "network/transformers_rope.h"

static void
define_block(Builder *b, Classic *m, ClassicBlock *p, int block)
{
  static const char *const mlp[] = {"mlp", "fc_in", "fc_out", "act"};
  gint64 hidden = m->lm.hidden;
  (void) block;
  p->norm1 = define_norm(b, "ln_1", "LayerNorm", hidden, TRUE);
  p->attention = builder_module(b, "attn", "GPTJAttention");
  p->k = define_linear(b, "k_proj", hidden, hidden, FALSE);
  p->v = define_linear(b, "v_proj", hidden, hidden, FALSE);
  p->q = define_linear(b, "q_proj", hidden, hidden, FALSE);
  p->out = define_linear(b, "out_proj", hidden, hidden, FALSE);
  builder_module_end(b);
  classic_define_mlp(b, m, p, mlp, TRUE);
}

/* A table of sines and cosines for all positions. */
static void
define_last(Builder *b, Classic *m)
{
  classic_define_last_norm(b, m, "ln_f");
  m->lm.rotary_module = builder_module(b, "rotary_emb", "GPTJRotaryEmbedding");
  builder_buffer(b, "transformer.rotary_emb.embed_positions", DTYPE_FP32,
                 m->positions * m->lm.rotary.dim);
  builder_module_end(b);
}

/* Its rows at the positions, in the model's dtype: sines and cosines are views of one tensor. */
static Val
prepare(Builder *b, const Classic *m, Val embeds, ClassicArguments *args)
{
  const CausalLm *lm = &m->lm;
  Val positions = transformers_position_ids(b, lm), tables[2];
  Val mask = transformers_causal_mask(b, lm, TRUE, FALSE);
  Val x = let(b, "hidden_states", dropout(b, m->embedding_dropout, embeds));
  ValueInfo rows = value_shape(DTYPE_FP32, 3, (gint64) 1, lm->length, lm->rotary.dim);
  static const Creation table = {"rotary_sin_cos", "theta", ROTARY_THETA};
  builder_module_call(b, lm->rotary_module, 0, NULL);
  Val both = let(b, "sincos", to(b, create_as(b, "rotary table", rows, &table, NO_VAL), lm->dtype));
  chunk(b, both, 2, tables);
  builder_leave_with(b, 2, tables);
  classic_argument(args, positions);
  classic_argument(args, let(b, "cos", tables[1]));
  classic_argument(args, let(b, "sin", tables[0]));
  classic_argument(args, mask);
  return x;
}

/* torch.repeat_interleave(table[:, :, None, :], 2, 3): always a copy. */
static Val
each_twice(Builder *b, const CausalLm *lm, const char *name)
{
  ValueInfo wide = value_shape(lm->dtype, 4, (gint64) 1, lm->length, (gint64) 1, lm->rotary.dim);
  const Creation table = {strcmp(name, "cos") == 0 ? "rotary_cos_neighbours"
                                                   : "rotary_sin_neighbours",
                          "theta", ROTARY_THETA};
  return let(b, name, create_as(b, name, wide, &table, NO_VAL));
}

/* (x * cos) + (rotate_every_two(x) * sin) */
static Val
rotate(Builder *b, const CausalLm *lm, Val x)
{
  builder_call(b, 0, NULL);
  Val sin = each_twice(b, lm, "sin");
  Val cos = each_twice(b, lm, "cos");
  return builder_leave(b, rope_rotated(b, x, cos, sin, transformers_rotate_neighbours));
}

/* Of queries and keys [batch, length, heads, head_dim], keys first. */
static void
rotate_parts(Builder *b, const CausalLm *lm, Val qk[2])
{
  static const char *const names[] = {"query", "key"};
  static const char *const parts[2][2] = {{"q_rot", "q_pass"}, {"k_rot", "k_pass"}};
  Val pieces[2][2];
  for (int i = 1; i >= 0; i--)
    transformers_part_heads(b, qk[i], lm->rotary.dim, parts[i], pieces[i]);
  for (int i = 1; i >= 0; i--)
    pieces[i][0] = let(b, parts[i][0], rotate(b, lm, pieces[i][0]));
  for (int i = 1; i >= 0; i--)
    qk[i] = let(b, names[i], join_last(b, pieces[i][0], pieces[i][1]));
}

/* eager_attention_forward of this model: scores and their softmax in fp32. */
static Val
eager(Builder *b, const Classic *m, const Val qkv[3], Val mask, Val *weights)
{
  builder_call(b, 0, NULL);
  Val q = to(b, qkv[0], DTYPE_FP32);
  Val columns = transpose_last(b, to(b, qkv[1], DTYPE_FP32));
  Val scores =
      batched_matmul(b, (Val){q.slot, FALSE}, (Val){columns.slot, FALSE}, "attention scores");
  builder_discard(b, q);
  builder_discard(b, columns);
  Val w = let(b, "attn_weights",
              unary_with(b, OP_MUL_SCALAR, scores, "value", 1 / sqrt((double) m->lm.head_dim)));
  w = let(b, "attn_weights", binary(b, OP_ADD, w, mask));
  w = let(b, "attn_weights", to(b, unary(b, OP_SOFTMAX, w), m->lm.dtype));
  w = let(b, "attn_weights", dropout(b, m->lm.attention_dropout, w));
  return transformers_eager_output(b, w, qkv[2], weights);
}

static Val
attention_forward(Builder *b, const Classic *m, int block, Val x, const Val *args, Val *weights)
{
  static const char *const names[] = {"query", "key", "value"};
  const CausalLm *lm = &m->lm;
  const ClassicBlock *p = &m->blocks[block];
  const Linear *projections[] = {&p->q, &p->k, &p->v};
  Val qkv[3];
  x = call_module_by_keyword(b, p->attention, x);
  for (int i = 0; i < 3; i++)
    qkv[i] =
        let(b, names[i], split_heads(b, linear(b, x, *projections[i]), lm->heads, lm->head_dim));
  qkv[2] = let(b, names[2], transpose(b, qkv[2]));
  rotate_parts(b, lm, qkv);
  for (int i = 0; i < 2; i++)
    qkv[i] = let(b, names[i], transpose(b, qkv[i]));
  Val o =
      lm->impl.attention == ATTENTION_EAGER
          ? transformers_project(b, eager(b, m, qkv, args[TABLE_MASK], weights), p->out, weights)
          : classic_attend(b, m, p, qkv, NO_VAL, weights);
  o = let(b, "attn_output", dropout(b, m->residual_dropout, o));
  return builder_leave_beside(b, o, weights);
}

static void
read(Classic *m, NetworkSpec *spec)
{
  m->lm.rotary.dim = network_spec_int(spec, "rotary_dim", 64);
  if (cJSON_IsNull(json_reader_raw(spec->reader, "rotary_dim")) || m->lm.rotary.dim % 2 != 0 ||
      m->lm.rotary.dim > m->lm.head_dim)
    network_spec_fail(spec, "rotary_dim",
                      "must be an even number up to the head's %" G_GINT64_FORMAT, m->lm.head_dim);
}

static const ClassicStyle style = {
    .model = "transformer",
    .embedding = "wte",
    .layers = "h",
    .block = "GPTJBlock",
    .ffn_field = "n_inner",
    .positions_field = "n_positions|max_position_embeddings",
    .positions = 2048,
    .activation_field = "activation_function",
    .activation = "gelu_new",
    .attention_dropout = "attn_pdrop",
    .residual_dropout = "resid_pdrop",
    .embedding_dropout = "embd_pdrop",
    .head_bias = TRUE,
    .read = read,
    .define_block = define_block,
    .define_last = define_last,
    .prepare = prepare,
    .compute_block = classic_block_parallel,
    .attention = attention_forward,
};

static Network *
build(NetworkSpec *spec, const NetworkShape *shape, GError **error)
{
  return classic_build_style(&style, spec, shape, error);
}

const NetworkFamily family_gptj = {
    .name = "gptj",
    .summary = "GPT-J: parallel attention and feed-forward behind one norm, interleaved RoPE",
    .model_types = (const char *const[]){"gptj", NULL},
    .build = build,
};
