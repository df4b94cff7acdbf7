/* classic_block.c - parts of the blocks of decoders with LayerNorm, and the two ways in which most
 * of them put attention and feed-forward together. */
#include "network/classic_decoder.h"

Val
classic_dropout_add(Builder *b, double p, Val x, Val residual)
{
  builder_enter(b, 1, (const char *const[]){"x"}, &x);
  Val out = let(b, "out", dropout(b, p, (Val){x.slot, FALSE}));
  return builder_leave(b, let(b, "out", binary(b, OP_ADD, residual, out)));
}

Val
classic_mlp(Builder *b, const Classic *m, const ClassicBlock *p, Val x)
{
  x = call_module(b, p->mlp, x);
  x = let(b, "hidden_states", linear(b, x, p->up));
  x = let(b, "hidden_states", activation_call(b, m->activation, p->activation, x));
  x = let(b, "hidden_states", linear(b, x, p->down));
  x = let(b, "hidden_states", dropout(b, m->residual_dropout, x));
  return builder_leave(b, x);
}

Val
classic_heads(Builder *b, const Classic *m, Val x)
{
  ValueInfo info = builder_info(b, x);
  gint64 heads = info.shape[info.dims - 1] / m->lm.head_dim;
  return transpose(b, view(b, x, 4, m->lm.batch, m->lm.length, heads, m->lm.head_dim));
}

Val
classic_block_leave(Builder *b, const Classic *m, Val x, Val weights)
{
  if (m->style->returns_weights && weights.slot != NO_VAL.slot)
    builder_give_beside(b, weights);
  return builder_leave(b, x);
}

/* residual = x; x = norm(x); attn_output, _ = attention(x) */
static Val
attention_half(Builder *b, const Classic *m, int block, Val *x, const Val *args, Val *weights)
{
  let(b, "residual", *x);
  *x = let(b, "hidden_states", layer_norm(b, *x, m->blocks[block].norm1));
  Val a = let(b, "attn_output", m->style->attention(b, m, block, *x, args, weights));
  if (weights->slot != NO_VAL.slot)
    *weights = let(b, "_", *weights);
  return a;
}

Val
classic_block(Builder *b, const CausalLm *lm, int block, Val x, const Val *args)
{
  const Classic *m = (const Classic *) lm;
  const ClassicBlock *p = &m->blocks[block];
  Val weights, residual = x;
  builder_enter(b, 1, (const char *const[]){"hidden_states"}, &x);
  Val a = attention_half(b, m, block, &x, args, &weights);
  x = let(b, "hidden_states", binary(b, OP_ADD, a, residual));
  residual = let(b, "residual", x);
  x = let(b, "hidden_states", layer_norm(b, x, p->norm2));
  Val f = let(b, "feed_forward_hidden_states", classic_mlp(b, m, p, x));
  x = let(b, "hidden_states", binary(b, OP_ADD, residual, f));
  return classic_block_leave(b, m, x, weights);
}

Val
classic_block_parallel(Builder *b, const CausalLm *lm, int block, Val x, const Val *args)
{
  const Classic *m = (const Classic *) lm;
  Val weights, residual = x;
  builder_enter(b, 1, (const char *const[]){"hidden_states"}, &x);
  Val a = attention_half(b, m, block, &x, args, &weights);
  if (m->style->drops_outside)
    a = let(b, "attn_output", dropout(b, m->residual_dropout, a));
  Val f = let(b, "feed_forward_hidden_states", classic_mlp(b, m, &m->blocks[block], x));
  x = binary(b, OP_ADD, binary(b, OP_ADD, a, f), residual);
  return builder_leave(b, x);
}

Val
classic_attend(Builder *b, const Classic *m, const ClassicBlock *p, const Val qkv[3], Val mask,
               Val *weights)
{
  Val o = transformers_attend(b, &m->lm, m->kv_heads, 0, qkv, mask, weights);
  return transformers_project(b, o, p->out, weights);
}
