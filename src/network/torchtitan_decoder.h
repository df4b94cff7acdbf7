/* torchtitan_decoder.h - decoders as torchtitan writes them: Llama, and what Qwen3 and DeepSeek V3
 * make of it (models/llama3, models/qwen3, models/deepseek_v3 of torchtitan 0.2.2).
 *
 * A family fills in a TorchtitanStyle, whose read() says what its config.json has besides. */
#ifndef HIGHWATER_NETWORK_TORCHTITAN_DECODER_H
#define HIGHWATER_NETWORK_TORCHTITAN_DECODER_H

#include "network/causal_lm.h"
#include "network/torchtitan_latent.h"
#include "network/torchtitan_moe.h"

typedef struct _Torchtitan Torchtitan;

/* What relatives of Llama differ in. */
typedef struct {
  gboolean qkv_bias, o_bias;
  gboolean qk_norm; /* of each head, before the rotation; defined before the projections */
  gboolean latent;  /* latent attention */
  /* how queries and keys are rotated */
  enum {
    TORCHTITAN_ROTATE_APART,    /* one after the other, as implementation.rope says */
    TORCHTITAN_ROTATE_TOGETHER, /* in one function, with cosines and sines in one table */
  } rotation;
  gboolean rotates_alike; /* implementation.rope and kv_heads change nothing: they are Llama's */
  gboolean norms_first;   /* norms are defined before the feed-forward */
  gboolean output_late;   /* attention's output has a name only when it is contiguous */
  const char *const *without; /* fields that are refused when they are true; NULL: none */
  gboolean ties_again;        /* init_weights() ties, after fully_shard() */
  const char *stream;         /* what a block calls what it adds to: NULL: a name of its own, "h" */
  gint64 head_dim;            /* 0: hidden_size / num_attention_heads */
  /* Reads fields that only this family has; NULL: none. */
  void (*read)(Torchtitan *m, NetworkSpec *spec);
} TorchtitanStyle;

/* What Qwen3 without and with mixtures have in common. */
#define TORCHTITAN_QWEN3                                                                           \
  .qk_norm = TRUE, .rotation = TORCHTITAN_ROTATE_TOGETHER, .rotates_alike = TRUE,                  \
  .output_late = TRUE, .ties_again = TRUE, .stream = "x"

/* Parameters (by index) and modules of a block. */
typedef struct {
  Linear q, k, v, o;
  int q_norm, k_norm, attention;
  TorchtitanLatent latent;
  TorchtitanFeedForward feed_forward;
  TorchtitanMoe moe;
  int norm1, norm2;
} TorchtitanBlock;

struct _Torchtitan {
  CausalLm lm; /* comes first: what every language model has */
  TorchtitanStyle style;
  gint64 kv_heads, ffn;
  gboolean mlp_bias;
  NormCode norm;
  LatentStyle latent;
  gboolean mixed;    /* feed-forwards are mixtures of experts */
  gint64 dense;      /* but for those of so many blocks at the beginning */
  MoeStyle moe;      /* of all mixtures */
  gboolean balances; /* a hook of the optimizer's step updates the experts' biases */
  TorchtitanBlock *blocks;
};

/* Builds the network of a config.json, or NULL and an error. */
Network *torchtitan_build(const TorchtitanStyle *style, NetworkSpec *spec,
                          const NetworkShape *shape, GError **error);

#endif
