/* classic_decoder.h - decoder language models with LayerNorm and a plain feed-forward as
 * transformers writes them: GPT-NeoX, GPT-J, GPT-Neo, OPT, Phi, BLOOM, Falcon, GPTBigCode, MPT.
 *
 * What a model is made of is a value, ClassicStyle: names of its modules, functions that define a
 * block and compute it, and one that makes what all blocks are called with.  The model's forward()
 * around them, the feed-forward and the fields that all configs have are shared. */
#ifndef HIGHWATER_NETWORK_CLASSIC_DECODER_H
#define HIGHWATER_NETWORK_CLASSIC_DECODER_H

#include "network/family.h"
#include "network/transformers_activation.h"
#include "network/transformers_lm.h"

/* Parameters (by index) and modules of a block; a family uses what it has. */
typedef struct {
  Linear qkv, q, k, v, out; /* attention's projections, fused or apart */
  Linear up, down;          /* of the feed-forward */
  int norm1, norm2;         /* gains */
  int attention, inner;     /* GPT-Neo has a module in the module */
  int mlp, activation;
} ClassicBlock;

typedef struct _Classic Classic;

/* What every block is called with, after hidden states. */
typedef struct {
  int n;
  Val value[STATEMENT_SLOTS - 1];
} ClassicArguments;

typedef struct {
  /* names of modules and their types */
  const char *model, *embedding, *layers, *block, *norm;
  const char *inner_model; /* a module in the model that has all of these, or NULL */
  /* names of fields in a config.json, and their defaults */
  const char *ffn_field, *positions_field, *activation_field, *activation;
  gint64 positions; /* default of positions_field; 0: that field only limits the length */
  /* probabilities; NULL: no such field */
  const char *attention_dropout, *residual_dropout, *embedding_dropout;
  double attention_dropout_default, dropout_default;
  gboolean tied; /* default of tie_word_embeddings */
  gboolean head_bias;
  gboolean keeps_keywords;    /* forward() hands further keywords on to no block */
  gboolean learned_positions; /* the model has a table of them, called this: */
  const char *position_embedding;
  gint64 position_offset;            /* rows before position 0 */
  gboolean rotary;                   /* the model makes tables of rotary embeddings */
  gboolean renames_embeddings;       /* their dropout is bound to their name */
  gboolean drops_outside;            /* the block, not its attention, drops out what that returns */
  gboolean rotary_before_norm;       /* in order of definition */
  gboolean returns_weights;          /* blocks return eager attention's probabilities too */
  gboolean no_sdpa;                  /* its attention is eager, whatever is asked for */
  const char *rotary_fraction_field; /* of a head that is rotated; NULL: all of it */
  double rotary_fraction;            /* its default */
  /* Reads fields that only this family has; NULL: none. */
  void (*read)(Classic *m, NetworkSpec *spec);
  /* Defines modules beside the embeddings, before the blocks and after them; NULL: none. */
  void (*define_first)(Builder *b, Classic *m);
  void (*define_last)(Builder *b, Classic *m);
  void (*define_block)(Builder *b, Classic *m, ClassicBlock *p, int block);
  /* What the model's forward() does between the embeddings and the blocks: returns hidden states.
   */
  Val (*prepare)(Builder *b, const Classic *m, Val embeds, ClassicArguments *args);
  Val (*compute_block)(Builder *b, const CausalLm *lm, int block, Val x, const Val *args);
  /* The attention module's call, of blocks that classic_block or classic_block_parallel computes.
   */
  Val (*attention)(Builder *b, const Classic *m, int block, Val x, const Val *args, Val *weights);
  /* What it does after the last norm; NULL: nothing. */
  Val (*finish)(Builder *b, const Classic *m, Val x);
} ClassicStyle;

struct _Classic {
  CausalLm lm; /* comes first: the functions above get a pointer to it */
  const ClassicStyle *style;
  gint64 ffn, positions, kv_heads;
  double residual_dropout, embedding_dropout;
  gboolean evaluation; /* nothing is dropped out */
  gboolean bias;       /* of linear layers, where the config decides */
  gboolean parallel;   /* attention and feed-forward side by side */
  gboolean norm_first; /* norms before attention and feed-forward, not after */
  gboolean final_norm; /* there is a last one */
  const Activation *activation;
  int position_weight, embedding_norm;
  Linear project_in, project_out; /* around the blocks; weight 0: none */
  ClassicBlock *blocks;
};

/* Builds the network of a config.json: m is zeros but for its style, and what a family has behind
 * it. NULL and an error after a wrong field. */
Network *classic_build(Classic *m, NetworkSpec *spec, const NetworkShape *shape, GError **error);
/* The same for a family that needs nothing but a style. */
Network *classic_build_style(const ClassicStyle *style, NetworkSpec *spec,
                             const NetworkShape *shape, GError **error);

/* ---- what families' own code is made of ---- */

/* The plain feed-forward as a module `name` of two linear layers and the activation. */
void classic_define_mlp(Builder *b, const Classic *m, ClassicBlock *p, const char *const names[4],
                        gboolean bias);
/* The norm behind the blocks. */
void classic_define_last_norm(Builder *b, Classic *m, const char *name);
/* The feed-forward's call: down(act(up(x))), then dropout. */
Val classic_mlp(Builder *b, const Classic *m, const ClassicBlock *p, Val x);
/* prepare() of models with rotary tables, and with learned positions. */
Val classic_prepare_rotary(Builder *b, const Classic *m, Val embeds, ClassicArguments *args);
Val classic_prepare_learned(Builder *b, const Classic *m, Val embeds, ClassicArguments *args);
/* out = F.dropout(x); residual + out */
Val classic_dropout_add(Builder *b, double p, Val x, Val residual);
/* Appends an argument of blocks; NO_VAL: nothing. */
void classic_argument(ClassicArguments *args, Val value);
/* attention_interface(...), heads merged, output projection: as names of the caller's frame, which
 * builder_leave_beside ends. */
Val classic_attend(Builder *b, const Classic *m, const ClassicBlock *p, const Val qkv[3], Val mask,
                   Val *weights);
/* view(batch, length, heads, head_dim).transpose(1, 2) */
Val classic_heads(Builder *b, const Classic *m, Val x);
/* Blocks: x + attention(norm(x)), then x + mlp(norm(x)); and x + attention(y) + mlp(y) of y =
 * norm(x). */
Val classic_block(Builder *b, const CausalLm *lm, int block, Val x, const Val *args);
Val classic_block_parallel(Builder *b, const CausalLm *lm, int block, Val x, const Val *args);
/* Return of a block, with what its attention returned beside if the style says so. */
Val classic_block_leave(Builder *b, const Classic *m, Val x, Val weights);

#endif
