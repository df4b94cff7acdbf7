/* moe_decoder.c - decoders of the llama kind whose feed-forward is a mixture of experts. */
#include "network/moe_decoder.h"

#include "network/moe_balance.h"

/* ---- config.json ---- */

void
moe_decoder_set_dense(Decoder *d, int block)
{
  ((MoeDecoder *) d)->is_dense[block] = TRUE;
  decoder_mark_layer(d, block, LAYER_FAMILY);
}

static Val
add_balance(Builder *b, const CausalLm *lm, Val loss, Val *auxiliary)
{
  const MoeDecoder *m = (const MoeDecoder *) lm;
  const GArray *logits = lm->captured;
  if (logits->len == 0)
    builder_fail(b, "%s: key 'output_router_logits': no layer has a router",
                 builder_network(b)->name);
  Val balance = moe_balance_loss(b, &m->style, (int) logits->len, (const Val *) logits->data);
  *auxiliary = let(b, "aux_loss", balance);
  return moe_balance_add(b, m->balance, loss, *auxiliary);
}

/* Hooks keep the routers' logits for the model's output; most models make a loss of them too. */
static void
read_balance(Decoder *d, NetworkSpec *spec, const MoeFields *fields)
{
  MoeDecoder *m = (MoeDecoder *) d;
  if (fields->balance > 0)
    m->balance = network_spec_double(spec, "router_aux_loss_coef", fields->balance);
  if (!network_spec_bool(spec, "output_router_logits", FALSE))
    return;
  m->style.captures = TRUE;
  d->lm.captured = m->captured;
  if (fields->balance > 0)
    d->lm.add_loss = add_balance;
}

void
moe_style_read(MoeStyle *s, gint64 hidden, gint64 ffn, NetworkSpec *spec, const MoeFields *fields)
{
  s->hidden = hidden;
  s->ffn = ffn;
  if (fields->ffn != NULL)
    s->ffn = network_spec_int(spec, fields->ffn, fields->ffn_default);
  s->experts = network_spec_int(spec, fields->experts, fields->experts_default);
  s->top_k = network_spec_int(spec, "num_experts_per_tok", fields->top_k_default);
  if (fields->norm_topk_prob)
    s->normalized = network_spec_bool(spec, "norm_topk_prob", fields->norm_default);
  if (s->experts > MOE_MOST_EXPERTS)
    network_spec_fail(spec, fields->experts, "%" G_GINT64_FORMAT " is not in 1..%d", s->experts,
                      MOE_MOST_EXPERTS);
  if (s->top_k > s->experts)
    network_spec_fail(spec, "num_experts_per_tok",
                      "%" G_GINT64_FORMAT " are more than the %" G_GINT64_FORMAT " experts",
                      s->top_k, s->experts);
  causal_lm_check_matrix(spec, fields->ffn != NULL ? fields->ffn : "intermediate_size", s->ffn,
                         hidden);
}

void
moe_decoder_read(Decoder *d, NetworkSpec *spec, const MoeFields *fields)
{
  MoeStyle *s = moe_decoder_style(d);
  s->activation = d->activation;
  moe_style_read(s, d->lm.hidden, d->ffn, spec, fields);
  read_balance(d, spec, fields);
  if (json_reader_has(spec->reader, "experts_implementation"))
    network_spec_fail(spec, "experts_implementation", "is the plan's to say: moe.experts");
}

static void
read_dense_list(Decoder *d, NetworkSpec *spec)
{
  static const char name[] = "mlp_only_layers";
  const cJSON *list = json_reader_raw(spec->reader, name), *item;
  if (list == NULL || cJSON_IsNull(list))
    return;
  if (!cJSON_IsArray(list))
    network_spec_fail(spec, name, "must be a list of layer numbers");
  cJSON_ArrayForEach(item, list)
  {
    if (!cJSON_IsNumber(item))
      network_spec_fail(spec, name, "must be a list of layer numbers");
    else if (item->valuedouble >= 0 && item->valuedouble < (double) d->lm.layers)
      moe_decoder_set_dense(d, (int) item->valuedouble);
  }
}

void
moe_decoder_read_sparse_layers(Decoder *d, NetworkSpec *spec)
{
  gint64 step = network_spec_int(spec, "decoder_sparse_step", 1);
  read_dense_list(d, spec);
  for (int i = 0; i < d->lm.layers; i++)
    if ((i + 1) % step != 0)
      moe_decoder_set_dense(d, i);
}

/* ---- feed-forwards ---- */

static void
define_feed_forward(Builder *b, Decoder *d, int block)
{
  MoeDecoder *m = (MoeDecoder *) d;
  if (m->is_dense[block])
    decoder_define_mlp(b, d, block);
  else
    m->mixtures[block] = moe_define(b, &m->style);
}

static Val
feed_forward(Builder *b, const Decoder *d, int block, Val x)
{
  const MoeDecoder *m = (const MoeDecoder *) d;
  return m->is_dense[block] ? decoder_mlp(b, d, block, x) : moe_forward(b, &m->mixtures[block], x);
}

Network *
moe_decoder_build_in(MoeDecoder *m, NetworkSpec *spec, const NetworkShape *shape, GError **error)
{
  m->decoder.style.define_feed_forward = define_feed_forward;
  m->decoder.style.feed_forward = feed_forward;
  m->mixtures = g_new0(Moe, BUILDER_MOST_BLOCKS);
  m->is_dense = g_new0(guint8, BUILDER_MOST_BLOCKS);
  m->captured = g_array_new(FALSE, FALSE, sizeof(Val));
  Network *network = decoder_build(&m->decoder, spec, shape, error);
  g_free(m->mixtures);
  g_free(m->is_dense);
  g_array_unref(m->captured);
  return network;
}

Network *
moe_decoder_build(const DecoderStyle *style, const MoeStyle *moe, NetworkSpec *spec,
                  const NetworkShape *shape, GError **error)
{
  MoeDecoder m = {.decoder = {.style = *style}, .style = *moe};
  return moe_decoder_build_in(&m, spec, shape, error);
}
