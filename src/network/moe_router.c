/* moe_router.c - which experts a token goes to, and with what weights: the routers of transformers.
 */
#include "network/moe.h"
#include "network/strides.h"

/* ---- steps ---- */

/* The k largest of the last dimension: values and indices. */
static void
topk(Builder *b, Val x, gint64 k, Val out[2])
{
  OpAttributes at = {.size = {k}};
  builder_op_multi(b, OP_TOPK, &at, 1, &x, 2, out);
}

/* Of each row: [tokens, 1]. */
static Val
row_sums(Builder *b, Val x)
{
  ValueInfo info = builder_info(b, x);
  info.shape[info.dims - 1] = 1;
  value_set_contiguous(&info);
  return shaped(b, OP_SUM, x, info);
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
  Val logits = let(b, "router_logits", logits_of(b, m, x));
  DType dtype = (DType) builder_info(b, logits).dtype;
  Val probabilities = let(b, "router_probs", unary(b, OP_SOFTMAX, to(b, logits, DTYPE_FP32)));
  topk(b, probabilities, m->style.top_k, best);
  Val weights = let(b, "router_top_value", best[0]);
  Val experts = let(b, "router_indices", best[1]);
  if (m->style.normalized) {
    Val sum = row_sums(b, weights);
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

Routing
moe_route_largest(Builder *b, const Moe *m, Val x)
{
  Val best[2];
  x = enter(b, m, x);
  DType dtype = (DType) builder_info(b, x).dtype;
  Val logits = let(b, "router_logits", to(b, logits_of(b, m, x), DTYPE_FP32));
  topk(b, logits, m->style.top_k, best);
  Val largest = let(b, "top_k_logits", best[0]);
  Val experts = let(b, "top_k_index", best[1]);
  Val weights = let(b, "top_k_weights", to(b, unary(b, OP_SOFTMAX, largest), dtype));
  return leave(b, logits, weights, experts);
}
