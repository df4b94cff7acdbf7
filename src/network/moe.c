/* moe.c - mixtures of experts: their modules, and the call of the block that routes tokens. */
#include "network/moe.h"

/* ---- modules, in order of definition ---- */

static void
define_router(Builder *b, Moe *m)
{
  const MoeStyle *s = &m->style;
  m->router = builder_module(b, s->router, "TopKRouter");
  m->router_weight = builder_parameter(b, "weight", 2, s->experts, s->hidden);
  m->router_bias = s->router_bias ? builder_parameter(b, "bias", 1, s->experts) : -1;
  if (s->correction_bias) {
    g_autofree char *name = builder_path(b, "e_score_correction_bias");
    builder_buffer(b, name, DTYPE_FP32, s->experts);
  }
  builder_module_end(b);
}

/* Every expert's matrix [out, in], or [in, out]. */
static int
define_matrices(Builder *b, const MoeStyle *s, const char *name, gint64 out, gint64 in)
{
  return s->transposed ? builder_parameter(b, name, 3, s->experts, in, out)
                       : builder_parameter(b, name, 3, s->experts, out, in);
}

static void
define_experts(Builder *b, Moe *m)
{
  const MoeStyle *s = &m->style;
  m->experts = builder_module(b, s->experts_module, "Experts");
  m->gate_up = define_matrices(b, s, "gate_up_proj", 2 * s->ffn, s->hidden);
  if (s->expert_bias)
    m->gate_up_bias = builder_parameter(b, "gate_up_proj_bias", 2, s->experts, 2 * s->ffn);
  m->down = define_matrices(b, s, "down_proj", s->hidden, s->ffn);
  if (s->expert_bias)
    m->down_bias = builder_parameter(b, "down_proj_bias", 2, s->experts, s->hidden);
  if (s->gate == NULL)
    m->activation = activation_define(b, s->activation, "act_fn");
  builder_module_end(b);
}

static void
define_shared(Builder *b, Moe *m)
{
  const MoeStyle *s = &m->style;
  m->shared.module = builder_module(b, s->shared_module, "MLP");
  m->shared.gate = define_linear(b, "gate_proj", s->shared_ffn, s->hidden, FALSE);
  m->shared.up = define_linear(b, "up_proj", s->shared_ffn, s->hidden, FALSE);
  m->shared.down = define_linear(b, "down_proj", s->hidden, s->shared_ffn, FALSE);
  m->shared.activation = activation_define(b, s->activation, "act_fn");
  builder_module_end(b);
}

static void
define_part(Builder *b, Moe *m, char letter)
{
  switch (letter) {
  case 'g':
    define_router(b, m);
    break;
  case 'e':
    define_experts(b, m);
    break;
  case 's':
    define_shared(b, m);
    break;
  default:
    m->shared.weight = define_linear(b, m->style.shared_gate, 1, m->style.hidden, FALSE);
  }
}

static gint64
idle_parameters(const MoeStyle *s)
{
  gint64 expert = 3 * s->hidden * s->ffn + (s->expert_bias ? 2 * s->ffn + s->hidden : 0);
  return (s->experts - s->top_k) * expert;
}

/* With more an expert would have more tokens than there are. */
static void
check_imbalance(Builder *b, const MoeStyle *s)
{
  const PlanSpec *plan = builder_shape(b)->plan;
  double most = (double) s->experts / (double) s->top_k;
  if (plan != NULL && plan->moe.load_imbalance > most)
    builder_fail(b,
                 "%s: key 'moe.load_imbalance': %g is more than %g, where one of %" G_GINT64_FORMAT
                 " experts has every token",
                 plan->file, plan->moe.load_imbalance, most, s->experts);
}

void
moe_count(Builder *b, const MoeStyle *s)
{
  check_imbalance(b, s);
  builder_network(b)->mixtures++;
  builder_network(b)->idle_parameters += idle_parameters(s);
}

static void
set_default(const char **name, const char *standard)
{
  if (*name == NULL)
    *name = standard;
}

Moe
moe_define(Builder *b, const MoeStyle *style)
{
  Moe m = {.style = *style, .gate_up_bias = -1, .down_bias = -1};
  set_default(&m.style.type, "SparseMoeBlock");
  set_default(&m.style.module, "mlp");
  set_default(&m.style.router, "gate");
  set_default(&m.style.experts_module, "experts");
  set_default(&m.style.order, "ge");
  moe_count(b, style);
  m.module = builder_module(b, m.style.module, m.style.type);
  for (const char *letter = m.style.order; *letter != '\0'; letter++)
    define_part(b, &m, *letter);
  builder_module_end(b);
  return m;
}

/* ---- forward() ---- */

/* down_proj(act_fn(gate_proj(x)) * up_proj(x)) */
static Val
shared_experts(Builder *b, const Moe *m, Val x)
{
  x = call_module(b, m->shared.module, x);
  Val gate = linear(b, x, m->shared.gate);
  gate = activation_call(b, m->style.activation, m->shared.activation, gate);
  Val up = linear(b, x, m->shared.up);
  Val y = linear(b, binary(b, OP_MUL, gate, up), m->shared.down);
  return builder_leave(b, let(b, "down_proj", y));
}

/* hidden_states.view(-1, hidden) */
static Val
flatten(Builder *b, const Moe *m, Val x)
{
  ValueInfo info = builder_info(b, x);
  Val flat = view(b, x, 2, info.shape[0] * info.shape[1], m->style.hidden);
  return let(b, "hidden_states", flat);
}

/* The router's results as names of the block's forward(). */
static Routing
route(Builder *b, const Moe *m, Val x)
{
  Routing r = m->style.route(b, m, x);
  if (m->style.captures)
    builder_capture(b, r.logits);
  let(b, "_", r.logits);
  return (Routing){.weights = let(b, "top_k_weights", r.weights),
                   .experts = let(b, "top_k_index", r.experts)};
}

/* sigmoid(shared_expert_gate(x)) * shared */
static Val
weigh_shared(Builder *b, const Moe *m, Val x, Val shared)
{
  Val weight = unary(b, OP_SIGMOID, linear(b, x, m->shared.weight));
  return let(b, "shared_expert_output", binary(b, OP_MUL, weight, shared));
}

static Val
call_experts(Builder *b, const Moe *m, Val flat, Routing r)
{
  return let(b, "expert_output", moe_experts(b, m, flat, r.experts, r.weights));
}

/* Everything on rows of tokens; a shared expert comes first and is weighed last. */
static Val
forward_on_rows(Builder *b, const Moe *m, Val x)
{
  ValueInfo shape = builder_info(b, x);
  Val shared = NO_VAL, flat = flatten(b, m, x);
  gboolean has_shared = m->style.shared == SHARED_GATED;
  if (has_shared)
    shared = let(b, "shared_expert_output", shared_experts(b, m, flat));
  Val y = call_experts(b, m, flat, route(b, m, flat));
  if (has_shared) {
    shared = weigh_shared(b, m, flat, shared);
    y = let(b, "expert_output", binary(b, OP_ADD, y, shared));
  }
  return let(b, "expert_output", reshape(b, y, shape));
}

/* Routers flatten for themselves, shared experts see the batch as it is. */
static Val
forward_beside_shared(Builder *b, const Moe *m, Val x)
{
  ValueInfo shape = builder_info(b, x);
  Val residual = let(b, "residuals", x);
  Routing r = route(b, m, x);
  Val y = call_experts(b, m, flatten(b, m, x), r);
  y = let(b, "expert_output", reshape(b, y, shape));
  Val shared = shared_experts(b, m, residual);
  return let(b, "expert_output", binary(b, OP_ADD, y, shared));
}

Val
moe_forward(Builder *b, const Moe *m, Val x)
{
  x = call_module(b, m->module, x);
  return builder_leave(
      b, (m->style.shared == SHARED_ADDED ? forward_beside_shared : forward_on_rows)(b, m, x));
}
