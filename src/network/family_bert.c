/* family_bert.c - BERT and RoBERTa: an encoder with learned positions, LayerNorm after each
 * residual and GELU, trained to fill in masked tokens. */
#include <string.h>

#include "network/causal_lm.h"
#include "network/family.h"
#include "network/transformers_activation.h"
#include "network/transformers_encoder.h"

/* Parameters (by index) and modules of a layer: linear layers of attention, its output and the two
 * of the feed-forward part. */
typedef struct {
  Linear q, k, v, o, up, down;
  int norm1, norm2;
  int attention, self, self_output, intermediate, output, activation, drop1, drop2;
} LayerParts;

typedef struct {
  gint64 hidden, layers, heads, ffn, vocabulary, positions, types, batch, length;
  double hidden_dropout, attention_dropout;
  const Activation *activation;
  AttentionCode attention;
  gboolean roberta;
  /* modules and parameters around the layers */
  int model, embeddings, encoder, embedding_drop, embedding_norm;
  int words, position_weight, type_weight;
  int masked_head; /* around the head; RoBERTa has none */
  int head, head_activation, head_norm, head_transform;
  Linear head_dense, decoder;
  LayerParts *parts;
} Bert;

/* ---- modules, in order of definition ---- */

static void
define_embeddings(Builder *b, Bert *m)
{
  m->embeddings = builder_module(b, "embeddings", "Embeddings");
  m->words = encoder_define_embedding(b, "word_embeddings", m->vocabulary, m->hidden);
  if (!m->roberta)
    m->position_weight =
        encoder_define_embedding(b, "position_embeddings", m->positions, m->hidden);
  m->type_weight = encoder_define_embedding(b, "token_type_embeddings", m->types, m->hidden);
  m->embedding_norm = define_norm(b, "LayerNorm", "LayerNorm", m->hidden, TRUE);
  m->embedding_drop = encoder_define_dropout(b);
  if (m->roberta)
    m->position_weight =
        encoder_define_embedding(b, "position_embeddings", m->positions, m->hidden);
  builder_buffer(b, "position_ids", DTYPE_INT64, m->positions);
  builder_buffer(b, "token_type_ids", DTYPE_INT64, m->positions);
  builder_module_end(b);
}

/* dense, LayerNorm, dropout: how both halves of a layer end. */
static int
define_output(Builder *b, const Bert *m, const char *type, gint64 width, Linear *dense, int *norm,
              int *drop)
{
  int module = builder_module(b, "output", type);
  *dense = define_linear(b, "dense", m->hidden, width, TRUE);
  *norm = define_norm(b, "LayerNorm", "LayerNorm", m->hidden, TRUE);
  *drop = encoder_define_dropout(b);
  builder_module_end(b);
  return module;
}

static LayerParts
define_layer(Builder *b, const Bert *m)
{
  LayerParts p = {0};
  builder_block_begin(b, m->roberta ? "RobertaLayer" : "BertLayer");
  p.attention = builder_module(b, "attention", "Attention");
  p.self = builder_module(b, "self", "SelfAttention");
  p.q = define_linear(b, "query", m->hidden, m->hidden, TRUE);
  p.k = define_linear(b, "key", m->hidden, m->hidden, TRUE);
  p.v = define_linear(b, "value", m->hidden, m->hidden, TRUE);
  encoder_define_dropout(b); /* only its probability is used */
  builder_module_end(b);
  p.self_output = define_output(b, m, "SelfOutput", m->hidden, &p.o, &p.norm1, &p.drop1);
  builder_module_end(b);
  p.intermediate = builder_module(b, "intermediate", "Intermediate");
  p.up = define_linear(b, "dense", m->ffn, m->hidden, TRUE);
  p.activation = activation_define(b, m->activation, "intermediate_act_fn");
  builder_module_end(b);
  p.output = define_output(b, m, "Output", m->ffn, &p.down, &p.norm2, &p.drop2);
  builder_block_end(b);
  return p;
}

/* The output layer has the embedding's weight, and its bias is the head's own parameter. */
static void
define_decoder(Builder *b, Bert *m, int bias)
{
  int module = builder_module(b, "decoder", "Linear");
  builder_tie(b, m->words);
  builder_tie(b, bias);
  builder_module_end(b);
  m->decoder = (Linear){.weight = m->words, .bias = bias, .module = module};
}

static void
define_bert_head(Builder *b, Bert *m)
{
  m->masked_head = builder_module(b, "cls", "BertOnlyMLMHead");
  m->head = builder_module(b, "predictions", "BertLMPredictionHead");
  int bias = builder_parameter(b, "bias", 1, m->vocabulary);
  m->head_transform = builder_module(b, "transform", "BertPredictionHeadTransform");
  m->head_dense = define_linear(b, "dense", m->hidden, m->hidden, TRUE);
  m->head_activation = activation_define(b, m->activation, "transform_act_fn");
  m->head_norm = define_norm(b, "LayerNorm", "LayerNorm", m->hidden, TRUE);
  builder_module_end(b);
  define_decoder(b, m, bias);
  builder_module_end(b);
  builder_module_end(b);
}

static void
define_roberta_head(Builder *b, Bert *m)
{
  m->head = builder_module(b, "lm_head", "RobertaLMHead");
  int bias = builder_parameter(b, "bias", 1, m->vocabulary);
  m->head_dense = define_linear(b, "dense", m->hidden, m->hidden, TRUE);
  m->head_norm = define_norm(b, "layer_norm", "LayerNorm", m->hidden, TRUE);
  define_decoder(b, m, bias);
  builder_module_end(b);
}

static void
define_modules(Builder *b, Bert *m)
{
  m->model =
      builder_module(b, m->roberta ? "roberta" : "bert", m->roberta ? "RobertaModel" : "BertModel");
  define_embeddings(b, m);
  m->encoder = builder_module(b, "encoder", "Encoder");
  builder_module(b, "layer", "ModuleList");
  m->parts = g_new(LayerParts, m->layers);
  for (int i = 0; i < m->layers; i++)
    m->parts[i] = define_layer(b, m);
  builder_module_end(b);
  builder_module_end(b);
  builder_module_end(b);
  if (m->roberta)
    define_roberta_head(b, m);
  else
    define_bert_head(b, m);
}

/* ---- forward() ---- */

static Val
self_attention(Builder *b, const Bert *m, const LayerParts *p, Val x, Val *weights)
{
  x = call_module(b, p->self, x);
  Val qkv[3];
  qkv[0] = let(b, "query_layer", encoder_heads(b, linear(b, x, p->q), m->heads));
  qkv[1] = let(b, "key_layer", encoder_heads(b, linear(b, x, p->k), m->heads));
  qkv[2] = let(b, "value_layer", encoder_heads(b, linear(b, x, p->v), m->heads));
  EncoderAttention how = {.code = m->attention,
                          .heads = m->heads,
                          .dropout = m->attention_dropout,
                          .bias = NO_VAL,
                          .mask = NO_VAL};
  Val o = encoder_attend_merged(b, &how, qkv, weights);
  return builder_leave_beside(b, o, weights);
}

/* LayerNorm(dropout(dense(x)) + input) */
static Val
output(Builder *b, const Bert *m, int module, const Linear *dense, int norm, int drop, Val x,
       Val input)
{
  Val args[2] = {x, input};
  builder_module_call(b, module, 2, args);
  x = let(b, "hidden_states", linear(b, args[0], *dense));
  x = let(b, "hidden_states", encoder_dropout(b, drop, m->hidden_dropout, x));
  x = let(b, "hidden_states", layer_norm(b, binary(b, OP_ADD, x, args[1]), norm));
  return builder_leave(b, x);
}

static Val
attention_part(Builder *b, const Bert *m, const LayerParts *p, Val x, Val *weights)
{
  x = call_module(b, p->attention, x);
  Val o = let(b, "attention_output", self_attention(b, m, p, x, weights));
  if (weights->slot != NO_VAL.slot)
    *weights = let(b, "attn_weights", *weights);
  o = let(b, "attention_output", output(b, m, p->self_output, &p->o, p->norm1, p->drop1, o, x));
  return builder_leave_beside(b, o, weights);
}

static Val
intermediate(Builder *b, const Bert *m, const LayerParts *p, Val x)
{
  x = call_module(b, p->intermediate, x);
  x = let(b, "hidden_states", linear(b, x, p->up));
  x = let(b, "hidden_states", activation_call(b, m->activation, p->activation, x));
  return builder_leave(b, x);
}

static Val
layer(Builder *b, gconstpointer model, int block, const Val *args)
{
  const Bert *m = model;
  const LayerParts *p = &m->parts[block];
  Val weights;
  builder_call(b, 0, NULL);
  Val a = let(b, "self_attention_output", attention_part(b, m, p, args[0], &weights));
  if (weights.slot != NO_VAL.slot)
    let(b, "_", weights);
  a = let(b, "attention_output", a);
  builder_call(b, 1, &a); /* feed_forward_chunk */
  Val h = let(b, "intermediate_output", intermediate(b, m, p, a));
  h = let(b, "layer_output", output(b, m, p->output, &p->down, p->norm2, p->drop2, h, a));
  h = let(b, "layer_output", builder_leave(b, h));
  return builder_leave(b, h);
}

/* Positions count tokens that are no padding, from the padding's own on. */
static Val
roberta_positions(Builder *b, const Bert *m)
{
  ValueInfo ints = value_shape(DTYPE_INT32, 2, m->batch, m->length);
  ValueInfo longs = value_shape(DTYPE_INT64, 2, m->batch, m->length);
  builder_call(b, 0, NULL);
  Val mask = create(b, "is no padding", value_shape(DTYPE_BOOL, 2, m->batch, m->length));
  Val narrow = create(b, "mask", ints);
  builder_discard(b, mask);
  mask = let(b, "mask", narrow);
  Val sum = unary(b, OP_CUMSUM, mask);
  Val same = create(b, "cumulated mask", ints);
  builder_discard(b, sum);
  Val shifted = create(b, "cumulated mask", ints);
  builder_discard(b, same);
  Val masked = create(b, "incremental indices", ints);
  builder_discard(b, shifted);
  let(b, "incremental_indices", masked);
  Val wide = create(b, "incremental indices", longs);
  Val ids = create(b, "position ids", longs);
  builder_discard(b, wide);
  return builder_leave(b, ids);
}

/* Token types are zeros looked up in a buffer by position, and one row of them seen by all. */
static Val
type_ids(Builder *b, const Bert *m)
{
  if (m->roberta)
    return create(b, "token types", value_shape(DTYPE_INT64, 2, m->batch, m->length));
  Val row = create(b, "token types", value_shape(DTYPE_INT64, 2, (gint64) 1, m->length));
  return encoder_expand_rows(b, row, m->batch);
}

static Val
embed(Builder *b, const Bert *m, Val tokens)
{
  Val types, positions;
  builder_module_call_by_keyword(b, m->embeddings, &tokens);
  if (m->roberta)
    positions = let(b, "position_ids", roberta_positions(b, m));
  types = let(b, "buffered_token_type_ids", type_ids(b, m));
  if (!m->roberta) /* a slice of the buffer */
    positions =
        let(b, "position_ids", buffer_value(b, value_shape(DTYPE_INT64, 2, (gint64) 1, m->length)));
  Val words = let(b, "inputs_embeds", embedding(b, m->words, tokens));
  Val kinds = let(b, "token_type_embeddings", embedding(b, m->type_weight, types));
  Val x = let(b, "embeddings", binary(b, OP_ADD, words, kinds));
  Val places = let(b, "position_embeddings", embedding(b, m->position_weight, positions));
  x = let(b, "embeddings", binary(b, OP_ADD, x, places));
  x = let(b, "embeddings", layer_norm(b, x, m->embedding_norm));
  x = let(b, "embeddings", encoder_dropout(b, m->embedding_drop, m->hidden_dropout, x));
  return builder_leave(b, x);
}

static Val
encode(Builder *b, const Bert *m, Val x)
{
  const BlockCode code = {.forward = layer, .model = m};
  x = call_module(b, m->encoder, x);
  for (int i = 0; i < m->layers; i++)
    x = let(b, "hidden_states", builder_block_call(b, i, &code, 1, &x));
  return builder_leave(b, x);
}

static Val
base_model(Builder *b, const Bert *m, Val tokens)
{
  tokens = call_module(b, m->model, tokens);
  Val x = let(b, "embedding_output", embed(b, m, tokens));
  x = let(b, "sequence_output", encode(b, m, x));
  return builder_leave(b, x);
}

/* dense, activation, LayerNorm. */
static Val
head_transform(Builder *b, const Bert *m, Val x)
{
  x = let(b, "x", linear(b, x, m->head_dense));
  if (m->roberta)
    x = let(b, "x", unary(b, OP_GELU, x));
  else
    x = let(b, "x", activation_call(b, m->activation, m->head_activation, x));
  return let(b, "x", layer_norm(b, x, m->head_norm));
}

static Val
predictions(Builder *b, const Bert *m, Val x)
{
  x = call_module(b, m->head, x);
  if (m->roberta)
    return builder_leave(b, let(b, "x", linear(b, head_transform(b, m, x), m->decoder)));
  Val h = call_module(b, m->head_transform, x);
  h = let(b, "hidden_states", builder_leave(b, head_transform(b, m, h)));
  return builder_leave(b, let(b, "hidden_states", linear(b, h, m->decoder)));
}

static Val
head(Builder *b, const Bert *m, Val x)
{
  if (m->roberta)
    return predictions(b, m, x);
  x = call_module(b, m->masked_head, x);
  return builder_leave(b, let(b, "prediction_scores", predictions(b, m, x)));
}

static int
masked_lm(Builder *b, gconstpointer model, const Val *inputs, Val *results)
{
  const Bert *m = model;
  builder_call(b, 0, NULL);
  Val x = let(b, "outputs", base_model(b, m, inputs[0]));
  results[1] = let(b, "prediction_scores", head(b, m, x));
  results[0] = let(b, "masked_lm_loss", encoder_loss(b, results[1], inputs[1], m->vocabulary));
  builder_leave_with(b, 2, results);
  return 2;
}

/* ---- config.json ---- */

static void
refuse_unknown(NetworkSpec *spec)
{
  static const char *const classes[] = {"BertForMaskedLM", "RobertaForMaskedLM", NULL};
  encoder_expect_class(spec, "BertForMaskedLM and RobertaForMaskedLM", classes);
  static const char no_decoder[] = "a decoder is not supported, only the encoder";
  network_spec_expect(spec, "is_decoder", FALSE, no_decoder);
  network_spec_expect(spec, "add_cross_attention", FALSE, no_decoder);
  network_spec_expect(spec, "tie_word_embeddings", TRUE,
                      "an output layer with a weight of its own is not supported");
  const char *kind = network_spec_string(spec, "position_embedding_type", "absolute");
  if (strcmp(kind, "absolute") != 0)
    network_spec_fail(spec, "position_embedding_type", "'%.60s' is not supported, only absolute",
                      kind);
  if (json_reader_has(spec->reader, "chunk_size_feed_forward") &&
      json_reader_int(spec->reader, "chunk_size_feed_forward", 0, 0, G_MAXINT32) != 0)
    network_spec_fail(spec, "chunk_size_feed_forward", "is not supported but as 0");
}

static gboolean
read_config(Bert *m, NetworkSpec *spec, const NetworkShape *shape, GError **error)
{
  m->roberta = strcmp(spec->family, "roberta") == 0;
  m->hidden = network_spec_int(spec, "hidden_size", 768);
  m->layers = network_spec_int(spec, "num_hidden_layers", 12);
  m->heads = network_spec_int(spec, "num_attention_heads", 12);
  m->ffn = network_spec_int(spec, "intermediate_size", 3072);
  m->vocabulary = network_spec_int(spec, "vocab_size", m->roberta ? 50265 : 30522);
  m->positions = network_spec_int(spec, "max_position_embeddings", 512);
  m->types = network_spec_int(spec, "type_vocab_size", 2);
  m->activation = activation_read(spec, "hidden_act", "gelu");
  m->hidden_dropout = encoder_read_dropout(spec, shape, "hidden_dropout_prob", 0.1);
  m->attention_dropout = encoder_read_dropout(spec, shape, "attention_probs_dropout_prob", 0.1);
  m->attention = spec->implementation.attention;
  m->batch = shape->micro_batch;
  gint64 first = m->roberta ? network_spec_int(spec, "pad_token_id", 1) + 1 : 0;
  m->length = encoder_length(spec, shape, "max_position_embeddings", MAX(m->positions - first, 1));
  encoder_check(spec, shape);
  causal_lm_check_width(spec, "num_attention_heads", m->heads, m->hidden);
  causal_lm_check_layers(spec, "num_hidden_layers", m->layers);
  causal_lm_check_matrix(spec, "vocab_size", m->vocabulary, m->hidden);
  causal_lm_check_matrix(spec, "intermediate_size", m->ffn, m->hidden);
  causal_lm_check_matrix(spec, "max_position_embeddings", m->positions, m->hidden);
  causal_lm_check_matrix(spec, "type_vocab_size", m->types, m->hidden);
  refuse_unknown(spec);
  return json_reader_finish(spec->reader, error);
}

static void
write_figures(Builder *b, const Bert *m)
{
  Network *network = builder_network(b);
  network->vocabulary = m->vocabulary;
  network->positions = m->length;
  /* BertModel has a pooler, a linear layer of the width of the head's, and no head */
  network->base_parameters = network_parameter_count(network) - m->vocabulary - 2 * m->hidden;
  network->base_class = m->roberta ? "RobertaModel" : "BertModel";
  network->trained_class = m->roberta ? "RobertaForMaskedLM" : "BertForMaskedLM";
  network->hidden = network->attention_width = m->hidden;
  network->embedding_parameters = (m->positions + m->types) * m->hidden;
}

static Network *
build(NetworkSpec *spec, const NetworkShape *shape, GError **error)
{
  Bert m = {0};
  if (!read_config(&m, spec, shape, error))
    return NULL;
  Builder *b = builder_new(spec->name, shape);
  define_modules(b, &m);
  ValueInfo tokens = value_shape(DTYPE_INT64, 2, m.batch, m.length);
  transformers_write_root(b, &(TransformersRoot){2, {tokens, tokens}, masked_lm, &m, FALSE});
  write_figures(b, &m);
  g_free(m.parts);
  return builder_finish(b, error);
}

const NetworkFamily family_bert = {
    .name = "bert",
    .summary = "BERT and RoBERTa as masked language models",
    .model_types = (const char *const[]){"bert", "roberta", NULL},
    .limits_length = TRUE,
    .build = build,
};
