/* torchtitan_latent.h - latent attention as torchtitan writes it (models/deepseek_v3). */
#ifndef HIGHWATER_NETWORK_TORCHTITAN_LATENT_H
#define HIGHWATER_NETWORK_TORCHTITAN_LATENT_H

#include "network/latent_attention.h"

/* Parameters of a block's attention. */
typedef struct {
  Linear q, q_a, q_b, kv_a, kv_b, o;
  int q_norm, kv_norm, module;
} TorchtitanLatent;

/* What is the same in all blocks. */
typedef struct {
  const CausalLm *lm; /* borrowed */
  LatentStyle style;
  NormCode norm;
} LatentModel;

/* Defines the module as a child of the open one, "attention". */
TorchtitanLatent torchtitan_latent_define(Builder *b, const CausalLm *lm, const LatentStyle *style);
/* Its call. */
Val torchtitan_latent(Builder *b, const LatentModel *m, const TorchtitanLatent *p, Val x,
                      const Val *tables);

#endif
