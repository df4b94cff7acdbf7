/* remedy_kinds.c - the table of changes that lower a peak. */
#include "search/remedy_kinds.h"

#include <stdarg.h>

void
remedy_propose(GPtrArray *proposals, ...)
{
  GPtrArray *assignments = g_ptr_array_new();
  va_list list;
  va_start(list, proposals);
  for (const char *text; (text = va_arg(list, const char *)) != NULL;)
    g_ptr_array_add(assignments, g_strdup(text));
  va_end(list);
  g_ptr_array_add(assignments, NULL);
  g_ptr_array_add(proposals, g_ptr_array_free(assignments, FALSE));
}

/* One change of one key to a number. */
static void
propose_number(GPtrArray *proposals, const char *key, gint64 value)
{
  g_autofree char *text = g_strdup_printf("%s=%" G_GINT64_FORMAT, key, value);
  remedy_propose(proposals, text, NULL);
}

static gboolean
has_section(const RemedyPlan *p, const char *name)
{
  return p->plan->section != NULL && g_str_equal(p->plan->section->name, name);
}

static gboolean
is_strategy(const RemedyPlan *p, const char *name)
{
  return g_str_equal(p->plan->strategy, name);
}

/* The option has this number and is neither null nor a name. */
static gboolean
option_is(const RemedyPlan *p, const char *key, gint64 number)
{
  const OptionValue *value = plan_spec_option(p->plan, key);
  return !value->is_null && !value->is_name && value->number == number;
}

static gboolean
is_none(const RemedyPlan *p, const char *key)
{
  return plan_spec_number(p->plan, key) == 0; /* the first of its names */
}

/* ---- groups and what is gathered ---- */

static void
prefetch_less(const RemedyPlan *p, GPtrArray *proposals)
{
  if (has_section(p, "deepspeed") && is_strategy(p, "zero3") &&
      !option_is(p, "stage3_prefetch_bucket_size", 0))
    remedy_propose(proposals, "deepspeed.stage3_prefetch_bucket_size=0", NULL);
  if (!has_section(p, "fsdp"))
    return;
  gint64 forward = plan_spec_number(p->plan, "forward_prefetch");
  const OptionValue *backward = plan_spec_option(p->plan, "backward_prefetch");
  if (is_strategy(p, "fsdp1")) {
    remedy_propose(proposals, "fsdp.backward_prefetch=post", NULL);
    remedy_propose(proposals, "fsdp.backward_prefetch=none", NULL);
  } else if (!plan_spec_option(p->plan, "prefetch_budget")->is_null) {
    remedy_propose(proposals, "fsdp.prefetch_budget=null", NULL);
  } else if (forward > 0 || backward->number > 0) {
    remedy_propose(proposals, "fsdp.forward_prefetch=0", "fsdp.backward_prefetch=0", NULL);
    if (forward > 1)
      propose_number(proposals, "fsdp.forward_prefetch", forward - 1);
    if (backward->number > 1)
      propose_number(proposals, "fsdp.backward_prefetch", backward->number - 1);
  }
}

static void
smaller_groups(const RemedyPlan *p, GPtrArray *proposals)
{
  if (!has_section(p, "fsdp") || plan_spec_option(p->plan, "groups")->lists != NULL)
    return;
  gint64 blocks = plan_spec_number(p->plan, "blocks_per_group");
  if (blocks > 3)
    propose_number(proposals, "fsdp.blocks_per_group", blocks / 2);
  if (blocks != 1)
    propose_number(proposals, "fsdp.blocks_per_group", 1);
}

static void
vocabulary_tables(const RemedyPlan *p, GPtrArray *proposals)
{
  if (!is_strategy(p, "fsdp2") || plan_spec_option(p->plan, "groups")->lists != NULL)
    return;
  gboolean embedding = is_none(p, "embedding"), head = is_none(p, "head");
  if (embedding && head)
    remedy_propose(proposals, "fsdp.embedding=own", "fsdp.head=own", NULL);
  if (embedding)
    remedy_propose(proposals, "fsdp.embedding=own", NULL);
  if (head)
    remedy_propose(proposals, "fsdp.head=own", NULL);
}

static void
reshard(const RemedyPlan *p, GPtrArray *proposals)
{
  enum { FULL_SHARD, SHARD_GRAD_OP, NO_SHARD, HYBRID_SHARD, HYBRID_SHARD_ZERO2 };
  if (!has_section(p, "fsdp"))
    return;
  gint64 way = plan_spec_number(p->plan, "sharding_strategy");
  if (way == SHARD_GRAD_OP || way == NO_SHARD)
    remedy_propose(proposals, "fsdp.sharding_strategy=FULL_SHARD", NULL);
  if (way == HYBRID_SHARD_ZERO2)
    remedy_propose(proposals, "fsdp.sharding_strategy=HYBRID_SHARD", NULL);
  if (!is_strategy(p, "fsdp2"))
    return;
  const OptionValue *after = plan_spec_option(p->plan, "reshard_after_forward");
  if (after->is_null || !after->is_bool || after->number == 0)
    remedy_propose(proposals, "fsdp.reshard_after_forward=true", NULL);
  if (option_is(p, "reshard_root", 0))
    remedy_propose(proposals, "fsdp.reshard_root=true", NULL);
  if (option_is(p, "reshard_last_block", 0))
    remedy_propose(proposals, "fsdp.reshard_last_block=true", NULL);
  if (!is_none(p, "head") && option_is(p, "reshard_head", 0))
    remedy_propose(proposals, "fsdp.reshard_head=true", NULL);
}

static void
release_retained(const RemedyPlan *p, GPtrArray *proposals)
{
  if (p->plan->retain->len > 0)
    remedy_propose(proposals, "retain=null", NULL);
}

/* ---- activations ---- */

/* What is said beside the policy goes with it: keys of one policy, and policies of single blocks.
 */
static char **
with_policy(const RemedyPlan *p, CheckpointPolicy policy)
{
  const CheckpointSpec *now = &p->plan->checkpointing;
  GPtrArray *set = g_ptr_array_new();
  g_ptr_array_add(
      set, g_strdup_printf("activation_checkpointing.policy=%s", checkpoint_policy_name(policy)));
  if (now->policy == CHECKPOINT_EVERY_N)
    g_ptr_array_add(set, g_strdup("activation_checkpointing.every=null"));
  if (now->policy == CHECKPOINT_FRACTION)
    g_ptr_array_add(set, g_strdup("activation_checkpointing.fraction=null"));
  if (now->blocks != NULL)
    g_ptr_array_add(set, g_strdup("activation_checkpointing.blocks=null"));
  g_ptr_array_add(set, NULL);
  return (char **) (gpointer) g_ptr_array_free(set, FALSE);
}

static void
checkpointing(const RemedyPlan *p, GPtrArray *proposals)
{
  static const CheckpointPolicy policies[] = {CHECKPOINT_SELECTIVE_OP, CHECKPOINT_EVERY_N,
                                              CHECKPOINT_FULL};
  const CheckpointSpec *now = &p->plan->checkpointing;
  gboolean is_full = now->policy == CHECKPOINT_FULL;
  for (guint i = 0; i < G_N_ELEMENTS(policies); i++) {
    gboolean is_new = policies[i] != now->policy && !is_full;
    if (is_new || (policies[i] == CHECKPOINT_FULL && now->blocks != NULL))
      g_ptr_array_add(proposals, with_policy(p, policies[i]));
  }
}

static void
micro_batch(const RemedyPlan *p, GPtrArray *proposals)
{
  int batch = p->plan->micro_batch, steps = p->plan->accumulation.steps;
  for (int parts = 2; parts <= batch; parts *= 2) {
    if (batch % parts != 0)
      return;
    g_autofree char *size = g_strdup_printf("batch.micro_batch=%d", batch / parts);
    g_autofree char *count = g_strdup_printf("accumulation.steps=%d", steps * parts);
    remedy_propose(proposals, size, count, NULL);
  }
}

static void
compiled_blocks(const RemedyPlan *p, GPtrArray *proposals)
{
  if (!p->plan->compile_per_block)
    remedy_propose(proposals, "compile=per_block", NULL);
}

/* ---- states ---- */

static void
fused_optimizer(const RemedyPlan *p, GPtrArray *proposals)
{
  if (p->plan->optimizer.implementation != OPTIMIZER_FUSED &&
      p->plan->optimizer.name != OPTIMIZER_NONE)
    remedy_propose(proposals, "optimizer.implementation=fused", NULL);
}

static void
offload(const RemedyPlan *p, GPtrArray *proposals)
{
  if (has_section(p, "fsdp") && option_is(p, "cpu_offload", 0))
    remedy_propose(proposals, "fsdp.cpu_offload=true", NULL);
  if (!has_section(p, "deepspeed"))
    return;
  if (is_none(p, "offload_optimizer.device"))
    remedy_propose(proposals, "deepspeed.offload_optimizer.device=cpu", NULL);
  if (is_strategy(p, "zero3") && is_none(p, "offload_param.device"))
    remedy_propose(proposals, "deepspeed.offload_optimizer.device=cpu",
                   "deepspeed.offload_param.device=cpu", NULL);
}

static void
shard_further(const RemedyPlan *p, GPtrArray *proposals)
{
  static const char *const next[][2] = {
      {"zero0", "zero1"}, {"zero1", "zero2"}, {"zero2", "zero3"}, {"zero1", "zero3"}};
  for (guint i = 0; i < G_N_ELEMENTS(next); i++) {
    g_autofree char *strategy = g_strdup_printf("strategy=%s", next[i][1]);
    if (is_strategy(p, next[i][0]))
      remedy_propose(proposals, strategy, "deepspeed.stage=null", NULL);
  }
  g_autofree char *all = g_strdup_printf("mesh.shard=%d", p->plan->shard * p->plan->replicate);
  if (is_strategy(p, "ddp")) {
    if (option_is(p, "gradient_as_bucket_view", 0))
      remedy_propose(proposals, "ddp.gradient_as_bucket_view=true", NULL);
    if (option_is(p, "zero_redundancy_optimizer", 0))
      remedy_propose(proposals, "ddp.zero_redundancy_optimizer=true", NULL);
    remedy_propose(proposals, "strategy=fsdp2", "ddp=null", all, "mesh.replicate=1",
                   "precision.autocast=false", NULL);
  } else if (p->plan->replicate > 1) {
    remedy_propose(proposals, all, "mesh.replicate=1", NULL);
  }
}

/* A model that is whole on each rank while it is built may run out of memory there. */
static void
build_sharded(const RemedyPlan *p, GPtrArray *proposals)
{
  if (is_strategy(p, "zero3") && option_is(p, "zero_init", 0))
    remedy_propose(proposals, "deepspeed.zero_init=true", NULL);
}

static void
more_ranks(const RemedyPlan *p, GPtrArray *proposals)
{
  if (p->plan->shard > 1)
    propose_number(proposals, "mesh.shard", (gint64) p->plan->shard * 2);
}

static void
precision(const RemedyPlan *p, GPtrArray *proposals)
{
  gboolean mixed = p->plan->precision.compute != DTYPE_FP32;
  if (has_section(p, "fsdp") && !mixed)
    remedy_propose(proposals, "precision.compute=bf16", "precision.reduce=fp32", NULL);
  if (has_section(p, "fsdp") && p->plan->precision.reduce == DTYPE_FP32)
    remedy_propose(proposals, "precision.compute=bf16", "precision.reduce=bf16", NULL);
}

/* ---- the allocator ---- */

static void
expandable_segments(const RemedyPlan *p, GPtrArray *proposals)
{
  if (!p->plan->allocator.expandable_segments)
    remedy_propose(proposals, "allocator.expandable_segments=true", NULL);
}

const RemedyKind remedy_kinds[] = {
    {"release_retained", "let go of what a debugging reference keeps", release_retained},
    {"prefetch_less", "gather fewer groups ahead", prefetch_less},
    {"smaller_groups", "fewer blocks in a group", smaller_groups},
    {"split_largest", "the largest groups in two", remedy_split_largest},
    {"vocabulary_tables", "embedding and output layer in groups of their own", vocabulary_tables},
    {"reshard", "free gathered parameters after forward", reshard},
    {"checkpointing", "recompute activations", checkpointing},
    {"micro_batch", "smaller micro-batches, as many samples a step", micro_batch},
    {"compiled_blocks", "compile blocks", compiled_blocks},
    {"expandable_segments", "segments that grow instead of fragments", expandable_segments},
    {"fused_optimizer", "an optimizer without temporaries", fused_optimizer},
    {"precision", "compute or reduce in bf16", precision},
    {"offload", "states in the host's memory", offload},
    {"shard_further", "shard more of the states, on the same ranks", shard_further},
    {"build_sharded", "parameters sharded while the model is built", build_sharded},
    {"more_ranks", "twice as many ranks", more_ranks},
    {0},
};
