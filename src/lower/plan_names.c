/* plan_names.c - looks up the names of a plan in its network. */
#include "lower/plan_names.h"

#include <string.h>

static const Parameter *
first_match(const Network *network, const char *pattern)
{
  for (guint i = 0; i < network->parameters->len; i++) {
    const Parameter *p = network_parameter(network, (int) i);
    if (name_pattern_matches(pattern, p->name))
      return p;
  }
  return NULL;
}

gboolean
plan_names_check_list(const PlanSpec *plan, const Network *network, const char *key,
                      const NamePatterns *patterns, GError **error)
{
  for (guint i = 0; patterns != NULL && i < patterns->patterns->len; i++) {
    const char *pattern = g_ptr_array_index(patterns->patterns, i);
    if (first_match(network, pattern) == NULL)
      return plan_spec_refuse(
          plan, error, key, "'%s' matches no parameter: names are like '%s' (see highwater show)",
          pattern, network_parameter(network, (int) network->parameters->len - 1)->name);
  }
  return TRUE;
}

/* The layer that a module of type lora.Linear is put around has its path. */
static gboolean
is_adapted(const Network *network, const char *target)
{
  for (guint i = 0; i < network->modules->len; i++) {
    const Module *m = network_module(network, (int) i);
    if (strcmp(m->type, NETWORK_ADAPTER_TYPE) == 0 &&
        (target == NULL || lora_target_matches(target, m->path)))
      return TRUE;
  }
  return FALSE;
}

static gboolean
check_targets(const PlanSpec *plan, const Network *network, GError **error)
{
  const LoraSpec *lora = plan->lora;
  if (lora == NULL)
    return TRUE;
  if (lora->all && !is_adapted(network, NULL))
    return plan_spec_refuse(plan, error, "lora.targets", "the blocks have no linear layer");
  for (guint i = 0; i < lora->targets->len; i++) {
    const char *target = g_ptr_array_index(lora->targets, i);
    if (!is_adapted(network, target))
      return plan_spec_refuse(plan, error, "lora.targets",
                              "'%s' names no linear layer that can have an adapter (see highwater "
                              "show; the output layer of a language model cannot)",
                              target);
  }
  return TRUE;
}

static gboolean
check_blocks(const PlanSpec *plan, const Network *network, GError **error)
{
  const GArray *own = plan->checkpointing.blocks;
  int blocks = (int) network->blocks->len;
  if (own == NULL || own->len == 0)
    return TRUE;
  int last = g_array_index(own, BlockCheckpoints, own->len - 1).last; /* they are in order */
  if (last < blocks)
    return TRUE;
  return plan_spec_refuse(plan, error, "activation_checkpointing.blocks",
                          "there is no block %d: the network has blocks 0 to %d", last, blocks - 1);
}

gboolean
plan_names_check(const PlanSpec *plan, const Network *network, GError **error)
{
  if (!check_targets(plan, network, error) || !check_blocks(plan, network, error) ||
      !plan_names_check_list(plan, network, "trainable", plan->trainable, error))
    return FALSE;
  if (network_trainable_count(network) == 0)
    return plan_spec_refuse(plan, error, "trainable", "nothing trains: all parameters are frozen");
  return TRUE;
}
