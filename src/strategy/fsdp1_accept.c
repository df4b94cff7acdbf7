/* fsdp1_accept.c - which plans FSDP1 can honour. */
#include "strategy/fsdp1_private.h"
#include "strategy/fsdp_groups.h"

static gboolean
accept_mesh(const PlanSpec *plan, GError **error)
{
  ShardingStrategy strategy = (ShardingStrategy) plan_spec_number(plan, "sharding_strategy");
  if (strategy != NO_SHARD && !fsdp1_is_hybrid(strategy) && plan->replicate > 1)
    return plan_spec_refuse(plan, error, "mesh.replicate",
                            "FSDP1 has replicas with fsdp.sharding_strategy HYBRID_SHARD, "
                            "_HYBRID_SHARD_ZERO2 or NO_SHARD");
  if (fsdp1_is_hybrid(strategy) && plan->shard == 1 && plan->replicate > 1)
    return plan_spec_refuse(
        plan, error, "mesh.shard",
        "FSDP1 turns hybrid sharding over one rank into NO_SHARD and then never "
        "sums over replicas: use fsdp.sharding_strategy NO_SHARD");
  return TRUE;
}

/* FSDP2's options: their defaults, and what FSDP1 does anyway. */
static gboolean
accept_groups(const PlanSpec *plan, GError **error)
{
  const OptionValue *reshard = plan_spec_option(plan, "reshard_after_forward");
  const GPtrArray *lists = plan_spec_option(plan, "groups")->lists;
  for (guint i = 0; lists != NULL && i < lists->len; i++)
    if (!((const NameList *) g_ptr_array_index(lists, i))->is_single)
      return plan_spec_refuse(plan, error, "fsdp.groups",
                              "fsdp1 wraps single modules: a name or pattern without a list");
  if (plan_spec_number(plan, "blocks_per_group") > 1)
    return plan_spec_refuse(plan, error, "fsdp.blocks_per_group",
                            "fsdp1 wraps each block (1) or the whole model alone (0)");
  if (plan_spec_number(plan, "embedding") != 0 || plan_spec_number(plan, "head") != 0)
    return plan_spec_refuse(
        plan, error, plan_spec_number(plan, "head") != 0 ? "fsdp.head" : "fsdp.embedding",
        "fsdp1 wraps blocks alone: embedding and head are in the root's flat parameter");
  if (!reshard->is_null && !(reshard->is_bool && reshard->number))
    return plan_spec_refuse(plan, error, "fsdp.reshard_after_forward",
                            "with fsdp1 fsdp.sharding_strategy says it: SHARD_GRAD_OP is false");
  const struct {
    const char *key;
    gint64 kept;
  } of_fsdp2[] = {
      {"reshard_root", 1}, {"reshard_head", 0}, {"reshard_last_block", 1}, {"pin_memory", 1}};
  if (!plan_spec_option(plan, "ignored")->is_null)
    return plan_spec_refuse(plan, error, "fsdp.ignored", "not yet supported under fsdp1");
  for (guint i = 0; i < G_N_ELEMENTS(of_fsdp2); i++) {
    g_autofree char *key = g_strconcat("fsdp.", of_fsdp2[i].key, NULL);
    if (plan_spec_number(plan, of_fsdp2[i].key) != of_fsdp2[i].kept)
      return plan_spec_refuse(plan, error, key, "only fsdp2 has it");
  }
  return TRUE;
}

/* Where the first block is not checkpointed and others are, a policy that looks for its class finds
 * the blocks inside of their checkpoints too (_recursive_wrap): FSDP(block) and
 * checkpoint(FSDP(block)) side by side, which no `around` says. */
static gboolean
accept_wrap(const PlanSpec *plan, const Network *network, GError **error)
{
  gboolean alike = plan_spec_number(plan, "blocks_per_group") > 0 && !fsdp_groups_given(plan) &&
                   plan_spec_number(plan, "wrap") == 0 && !plan_spec_checkpoints(plan, 0) &&
                   plan->checkpointing.around == AROUND_MODULE;
  for (int i = 1; i < (int) network->blocks->len && alike; i++)
    if (plan_spec_checkpoints(plan, i))
      return plan_spec_refuse(
          plan, error, "fsdp.wrap",
          "alike finds block %d inside of its checkpoint, since the first block "
          "has none: use all",
          i);
  return TRUE;
}

/* "FSDP currently does not support gradient accumulation outside no_sync() when using CPU
 * offloading" (fully_sharded_data_parallel.py). */
static gboolean
accept_memory(const PlanSpec *plan, GError **error)
{
  if (!plan_spec_number(plan, "cpu_offload"))
    return TRUE;
  if (plan_spec_number(plan, "sharding_strategy") == NO_SHARD || plan->shard == 1)
    return plan_spec_refuse(plan, error, "fsdp.cpu_offload",
                            "without sharding not yet supported with fsdp1");
  if (plan->accumulation.steps > 1 && plan->accumulation.sync_every_step)
    return plan_spec_refuse(plan, error, "accumulation.sync_every_step",
                            "FSDP1 with cpu_offload adds up no reduced gradients: each overwrites "
                            "the one before");
  return TRUE;
}

static gboolean
accept_prefetch(const PlanSpec *plan, GError **error)
{
  const OptionValue *backward = plan_spec_option(plan, "backward_prefetch");
  if (!plan_spec_option(plan, "prefetch_budget")->is_null)
    return plan_spec_refuse(plan, error, "fsdp.prefetch_budget", "only fsdp2 has it");
  if (!backward->is_name && backward->number != 0)
    return plan_spec_refuse(plan, error, "fsdp.backward_prefetch",
                            "fsdp1 takes pre (or 0), post or none, no number of groups");
  if (plan_spec_number(plan, "forward_prefetch") > 1)
    return plan_spec_refuse(plan, error, "fsdp.forward_prefetch",
                            "fsdp1 prefetches one group: 0 or 1");
  return TRUE;
}

/* _use_sharded_grad_views gives a shared parameter the gradient of the other one as it is, which
 * PyTorch 2.11 refuses when its dtype is not the parameter's. */
static gboolean
loses_tied_gradient(const PlanSpec *plan, const Network *network)
{
  gboolean whole = plan_spec_number(plan, "sharding_strategy") == NO_SHARD || plan->shard == 1;
  gboolean tied = FALSE;
  for (guint i = 0; i < network->ties->len; i++) {
    const Tie *tie = network_tie(network, (int) i);
    tied |= tie->module >= 0 && network_parameter(network, tie->parameter)->trainable;
  }
  return whole && tied && plan->accumulation.steps > 1 && !plan->accumulation.sync_every_step &&
         plan->precision.compute != plan->precision.parameters;
}

gboolean
fsdp1_is_reentrant(const PlanSpec *plan, int block)
{
  return plan->checkpointing.around == AROUND_FSDP &&
         checkpoint_spec_of_block(&plan->checkpointing, block) == CHECKPOINT_FULL;
}

/* FlatParamHandle's ValueError: some parameters of a flat one train, others do not. */
static gboolean
accept_uniform(const PlanSpec *plan, const Network *network, GError **error)
{
  for (guint i = 0; i < network->parameters->len; i++) {
    const Parameter *p = network_parameter(network, (int) i);
    if (p->requires_grad && !p->trainable)
      return plan_spec_refuse(plan, error, "fsdp.use_orig_params",
                              "false, but '%s' is frozen and others of its group train: FSDP1 "
                              "raises \"both parameters with requires_grad=True and False\"",
                              p->name);
  }
  return TRUE;
}

static gboolean
any_requires_grad(const Network *network, int first, int count)
{
  for (int i = first; i < first + count; i++)
    if (network_parameter(network, i)->requires_grad)
      return TRUE;
  return FALSE;
}

/* A reentrant checkpoint's output requires a gradient when an input does (CheckpointFunction).  The
 * block whose parameters would get none, or -1. */
static int
cut_off_block(const PlanSpec *plan, const Network *network)
{
  gboolean flows = any_requires_grad(network, 0, network_block(network, 0)->first_parameter);
  for (int i = 0; i < (int) network->blocks->len && !flows; i++) {
    const Block *b = network_block(network, i);
    gboolean wants = any_requires_grad(network, b->first_parameter, b->parameter_count);
    if (wants && fsdp1_is_reentrant(plan, i))
      return i;
    flows = wants;
  }
  return -1;
}

gboolean
fsdp1_accept(const PlanSpec *plan, const Network *network, GError **error)
{
  if (!accept_mesh(plan, error) || !accept_groups(plan, error) || !accept_prefetch(plan, error) ||
      !accept_memory(plan, error) || !fsdp_groups_accept(plan, network, FALSE, error) ||
      !accept_wrap(plan, network, error))
    return FALSE;
  if (!plan->accumulation.reshard_after_backward)
    return plan_spec_refuse(plan, error, "accumulation.reshard_after_backward",
                            "only fsdp2 has it");
  if (plan->accumulation.set_last_backward)
    return plan_spec_refuse(plan, error, "accumulation.set_last_backward", "only fsdp2 has it");
  if (plan->accumulation.all_reduce_every > 1)
    return plan_spec_refuse(plan, error, "accumulation.all_reduce_every", "only fsdp2 has it");
  if (loses_tied_gradient(plan, network))
    return plan_spec_refuse(plan, error, "accumulation.sync_every_step",
                            "without sharding, FSDP1 cannot keep a tied weight's gradient in %s "
                            "over micro-batches: the parameter is %s",
                            dtype_name(plan->precision.compute),
                            dtype_name(plan->precision.parameters));
  int cut_off = cut_off_block(plan, network);
  if (!plan_spec_number(plan, "use_orig_params") && !accept_uniform(plan, network, error))
    return FALSE;
  if (cut_off >= 0)
    return plan_spec_refuse(plan, error, "activation_checkpointing.around",
                            "checkpoint(FSDP(block)) is reentrant and the input of block %d "
                            "requires no gradient: its parameters would get none",
                            cut_off);
  if (plan->precision.has_output && !plan->precision.autocast)
    return plan_spec_refuse(plan, error, "precision.output",
                            "only fsdp2 casts outputs, or a wrapper that autocasts");
  return TRUE;
}
