/* family_whisper.c - Whisper: an encoder of mel spectrograms behind two convolutions, a decoder of
 * text, LayerNorm before each residual. */

#include "network/causal_lm.h"
#include "network/family.h"
#include "network/transformers_masks.h"
#include "network/transformers_seq2seq.h"

typedef struct {
  Seq2Seq seq2seq; /* comes first: layers get a pointer to it */
  gint64 mels, targets;
  DType features; /* what the loop gives the model */
  int model, encoder, decoder;
  Convolution conv[2];
  int source_positions, words, target_positions, norm[SEQ2SEQ_STACKS], target_module;
  Linear head;
} Whisper;

/* ---- modules, in order of definition ---- */

static void
define_encoder(Builder *b, Whisper *m)
{
  Seq2Seq *s = &m->seq2seq;
  m->encoder = builder_module(b, "encoder", "WhisperEncoder");
  m->conv[0] = define_convolution(b, "conv1", s->width, m->mels, 1,
                                  &(Convolution){.kernel = 3, .stride = 1, .padding = 1});
  m->conv[1] = define_convolution(
      b, "conv2", s->width, s->width, 1,
      &(Convolution){.kernel = 3, .stride = 2, .padding = 1, .transposed = TRUE});
  m->source_positions =
      encoder_define_embedding(b, "embed_positions", s->stack[SEQ2SEQ_ENCODER].length, s->width);
  builder_freeze(b, m->source_positions); /* sinusoids */
  seq2seq_define_layers(b, s, SEQ2SEQ_ENCODER);
  m->norm[SEQ2SEQ_ENCODER] = define_norm(b, "layer_norm", "LayerNorm", s->width, TRUE);
  builder_module_end(b);
}

static void
define_decoder(Builder *b, Whisper *m)
{
  Seq2Seq *s = &m->seq2seq;
  m->decoder = builder_module(b, "decoder", "WhisperDecoder");
  m->words = encoder_define_embedding(b, "embed_tokens", s->vocabulary, s->width);
  m->target_module = builder_module(b, "embed_positions", "WhisperPositionalEmbedding");
  m->target_positions = builder_parameter(b, "weight", 2, m->targets, s->width);
  builder_module_end(b);
  seq2seq_define_layers(b, s, SEQ2SEQ_DECODER);
  m->norm[SEQ2SEQ_DECODER] = define_norm(b, "layer_norm", "LayerNorm", s->width, TRUE);
  builder_module_end(b);
}

static void
define_modules(Builder *b, Whisper *m)
{
  m->model = builder_module(b, "model", "WhisperModel");
  define_encoder(b, m);
  define_decoder(b, m);
  builder_module_end(b);
  int module = builder_module(b, "proj_out", "Linear");
  builder_tie(b, m->words);
  builder_module_end(b);
  m->head = (Linear){.weight = m->words, .bias = -1, .module = module};
}

/* ---- forward() ---- */

static Val
encode(Builder *b, const Whisper *m, Val features)
{
  const Seq2Seq *s = &m->seq2seq;
  gint64 frames = s->stack[SEQ2SEQ_ENCODER].length;
  features = call_module(b, m->encoder, features);
  if (!builder_shape(b)->precision.autocast) /* where mixed precision has cast them */
    features = encoder_as_weights(b, features);
  Val x = let(b, "inputs_embeds", unary(b, OP_GELU, convolution(b, features, &m->conv[0])));
  x = let(b, "inputs_embeds", unary(b, OP_GELU, convolution(b, x, &m->conv[1])));
  x = let(b, "inputs_embeds", transpose(b, x));
  Val positions =
      let(b, "all_positions", create(b, "positions", value_shape(DTYPE_INT64, 1, frames)));
  Val places = embedding(b, m->source_positions, positions);
  x = let(b, "hidden_states", binary(b, OP_ADD, x, places));
  x = let(b, "hidden_states", dropout(b, s->dropout, x));
  x = seq2seq_layers(b, s, SEQ2SEQ_ENCODER, x, NO_VAL, NO_VAL);
  x = let(b, "hidden_states", layer_norm(b, x, m->norm[SEQ2SEQ_ENCODER]));
  return builder_leave(b, x);
}

/* self.weight[position_ids] */
static Val
target_places(Builder *b, const Whisper *m, Val positions)
{
  builder_module_call_by_keyword(b, m->target_module, &positions);
  Val operands[2] = {builder_weight(b, m->target_positions), positions};
  return builder_leave(b, builder_op(b, OP_INDEX, NULL, 2, operands));
}

static Val
decode(Builder *b, const Whisper *m, Val tokens, Val memory)
{
  const Seq2Seq *s = &m->seq2seq;
  gint64 length = s->stack[SEQ2SEQ_DECODER].length;
  ValueInfo row = value_shape(DTYPE_INT64, 1, length);
  builder_module_call_by_keyword(b, m->decoder, &tokens);
  Val x = let(b, "inputs_embeds", embedding(b, m->words, tokens));
  Val range = create(b, "arange", row);
  let(b, "position_ids", create(b, "position ids", row));
  builder_discard(b, range);
  Val ids = let(b, "position_ids",
                create(b, "position ids", value_shape(DTYPE_INT64, 2, s->batch, length)));
  Val places = let(b, "positions", target_places(b, m, ids));
  x = let(b, "hidden_states", binary(b, OP_ADD, x, places));
  x = let(b, "hidden_states", dropout(b, s->dropout, x));
  Val mask = encoder_causal_mask(b, s->attention, s->batch, length, TRUE);
  x = seq2seq_layers(b, s, SEQ2SEQ_DECODER, x, memory, mask);
  x = let(b, "hidden_states", layer_norm(b, x, m->norm[SEQ2SEQ_DECODER]));
  return builder_leave(b, x);
}

static int
transcribe(Builder *b, gconstpointer model, const Val *inputs, Val *results)
{
  const Whisper *m = model;
  const Seq2Seq *s = &m->seq2seq;
  Val features = inputs[0];
  builder_call(b, 0, NULL);
  Val tokens = let(b, "decoder_input_ids",
                   encoder_shift_right(b, s->batch, s->stack[SEQ2SEQ_DECODER].length));
  builder_module_call(b, m->model, 1, &features);
  Val memory = let(b, "encoder_outputs", encode(b, m, features));
  Val both[2] = {let(b, "decoder_outputs", decode(b, m, tokens, memory)), memory};
  builder_leave_with(b, 2, both);
  Val x = let(b, "outputs", both[0]);
  memory = let(b, "outputs.encoder", both[1]);
  results[1] = let(b, "lm_logits", linear(b, x, m->head));
  results[0] = let(b, "loss", encoder_loss(b, results[1], inputs[1], s->vocabulary));
  results[2] = memory;
  builder_leave_with(b, 3, results);
  return 3;
}

/* ---- config.json ---- */

static gboolean
read_config(Whisper *m, NetworkSpec *spec, const NetworkShape *shape, GError **error)
{
  Seq2Seq *s = &m->seq2seq;
  *s = (Seq2Seq){.norm_first = TRUE,
                 .scales_query = TRUE,
                 .type = {"WhisperEncoderLayer", "WhisperDecoderLayer"}};
  seq2seq_read(s, spec, shape);
  encoder_expect_class(spec, "WhisperForConditionalGeneration", NULL);
  network_spec_expect(spec, "apply_spec_augment", FALSE, "masking of features is not supported");
  m->mels = network_spec_int(spec, "num_mel_bins", 80);
  m->targets = network_spec_int(spec, "max_target_positions", 448);
  m->features = shape->precision.stored;
  s->stack[SEQ2SEQ_ENCODER].length = network_spec_int(spec, "max_source_positions", 1500);
  s->stack[SEQ2SEQ_DECODER].length =
      encoder_length(spec, shape, "max_target_positions", m->targets);
  causal_lm_check_matrix(spec, "max_source_positions", 2 * s->stack[SEQ2SEQ_ENCODER].length,
                         s->width);
  causal_lm_check_matrix(spec, "max_target_positions", m->targets, s->width);
  causal_lm_check_matrix(spec, "num_mel_bins", m->mels, s->width);
  return json_reader_finish(spec->reader, error);
}

static Network *
build(NetworkSpec *spec, const NetworkShape *shape, GError **error)
{
  Whisper m = {0};
  if (!read_config(&m, spec, shape, error))
    return NULL;
  Builder *b = builder_new(spec->name, shape);
  define_modules(b, &m);
  const Seq2Seq *s = &m.seq2seq;
  ValueInfo features =
      value_shape(m.features, 3, s->batch, m.mels, 2 * s->stack[SEQ2SEQ_ENCODER].length);
  ValueInfo labels = value_shape(DTYPE_INT64, 2, s->batch, s->stack[SEQ2SEQ_DECODER].length);
  transformers_write_root(b, &(TransformersRoot){2, {features, labels}, transcribe, &m, FALSE});
  seq2seq_figures(b, s);
  Network *network = builder_network(b);
  network->embedding_parameters = (s->stack[SEQ2SEQ_ENCODER].length + m.targets) * s->width;
  network->positions = s->stack[SEQ2SEQ_DECODER].length;
  g_free(m.seq2seq.layer);
  return builder_finish(b, error);
}

const NetworkFamily family_whisper = {
    .name = "whisper",
    .summary = "Whisper: speech to text, an encoder of mel spectrograms and a decoder",
    .model_types = (const char *const[]){"whisper", NULL},
    .limits_length = TRUE,
    .build = build,
};
