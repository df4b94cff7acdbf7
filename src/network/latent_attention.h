/* latent_attention.h - attention whose keys and values are made of a narrow latent vector, with a
 * part of each head for the rotary embedding (DeepSeek V2 and V3 in transformers). */
#ifndef HIGHWATER_NETWORK_LATENT_ATTENTION_H
#define HIGHWATER_NETWORK_LATENT_ATTENTION_H

#include "network/transformers_decoder.h"

typedef enum {
  LATENT_HALVES,     /* rotary parts are rotated by halves */
  LATENT_NEIGHBOURS, /* by neighbours, on slices of even and odd elements */
  LATENT_COMPLEX,    /* as complex numbers */
} LatentRotation;

typedef struct {
  gint64 q_rank;                        /* of the queries' latent vector; 0: none */
  gint64 kv_rank, plain, rotary, value; /* widths: of a head without and with rotation, of values */
  gboolean bias;
  LatentRotation rotation;
} LatentStyle;

/* Parameters of a block's attention. */
typedef struct {
  Linear q, q_a, q_b, kv_a, kv_b, o;
  Norm q_norm, kv_norm;
  int module;
} LatentAttention;

/* Width of a head of queries and keys. */
gint64 latent_query_dim(const LatentStyle *style);
/* Width that attention's FLOPs follow from: products with keys and with values. */
gint64 latent_attention_width(const LatentStyle *style, gint64 heads);
/* Reads the widths; sets the model's head dim and rotary tables. */
LatentStyle latent_attention_read(CausalLm *lm, gint64 kv_heads, NetworkSpec *spec);
LatentAttention latent_attention_define(Builder *b, const Decoder *d, const LatentStyle *style);
/* The module's call, as decoder_attention(). */
Val latent_attention_call(Builder *b, const Decoder *d, const LatentStyle *style,
                          const LatentAttention *p, Val x, const Val *tables, Val mask,
                          Val *weights);

#endif
