/* zero1.c - DeepSpeed's ZeRO stage 1: optimizer state partitioned, by one of two classes. */
#include "strategy/bf16_optimizer.h"
#include "strategy/zero_load.h"
#include "strategy/zero_stage12.h"
#include "strategy/zero_state.h"

static gboolean
is_bf16(const StrategyContext *x)
{
  return deepspeed_is_bf16_optimizer(&zero_of(x)->d);
}

static gboolean
accept(const PlanSpec *plan, const Network *network, GError **error)
{
  return zero_stage12_accept_accumulation(plan, network, error) &&
         deepspeed_accept(plan, network, 1, error);
}

static LossScaling
loss(const PlanSpec *plan)
{
  return deepspeed_loss(plan, 1);
}

static void
setup(StrategyContext *x)
{
  DeepSpeed d;
  deepspeed_read(&d, x->plan, x->network, 1, x->rank);
  if (deepspeed_is_bf16_optimizer(&d))
    bf16_optimizer_setup(x);
  else
    zero_stage12_setup(x, 1);
}

static void
initialize(StrategyContext *x)
{
  if (is_bf16(x))
    bf16_optimizer_initialize(x);
  else
    zero_stage12_initialize(x);
}

static void
begin_backward(StrategyContext *x)
{
  if (is_bf16(x))
    bf16_optimizer_begin_backward(x);
}

static void
gradient_ready(StrategyContext *x, int parameter)
{
  if (!is_bf16(x))
    zero_gradient_ready(x, parameter);
}

static void
after_graph(StrategyContext *x)
{
  if (is_bf16(x))
    bf16_optimizer_after_graph(x);
  else
    zero_epilogue(x);
}

static void
optimizer_step(StrategyContext *x)
{
  if (is_bf16(x))
    bf16_optimizer_step(x);
  else
    zero_optimizer_step(x);
}

static int
zero_stage(StrategyContext *x)
{
  return zero_of(x)->d.ranks > 1 ? 1 : 0;
}

/* BF16_Optimizer sends the padded buffer, and asks nobody for the norm. */
static ExpectedTotals
expected(StrategyContext *x)
{
  ExpectedTotals total = zero_expected(x);
  if (is_bf16(x))
    total.elements_all_reduced = total.elements_gathered;
  return total;
}

const Strategy strategy_zero1 = {
    .name = "zero1",
    .summary = "DeepSpeed ZeRO stage 1: optimizer state partitioned",
    .section = &deepspeed_section,
    .batch_tensors = DEEPSPEED_BATCH_TENSORS,
    .accept = accept,
    .loss = loss,
    .setup = setup,
    .construct = strategy_construct_whole,
    .initialize = initialize,
    .teardown = zero_stage12_teardown,
    .begin_backward = begin_backward,
    .begin_forward = deepspeed_begin_forward,
    .gradient_ready = gradient_ready,
    .after_graph = after_graph,
    .optimizer_step = optimizer_step,
    .zero_stage = zero_stage,
    .spread = zero_stage12_spread,
    .heaviest_rank = zero_stage12_heaviest_rank,
    .expected = expected,
    .initializes = INITIALIZES_ON_DEVICE,
    .state_ranks = zero_state_ranks,
    .state_ranges = zero_stage12_state_ranges,
    .save_model = zero_save_state,
    .saves_with_engine = TRUE,
    .accept_load = zero_accept_load,
    .load_model = zero_stage12_load,
};
