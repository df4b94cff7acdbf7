/* transformers_decoder_block.c - the forward() of decoder blocks: attention, feed-forward and the
 * residual stream, statement by statement. */
#include "network/transformers_decoder.h"
#include "network/transformers_masks.h"

/* ---- attention ---- */

/* One of queries (0), keys and values: its heads, and what it takes of a fused projection. */
typedef struct {
  const Linear *layer;
  const Norm *norm;    /* NULL: none */
  gint64 heads, first; /* behind the fused projection of a key head's queries, where grouped */
} Part;

static Part
part_of(const Decoder *d, const DecoderBlock *p, int i)
{
  gint64 q = d->lm.heads * d->lm.head_dim, kv = d->kv_heads * d->lm.head_dim;
  if (d->style.grouped_qkv) { /* one after the other in a key head's row */
    q = d->lm.heads / d->kv_heads * d->lm.head_dim;
    kv = d->lm.head_dim;
  }
  const Part parts[] = {
      {&p->q, &p->q_norm, d->lm.heads, 0},
      {&p->k, &p->k_norm, d->kv_heads, q},
      {&p->v, NULL, d->kv_heads, q + kv},
  };
  return parts[i];
}

/* rows: [batch, length, key heads, elements of one]; queries become heads that lie side by side,
 * which is a copy where there are fewer key heads. */
static Val
grouped_part(Builder *b, const Decoder *d, const Part *part, Val rows)
{
  const CausalLm *lm = &d->lm;
  gint64 width = part->heads / d->kv_heads * lm->head_dim;
  Val x = slice_last(b, rows, part->first, width);
  return reshape(b, x, value_shape(lm->dtype, 4, lm->batch, lm->length, part->heads, lm->head_dim));
}

/* hidden: the module's input, or what a fused projection gave. */
static Val
qkv_step(Builder *b, const Decoder *d, QkvStep step, const Part *part, Val x, Val hidden)
{
  switch (step) {
  case QKV_PROJECT:
    if (d->style.grouped_qkv)
      return grouped_part(b, d, part, hidden);
    return d->style.fused_qkv ? slice_last(b, hidden, part->first, part->heads * d->lm.head_dim)
                              : linear(b, hidden, *part->layer);
  case QKV_CLIP:
    return unary_with(b, OP_CLAMP, x, "limit", d->clip);
  case QKV_NORM:
    return part->norm != NULL && d->style.qk_norm != QK_NORM_NONE ? norm_apply(b, x, part->norm)
                                                                  : x;
  case QKV_HEADS:
    return split_heads(b, x, part->heads, d->lm.head_dim);
  default:
    return transpose(b, x);
  }
}

/* Carries out the style's statements; out: queries, keys, values as names. */
static void
make_qkv(Builder *b, const Decoder *d, const DecoderBlock *p, Val x, Val out[3])
{
  static const char *const names[] = {"query", "key", "value"};
  const QkvStep *statement = d->style.qkv, *step = statement;
  if (d->style.fused_qkv)
    x = let(b, "qkv", linear(b, x, p->qkv));
  if (d->style.grouped_qkv)
    x = let(b, "qkv",
            view(b, x, 4, d->lm.batch, d->lm.length, d->kv_heads,
                 (d->lm.heads / d->kv_heads + 2) * d->lm.head_dim));
  out[0] = out[1] = out[2] = x;
  while (*statement != QKV_END) {
    for (int i = 0; i < 3; i++) {
      Part part = part_of(d, p, i);
      for (step = statement; *step != QKV_END && *step != QKV_THEN; step++)
        out[i] = qkv_step(b, d, *step, &part, out[i], x);
      out[i] = let(b, names[i], out[i]);
    }
    statement = *step == QKV_THEN ? step + 1 : step;
  }
}

static gboolean
is_rotated(const Decoder *d, int block)
{
  return d->lm.layer_kinds == NULL || !(d->lm.layer_kinds[block] & LAYER_UNROTATED);
}

static Val
projected_attention(Builder *b, const Decoder *d, int block, Val x, const Val *tables, Val *weights)
{
  const CausalLm *lm = &d->lm;
  const DecoderBlock *p = &d->blocks[block];
  Val qkv[3];
  x = call_module_by_keyword(b, p->attention, x);
  make_qkv(b, d, p, x, qkv);
  if (is_rotated(d, block)) {
    transformers_rotate(b, d->style.rotary, qkv, tables[TABLE_COS], tables[TABLE_SIN]);
    qkv[0] = let(b, "query", qkv[0]);
    qkv[1] = let(b, "key", qkv[1]);
  }
  Val mask = transformers_mask(lm, block, tables);
  Val o = d->style.attend != NULL
              ? d->style.attend(b, d, block, qkv, mask, weights)
              : transformers_attend(b, lm, d->kv_heads, transformers_window(lm, block), qkv, mask,
                                    weights);
  o = transformers_project(b, o, p->o, weights);
  o = let(b, "attn_output", dropout(b, d->style.inner_dropout, o));
  return builder_leave_beside(b, o, weights);
}

Val
decoder_attention(Builder *b, const Decoder *d, int block, Val x, const Val *tables, Val *weights)
{
  return (d->style.attention != NULL ? d->style.attention : projected_attention)(b, d, block, x,
                                                                                 tables, weights);
}

/* ---- feed-forward ---- */

static Val
act(Builder *b, const Decoder *d, const DecoderBlock *p, Val x)
{
  return activation_call(b, d->activation, p->activation, x);
}

/* down(act(gate(x)) * up(x)) */
static Val
gated(Builder *b, const Decoder *d, const DecoderBlock *p, Val x)
{
  Val gate = act(b, d, p, linear(b, x, p->gate));
  Val up = linear(b, x, p->up);
  return linear(b, binary(b, OP_MUL, gate, up), p->down);
}

/* gate, up = up(x).chunk(2); up = up * act(gate); return down(up) */
static Val
gated_fused(Builder *b, const Decoder *d, const DecoderBlock *p, Val x)
{
  Val both = let(b, "up_states", linear(b, x, p->up)), half[2];
  chunk(b, both, 2, half);
  half[0] = let(b, "gate", half[0]);
  half[1] = let(b, "up_states", half[1]);
  Val gate = act(b, d, p, half[0]);
  Val up = let(b, "up_states", binary(b, OP_MUL, half[1], gate));
  return linear(b, up, p->down);
}

/* down(act(up(x))), each bound to a name, and dropout */
static Val
plain(Builder *b, const Decoder *d, const DecoderBlock *p, Val x)
{
  x = let(b, "hidden_states", linear(b, x, p->up));
  x = let(b, "hidden_states", act(b, d, p, x));
  x = let(b, "hidden_states", linear(b, x, p->down));
  return let(b, "hidden_states", dropout(b, d->style.inner_dropout, x));
}

Val
decoder_mlp(Builder *b, const Decoder *d, int block, Val x)
{
  static Val (*const codes[])(Builder *, const Decoder *, const DecoderBlock *, Val) = {
      [MLP_GATED] = gated, [MLP_GATED_FUSED] = gated_fused, [MLP_PLAIN] = plain};
  const DecoderBlock *p = &d->blocks[block];
  x = call_module(b, p->feed_forward, x);
  return builder_leave(b, codes[d->style.mlp](b, d, p, x));
}

Val
decoder_feed_forward(Builder *b, const Decoder *d, int block, Val x)
{
  return (d->style.feed_forward != NULL ? d->style.feed_forward : decoder_mlp)(b, d, block, x);
}

/* ---- the block ---- */

/* hidden_states = norm(hidden_states), where there is one. */
static Val
norm_at(Builder *b, const Decoder *d, const DecoderBlock *p, int place, Val x)
{
  if (d->style.norms[place] == NULL)
    return x;
  return let(b, "hidden_states", norm_apply(b, x, &p->norms[place]));
}

/* hidden_states = residual + dropout(hidden_states) or hidden_states * scale */
static Val
add_residual(Builder *b, const Decoder *d, const DecoderBlock *p, int which, Val residual, Val x)
{
  if (d->style.dropout_modules[which] != NULL) {
    x = call_module(b, p->dropout[which], x);
    x = builder_leave(b, dropout(b, d->style.block_dropout, x));
  }
  if (d->style.residual_scale != NULL)
    x = unary_with(b, OP_MUL_SCALAR, x, "value", d->residual_factor);
  return let(b, "hidden_states", binary(b, OP_ADD, residual, x));
}

Val
decoder_block(Builder *b, const CausalLm *lm, int block, Val x, const Val *tables)
{
  const Decoder *d = (const Decoder *) lm;
  const DecoderBlock *p = &d->blocks[block];
  Val weights;
  builder_enter(b, 1, (const char *const[]){"hidden_states"}, &x);
  Val residual = let(b, "residual", x);
  x = norm_at(b, d, p, BEFORE_ATTENTION, x);
  x = let(b, "hidden_states", decoder_attention(b, d, block, x, tables, &weights));
  if (weights.slot != NO_VAL.slot)
    let(b, "_", weights);
  x = norm_at(b, d, p, AFTER_ATTENTION, x);
  x = add_residual(b, d, p, 0, residual, x);
  residual = let(b, "residual", x);
  x = norm_at(b, d, p, BEFORE_FEED_FORWARD, x);
  x = let(b, "hidden_states", decoder_feed_forward(b, d, block, x));
  x = norm_at(b, d, p, AFTER_FEED_FORWARD, x);
  x = add_residual(b, d, p, 1, residual, x);
  return builder_leave(b, x);
}
