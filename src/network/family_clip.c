/* family_clip.c - CLIP: a tower for texts and one for images, whose projections are compared by a
 * contrastive loss. */

#include "network/causal_lm.h"
#include "network/family.h"
#include "network/transformers_activation.h"
#include "network/transformers_encoder.h"

typedef struct {
  Linear q, k, v, o, up, down;
  int norm1, norm2, attention, mlp, activation;
} LayerParts;

/* What both towers have. */
typedef struct {
  gint64 width, heads, ffn, length;
  int first, count; /* blocks */
  double dropout;
  const Activation *activation;
  int model, embeddings, encoder, positions;
  gboolean causal;
} Tower;

enum { TEXT, IMAGE, TOWERS };

typedef struct {
  Tower tower[TOWERS];
  gint64 batch, vocabulary, positions, image, patch, channels, projection;
  gboolean last_is_largest; /* the end of a text is its largest token */
  AttentionCode attention;
  int words, class, final_norm, first_norm, last_norm, scale;
  Convolution patches;
  Linear project[TOWERS];
  LayerParts *layer;
} Clip;

/* ---- modules, in order of definition ---- */

static LayerParts
define_layer(Builder *b, const Tower *t)
{
  LayerParts p = {0};
  builder_block_begin(b, "CLIPEncoderLayer");
  p.attention = builder_module(b, "self_attn", "CLIPAttention");
  p.k = define_linear(b, "k_proj", t->width, t->width, TRUE);
  p.v = define_linear(b, "v_proj", t->width, t->width, TRUE);
  p.q = define_linear(b, "q_proj", t->width, t->width, TRUE);
  p.o = define_linear(b, "out_proj", t->width, t->width, TRUE);
  builder_module_end(b);
  p.norm1 = define_norm(b, "layer_norm1", "LayerNorm", t->width, TRUE);
  p.mlp = builder_module(b, "mlp", "CLIPMLP");
  p.activation = activation_define(b, t->activation, "activation_fn");
  p.up = define_linear(b, "fc1", t->ffn, t->width, TRUE);
  p.down = define_linear(b, "fc2", t->width, t->ffn, TRUE);
  builder_module_end(b);
  p.norm2 = define_norm(b, "layer_norm2", "LayerNorm", t->width, TRUE);
  builder_block_end(b);
  return p;
}

static void
define_encoder(Builder *b, Clip *m, Tower *t)
{
  t->encoder = builder_module(b, "encoder", "CLIPEncoder");
  builder_module(b, "layers", "ModuleList");
  for (int i = 0; i < t->count; i++)
    m->layer[t->first + i] = define_layer(b, t);
  builder_module_end(b);
  builder_module_end(b);
}

static void
define_text(Builder *b, Clip *m)
{
  Tower *t = &m->tower[TEXT];
  t->model = builder_module(b, "text_model", "CLIPTextModel");
  t->embeddings = builder_module(b, "embeddings", "CLIPTextEmbeddings");
  m->words = encoder_define_embedding(b, "token_embedding", m->vocabulary, t->width);
  t->positions = encoder_define_embedding(b, "position_embedding", m->positions, t->width);
  builder_buffer(b, "text_model.position_ids", DTYPE_INT64, m->positions);
  builder_module_end(b);
  define_encoder(b, m, t);
  m->final_norm = define_norm(b, "final_layer_norm", "LayerNorm", t->width, TRUE);
  builder_module_end(b);
}

static void
define_image(Builder *b, Clip *m)
{
  Tower *t = &m->tower[IMAGE];
  t->model = builder_module(b, "vision_model", "CLIPVisionModel");
  t->embeddings = builder_module(b, "embeddings", "CLIPVisionEmbeddings");
  m->class = builder_parameter(b, "class_embedding", 1, t->width);
  m->patches = define_convolution(
      b, "patch_embedding", t->width, m->channels, 2,
      &(Convolution){.kernel = m->patch, .stride = m->patch, .bias = -1, .transposed = TRUE});
  t->positions = encoder_define_embedding(b, "position_embedding", t->length, t->width);
  builder_buffer(b, "vision_model.position_ids", DTYPE_INT64, t->length);
  builder_module_end(b);
  m->first_norm = define_norm(b, "pre_layrnorm", "LayerNorm", t->width, TRUE);
  define_encoder(b, m, t);
  m->last_norm = define_norm(b, "post_layernorm", "LayerNorm", t->width, TRUE);
  builder_module_end(b);
}

static void
define_modules(Builder *b, Clip *m)
{
  m->layer = g_new(LayerParts, m->tower[TEXT].count + m->tower[IMAGE].count);
  m->scale = builder_parameter(b, "logit_scale", 0);
  define_text(b, m);
  define_image(b, m);
  m->project[IMAGE] =
      define_linear(b, "visual_projection", m->projection, m->tower[IMAGE].width, FALSE);
  m->project[TEXT] =
      define_linear(b, "text_projection", m->projection, m->tower[TEXT].width, FALSE);
}

/* ---- forward() of a layer ---- */

static Val
attention_part(Builder *b, const Clip *m, const Tower *t, const LayerParts *p, Val x, Val mask,
               Val *weights)
{
  x = call_module_by_keyword(b, p->attention, x);
  Val qkv[3];
  static const char *const names[] = {"queries", "keys", "values"};
  const Linear *const projections[] = {&p->q, &p->k, &p->v};
  for (int i = 0; i < 3; i++)
    qkv[i] = let(b, names[i], linear(b, x, *projections[i]));
  for (int i = 0; i < 3; i++)
    qkv[i] = let(b, names[i], encoder_heads(b, qkv[i], t->heads));
  EncoderAttention how = {.code = m->attention,
                          .heads = t->heads,
                          .dropout = t->dropout,
                          .causal = t->causal,
                          .wide_softmax = TRUE,
                          .bias = NO_VAL,
                          .mask = mask};
  Val o = encoder_attend_merged(b, &how, qkv, weights);
  o = let(b, "attn_output", linear(b, o, p->o));
  return builder_leave_beside(b, o, weights);
}

static Val
mlp(Builder *b, const Tower *t, const LayerParts *p, Val x)
{
  x = call_module(b, p->mlp, x);
  x = let(b, "hidden_states", linear(b, x, p->up));
  x = let(b, "hidden_states", activation_call(b, t->activation, p->activation, x));
  return builder_leave(b, let(b, "hidden_states", linear(b, x, p->down)));
}

static Val
layer(Builder *b, gconstpointer model, int block, const Val *args)
{
  const Clip *m = model;
  const Tower *t = &m->tower[block >= m->tower[IMAGE].first ? IMAGE : TEXT];
  const LayerParts *p = &m->layer[block];
  gboolean masked = t->causal && m->attention == ATTENTION_EAGER;
  Val weights;
  builder_enter(b, 1, (const char *const[]){"hidden_states"}, args);
  Val residual = let(b, "residual", args[0]);
  Val x = let(b, "hidden_states", layer_norm(b, residual, p->norm1));
  x = let(b, "hidden_states", attention_part(b, m, t, p, x, masked ? args[1] : NO_VAL, &weights));
  if (weights.slot != NO_VAL.slot)
    let(b, "_", weights);
  x = let(b, "hidden_states", binary(b, OP_ADD, residual, x));
  residual = let(b, "residual", x);
  x = let(b, "hidden_states", layer_norm(b, x, p->norm2));
  x = let(b, "hidden_states", mlp(b, t, p, x));
  x = let(b, "hidden_states", binary(b, OP_ADD, residual, x));
  return builder_leave(b, x);
}

static Val
encode(Builder *b, const Clip *m, int tower, Val x, Val mask)
{
  const Tower *t = &m->tower[tower];
  const BlockCode code = {.forward = layer, .model = m, .kind = tower};
  x = call_module_by_keyword(b, t->encoder, x);
  for (int i = 0; i < t->count; i++) {
    Val args[2] = {x, mask};
    int n = mask.slot == NO_VAL.slot ? 1 : 2;
    x = let(b, "hidden_states", builder_block_call(b, t->first + i, &code, n, args));
  }
  return builder_leave(b, x);
}

/* ---- forward() of the towers ---- */

static Val
buffered_positions(Builder *b, const Tower *t)
{
  return buffer_value(b, value_shape(DTYPE_INT64, 2, (gint64) 1, t->length));
}

static Val
embed_image(Builder *b, const Clip *m, Val pixels)
{
  const Tower *t = &m->tower[IMAGE];
  pixels = call_module(b, t->embeddings, pixels);
  if (!builder_shape(b)->precision.autocast)
    pixels = encoder_as_weights(b, pixels);
  Val x = let(b, "patch_embeds", convolution(b, pixels, &m->patches));
  x = let(b, "patch_embeds", transpose(b, view(b, x, 3, m->batch, t->width, t->length - 1)));
  Val class = view(b, builder_weight(b, m->class), 3, (gint64) 1, (gint64) 1, t->width);
  class = let(b, "class_embeds", encoder_expand_rows(b, class, m->batch));
  x = let(b, "embeddings", encoder_cat_rows(b, class, x));
  Val places = embedding(b, t->positions, buffered_positions(b, t));
  x = let(b, "embeddings", binary(b, OP_ADD, x, places));
  return builder_leave(b, x);
}

static Val
image_tower(Builder *b, const Clip *m, Val pixels)
{
  builder_module_call_by_keyword(b, m->tower[IMAGE].model, &pixels);
  Val x = let(b, "hidden_states", embed_image(b, m, pixels));
  x = let(b, "hidden_states", layer_norm(b, x, m->first_norm));
  x = let(b, "last_hidden_state", encode(b, m, IMAGE, x, NO_VAL));
  Val pooled = let(b, "pooled_output", select_at(b, x, 1, 0));
  pooled = let(b, "pooled_output", layer_norm(b, pooled, m->last_norm));
  return builder_leave(b, pooled);
}

static Val
embed_text(Builder *b, const Clip *m, Val tokens)
{
  const Tower *t = &m->tower[TEXT];
  builder_module_call_by_keyword(b, t->embeddings, &tokens);
  Val words = let(b, "inputs_embeds", embedding(b, m->words, tokens));
  Val places = let(b, "position_embeddings", embedding(b, t->positions, buffered_positions(b, t)));
  return builder_leave(b, let(b, "embeddings", binary(b, OP_ADD, words, places)));
}

/* The state at each text's end: where its largest token is, or the first that ends a text. */
static Val
pool_text(Builder *b, const Clip *m, Val x)
{
  ValueInfo row = value_shape(DTYPE_INT64, 1, m->batch);
  gint64 tokens = m->batch * m->tower[TEXT].length;
  Val rows = create(b, "arange", row);
  Val narrow = create(b, "tokens", value_shape(DTYPE_INT32, 1, tokens));
  if (!m->last_is_largest) {
    Val ends = create(b, "is the end", value_shape(DTYPE_BOOL, 1, tokens));
    builder_discard(b, narrow);
    narrow = create(b, "is the end", value_shape(DTYPE_INT32, 1, tokens));
    builder_discard(b, ends);
  }
  Val places = create(b, "ends", row);
  builder_discard(b, narrow);
  return builder_op(b, OP_INDEX, NULL, 3, (Val[]){x, rows, places});
}

/* Results: what is pooled, and the last hidden state, which the output holds. */
static void
text_tower(Builder *b, const Clip *m, Val tokens, Val results[2])
{
  builder_module_call_by_keyword(b, m->tower[TEXT].model, &tokens);
  Val x = let(b, "hidden_states", embed_text(b, m, tokens));
  Val mask = encoder_causal_mask(b, m->attention, m->batch, m->tower[TEXT].length, FALSE);
  x = let(b, "last_hidden_state", encode(b, m, TEXT, x, mask));
  results[1] = let(b, "last_hidden_state", layer_norm(b, x, m->final_norm));
  results[0] = let(b, "pooled_output", pool_text(b, m, results[1]));
  builder_leave_with(b, 2, results);
}

/* ---- the loss ---- */

/* x / (x^2 summed up)^0.5 */
static Val
normalize(Builder *b, Val x)
{
  builder_call(b, 0, NULL);
  Val square = let(b, "square_tensor", unary(b, OP_POW, x));
  Val sum = let(b, "sum_tensor", reduce_last(b, OP_SUM, square));
  Val norm = builder_leave(b, let(b, "normed_tensor", unary(b, OP_POW, sum)));
  return binary(b, OP_DIV, x, norm);
}

static Val
contrast(Builder *b, const Clip *m, Val logits)
{
  Val labels = create(b, "arange", value_shape(DTYPE_INT64, 1, m->batch));
  Val loss = cross_entropy(b, logits, (Val){labels.slot, FALSE});
  builder_discard(b, labels);
  return loss;
}

static Val
contrastive_loss(Builder *b, const Clip *m, Val logits)
{
  builder_call(b, 0, NULL);
  Val captions = let(b, "caption_loss", contrast(b, m, logits));
  Val images = let(b, "image_loss", contrast(b, m, transpose(b, logits)));
  return builder_leave(b, unary(b, OP_DIV_SCALAR, binary(b, OP_ADD, captions, images)));
}

static int
compare(Builder *b, gconstpointer model, const Val *inputs, Val *results)
{
  const Clip *m = model;
  Val text[2];
  builder_call(b, 0, NULL);
  Val image = let(b, "image_embeds", linear(b, image_tower(b, m, inputs[1]), m->project[IMAGE]));
  text_tower(b, m, inputs[0], text);
  Val last = let(b, "text_outputs", text[1]);
  Val words = let(b, "text_embeds", linear(b, text[0], m->project[TEXT]));
  image = let(b, "image_embeds", normalize(b, image));
  words = let(b, "text_embeds", normalize(b, words));
  Val columns = transpose(b, image);
  Val logits = builder_op(b, OP_MM, NULL, 2, (Val[]){words, columns});
  logits = let(b, "logits_per_text", logits);
  Val scale = unary(b, OP_EXP, builder_weight(b, m->scale));
  results[1] = let(b, "logits_per_text", binary(b, OP_MUL, logits, scale));
  results[0] = let(b, "loss", contrastive_loss(b, m, results[1]));
  results[2] = last;
  builder_leave_with(b, 3, results);
  return 3;
}

/* ---- config.json ---- */

/* text_config or vision_config as a description of its own; the caller frees its reader. */
static NetworkSpec
inner_spec(NetworkSpec *spec, const char *name)
{
  NetworkSpec inner = *spec;
  inner.reader = json_reader_section(spec->reader, name);
  json_reader_allow_unknown(inner.reader);
  return inner;
}

static void
read_tower(Tower *t, NetworkSpec *inner, const NetworkShape *shape, const gint64 defaults[3])
{
  t->width = network_spec_int(inner, "hidden_size", defaults[0]);
  t->heads = network_spec_int(inner, "num_attention_heads", defaults[1]);
  t->ffn = network_spec_int(inner, "intermediate_size", defaults[2]);
  gint64 layers = network_spec_int(inner, "num_hidden_layers", 12);
  t->activation = activation_read(inner, "hidden_act", "quick_gelu");
  t->dropout = encoder_read_dropout(inner, shape, "attention_dropout", 0);
  causal_lm_check_width(inner, "num_attention_heads", t->heads, t->width);
  causal_lm_check_layers(inner, "num_hidden_layers", layers);
  causal_lm_check_matrix(inner, "intermediate_size", t->ffn, t->width);
  causal_lm_check_matrix(inner, "hidden_size", t->width, t->width);
  t->count = (int) MIN(layers, BUILDER_MOST_BLOCKS);
}

static void
read_text(Clip *m, NetworkSpec *spec, const NetworkShape *shape)
{
  enum { OLD_END = 2, END = 49407 };
  static const gint64 defaults[] = {512, 8, 2048};
  NetworkSpec inner = inner_spec(spec, "text_config");
  Tower *t = &m->tower[TEXT];
  read_tower(t, &inner, shape, defaults);
  t->causal = TRUE;
  m->vocabulary = network_spec_int(&inner, "vocab_size", 49408);
  m->positions = network_spec_int(&inner, "max_position_embeddings", 77);
  m->last_is_largest = network_spec_int(&inner, "eos_token_id", END) == OLD_END;
  t->length = encoder_length(&inner, shape, "max_position_embeddings", m->positions);
  causal_lm_check_matrix(&inner, "vocab_size", m->vocabulary, t->width);
  causal_lm_check_matrix(&inner, "max_position_embeddings", m->positions, t->width);
  json_reader_free(inner.reader);
}

static void
read_image(Clip *m, NetworkSpec *spec, const NetworkShape *shape)
{
  static const gint64 defaults[] = {768, 12, 3072};
  NetworkSpec inner = inner_spec(spec, "vision_config");
  Tower *t = &m->tower[IMAGE];
  read_tower(t, &inner, shape, defaults);
  m->image = network_spec_int(&inner, "image_size", 224);
  m->patch = network_spec_int(&inner, "patch_size", 32);
  m->channels = network_spec_int(&inner, "num_channels", 3);
  encoder_check_image(&inner, m->image, m->patch, m->channels);
  t->length = (m->image / m->patch) * (m->image / m->patch) + 1;
  json_reader_free(inner.reader);
}

static gboolean
read_config(Clip *m, NetworkSpec *spec, const NetworkShape *shape, GError **error)
{
  read_text(m, spec, shape);
  read_image(m, spec, shape);
  m->tower[IMAGE].first = m->tower[TEXT].count;
  m->projection = network_spec_int(spec, "projection_dim", 512);
  m->attention = spec->implementation.attention;
  m->batch = shape->micro_batch;
  encoder_expect_class(spec, "CLIPModel", NULL);
  encoder_check(spec, shape);
  causal_lm_check_matrix(spec, "projection_dim", m->projection,
                         MAX(m->tower[TEXT].width, m->tower[IMAGE].width));
  return json_reader_finish(spec->reader, error);
}

static Network *
build(NetworkSpec *spec, const NetworkShape *shape, GError **error)
{
  Clip m = {0};
  if (!read_config(&m, spec, shape, error))
    return NULL;
  Builder *b = builder_new(spec->name, shape);
  define_modules(b, &m);
  ValueInfo tokens = value_shape(DTYPE_INT64, 2, m.batch, m.tower[TEXT].length);
  ValueInfo pixels = value_shape(DTYPE_FP32, 4, m.batch, m.channels, m.image, m.image);
  transformers_write_root(b, &(TransformersRoot){2, {tokens, pixels}, compare, &m, TRUE});
  Network *network = builder_network(b);
  const Tower *text = &m.tower[TEXT], *image = &m.tower[IMAGE];
  network->vocabulary = m.vocabulary;
  network->stacks = 2;
  network->hidden = network->attention_width = image->width;
  network->embedding_parameters =
      (m.vocabulary + m.positions) * text->width + (image->length + 1) * image->width;
  network->positions = text->length + image->length;
  g_free(m.layer);
  return builder_finish(b, error);
}

const NetworkFamily family_clip = {
    .name = "clip",
    .summary = "CLIP: towers for texts and images under a contrastive loss",
    .model_types = (const char *const[]){"clip", NULL},
    .limits_length = TRUE,
    .build = build,
};
