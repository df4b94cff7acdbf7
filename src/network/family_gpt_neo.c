/* family_gpt_neo.c - GPT-Neo: GPT-2 whose attention is global and local in turn and computed in
 * fp32, step by step. */
#include <string.h>

#include "network/classic_decoder.h"

static void
define_block(Builder *b, Classic *m, ClassicBlock *p, int block)
{
  static const char *const mlp[] = {"mlp", "c_fc", "c_proj", "act"};
  gint64 hidden = m->lm.hidden;
  (void) block;
  p->norm1 = define_norm(b, "ln_1", "LayerNorm", hidden, TRUE);
  p->attention = builder_module(b, "attn", "GPTNeoAttention");
  p->inner = builder_module(b, "attention", "GPTNeoSelfAttention");
  builder_buffer(b, "bias", DTYPE_BOOL,
                 m->positions * m->positions); /* the mask, global or local */
  p->k = define_linear(b, "k_proj", hidden, hidden, FALSE);
  p->v = define_linear(b, "v_proj", hidden, hidden, FALSE);
  p->q = define_linear(b, "q_proj", hidden, hidden, FALSE);
  p->out = define_linear(b, "out_proj", hidden, hidden, TRUE);
  builder_module_end(b);
  builder_module_end(b);
  p->norm2 = define_norm(b, "ln_2", "LayerNorm", hidden, TRUE);
  classic_define_mlp(b, m, p, mlp, TRUE);
}

/* _attn(): scores and their softmax in fp32.  Results are the output and the probabilities. */
static void
attend(Builder *b, const Classic *m, const Val qkv[3], Val mask, Val results[2])
{
  const CausalLm *lm = &m->lm;
  builder_enter(b, 3, (const char *const[]){"query", "key", "value"}, qkv);
  Val q = let(b, "query", to(b, (Val){qkv[0].slot, FALSE}, DTYPE_FP32));
  Val k = let(b, "key", to(b, (Val){qkv[1].slot, FALSE}, DTYPE_FP32));
  Val columns = transpose_last(b, k);
  Val w = batched_matmul(b, q, (Val){columns.slot, FALSE}, "attention scores");
  builder_discard(b, columns);
  w = let(b, "attn_weights", w);
  let(b, "mask_value", create(b, "lowest", value_shape(DTYPE_FP32, 1, (gint64) 1)));
  const OpAttributes by_buffer = {.formula = "where_buffer"}; /* global or local: not said */
  w = let(b, "attn_weights", builder_op(b, OP_WHERE, &by_buffer, 1, &w));
  w = let(b, "attn_weights", binary(b, OP_ADD, w, mask));
  w = let(b, "attn_weights", unary(b, OP_SOFTMAX, w));
  w = let(b, "attn_weights", to(b, w, lm->dtype));
  w = let(b, "attn_weights", dropout(b, lm->attention_dropout, w));
  results[0] = let(b, "attn_output", batched_matmul(b, w, qkv[2], NULL));
  results[1] = w;
  builder_leave_with(b, 2, results);
}

static Val
attention_forward(Builder *b, const Classic *m, int block, Val x, const Val *args, Val *weights)
{
  static const char *const names[] = {"query", "key", "value"};
  const ClassicBlock *p = &m->blocks[block];
  const Linear *projections[] = {&p->q, &p->k, &p->v};
  Val qkv[3], results[2];
  x = call_module(b, p->attention, x);
  x = call_module(b, p->inner, x);
  for (int i = 0; i < 3; i++)
    qkv[i] = let(b, names[i], linear(b, x, *projections[i]));
  for (int i = 0; i < 3; i++)
    qkv[i] = let(b, names[i], classic_heads(b, m, qkv[i]));
  attend(b, m, qkv, args[0], results);
  Val o = let(b, "attn_output", results[0]);
  *weights = let(b, "attn_weights", results[1]);
  o = let(b, "attn_output", merge_heads(b, contiguous(b, transpose(b, o))));
  o = let(b, "attn_output", linear(b, o, p->out));
  o = let(b, "attn_output", dropout(b, m->residual_dropout, o));
  o = builder_leave_beside(b, o, weights);
  return builder_leave_beside(b, o, weights);
}

/* How many layers an entry of attention_types is of: [["global", "local"], 6] of 12; -1: it is
 * none. */
static gint64
count_layers(const cJSON *entry)
{
  const cJSON *kinds = cJSON_GetArrayItem(entry, 0), *times = cJSON_GetArrayItem(entry, 1), *kind;
  if (!cJSON_IsArray(kinds) || !cJSON_IsNumber(times) || times->valuedouble < 0 ||
      times->valuedouble > BUILDER_MOST_BLOCKS)
    return -1;
  cJSON_ArrayForEach(kind, kinds)
  {
    if (!cJSON_IsString(kind) ||
        (strcmp(kind->valuestring, "global") != 0 && strcmp(kind->valuestring, "local") != 0))
      return -1;
  }
  return cJSON_GetArraySize(kinds) * (gint64) times->valuedouble;
}

/* Global and local layers cost the same, but there have to be as many as the network has. */
static void
read(Classic *m, NetworkSpec *spec)
{
  const cJSON *types = json_reader_raw(spec->reader, "attention_types"), *entry;
  gint64 layers = cJSON_IsArray(types) ? 0 : 24, more;
  cJSON_ArrayForEach(entry, types)
  {
    more = cJSON_IsArray(entry) ? count_layers(entry) : -1;
    if (more < 0) {
      network_spec_fail(
          spec, "attention_types",
          "must be a list of [kinds, times], kinds a list of \"global\" and \"local\"");
      return;
    }
    layers = MIN(layers + more, 2 * BUILDER_MOST_BLOCKS);
  }
  if (layers != m->lm.layers)
    network_spec_fail(spec, "attention_types",
                      "%" G_GINT64_FORMAT " layers, but the network has %" G_GINT64_FORMAT, layers,
                      m->lm.layers);
}

static const ClassicStyle style = {
    .model = "transformer",
    .keeps_keywords = TRUE,
    .embedding = "wte",
    .layers = "h",
    .block = "GPTNeoBlock",
    .norm = "ln_f",
    .ffn_field = "intermediate_size",
    .positions_field = "max_position_embeddings",
    .positions = 2048,
    .activation_field = "activation_function",
    .activation = "gelu_new",
    .attention_dropout = "attention_dropout",
    .residual_dropout = "resid_dropout",
    .embedding_dropout = "embed_dropout",
    .tied = TRUE,
    .learned_positions = TRUE,
    .position_embedding = "wpe",
    .returns_weights = TRUE,
    .no_sdpa = TRUE,
    .read = read,
    .define_block = define_block,
    .prepare = classic_prepare_learned,
    .compute_block = classic_block,
    .attention = attention_forward,
};

static Network *
build(NetworkSpec *spec, const NetworkShape *shape, GError **error)
{
  return classic_build_style(&style, spec, shape, error);
}

const NetworkFamily family_gpt_neo = {
    .name = "gpt_neo",
    .summary = "GPT-Neo: global and local attention in turn, in fp32",
    .model_types = (const char *const[]){"gpt_neo", NULL},
    .build = build,
};
