/* family_deepseek.c - DeepSeek V2 and V3: latent attention, and mixtures of experts with shared
 * ones after the first layers. */
#include <string.h>

#include "base/units.h"
#include "network/latent_attention.h"
#include "network/moe_decoder.h"
#include "network/torchtitan_decoder.h"

typedef struct {
  MoeDecoder moe; /* comes first */
  LatentStyle latent;
  LatentAttention *attention; /* by block */
} DeepSeek;

static gboolean
is_v3(const NetworkSpec *spec)
{
  return strcmp(spec->family, "deepseek_v3") == 0;
}

/* ---- config.json ---- */

static void
read_groups(MoeStyle *moe, NetworkSpec *spec)
{
  const char *method = network_spec_string(spec, "topk_method", "greedy");
  gboolean grouped = strcmp(method, "group_limited_greedy") == 0;
  if (!is_v3(spec) && !grouped) {
    if (strcmp(method, "greedy") != 0)
      network_spec_fail(spec, "topk_method", "'%.60s' is not greedy or group_limited_greedy",
                        method);
    return;
  }
  moe->groups = network_spec_int(spec, "n_group", is_v3(spec) ? 8 : -1);
  moe->groups_used = network_spec_int(spec, "topk_group", is_v3(spec) ? 4 : -1);
  if (moe->experts % moe->groups != 0)
    network_spec_fail(spec, "n_group", "%" G_GINT64_FORMAT " does not divide the experts",
                      moe->groups);
  if (moe->groups_used > moe->groups)
    network_spec_fail(spec, "topk_group", "%" G_GINT64_FORMAT " are more than the groups",
                      moe->groups_used);
}

static gint64
dense_blocks(NetworkSpec *spec)
{
  return json_reader_int(spec->reader, "first_k_dense_replace", is_v3(spec) ? 3 : 0, 0, G_MAXINT32);
}

static void
read_dense(Decoder *d, NetworkSpec *spec)
{
  gint64 dense = dense_blocks(spec);
  for (int i = 0; i < d->lm.layers && i < dense; i++)
    moe_decoder_set_dense(d, i);
}

/* The experts that all tokens have are one, as wide as all of them. */
static void
read_shared(MoeStyle *moe, NetworkSpec *spec)
{
  gint64 count = network_spec_int(spec, "n_shared_experts", is_v3(spec) ? 1 : 2);
  causal_lm_check_matrix(spec, "n_shared_experts", count, moe->ffn);
  if (!checked_multiply(count, moe->ffn, &moe->shared_ffn))
    moe->shared_ffn = moe->ffn; /* refused above */
  causal_lm_check_matrix(spec, "n_shared_experts", moe->shared_ffn, moe->hidden);
}

static MoeFields
fields_of(const NetworkSpec *spec)
{
  gboolean v3 = is_v3(spec);
  return (MoeFields){.experts = "n_routed_experts|num_local_experts|num_experts",
                     .experts_default = v3 ? 256 : 64,
                     .top_k_default = v3 ? 8 : -1,
                     .ffn = "moe_intermediate_size",
                     .ffn_default = v3 ? 2048 : 1407,
                     .norm_topk_prob = v3,
                     .norm_default = TRUE};
}

static void
read(Decoder *d, NetworkSpec *spec)
{
  gboolean v3 = is_v3(spec);
  const MoeFields fields = fields_of(spec);
  DeepSeek *m = (DeepSeek *) d;
  MoeStyle *moe = moe_decoder_style(d);
  moe_decoder_read(d, spec, &fields);
  read_shared(moe, spec);
  moe->route = v3 ? moe_route_sigmoid : moe_route_groups;
  moe->correction_bias = v3;
  read_groups(moe, spec);
  read_dense(d, spec);
  m->latent = latent_attention_read(&d->lm, d->kv_heads, spec);
  gboolean neighbours = network_spec_bool(spec, "rope_interleave", TRUE);
  m->latent.rotation = !v3 ? LATENT_COMPLEX : neighbours ? LATENT_NEIGHBOURS : LATENT_HALVES;
  d->lm.rotary.complex = !v3;
  if (!v3)
    d->style.mlp_bias = network_spec_bool(spec, "mlp_bias", FALSE);
  if (d->style.mlp_bias)
    network_spec_fail(spec, "mlp_bias", "biases of feed-forwards are not supported");
}

/* ---- torchtitan's code ---- */

/* Its router has scores of either kind, and groups of at least two experts; one group is none. */
static void
read_torchtitan_router(MoeStyle *moe, NetworkSpec *spec)
{
  const char *scores =
      network_spec_string(spec, "scoring_func", is_v3(spec) ? "sigmoid" : "softmax");
  moe->softmax_scores = strcmp(scores, "softmax") == 0;
  if (!moe->softmax_scores && strcmp(scores, "sigmoid") != 0)
    network_spec_fail(spec, "scoring_func", "'%.60s' is not sigmoid or softmax", scores);
  read_groups(moe, spec);
  if (moe->groups == 1)
    moe->groups = moe->groups_used = 0;
  if (moe->groups > 0 && moe->experts / moe->groups < 2)
    network_spec_fail(spec, "n_group", "torchtitan's groups have at least two experts");
  moe->loops_on_old_devices = TRUE;
}

static void
read_torchtitan(Torchtitan *m, NetworkSpec *spec)
{
  MoeFields fields = fields_of(spec);
  fields.norm_topk_prob = TRUE;
  fields.norm_default = is_v3(spec);
  m->mixed = m->balances = TRUE;
  moe_style_read(&m->moe, m->lm.hidden, m->ffn, spec, &fields);
  read_shared(&m->moe, spec);
  read_torchtitan_router(&m->moe, spec);
  m->dense = dense_blocks(spec);
  m->latent = latent_attention_read(&m->lm, m->kv_heads, spec);
}

static const TorchtitanStyle torchtitan_style = {
    .latent = TRUE,
    .rotates_alike = TRUE,
    .norms_first = TRUE,
    .without = (const char *const[]){"attention_bias", "mlp_bias", "tie_word_embeddings",
                                     "output_router_logits", NULL},
    .stream = "x",
    .read = read_torchtitan,
};

/* ---- blocks ---- */

static void
define_attention(Builder *b, Decoder *d, int block)
{
  DeepSeek *m = (DeepSeek *) d;
  m->attention[block] = latent_attention_define(b, d, &m->latent);
}

static Val
call_attention(Builder *b, const Decoder *d, int block, Val x, const Val *tables, Val *weights)
{
  const DeepSeek *m = (const DeepSeek *) d;
  Val mask = transformers_mask(&d->lm, block, tables);
  return latent_attention_call(b, d, &m->latent, &m->attention[block], x, tables, mask, weights);
}

static const DecoderStyle style = {
    .norm = NORM_RMS,
    .read = read,
    .define_attention = define_attention,
    .attention = call_attention,
};

static const MoeStyle moe = {
    .shared = SHARED_ADDED,
    .shared_module = "shared_experts",
    .order = "egs",
};

static Network *
build(NetworkSpec *spec, const NetworkShape *shape, GError **error)
{
  if (spec->implementation.code == CODE_TORCHTITAN)
    return torchtitan_build(&torchtitan_style, spec, shape, error);
  DeepSeek m = {.moe = {.decoder = {.style = style}, .style = moe}};
  m.attention = g_new0(LatentAttention, BUILDER_MOST_BLOCKS);
  Network *network = moe_decoder_build_in(&m.moe, spec, shape, error);
  if (network != NULL)
    network->attention_width = latent_attention_width(&m.latent, m.moe.decoder.lm.heads);
  g_free(m.attention);
  return network;
}

const NetworkFamily family_deepseek = {
    .name = "deepseek",
    .summary = "DeepSeek V2 and V3: latent attention, shared and routed experts",
    .model_types = (const char *const[]){"deepseek_v3", "deepseek_v2", NULL},
    .build = build,
};
