/* moe.h - mixtures of experts as transformers 5 writes them: a router, experts whose weights are
 * one tensor, shared experts beside them.
 *
 * A family says in a MoeStyle what its config.json says and whose router and block it has;
 * moe_define() makes the modules, moe_forward() calls them.  How the experts are computed and how
 * evenly tokens fall on them is the plan's (PlanSpec.moe). */
#ifndef HIGHWATER_NETWORK_MOE_H
#define HIGHWATER_NETWORK_MOE_H

#include "network/builder.h"
#include "network/layers.h"
#include "network/transformers_activation.h"

typedef struct _Moe Moe;

#define MOE_MOST_EXPERTS 4096 /* of a layer: a loop over them is as long */

/* What a router gives: logits and, for each token, its experts' weights and their numbers. */
typedef struct {
  Val logits, weights, experts;
} Routing;

typedef enum {
  SHARED_NONE,
  SHARED_ADDED, /* routed(x) + shared(x) */
  SHARED_GATED, /* routed(x) + sigmoid(gate(x)) * shared(x), where shared(x) comes first */
} SharedExperts;

typedef struct {
  gint64 hidden, ffn, experts, top_k;
  /* router */
  Routing (*route)(Builder *b, const Moe *m, Val x);
  gboolean normalized;        /* the weights of a token's experts are divided by their sum */
  gint64 groups, groups_used; /* experts are chosen from so many groups of them */
  double scale;               /* of the weights; transformers multiplies by 1 too */
  gboolean captures;          /* a hook keeps the router's logits (output_router_logits) */
  gboolean router_bias, correction_bias;
  gboolean softmax_scores;       /* torchtitan: not sigmoids */
  gboolean loops_on_old_devices; /* torchtitan: without a device of sm_90 experts are looped over */
  /* shared experts, as one that is as wide as all of them; 0: none */
  SharedExperts shared;
  gint64 shared_ffn;
  /* experts */
  gboolean expert_bias, transposed;             /* weights [experts, in, out] */
  Val (*gate)(Builder *b, const Moe *m, Val x); /* of a product [rows, 2 ffn]; NULL: act(a) * b */
  const Activation *activation;
  /* modules; NULL: SparseMoeBlock, mlp, gate, experts, and no shared ones */
  const char *type, *module, *router, *experts_module, *shared_module, *shared_gate;
  /* their definition, in this order of letters: g router, e experts, s shared, S shared gate; NULL:
   * ge */
  const char *order;
} MoeStyle;

struct _Moe {
  MoeStyle style;
  int module, router, experts, activation;
  int router_weight, router_bias;
  int gate_up, down; /* parameters [experts, 2 ffn, hidden], [experts, hidden, ffn] */
  int gate_up_bias, down_bias;
  struct {
    int module, activation;
    Linear gate, up, down, weight;
  } shared;
};

/* Defines the modules of a mixture, as a child of the open module. */
Moe moe_define(Builder *b, const MoeStyle *style);
/* Its call with x [batch, length, hidden]. */
Val moe_forward(Builder *b, const Moe *m, Val x);
/* One more mixture is in the network: what a token does not meet of it, the experts that it is not
 * sent to, is idle.  Refuses a load_imbalance of the plan that it cannot have. */
void moe_count(Builder *b, const MoeStyle *style);

/* ---- routers: moe_router.c ---- */

/* softmax in fp32, the k largest, their sum made 1 if wanted, in the model's dtype (OLMoE, Qwen).
 */
Routing moe_route_softmax(Builder *b, const Moe *m, Val x);
/* The same of logits that are cast in Python, with weights left in fp32 (Mixtral). */
Routing moe_route_softmax_fp32(Builder *b, const Moe *m, Val x);
/* The k largest logits, and their softmax (Granite). */
Routing moe_route_largest(Builder *b, const Moe *m, Val x);
/* The same in the model's dtype (gpt-oss). */
Routing moe_route_largest_narrow(Builder *b, const Moe *m, Val x);
/* Sigmoids, a bias for the choice alone, groups by the sum of their two best (DeepSeek V3). */
Routing moe_route_sigmoid(Builder *b, const Moe *m, Val x);
/* softmax, groups by their best (DeepSeek V2). */
Routing moe_route_groups(Builder *b, const Moe *m, Val x);

/* ---- experts: moe_experts.c ---- */

/* experts(x, index, weights): x [tokens, hidden], index and weights [tokens, k].  Returns [tokens,
 * hidden]. */
Val moe_experts(Builder *b, const Moe *m, Val x, Val index, Val weights);
/* Rows of the busiest expert: the plan's load factor times the mean, and no more than there are
 * tokens. */
gint64 moe_busiest_rows(const Builder *b, const MoeStyle *style, gint64 tokens);
/* Rows of each expert: the first one's are the busiest's, the others share the rest; behind one
 * that has none no other has any. */
gint64 moe_expert_rows(const Builder *b, const MoeStyle *style, gint64 tokens, gint64 expert);

#endif
