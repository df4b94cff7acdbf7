/* transformers_seq2seq.c - encoder and decoder layers of BART and Whisper (modeling_bart.py,
 * modeling_whisper.py of release 5). */
#include "network/transformers_seq2seq.h"

#include <string.h>

#include "network/causal_lm.h"
#include "network/transformers_half.h"

/* ---- config.json ---- */

static void
read_stack(Seq2Seq *m, NetworkSpec *spec, int which, const char *const names[3])
{
  Seq2SeqStack *s = &m->stack[which];
  gint64 layers = network_spec_int(spec, names[0], -1);
  s->heads = network_spec_int(spec, names[1], -1);
  s->ffn = network_spec_int(spec, names[2], 4 * m->width);
  causal_lm_check_layers(spec, names[0], layers);
  causal_lm_check_width(spec, names[1], MAX(s->heads, 1), m->width);
  causal_lm_check_matrix(spec, names[2], s->ffn, m->width);
  s->count = (int) MIN(layers, BUILDER_MOST_BLOCKS);
}

void
seq2seq_read(Seq2Seq *m, NetworkSpec *spec, const NetworkShape *shape)
{
  m->width = network_spec_int(spec, "d_model", -1);
  m->vocabulary = network_spec_int(spec, "vocab_size", -1);
  m->dropout = encoder_read_dropout(spec, shape, "dropout", m->dropout);
  m->attention_dropout = encoder_read_dropout(spec, shape, "attention_dropout", 0);
  m->activation_dropout = encoder_read_dropout(spec, shape, "activation_dropout", 0);
  m->activation = activation_read(spec, "activation_function", "gelu");
  m->attention = spec->implementation.attention;
  m->batch = shape->micro_batch;
  read_stack(m, spec, SEQ2SEQ_ENCODER,
             (const char *const[]){"encoder_layers", "encoder_attention_heads", "encoder_ffn_dim"});
  read_stack(m, spec, SEQ2SEQ_DECODER,
             (const char *const[]){"decoder_layers", "decoder_attention_heads", "decoder_ffn_dim"});
  m->stack[SEQ2SEQ_DECODER].first = m->stack[SEQ2SEQ_ENCODER].count;
  causal_lm_check_matrix(spec, "vocab_size", m->vocabulary, m->width);
  encoder_check(spec, shape);
  network_spec_expect(spec, "is_encoder_decoder", TRUE, "only encoder and decoder are supported");
  network_spec_expect(spec, "tie_word_embeddings", TRUE,
                      "an output layer with a weight of its own is not supported");
  static const char *const drops[] = {"encoder_layerdrop", "decoder_layerdrop"};
  for (guint i = 0; i < G_N_ELEMENTS(drops); i++)
    if (network_spec_double(spec, drops[i], 0) != 0)
      network_spec_fail(spec, drops[i], "layers that are skipped by chance are not supported");
}

/* ---- modules, in order of definition ---- */

static Seq2SeqAttention
define_attention(Builder *b, const Seq2Seq *m, const char *name)
{
  Seq2SeqAttention p = {.module = builder_module(b, name, "Attention")};
  p.k = define_linear(b, "k_proj", m->width, m->width, !m->scales_query);
  p.v = define_linear(b, "v_proj", m->width, m->width, TRUE);
  p.q = define_linear(b, "q_proj", m->width, m->width, TRUE);
  p.o = define_linear(b, "out_proj", m->width, m->width, TRUE);
  builder_module_end(b);
  return p;
}

static Seq2SeqLayer
define_layer(Builder *b, const Seq2Seq *m, int stack)
{
  Seq2SeqLayer p = {0};
  builder_block_begin(b, m->type[stack]);
  p.self = define_attention(b, m, "self_attn");
  if (stack == SEQ2SEQ_ENCODER)
    p.self.norm = define_norm(b, "self_attn_layer_norm", "LayerNorm", m->width, TRUE);
  p.activation = activation_define(b, m->activation, "activation_fn");
  if (stack == SEQ2SEQ_DECODER) {
    p.self.norm = define_norm(b, "self_attn_layer_norm", "LayerNorm", m->width, TRUE);
    p.cross = define_attention(b, m, "encoder_attn");
    p.cross.norm = define_norm(b, "encoder_attn_layer_norm", "LayerNorm", m->width, TRUE);
  }
  p.up = define_linear(b, "fc1", m->stack[stack].ffn, m->width, TRUE);
  p.down = define_linear(b, "fc2", m->width, m->stack[stack].ffn, TRUE);
  p.norm = define_norm(b, "final_layer_norm", "LayerNorm", m->width, TRUE);
  builder_block_end(b);
  return p;
}

void
seq2seq_define_layers(Builder *b, Seq2Seq *m, int stack)
{
  Seq2SeqStack *s = &m->stack[stack];
  m->layer = g_renew(Seq2SeqLayer, m->layer, s->first + s->count);
  builder_module(b, "layers", "ModuleList");
  for (int i = 0; i < s->count; i++)
    m->layer[s->first + i] = define_layer(b, m, stack);
  builder_module_end(b);
}

/* ---- forward() ---- */

/* The scaled projection's heads, each made contiguous before the next is computed. */
static void
whisper_heads(Builder *b, const Seq2SeqAttention *p, gint64 heads, Val x, Val source, Val qkv[3])
{
  Val q = unary(b, OP_MUL_SCALAR, linear(b, x, p->q));
  qkv[0] = let(b, "query_states", contiguous(b, encoder_heads(b, q, heads)));
  qkv[1] = let(b, "key_states", contiguous(b, encoder_heads(b, linear(b, source, p->k), heads)));
  qkv[2] = let(b, "value_states", contiguous(b, encoder_heads(b, linear(b, source, p->v), heads)));
}

static void
bart_heads(Builder *b, const Seq2SeqAttention *p, gint64 heads, Val x, Val source, Val qkv[3])
{
  qkv[0] = let(b, "query_states", encoder_heads(b, linear(b, x, p->q), heads));
  Val k = let(b, "key_states", linear(b, source, p->k));
  Val v = let(b, "value_states", linear(b, source, p->v));
  qkv[1] = let(b, "key_states", encoder_heads(b, k, heads));
  qkv[2] = let(b, "value_states", encoder_heads(b, v, heads));
}

/* memory: what keys and values are of, or NO_VAL: x itself.  mask: of eager attention, or NO_VAL.
 */
static Val
attend(Builder *b, const Seq2Seq *m, int stack, const Seq2SeqAttention *p, Val x, Val memory,
       Val mask, Val *weights)
{
  gboolean cross = memory.slot != NO_VAL.slot;
  gint64 heads = m->stack[stack].heads;
  Val qkv[3];
  x = call_module(b, p->module, x);
  (m->scales_query ? whisper_heads : bart_heads)(b, p, heads, x, cross ? memory : x, qkv);
  EncoderAttention how = {.code = m->attention,
                          .heads = heads,
                          .dropout = m->attention_dropout,
                          .causal = stack == SEQ2SEQ_DECODER && !cross,
                          .bias = NO_VAL,
                          .mask = mask};
  Val o = encoder_attend_merged(b, &how, qkv, weights);
  o = let(b, "attn_output", linear(b, o, p->o));
  return builder_leave_beside(b, o, weights);
}

/* dropout, residual and, where it comes last, the norm: each bound to hidden_states. */
static Val
close_part(Builder *b, const Seq2Seq *m, Val x, Val residual, int norm)
{
  x = let(b, "hidden_states", dropout(b, m->dropout, x));
  x = let(b, "hidden_states", binary(b, OP_ADD, residual, x));
  return m->norm_first ? x : let(b, "hidden_states", layer_norm(b, x, norm));
}

static Val
attention_part(Builder *b, const Seq2Seq *m, int stack, const Seq2SeqAttention *p, Val x,
               Val memory, Val mask)
{
  Val weights;
  Val residual = let(b, "residual", x);
  if (m->norm_first)
    x = let(b, "hidden_states", layer_norm(b, x, p->norm));
  x = let(b, "hidden_states", attend(b, m, stack, p, x, memory, mask, &weights));
  if (weights.slot != NO_VAL.slot)
    let(b, "_", weights);
  return close_part(b, m, x, residual, p->norm);
}

static Val
feed_forward(Builder *b, const Seq2Seq *m, const Seq2SeqLayer *p, Val x)
{
  Val residual = let(b, "residual", x);
  if (m->norm_first)
    x = let(b, "hidden_states", layer_norm(b, x, p->norm));
  x = linear(b, x, p->up);
  x = let(b, "hidden_states", activation_call(b, m->activation, p->activation, x));
  x = let(b, "hidden_states", dropout(b, m->activation_dropout, x));
  x = let(b, "hidden_states", linear(b, x, p->down));
  return close_part(b, m, x, residual, p->norm);
}

/* Arguments: hidden states and, for a decoder, the encoder's, and the mask of eager attention. */
static Val
layer(Builder *b, gconstpointer model, int block, const Val *args)
{
  const Seq2Seq *m = model;
  int stack = block >= m->stack[SEQ2SEQ_DECODER].first ? SEQ2SEQ_DECODER : SEQ2SEQ_ENCODER;
  const Seq2SeqLayer *p = &m->layer[block];
  builder_enter(b, 1, (const char *const[]){"hidden_states"}, args);
  gboolean masked = stack == SEQ2SEQ_DECODER && m->attention == ATTENTION_EAGER;
  Val x = attention_part(b, m, stack, &p->self, args[0], NO_VAL, masked ? args[2] : NO_VAL);
  if (stack == SEQ2SEQ_DECODER)
    x = attention_part(b, m, stack, &p->cross, x, args[1], NO_VAL);
  x = feed_forward(b, m, p, x);
  if (stack == SEQ2SEQ_ENCODER && m->scales_query)
    x = half_clamp(b, x);
  else if (stack == SEQ2SEQ_ENCODER)
    half_test_finite(b, x);
  return builder_leave(b, x);
}

Val
seq2seq_layers(Builder *b, const Seq2Seq *m, int stack, Val x, Val memory, Val mask)
{
  const Seq2SeqStack *s = &m->stack[stack];
  const BlockCode code = {.forward = layer, .model = m, .kind = stack};
  for (int i = 0; i < s->count; i++) {
    Val args[3] = {x, memory, mask};
    int n = stack == SEQ2SEQ_ENCODER ? 1 : mask.slot == NO_VAL.slot ? 2 : 3;
    x = let(b, "hidden_states", builder_block_call(b, s->first + i, &code, n, args));
  }
  return x;
}

void
seq2seq_figures(Builder *b, const Seq2Seq *m)
{
  Network *network = builder_network(b);
  network->vocabulary = m->vocabulary;
  network->stacks = SEQ2SEQ_STACKS;
  network->hidden = network->attention_width = m->width;
}
