/* transformers_norm.h - norms as transformers' models write them: in Python, or PyTorch's own. */
#ifndef HIGHWATER_NETWORK_TRANSFORMERS_NORM_H
#define HIGHWATER_NETWORK_TRANSFORMERS_NORM_H

#include "network/layers.h"

typedef enum {
  NORM_RMS,            /* LlamaRMSNorm: w * x.to(dtype) */
  NORM_RMS_FUSED,      /* nn.RMSNorm */
  NORM_RMS_WIDE,       /* Olmo2RMSNorm: (w * x).to(dtype) */
  NORM_RMS_ONE_PLUS,   /* GemmaRMSNorm: (x * (1 + w)).to(dtype) */
  NORM_LAYER,          /* nn.LayerNorm */
  NORM_LAYER_PLAIN,    /* OlmoLayerNorm: F.layer_norm in fp32 without gain and bias */
  NORM_LAYER_COMPOSED, /* CohereLayerNorm: mean and variance in Python, no bias */
  NORM_EACH_HEAD,      /* StableLmLayerNormPerHead: an nn.LayerNorm without bias for each head */
} NormKind;

/* A norm that has been defined. */
typedef struct {
  NormKind kind;
  int module;
  int weight;   /* its gain; the bias is the next one, or the next head's gain */
  gint64 heads; /* of NORM_EACH_HEAD */
} Norm;

/* Defines a module `name` that normalizes rows of `width` elements. */
Norm norm_define(Builder *b, const char *name, NormKind kind, gint64 width);
/* The same with a gain of [heads, width]. */
Norm norm_define_heads(Builder *b, const char *name, NormKind kind, gint64 heads, gint64 width);
/* The same with a norm of its own for each head, of [batch, heads, length, width]. */
Norm norm_define_each_head(Builder *b, const char *name, gint64 heads, gint64 width);
/* The module's call. */
Val norm_apply(Builder *b, Val x, const Norm *norm);

#endif
