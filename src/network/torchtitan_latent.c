/* torchtitan_latent.c - latent attention as torchtitan writes it. */
#include "network/torchtitan_latent.h"

TorchtitanLatent
torchtitan_latent_define(Builder *b, const CausalLm *lm, const LatentStyle *s)
{
  gint64 hidden = lm->hidden, queries = lm->heads * latent_query_dim(s);
  TorchtitanLatent p = {.module = builder_module(b, "attention", "Attention")};
  if (s->q_rank == 0) {
    p.q = define_linear(b, "wq", queries, hidden, FALSE);
  } else {
    p.q_a = define_linear(b, "wq_a", s->q_rank, hidden, FALSE);
    p.q_norm = define_norm(b, "q_norm", "RMSNorm", s->q_rank, FALSE);
    p.q_b = define_linear(b, "wq_b", queries, s->q_rank, FALSE);
  }
  p.kv_a = define_linear(b, "wkv_a", s->kv_rank + s->rotary, hidden, FALSE);
  p.kv_norm = define_norm(b, "kv_norm", "RMSNorm", s->kv_rank, FALSE);
  p.kv_b = define_linear(b, "wkv_b", lm->heads * (s->plain + s->value), s->kv_rank, FALSE);
  p.o = define_linear(b, "wo", hidden, lm->heads * s->value, FALSE);
  builder_module_end(b);
  return p;
}

/* apply_rotary_emb of x [batch, length, heads, rotary]. */
static Val
rotate(Builder *b, Val x, Val table)
{
  ValueInfo shape = builder_info(b, x);
  builder_enter(b, 2, (const char *const[]){"x", "freqs_cis"}, (Val[]){x, table});
  table.temporary = FALSE;
  x = let(b, "x", complex_pairs(b, (Val){x.slot, FALSE}));
  Val y = let(b, "y", real_pairs(b, binary(b, OP_MUL_COMPLEX, x, table), shape));
  return builder_leave(b, to(b, y, (DType) shape.dtype));
}

/* q: heads without a rotated part, and with it. */
static Val
queries(Builder *b, const LatentModel *m, const TorchtitanLatent *p, Val x)
{
  const LatentStyle *s = &m->style;
  Val q;
  if (s->q_rank == 0) {
    q = let(b, "q", linear(b, x, p->q));
  } else {
    q = let(b, "q", linear(b, x, p->q_a));
    q = let(b, "q", linear(b, rms_norm(b, q, p->q_norm, m->norm), p->q_b));
  }
  return let(b, "q", split_heads(b, q, m->lm->heads, latent_query_dim(s)));
}

Val
torchtitan_latent(Builder *b, const LatentModel *m, const TorchtitanLatent *p, Val x,
                  const Val *tables)
{
  const CausalLm *lm = m->lm;
  const LatentStyle *s = &m->style;
  Val q[2], kv[2], key[2];
  x = call_module(b, p->module, x);
  split_last(b, queries(b, m, p, x), s->plain, (const char *const[]){"q_nope", "q_pe"}, q);
  q[1] = let(b, "q_pe", rotate(b, q[1], tables[0]));
  q[0] = let(b, "q", join_last(b, q[0], q[1]));
  Val latent = let(b, "kv", linear(b, x, p->kv_a));
  split_last(b, latent, s->kv_rank, (const char *const[]){"kv", "k_pe"}, kv);
  Val one_head = view(b, kv[1], 4, lm->batch, lm->length, (gint64) 1, s->rotary);
  Val rotated = let(b, "k_pe", rotate(b, one_head, tables[0]));
  latent = let(b, "kv", linear(b, rms_norm(b, kv[0], p->kv_norm, m->norm), p->kv_b));
  latent = let(b, "kv", split_heads(b, latent, lm->heads, s->plain + s->value));
  split_last(b, latent, s->plain, (const char *const[]){"k_nope", "v"}, key);
  ValueInfo wide = builder_info(b, rotated);
  wide.shape[2] = lm->heads;
  Val k = let(b, "k", join_last(b, key[0], expand(b, rotated, wide)));
  q[0] = let(b, "q", transpose(b, q[0]));
  k = let(b, "k", transpose(b, k));
  Val v = let(b, "v", transpose(b, key[1]));
  AttentionCall call = {lm->impl.attention, lm->heads, lm->heads, FALSE, NO_VAL, 0};
  Val o = let(b, "output", attention(b, q[0], k, v, &call));
  o = let(b, "output", contiguous(b, transpose(b, o)));
  o = let(b, "output", merge_heads(b, o));
  return builder_leave(b, linear(b, o, p->o));
}
