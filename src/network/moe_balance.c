/* moe_balance.c - the auxiliary loss of mixtures of experts: load_balancing_loss_func of
 * transformers 5.24, the same in all models that have it, and what forward() does with it. */
#include "network/moe_balance.h"

#include "network/strides.h"

/* ---- sums over layers: names of the function ---- */

typedef struct {
  gint64 experts, k;
  Val counts, shares; /* tokens_per_expert_sum, router_prob_sum */
} Sums;

static ValueInfo
vector(const Sums *s)
{
  return value_shape(DTYPE_FP32, 1, s->experts);
}

/* routing_weights.sum(dim=0) */
static Val
sum_rows(Builder *b, Val x, const Sums *s)
{
  OpAttributes at = {.result = vector(s)};
  return builder_op(b, OP_SUM_ROWS, &at, 1, &x);
}

/* The k largest probabilities and whose they are; no gradient comes to either. */
static Val
choose(Builder *b, Val probabilities, const Sums *s)
{
  ValueInfo info = builder_info(b, probabilities);
  info.shape[1] = s->k;
  value_set_contiguous(&info);
  info.requires_grad = FALSE;
  Val largest = create(b, "largest probabilities", info);
  Val experts = create(b, "chosen experts", value_like_dtype(info, DTYPE_INT64));
  let(b, "_", largest);
  return let(b, "selected_experts", experts);
}

static void
add_layer(Builder *b, Val logits, Sums *s)
{
  Val p = unary(b, OP_SOFTMAX, autocast_wide(b, (Val){logits.slot, FALSE}));
  p = let(b, "routing_weights", p);
  Val experts = to(b, choose(b, p, s), DTYPE_INT32);
  Val counts = shaped(b, OP_HISTC, experts, value_shape(DTYPE_INT32, 1, s->experts));
  s->counts = let(b, "tokens_per_expert_sum", binary(b, OP_ADD, counts, s->counts));
  Val shares = sum_rows(b, to(b, p, DTYPE_FP32), s);
  s->shares = let(b, "router_prob_sum", binary(b, OP_ADD, s->shares, shares));
}

Val
moe_balance_loss(Builder *b, const MoeStyle *style, int layers, const Val *logits)
{
  Sums s = {style->experts, style->top_k, NO_VAL, NO_VAL};
  builder_call(b, 0, NULL);
  s.counts = let(b, "tokens_per_expert_sum", create(b, "tokens of experts", vector(&s)));
  s.shares = let(b, "router_prob_sum", create(b, "shares of experts", vector(&s)));
  double rows = 0;
  for (int i = 0; i < layers; i++) {
    add_layer(b, logits[i], &s);
    rows += (double) builder_info(b, logits[i]).shape[0];
  }
  Val counts = let(b, "tokens_per_expert", unary_with(b, OP_DIV_SCALAR, s.counts, "value", rows));
  Val shares =
      let(b, "router_prob_per_expert", unary_with(b, OP_DIV_SCALAR, s.shares, "value", rows));
  Val product = binary(b, OP_MUL, counts, view(b, shares, 2, (gint64) 1, s.experts));
  Val loss = let(b, "overall_loss", shaped(b, OP_SUM, product, value_shape(DTYPE_FP32, 0)));
  return builder_leave(b, unary_with(b, OP_MUL_SCALAR, loss, "value", (double) s.experts));
}

Val
moe_balance_add(Builder *b, double coefficient, Val loss, Val balance)
{
  Val part = unary_with(b, OP_MUL_SCALAR, (Val){balance.slot, FALSE}, "value", coefficient);
  return binary(b, OP_ADD_, loss, part);
}
