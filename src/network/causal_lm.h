/* causal_lm.h - what decoder language models share: sizes, the modules around the blocks, and the
 * training loop's calls.
 *
 * A family gives its blocks, its embedding and its final norm; causal_lm writes the network's main
 * function for the training loop of torchtitan and nanoGPT: logits = model(tokens), loss =
 * cross_entropy(logits), loss / n. */
#ifndef HIGHWATER_NETWORK_CAUSAL_LM_H
#define HIGHWATER_NETWORK_CAUSAL_LM_H

#include "network/builder.h"
#include "network/layers.h"
#include "spec/network_spec.h"

#define LM_TABLES 4

/* What kind a block is of, as bits: blocks of one kind are computed in the same way. */
typedef enum {
  LAYER_WINDOWED = 1 << 0,  /* attention sees the window only */
  LAYER_UNROTATED = 1 << 1, /* no rotary embedding */
  LAYER_FAMILY = 1 << 2,    /* this bit and higher ones: the family's own */
} LayerKind;

/* Tables of rotary embeddings as transformers makes them in forward(). */
typedef struct {
  gint64 dim;          /* of a head that is rotated; 0: all of it */
  gboolean wide;       /* left in fp32 */
  gboolean halved;     /* half as wide */
  gboolean neighbours; /* elements side by side make a pair */
  gboolean complex;    /* one table of complex numbers */
  gboolean by_kind;    /* others for windowed blocks */
  gboolean joined;     /* torchtitan: one table with cosines and sines */
  /* what is done to the frequencies first: nothing; "dynamic", "longrope" look at the positions */
  enum { FREQUENCIES_FIXED, FREQUENCIES_DYNAMIC, FREQUENCIES_LONG } update;
} RotaryTables;

typedef struct _CausalLm CausalLm;
struct _CausalLm {
  gint64 hidden, layers, heads, head_dim, vocabulary;
  gboolean tied;
  Implementation impl;
  gint64 batch, length;
  DType dtype;          /* of the residual stream */
  gboolean mask_kwargs; /* transformers: forward() keeps embeddings and position ids in a dict, and
                           makes masks for all kinds of layers */
  gboolean mask_without_positions; /* transformers: nobody looks whether sequences are packed */
  gint64 window;                   /* sliding attention window in tokens, 0: none */
  guint8 *layer_kinds;      /* LayerKind by block; NULL: all are windowed, if there is a window */
  double caps_scores;       /* transformers' eager attention: soft cap of scores; 0: none */
  double attention_dropout; /* of its probabilities */
  RotaryTables rotary;
  /* modules and parameters around the blocks, filled in by the family */
  int rotary_module;
  int embedding_module, norm_module, head_module, embedding_weight, norm_weight;
  Linear head;
  /* what a block takes besides its input: tables made at construction */
  int tables;
  ValueInfo table[LM_TABLES];
  /* the family's code; model is its own struct, which begins with this one */
  Val (*embed)(Builder *b, const CausalLm *lm, Val tokens);
  Val (*norm)(Builder *b, const CausalLm *lm, Val x);
  /* transformers: learned positions added to the embeddings (as named locals of the model's
   * forward), and dropout on the sum; NULL: none */
  Val (*add_positions)(Builder *b, const CausalLm *lm, Val inputs_embeds, Val positions);
  Val (*embedding_drop)(Builder *b, const CausalLm *lm, Val x);
  Val (*block)(Builder *b, const CausalLm *lm, int block, Val x, const Val *tables);
  /* transformers: what happens to logits before the loss (as the named local); NULL: nothing */
  Val (*adjust_logits)(Builder *b, const CausalLm *lm, Val logits);
  /* transformers: the number of the step's items, which forward() was given (its slot) and hands on
   * to blocks with all further keywords; NO_VAL: there is none */
  Val *items;
  /* transformers: what hooks inside of blocks keep for the model's output, in order (Val); NULL: no
   * hook does */
  GArray *captured;
  /* transformers: the loss with what is added to it, made of those; *auxiliary is of the output
   * too.  NULL: nothing is */
  Val (*add_loss)(Builder *b, const CausalLm *lm, Val loss, Val *auxiliary);
  /* the loss of logits, which are borrowed; NULL: causal_lm_loss */
  Val (*loss)(Builder *b, const CausalLm *lm, Val logits, Val labels);
  /* transformers: another forward() of the model without its output layer; NULL: none */
  Val (*model)(Builder *b, const CausalLm *lm, Val tokens);
  gboolean head_bias;     /* of the output layer */
  gboolean ties_again;    /* a tied weight that was split for sharding is tied once more */
  gint64 embedding_width; /* of embedding and output layer; 0: hidden */
};

/* Reads the fields that every config has; fills sizes from the shape.  Heads and vocabulary that
 * are set already are defaults. */
void causal_lm_read(CausalLm *lm, NetworkSpec *spec, const NetworkShape *shape);
/* A probability of dropping out; 0 in evaluation. */
double causal_lm_read_dropout(NetworkSpec *spec, const char *name, double fallback,
                              gboolean evaluation);
/* Refuses a matrix that cannot exist, because of the field under these names. */
void causal_lm_check_matrix(NetworkSpec *spec, const char *names, gint64 rows, gint64 columns);
/* Refuses more layers than a network may have, heads that do not divide the width, and positions
 * that are fewer than the plan's sequences have, each because of the field under these names. */
void causal_lm_check_layers(NetworkSpec *spec, const char *names, gint64 layers);
void causal_lm_check_width(NetworkSpec *spec, const char *names, gint64 heads, gint64 width);
void causal_lm_check_positions(NetworkSpec *spec, const char *names, gint64 positions,
                               gint64 length);
/* Refuses sizes that cannot be: heads that do not divide, odd head dims under RoPE, too many
 * layers, tables that are too large.  FALSE after any error in the config. */
gboolean causal_lm_check(const CausalLm *lm, gint64 kv_heads, NetworkSpec *spec, GError **error);
/* Defines the embedding (and says where a tied weight is). */
void causal_lm_define_embedding(Builder *b, CausalLm *lm, const char *name);
/* Defines the output layer; a tied one has the embedding's weight. */
void causal_lm_define_head(Builder *b, CausalLm *lm, const char *name);
/* Writes function `main`, the blocks' functions and the construction of tables, and the network's
 * figures. */
void causal_lm_write(Builder *b, CausalLm *lm);

/* How much of a head is rotated: all of it, unless it is said. */
gint64 causal_lm_rotary_dim(const CausalLm *lm);
/* Tables of rotary embeddings as torchtitan makes them after construction. */
void rope_tables(Builder *b, CausalLm *lm);

/* lossf(): cross entropy of flattened logits, in fp32, in the model's dtype or in one kernel. */
Val causal_lm_loss(Builder *b, const CausalLm *lm, Val logits, Val labels);
/* Figures of the network for FLOP conventions. */
void causal_lm_figures(Builder *b, const CausalLm *lm);
/* What computes the blocks. */
BlockCode causal_lm_block_code(const CausalLm *lm);

#endif
