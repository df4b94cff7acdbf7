/* classic_decoder.c - decoders with LayerNorm as transformers writes them: config, modules, the
 * model's forward() around the blocks. */
#include "network/classic_decoder.h"

#include <string.h>

#include "network/transformers_masks.h"
#include "network/transformers_rope.h"

/* ---- config.json ---- */

static double
read_dropout(const Classic *m, NetworkSpec *spec, const char *name, double fallback)
{
  return name != NULL ? causal_lm_read_dropout(spec, name, fallback, m->evaluation) : 0;
}

static void
check_sizes(const Classic *m, NetworkSpec *spec)
{
  const ClassicStyle *style = m->style;
  causal_lm_check_matrix(spec, "hidden_size|n_embd", 3 * m->lm.hidden, m->lm.hidden);
  causal_lm_check_matrix(spec, style->ffn_field != NULL ? style->ffn_field : "hidden_size", m->ffn,
                         m->lm.hidden);
  if (style->positions == 0)
    return;
  causal_lm_check_matrix(spec, style->positions_field, m->positions, m->lm.hidden);
  causal_lm_check_positions(spec, style->positions_field, m->positions, m->lm.length);
}

/* Only transformers' code is known of these models. */
static void
check_code(Classic *m, NetworkSpec *spec)
{
  transformers_check_only(spec);
  if (m->style->no_sdpa && m->lm.impl.attention != ATTENTION_SDPA &&
      m->lm.impl.attention != ATTENTION_EAGER)
    json_reader_fail(spec->reader, "implementation", "the attention of %s is eager", spec->family);
  if (m->style->no_sdpa)
    m->lm.impl.attention = ATTENTION_EAGER;
  if (!m->style->rotary)
    m->lm.impl.rope = ROPE_NONE;
  else
    transformers_check_rope(spec);
}

static gboolean
read_config(Classic *m, NetworkSpec *spec, const NetworkShape *shape, GError **error)
{
  const ClassicStyle *style = m->style;
  CausalLm *lm = &m->lm;
  causal_lm_read(lm, spec, shape);
  m->evaluation = shape->evaluation;
  lm->head_dim = MAX(lm->hidden / MAX(lm->heads, 1), 1);
  m->kv_heads = lm->heads;
  m->ffn = 4 * lm->hidden;
  if (style->ffn_field != NULL)
    m->ffn = network_spec_int(spec, style->ffn_field, m->ffn);
  if (style->positions > 0)
    m->positions = network_spec_int(spec, style->positions_field, style->positions);
  lm->tied = network_spec_bool(spec, "tie_word_embeddings", style->tied);
  lm->head_bias = style->head_bias;
  lm->attention_dropout =
      read_dropout(m, spec, style->attention_dropout, style->attention_dropout_default);
  m->residual_dropout = read_dropout(m, spec, style->residual_dropout, style->dropout_default);
  m->embedding_dropout = read_dropout(m, spec, style->embedding_dropout, style->dropout_default);
  if (style->activation_field != NULL)
    m->activation = activation_read(spec, style->activation_field, style->activation);
  m->final_norm = m->norm_first = TRUE;
  check_code(m, spec);
  if (style->rotary)
    transformers_rope_read(
        lm, spec,
        style->rotary_fraction_field != NULL
            ? network_spec_double(spec, style->rotary_fraction_field, style->rotary_fraction)
            : 0);
  if (style->read != NULL)
    style->read(m, spec);
  check_sizes(m, spec);
  return causal_lm_check(lm, m->kv_heads, spec, error);
}

/* ---- modules, in order of definition ---- */

static void
define_positions(Builder *b, Classic *m)
{
  builder_module(b, m->style->position_embedding, "Embedding");
  m->position_weight =
      builder_parameter(b, "weight", 2, m->positions + m->style->position_offset, m->lm.hidden);
  builder_module_end(b);
}

void
classic_define_last_norm(Builder *b, Classic *m, const char *name)
{
  m->lm.norm_weight = define_norm(b, name, "LayerNorm", m->lm.hidden, TRUE);
  m->lm.norm_module = parameter_module(b, m->lm.norm_weight);
}

static void
define_blocks(Builder *b, Classic *m)
{
  builder_module(b, m->style->layers, "ModuleList");
  m->blocks = g_new0(ClassicBlock, m->lm.layers);
  for (int i = 0; i < m->lm.layers; i++) {
    builder_block_begin(b, m->style->block);
    m->style->define_block(b, m, &m->blocks[i], i);
    builder_block_end(b);
  }
  builder_module_end(b);
}

static void
define_modules(Builder *b, Classic *m)
{
  const ClassicStyle *style = m->style;
  builder_module(b, style->model, "Model");
  if (style->inner_model != NULL)
    builder_module(b, style->inner_model, "Decoder");
  causal_lm_define_embedding(b, &m->lm, style->embedding);
  if (style->learned_positions)
    define_positions(b, m);
  if (style->define_first != NULL)
    style->define_first(b, m);
  define_blocks(b, m);
  if (style->rotary && style->rotary_before_norm)
    transformers_define_rotary(b, &m->lm);
  if (style->define_last != NULL)
    style->define_last(b, m);
  else
    classic_define_last_norm(b, m, style->norm);
  if (style->rotary && !style->rotary_before_norm)
    transformers_define_rotary(b, &m->lm);
  if (style->inner_model != NULL)
    builder_module_end(b);
  builder_module_end(b);
  causal_lm_define_head(b, &m->lm, "lm_head");
}

void
classic_define_mlp(Builder *b, const Classic *m, ClassicBlock *p, const char *const names[4],
                   gboolean bias)
{
  p->mlp = builder_module(b, names[0], "MLP");
  p->up = define_linear(b, names[1], m->ffn, m->lm.hidden, bias);
  p->down = define_linear(b, names[2], m->lm.hidden, m->ffn, bias);
  p->activation = activation_define(b, m->activation, names[3]);
  builder_module_end(b);
}

/* ---- forward() ---- */

void
classic_argument(ClassicArguments *args, Val value)
{
  g_assert(args->n < (int) G_N_ELEMENTS(args->value));
  if (value.slot != NO_VAL.slot)
    args->value[args->n++] = value;
}

Val
classic_prepare_rotary(Builder *b, const Classic *m, Val embeds, ClassicArguments *args)
{
  Val positions = transformers_position_ids(b, &m->lm), tables[4];
  Val mask = transformers_causal_mask(b, &m->lm, TRUE, FALSE);
  Val x = dropout(b, m->embedding_dropout, embeds);
  if (m->style->renames_embeddings)
    x = let(b, "inputs_embeds", x);
  x = let(b, "hidden_states", x);
  transformers_rotary_tables(b, &m->lm, tables);
  classic_argument(args, positions);
  classic_argument(args, tables[0]);
  classic_argument(args, tables[1]);
  classic_argument(args, mask);
  return x;
}

Val
classic_prepare_learned(Builder *b, const Classic *m, Val embeds, ClassicArguments *args)
{
  Val positions = transformers_position_ids(b, &m->lm);
  Val mask = transformers_causal_mask(b, &m->lm, TRUE, FALSE);
  Val p = let(b, "position_embeds", embedding(b, m->position_weight, positions));
  Val x = let(b, "hidden_states", binary(b, OP_ADD, embeds, p));
  x = let(b, "hidden_states", dropout(b, m->embedding_dropout, x));
  classic_argument(args, mask);
  return x;
}

/* hidden_states = block(...), or outputs = block(...); hidden_states = outputs[0] */
static Val
receive_block(Builder *b, const Classic *m, Val x)
{
  Val weights = builder_take_beside(b);
  if (m->style->returns_weights)
    x = let(b, "outputs[0]", x);
  if (weights.slot != NO_VAL.slot)
    let(b, "outputs[1]", weights);
  return let(b, "hidden_states", x);
}

/* embeddings, what blocks are called with, blocks, norm */
static Val
model_forward(Builder *b, const CausalLm *lm, Val tokens)
{
  const Classic *m = (const Classic *) lm;
  BlockCode code = causal_lm_block_code(lm);
  ClassicArguments args = {.n = 0};
  Val call[STATEMENT_SLOTS];
  builder_module_call(b, network_module(builder_network(b), lm->embedding_module)->parent, 0, NULL);
  Val embeds = let(b, "inputs_embeds", embedding(b, lm->embedding_weight, tokens));
  Val x = m->style->prepare(b, m, embeds, &args);
  if (!m->style->keeps_keywords)
    classic_argument(&args, *lm->items);
  memcpy(call + 1, args.value, sizeof(Val) * (gsize) args.n);
  for (int i = 0; i < lm->layers; i++) {
    call[0] = x;
    code.kind = lm->layer_kinds != NULL ? lm->layer_kinds[i] : 0;
    x = receive_block(b, m, builder_block_call(b, i, &code, 1 + args.n, call));
  }
  if (m->final_norm)
    x = let(b, "hidden_states", layer_norm(b, x, lm->norm_weight));
  if (m->style->finish != NULL)
    x = m->style->finish(b, m, x);
  return builder_leave(b, x);
}

/* ---- the network ---- */

Network *
classic_build(Classic *m, NetworkSpec *spec, const NetworkShape *shape, GError **error)
{
  if (!read_config(m, spec, shape, error))
    return NULL;
  Builder *b = builder_new(spec->name, shape);
  define_modules(b, m);
  m->lm.block = m->style->compute_block;
  m->lm.model = model_forward;
  transformers_write(b, &m->lm);
  if (m->style->learned_positions)
    builder_network(b)->embedding_parameters +=
        (m->positions + m->style->position_offset) * m->lm.hidden;
  g_free(m->blocks);
  g_free(m->lm.layer_kinds);
  return builder_finish(b, error);
}

Network *
classic_build_style(const ClassicStyle *style, NetworkSpec *spec, const NetworkShape *shape,
                    GError **error)
{
  Classic m = {.style = style};
  return classic_build(&m, spec, shape, error);
}
