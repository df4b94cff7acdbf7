/* torchtitan_moe.c - torchtitan's feed-forwards: SwiGLU, and mixtures whose experts are three
 * tensors. */
#include "network/torchtitan_moe.h"

#include "base/units.h"
#include "network/op_recipe.h"

#define ALIGNMENT 8 /* rows of an expert: TOKEN_GROUP_ALIGN_SIZE_M (models/moe/utils.py) */

/* ---- modules, in order of definition ---- */

TorchtitanFeedForward
torchtitan_feed_forward_define(Builder *b, const char *name, gint64 hidden, gint64 ffn,
                               gboolean bias)
{
  TorchtitanFeedForward p = {.module = builder_module(b, name, "FeedForward")};
  p.gate = define_linear(b, "w1", ffn, hidden, bias);
  p.down = define_linear(b, "w2", hidden, ffn, bias);
  p.up = define_linear(b, "w3", ffn, hidden, bias);
  builder_module_end(b);
  return p;
}

static void
define_buffer(Builder *b, const char *name, gint64 experts)
{
  g_autofree char *path = builder_path(b, name);
  builder_buffer(b, path, DTYPE_FP32, experts);
}

/* Are the experts computed one after the other (use_grouped_mm false)?  DeepSeek's model arguments
 * ask for a device that has a grouped product (update_from_config), others take PyTorch's word. */
static gboolean
is_looped(Builder *b, const MoeStyle *s)
{
  enum { LEAST_CAPABILITY = 90 };
  const PlanSpec *plan = builder_shape(b)->plan;
  MoeExperts experts = plan != NULL ? plan->moe.experts : MOE_GROUPED;
  if (experts == MOE_BATCHED)
    builder_fail(b,
                 "%s: key 'moe.experts': torchtitan has none that are batched (grouped or eager: "
                 "use_grouped_mm)",
                 plan->file);
  return experts == MOE_EAGER || (s->loops_on_old_devices &&
                                  builder_shape(b)->device.compute_capability < LEAST_CAPABILITY);
}

TorchtitanMoe
torchtitan_moe_define(Builder *b, const MoeStyle *s)
{
  TorchtitanMoe m = {.style = *s, .module = builder_module(b, "moe", "MoE")};
  moe_count(b, s);
  m.looped = is_looped(b, s);
  m.experts = builder_module(b, "experts", "GroupedExperts");
  m.w1 = builder_parameter(b, "w1", 3, s->experts, s->ffn, s->hidden);
  m.w2 = builder_parameter(b, "w2", 3, s->experts, s->hidden, s->ffn);
  m.w3 = builder_parameter(b, "w3", 3, s->experts, s->ffn, s->hidden);
  builder_module_end(b);
  m.router = builder_module(b, "router", "TokenChoiceTopKRouter");
  m.gate = define_linear(b, "gate", s->experts, s->hidden, FALSE);
  builder_module_end(b);
  m.reorderer = builder_module(b, "reorderer", "TokenReorderer");
  builder_module_end(b);
  if (s->shared_ffn > 0)
    m.shared = torchtitan_feed_forward_define(b, "shared_experts", s->hidden, s->shared_ffn, FALSE);
  define_buffer(b, "expert_bias", s->experts);
  define_buffer(b, "tokens_per_expert", s->experts);
  builder_module_end(b);
  return m;
}

/* ---- feed-forward ---- */

Val
torchtitan_feed_forward(Builder *b, const TorchtitanFeedForward *p, Val x)
{
  x = call_module(b, p->module, x);
  Val gate = unary(b, OP_SILU, linear(b, x, p->gate));
  Val up = linear(b, x, p->up);
  return builder_leave(b, linear(b, binary(b, OP_MUL, gate, up), p->down));
}

/* ---- experts: rows of each padded to a multiple of the alignment (indices_padding_wrapper) ----
 */

/* A tensor of int64, one for each expert, that takes the place of x. */
static Val
numbers_from(Builder *b, const char *what, Val x)
{
  Val result = create(b, what, value_shape(DTYPE_INT64, 1, builder_info(b, x).shape[0]));
  builder_discard(b, x);
  return result;
}

static Val
numbers(Builder *b, const char *what, gint64 n)
{
  return create(b, what, value_shape(DTYPE_INT64, 1, n));
}

static Val
running_sums(Builder *b, Val x, gboolean keeps_dtype)
{
  OpAttributes at = {.flag = keeps_dtype};
  return builder_op(b, OP_CUMSUM, &at, 1, &x);
}

/* generate_permute_indices: for each padded row where it comes from, and how many rows the experts
 * have so (int32). */
static void
permute_indices(Builder *b, Val counts, gint64 padded, Val out[2])
{
  gint64 n = builder_info(b, counts).shape[0];
  builder_enter(b, 1, (const char *const[]){"tokens_per_expert_group"}, &counts);
  Val group = {counts.slot, FALSE};
  let(b, "start_index_values", numbers_from(b, "starts", running_sums(b, group, FALSE)));
  let(b, "total_tokens_per_expert", numbers(b, "total", n));
  let(b, "total_tokens_per_expert", numbers(b, "at least the alignment", n));
  Val sizes = numbers_from(b, "sum", numbers(b, "sum", n));
  sizes = numbers_from(b, "product", numbers_from(b, "quotient", sizes));
  Val narrow = create(b, "sizes", value_shape(DTYPE_INT32, 1, n));
  builder_discard(b, sizes);
  sizes = let(b, "m_sizes", narrow);
  let(b, "m_offsets", running_sums(b, sizes, FALSE));
  let(b, "write_offsets", numbers(b, "write offsets", n));
  out[0] = let(b, "permuted_indices",
               create(b, "permuted indices", value_shape(DTYPE_INT32, 1, padded)));
  Val results[3] = {out[0], sizes, create(b, "offsets", value_shape(DTYPE_INT32, 1, n))};
  builder_leave_with(b, 3, results);
  out[0] = let(b, "permuted_indices", results[0]);
  out[1] = let(b, "num_tokens_per_expert", results[1]);
  let(b, "_offsets", results[2]);
}

/* _permute: rows in the experts' order, with rows of zeros between them: x, where they come from,
 * how many the experts have. */
static void
permute(Builder *b, Val x, Val counts, Val out[3])
{
  ValueInfo info = builder_info(b, x);
  gint64 rows = info.shape[0], experts = builder_info(b, counts).shape[0];
  gint64 padded = round_up(rows + experts * ALIGNMENT, ALIGNMENT);
  Val made[2];
  builder_enter(b, 2, (const char *const[]){"x", "num_tokens_per_expert"}, (Val[]){x, counts});
  permute_indices(b, (Val){counts.slot, FALSE}, padded, made);
  OpAttributes at = {.result = info, .key = "dim"}; /* the first */
  at.result.shape[0]++;
  Val zeros =
      create(b, "a row of zeros", value_shape((DType) info.dtype, 2, (gint64) 1, info.shape[1]));
  Val both = let(b, "x", builder_op(b, OP_CAT, &at, 2, (Val[]){{x.slot, FALSE}, zeros}));
  Val results[3] = {let(b, "x", binary(b, OP_INDEX, both, made[0])), made[0], made[1]};
  builder_leave_with(b, 3, results);
  out[0] = let(b, "x", results[0]);
  out[1] = let(b, "permuted_indices", results[1]);
  out[2] = let(b, "num_tokens_per_expert", results[2]);
}

/* _unpermute: rows where they came from, without the row of zeros. */
static Val
unpermute(Builder *b, Val out, Val indices, gint64 rows)
{
  ValueInfo info = builder_info(b, out);
  info.requires_grad = FALSE;
  info.shape[0] = rows + 1;
  builder_enter(b, 2, (const char *const[]){"out", "permuted_indices"}, (Val[]){out, indices});
  Val made = let(b, "out_unpermuted", create(b, "unpermuted rows", info));
  made = let(b, "out_unpermuted",
             builder_op(b, OP_INDEX_PUT, NULL, 3,
                        (Val[]){made, {indices.slot, FALSE}, {out.slot, FALSE}}));
  info.shape[0] = rows;
  return builder_leave(b, let(b, "out", shaped(b, OP_SLICE, made, info)));
}

typedef struct {
  const TorchtitanMoe *m;
  Val offsets;
  gint64 busiest, rows; /* of the busiest expert, of all */
} Groups;

/* torch._grouped_mm(x.bfloat16(), w.bfloat16().transpose(-2, -1), offs=offsets) */
static Val
grouped(Builder *b, const Groups *g, Val x, int weight)
{
  OpAttributes at = {.size = {g->busiest, g->rows}};
  x = to(b, x, DTYPE_BF16);
  Val w = transpose_last(b, to(b, builder_weight(b, weight), DTYPE_BF16));
  return builder_op(b, OP_GROUPED_MM, &at, 3, (Val[]){x, w, g->offsets});
}

/* _run_experts_grouped_mm */
static Val
run_experts(Builder *b, Groups *g, Val x, Val sizes)
{
  DType dtype = (DType) builder_info(b, x).dtype;
  builder_enter(b, 2, (const char *const[]){"x", "num_tokens_per_expert"}, (Val[]){x, sizes});
  x.temporary = FALSE;
  g->offsets = let(b, "offsets", running_sums(b, (Val){sizes.slot, FALSE}, TRUE));
  Val h = let(b, "h", unary(b, OP_SILU, grouped(b, g, x, g->m->w1)));
  Val up = grouped(b, g, x, g->m->w3);
  h = let(b, "h", binary(b, OP_MUL, h, up));
  return builder_leave(b, let(b, "out", to(b, grouped(b, g, h, g->m->w2), dtype)));
}

/* ---- experts: one after the other (_run_experts_for_loop) ---- */

/* torch.matmul(x, w[i].transpose(-2, -1)) */
static Val
times_expert(Builder *b, Val x, int weight, gint64 i)
{
  Val w = autocast_operand(b, transpose_last(b, select_at(b, builder_weight(b, weight), 0, i)));
  x = autocast_operand(b, x);
  return builder_op(b, OP_MM, NULL, 2, (Val[]){x, w});
}

static Val
one_expert(Builder *b, const TorchtitanMoe *m, Val x, gint64 i)
{
  x = let(b, "x_expert", x);
  Val h = let(b, "h", unary(b, OP_SILU, times_expert(b, x, m->w1, i)));
  Val up = times_expert(b, x, m->w3, i);
  h = let(b, "h", binary(b, OP_MUL, h, up));
  return let(b, "h", times_expert(b, h, m->w2, i));
}

/* The list of outputs goes from its end. */
static Val
run_loop(Builder *b, const TorchtitanMoe *m, Val x, Val counts, gint64 tokens)
{
  gint64 n = m->style.experts;
  g_autofree gint64 *rows = g_new(gint64, n);
  g_autofree Val *part = g_new(Val, n);
  g_auto(GStrv) names = g_new0(char *, n + 1);
  builder_enter(b, 2, (const char *const[]){"x", "num_tokens_per_expert"}, (Val[]){x, counts});
  for (gint64 i = 0; i < n; i++) {
    rows[i] = moe_expert_rows(b, &m->style, tokens, i);
    names[i] = g_strdup_printf("out_experts_splits[%d]", (int) i);
  }
  x = shaped(b, OP_SLICE, (Val){x.slot, FALSE}, builder_info(b, x)); /* of all rows, as a node */
  split_parts(b, x, 0, n, rows, part);
  for (gint64 i = 0; i < n; i++)
    part[i] = let(b, names[i], one_expert(b, m, part[i], i));
  Val out = let(b, "out", join_parts(b, 0, n, part));
  ValueInfo info = builder_info(b, out);
  out = let(b, "out", shaped(b, OP_CAT, out, info)); /* with no rows of zeros */
  for (gint64 i = n - 1; i >= 0; i--)
    unlet(b, names[i]);
  return builder_leave(b, out);
}

/* GroupedExperts.forward(): rows sorted by expert, and how many each has. */
static Val
call_experts(Builder *b, const TorchtitanMoe *m, Val routed, Val counts, gint64 tokens)
{
  Val args[2] = {routed, counts}, made[3];
  Groups g = {.m = m, .busiest = moe_busiest_rows(b, &m->style, tokens)};
  builder_module_call(b, m->experts, 2, args);
  if (m->looped)
    return builder_leave(b, run_loop(b, m, args[0], args[1], tokens));
  g.rows = builder_info(b, args[0]).shape[0];
  builder_enter(b, 2, (const char *const[]){"x", "num_tokens_per_expert"}, args);
  permute(b, (Val){args[0].slot, FALSE}, (Val){args[1].slot, FALSE}, made);
  Val out = let(b, "out", run_experts(b, &g, made[0], made[2]));
  out = let(b, "out", unpermute(b, out, made[1], g.rows));
  return builder_leave(b, builder_leave(b, out));
}

/* ---- forward() ---- */

/* TokenReorderer: pairs of a token and one of its experts in the order of the experts.  Names the
 * weights in that order, where rows come from (returned), and how many each expert has. */
static Val
reorder(Builder *b, const TorchtitanMoe *m, const TorchtitanRouting *r, Val *counts)
{
  ValueInfo info = builder_info(b, r->experts);
  gint64 pairs = value_elements(&info);
  Val args[2] = {r->weights, r->experts}, sorted[2], results[3];
  builder_module_call(b, m->reorderer, 2, args);
  results[2] = let(b, "num_tokens_per_expert", torchtitan_count(b, m, args[1]));
  Val flat = view(b, args[1], 1, pairs);
  builder_op_multi(b, OP_SORT, NULL, 1, &flat, 2, sorted);
  builder_discard(b, sorted[0]);
  results[1] = let(b, "token_indices_experts_sorted", sorted[1]);
  results[0] = let(b, "top_scores_experts_sorted",
                   create(b, "sorted weights", value_shape(DTYPE_FP32, 1, pairs)));
  builder_leave_with(b, 3, results);
  let(b, "top_scores_experts_sorted", results[0]);
  Val indices = let(b, "token_indices_experts_sorted", results[1]);
  *counts = let(b, "num_tokens_per_expert", results[2]);
  return indices;
}

/* Outputs in the order of the tokens, and the sum of each token's, weighted, in fp32. */
static Val
combine(Builder *b, const TorchtitanMoe *m, Val routed, Val indices, Val weights, DType dtype)
{
  static const char name[] = "routed_output_unsorted";
  gint64 k = m->style.top_k, hidden = m->style.hidden;
  ValueInfo info = builder_info(b, routed);
  gint64 tokens = info.shape[0] / k;
  info.requires_grad = FALSE;
  Val rows = let(b, name, create(b, "outputs in the order of tokens", info));
  rows = let(b, name, builder_op(b, OP_INDEX_PUT, NULL, 3, (Val[]){rows, indices, routed}));
  rows = let(b, name, view(b, rows, 3, tokens, k, hidden));
  weights = view(b, weights, 3, tokens, (gint64) 1, k);
  Val wide = to(b, rows, DTYPE_FP32); /* the caller's until the product is there */
  Val operand = autocast_operand(b, (Val){wide.slot, FALSE}); /* the last one is cast first */
  weights = autocast_operand(b, weights);
  Val sum = builder_op(b, OP_BMM, NULL, 2, (Val[]){weights, operand});
  builder_discard(b, wide);
  sum = to(b, sum, dtype);
  return let(b, "out_experts", view(b, sum, 2, tokens, hidden));
}

Val
torchtitan_moe(Builder *b, const TorchtitanMoe *m, Val x)
{
  x = call_module(b, m->module, x);
  ValueInfo shape = builder_info(b, x);
  gint64 tokens = shape.shape[0] * shape.shape[1];
  x = let(b, "x", view(b, x, 2, tokens, m->style.hidden));
  TorchtitanRouting r = torchtitan_route(b, m, x);
  r.weights = let(b, "top_scores", r.weights);
  r.experts = let(b, "selected_experts_indices", r.experts);
  Val counts = let(b, "num_tokens_per_expert", r.counts);
  Val indices = reorder(b, m, &r, &counts);
  Val from = numbers(b, "tokens", tokens * m->style.top_k); /* indices // top_k */
  Val routed = let(b, "routed_input", binary(b, OP_INDEX, x, from));
  routed = let(b, "routed_output", call_experts(b, m, routed, counts, tokens));
  gboolean shared = m->style.shared_ffn > 0;
  Val out = shared ? let(b, "out", torchtitan_feed_forward(b, &m->shared, x)) : NO_VAL;
  Val sum = combine(b, m, routed, indices, r.weights, (DType) shape.dtype);
  sum = shared ? binary(b, OP_ADD, out, sum) : sum;
  return builder_leave(b, reshape(b, sum, shape));
}

/* ---- balance of the experts ---- */

static Val
row_of(Builder *b, gint64 experts, const char *what)
{
  return create(b, what, value_shape(DTYPE_FP32, 1, experts));
}

/* What takes the place of x. */
static Val
row_from(Builder *b, const char *what, Val x)
{
  Val row = row_of(b, builder_info(b, x).shape[0], what);
  builder_discard(b, x);
  return row;
}

/* x - x.mean(), or the other way round, of a row. */
static Val
less_mean(Builder *b, gint64 experts)
{
  Val mean = create(b, "mean", value_shape(DTYPE_FP32, 0));
  Val difference = row_of(b, experts, "difference from the mean");
  builder_discard(b, mean);
  return difference;
}

void
torchtitan_moe_balance(Builder *b, gint64 experts, int n, const int *blocks)
{
  const PlanSpec *plan = builder_shape(b)->plan;
  g_autofree Val *halves = g_new(Val, n);
  int counted = 0;
  Val delta = NO_VAL;
  builder_function_begin(b, "update_expert_bias", -1, 0, NULL, NULL);
  for (int i = 0; i < n; i++) /* a recomputation has counted all tokens again */
    if (plan != NULL && plan_spec_checkpoints(plan, blocks[i]))
      halves[counted++] = row_of(b, experts, "half of the tokens");
  Val all = create(b, "tokens of experts", value_shape(DTYPE_FP32, 2, (gint64) n, experts));
  for (int i = 0; i < n; i++) {
    Val scaled = row_from(b, "scaled", row_from(b, "sign", less_mean(b, experts)));
    if (i > 0)
      builder_discard(b, delta);
    delta = less_mean(b, experts);
    builder_discard(b, scaled);
  }
  while (counted > 0)
    builder_discard(b, halves[--counted]);
  builder_discard(b, all);
  builder_discard(b, delta);
  builder_network(b)->before_step = builder_function_end(b, NO_VAL);
}
