/* latent_attention.c - attention whose keys and values are made of a narrow latent vector. */
#include "network/latent_attention.h"

/* ---- config.json and modules ---- */

gint64
latent_query_dim(const LatentStyle *s)
{
  return s->plain + s->rotary;
}

gint64
latent_attention_width(const LatentStyle *s, gint64 heads)
{
  return heads * (s->plain + s->rotary + s->value) / 2;
}

LatentStyle
latent_attention_read(CausalLm *lm, gint64 kv_heads, NetworkSpec *spec)
{
  LatentStyle s = {
      .q_rank = 1536,
      .kv_rank = network_spec_int(spec, "kv_lora_rank", 512),
      .plain = network_spec_int(spec, "qk_nope_head_dim", 128),
      .rotary = network_spec_int(spec, "qk_rope_head_dim", 64),
      .value = network_spec_int(spec, "v_head_dim", 128),
      .bias = network_spec_bool(spec, "attention_bias", FALSE),
  };
  const cJSON *rank = json_reader_raw(spec->reader, "q_lora_rank");
  s.q_rank = cJSON_IsNull(rank) ? 0 : network_spec_int(spec, "q_lora_rank", 1536);
  if (s.rotary % 2 != 0)
    network_spec_fail(spec, "qk_rope_head_dim", "%" G_GINT64_FORMAT " is odd", s.rotary);
  if (kv_heads != lm->heads)
    network_spec_fail(spec, "num_key_value_heads", "latent attention has as many as query heads");
  causal_lm_check_matrix(spec, "kv_lora_rank", s.kv_rank + s.rotary, lm->hidden);
  causal_lm_check_matrix(spec, "qk_nope_head_dim", lm->heads, latent_query_dim(&s));
  causal_lm_check_matrix(spec, "v_head_dim", lm->heads, s.plain + s.value);
  lm->head_dim = latent_query_dim(&s);
  lm->rotary.dim = s.rotary;
  return s;
}

LatentAttention
latent_attention_define(Builder *b, const Decoder *d, const LatentStyle *s)
{
  gint64 hidden = d->lm.hidden, heads = d->lm.heads;
  NormKind norm = d->style.norm;
  LatentAttention p = {.module = builder_module(b, "self_attn", "Attention")};
  if (s->q_rank == 0) {
    p.q = define_linear(b, "q_proj", heads * latent_query_dim(s), hidden, FALSE);
  } else {
    p.q_a = define_linear(b, "q_a_proj", s->q_rank, hidden, s->bias);
    p.q_norm = norm_define(b, "q_a_layernorm", norm, s->q_rank);
    p.q_b = define_linear(b, "q_b_proj", heads * latent_query_dim(s), s->q_rank, FALSE);
  }
  p.kv_a = define_linear(b, "kv_a_proj_with_mqa", s->kv_rank + s->rotary, hidden, s->bias);
  p.kv_norm = norm_define(b, "kv_a_layernorm", norm, s->kv_rank);
  p.kv_b = define_linear(b, "kv_b_proj", heads * (s->plain + s->value), s->kv_rank, FALSE);
  p.o = define_linear(b, "o_proj", hidden, heads * s->value, s->bias);
  builder_module_end(b);
  return p;
}

/* ---- rotation ---- */

/* apply_rotary_emb */
static void
rotate_complex(Builder *b, Val qk[2], Val table)
{
  static const char *const pairs[] = {"xq_", "xk_"}, *const names[] = {"xq_out", "xk_out"};
  ValueInfo shapes[2];
  Val x[2];
  builder_call(b, 0, NULL);
  for (int i = 0; i < 2; i++) {
    shapes[i] = builder_info(b, qk[i]);
    x[i] = let(b, pairs[i], complex_pairs(b, qk[i]));
  }
  for (int i = 0; i < 2; i++)
    qk[i] = let(b, names[i],
                to(b, real_pairs(b, binary(b, OP_MUL_COMPLEX, x[i], table), shapes[i]),
                   (DType) shapes[i].dtype));
  builder_leave_with(b, 2, qk);
}

static void
rotate(Builder *b, LatentRotation rotation, Val qk[2], const Val *tables)
{
  if (rotation == LATENT_COMPLEX)
    rotate_complex(b, qk, tables[TABLE_COS]);
  else
    transformers_rotate(b, rotation == LATENT_NEIGHBOURS ? ROTATE_NEIGHBOURS : ROTATE_HALF, qk,
                        tables[TABLE_COS], tables[TABLE_SIN]);
}

/* ---- keys and values ---- */

/* key_states[..., part].copy_(x), part from this element on. */
static Val
copy_into(Builder *b, Val keys, Val x)
{
  return let(b, "key_states", binary(b, OP_COPY_SLICE, keys, x));
}

/* expand_kv: keys of a latent part of their own and the rotated part that all heads share. */
static void
expand_kv(Builder *b, const Decoder *d, const LatentStyle *s, const LatentAttention *p, Val kv[2])
{
  const CausalLm *lm = &d->lm;
  Val parts[2], results[2];
  builder_enter(b, 2, (const char *const[]){"kv_nope", "k_rot"}, kv);
  Val latent = linear(b, (Val){kv[0].slot, FALSE}, p->kv_b);
  latent = view(b, latent, 4, lm->batch, lm->length, lm->heads, s->plain + s->value);
  latent = let(b, "kv_nope", transpose(b, latent));
  split_last(b, latent, s->plain, (const char *const[]){"k_nope", "value_states"}, parts);
  Val rotated = {kv[1].slot, FALSE};
  ValueInfo wide = builder_info(b, rotated);
  DType dtype = (DType) wide.dtype;
  wide.shape[1] = lm->heads;
  rotated = let(b, "k_rot", expand(b, rotated, wide));
  ValueInfo info = value_shape(dtype, 4, lm->batch, lm->heads, lm->length, s->plain + s->rotary);
  Val keys = let(b, "key_states", create(b, "keys", info));
  keys = copy_into(b, keys, parts[0]);
  results[0] = copy_into(b, keys, rotated);
  results[1] = parts[1];
  builder_leave_with(b, 2, results);
  kv[0] = results[0];
  kv[1] = results[1];
}

/* ---- forward() ---- */

static Val
queries(Builder *b, const Decoder *d, const LatentStyle *s, const LatentAttention *p, Val x)
{
  Val q;
  if (s->q_rank == 0)
    q = let(b, "q_states", linear(b, x, p->q));
  else
    q = let(b, "q_states", linear(b, norm_apply(b, linear(b, x, p->q_a), &p->q_norm), p->q_b));
  return let(b, "q_states", transpose(b, split_heads(b, q, d->lm.heads, latent_query_dim(s))));
}

Val
latent_attention_call(Builder *b, const Decoder *d, const LatentStyle *s, const LatentAttention *p,
                      Val x, const Val *tables, Val mask, Val *weights)
{
  const CausalLm *lm = &d->lm;
  Val q[2], kv[2], rotary[2];
  x = call_module_by_keyword(b, p->module, x);
  split_last(b, queries(b, d, s, p, x), s->plain, (const char *const[]){"q_pass", "q_rot"}, q);
  Val compressed = let(b, "compressed_kv", linear(b, x, p->kv_a));
  split_last(b, compressed, s->kv_rank, (const char *const[]){"kv_nope", "k_rot"}, kv);
  kv[0] = let(b, "kv_nope", norm_apply(b, kv[0], &p->kv_norm));
  kv[0] = let(b, "kv_nope", view(b, kv[0], 4, lm->batch, (gint64) 1, lm->length, s->kv_rank));
  kv[1] = let(b, "k_rot", view(b, kv[1], 4, lm->batch, (gint64) 1, lm->length, s->rotary));
  rotary[0] = q[1];
  rotary[1] = kv[1];
  rotate(b, s->rotation, rotary, tables);
  q[1] = let(b, "q_rot", rotary[0]);
  kv[1] = let(b, "k_rot", rotary[1]);
  Val qkv[3] = {let(b, "query_states", join_last(b, q[0], q[1]))};
  expand_kv(b, d, s, p, kv);
  qkv[1] = let(b, "key_states", kv[0]);
  qkv[2] = let(b, "value_states", kv[1]);
  Val o = transformers_attend(b, lm, lm->heads, 0, qkv, mask, weights);
  return builder_leave_beside(b, transformers_project(b, o, p->o, weights), weights);
}
