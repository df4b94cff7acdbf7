/* family_vit.c - the vision transformer as an image classifier: patches by a convolution, a class
 * token, learned positions, LayerNorm before each residual. */
#include <string.h>

#include "network/causal_lm.h"
#include "network/family.h"
#include "network/model_call.h"
#include "network/transformers_activation.h"
#include "network/transformers_encoder.h"

typedef struct {
  Linear q, k, v, o, up, down;
  int norm1, norm2, attention, mlp, activation, drop;
} LayerParts;

typedef struct {
  gint64 hidden, layers, heads, ffn, image, patch, channels, labels, batch;
  gboolean qkv_bias;
  double hidden_dropout, attention_dropout;
  const Activation *activation;
  AttentionCode attention;
  int model, embeddings, patches, embedding_drop, class_token, positions, norm;
  Convolution projection;
  Linear classifier;
  LayerParts *parts;
} Vit;

static gint64
patch_count(const Vit *m)
{
  return (m->image / m->patch) * (m->image / m->patch);
}

/* ---- modules, in order of definition ---- */

static void
define_embeddings(Builder *b, Vit *m)
{
  m->embeddings = builder_module(b, "embeddings", "ViTEmbeddings");
  m->class_token = builder_parameter(b, "cls_token", 3, (gint64) 1, (gint64) 1, m->hidden);
  m->positions =
      builder_parameter(b, "position_embeddings", 3, (gint64) 1, patch_count(m) + 1, m->hidden);
  m->patches = builder_module(b, "patch_embeddings", "ViTPatchEmbeddings");
  m->projection = define_convolution(
      b, "projection", m->hidden, m->channels, 2,
      &(Convolution){.kernel = m->patch, .stride = m->patch, .transposed = TRUE});
  builder_module_end(b);
  m->embedding_drop = encoder_define_dropout(b);
  builder_module_end(b);
}

static LayerParts
define_layer(Builder *b, const Vit *m)
{
  LayerParts p = {0};
  builder_block_begin(b, "ViTLayer");
  p.attention = builder_module(b, "attention", "ViTAttention");
  p.q = define_linear(b, "q_proj", m->hidden, m->hidden, m->qkv_bias);
  p.k = define_linear(b, "k_proj", m->hidden, m->hidden, m->qkv_bias);
  p.v = define_linear(b, "v_proj", m->hidden, m->hidden, m->qkv_bias);
  p.o = define_linear(b, "o_proj", m->hidden, m->hidden, TRUE);
  builder_module_end(b);
  p.norm1 = define_norm(b, "layernorm_before", "LayerNorm", m->hidden, TRUE);
  p.norm2 = define_norm(b, "layernorm_after", "LayerNorm", m->hidden, TRUE);
  p.mlp = builder_module(b, "mlp", "ViTMLP");
  p.activation = activation_define(b, m->activation, "activation_fn");
  p.up = define_linear(b, "fc1", m->ffn, m->hidden, TRUE);
  p.down = define_linear(b, "fc2", m->hidden, m->ffn, TRUE);
  builder_module_end(b);
  p.drop = encoder_define_dropout(b);
  builder_block_end(b);
  return p;
}

static void
define_modules(Builder *b, Vit *m)
{
  m->model = builder_module(b, "vit", "ViTModel");
  define_embeddings(b, m);
  builder_module(b, "layers", "ModuleList");
  m->parts = g_new(LayerParts, m->layers);
  for (int i = 0; i < m->layers; i++)
    m->parts[i] = define_layer(b, m);
  builder_module_end(b);
  m->norm = define_norm(b, "layernorm", "LayerNorm", m->hidden, TRUE);
  builder_module_end(b);
  m->classifier = define_linear(b, "classifier", m->labels, m->hidden, TRUE);
}

/* ---- forward() ---- */

static Val
attention_part(Builder *b, const Vit *m, const LayerParts *p, Val x, Val *weights)
{
  x = call_module(b, p->attention, x);
  Val qkv[3];
  qkv[0] = let(b, "query_states", encoder_heads(b, linear(b, x, p->q), m->heads));
  qkv[1] = let(b, "key_states", encoder_heads(b, linear(b, x, p->k), m->heads));
  qkv[2] = let(b, "value_states", encoder_heads(b, linear(b, x, p->v), m->heads));
  EncoderAttention how = {.code = m->attention,
                          .heads = m->heads,
                          .dropout = m->attention_dropout,
                          .wide_softmax = TRUE,
                          .bias = NO_VAL,
                          .mask = NO_VAL};
  Val o = encoder_attend_merged(b, &how, qkv, weights);
  o = let(b, "attn_output", linear(b, o, p->o));
  return builder_leave_beside(b, o, weights);
}

static Val
mlp(Builder *b, const Vit *m, const LayerParts *p, Val x)
{
  x = call_module(b, p->mlp, x);
  x = let(b, "hidden_states", linear(b, x, p->up));
  x = let(b, "hidden_states", activation_call(b, m->activation, p->activation, x));
  x = let(b, "hidden_states", linear(b, x, p->down));
  return builder_leave(b, x);
}

static Val
layer(Builder *b, gconstpointer model, int block, const Val *args)
{
  const Vit *m = model;
  const LayerParts *p = &m->parts[block];
  Val weights;
  builder_enter(b, 1, (const char *const[]){"hidden_states"}, args);
  Val residual = let(b, "residual", args[0]);
  Val x = let(b, "hidden_states", layer_norm(b, residual, p->norm1));
  x = let(b, "hidden_states", attention_part(b, m, p, x, &weights));
  if (weights.slot != NO_VAL.slot)
    let(b, "_", weights);
  x = let(b, "hidden_states", encoder_dropout(b, p->drop, m->hidden_dropout, x));
  x = let(b, "hidden_states", binary(b, OP_ADD, x, residual));
  residual = let(b, "residual", x);
  x = let(b, "hidden_states", layer_norm(b, x, p->norm2));
  x = let(b, "hidden_states", mlp(b, m, p, x));
  x = let(b, "hidden_states", encoder_dropout(b, p->drop, m->hidden_dropout, x));
  x = let(b, "hidden_states", binary(b, OP_ADD, x, residual));
  return builder_leave(b, x);
}

/* projection(pixels).flatten(2).transpose(1, 2) */
static Val
patches(Builder *b, const Vit *m, Val pixels)
{
  pixels = call_module(b, m->patches, pixels);
  Val x = convolution(b, pixels, &m->projection);
  return builder_leave(b, transpose(b, view(b, x, 3, m->batch, m->hidden, patch_count(m))));
}

/* The class token comes first; positions are a parameter. */
static Val
embed(Builder *b, const Vit *m, Val pixels)
{
  pixels = call_module(b, m->embeddings, pixels);
  Val x = let(b, "embeddings", patches(b, m, pixels));
  Val class =
      let(b, "cls_tokens", encoder_expand_rows(b, builder_weight(b, m->class_token), m->batch));
  x = let(b, "embeddings", encoder_cat_rows(b, class, x));
  x = let(b, "embeddings", binary(b, OP_ADD, x, builder_weight(b, m->positions)));
  x = let(b, "embeddings", encoder_dropout(b, m->embedding_drop, m->hidden_dropout, x));
  return builder_leave(b, x);
}

static Val
base_model(Builder *b, const Vit *m, Val pixels)
{
  const BlockCode code = {.forward = layer, .model = m};
  builder_enter(b, 1, (const char *const[]){"pixel_values"}, &pixels);
  if (!builder_shape(b)->precision.autocast)
    pixels = let(b, "pixel_values", encoder_as_weights(b, pixels));
  Val x = let(b, "embedding_output", embed(b, m, pixels));
  x = let(b, "hidden_states", x);
  for (int i = 0; i < m->layers; i++)
    x = let(b, "hidden_states", builder_block_call(b, i, &code, 1, &x));
  x = let(b, "sequence_output", layer_norm(b, x, m->norm));
  return builder_leave(b, x);
}

static int
classify(Builder *b, gconstpointer model, const Val *inputs, Val *results)
{
  const Vit *m = model;
  Val pixels = inputs[0];
  builder_call(b, 0, NULL);
  builder_module_call(b, m->model, 1, &pixels);
  Val x = let(b, "outputs", builder_leave(b, base_model(b, m, pixels)));
  x = let(b, "pooled_output", select_at(b, x, 1, 0));
  results[1] = let(b, "logits", linear(b, x, m->classifier));
  Val items = model_call_items(b, inputs);
  Val loss = items.slot != NO_VAL.slot ? cross_entropy_of_items(b, results[1], inputs[1], items)
                                       : encoder_loss(b, results[1], inputs[1], m->labels);
  results[0] = let(b, "loss", loss);
  builder_leave_with(b, 2, results);
  return 2;
}

/* ---- config.json ---- */

/* Classes: given as a number or as names. */
static gint64
read_labels(NetworkSpec *spec)
{
  const cJSON *names = json_reader_raw(spec->reader, "id2label");
  gint64 named = cJSON_IsObject(names) ? cJSON_GetArraySize(names) : 2;
  gint64 labels = network_spec_int(spec, "num_labels", MAX(named, 1));
  if (labels == 1)
    network_spec_fail(spec, "num_labels", "1 makes a regression, which is not supported");
  const char *kind = network_spec_string(spec, "problem_type", "single_label_classification");
  if (strcmp(kind, "single_label_classification") != 0)
    network_spec_fail(spec, "problem_type",
                      "'%.60s' is not supported, only single_label_classification", kind);
  return labels;
}

static gboolean
read_config(Vit *m, NetworkSpec *spec, const NetworkShape *shape, GError **error)
{
  m->hidden = network_spec_int(spec, "hidden_size", 768);
  m->layers = network_spec_int(spec, "num_hidden_layers", 12);
  m->heads = network_spec_int(spec, "num_attention_heads", 12);
  m->ffn = network_spec_int(spec, "intermediate_size", 3072);
  m->image = network_spec_int(spec, "image_size", 224);
  m->patch = network_spec_int(spec, "patch_size", 16);
  m->channels = network_spec_int(spec, "num_channels", 3);
  m->labels = read_labels(spec);
  m->qkv_bias = network_spec_bool(spec, "qkv_bias", TRUE);
  m->activation = activation_read(spec, "hidden_act", "gelu");
  m->hidden_dropout = encoder_read_dropout(spec, shape, "hidden_dropout_prob", 0);
  m->attention_dropout = encoder_read_dropout(spec, shape, "attention_probs_dropout_prob", 0);
  m->attention = spec->implementation.attention;

  m->batch = shape->micro_batch;
  encoder_check(spec, shape);
  encoder_expect_class(spec, "ViTForImageClassification", NULL);
  causal_lm_check_width(spec, "num_attention_heads", m->heads, m->hidden);
  causal_lm_check_layers(spec, "num_hidden_layers", m->layers);
  encoder_check_image(spec, m->image, m->patch, m->channels);
  causal_lm_check_matrix(spec, "intermediate_size", m->ffn, m->hidden);
  causal_lm_check_matrix(spec, "num_labels", m->labels, m->hidden);
  return json_reader_finish(spec->reader, error);
}

static Network *
build(NetworkSpec *spec, const NetworkShape *shape, GError **error)
{
  Vit m = {0};
  if (!read_config(&m, spec, shape, error))
    return NULL;
  Builder *b = builder_new(spec->name, shape);
  define_modules(b, &m);
  ValueInfo pixels = value_shape(DTYPE_FP32, 4, m.batch, m.channels, m.image, m.image);
  ValueInfo labels = value_shape(DTYPE_INT64, 1, m.batch);
  transformers_write_root(b, &(TransformersRoot){2, {pixels, labels}, classify, &m, FALSE});
  Network *network = builder_network(b);
  network->hidden = network->attention_width = m.hidden;
  network->embedding_parameters = (patch_count(&m) + 2) * m.hidden;
  network->positions = patch_count(&m) + 1;
  g_free(m.parts);
  return builder_finish(b, error);
}

const NetworkFamily family_vit = {
    .name = "vit",
    .summary = "Vision transformers as image classifiers",
    .model_types = (const char *const[]){"vit", NULL},
    .limits_length = TRUE,
    .build = build,
};
