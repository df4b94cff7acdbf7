/* torchtitan_llama.h - Llama as torchtitan writes it. */
#ifndef HIGHWATER_NETWORK_TORCHTITAN_LLAMA_H
#define HIGHWATER_NETWORK_TORCHTITAN_LLAMA_H

#include "network/causal_lm.h"

/* What relatives of Llama differ in. */
typedef struct {
  gboolean qkv_bias, o_bias;
} TorchtitanLlama;

/* Builds the network of a config.json, or NULL and an error. */
Network *torchtitan_llama_build(const TorchtitanLlama *style, NetworkSpec *spec,
                                const NetworkShape *shape, GError **error);

#endif
