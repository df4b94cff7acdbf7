/* moe_router.c - which experts a token goes to, and with what weights: the routers of transformers.
 */
#include "network/moe.h"
#include "network/op_recipe.h"

/* ---- steps ---- */

/* The k largest of the last dimension: values and indices. */
static void
topk(Builder *b, Val x, gint64 k, Val out[2])
{
  OpAttributes at = {.size = {k}};
  builder_op_multi(b, OP_TOPK, &at, 1, &x, 2, out);
}

static Routing
leave(Builder *b, Val logits, Val weights, Val experts)
{
  Val results[3] = {logits, weights, experts};
  builder_leave_with(b, 3, results);
  return (Routing){results[0], results[1], results[2]};
}

static Val
enter(Builder *b, const Moe *m, Val x)
{
  return call_module(b, m->router, x);
}

static Val
logits_of(Builder *b, const Moe *m, Val x)
{
  Val bias = m->router_bias >= 0 ? builder_weight(b, m->router_bias) : NO_VAL;
  return linear_by(b, x, builder_weight(b, m->router_weight), bias);
}

/* ---- routers ---- */

static Routing
softmax_then_topk(Builder *b, const Moe *m, Val x, gboolean casts_back)
{
  Val best[2];
  x = enter(b, m, x);
  ValueInfo rows = builder_info(b, x); /* a view of the same shape, and a node */
  x = let(b, "hidden_states", view(b, x, 2, rows.shape[0], rows.shape[1]));
  Val logits = let(b, "router_logits", logits_of(b, m, x));
  DType dtype = (DType) builder_info(b, logits).dtype;
  Val probabilities = let(b, "router_probs", unary(b, OP_SOFTMAX, to(b, logits, DTYPE_FP32)));
  topk(b, probabilities, m->style.top_k, best);
  Val weights = let(b, "router_top_value", best[0]);
  Val experts = let(b, "router_indices", best[1]);
  if (m->style.normalized) {
    Val sum = reduce_last(b, OP_SUM, weights);
    weights = let(b, "router_top_value", binary(b, OP_DIV_IN_PLACE, weights, sum));
  }
  if (casts_back)
    weights = let(b, "router_top_value", to(b, weights, dtype));
  return leave(b, logits, weights, experts);
}

Routing
moe_route_softmax(Builder *b, const Moe *m, Val x)
{
  return softmax_then_topk(b, m, x, TRUE);
}

Routing
moe_route_softmax_fp32(Builder *b, const Moe *m, Val x)
{
  return softmax_then_topk(b, m, x, FALSE);
}

static Routing
topk_then_softmax(Builder *b, const Moe *m, Val x, gboolean wide)
{
  Val best[2];
  x = enter(b, m, x);
  DType dtype = (DType) builder_info(b, x).dtype;
  Val logits = logits_of(b, m, x);
  logits = let(b, "router_logits", wide ? to(b, logits, DTYPE_FP32) : logits);
  topk(b, logits, m->style.top_k, best);
  Val largest = let(b, "top_k_logits", best[0]);
  Val experts = let(b, "top_k_index", best[1]);
  Val weights = let(b, "top_k_weights", to(b, unary(b, OP_SOFTMAX, largest), dtype));
  return leave(b, logits, weights, experts);
}

Routing
moe_route_largest(Builder *b, const Moe *m, Val x)
{
  return topk_then_softmax(b, m, x, TRUE);
}

Routing
moe_route_largest_narrow(Builder *b, const Moe *m, Val x)
{
  return topk_then_softmax(b, m, x, FALSE);
}

/* ---- DeepSeek's routers: everything in fp32, experts of the best groups only ---- */

typedef struct {
  gint64 tokens, experts;
} Sizes;

static ValueInfo
columns(const Sizes *s, DType dtype, gint64 n)
{
  return value_shape(dtype, 2, s->tokens, n);
}

/* A tensor of the choice, which needs no gradient, as a name. */
static Val
chosen(Builder *b, const char *name, ValueInfo info)
{
  return let(b, name, create(b, name, info));
}

/* router_logits of x [batch, length, hidden], x and weight cast to fp32. */
static Val
wide_logits(Builder *b, const Moe *m, Val x)
{
  ValueInfo info = builder_info(b, x);
  gint64 tokens = value_elements(&info) / m->style.hidden;
  x = let(b, "hidden_states", view(b, x, 2, tokens, m->style.hidden));
  Val wide = to(b, x, DTYPE_FP32);
  Val weight = to(b, builder_weight(b, m->router_weight), DTYPE_FP32);
  return let(b, "router_logits", linear_by(b, wide, weight, NO_VAL));
}

/* group_idx, group_mask and score_mask: which experts are in the groups that a token uses. */
static void
choose_groups(Builder *b, const Moe *m, const Sizes *s)
{
  gint64 used = m->style.groups_used;
  Val best = create(b, "scores of groups", columns(s, DTYPE_FP32, used));
  chosen(b, "group_idx", columns(s, DTYPE_INT64, used));
  builder_discard(b, best);
  chosen(b, "group_mask", columns(s, DTYPE_FP32, m->style.groups));
  chosen(b, "score_mask", columns(s, DTYPE_FP32, s->experts));
}

/* ~score_mask.bool() */
static Val
outside(Builder *b, const Sizes *s)
{
  Val inside = create(b, "experts of chosen groups", columns(s, DTYPE_BOOL, s->experts));
  Val mask = create(b, "experts of other groups", columns(s, DTYPE_BOOL, s->experts));
  builder_discard(b, inside);
  return mask;
}

static Val
scaled(Builder *b, Val weights)
{
  return let(b, "topk_weights", unary(b, OP_MUL_SCALAR, weights));
}

/* The choice is made of scores with a bias; what its nodes keep lives until the router returns. */
static Val
choose_with_bias(Builder *b, const Moe *m, const Sizes *s)
{
  enum { BEST_OF_GROUP = 2 };
  gint64 k = m->style.top_k, groups = m->style.groups;
  chosen(b, "scores_for_choice", columns(s, DTYPE_FP32, s->experts));
  Val best = create(b, "best of groups", columns(s, DTYPE_FP32, groups * BEST_OF_GROUP));
  chosen(b, "indices of best of groups", columns(s, DTYPE_INT64, groups * BEST_OF_GROUP));
  chosen(b, "group_scores", columns(s, DTYPE_FP32, groups));
  builder_discard(b, best);
  choose_groups(b, m, s);
  let(b, "mask of the choice", outside(b, s));
  chosen(b, "scores_for_choice", columns(s, DTYPE_FP32, s->experts));
  Val values = create(b, "scores of experts", columns(s, DTYPE_FP32, k));
  Val experts = chosen(b, "topk_indices", columns(s, DTYPE_INT64, k));
  builder_discard(b, values);
  return experts;
}

static Sizes
sizes_of(Builder *b, const Moe *m, Val logits)
{
  return (Sizes){builder_info(b, logits).shape[0], m->style.experts};
}

Routing
moe_route_sigmoid(Builder *b, const Moe *m, Val x)
{
  x = enter(b, m, x);
  Val logits = wide_logits(b, m, x);
  Sizes s = sizes_of(b, m, logits);
  Val scores = let(b, "scores", unary(b, OP_SIGMOID, logits));
  Val experts = choose_with_bias(b, m, &s);
  Val weights = let(b, "topk_weights", binary(b, OP_GATHER, scores, experts));
  if (m->style.normalized) {
    Val sum = let(b, "denominator", unary(b, OP_ADD_SCALAR, reduce_last(b, OP_SUM, weights)));
    weights = let(b, "topk_weights", binary(b, OP_DIV_IN_PLACE, weights, sum));
  }
  return leave(b, logits, scaled(b, weights), experts);
}

Routing
moe_route_groups(Builder *b, const Moe *m, Val x)
{
  Val best[2];
  x = enter(b, m, x);
  Val logits = wide_logits(b, m, x);
  Sizes s = sizes_of(b, m, logits);
  Val scores = let(b, "scores", unary(b, OP_SOFTMAX, logits));
  if (m->style.groups > 0) { /* max() of each group, with its index */
    chosen(b, "group_scores", columns(&s, DTYPE_FP32, m->style.groups));
    chosen(b, "indices of best of groups", columns(&s, DTYPE_INT64, m->style.groups));
    choose_groups(b, m, &s);
    scores = let(b, "scores", binary(b, OP_MASKED_FILL, scores, outside(b, &s)));
  }
  topk(b, scores, m->style.top_k, best);
  Val weights = let(b, "topk_weights", best[0]);
  Val experts = let(b, "topk_indices", best[1]);
  return leave(b, logits, scaled(b, weights), experts);
}
