/* torchtitan_router.c - torchtitan's TokenChoiceTopKRouter: scores in fp32, a bias for the choice
 * alone, groups of experts by the sum of their two best.
 *
 * What is chosen needs no gradient, but PyTorch records a graph of it, which lives as long as its
 * last result. */
#include "network/op_recipe.h"
#include "network/torchtitan_moe.h"

/* A tensor of the choice with so many columns, as a name. */
static Val
chosen(Builder *b, const char *name, gint64 tokens, gint64 columns, DType dtype)
{
  return let(b, name, create(b, name, value_shape(dtype, 2, tokens, columns)));
}

/* What a node of the choice keeps of x: for as long as this name is there. */
static Val
held(Builder *b, Val x)
{
  return shaped(b, OP_HELD, (Val){x.slot, FALSE}, builder_info(b, x));
}

/* _get_node_limited_routing_scores: scores of experts in the best groups.  Of the nodes of the
 * choice, topk's keeps its indices until the scores of groups go; masked_fill's keeps the mask,
 * which so becomes the caller's. */
static void
limit_groups(Builder *b, const TorchtitanMoe *m, gint64 tokens)
{
  enum { BEST_OF_GROUP = 2 };
  gint64 groups = m->style.groups, used = m->style.groups_used, best = groups * BEST_OF_GROUP;
  Val results[2];
  builder_enter(b, 0, NULL, NULL);
  chosen(b, "top2_scores_in_group", tokens, best, DTYPE_FP32);
  let(b, "topk's indices", held(b, chosen(b, "_", tokens, best, DTYPE_INT64)));
  chosen(b, "group_scores", tokens, groups, DTYPE_FP32);
  Val values = create(b, "scores of groups", value_shape(DTYPE_FP32, 2, tokens, used));
  chosen(b, "group_idx", tokens, used, DTYPE_INT64);
  let(b, "_", values);
  Val mask = chosen(b, "group_mask", tokens, groups, DTYPE_BOOL);
  results[0] = create(b, "scores_for_choice", value_shape(DTYPE_FP32, 2, tokens, m->style.experts));
  results[1] = held(b, mask);
  builder_leave_with(b, 2, results);
  let(b, "scores_for_choice", results[0]);
  let(b, "masked_fill's mask", results[1]);
}

static Val
choose(Builder *b, const TorchtitanMoe *m, gint64 tokens)
{
  chosen(b, "scores_for_choice", tokens, m->style.experts, DTYPE_FP32); /* scores + expert_bias */
  if (m->style.groups > 0)
    limit_groups(b, m, tokens);
  chosen(b, "_", tokens, m->style.top_k, DTYPE_FP32);
  return chosen(b, "selected_experts_indices", tokens, m->style.top_k, DTYPE_INT64);
}

Val
torchtitan_count(Builder *b, const TorchtitanMoe *m, Val experts)
{
  ValueInfo info = builder_info(b, experts);
  Val flat = view(b, experts, 1, value_elements(&info));
  return shaped(b, OP_HISTC, flat, value_shape(DTYPE_INT64, 1, m->style.experts));
}

/* top_scores / (top_scores.sum(dim=-1, keepdim=True) + 1e-20) */
static Val
normalize(Builder *b, Val weights)
{
  Val sum = let(b, "denominator", unary(b, OP_ADD_SCALAR, reduce_last(b, OP_SUM, weights)));
  return let(b, "top_scores", binary(b, OP_DIV, weights, sum));
}

TorchtitanRouting
torchtitan_route(Builder *b, const TorchtitanMoe *m, Val x)
{
  x = call_module(b, m->router, x);
  gint64 tokens = builder_info(b, x).shape[0];
  /* per_op_sac_force_recompute_mm_shapes_by_fqns has moe.router.gate by default (job_config.py) */
  Val logits = let(b, "scores", linear_uncounted(b, x, m->gate));
  OpId score = m->style.softmax_scores ? OP_SOFTMAX : OP_SIGMOID;
  Val scores = let(b, "scores", unary(b, score, to(b, logits, DTYPE_FP32)));
  Val experts = choose(b, m, tokens);
  Val weights = let(b, "top_scores", binary(b, OP_GATHER, scores, experts));
  if (m->style.normalized)
    weights = normalize(b, weights);
  weights = let(b, "top_scores", unary(b, OP_MUL_SCALAR, weights));
  Val counts = let(b, "num_tokens_per_expert", torchtitan_count(b, m, experts));
  Val results[3] = {weights, experts, counts};
  builder_leave_with(b, 3, results);
  return (TorchtitanRouting){results[0], results[1], results[2]};
}
