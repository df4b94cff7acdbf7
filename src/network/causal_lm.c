/* causal_lm.c - the modules around the blocks, and the main function of torchtitan's and nanoGPT's
 * training loops. */
#include "network/causal_lm.h"

#include <string.h>

#include "base/units.h"
#include "network/model_call.h"

void
causal_lm_read(CausalLm *lm, NetworkSpec *spec, const NetworkShape *shape)
{
  lm->hidden = network_spec_int(spec, "hidden_size|n_embd|n_embed|d_model", -1);
  lm->layers = network_spec_int(spec, "num_hidden_layers|n_layer|num_layers|n_layers", -1);
  lm->heads = network_spec_int(spec, "num_attention_heads|n_head|num_heads|n_heads",
                               lm->heads > 0 ? lm->heads : -1);
  lm->vocabulary = network_spec_int(spec, "vocab_size", lm->vocabulary > 0 ? lm->vocabulary : -1);
  lm->impl = spec->implementation;
  lm->batch = shape->micro_batch;
  lm->length = shape->sequence_length;
  lm->dtype = shape->precision.weights;
}

static gint64
embedding_width(const CausalLm *lm)
{
  return lm->embedding_width > 0 ? lm->embedding_width : lm->hidden;
}

void
causal_lm_define_embedding(Builder *b, CausalLm *lm, const char *name)
{
  lm->embedding_module = builder_module(b, name, "Embedding");
  lm->embedding_weight = builder_parameter(b, "weight", 2, lm->vocabulary, embedding_width(lm));
  builder_module_end(b);
}

void
causal_lm_define_head(Builder *b, CausalLm *lm, const char *name)
{
  Network *network = builder_network(b);
  lm->head_module = builder_module(b, name, "Linear");
  lm->head = (Linear){.weight = lm->embedding_weight, .bias = -1, .module = lm->head_module};
  network->split = lm->tied && network->shape.splits_tied;
  lm->tied = lm->tied && !network->split;
  if (!lm->tied)
    lm->head.weight = builder_parameter(b, "weight", 2, lm->vocabulary, embedding_width(lm));
  else
    builder_tie(b, lm->embedding_weight);
  if (lm->head_bias)
    lm->head.bias = builder_parameter(b, "bias", 1, lm->vocabulary);
  if (network->split)
    builder_train_like(b, lm->head.weight, lm->embedding_weight);
  if (network->split && lm->ties_again)
    builder_tie_shards(b, lm->head.weight, lm->embedding_weight);
  builder_module_end(b);
}

gint64
causal_lm_rotary_dim(const CausalLm *lm)
{
  return lm->rotary.dim > 0 ? lm->rotary.dim : lm->head_dim;
}

void
causal_lm_figures(Builder *b, const CausalLm *lm)
{
  Network *network = builder_network(b);
  network->vocabulary = lm->vocabulary;
  network->hidden = lm->hidden;
  network->attention_width = lm->heads * lm->head_dim;
  g_array_append_val(network->embedding_modules, lm->embedding_module);
  if (lm->norm_module > 0)
    g_array_append_val(network->head_modules, lm->norm_module);
  g_array_append_val(network->head_modules, lm->head_module);
  network->embedding_parameters = lm->tied ? 0 : lm->vocabulary * embedding_width(lm);
}

double
causal_lm_read_dropout(NetworkSpec *spec, const char *name, double fallback, gboolean evaluation)
{
  double p = network_spec_double(spec, name, fallback);
  if (!(p >= 0 && p <= 1))
    network_spec_fail(spec, name, "%.17g is not in 0..1", p);
  return evaluation ? 0 : p;
}

void
causal_lm_check_matrix(NetworkSpec *spec, const char *names, gint64 rows, gint64 columns)
{
  gint64 elements;
  if (!checked_multiply(rows, columns, &elements) || elements > BUILDER_MOST_ELEMENTS)
    network_spec_fail(spec, names,
                      "%" G_GINT64_FORMAT " x %" G_GINT64_FORMAT
                      " elements are too many for a tensor",
                      rows, columns);
}

void
causal_lm_check_layers(NetworkSpec *spec, const char *names, gint64 layers)
{
  if (layers > BUILDER_MOST_BLOCKS)
    network_spec_fail(spec, names, "%" G_GINT64_FORMAT " is not in 1..%d", layers,
                      BUILDER_MOST_BLOCKS);
}

void
causal_lm_check_width(NetworkSpec *spec, const char *names, gint64 heads, gint64 width)
{
  if (width % heads != 0)
    network_spec_fail(spec, names,
                      "%" G_GINT64_FORMAT " does not divide the width %" G_GINT64_FORMAT, heads,
                      width);
}

void
causal_lm_check_positions(NetworkSpec *spec, const char *names, gint64 positions, gint64 length)
{
  if (length > positions)
    network_spec_fail(spec, names,
                      "%" G_GINT64_FORMAT
                      " positions are fewer than the plan's sequence_length %" G_GINT64_FORMAT,
                      positions, length);
}

static void
check_heads(const CausalLm *lm, gint64 kv_heads, NetworkSpec *spec)
{
  static const char heads[] = "num_attention_heads|n_head|num_heads|n_heads";
  if (lm->heads % kv_heads != 0)
    network_spec_fail(spec, "num_key_value_heads",
                      "%" G_GINT64_FORMAT " does not divide the %" G_GINT64_FORMAT
                      " attention heads",
                      kv_heads, lm->heads);
  if (!json_reader_has(spec->reader, "head_dim"))
    causal_lm_check_width(spec, heads, lm->heads, lm->hidden);
  if (lm->head_dim % 2 != 0 && lm->impl.rope != ROPE_NONE)
    network_spec_fail(spec, "head_dim", "%" G_GINT64_FORMAT " is odd: rotary embeddings need pairs",
                      lm->head_dim);
  gint64 width;
  if (checked_multiply(lm->heads, lm->head_dim, &width))
    causal_lm_check_matrix(spec, heads, width, lm->hidden);
  else
    causal_lm_check_matrix(spec, heads, lm->heads, lm->head_dim);
}

gboolean
causal_lm_check(const CausalLm *lm, gint64 kv_heads, NetworkSpec *spec, GError **error)
{
  causal_lm_check_layers(spec, "num_hidden_layers|n_layer|num_layers|n_layers", lm->layers);
  causal_lm_check_matrix(spec, "vocab_size", lm->vocabulary, lm->hidden);
  check_heads(lm, kv_heads, spec);
  return json_reader_finish(spec->reader, error);
}

/* ---- functions ---- */

static Val
block_forward(Builder *b, gconstpointer model, int block, const Val *args)
{
  const CausalLm *lm = model;
  return lm->block(b, lm, block, args[0], args + 1);
}

BlockCode
causal_lm_block_code(const CausalLm *lm)
{
  return (BlockCode){.forward = block_forward, .model = lm};
}

/* The model's forward(): embedding, blocks in a loop that rebinds h, norm, output. */
static Val
model_forward(Builder *b, const CausalLm *lm, Val tokens, const Val *tables)
{
  BlockCode code = causal_lm_block_code(lm);
  builder_call(b, 0, NULL);
  Val h = let(b, "h", lm->embed(b, lm, tokens));
  Val args[STATEMENT_SLOTS];
  memcpy(args + 1, tables, sizeof(Val) * (gsize) lm->tables);
  for (int i = 0; i < lm->layers; i++) {
    args[0] = h;
    h = let(b, "h", builder_block_call(b, i, &code, 1 + lm->tables, args));
  }
  return builder_leave(b, linear(b, lm->norm(b, lm, h), lm->head));
}

Val
causal_lm_loss(Builder *b, const CausalLm *lm, Val logits, Val labels)
{
  builder_enter(b, 1, (const char *const[]){"logits"}, &logits);
  Val flat = let(b, "logits",
                 view(b, (Val){logits.slot, FALSE}, 2, lm->batch * lm->length, lm->vocabulary));
  if (lm->impl.loss == LOSS_FUSED)
    return builder_leave(b, fused_cross_entropy(b, flat, labels));
  if (lm->impl.loss == LOSS_COMPILED)
    return builder_leave(b, compiled_cross_entropy(b, flat, labels));
  Val input = lm->impl.loss == LOSS_FP32 ? to(b, flat, DTYPE_FP32) : flat;
  return builder_leave(b, cross_entropy(b, input, labels));
}

/* One micro-batch of the training loop, up to loss.backward(). */
static void
write_main(Builder *b, CausalLm *lm)
{
  Network *network = builder_network(b);
  ValueInfo tokens = value_shape(DTYPE_INT64, 2, lm->batch, lm->length), infos[2 + LM_TABLES];
  Val args[2 + LM_TABLES];
  infos[0] = infos[1] = tokens;
  memcpy(infos + 2, lm->table, sizeof(ValueInfo) * (gsize) lm->tables);
  g_array_append_vals(network->inputs, infos, 2);
  builder_function_begin(b, "main", -1, 2 + lm->tables, infos, args);
  builder_call(b, 0, NULL);
  Val received = args[0];
  builder_module_enter(b, 0, 1, &received);
  Val logits = model_forward(b, lm, (Val){received.slot, FALSE}, args + 2);
  builder_discard(b, received);
  model_call_wrapped(b, 1, &logits);
  builder_module_exit(b, 0, logits);
  model_call_end(b, 1, &logits);
  logits = let(b, "logits", logits);
  Val (*loss_of)(Builder *, const CausalLm *, Val, Val) =
      lm->loss != NULL ? lm->loss : causal_lm_loss;
  Val loss = model_call_bind_loss(b, loss_of(b, lm, logits, args[1]));
  unlet(b, "logits");
  loss = builder_leave(b, model_call_loss(b, loss));
  model_call_autocast_end(b);
  network->main = builder_function_end(b, loss);
}

void
causal_lm_write(Builder *b, CausalLm *lm)
{
  write_main(b, lm);
  causal_lm_figures(b, lm);
}
