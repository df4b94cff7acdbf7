/* transformers_lm.c - decoder models as Hugging Face transformers runs them (modeling_llama.py,
 * masking_utils.py, loss_utils.py of release 5): what happens around and between the layers. */
#include <math.h>

#include "network/transformers_lm.h"

#include "network/model_call.h"
#include "network/transformers_masks.h"
#include "network/transformers_root.h"
#include "network/transformers_rope.h"

/* ---- config and modules ---- */

void
transformers_check(NetworkSpec *spec)
{
  const Implementation *impl = &spec->implementation;
  if (impl->loss != LOSS_FP32)
    json_reader_fail(spec->reader, "implementation", "the loss of transformers is fp32");
  if (impl->kv_heads != KV_HEADS_NATIVE)
    json_reader_fail(spec->reader, "implementation", "the kv_heads of transformers are native");
}

void
transformers_check_only(NetworkSpec *spec)
{
  if (spec->implementation.code != CODE_TRANSFORMERS)
    json_reader_fail(spec->reader, "implementation",
                     "'%s' is not known for %.60s: only transformers",
                     implementation_code_name(spec->implementation.code), spec->family);
  transformers_check(spec);
}

void
transformers_check_rope(NetworkSpec *spec)
{
  if (spec->implementation.rope != ROPE_ROTATE_HALF)
    json_reader_fail(spec->reader, "implementation", "the rope of transformers is rotate_half");
}

Val
transformers_mask(const CausalLm *lm, int block, const Val *tables)
{
  if (!transformers_has_mask(lm, block))
    return NO_VAL;
  int rotary = lm->impl.rope == ROPE_NONE ? 0 : lm->rotary.complex ? 1 : 2;
  return tables[TABLE_POSITIONS + 1 + rotary];
}

/* ---- attention ---- */

Val
transformers_soft_cap(Builder *b, const char *name, Val x, double cap)
{
  x = let(b, name, unary_with(b, OP_DIV_SCALAR, x, "value", cap));
  x = let(b, name, unary(b, OP_TANH, x));
  return let(b, name, unary_with(b, OP_MUL_SCALAR, x, "value", cap));
}

Val
transformers_eager_scores(Builder *b, const CausalLm *lm, gint64 kv_heads, const Val qkv[3],
                          Val mask, Val *values)
{
  Val k = qkv[1];
  *values = qkv[2];
  if (kv_heads != lm->heads) {
    k = let(b, "key_states", repeat_heads(b, k, lm->heads, TRUE));
    *values = let(b, "value_states", repeat_heads(b, *values, lm->heads, TRUE));
  }
  Val columns = transpose_last(b, k);
  Val scores = batched_matmul(b, qkv[0], (Val){columns.slot, FALSE}, "attention scores");
  builder_discard(b, columns);
  Val w = let(b, "attn_weights",
              unary_with(b, OP_MUL_SCALAR, scores, "value", 1 / sqrt((double) lm->head_dim)));
  if (lm->caps_scores > 0)
    w = transformers_soft_cap(b, "attn_weights", w, lm->caps_scores);
  return let(b, "attn_weights", binary(b, OP_ADD, w, mask));
}

Val
transformers_eager_output(Builder *b, Val w, Val values, Val *weights)
{
  Val o = let(b, "attn_output", batched_matmul(b, w, values, NULL));
  o = let(b, "attn_output", contiguous(b, transpose(b, o)));
  *weights = w;
  return builder_leave_beside(b, o, weights);
}

/* eager_attention_forward: scores in the model's dtype, softmax in fp32, probabilities returned
 * beside the output. */
static Val
eager(Builder *b, const CausalLm *lm, gint64 kv_heads, const Val qkv[3], Val mask, Val *weights)
{
  Val values;
  builder_call(b, 0, NULL);
  Val w = transformers_eager_scores(b, lm, kv_heads, qkv, mask, &values);
  w = let(b, "attn_weights", to(b, unary(b, OP_SOFTMAX, to(b, w, DTYPE_FP32)), lm->dtype));
  if (lm->attention_dropout > 0)
    w = let(b, "attn_weights", dropout(b, lm->attention_dropout, w));
  return transformers_eager_output(b, w, values, weights);
}

/* sdpa_attention_forward: with an explicit mask key heads are repeated, else the kernel shares
 * them. */
static Val
fused(Builder *b, const CausalLm *lm, gint64 kv_heads, gint64 window, const Val qkv[3], Val mask)
{
  Val k = qkv[1], v = qkv[2];
  AttentionCall call = {lm->impl.attention,    lm->heads, kv_heads,
                        lm->attention_dropout, mask,      window};
  builder_call(b, 0, NULL);
  if (mask.slot != NO_VAL.slot && kv_heads != lm->heads) {
    k = let(b, "key", repeat_heads(b, k, lm->heads, TRUE));
    v = let(b, "value", repeat_heads(b, v, lm->heads, TRUE));
    call.kv_heads = lm->heads;
  }
  Val o = let(b, "attn_output", attention(b, qkv[0], k, v, &call));
  return builder_leave(b, let(b, "attn_output", contiguous(b, transpose(b, o))));
}

Val
transformers_attend(Builder *b, const CausalLm *lm, gint64 kv_heads, gint64 window,
                    const Val qkv[3], Val mask, Val *weights)
{
  *weights = NO_VAL;
  if (lm->impl.attention == ATTENTION_EAGER)
    return eager(b, lm, kv_heads, qkv, mask, weights);
  return fused(b, lm, kv_heads, window, qkv, mask);
}

Val
transformers_project(Builder *b, Val output, Linear projection, Val *weights)
{
  Val o = let(b, "attn_output", output);
  if (weights->slot != NO_VAL.slot)
    *weights = let(b, "attn_weights", *weights);
  o = let(b, "attn_output", merge_heads(b, o));
  return let(b, "attn_output", linear(b, o, projection));
}

/* ---- the model ---- */

Val
transformers_position_ids(Builder *b, const CausalLm *lm)
{
  static const Creation counted = {"arange", NULL, 0};
  Val range = create(b, "arange", value_shape(DTYPE_INT64, 1, lm->length));
  ValueInfo ids = value_shape(DTYPE_INT64, 2, (gint64) 1, lm->length);
  Val positions = let(b, "position_ids", create_as(b, "position_ids", ids, &counted, NO_VAL));
  builder_discard(b, range);
  return positions;
}

/* The decoder layers, each called with what its kind gets. */
static Val
layers_forward(Builder *b, const CausalLm *lm, Val hidden, Val positions, const Val masks[2])
{
  BlockCode code = causal_lm_block_code(lm);
  gboolean rotary = lm->impl.rope != ROPE_NONE;
  Val args[STATEMENT_SLOTS], tables[4];
  if (rotary)
    transformers_rotary_tables(b, lm, tables);
  args[1 + TABLE_POSITIONS] = positions;
  for (int i = 0; i < lm->layers; i++) {
    int n = 2;
    args[0] = hidden;
    code.kind = lm->layer_kinds != NULL ? lm->layer_kinds[i] : 0;
    for (int k = 0; k < (lm->rotary.complex ? 1 : 2) && rotary; k++)
      args[n++] = transformers_choose_table(lm, i, tables)[k];
    if (transformers_has_mask(lm, i))
      args[n++] = transformers_choose_mask(lm, i, masks);
    if (lm->items->slot != NO_VAL.slot)
      args[n++] = *lm->items;
    hidden = let(b, "hidden_states", builder_block_call(b, i, &code, n, args));
    Val captured = builder_take_beside(b);
    if (lm->captured != NULL && captured.slot != NO_VAL.slot)
      g_array_append_val(lm->captured, captured);
  }
  return hidden;
}

/* embeddings, positions, mask, layers, norm */
static Val
model_forward(Builder *b, const CausalLm *lm, Val tokens)
{
  Val masks[2];
  builder_module_call(b, network_module(builder_network(b), lm->embedding_module)->parent, 0, NULL);
  Val embeds =
      lm->embed != NULL ? lm->embed(b, lm, tokens) : embedding(b, lm->embedding_weight, tokens);
  Val positions = transformers_position_ids(b, lm);
  embeds = let(b, "inputs_embeds", embeds);
  Val hidden = embeds;
  if (lm->add_positions != NULL)
    hidden = lm->add_positions(b, lm, embeds, positions);
  transformers_make_masks(b, lm, masks);
  if (lm->mask_kwargs) {
    let(b, "mask_kwargs['inputs_embeds']", embeds);
    if (!lm->mask_without_positions)
      let(b, "mask_kwargs['position_ids']", positions);
  }
  hidden = let(b, "hidden_states",
               lm->embedding_drop != NULL ? lm->embedding_drop(b, lm, hidden) : hidden);
  hidden = layers_forward(b, lm, hidden, positions, masks);
  hidden = let(b, "hidden_states", lm->norm(b, lm, hidden));
  return builder_leave(b, hidden);
}

/* ForCausalLMLoss: logits in fp32, labels (the tokens, where the loop makes none) padded by one
 * that does not count, and shifted. */
static Val
causal_loss(Builder *b, const CausalLm *lm, Val logits, const Val *inputs)
{
  const Val items = model_call_items(b, inputs), of = inputs[items.slot != NO_VAL.slot ? 1 : 0];
  static const Creation pad = {"constant_pad_nd", "value", -100}, copy_of = {"copy", NULL, 0};
  gint64 tokens = lm->batch * lm->length;
  builder_enter(b, 1, (const char *const[]){"logits"}, &logits);
  Val wide = let(b, "logits", to(b, (Val){logits.slot, FALSE}, DTYPE_FP32));
  ValueInfo padded = value_shape(DTYPE_INT64, 2, lm->batch, lm->length + 1);
  Val labels = let(b, "labels", create_as(b, "padded labels", padded, &pad, of));
  Val shifted = slice_last(b, labels, 1, lm->length); /* contiguous already when there is one row */
  if (lm->batch > 1) {
    ValueInfo rows = value_shape(DTYPE_INT64, 2, lm->batch, lm->length);
    Val copy = create_as(b, "shifted labels", rows, &copy_of, shifted);
    builder_discard(b, shifted);
    shifted = copy;
  }
  shifted = let(b, "shift_labels", shifted);
  Val flat = view(b, wide, 2, tokens, lm->vocabulary);
  return builder_leave(b, items.slot != NO_VAL.slot
                              ? cross_entropy_of_items(b, flat, shifted, items)
                              : cross_entropy(b, flat, shifted));
}

/* The causal model's forward(): results are the loss, what was added to it, the logits, and what
 * hooks kept. */
static int
root_forward(Builder *b, gconstpointer model, const Val *tokens, Val *results)
{
  const CausalLm *lm = model;
  int n = 0;
  *lm->items = model_call_items(b, tokens);
  builder_call(b, 0, NULL);
  Val hidden =
      let(b, "hidden_states", (lm->model != NULL ? lm->model : model_forward)(b, lm, tokens[0]));
  Val logits = let(b, "logits", linear(b, hidden, lm->head));
  if (lm->adjust_logits != NULL)
    logits = lm->adjust_logits(b, lm, logits);
  results[n++] = let(b, "loss", causal_loss(b, lm, logits, tokens));
  if (lm->add_loss != NULL)
    results[0] = let(b, "loss", lm->add_loss(b, lm, results[0], &results[n++]));
  results[n++] = logits;
  for (guint i = 0; lm->captured != NULL && i < lm->captured->len; i++)
    results[n++] = g_array_index(lm->captured, Val, i);
  builder_leave_with(b, n, results);
  return n;
}

void
transformers_write(Builder *b, CausalLm *lm)
{
  ValueInfo tokens = value_shape(DTYPE_INT64, 2, lm->batch, lm->length);
  Val items = NO_VAL;
  TransformersRoot root = {1, {tokens}, root_forward, lm, FALSE};
  lm->items = &items;
  if (builder_shape(b)->trainer)
    root.input[root.inputs++] = tokens; /* labels of their own */
  builder_network(b)->shifts_labels = TRUE;
  transformers_write_root(b, &root);
  lm->items = NULL;
  causal_lm_figures(b, lm);
}
