/* family_bart.c - BART: encoder and decoder with learned positions and LayerNorm after each
 * residual, one embedding for both and for the output. */

#include "network/causal_lm.h"
#include "network/family.h"
#include "network/transformers_seq2seq.h"

typedef struct {
  Seq2Seq seq2seq; /* comes first: layers get a pointer to it */
  gint64 positions;
  int model, stack[SEQ2SEQ_STACKS], words[SEQ2SEQ_STACKS], places[SEQ2SEQ_STACKS],
      norm[SEQ2SEQ_STACKS], shared;
  Linear head;
} Bart;

enum { OFFSET = 2 }; /* of positions in their table */

/* ---- modules, in order of definition ---- */

static void
define_stack(Builder *b, Bart *m, int stack)
{
  Seq2Seq *s = &m->seq2seq;
  gboolean decoder = stack == SEQ2SEQ_DECODER;
  m->stack[stack] =
      builder_module(b, decoder ? "decoder" : "encoder", decoder ? "BartDecoder" : "BartEncoder");
  m->words[stack] = builder_module(b, "embed_tokens", "BartScaledWordEmbedding");
  builder_tie(b, m->shared);
  builder_module_end(b);
  m->places[stack] =
      encoder_define_embedding(b, "embed_positions", m->positions + OFFSET, s->width);
  seq2seq_define_layers(b, s, stack);
  m->norm[stack] = define_norm(b, "layernorm_embedding", "LayerNorm", s->width, TRUE);
  builder_module_end(b);
}

static void
define_modules(Builder *b, Bart *m)
{
  const Seq2Seq *s = &m->seq2seq;
  m->model = builder_module(b, "model", "BartModel");
  m->shared = encoder_define_embedding(b, "shared", s->vocabulary, s->width);
  define_stack(b, m, SEQ2SEQ_ENCODER);
  define_stack(b, m, SEQ2SEQ_DECODER);
  builder_module_end(b);
  int module = builder_module(b, "lm_head", "Linear");
  builder_tie(b, m->shared);
  builder_module_end(b);
  m->head = (Linear){.weight = m->shared, .bias = -1, .module = module};
  builder_buffer(b, "final_logits_bias", builder_shape(b)->precision.stored, s->vocabulary);
}

/* ---- forward() ---- */

/* nn.Embedding's, times a scale. */
static Val
embed_words(Builder *b, const Bart *m, int stack, Val tokens)
{
  tokens = call_module(b, m->words[stack], tokens);
  Val x = builder_op(b, OP_EMBEDDING, NULL, 2, (Val[]){builder_weight(b, m->shared), tokens});
  return builder_leave(b, unary(b, OP_MUL_SCALAR, x));
}

/* Positions plus the table's offset: of each sequence in an encoder, given to a decoder. */
static Val
embed_places(Builder *b, const Bart *m, int stack)
{
  const Seq2Seq *s = &m->seq2seq;
  gboolean decoder = stack == SEQ2SEQ_DECODER;
  int table = m->places[stack];
  gint64 length = s->stack[stack].length, rows = decoder ? 1 : s->batch;
  builder_module_call(b, parameter_module(b, table), 0, NULL);
  if (!decoder)
    let(b, "position_ids", create(b, "positions", value_shape(DTYPE_INT64, 1, length)));
  Val ids = create(b, "position ids", value_shape(DTYPE_INT64, 2, rows, length));
  Val operands[2] = {builder_weight(b, table), ids};
  return builder_leave(b, builder_op(b, OP_EMBEDDING, NULL, 2, operands));
}

/* Whether a mask is all ones: then none is needed. */
static void
test_ones(Builder *b, gint64 tokens)
{
  Val sum = create(b, "sum", value_shape(DTYPE_INT64, 1, (gint64) 1));
  Val cast = create(b, "cast flags", value_shape(DTYPE_INT64, 1, tokens));
  builder_discard(b, cast);
  Val all = create(b, "all", value_shape(DTYPE_BOOL, 1, (gint64) 1));
  builder_discard(b, sum);
  builder_discard(b, all);
}

/* The decoder makes a mask of ones for itself, which eager attention's mask is made of; sdpa asks
 * whether it is all ones.  Returns the mask, or NO_VAL. */
static Val
mask_of_ones(Builder *b, const Seq2Seq *s)
{
  const Seq2SeqStack *decoder = &s->stack[SEQ2SEQ_DECODER];
  gint64 tokens = s->batch * decoder->length;
  Val ones = create(b, "mask of ones", value_shape(DTYPE_FP32, 1, tokens));
  Val mask = create(b, "mask", value_shape(DTYPE_BOOL, 1, tokens)), made = NO_VAL;
  if (s->attention == ATTENTION_EAGER)
    made = encoder_padded_mask(b, s->batch, decoder->length);
  else
    test_ones(b, tokens);
  builder_discard(b, mask);
  builder_discard(b, ones);
  return made.slot != NO_VAL.slot ? let(b, "attention_mask", made) : made;
}

static Val
run_stack(Builder *b, const Bart *m, int stack, Val tokens, Val memory)
{
  const Seq2Seq *s = &m->seq2seq;
  builder_module_call_by_keyword(b, m->stack[stack], &tokens);
  unlet(b, "attention_mask"); /* an argument, which comes before the other names */
  Val mask = NO_VAL, x = let(b, "inputs_embeds", embed_words(b, m, stack, tokens));
  if (stack == SEQ2SEQ_DECODER) {
    ValueInfo row = value_shape(DTYPE_INT64, 1, s->stack[stack].length);
    Val range = create(b, "arange", row);
    let(b, "position_ids", create(b, "position ids", row));
    builder_discard(b, range);
    mask = mask_of_ones(b, s);
  }
  Val places = let(b, "positions", embed_places(b, m, stack));
  x = let(b, "hidden_states", binary(b, OP_ADD, x, places));
  x = let(b, "hidden_states", layer_norm(b, x, m->norm[stack]));
  x = let(b, "hidden_states", dropout(b, s->dropout, x));
  return builder_leave(b, seq2seq_layers(b, s, stack, x, memory, mask));
}

/* The labels shifted are the decoder's tokens; logits get a bias that is a buffer. */
static int
model_forward(Builder *b, gconstpointer model, const Val *inputs, Val *results)
{
  const Bart *m = model;
  const Seq2Seq *s = &m->seq2seq;
  Val source = inputs[0];
  builder_call(b, 0, NULL);
  Val tokens = let(b, "decoder_input_ids",
                   encoder_shift_right(b, s->batch, s->stack[SEQ2SEQ_DECODER].length));
  builder_module_call(b, m->model, 1, &source);
  Val memory = let(b, "encoder_outputs", run_stack(b, m, SEQ2SEQ_ENCODER, source, NO_VAL));
  Val x = let(b, "decoder_outputs", run_stack(b, m, SEQ2SEQ_DECODER, tokens, memory));
  Val both[2] = {x, memory};
  builder_leave_with(b, 2, both);
  x = let(b, "outputs", both[0]);
  memory = let(b, "outputs.encoder", both[1]);
  Val bias = buffer_value(
      b, value_shape(builder_shape(b)->precision.stored, 2, (gint64) 1, s->vocabulary));
  Val logits = let(b, "lm_logits", linear(b, x, m->head));
  results[1] = let(b, "lm_logits", binary(b, OP_ADD, logits, bias));
  results[0] = let(b, "masked_lm_loss", encoder_loss(b, results[1], inputs[1], s->vocabulary));
  results[2] = memory;
  builder_leave_with(b, 3, results);
  return 3;
}

/* ---- config.json ---- */

static gboolean
read_config(Bart *m, NetworkSpec *spec, const NetworkShape *shape, GError **error)
{
  Seq2Seq *s = &m->seq2seq;
  *s = (Seq2Seq){.dropout = 0.1, .type = {"BartEncoderLayer", "BartDecoderLayer"}};
  seq2seq_read(s, spec, shape);
  static const char *const classes[] = {"BartForConditionalGeneration", "BartModel", NULL};
  encoder_expect_class(spec, classes[0], classes);
  m->positions = network_spec_int(spec, "max_position_embeddings", 1024);
  s->stack[SEQ2SEQ_ENCODER].length =
      encoder_length(spec, shape, "max_position_embeddings", m->positions);
  gint64 target = encoder_target_length(shape);
  if (shape->target_length > m->positions)
    network_spec_fail(spec, "max_position_embeddings",
                      "%" G_GINT64_FORMAT
                      " positions are fewer than the plan's target_length %" G_GINT64_FORMAT,
                      m->positions, shape->target_length);
  s->stack[SEQ2SEQ_DECODER].length = MIN(target, m->positions);
  causal_lm_check_matrix(spec, "max_position_embeddings", m->positions, s->width);
  return json_reader_finish(spec->reader, error);
}

static Network *
build(NetworkSpec *spec, const NetworkShape *shape, GError **error)
{
  Bart m = {0};
  if (!read_config(&m, spec, shape, error))
    return NULL;
  Builder *b = builder_new(spec->name, shape);
  define_modules(b, &m);
  const Seq2Seq *s = &m.seq2seq;
  ValueInfo tokens = value_shape(DTYPE_INT64, 2, s->batch, s->stack[SEQ2SEQ_ENCODER].length);
  ValueInfo labels = value_shape(DTYPE_INT64, 2, s->batch, s->stack[SEQ2SEQ_DECODER].length);
  transformers_write_root(b, &(TransformersRoot){2, {tokens, labels}, model_forward, &m, FALSE});
  seq2seq_figures(b, s);
  Network *network = builder_network(b);
  network->embedding_parameters = 2 * (m.positions + OFFSET) * s->width;
  network->positions = s->stack[SEQ2SEQ_ENCODER].length;
  g_free(m.seq2seq.layer);
  return builder_finish(b, error);
}

const NetworkFamily family_bart = {
    .name = "bart",
    .summary = "BART: encoder and decoder with learned positions",
    .model_types = (const char *const[]){"bart", NULL},
    .limits_length = TRUE,
    .build = build,
};
