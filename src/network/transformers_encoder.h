/* transformers_encoder.h - what transformers' encoders and encoder-decoders share: attention
 * without a causal mask or between two sequences, dropout, losses in the model's dtype. */
#ifndef HIGHWATER_NETWORK_TRANSFORMERS_ENCODER_H
#define HIGHWATER_NETWORK_TRANSFORMERS_ENCODER_H

#include "network/builder.h"
#include "network/layers.h"
#include "network/transformers_root.h"
#include "spec/network_spec.h"

/* ---- config.json ---- */

/* A probability, 0 where nothing is dropped out.  1 drops all: refused. */
double encoder_read_dropout(NetworkSpec *spec, const NetworkShape *shape, const char *names,
                            double fallback);
/* Refuses what transformers' code does not do, and what these families do not know: an
 * implementation of another code base, an attention but sdpa, flash, efficient and eager, groups of
 * their own for embedding and head, compiled blocks. */
void encoder_check(NetworkSpec *spec, const NetworkShape *shape);
/* The plan's sequence length; when the plan does not say, at most `most`.  Refuses a longer one
 * because of the field under these names. */
gint64 encoder_length(NetworkSpec *spec, const NetworkShape *shape, const char *names, gint64 most);
/* How long what the decoder gets is. */
gint64 encoder_target_length(const NetworkShape *shape);
/* Does transformers' own gradient checkpointing train these blocks? */
gboolean encoder_is_checkpointed(const NetworkShape *shape);
/* Patches of an image: they are whole and tensors can hold them. */
void encoder_check_image(NetworkSpec *spec, gint64 image, gint64 patch, gint64 channels);
/* Refuses another class in "architectures" than this one; or than any of these, which end with
 * NULL, and class is what the message calls them. */
void encoder_expect_class(NetworkSpec *spec, const char *class, const char *const *classes);

/* ---- modules ---- */

/* Defines nn.Dropout; returns its module. */
int encoder_define_dropout(Builder *b);
/* A module that has no parameters and calls nothing. */
int encoder_define_plain(Builder *b, const char *name, const char *type);
/* nn.Embedding; returns its weight. */
int encoder_define_embedding(Builder *b, const char *name, gint64 rows, gint64 width);

/* ---- calls ---- */

/* nn.Dropout's call. */
Val encoder_dropout(Builder *b, int module, double p, Val x);
/* The same of an embedding whose weight is another module's. */
Val encoder_embed_tied(Builder *b, int module, int weight, Val indices);
/* [batch, length, width] as [batch, heads, length, head_dim]. */
Val encoder_heads(Builder *b, Val x, gint64 heads);
/* attention_interface(...) of q, k, v like that, then attn_output.reshape(*input_shape,
 * -1).contiguous(), as a name.  *weights: the probabilities that eager attention returns beside, a
 * name too, else NO_VAL. */
typedef struct {
  AttentionCode code;
  gint64 heads;
  double dropout;
  gboolean causal;
  gboolean wide_softmax; /* eager attention's is computed in fp32 */
  Val bias;              /* added to the scores, or NO_VAL */
  Val mask;              /* eager attention's, added after it, or NO_VAL */
  /* sdpa's mask of the bias, with what is not seen; NULL: there is no bias */
  Val (*prepare_bias)(Builder *b, Val bias, gboolean causal);
} EncoderAttention;
Val encoder_attend_merged(Builder *b, const EncoderAttention *how, const Val qkv[3], Val *weights);
/* The mask that a decoder's eager attention gets, [batch, 1, length, length], as a name; NO_VAL:
 * the attention needs none.  positions: forward() gives position ids. */
Val encoder_causal_mask(Builder *b, AttentionCode code, gint64 batch, gint64 length,
                        gboolean positions);
/* The same, made of a mask that says which tokens are padding: a temporary. */
Val encoder_padded_mask(Builder *b, gint64 batch, gint64 length);
/* x.to(dtype of the weights), x itself when it has it. */
Val encoder_as_weights(Builder *b, Val x);
/* One row of the first dimension seen `batch` times. */
Val encoder_expand_rows(Builder *b, Val x, gint64 batch);
/* torch.cat([x, y], dim=1) of [batch, rows, width], in the wider dtype of both. */
Val encoder_cat_rows(Builder *b, Val x, Val y);
/* CrossEntropyLoss()(logits.view(-1, classes), labels.view(-1)): logits are borrowed. */
Val encoder_loss(Builder *b, Val logits, Val labels, gint64 classes);
/* shift_tokens_right(labels): a new tensor of indices, as an expression's own. */
Val encoder_shift_right(Builder *b, gint64 batch, gint64 length);

#endif
