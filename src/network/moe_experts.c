/* moe_experts.c - how a layer's experts are computed: one grouped product for all, a batch of
 * gathered matrices, or a loop over the experts (integrations/moe.py of transformers 5). */
#include <math.h>

#include "network/cub.h"
#include "network/moe.h"
#include "network/strides.h"

/* Tokens, hidden width, experts a token has, and pairs of both. */
typedef struct {
  gint64 tokens, hidden, k, pairs;
  DType dtype;
} Sizes;

static Sizes
sizes_of(Builder *b, Val x, Val index)
{
  ValueInfo rows = builder_info(b, x), chosen = builder_info(b, index);
  gint64 k = chosen.shape[1];
  return (Sizes){rows.shape[0], rows.shape[1], k, rows.shape[0] * k, (DType) rows.dtype};
}

/* ---- how tokens fall on experts ---- */

static double
load_imbalance(const Builder *b)
{
  const PlanSpec *plan = builder_shape(b)->plan;
  return plan != NULL ? plan->moe.load_imbalance : 1;
}

gint64
moe_busiest_rows(const Builder *b, const MoeStyle *style, gint64 tokens)
{
  double mean = (double) (tokens * style->top_k) / (double) style->experts;
  return MIN((gint64) ceil(mean * load_imbalance(b)), tokens);
}

gint64
moe_expert_rows(const Builder *b, const MoeStyle *style, gint64 tokens, gint64 expert)
{
  gint64 busiest = moe_busiest_rows(b, style, tokens), others = style->experts - 1;
  if (expert == 0)
    return busiest;
  gint64 rest = tokens * style->top_k - busiest;
  return rest / others + (expert - 1 < rest % others ? 1 : 0);
}

/* ---- steps ---- */

static Val
integers(Builder *b, const char *what, gint64 n)
{
  return create(b, what, value_shape(DTYPE_INT64, 1, n));
}

static Val
rows_by(Builder *b, Val x, Val index)
{
  return builder_op(b, OP_INDEX, NULL, 2, (Val[]){x, index});
}

/* gate, up = x.chunk(2, dim=-1), as names. */
static void
halves(Builder *b, Val x, Val out[2])
{
  chunk(b, x, 2, out);
  out[0] = let(b, "gate", out[0]);
  out[1] = let(b, "up", out[1]);
}

/* act_fn(gate) * up */
static Val
activate(Builder *b, const Moe *m, const Val gate_up[2])
{
  Val gate = activation_call(b, m->style.activation, m->activation, gate_up[0]);
  return binary(b, OP_MUL, gate, gate_up[1]);
}

static Val
apply_gate(Builder *b, const Moe *m, Val x)
{
  Val parts[2];
  if (m->style.gate != NULL)
    return m->style.gate(b, m, x);
  builder_enter(b, 1, (const char *const[]){"gate_up_out"}, &x);
  halves(b, x, parts);
  return builder_leave(b, activate(b, m, parts));
}

/* The weighted outputs of a token's experts, added up: [tokens, k, hidden] to [tokens, hidden]. */
static Val
sum_of_experts(Builder *b, const Sizes *s, Val weighted)
{
  Val each = view(b, weighted, 3, s->tokens, s->k, s->hidden);
  ValueInfo one = builder_info(b, each);
  one.shape[1] = 1;
  value_set_contiguous(&one);
  Val sum = view(b, shaped(b, OP_SUM, each, one), 2, s->tokens, s->hidden);
  return to(b, let(b, "final_hidden_states", sum), s->dtype);
}

/* ---- grouped_mm ---- */

/* Rows sorted by expert times each one's matrix. */
static Val
grouped_linear(Builder *b, const Moe *m, Val x, int weight, Val offsets, gint64 busiest)
{
  OpAttributes at = {.size = {busiest}};
  builder_enter(b, 1, (const char *const[]){"input"}, &x);
  Val w = builder_weight(b, weight);
  if (!m->style.transposed)
    w = transpose_last(b, w);
  x = to(b, x, (DType) builder_info(b, w).dtype);
  Val y = builder_op(b, OP_GROUPED_MM, &at, 3, (Val[]){x, w, offsets});
  return builder_leave(b, let(b, "out", y));
}

/* Each row's bias, a copy of its expert's. */
static Val
biases_of(Builder *b, int bias, Val experts)
{
  return let(b, "selected_biases", rows_by(b, builder_weight(b, bias), experts));
}

/* Where each expert's rows begin: how many it has, added up. */
static Val
offsets_of(Builder *b, const Moe *m, Val sorted)
{
  OpAttributes at = {.flag = TRUE};
  Val input = let(b, "histc_input", to(b, sorted, DTYPE_INT32));
  ValueInfo counts = value_shape(DTYPE_INT32, 1, m->style.experts);
  Val rows = let(b, "tokens_per_expert", shaped(b, OP_HISTC, input, counts));
  return let(b, "offsets", builder_op(b, OP_CUMSUM, &at, 1, &rows));
}

static Val
grouped_product(Builder *b, const Moe *m, Val x, int weight, int bias, const Val offsets_and_ids[2],
                gint64 busiest)
{
  Val biases = bias >= 0 ? biases_of(b, bias, offsets_and_ids[1]) : NO_VAL;
  Val y = grouped_linear(b, m, x, weight, offsets_and_ids[0], busiest);
  return bias >= 0 ? binary(b, OP_ADD_, y, biases) : y;
}

static Val
grouped(Builder *b, const Moe *m, Val x, Val index, Val weights)
{
  Sizes s = sizes_of(b, x, index);
  gint64 busiest = moe_busiest_rows(b, &m->style, s.tokens);
  Val sorted[2];
  Val share = let(b, "sample_weights", view(b, weights, 1, s.pairs));
  Val ids = let(b, "expert_ids", view(b, index, 1, s.pairs));
  builder_op_multi(b, OP_SORT, NULL, 1, &ids, 2, sorted);
  ids = let(b, "expert_ids_g", sorted[0]);
  Val permutation = let(b, "perm", sorted[1]);
  Val tokens = integers(b, "tokens", s.pairs); /* perm // k */
  Val rows = let(b, "selected_hidden_states_g", rows_by(b, x, tokens));
  share = let(b, "sample_weights_g", rows_by(b, share, permutation));
  Val at[2] = {offsets_of(b, m, ids), ids};
  Val y = grouped_product(b, m, rows, m->gate_up, m->gate_up_bias, at, busiest);
  y = let(b, "proj_out", y);
  y = let(b, "proj_out", apply_gate(b, m, y));
  y = let(b, "proj_out", grouped_product(b, m, y, m->down, m->down_bias, at, busiest));
  Val column = view(b, share, 2, s.pairs, (gint64) 1);
  y = let(b, "weighted_out", binary(b, OP_MUL, y, column));
  Val inverse = let(b, "inv_perm", integers(b, "inverse permutation", s.pairs));
  builder_discard(b, integers(b, "arange", s.pairs));
  y = let(b, "weighted_out", rows_by(b, y, inverse));
  return sum_of_experts(b, &s, y);
}

/* ---- batched_mm ---- */

/* x.repeat_interleave(k, dim=0) */
static Val
repeat_rows(Builder *b, Val x, const Sizes *s)
{
  Val one = view(b, x, 3, s->tokens, (gint64) 1, s->hidden);
  ValueInfo wide = builder_info(b, one);
  wide.shape[1] = s->k;
  Val each = expand(b, one, wide);
  value_set_contiguous(&wide);
  return view(b, shaped(b, OP_CLONE, each, wide), 2, s->pairs, s->hidden);
}

/* A product of a row with a matrix of its own, for every row. */
static Val
batched_linear(Builder *b, const Moe *m, Val x, Val w, Val biases)
{
  ValueInfo rows = builder_info(b, x), matrix = builder_info(b, w);
  gint64 n = rows.shape[0], width = rows.shape[1], out = matrix.shape[m->style.transposed ? 2 : 1];
  Val y;
  builder_enter(b, 1, (const char *const[]){"input"}, &x);
  if (m->style.transposed) {
    w = autocast_operand(b, w);
    Val row = autocast_operand(b, view(b, x, 3, n, (gint64) 1, width));
    y = builder_op(b, OP_BMM, NULL, 2, (Val[]){row, w});
  } else {
    Val column = autocast_operand(b, view(b, x, 3, n, width, (gint64) 1));
    w = autocast_operand(b, w);
    y = builder_op(b, OP_BMM, NULL, 2, (Val[]){w, column});
  }
  y = let(b, "out", view(b, y, 2, n, out));
  if (biases.slot != NO_VAL.slot)
    y = binary(b, OP_ADD_, y, biases);
  return builder_leave(b, y);
}

static Val
batched_product(Builder *b, const Moe *m, Val x, int weight, int bias, Val ids)
{
  Val w = let(b, "selected_weights", rows_by(b, builder_weight(b, weight), ids));
  return batched_linear(b, m, x, w, bias >= 0 ? biases_of(b, bias, ids) : NO_VAL);
}

static Val
batched(Builder *b, const Moe *m, Val x, Val index, Val weights)
{
  Sizes s = sizes_of(b, x, index);
  Val rows = let(b, "selected_hidden_states", repeat_rows(b, x, &s));
  Val share = let(b, "sample_weights", view(b, weights, 1, s.pairs));
  Val ids = let(b, "expert_ids", view(b, index, 1, s.pairs));
  Val y = let(b, "proj_out", batched_product(b, m, rows, m->gate_up, m->gate_up_bias, ids));
  y = let(b, "proj_out", apply_gate(b, m, y));
  y = let(b, "proj_out", batched_product(b, m, y, m->down, m->down_bias, ids));
  Val column = view(b, share, 2, s.pairs, (gint64) 1);
  y = let(b, "weighted_out", binary(b, OP_MUL, y, column));
  return sum_of_experts(b, &s, y);
}

/* ---- eager: a loop over the experts ---- */

/* nonzero() of n elements: [found, columns] int64.  They are counted first (nonzero_cuda_out_impl).
 */
static Val
nonzero(Builder *b, const char *what, gint64 n, gint64 found, gint64 columns)
{
  DeviceLimits device = builder_shape(b)->device;
  Val count = create(b, "count", value_shape(DTYPE_INT32, 1, (gint64) 1));
  builder_discard(
      b, create(b, "sum workspace", value_shape(DTYPE_UINT8, 1, cub_sum_bytes(n, device))));
  Val out = create(b, what, value_shape(DTYPE_INT64, 2, found, columns));
  builder_discard(b,
                  create(b, "select workspace", value_shape(DTYPE_UINT8, 1, cub_select_bytes(n))));
  builder_discard(b, count);
  return out;
}

/* one_hot, and the list of experts that have any token. */
static void
find_experts(Builder *b, const Moe *m, const Sizes *s)
{
  /* one more for tokens of other ranks; gpt-oss's code has none */
  gint64 classes = m->style.experts + (m->style.gate == NULL ? 1 : 0);
  let(b, "expert_mask",
      create(b, "expert mask", value_shape(DTYPE_INT64, 3, s->tokens, s->k, classes)));
  Val sums = integers(b, "tokens of experts", classes);
  Val hit = create(b, "expert is hit", value_shape(DTYPE_BOOL, 1, classes));
  builder_discard(b, sums);
  let(b, "expert_hit", nonzero(b, "hit experts", classes, m->style.experts, 1));
  builder_discard(b, hit);
}

/* top_k_pos, token_idx = torch.where(expert_mask[expert]): two columns of one tensor.  The mask is
 * not contiguous as it is looked at. */
static Val
find_tokens(Builder *b, const Sizes *s, gint64 rows)
{
  Val same = create(b, "is the last class", value_shape(DTYPE_BOOL, 1, (gint64) 1));
  builder_discard(b, same);
  Val mask = integers(b, "expert mask", s->pairs);
  Val found = nonzero(b, "tokens of an expert", s->pairs, rows, 2);
  builder_discard(b, mask);
  ValueInfo column = value_shape(DTYPE_INT64, 1, rows);
  column.stride[0] = 2;
  let(b, "top_k_pos", shaped(b, OP_SLICE, (Val){found.slot, FALSE}, column));
  OpAttributes at = {.result = column, .size = {1}};
  return let(b, "token_idx", builder_op(b, OP_SLICE, &at, 1, &found));
}

/* weights[expert]: a view. */
static Val
matrix_of(Builder *b, int weight, gint64 expert)
{
  return select_at(b, builder_weight(b, weight), 0, expert);
}

/* linear(x, weight[expert]), or x @ weight[expert] + bias[expert]. */
static Val
expert_linear(Builder *b, const Moe *m, Val x, int weight, int bias, gint64 expert)
{
  Val w = matrix_of(b, weight, expert);
  if (!m->style.transposed)
    return linear_by(b, x, w, NO_VAL);
  w = autocast_operand(b, w);
  x = autocast_operand(b, x);
  Val y = builder_op(b, OP_MM, NULL, 2, (Val[]){x, w});
  return bias >= 0 ? binary(b, OP_ADD, y, matrix_of(b, bias, expert)) : y;
}

/* The product's gate, as one more name where the model gives it one. */
static Val
gated(Builder *b, const Moe *m, Val product)
{
  Val parts[2];
  if (m->style.gate != NULL)
    return m->style.gate(b, m, let(b, "gate_up", product));
  halves(b, product, parts);
  return activate(b, m, parts);
}

/* What the loop's body calls its steps: gate, product, weighted product. */
static const char *const loop_names[2][3] = {
    {"current_hidden_states", "current_hidden_states", "current_hidden_states"},
    {"gated_output", "out", "weighted_output"},
};

/* One expert's tokens, weighted and added to the sum. */
static Val
expert(Builder *b, const Moe *m, const Sizes *s, gint64 i, const Val args[3], Val sum)
{
  gint64 rows = moe_expert_rows(b, &m->style, s->tokens, i);
  const char *const *names = loop_names[m->style.gate != NULL ? 1 : 0];
  Val tokens = find_tokens(b, s, rows);
  Val state = let(b, "current_state", rows_by(b, args[0], tokens));
  Val y = expert_linear(b, m, state, m->gate_up, m->gate_up_bias, i);
  y = let(b, names[0], gated(b, m, y));
  y = let(b, names[1], expert_linear(b, m, y, m->down, m->down_bias, i));
  Val share = view(b, args[2], 3, s->tokens, s->k, (gint64) 1);
  share = builder_op(b, OP_INDEX, NULL, 3, (Val[]){share, tokens, tokens});
  y = let(b, names[2], binary(b, OP_MUL, y, share));
  Val added = to(b, y, s->dtype);
  return let(b, "final_hidden_states",
             builder_op(b, OP_INDEX_ADD, NULL, 3, (Val[]){sum, tokens, added}));
}

static Val
eager(Builder *b, const Moe *m, Val x, Val index, Val weights)
{
  Sizes s = sizes_of(b, x, index);
  ValueInfo info = builder_info(b, x);
  info.requires_grad = FALSE;
  Val sum = let(b, "final_hidden_states", create(b, "sum of experts", info));
  find_experts(b, m, &s);
  for (gint64 i = 0; i < m->style.experts && moe_expert_rows(b, &m->style, s.tokens, i) > 0; i++)
    sum = expert(b, m, &s, i, (Val[]){x, index, weights}, sum);
  return sum;
}

Val
moe_experts(Builder *b, const Moe *m, Val x, Val index, Val weights)
{
  static Val (*const implementations[])(Builder *, const Moe *, Val, Val, Val) = {
      [MOE_GROUPED] = grouped, [MOE_BATCHED] = batched, [MOE_EAGER] = eager};
  const PlanSpec *plan = builder_shape(b)->plan;
  Val args[3] = {x, index, weights};
  builder_module_call(b, m->experts, 3, args);
  MoeExperts code = plan != NULL ? plan->moe.experts : MOE_GROUPED;
  return builder_leave(b, implementations[code](b, m, args[0], args[1], args[2]));
}
