/* transformers_seq2seq.h - encoder and decoder layers as transformers' BART and Whisper have them:
 * self-attention, a decoder's cross-attention, feed-forward, each with dropout, a residual and
 * LayerNorm. */
#ifndef HIGHWATER_NETWORK_TRANSFORMERS_SEQ2SEQ_H
#define HIGHWATER_NETWORK_TRANSFORMERS_SEQ2SEQ_H

#include "network/transformers_activation.h"
#include "network/transformers_encoder.h"

typedef struct {
  Linear q, k, v, o;
  int module, norm;
} Seq2SeqAttention;

typedef struct {
  Seq2SeqAttention self, cross;
  Linear up, down;
  int norm, activation;
} Seq2SeqLayer;

enum { SEQ2SEQ_ENCODER, SEQ2SEQ_DECODER, SEQ2SEQ_STACKS };

typedef struct {
  int first, count; /* blocks */
  gint64 heads, ffn, length;
} Seq2SeqStack;

/* Comes first in a family's own struct. */
typedef struct {
  gint64 width, vocabulary, batch;
  double dropout, attention_dropout, activation_dropout;
  const Activation *activation;
  AttentionCode attention;
  gboolean norm_first; /* LayerNorm before what it is for, not after the residual */
  gboolean
      scales_query; /* queries are scaled by hand and heads made contiguous; keys have no bias */
  const char *type[SEQ2SEQ_STACKS];
  Seq2SeqStack stack[SEQ2SEQ_STACKS];
  Seq2SeqLayer *layer;
} Seq2Seq;

/* Reads what both configs have; lengths are the family's. */
void seq2seq_read(Seq2Seq *m, NetworkSpec *spec, const NetworkShape *shape);
/* Defines the ModuleList of a stack's layers. */
void seq2seq_define_layers(Builder *b, Seq2Seq *m, int stack);
/* Calls the layers of a stack; the value is bound to hidden_states.  memory: the encoder's states,
 * which a decoder sees, or NO_VAL; mask: encoder_causal_mask's. */
Val seq2seq_layers(Builder *b, const Seq2Seq *m, int stack, Val x, Val memory, Val mask);
/* Figures of the network for FLOP conventions. */
void seq2seq_figures(Builder *b, const Seq2Seq *m);

#endif
