/* family_t5.c - T5, T5 1.1 and Flan-T5: encoder and decoder with RMSNorm before each residual and
 * biases by relative position, which the first layer of either makes and the others share. */
#include <string.h>

#include "network/causal_lm.h"
#include "network/family.h"
#include "network/transformers_activation.h"
#include "network/transformers_encoder.h"
#include "network/transformers_half.h"

/* One attention with what is around it. */
typedef struct {
  Linear q, k, v, o;
  int module, attention, norm, drop;
  int bias, bias_module; /* relative_attention_bias; -1: another layer's */
} AttentionParts;

typedef struct {
  AttentionParts self, cross;
  Linear gate, up, down; /* gate: of gated activations only */
  int feed_forward, dense, activation, inner_drop, norm, drop;
} BlockParts;

/* Encoder or decoder. */
typedef struct {
  int module, drop, norm, first, count; /* blocks: the first and how many */
  gint64 length;
  gboolean decoder;
} Stack;

typedef struct {
  gint64 width, head_width, ffn, heads, buckets, vocabulary, batch;
  double dropout;
  gboolean gated, tied;
  const Activation *activation;
  AttentionCode attention;
  int shared, embed_module[2];
  Linear head;
  Stack stack[2];
  BlockParts *parts;
} T5;

enum { ENCODER, DECODER };

/* ---- modules, in order of definition ---- */

static AttentionParts
define_attention(Builder *b, const T5 *m, const char *number, const char *name, gboolean biased)
{
  AttentionParts p = {.bias = -1};
  gint64 inner = m->heads * m->head_width;
  p.module = builder_module(b, number, "T5LayerAttention");
  p.attention = builder_module(b, name, "T5Attention");
  p.q = define_linear(b, "q", inner, m->width, FALSE);
  p.k = define_linear(b, "k", inner, m->width, FALSE);
  p.v = define_linear(b, "v", inner, m->width, FALSE);
  p.o = define_linear(b, "o", m->width, inner, FALSE);
  if (biased)
    p.bias = encoder_define_embedding(b, "relative_attention_bias", m->buckets, m->heads);
  builder_module_end(b);
  p.norm = define_norm(b, "layer_norm", "T5LayerNorm", m->width, FALSE);
  p.drop = encoder_define_dropout(b);
  builder_module_end(b);
  return p;
}

static void
define_feed_forward(Builder *b, const T5 *m, const char *number, BlockParts *p)
{
  p->feed_forward = builder_module(b, number, "T5LayerFF");
  p->dense =
      builder_module(b, "DenseReluDense", m->gated ? "T5DenseGatedActDense" : "T5DenseActDense");
  if (m->gated)
    p->gate = define_linear(b, "wi_0", m->ffn, m->width, FALSE);
  p->up = define_linear(b, m->gated ? "wi_1" : "wi", m->ffn, m->width, FALSE);
  p->down = define_linear(b, "wo", m->width, m->ffn, FALSE);
  p->inner_drop = encoder_define_dropout(b);
  p->activation = activation_define(b, m->activation, "act");
  builder_module_end(b);
  p->norm = define_norm(b, "layer_norm", "T5LayerNorm", m->width, FALSE);
  p->drop = encoder_define_dropout(b);
  builder_module_end(b);
}

static BlockParts
define_block(Builder *b, const T5 *m, gboolean decoder, gboolean first)
{
  BlockParts p = {0};
  builder_block_begin(b, "T5Block");
  builder_module(b, "layer", "ModuleList");
  p.self = define_attention(b, m, "0", "SelfAttention", first);
  if (decoder)
    p.cross = define_attention(b, m, "1", "EncDecAttention", FALSE);
  define_feed_forward(b, m, decoder ? "2" : "1", &p);
  builder_module_end(b);
  builder_block_end(b);
  return p;
}

static void
define_stack(Builder *b, T5 *m, int which)
{
  Stack *s = &m->stack[which];
  s->module = builder_module(b, s->decoder ? "decoder" : "encoder", "T5Stack");
  m->embed_module[which] = builder_module(b, "embed_tokens", "Embedding");
  builder_tie(b, m->shared);
  builder_module_end(b);
  builder_module(b, "block", "ModuleList");
  for (int i = 0; i < s->count; i++)
    m->parts[s->first + i] = define_block(b, m, s->decoder, i == 0);
  builder_module_end(b);
  s->norm = define_norm(b, "final_layer_norm", "T5LayerNorm", m->width, FALSE);
  s->drop = encoder_define_dropout(b);
  builder_module_end(b);
}

static void
define_modules(Builder *b, T5 *m)
{
  m->shared = encoder_define_embedding(b, "shared", m->vocabulary, m->width);
  m->parts = g_new0(BlockParts, m->stack[ENCODER].count + m->stack[DECODER].count);
  define_stack(b, m, ENCODER);
  define_stack(b, m, DECODER);
  int module = builder_module(b, "lm_head", "Linear");
  m->head = (Linear){.weight = m->shared, .bias = -1, .module = module};
  if (m->tied)
    builder_tie(b, m->shared);
  else
    m->head.weight = builder_parameter(b, "weight", 2, m->vocabulary, m->width);
  builder_module_end(b);
}

/* ---- position biases ---- */

static Val
grid(Builder *b, DType dtype, gint64 queries, gint64 keys)
{
  return create(b, "relative positions", value_shape(dtype, 2, queries, keys));
}

/* old becomes a new tensor of this dtype, and goes. */
static Val
replace(Builder *b, Val old, DType dtype, gint64 queries, gint64 keys)
{
  Val new = grid(b, dtype, queries, keys);
  builder_discard(b, old);
  return new;
}

/* Both directions have buckets of their own in an encoder: (position > 0).long() * n, then
 * |position|; a decoder looks back only: -min(position, 0). */
static Val
directions(Builder *b, gboolean decoder, gint64 queries, gint64 keys)
{
  if (decoder) {
    Val zeros = grid(b, DTYPE_INT64, queries, keys);
    Val least = grid(b, DTYPE_INT64, queries, keys);
    builder_discard(b, zeros);
    let(b, "relative_position", replace(b, least, DTYPE_INT64, queries, keys));
    return NO_VAL;
  }
  Val x = grid(b, DTYPE_BOOL, queries, keys);
  for (int i = 0; i < 3; i++) /* to long, times, plus 0 */
    x = replace(b, x, DTYPE_INT64, queries, keys);
  let(b, "relative_position", grid(b, DTYPE_INT64, queries, keys));
  return x;
}

/* _relative_position_bucket: near positions have a bucket each, far ones by their logarithm. */
static Val
position_buckets(Builder *b, gboolean decoder, gint64 queries, gint64 keys)
{
  builder_call(b, 0, NULL);
  Val buckets = directions(b, decoder, queries, keys);
  let(b, "is_small", grid(b, DTYPE_BOOL, queries, keys));
  Val far = grid(b, DTYPE_FP32, queries, keys);
  for (int i = 0; i < 4; i++) /* divided, log, divided, times */
    far = replace(b, far, DTYPE_FP32, queries, keys);
  far = replace(b, far, DTYPE_INT64, queries, keys);
  far = let(b, "relative_position_if_large", replace(b, far, DTYPE_INT64, queries, keys));
  Val most = grid(b, DTYPE_INT64, queries, keys);
  Val least = grid(b, DTYPE_INT64, queries, keys);
  builder_discard(b, most);
  let(b, "relative_position_if_large", least);
  Val chosen = grid(b, DTYPE_INT64, queries, keys);
  if (decoder)
    buckets = replace(b, chosen, DTYPE_INT64, queries, keys);
  else
    builder_discard(b, chosen); /* added in place */
  return builder_leave(b, buckets);
}

/* compute_bias: [1, heads, queries, keys], as a view of what the table gives for each pair. */
static Val
compute_bias(Builder *b, const T5 *m, int table, gboolean decoder, gint64 length)
{
  builder_call(b, 0, NULL);
  ValueInfo row = value_shape(DTYPE_INT64, 1, length);
  Val range = create(b, "arange", row);
  let(b, "context_position", create(b, "context positions", row));
  builder_discard(b, range);
  let(b, "memory_position", create(b, "memory positions", row));
  let(b, "relative_position", grid(b, DTYPE_INT64, length, length));
  Val buckets = let(b, "relative_position_bucket", position_buckets(b, decoder, length, length));
  Val values = let(b, "values", embedding(b, table, buckets));
  values = transpose_first(b, transpose_last(b, values)); /* permute(2, 0, 1).unsqueeze(0) */
  values = let(b, "values", view(b, values, 4, (gint64) 1, m->heads, length, length));
  return builder_leave(b, values);
}

/* create_position_bias_mask: what a decoder must not see is the lowest number. */
static Val
bias_mask(Builder *b, Val bias, gboolean causal)
{
  ValueInfo info = builder_info(b, bias);
  gint64 queries = info.shape[2], keys = info.shape[3];
  builder_call(b, 0, NULL);
  Val mask = bias;
  if (causal) {
    Val rows = create(b, "arange", value_shape(DTYPE_INT64, 1, queries));
    Val columns = create(b, "arange", value_shape(DTYPE_INT64, 1, keys));
    Val seen =
        create(b, "causal mask", value_shape(DTYPE_BOOL, 4, (gint64) 1, (gint64) 1, queries, keys));
    builder_discard(b, rows);
    builder_discard(b, columns);
    seen = let(b, "causal_mask", seen);
    mask = let(b, "position_bias_mask", binary(b, OP_WHERE_NUMBER, bias, seen));
  }
  return builder_leave(b, contiguous(b, mask));
}

/* ---- forward() ---- */

/* Only the square and its mean are of x in fp32: the product is of x itself. */
static Val
t5_norm(Builder *b, Val x, int weight)
{
  DType dtype = (DType) builder_info(b, x).dtype;
  x = call_module(b, parameter_module(b, weight), x);
  let(b, "hidden_states", x);
  Val square = unary(b, OP_POW, to(b, x, DTYPE_FP32));
  Val variance = let(b, "variance", reduce_last(b, OP_MEAN, square));
  Val scale = unary(b, OP_RSQRT, unary(b, OP_ADD_SCALAR, variance));
  Val h = let(b, "hidden_states", binary(b, OP_MUL, x, scale));
  if (dtype != DTYPE_FP32)
    h = let(b, "hidden_states", to(b, h, dtype));
  return builder_leave(b, binary(b, OP_MUL, builder_weight(b, weight), h));
}

/* What an attention is called with besides its input, and what it gives back beside its output. */
typedef struct {
  Val memory; /* the encoder's states, or NO_VAL */
  Val mask;   /* of eager attention, or NO_VAL */
  Val bias, weights;
} Attended;

/* A function's return of the output and of what is beside it. */
static Val
leave_attended(Builder *b, Val output, Attended *a)
{
  Val results[3] = {output, a->bias, a->weights};
  builder_leave_with(b, a->weights.slot != NO_VAL.slot ? 3 : 2, results);
  a->bias = results[1];
  a->weights = results[2];
  return results[0];
}

/* Zeros in the dtype of queries for an attention without a table, which want a gradient where
 * blocks are checkpointed. */
static Val
no_bias(Builder *b, const T5 *m, Val queries, Val keys)
{
  ValueInfo info = builder_info(b, queries);
  Val zeros = create(b, "position bias",
                     value_shape((DType) info.dtype, 4, (gint64) 1, m->heads, info.shape[2],
                                 builder_info(b, keys).shape[2]));
  return encoder_is_checkpointed(builder_shape(b)) ? unary(b, OP_LEAF, zeros) : zeros;
}

/* q, k, v, bias, the interface and o. */
static Val
attend(Builder *b, const T5 *m, const Stack *s, const AttentionParts *p, Val x, Attended *a)
{
  Val memory = a->memory, *bias = &a->bias;
  gboolean cross = memory.slot != NO_VAL.slot;
  x = call_module(b, p->attention, x);
  Val source = cross ? memory : x, qkv[3];
  qkv[0] = let(b, "query_states", encoder_heads(b, linear(b, x, p->q), m->heads));
  qkv[1] = let(b, "key_states", encoder_heads(b, linear(b, source, p->k), m->heads));
  qkv[2] = let(b, "value_states", encoder_heads(b, linear(b, source, p->v), m->heads));
  if (bias->slot == NO_VAL.slot && p->bias >= 0)
    *bias = let(b, "position_bias", compute_bias(b, m, p->bias, s->decoder, s->length));
  else if (bias->slot == NO_VAL.slot)
    *bias = let(b, "position_bias", no_bias(b, m, qkv[0], qkv[1]));
  EncoderAttention how = {.code = m->attention,
                          .heads = m->heads,
                          .dropout = m->dropout,
                          .bias = *bias,
                          .mask = a->mask,
                          .prepare_bias = bias_mask,
                          .causal = s->decoder && !cross};
  Val o = encoder_attend_merged(b, &how, qkv, &a->weights);
  o = let(b, "attn_output", linear(b, o, p->o));
  return leave_attended(b, o, a);
}

static Val
attention_layer(Builder *b, const T5 *m, const Stack *s, const AttentionParts *p, Val x,
                Attended *a)
{
  x = call_module(b, p->module, x);
  Val normed = let(b, "normed_hidden_states", t5_norm(b, x, p->norm));
  Val o = let(b, "attention_output", attend(b, m, s, p, normed, a));
  a->bias = let(b, "position_bias", a->bias);
  if (a->weights.slot != NO_VAL.slot)
    a->weights = let(b, "attn_weights", a->weights);
  Val sum = binary(b, OP_ADD, x, encoder_dropout(b, p->drop, m->dropout, o));
  sum = let(b, a->memory.slot == NO_VAL.slot ? "attention_output" : "layer_output", sum);
  return leave_attended(b, sum, a);
}

static Val
dense(Builder *b, const T5 *m, const BlockParts *p, Val x)
{
  x = call_module(b, p->dense, x);
  Val h;
  if (m->gated) {
    Val gate = let(b, "hidden_gelu",
                   activation_call(b, m->activation, p->activation, linear(b, x, p->gate)));
    Val plain = let(b, "hidden_linear", linear(b, x, p->up));
    h = let(b, "hidden_states", binary(b, OP_MUL, gate, plain));
  } else {
    h = let(b, "hidden_states", linear(b, x, p->up));
    h = let(b, "hidden_states", activation_call(b, m->activation, p->activation, h));
  }
  h = let(b, "hidden_states", encoder_dropout(b, p->inner_drop, m->dropout, h));
  h = let(b, "hidden_states", to(b, h, builder_shape(b)->precision.weights)); /* wo.weight's */
  h = let(b, "hidden_states", linear(b, h, p->down));
  return builder_leave(b, h);
}

static Val
feed_forward(Builder *b, const T5 *m, const BlockParts *p, Val x)
{
  x = call_module(b, p->feed_forward, x);
  Val h = let(b, "forwarded_states", t5_norm(b, x, p->norm));
  h = let(b, "forwarded_states", dense(b, m, p, h));
  h = let(b, "hidden_states", binary(b, OP_ADD, x, encoder_dropout(b, p->drop, m->dropout, h)));
  return builder_leave(b, h);
}

/* An attention's call in the block: hidden states, the bias and the probabilities become names. */
static Val
call_attention(Builder *b, const T5 *m, const Stack *s, const AttentionParts *p, Val x, Attended *a)
{
  x = let(b, "hidden_states", attention_layer(b, m, s, p, x, a));
  a->bias =
      let(b, a->memory.slot == NO_VAL.slot ? "self_attn_position_bias" : "cross_attn_position_bias",
          a->bias);
  if (a->weights.slot != NO_VAL.slot)
    let(b, "_", a->weights);
  return half_clamp_infinite(b, x);
}

/* Arguments: hidden states, then the bias of self-attention unless the block is the first; of a
 * decoder's also the encoder's states, the bias of cross-attention unless it is the first, and the
 * mask of eager attention. */
static int
block(Builder *b, gconstpointer model, int index, const Val *args, Val *results)
{
  const T5 *m = model;
  const Stack *s = &m->stack[index >= m->stack[DECODER].first ? DECODER : ENCODER];
  const BlockParts *p = &m->parts[index];
  gboolean first = index == s->first, eager = m->attention == ATTENTION_EAGER;
  Attended self = {NO_VAL, NO_VAL, first ? NO_VAL : args[1], NO_VAL};
  Attended cross = {NO_VAL, NO_VAL, NO_VAL, NO_VAL};
  if (s->decoder) {
    cross.memory = args[first ? 1 : 2];
    cross.bias = first ? NO_VAL : args[3];
    self.mask = eager ? args[first ? 2 : 4] : NO_VAL;
  }
  builder_enter(b, 1, (const char *const[]){"hidden_states"}, args);
  Val x = call_attention(b, m, s, &p->self, args[0], &self);
  results[1] = self.bias;
  if (s->decoder) {
    x = call_attention(b, m, s, &p->cross, x, &cross);
    results[2] = cross.bias;
  }
  results[0] = half_clamp_infinite(b, let(b, "hidden_states", feed_forward(b, m, p, x)));
  int n = s->decoder ? 3 : 2;
  builder_leave_with(b, n, results);
  return n;
}

/* The stack's forward(): blocks hand biases on.  memory: the encoder's states, or NO_VAL. */
static Val
stack_forward(Builder *b, const T5 *m, int which, Val tokens, Val memory)
{
  const Stack *s = &m->stack[which];
  const BlockCode code = {.forward_several = block, .model = m, .kind = which};
  Val args[5], results[3], mask = NO_VAL;
  builder_module_call_by_keyword(b, s->module, &tokens);
  Val x = let(b, "inputs_embeds", encoder_embed_tied(b, m->embed_module[which], m->shared, tokens));
  if (s->decoder)
    mask = encoder_causal_mask(b, m->attention, m->batch, s->length, FALSE);
  x = let(b, "hidden_states", encoder_dropout(b, s->drop, m->dropout, x));
  for (int i = 0; i < s->count; i++) {
    int n = 0;
    args[n++] = x;
    if (i > 0)
      args[n++] = results[1];
    if (s->decoder)
      args[n++] = memory;
    if (s->decoder && i > 0)
      args[n++] = results[2];
    if (mask.slot != NO_VAL.slot)
      args[n++] = mask;
    builder_block_call_several(b, s->first + i, &code, n, args, results);
    x = let(b, "hidden_states", results[0]);
    results[1] = let(b, "position_bias", results[1]);
    if (s->decoder)
      results[2] = let(b, "encoder_decoder_position_bias", results[2]);
  }
  x = let(b, "hidden_states", t5_norm(b, x, s->norm));
  x = let(b, "hidden_states", encoder_dropout(b, s->drop, m->dropout, x));
  return builder_leave(b, x);
}

static int
model_forward(Builder *b, gconstpointer model, const Val *inputs, Val *results)
{
  const T5 *m = model;
  builder_call(b, 0, NULL);
  Val memory = let(b, "hidden_states", stack_forward(b, m, ENCODER, inputs[0], NO_VAL));
  Val tokens =
      let(b, "decoder_input_ids", encoder_shift_right(b, m->batch, m->stack[DECODER].length));
  Val x = let(b, "decoder_outputs", stack_forward(b, m, DECODER, tokens, memory));
  x = let(b, "sequence_output", x);
  if (m->tied)
    x = let(b, "sequence_output", unary(b, OP_MUL_SCALAR, x));
  results[1] = let(b, "lm_logits", linear(b, x, m->head));
  results[0] = let(b, "loss", encoder_loss(b, results[1], inputs[1], m->vocabulary));
  results[2] = memory;
  builder_leave_with(b, 3, results);
  return 3;
}

/* ---- config.json ---- */

/* "relu", or "gated-gelu", whose gelu is gelu_new (T5Config). */
static void
read_activation(T5 *m, NetworkSpec *spec)
{
  static const char gate[] = "gated-";
  const char *name = network_spec_string(spec, "feed_forward_proj", "relu");
  m->gated = g_str_has_prefix(name, gate);
  const char *plain = m->gated ? name + strlen(gate) : name;
  if (strcmp(name, "gated-gelu") == 0)
    plain = "gelu_new";
  m->activation = activation_find(plain);
  if (m->activation == NULL) {
    network_spec_fail(spec, "feed_forward_proj", "'%.60s' is not known: relu, gated-gelu, ...",
                      name);
    m->activation = activation_find("relu");
  }
}

static void
read_stack(Stack *s, NetworkSpec *spec, const char *names, int first, gint64 fallback)
{
  gint64 layers = network_spec_int(spec, names, fallback);
  causal_lm_check_layers(spec, names, layers);
  s->first = first;
  s->count = (int) MIN(layers, BUILDER_MOST_BLOCKS);
}

static void
refuse_unknown(NetworkSpec *spec)
{
  encoder_expect_class(spec, "T5ForConditionalGeneration", NULL);
  network_spec_expect(spec, "is_encoder_decoder", TRUE, "only encoder and decoder are supported");
}

static gboolean
read_config(T5 *m, NetworkSpec *spec, const NetworkShape *shape, GError **error)
{
  m->width = network_spec_int(spec, "d_model", 512);
  m->head_width = network_spec_int(spec, "d_kv", 64);
  m->ffn = network_spec_int(spec, "d_ff", 2048);
  m->heads = network_spec_int(spec, "num_heads", 8);
  m->buckets = network_spec_int(spec, "relative_attention_num_buckets", 32);
  network_spec_int(spec, "relative_attention_max_distance", 128); /* changes numbers only */
  m->vocabulary = network_spec_int(spec, "vocab_size", 32128);
  m->dropout = encoder_read_dropout(spec, shape, "dropout_rate", 0.1);
  m->tied = network_spec_bool(spec, "tie_word_embeddings", TRUE);
  m->attention = spec->implementation.attention;
  m->batch = shape->micro_batch;
  read_activation(m, spec);
  read_stack(&m->stack[ENCODER], spec, "num_layers", 0, 6);
  read_stack(&m->stack[DECODER], spec, "num_decoder_layers", m->stack[ENCODER].count,
             m->stack[ENCODER].count);
  m->stack[DECODER].decoder = TRUE;
  m->stack[ENCODER].length = shape->sequence_length;
  m->stack[DECODER].length = encoder_target_length(shape);
  encoder_check(spec, shape);
  refuse_unknown(spec);
  causal_lm_check_matrix(spec, "vocab_size", m->vocabulary, m->width);
  causal_lm_check_matrix(spec, "d_ff", m->ffn, m->width);
  causal_lm_check_matrix(spec, "d_kv", m->head_width, m->heads);
  causal_lm_check_matrix(spec, "relative_attention_num_buckets", m->buckets, m->heads);
  if (m->heads <= BUILDER_MOST_ELEMENTS / m->head_width)
    causal_lm_check_matrix(spec, "num_heads", m->heads * m->head_width, m->width);
  return json_reader_finish(spec->reader, error);
}

static Network *
build(NetworkSpec *spec, const NetworkShape *shape, GError **error)
{
  T5 m = {0};
  if (!read_config(&m, spec, shape, error))
    return NULL;
  Builder *b = builder_new(spec->name, shape);
  define_modules(b, &m);
  ValueInfo tokens = value_shape(DTYPE_INT64, 2, m.batch, m.stack[ENCODER].length);
  ValueInfo labels = value_shape(DTYPE_INT64, 2, m.batch, m.stack[DECODER].length);
  transformers_write_root(b, &(TransformersRoot){2, {tokens, labels}, model_forward, &m, FALSE});
  Network *network = builder_network(b);
  network->vocabulary = m.vocabulary;
  network->stacks = 2;
  network->hidden = m.width;
  network->attention_width = m.heads * m.head_width;
  network->embedding_parameters = m.tied ? 0 : m.vocabulary * m.width;
  g_free(m.parts);
  return builder_finish(b, error);
}

const NetworkFamily family_t5 = {
    .name = "t5",
    .summary = "T5, T5 1.1 and Flan-T5: encoder and decoder with relative position biases",
    .model_types = (const char *const[]){"t5", NULL},
    .build = build,
};
