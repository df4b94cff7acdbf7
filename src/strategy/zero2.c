/* zero2.c - DeepSpeed's ZeRO stage 2: optimizer state and gradients partitioned. */
#include "strategy/zero_load.h"
#include "strategy/zero_stage12.h"
#include "strategy/zero_state.h"

static gboolean
accept(const PlanSpec *plan, const Network *network, GError **error)
{
  return zero_stage12_accept_accumulation(plan, network, error) &&
         deepspeed_accept(plan, network, 2, error);
}

static LossScaling
loss(const PlanSpec *plan)
{
  return deepspeed_loss(plan, 2);
}

static void
setup(StrategyContext *x)
{
  zero_stage12_setup(x, 2);
}

static int
zero_stage(StrategyContext *x)
{
  return zero_of(x)->d.ranks > 1 ? 2 : 0;
}

const Strategy strategy_zero2 = {
    .name = "zero2",
    .summary = "DeepSpeed ZeRO stage 2: optimizer state and gradients partitioned",
    .section = &deepspeed_section,
    .batch_tensors = DEEPSPEED_BATCH_TENSORS,
    .accept = accept,
    .loss = loss,
    .setup = setup,
    .construct = strategy_construct_whole,
    .initialize = zero_stage12_initialize,
    .teardown = zero_stage12_teardown,
    .begin_forward = deepspeed_begin_forward,
    .gradient_ready = zero_gradient_ready,
    .after_graph = zero_epilogue,
    .optimizer_step = zero_optimizer_step,
    .zero_stage = zero_stage,
    .spread = zero_stage12_spread,
    .heaviest_rank = zero_stage12_heaviest_rank,
    .expected = zero_expected,
    .initializes = INITIALIZES_ON_DEVICE,
    .state_ranks = zero_state_ranks,
    .state_ranges = zero_stage12_state_ranges,
    .save_model = zero_save_state,
    .saves_with_engine = TRUE,
    .accept_load = zero_accept_load,
    .load_model = zero_stage12_load,
};
