/* moe_decoder.h - decoders of the llama kind whose feed-forward is a mixture of experts, in all
 * blocks or in some.
 *
 * A family fills in a DecoderStyle, whose read() calls moe_decoder_read(), and a MoeStyle. */
#ifndef HIGHWATER_NETWORK_MOE_DECODER_H
#define HIGHWATER_NETWORK_MOE_DECODER_H

#include "network/moe.h"
#include "network/transformers_decoder.h"

typedef struct {
  Decoder decoder; /* comes first */
  MoeStyle style;
  Moe *mixtures;    /* by block */
  guint8 *is_dense; /* by block: the decoder's own feed-forward */
  GArray *captured; /* Val: the routers' logits, while the forward() is written */
  double balance;   /* what the loss of uneven routing is multiplied by */
} MoeDecoder;

/* What fields of a config.json are called, and what they are when they are not there. */
typedef struct {
  const char *experts; /* "num_experts" */
  gint64 experts_default, top_k_default;
  const char *ffn; /* width of an expert; NULL: intermediate_size */
  gint64 ffn_default;
  gboolean norm_topk_prob, norm_default; /* there is such a field; what it is */
  double balance;                        /* router_aux_loss_coef; 0: the model has no such loss */
} MoeFields;

/* The fields that all mixtures have, of a model so wide whose feed-forwards are so wide. */
void moe_style_read(MoeStyle *style, gint64 hidden, gint64 ffn, NetworkSpec *spec,
                    const MoeFields *fields);
/* The same for the style's read(). */
void moe_decoder_read(Decoder *d, NetworkSpec *spec, const MoeFields *fields);
/* Block i has no mixture. */
void moe_decoder_set_dense(Decoder *d, int block);
/* mlp_only_layers and decoder_sparse_step of Qwen's mixtures. */
void moe_decoder_read_sparse_layers(Decoder *d, NetworkSpec *spec);
static inline MoeStyle *
moe_decoder_style(Decoder *d)
{
  return &((MoeDecoder *) d)->style;
}

/* Builds the network of a config.json.  NULL and an error after a wrong field. */
/* The same with a struct that begins with a MoeDecoder, whose styles are filled in. */
Network *moe_decoder_build_in(MoeDecoder *m, NetworkSpec *spec, const NetworkShape *shape,
                              GError **error);
Network *moe_decoder_build(const DecoderStyle *style, const MoeStyle *moe, NetworkSpec *spec,
                           const NetworkShape *shape, GError **error);

#endif
