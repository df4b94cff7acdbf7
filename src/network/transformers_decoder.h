/* transformers_decoder.h - decoder language models of the llama kind as transformers writes them.
 *
 * What a model is made of is a value, DecoderStyle: a family fills in one, with a function that
 * reads what the config.json says on top of the fields that all have.  Where that is not enough, a
 * style names functions of its own for the feed-forward or for the whole block.
 *
 * A family whose blocks need more than a Decoder has begins its struct with one. */
#ifndef HIGHWATER_NETWORK_TRANSFORMERS_DECODER_H
#define HIGHWATER_NETWORK_TRANSFORMERS_DECODER_H

#include "network/family.h"
#include "network/transformers_activation.h"
#include "network/transformers_lm.h"
#include "network/transformers_norm.h"
#include "network/transformers_rope.h"

/* What becomes of queries, keys and values between the projections and the rotary embedding: each
 * step is done for the three in turn.  Without QKV_THEN between them steps are one statement, which
 * is carried out for the queries first. */
typedef enum {
  QKV_END,
  QKV_THEN,      /* the next statement */
  QKV_PROJECT,   /* the linear layers, or slices of what a fused one gives */
  QKV_CLIP,      /* clamp_() */
  QKV_NORM,      /* of queries and keys */
  QKV_HEADS,     /* view(batch, length, heads, head_dim) */
  QKV_TRANSPOSE, /* transpose(1, 2) */
} QkvStep;

#define QKV_STEPS 8

/* The four places where a norm may stand in a block. */
enum { BEFORE_ATTENTION, AFTER_ATTENTION, BEFORE_FEED_FORWARD, AFTER_FEED_FORWARD, NORM_PLACES };

typedef enum {
  MLP_GATED,       /* down(act(gate(x)) * up(x)) */
  MLP_GATED_FUSED, /* up, gate in one layer: down(up * act(gate)) */
  MLP_PLAIN,       /* down(act(up(x))) */
} MlpKind;

/* What modules are called. */
typedef enum {
  NAME_EMBEDDING,
  NAME_ATTENTION,
  NAME_Q,
  NAME_K,
  NAME_V,
  NAME_QKV,
  NAME_O,
  NAME_Q_NORM,
  NAME_K_NORM,
  NAME_FEED_FORWARD,
  NAME_GATE,
  NAME_UP,
  NAME_DOWN,
  NAME_ACTIVATION,
  NAME_HEAD,
  NAME_COUNT
} DecoderName;

typedef struct _Decoder Decoder;

typedef struct {
  const char *model_class;        /* type of the module `model`; NULL: "Model" */
  const char *names[NAME_COUNT];  /* NULL: Llama's */
  const char *norms[NORM_PLACES]; /* names; NULL: no norm there.  Without any they are Llama's */
  NormKind norm;
  /* attention */
  QkvStep qkv[QKV_STEPS];
  gboolean fused_qkv, o_first; /* one projection; o is defined before it */
  gboolean grouped_qkv;      /* of it, a key head's queries, its keys and its values lie together */
  gboolean qkv_bias, o_bias; /* of the projections */
  enum {
    QK_NORM_NONE,
    QK_NORM_HEAD,
    QK_NORM_HEADS,
    QK_NORM_EACH_HEAD,
    QK_NORM_PROJECTION
  } qk_norm; /* its gain's size */
  RotaryKind rotary;
  /* feed-forward */
  MlpKind mlp;
  gboolean mlp_bias;
  gboolean mlp_last; /* defined after the norms */
  /* dropouts, as probabilities: of what attention and feed-forward return, inside of them; the same
   * by modules of the block; of embeddings */
  double inner_dropout, block_dropout, embedding_dropout;
  const char *dropout_modules[2]; /* names of block_dropout's modules; NULL: none */
  /* products with a number, by the config's field that has it; NULL: none */
  gboolean embedding_buffer;        /* embeddings by a buffer of the embedding module */
  const char *embedding_scale;      /* embeddings, after it */
  const char *embedding_scale_late; /* after the masks have been made */
  const char *residual_scale;       /* what attention and feed-forward return */
  const char *logits_scale;
  OpId logits_scale_op; /* OP_MUL_SCALAR, OP_DIV_SCALAR */
  double caps_logits;   /* soft cap; 0: none */
  /* config.json: names and defaults */
  const char *activation_field;                  /* NULL: hidden_act */
  const char *activation;                        /* NULL: silu */
  gint64 head_dim;                               /* 0: hidden_size / num_attention_heads */
  gint64 heads, kv_heads, vocabulary;            /* 0: required, as many as heads, required */
  gboolean attention_bias_field, mlp_bias_field; /* attention_bias, mlp_bias are fields */
  gboolean tied;
  double rotary_part; /* default of partial_rotary_factor; 0: the model has no such field */
  /* Reads fields that only this family has, into the decoder; NULL: none. */
  void (*read)(Decoder *d, NetworkSpec *spec);
  /* Another attention: defines its modules in block i, and calls them as decoder_attention does. */
  void (*define_attention)(Builder *b, Decoder *d, int block);
  Val (*attention)(Builder *b, const Decoder *d, int block, Val x, const Val *tables, Val *weights);
  /* What the attention module has besides the projections, and what happens between the rotation
   * and the output's projection, as transformers_attend() does it. */
  void (*define_in_attention)(Builder *b, Decoder *d, int block);
  Val (*attend)(Builder *b, const Decoder *d, int block, const Val qkv[3], Val mask, Val *weights);
  /* Another feed-forward: defines its modules in block i, and calls them; NULL: as `mlp` says. */
  void (*define_feed_forward)(Builder *b, Decoder *d, int block);
  Val (*feed_forward)(Builder *b, const Decoder *d, int block, Val x);
  /* Another block's forward(); NULL: residual + f(norm(x)) twice. */
  Val (*block)(Builder *b, const CausalLm *lm, int block, Val x, const Val *tables);
} DecoderStyle;

/* Parameters and modules of a block. */
typedef struct {
  Linear q, k, v, qkv, o, gate, up, down;
  Norm norms[NORM_PLACES], q_norm, k_norm;
  int attention, feed_forward, activation, dropout[2];
} DecoderBlock;

struct _Decoder {
  CausalLm lm; /* comes first: the block's code gets a pointer to it */
  DecoderStyle style;
  gint64 kv_heads, ffn;
  const Activation *activation;
  double embedding_factor, residual_factor, logits_factor; /* where the style has such fields */
  double clip;                                             /* of QKV_CLIP */
  Norm norm;                                               /* the last one */
  DecoderBlock *blocks;
  gboolean evaluation; /* nothing is dropped out */
};

/* Builds the network of a config.json: reads it, defines modules, writes forward().  d: zeros but
 * for its style, and what a family has behind it.  NULL and an error after a wrong field. */
Network *decoder_build(Decoder *d, NetworkSpec *spec, const NetworkShape *shape, GError **error);
/* The same for a family that needs nothing but a style. */
Network *decoder_build_style(const DecoderStyle *style, NetworkSpec *spec,
                             const NetworkShape *shape, GError **error);

/* ---- for a style's read() ---- */

/* A dropout probability under this name; 0 in evaluation. */
double decoder_read_dropout(const Decoder *d, NetworkSpec *spec, const char *name);
/* Blocks are windowed as layer_types says, by name; where there is no such field, as `windowed`
 * says of each block (NULL: none).  Without a windowed block there is no window. */
void decoder_read_layer_types(Decoder *d, NetworkSpec *spec,
                              gboolean (*windowed)(int block, gint64 number), gint64 number);
/* Qwen's: use_sliding_window says whether there is a window, max_window_layers from which block on.
 */
void decoder_read_last_windows(Decoder *d, NetworkSpec *spec);
/* layer_types, or all blocks windowed but every pattern-th. */
void decoder_read_window_pattern(Decoder *d, NetworkSpec *spec, gint64 pattern);
/* Sets a bit of the block's kind. */
void decoder_mark_layer(Decoder *d, int block, guint8 kind);
/* Is there a soft cap under this name? */
double decoder_read_cap(NetworkSpec *spec, const char *name, double fallback);

/* ---- for a style's own code ---- */

/* The block that a style without one of its own has. */
Val decoder_block(Builder *b, const CausalLm *lm, int block, Val x, const Val *tables);
/* The feed-forward of the style's `mlp`: its modules in block i, and its call. */
void decoder_define_mlp(Builder *b, Decoder *d, int block);
Val decoder_mlp(Builder *b, const Decoder *d, int block, Val x);
/* The attention module's call.  *weights: eager attention's probabilities, or NO_VAL. */
Val decoder_attention(Builder *b, const Decoder *d, int block, Val x, const Val *tables,
                      Val *weights);
/* The feed-forward module's call, whichever it is. */
Val decoder_feed_forward(Builder *b, const Decoder *d, int block, Val x);

#endif
