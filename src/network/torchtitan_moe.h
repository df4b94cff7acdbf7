/* torchtitan_moe.h - feed-forwards as torchtitan writes them (models/moe of torchtitan 0.2.2):
 * SwiGLU, and mixtures of experts, whose tokens are sorted by expert and padded for one grouped
 * product, or go to one expert after the other.
 *
 * What a config.json says of a mixture is a MoeStyle; of its functions and names none is used. */
#ifndef HIGHWATER_NETWORK_TORCHTITAN_MOE_H
#define HIGHWATER_NETWORK_TORCHTITAN_MOE_H

#include "network/moe.h"

/* w2(silu(w1(x)) * w3(x)) */
typedef struct {
  int module;
  Linear gate, up, down;
} TorchtitanFeedForward;

typedef struct {
  MoeStyle style;
  int module, router, reorderer, experts;
  gboolean looped; /* experts are computed one after the other */
  Linear gate;
  int w1, w2, w3; /* parameters [experts, ffn, hidden], w2 [experts, hidden, ffn] */
  TorchtitanFeedForward shared;
} TorchtitanMoe;

/* Defines a feed-forward as a child of the open module. */
TorchtitanFeedForward torchtitan_feed_forward_define(Builder *b, const char *name, gint64 hidden,
                                                     gint64 ffn, gboolean bias);
Val torchtitan_feed_forward(Builder *b, const TorchtitanFeedForward *p, Val x);

/* Defines a mixture as a child of the open module, "moe".  The plan's moe.experts that torchtitan
 * does not have are an error of the builder's. */
TorchtitanMoe torchtitan_moe_define(Builder *b, const MoeStyle *style);
/* Its call with x [batch, length, hidden]. */
Val torchtitan_moe(Builder *b, const TorchtitanMoe *m, Val x);
/* Writes the function that a hook of optimizer.step() runs before it (components/optimizer.py,
 * _update_expert_bias): how many tokens each of the experts had, for all mixtures, and what is
 * added to their biases.  blocks: those that have a mixture, n of them. */
void torchtitan_moe_balance(Builder *b, gint64 experts, int n, const int *blocks);

/* What the router gives: for each token its experts' weights in fp32 and their numbers; how many
 * tokens each expert has.  torchtitan_router.c */
typedef struct {
  Val weights, experts, counts;
} TorchtitanRouting;

/* The call with rows of tokens; the results are the caller's temporaries. */
TorchtitanRouting torchtitan_route(Builder *b, const TorchtitanMoe *m, Val x);
/* How many of each expert's tokens there are: torch.histc, a temporary. */
Val torchtitan_count(Builder *b, const TorchtitanMoe *m, Val experts);

#endif
