/* fsdp2_accept.c - what fully_shard can do of a plan, and what it refuses. */
#include "base/units.h"
#include "strategy/fsdp2_private.h"
#include "strategy/fsdp_groups.h"
#include "strategy/fsdp_ignored.h"
#include "strategy/fsdp_options.h"

/* Elements that all ranks hold together, far below what sums over a step could overflow. */
#define MOST_ELEMENTS ((gint64) 1 << 50)

/* A parameter of few rows is padded to one for each rank. */
static gboolean
accept_padding(const PlanSpec *plan, const Network *network, GError **error)
{
  gint64 total = 0;
  for (guint i = 0; i < network->parameters->len; i++) {
    const Parameter *p = network_parameter(network, (int) i);
    gint64 chunk = shard_padded_elements(p, plan->shard), all;
    if (!checked_multiply(chunk, plan->shard, &all) || all > MOST_ELEMENTS - total)
      return plan_spec_refuse(plan, error, "mesh.shard",
                              "parameters padded to %d shards have more than 2^50 elements",
                              plan->shard);
    total += all;
  }
  return TRUE;
}

gboolean
fsdp2_accept(const PlanSpec *plan, const Network *network, GError **error)
{
  const OptionValue *reshard = plan_spec_option(plan, "reshard_after_forward");
  if (plan_spec_number(plan, "sharding_strategy") != 0)
    return plan_spec_refuse(plan, error, "fsdp.sharding_strategy",
                            "only FSDP1 has it; fsdp2 shards fully");
  if (plan_spec_number(plan, "wrap") != 0)
    return plan_spec_refuse(plan, error, "fsdp.wrap", "only FSDP1 has it: FSDP2 groups all blocks");
  if (plan_spec_number(plan, "limit_all_gathers") == 0)
    return plan_spec_refuse(plan, error, "fsdp.limit_all_gathers", "only FSDP1 has it");
  if (plan_spec_number(plan, "cast_buffers") != 0)
    return plan_spec_refuse(plan, error, "fsdp.cast_buffers", "only FSDP1 has it");
  if (plan_spec_number(plan, "use_orig_params") == 0)
    return plan_spec_refuse(plan, error, "fsdp.use_orig_params",
                            "only FSDP1 has it; fsdp2 keeps the parameters");
  if (plan_spec_option(plan, "backward_prefetch")->is_name)
    return plan_spec_refuse(plan, error, "fsdp.backward_prefetch",
                            "only FSDP1 names a moment; fsdp2 takes a number of groups");
  if (!plan_spec_option(plan, "prefetch_budget")->is_null &&
      (plan_spec_number(plan, "forward_prefetch") || plan_spec_number(plan, "backward_prefetch")))
    return plan_spec_refuse(plan, error, "fsdp.prefetch_budget",
                            "takes the place of forward_prefetch and backward_prefetch");
  if (plan->precision.autocast)
    return plan_spec_refuse(plan, error, "precision.autocast",
                            "fsdp2 casts by its mixed precision policy, not by autocast");
  if (!reshard->is_null && !reshard->is_bool && plan->shard % reshard->number != 0)
    return plan_spec_refuse(plan, error, "fsdp.reshard_after_forward",
                            "%" G_GINT64_FORMAT " does not divide mesh.shard %d", reshard->number,
                            plan->shard);
  if (plan->accumulation.all_reduce_every > 1 && plan->replicate == 1)
    return plan_spec_refuse(plan, error, "accumulation.all_reduce_every",
                            "needs replicas: mesh.replicate is 1");
  if (plan->optimizer.name == OPTIMIZER_SGD &&
      plan->optimizer.implementation == OPTIMIZER_FUSED) /* _sharding_prop.py */
    return plan_spec_refuse(plan, error, "optimizer.implementation",
                            "fused SGD has no sharding strategy for FSDP2's DTensors: use foreach");
  if (!plan_spec_number(plan, "pin_memory") && !plan_spec_number(plan, "cpu_offload"))
    return plan_spec_refuse(plan, error, "fsdp.pin_memory", "needs \"cpu_offload\": true");
  if (network->split && !network_splits_weight(network) && plan_spec_number(plan, "cpu_offload"))
    return plan_spec_refuse(plan, error, "fsdp.cpu_offload",
                            "not yet supported where a model ties its weights after fully_shard()");
  if (plan_spec_number(plan, "reshard_head") && plan_spec_number(plan, "head") == 0)
    return plan_spec_refuse(plan, error, "fsdp.reshard_head", "needs \"head\": \"own\"");
  for (guint i = 0; i < network->parameters->len; i++)
    if (network_parameter(network, (int) i)->dims == 0)
      return plan_spec_refuse(plan, error, "strategy",
                              "fully_shard does not take scalar parameters, as '%s' is: make it a "
                              "vector of one, or use another strategy",
                              network_parameter(network, (int) i)->name);
  gint64 blocks = plan_spec_number(plan, "blocks_per_group");
  if (blocks > (gint64) network->blocks->len)
    return plan_spec_refuse(plan, error, "fsdp.blocks_per_group",
                            "%" G_GINT64_FORMAT " is more than the network's %u blocks", blocks,
                            network->blocks->len);
  return fsdp_groups_accept(plan, network, TRUE, error) &&
         fsdp_ignored_accept(plan, network, error) && accept_padding(plan, network, error);
}

/* fully_shard takes what is a parameter of its modules and knows nothing of other modules that
 * share it: those keep the full weight, which the next call shards once more
 * (_get_param_module_infos, _fsdp_init.py).  One group for both keeps them tied. */
gboolean
fsdp2_splits_tied(const PlanSpec *plan)
{
  gint64 embedding = plan_spec_number(plan, "embedding");
  return embedding == PLACE_OWN ||
         (embedding == PLACE_ROOT && plan_spec_number(plan, "head") == PLACE_OWN);
}
