/* transformers_decoder.c - decoders of the llama kind: modules, config.json, and what is around the
 * blocks. */
#include "network/transformers_decoder.h"

#include <math.h>
#include <string.h>

static const char *const llama_names[] = {
    [NAME_EMBEDDING] = "embed_tokens",
    [NAME_ATTENTION] = "self_attn",
    [NAME_Q] = "q_proj",
    [NAME_K] = "k_proj",
    [NAME_V] = "v_proj",
    [NAME_QKV] = "qkv_proj",
    [NAME_O] = "o_proj",
    [NAME_Q_NORM] = "q_norm",
    [NAME_K_NORM] = "k_norm",
    [NAME_FEED_FORWARD] = "mlp",
    [NAME_GATE] = "gate_proj",
    [NAME_UP] = "up_proj",
    [NAME_DOWN] = "down_proj",
    [NAME_ACTIVATION] = "act_fn",
    [NAME_HEAD] = "lm_head",
};

static const char *const llama_norms[] = {
    [BEFORE_ATTENTION] = "input_layernorm",
    [BEFORE_FEED_FORWARD] = "post_attention_layernorm",
    [AFTER_FEED_FORWARD] = NULL,
};

/* What is not named is called as in Llama. */
static void
fill_in_names(DecoderStyle *style)
{
  gboolean any = FALSE;
  for (int i = 0; i < NAME_COUNT; i++)
    if (style->names[i] == NULL)
      style->names[i] = llama_names[i];
  for (int i = 0; i < NORM_PLACES; i++)
    any |= style->norms[i] != NULL;
  if (!any)
    memcpy(style->norms, llama_norms, sizeof(style->norms));
}

/* ---- modules, in order of definition ---- */

static Norm
define_qk_norm(Builder *b, const Decoder *d, const char *name, gint64 heads)
{
  const DecoderStyle *style = &d->style;
  gint64 width = d->lm.head_dim;
  switch (style->qk_norm) {
  case QK_NORM_HEAD:
    return norm_define(b, name, style->norm, width);
  case QK_NORM_HEADS:
    return norm_define_heads(b, name, style->norm, heads, width);
  case QK_NORM_EACH_HEAD:
    return norm_define_each_head(b, name, heads, width);
  default:
    return norm_define(b, name, style->norm, heads * width);
  }
}

static void
define_attention(Builder *b, Decoder *d, int block)
{
  DecoderBlock *p = &d->blocks[block];
  const DecoderStyle *style = &d->style;
  const char *const *names = style->names;
  gint64 hidden = d->lm.hidden, q = d->lm.heads * d->lm.head_dim, kv = d->kv_heads * d->lm.head_dim;
  p->attention = builder_module(b, names[NAME_ATTENTION], "Attention");
  if (style->define_in_attention != NULL)
    style->define_in_attention(b, d, block);
  if (style->o_first)
    p->o = define_linear(b, names[NAME_O], hidden, q, style->o_bias);
  if (style->fused_qkv) {
    p->qkv = define_linear(b, names[NAME_QKV], q + 2 * kv, hidden, style->qkv_bias);
  } else {
    p->q = define_linear(b, names[NAME_Q], q, hidden, style->qkv_bias);
    p->k = define_linear(b, names[NAME_K], kv, hidden, style->qkv_bias);
    p->v = define_linear(b, names[NAME_V], kv, hidden, style->qkv_bias);
  }
  if (!style->o_first)
    p->o = define_linear(b, names[NAME_O], hidden, q, style->o_bias);
  if (style->qk_norm != QK_NORM_NONE) {
    p->q_norm = define_qk_norm(b, d, names[NAME_Q_NORM], d->lm.heads);
    p->k_norm = define_qk_norm(b, d, names[NAME_K_NORM], d->kv_heads);
  }
  builder_module_end(b);
}

void
decoder_define_mlp(Builder *b, Decoder *d, int block)
{
  const DecoderStyle *style = &d->style;
  const char *const *names = style->names;
  DecoderBlock *p = &d->blocks[block];
  gint64 hidden = d->lm.hidden, ffn = d->ffn;
  p->feed_forward = builder_module(b, names[NAME_FEED_FORWARD], "FeedForward");
  if (style->mlp == MLP_GATED)
    p->gate = define_linear(b, names[NAME_GATE], ffn, hidden, style->mlp_bias);
  gint64 width = style->mlp == MLP_GATED_FUSED ? 2 * ffn : ffn;
  p->up = define_linear(b, names[NAME_UP], width, hidden, style->mlp_bias);
  p->down = define_linear(b, names[NAME_DOWN], hidden, ffn, style->mlp_bias);
  p->activation = activation_define(b, d->activation, names[NAME_ACTIVATION]);
  builder_module_end(b);
}

static void
define_feed_forward(Builder *b, Decoder *d, int block)
{
  if (d->style.define_feed_forward != NULL)
    d->style.define_feed_forward(b, d, block);
  else
    decoder_define_mlp(b, d, block);
}

static void
define_block(Builder *b, Decoder *d, int block)
{
  const DecoderStyle *style = &d->style;
  DecoderBlock *p = &d->blocks[block];
  builder_block_begin(b, "TransformerBlock");
  if (style->define_attention != NULL)
    style->define_attention(b, d, block);
  else
    define_attention(b, d, block);
  if (!style->mlp_last)
    define_feed_forward(b, d, block);
  for (int i = 0; i < NORM_PLACES; i++)
    if (style->norms[i] != NULL)
      p->norms[i] = norm_define(b, style->norms[i], style->norm, d->lm.hidden);
  if (style->mlp_last)
    define_feed_forward(b, d, block);
  for (int i = 0; i < 2 && style->dropout_modules[i] != NULL; i++) {
    p->dropout[i] = builder_module(b, style->dropout_modules[i], "Dropout");
    builder_module_end(b);
  }
  builder_block_end(b);
}

/* As causal_lm_define_embedding, with a buffer perhaps. */
static void
define_embedding(Builder *b, Decoder *d)
{
  CausalLm *lm = &d->lm;
  const char *name = d->style.names[NAME_EMBEDDING];
  if (!d->style.embedding_buffer) {
    causal_lm_define_embedding(b, lm, name);
    return;
  }
  lm->embedding_module = builder_module(b, name, "ScaledWordEmbedding");
  lm->embedding_weight = builder_parameter(b, "weight", 2, lm->vocabulary, lm->hidden);
  g_autofree char *buffer = g_strdup_printf("model.%s.embed_scale", name);
  builder_buffer(b, buffer, builder_shape(b)->precision.stored, 1);
  builder_module_end(b);
}

static void
define_modules(Builder *b, Decoder *d)
{
  const char *const *names = d->style.names;
  CausalLm *lm = &d->lm;
  builder_module(b, "model", d->style.model_class != NULL ? d->style.model_class : "Model");
  define_embedding(b, d);
  builder_module(b, "layers", "ModuleList");
  d->blocks = g_new0(DecoderBlock, lm->layers);
  for (int i = 0; i < lm->layers; i++)
    define_block(b, d, i);
  builder_module_end(b);
  d->norm = norm_define(b, "norm", d->style.norm, lm->hidden);
  lm->norm_weight = d->norm.weight;
  lm->norm_module = d->norm.module;
  transformers_define_rotary(b, lm);
  builder_module_end(b);
  causal_lm_define_head(b, lm, names[NAME_HEAD]);
}

/* ---- around the blocks ---- */

/* Times a buffer, a number in the dtype that the model was made in: a copy in the weight's first,
 * where that is another one (transformers 5.24, GemmaTextScaledWordEmbedding.forward). */
static Val
scale_by_buffer(Builder *b, const CausalLm *lm, Val x)
{
  const NetworkShape *shape = builder_shape(b);
  const double factor = sqrt((double) lm->hidden);
  DType buffer = shape->casts_buffers ? shape->precision.weights : shape->precision.stored;
  if (buffer == shape->precision.weights)
    return unary_with(b, OP_MUL_SCALAR, x, "value", factor);
  const Creation root = {"fill", "value", factor};
  Val scale =
      create_as(b, "embedding scale", value_shape(shape->precision.weights, 0), &root, NO_VAL);
  return binary(b, OP_MUL, x, scale);
}

static Val
embed(Builder *b, const CausalLm *lm, Val tokens)
{
  const Decoder *d = (const Decoder *) lm;
  const DecoderStyle *style = &d->style;
  if (!style->embedding_buffer) {
    Val x = embedding(b, lm->embedding_weight, tokens);
    return style->embedding_scale != NULL
               ? unary_with(b, OP_MUL_SCALAR, x, "value", d->embedding_factor)
               : x;
  }
  tokens = call_module(b, lm->embedding_module, tokens);
  Val weight = builder_weight(b, lm->embedding_weight);
  Val x = builder_op(b, OP_EMBEDDING, NULL, 2, (Val[]){weight, tokens});
  return builder_leave(b, scale_by_buffer(b, lm, x));
}

static Val
drop_embeddings(Builder *b, const CausalLm *lm, Val x)
{
  const Decoder *d = (const Decoder *) lm;
  const DecoderStyle *style = &d->style;
  if (style->embedding_scale_late != NULL)
    x = let(b, "inputs_embeds", unary_with(b, OP_MUL_SCALAR, x, "value", d->embedding_factor));
  return dropout(b, style->embedding_dropout, x);
}

static Val
final_norm(Builder *b, const CausalLm *lm, Val x)
{
  return norm_apply(b, x, &((const Decoder *) lm)->norm);
}

static Val
adjust_logits(Builder *b, const CausalLm *lm, Val logits)
{
  const Decoder *d = (const Decoder *) lm;
  const DecoderStyle *style = &d->style;
  if (style->logits_scale != NULL)
    logits =
        let(b, "logits", unary_with(b, style->logits_scale_op, logits, "value", d->logits_factor));
  return style->caps_logits > 0 ? transformers_soft_cap(b, "logits", logits, style->caps_logits)
                                : logits;
}

/* ---- config.json ---- */

double
decoder_read_dropout(const Decoder *d, NetworkSpec *spec, const char *name)
{
  return causal_lm_read_dropout(spec, name, 0, d->evaluation);
}

double
decoder_read_cap(NetworkSpec *spec, const char *name, double fallback)
{
  const cJSON *value = json_reader_raw(spec->reader, name);
  if (value != NULL && cJSON_IsNull(value))
    return 0;
  double cap = network_spec_double(spec, name, fallback);
  if (cap < 0)
    network_spec_fail(spec, name, "%.17g is not a positive number", cap);
  return cap;
}

void
decoder_mark_layer(Decoder *d, int block, guint8 kind)
{
  if (d->lm.layer_kinds == NULL)
    d->lm.layer_kinds = g_new0(guint8, d->lm.layers);
  d->lm.layer_kinds[block] |= kind;
}

/* layer_types as a list of names; FALSE: there is none. */
static gboolean
read_types(Decoder *d, NetworkSpec *spec)
{
  static const char name[] = "layer_types";
  const cJSON *list = json_reader_raw(spec->reader, name), *item;
  int block = 0;
  if (list == NULL || cJSON_IsNull(list))
    return FALSE;
  cJSON_ArrayForEach(item, list)
  {
    const char *type = cJSON_IsString(item) ? item->valuestring : "";
    gboolean windowed = strcmp(type, "sliding_attention") == 0;
    if (!windowed && strcmp(type, "full_attention") != 0)
      network_spec_fail(spec, name, "'%.60s' is not one of full_attention, sliding_attention",
                        type);
    if (windowed && block < d->lm.layers)
      decoder_mark_layer(d, block, LAYER_WINDOWED);
    block++;
  }
  if (!cJSON_IsArray(list) || block < d->lm.layers)
    network_spec_fail(spec, name, "must be a list of one name for each of %d layers",
                      (int) d->lm.layers);
  return TRUE;
}

void
decoder_read_layer_types(Decoder *d, NetworkSpec *spec, gboolean (*windowed)(int, gint64),
                         gint64 number)
{
  gboolean any = FALSE;
  decoder_mark_layer(d, 0, 0);
  if (!read_types(d, spec))
    for (int i = 0; i < d->lm.layers && windowed != NULL; i++)
      if (windowed(i, number))
        decoder_mark_layer(d, i, LAYER_WINDOWED);
  for (int i = 0; i < d->lm.layers; i++)
    any |= (d->lm.layer_kinds[i] & LAYER_WINDOWED) != 0;
  if (!any)
    d->lm.window = 0;
}

static gboolean
is_not_last_of(int block, gint64 pattern)
{
  return (block + 1) % pattern != 0;
}

void
decoder_read_window_pattern(Decoder *d, NetworkSpec *spec, gint64 pattern)
{
  d->lm.mask_kwargs = TRUE;
  d->lm.window = network_spec_int(spec, "sliding_window", 4096);
  decoder_read_layer_types(d, spec, is_not_last_of, pattern);
}

static gboolean
from_layer(int block, gint64 first)
{
  return block >= first;
}

void
decoder_read_last_windows(Decoder *d, NetworkSpec *spec)
{
  d->lm.mask_kwargs = TRUE;
  if (!network_spec_bool(spec, "use_sliding_window", FALSE))
    return;
  d->lm.window = network_spec_int(spec, "sliding_window", 4096);
  decoder_read_layer_types(d, spec, from_layer, network_spec_int(spec, "max_window_layers", 28));
}

static double
read_factor(NetworkSpec *spec, const char *name)
{
  return name != NULL ? network_spec_double(spec, name, 1) : 1;
}

static void
read_factors(Decoder *d, NetworkSpec *spec)
{
  const DecoderStyle *style = &d->style;
  d->embedding_factor = read_factor(
      spec, style->embedding_scale != NULL ? style->embedding_scale : style->embedding_scale_late);
  d->residual_factor = read_factor(spec, style->residual_scale);
  d->logits_factor = read_factor(spec, style->logits_scale);
}

static gboolean
read_config(Decoder *d, NetworkSpec *spec, const NetworkShape *shape, GError **error)
{
  CausalLm *lm = &d->lm;
  DecoderStyle *style = &d->style;
  d->evaluation = shape->evaluation;
  fill_in_names(style);
  lm->heads = style->heads;
  lm->vocabulary = style->vocabulary;
  causal_lm_read(lm, spec, shape);
  transformers_check_only(spec);
  transformers_check_rope(spec);
  if (lm->layers > BUILDER_MOST_BLOCKS) /* before anything is allocated for them */
    return causal_lm_check(lm, 1, spec, error);
  d->kv_heads = network_spec_int(spec, "num_key_value_heads",
                                 style->kv_heads > 0 ? style->kv_heads : lm->heads);
  d->ffn = network_spec_int(spec, "intermediate_size", -1);
  gint64 share = MAX(lm->hidden / MAX(lm->heads, 1), 1);
  lm->head_dim = network_spec_int(spec, "head_dim", style->head_dim > 0 ? style->head_dim : share);
  lm->tied = network_spec_bool(spec, "tie_word_embeddings", style->tied);
  lm->rotary.wide = style->rotary == ROTATE_HALF_WIDE;
  lm->rotary.neighbours = style->rotary == ROTATE_INTERLEAVED_WIDE;
  transformers_rope_read(lm, spec, style->rotary_part);
  d->activation = activation_read(
      spec, style->activation_field != NULL ? style->activation_field : "hidden_act",
      style->activation != NULL ? style->activation : "silu");
  if (style->attention_bias_field)
    style->qkv_bias = style->o_bias = network_spec_bool(spec, "attention_bias", FALSE);
  if (style->mlp_bias_field)
    style->mlp_bias = network_spec_bool(spec, "mlp_bias", FALSE);
  lm->attention_dropout = decoder_read_dropout(d, spec, "attention_dropout");
  if (style->norm == NORM_RMS && lm->impl.rms_norm == RMS_NORM_FUSED)
    style->norm = NORM_RMS_FUSED;
  network_spec_expect(spec, "use_bidirectional_attention", FALSE,
                      "attention to later tokens is not supported");
  read_factors(d, spec);
  if (style->read != NULL)
    style->read(d, spec);
  causal_lm_check_matrix(spec, "intermediate_size", d->ffn, lm->hidden);
  return causal_lm_check(lm, d->kv_heads, spec, error);
}

/* ---- a network ---- */

static Network *
build(Decoder *d, NetworkSpec *spec, const NetworkShape *shape, GError **error)
{
  if (!read_config(d, spec, shape, error))
    return NULL;
  Builder *b = builder_new(spec->name, shape);
  define_modules(b, d);
  CausalLm *lm = &d->lm;
  lm->embed = embed;
  lm->norm = final_norm;
  lm->adjust_logits = adjust_logits;
  lm->embedding_drop = drop_embeddings;
  lm->block = d->style.block != NULL ? d->style.block : decoder_block;
  transformers_write(b, lm);
  return builder_finish(b, error);
}

Network *
decoder_build(Decoder *d, NetworkSpec *spec, const NetworkShape *shape, GError **error)
{
  Network *network = build(d, spec, shape, error);
  g_clear_pointer(&d->blocks, g_free);
  g_clear_pointer(&d->lm.layer_kinds, g_free);
  return network;
}

Network *
decoder_build_style(const DecoderStyle *style, NetworkSpec *spec, const NetworkShape *shape,
                    GError **error)
{
  Decoder d = {.style = *style};
  return decoder_build(&d, spec, shape, error);
}
