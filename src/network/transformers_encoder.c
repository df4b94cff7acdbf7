/* transformers_encoder.c - what transformers' encoders and encoder-decoders share (release 5:
 * integrations/sdpa_attention.py, eager_attention_forward of modeling_bert.py). */
#include "network/transformers_encoder.h"

#include <string.h>

#include "network/causal_lm.h"
#include "network/strides.h"
#include "network/transformers_lm.h"
#include "network/transformers_masks.h"

/* ---- config.json ---- */

double
encoder_read_dropout(NetworkSpec *spec, const NetworkShape *shape, const char *names,
                     double fallback)
{
  double p = network_spec_double(spec, names, fallback);
  if (!(p >= 0 && p < 1))
    network_spec_fail(spec, names, "%.17g is not a probability in 0..1 below 1", p);
  return shape->evaluation ? 0 : p;
}

void
encoder_check(NetworkSpec *spec, const NetworkShape *shape)
{
  const Implementation *impl = &spec->implementation;
  JsonReader *reader = spec->reader;
  gboolean known = impl->attention == ATTENTION_SDPA || impl->attention == ATTENTION_FLASH ||
                   impl->attention == ATTENTION_EFFICIENT || impl->attention == ATTENTION_EAGER;
  if (impl->code != CODE_TRANSFORMERS)
    json_reader_fail(reader, "implementation", "%s is transformers' code alone", spec->family);
  if (impl->loss != LOSS_FP32)
    json_reader_fail(reader, "implementation", "the loss of %s is the model's own", spec->family);
  if (!known)
    json_reader_fail(reader, "implementation",
                     "the attention of %s is sdpa, flash, efficient or eager", spec->family);
  if (shape->plan != NULL && shape->plan->compile_per_block)
    json_reader_fail(reader, "model_type", "compiled blocks of %s are not known", spec->family);
}

gint64
encoder_length(NetworkSpec *spec, const NetworkShape *shape, const char *names, gint64 most)
{
  gboolean given = shape->plan != NULL && shape->plan->sequence_length_given;
  if (shape->sequence_length <= most)
    return shape->sequence_length;
  if (given || shape->evaluation)
    causal_lm_check_positions(spec, names, most, shape->sequence_length);
  return most;
}

gint64
encoder_target_length(const NetworkShape *shape)
{
  return shape->target_length > 0 ? shape->target_length : shape->sequence_length;
}

gboolean
encoder_is_checkpointed(const NetworkShape *shape)
{
  const CheckpointSpec *how = shape->plan != NULL ? &shape->plan->checkpointing : NULL;
  return how != NULL && how->policy != CHECKPOINT_NONE && how->around == AROUND_MODULE &&
         !shape->evaluation;
}

void
encoder_check_image(NetworkSpec *spec, gint64 image, gint64 patch, gint64 channels)
{
  causal_lm_check_matrix(spec, "image_size", image, image);
  causal_lm_check_matrix(spec, "patch_size", patch, patch);
  causal_lm_check_matrix(spec, "num_channels", channels, 1);
  if (patch > image)
    network_spec_fail(spec, "patch_size",
                      "%" G_GINT64_FORMAT " is more than the image_size %" G_GINT64_FORMAT, patch,
                      image);
}

void
encoder_expect_class(NetworkSpec *spec, const char *class, const char *const *classes)
{
  const cJSON *list = json_reader_raw(spec->reader, "architectures");
  const char *said = cJSON_GetStringValue(cJSON_IsArray(list) ? list->child : NULL);
  if (said != NULL &&
      (classes != NULL ? !g_strv_contains(classes, said) : strcmp(said, class) != 0))
    network_spec_fail(spec, "architectures", "'%.60s' is not supported, only %s", said, class);
}

/* ---- modules ---- */

int
encoder_define_plain(Builder *b, const char *name, const char *type)
{
  int module = builder_module(b, name, type);
  builder_module_end(b);
  return module;
}

int
encoder_define_dropout(Builder *b)
{
  return encoder_define_plain(b, "dropout", "Dropout");
}

int
encoder_define_embedding(Builder *b, const char *name, gint64 rows, gint64 width)
{
  builder_module(b, name, "Embedding");
  int weight = builder_parameter(b, "weight", 2, rows, width);
  builder_module_end(b);
  return weight;
}

/* ---- calls ---- */

Val
encoder_dropout(Builder *b, int module, double p, Val x)
{
  x = call_module(b, module, x);
  return builder_leave(b, dropout(b, p, x));
}

Val
encoder_embed_tied(Builder *b, int module, int weight, Val indices)
{
  indices = call_module(b, module, indices);
  return builder_leave(
      b, builder_op(b, OP_EMBEDDING, NULL, 2, (Val[]){builder_weight(b, weight), indices}));
}

Val
encoder_heads(Builder *b, Val x, gint64 heads)
{
  return transpose(b, split_heads(b, x, heads, builder_info(b, x).shape[2] / heads));
}

/* scores * scaling, + bias, + mask, softmax, dropout, times values */
static Val
eager(Builder *b, const EncoderAttention *how, const Val qkv[3], Val *weights)
{
  builder_call(b, 0, NULL);
  DType dtype = (DType) builder_info(b, qkv[0]).dtype;
  Val columns = transpose_last(b, qkv[1]);
  Val scores = batched_matmul(b, qkv[0], (Val){columns.slot, FALSE}, "attention scores");
  builder_discard(b, columns);
  Val w = let(b, "attn_weights", unary(b, OP_MUL_SCALAR, scores));
  if (how->bias.slot != NO_VAL.slot)
    w = let(b, "attn_weights", binary(b, OP_ADD, w, how->bias));
  if (how->mask.slot != NO_VAL.slot)
    w = let(b, "attn_weights", binary(b, OP_ADD, w, how->mask));
  if (how->wide_softmax)
    w = let(b, "attn_weights", to(b, unary(b, OP_SOFTMAX, to(b, w, DTYPE_FP32)), dtype));
  else
    w = let(b, "attn_weights", unary(b, OP_SOFTMAX, autocast_wide(b, w)));
  w = let(b, "attn_weights", dropout(b, how->dropout, w));
  return transformers_eager_output(b, w, qkv[2], weights);
}

static Val
fused(Builder *b, const EncoderAttention *how, const Val qkv[3])
{
  AttentionBetween call = {.code = how->code,
                           .heads = how->heads,
                           .causal = how->causal,
                           .dropout = how->dropout,
                           .bias = how->bias};
  builder_call(b, 0, NULL);
  if (how->bias.slot != NO_VAL.slot)
    call.bias = let(b, "attention_mask", how->prepare_bias(b, how->bias, how->causal));
  Val o = let(b, "attn_output", attention_between(b, qkv[0], qkv[1], qkv[2], &call));
  return builder_leave(b, let(b, "attn_output", contiguous(b, transpose(b, o))));
}

/* What masks need to know of a decoder. */
static CausalLm
masked_lm(Builder *b, AttentionCode code, gint64 batch, gint64 length)
{
  return (CausalLm){.batch = batch,
                    .length = length,
                    .impl = {.attention = code},
                    .dtype = builder_shape(b)->precision.weights};
}

Val
encoder_causal_mask(Builder *b, AttentionCode code, gint64 batch, gint64 length, gboolean positions)
{
  CausalLm lm = masked_lm(b, code, batch, length);
  return transformers_causal_mask(b, &lm, positions, FALSE);
}

Val
encoder_padded_mask(Builder *b, gint64 batch, gint64 length)
{
  CausalLm lm = masked_lm(b, ATTENTION_EAGER, batch, length);
  return transformers_padded_mask(b, &lm);
}

static Val
encoder_attend(Builder *b, const EncoderAttention *how, const Val qkv[3], Val *weights)
{
  *weights = NO_VAL;
  return how->code == ATTENTION_EAGER ? eager(b, how, qkv, weights) : fused(b, how, qkv);
}

Val
encoder_attend_merged(Builder *b, const EncoderAttention *how, const Val qkv[3], Val *weights)
{
  Val o = let(b, "attn_output", encoder_attend(b, how, qkv, weights));
  if (weights->slot != NO_VAL.slot)
    *weights = let(b, "attn_weights", *weights);
  return let(b, "attn_output", contiguous(b, merge_heads(b, o)));
}

Val
encoder_as_weights(Builder *b, Val x)
{
  ValueInfo info = value_like_dtype(builder_info(b, x), builder_shape(b)->precision.weights);
  return shaped(b, OP_TO_IF_NEEDED, x, info);
}

Val
encoder_expand_rows(Builder *b, Val x, gint64 batch)
{
  ValueInfo all = builder_info(b, x);
  all.shape[0] = batch;
  return expand(b, x, all);
}

Val
encoder_cat_rows(Builder *b, Val x, Val y)
{
  enum { ROWS = 1 };
  OpAttributes at = {.result = builder_info(b, y)};
  ValueInfo first = builder_info(b, x);
  at.result.shape[ROWS] += first.shape[ROWS];
  if (dtype_size((DType) first.dtype) > dtype_size((DType) at.result.dtype))
    at.result.dtype = first.dtype; /* at::cat promotes */
  value_set_contiguous(&at.result);
  return builder_op(b, OP_CAT, &at, 2, (Val[]){x, y});
}

Val
encoder_loss(Builder *b, Val logits, Val labels, gint64 classes)
{
  ValueInfo info = builder_info(b, logits);
  Val flat = view(b, logits, 2, value_elements(&info) / classes, classes);
  return cross_entropy(b, flat, labels);
}

/* new_zeros, the labels' first ones cloned into it, and a test for -100 */
Val
encoder_shift_right(Builder *b, gint64 batch, gint64 length)
{
  builder_call(b, 0, NULL);
  Val shifted = let(b, "shifted_input_ids",
                    create(b, "shifted labels", value_shape(DTYPE_INT64, 2, batch, length)));
  if (length > 1)
    builder_discard(
        b, create(b, "labels but the last", value_shape(DTYPE_INT64, 2, batch, length - 1)));
  Val ignored = create(b, "ignored labels", value_shape(DTYPE_BOOL, 2, batch, length));
  builder_discard(b, ignored);
  return builder_leave(b, shifted);
}
