/* transformers_lm.c - decoder models as Hugging Face transformers runs them (modeling_llama.py,
 * masking_utils.py, loss_utils.py of release 5): what happens around and between the layers. */
#include <math.h>

#include "network/transformers_lm.h"

#include <string.h>

#include "base/units.h"

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

gint64
transformers_window(NetworkSpec *spec)
{
  if (g_str_has_prefix(spec->family, "qwen2")) {
    if (network_spec_bool(spec, "use_sliding_window", FALSE))
      json_reader_fail(spec->reader, "use_sliding_window",
                       "windows in some layers only are not yet supported");
    return 0;
  }
  return network_spec_int(spec, "sliding_window", 0);
}

void
transformers_define_rotary(Builder *b, CausalLm *lm)
{
  lm->rotary_module = builder_module(b, "rotary_emb", "RotaryEmbedding");
  builder_buffer(b, "model.rotary_emb.inv_freq", 4 * (lm->head_dim / 2));
  builder_buffer(b, "model.rotary_emb.original_inv_freq", 4 * (lm->head_dim / 2));
  builder_module_end(b);
}

static gboolean
has_rotary(const CausalLm *lm)
{
  return lm->impl.rope != ROPE_NONE;
}

/* A mask is made when the default causal one will not do: a window shorter than the sequence, or
 * eager attention. */
static gboolean
has_mask(const CausalLm *lm)
{
  return lm->impl.attention == ATTENTION_EAGER || (lm->window > 0 && lm->length >= lm->window);
}

Val
transformers_mask(const CausalLm *lm, const Val *tables)
{
  return has_mask(lm) ? tables[lm->tables - 1] : NO_VAL;
}

/* ---- tensors of index arithmetic, none of which needs a gradient ---- */

static Val
integers(Builder *b, const char *what, gint64 n)
{
  return create(b, what, value_shape(DTYPE_INT64, 1, n));
}

static Val
booleans(Builder *b, const char *what, gint64 n)
{
  return create(b, what, value_shape(DTYPE_BOOL, 1, n));
}

/* find_packed_sequence_indices: are positions restarted inside a row? */
static void
packed_sequence_test(Builder *b, const CausalLm *lm)
{
  gint64 n = lm->batch, s = lm->length;
  Val first = integers(b, "first positions", n);
  Val padded = integers(b, "positions with a dummy", n * (s + 1));
  Val difference = integers(b, "position differences", n * s);
  builder_discard(b, padded);
  Val restarts = create(b, "restarts", value_shape(DTYPE_BOOL, 2, n, s));
  Val sequences = unary(b, OP_CUMSUM, (Val){restarts.slot, FALSE});
  builder_discard(b, restarts);
  Val last = booleans(b, "last is first", n);
  Val all = booleans(b, "all", 1);
  builder_discard(b, last);
  builder_discard(b, all);
  builder_discard(b, first);
  builder_discard(b, difference);
  builder_discard(b, sequences);
}

/* The broadcast index tensors that mask functions are called with. */
static void
index_tensors(Builder *b, const CausalLm *lm, Val out[4])
{
  out[0] = integers(b, "batch index", lm->batch);
  out[1] = integers(b, "head index", 1);
  for (int i = 2; i < 4; i++) { /* arange, then the offset is added */
    Val range = integers(b, "arange", lm->length);
    out[i] = integers(b, i == 2 ? "query index" : "key index", lm->length);
    builder_discard(b, range);
  }
}

static Val
square(Builder *b, const CausalLm *lm, const char *what)
{
  return create(b, what,
                value_shape(DTYPE_BOOL, 4, (gint64) 1, (gint64) 1, lm->length, lm->length));
}

/* sdpa_mask of a sliding window: true & (key > query - window) & (key <= query) in boolean
 * arithmetic. */
static Val
window_mask(Builder *b, const CausalLm *lm)
{
  Val index[4];
  index_tensors(b, lm, index);
  Val truth = booleans(b, "true", 1);
  Val start = integers(b, "window start", lm->length);
  Val inside = square(b, lm, "inside the window");
  builder_discard(b, start);
  Val both = square(b, lm, "window mask");
  builder_discard(b, inside);
  builder_discard(b, truth);
  Val causal = square(b, lm, "causal");
  Val mask = square(b, lm, "attention mask");
  builder_discard(b, causal);
  builder_discard(b, both);
  for (int i = 0; i < 4; i++)
    builder_discard(b, index[i]);
  return mask;
}

/* eager_mask: the boolean mask becomes zeros and the lowest number of the model's dtype. */
static Val
eager_mask(Builder *b, const CausalLm *lm)
{
  Val index[4];
  index_tensors(b, lm, index);
  Val causal = square(b, lm, "causal");
  for (int i = 0; i < 4; i++)
    builder_discard(b, index[i]);
  Val zero = create(b, "zero", value_shape(lm->dtype, 1, (gint64) 1));
  Val lowest = create(b, "lowest", value_shape(lm->dtype, 1, (gint64) 1));
  Val mask = create(b, "attention mask",
                    value_shape(lm->dtype, 4, lm->batch, (gint64) 1, lm->length, lm->length));
  builder_discard(b, lowest);
  builder_discard(b, zero);
  builder_discard(b, causal);
  return mask;
}

/* ---- rotary embeddings ---- */

/* The rotary module's forward(): fp32 tables of this batch's positions, returned in the model's
 * dtype. */
static void
rotary_forward(Builder *b, const CausalLm *lm, Val out[2])
{
  gint64 s = lm->length, d = lm->head_dim;
  ValueInfo wide = value_shape(DTYPE_FP32, 3, (gint64) 1, s, d);
  builder_module_call(b, lm->rotary_module, 0, NULL); /* of hidden states only the dtype counts */
  Val positions = create(b, "positions", value_shape(DTYPE_FP32, 1, s));
  let(b, "freqs", create(b, "angles", value_shape(DTYPE_FP32, 3, (gint64) 1, s, d / 2)));
  builder_discard(b, positions);
  let(b, "emb", create(b, "angles", wide));
  static const char *const names[] = {"cos", "sin"};
  for (int i = 0; i < 2; i++) {
    Val plain = create(b, names[i], wide);
    out[i] = let(b, names[i], create(b, names[i], wide)); /* times attention_scaling */
    builder_discard(b, plain);
  }
  for (int i = 0; i < 2; i++)
    out[i] = to(b, out[i], lm->dtype);
  builder_leave_with(b, 2, out);
}

/* (x * cos) + (rotate_half(x) * sin), for q and then k. */
void
transformers_rope(Builder *b, Val qk[2], Val cos, Val sin)
{
  static const char *const names[] = {"q_embed", "k_embed"};
  builder_call(b, 0, NULL);
  for (int i = 0; i < 2; i++) {
    Val straight = binary(b, OP_MUL, qk[i], cos);
    Val rotated = binary(b, OP_MUL, rotate_half(b, qk[i]), sin);
    qk[i] = let(b, names[i], binary(b, OP_ADD, straight, rotated));
  }
  builder_leave_with(b, 2, qk);
}

/* ---- attention ---- */

/* eager_attention_forward: scores in the model's dtype, softmax in fp32, probabilities returned
 * beside the output. */
static Val
eager(Builder *b, const CausalLm *lm, gint64 kv_heads, const Val qkv[3], Val mask, Val *weights)
{
  Val k = qkv[1], v = qkv[2];
  builder_call(b, 0, NULL);
  if (kv_heads != lm->heads) {
    k = let(b, "key_states", repeat_heads(b, k, lm->heads, TRUE));
    v = let(b, "value_states", repeat_heads(b, v, lm->heads, TRUE));
  }
  Val columns = transpose_last(b, k);
  Val scores = batched_matmul(b, qkv[0], (Val){columns.slot, FALSE}, "attention scores");
  builder_discard(b, columns);
  Val w = let(b, "attn_weights",
              unary_with(b, OP_MUL_SCALAR, scores, "value", 1 / sqrt((double) lm->head_dim)));
  w = let(b, "attn_weights", binary(b, OP_ADD, w, mask));
  w = let(b, "attn_weights", to(b, unary(b, OP_SOFTMAX, to(b, w, DTYPE_FP32)), lm->dtype));
  Val o = let(b, "attn_output", batched_matmul(b, w, v, NULL));
  o = let(b, "attn_output", contiguous(b, transpose(b, o)));
  Val results[2] = {o, w};
  builder_leave_with(b, 2, results);
  *weights = results[1];
  return results[0];
}

/* sdpa_attention_forward: with an explicit mask key heads are repeated, else the kernel shares
 * them. */
static Val
fused(Builder *b, const CausalLm *lm, gint64 kv_heads, gboolean dropout, const Val qkv[3], Val mask)
{
  Val k = qkv[1], v = qkv[2];
  AttentionCall call = {lm->impl.attention, lm->heads, kv_heads, dropout, mask};
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
transformers_attend(Builder *b, const CausalLm *lm, gint64 kv_heads, gboolean dropout,
                    const Val qkv[3], Val mask, Val *weights)
{
  *weights = NO_VAL;
  if (lm->impl.attention == ATTENTION_EAGER)
    return eager(b, lm, kv_heads, qkv, mask, weights);
  return fused(b, lm, kv_heads, dropout, qkv, mask);
}

/* ---- the model ---- */

/* What every layer is called with, as locals of the model's forward(). */
static void
layer_arguments(Builder *b, const CausalLm *lm, Val positions, Val mask, Val *tables)
{
  tables[TABLE_POSITIONS] = positions;
  if (has_rotary(lm)) {
    rotary_forward(b, lm, tables + TABLE_COS);
    tables[TABLE_COS] = let(b, "cos", tables[TABLE_COS]);
    tables[TABLE_SIN] = let(b, "sin", tables[TABLE_SIN]);
  }
  if (has_mask(lm))
    tables[lm->tables - 1] = mask;
}

/* embeddings, positions, mask, layers, norm */
static Val
model_forward(Builder *b, const CausalLm *lm, Val tokens)
{
  BlockCode code = causal_lm_block_code(lm);
  Val args[STATEMENT_SLOTS], mask = NO_VAL;
  builder_module_call(b, network_module(builder_network(b), lm->embedding_module)->parent, 0, NULL);
  Val embeds = embedding(b, lm->embedding_weight, tokens);
  Val range = integers(b, "arange", lm->length);
  ValueInfo ids = value_shape(DTYPE_INT64, 2, (gint64) 1, lm->length);
  Val positions = let(b, "position_ids", create(b, "position_ids", ids));
  builder_discard(b, range);
  embeds = let(b, "inputs_embeds", embeds);
  Val hidden = embeds;
  if (lm->add_positions != NULL)
    hidden = lm->add_positions(b, lm, embeds, positions);
  packed_sequence_test(b, lm);
  if (has_mask(lm))
    mask = let(b, "causal_mask",
               lm->impl.attention == ATTENTION_EAGER ? eager_mask(b, lm) : window_mask(b, lm));
  if (lm->mask_kwargs) {
    let(b, "mask_kwargs['inputs_embeds']", embeds);
    let(b, "mask_kwargs['position_ids']", positions);
  }
  hidden = let(b, "hidden_states",
               lm->embedding_drop != NULL ? lm->embedding_drop(b, lm, hidden) : hidden);
  layer_arguments(b, lm, positions, mask, args + 1);
  for (int i = 0; i < lm->layers; i++) {
    args[0] = hidden;
    hidden = let(b, "hidden_states", builder_block_call(b, i, &code, 1 + lm->tables, args));
  }
  hidden = let(b, "hidden_states", lm->norm(b, lm, hidden));
  return builder_leave(b, hidden);
}

/* ForCausalLMLoss: logits in fp32, labels padded and shifted. */
static Val
causal_loss(Builder *b, const CausalLm *lm, Val logits)
{
  gint64 tokens = lm->batch * lm->length;
  builder_enter(b, 1, (const char *const[]){"logits"}, &logits);
  Val wide = let(b, "logits", to(b, (Val){logits.slot, FALSE}, DTYPE_FP32));
  ValueInfo padded = value_shape(DTYPE_INT64, 2, lm->batch, lm->length + 1);
  Val labels = let(b, "labels", create(b, "padded labels", padded));
  Val shifted = slice_last(b, labels, 1, lm->length); /* contiguous already when there is one row */
  if (lm->batch > 1) {
    Val copy = create(b, "shifted labels", value_shape(DTYPE_INT64, 2, lm->batch, lm->length));
    builder_discard(b, shifted);
    shifted = copy;
  }
  shifted = let(b, "shift_labels", shifted);
  Val flat = view(b, wide, 2, tokens, lm->vocabulary);
  return builder_leave(b, cross_entropy(b, flat, shifted));
}

/* The causal model's forward(): results are the loss and the logits. */
static void
root_forward(Builder *b, const CausalLm *lm, Val tokens, Val results[2])
{
  builder_call(b, 0, NULL);
  Val hidden = let(b, "hidden_states", model_forward(b, lm, tokens));
  Val logits = let(b, "logits", linear(b, hidden, lm->head));
  Val loss = let(b, "loss", causal_loss(b, lm, logits));
  results[0] = loss;
  results[1] = logits;
  builder_leave_with(b, 2, results);
}

static void
write_main(Builder *b, CausalLm *lm)
{
  const NetworkShape *shape = builder_shape(b);
  Network *network = builder_network(b);
  ValueInfo tokens = value_shape(DTYPE_INT64, 2, lm->batch, lm->length);
  Val input, results[2];
  g_array_append_val(network->inputs, tokens);
  builder_function_begin(b, "main", -1, 1, &tokens, &input);
  builder_call(b, 0, NULL);
  Val received = input;
  builder_module_enter(b, 0, 1, &received);
  root_forward(b, lm, (Val){received.slot, FALSE}, results);
  builder_discard(b, received);
  builder_module_exit(b, 0, results[0]);
  results[1] = causal_lm_forward_end(b, results[1]);
  receive_outputs(b, 2, results);
  Val loss = let(b, "loss", results[0]);
  builder_discard(b, results[1]); /* del out */
  if (shape->micro_batches > 1)
    loss = let(b, "loss", unary_with(b, OP_DIV_SCALAR, loss, "value", shape->micro_batches));
  loss = builder_leave(b, loss);
  builder_autocast_end(b);
  network->main = builder_function_end(b, loss);
}

/* Positions, tables and mask, as a layer's arguments. */
static void
describe_tables(CausalLm *lm)
{
  int n = 0;
  lm->table[n++] = value_shape(DTYPE_INT64, 1, lm->length);
  for (int i = 0; i < 2 && has_rotary(lm); i++)
    lm->table[n++] = value_shape(lm->dtype, 3, (gint64) 1, lm->length, lm->head_dim);
  if (has_mask(lm) && lm->impl.attention == ATTENTION_EAGER)
    lm->table[n++] = value_shape(lm->dtype, 4, lm->batch, (gint64) 1, lm->length, lm->length);
  else if (has_mask(lm))
    lm->table[n++] = value_shape(DTYPE_BOOL, 4, (gint64) 1, (gint64) 1, lm->length, lm->length);
  lm->tables = n;
}

void
transformers_write(Builder *b, CausalLm *lm)
{
  Network *network = builder_network(b);
  describe_tables(lm);
  write_main(b, lm);
  causal_lm_figures(b, lm);
  network->construction_scratch =
      4; /* a scalar of the fake-tensor context that to_empty() runs under */
  network->loss_inside = TRUE;
  network->checkpoints_forward = TRUE; /* GradientCheckpointingLayer */
}
