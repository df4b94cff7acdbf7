/* fsdp_ignored.c - which parameters a plan keeps out of FSDP2's groups: they stay whole on every
 * rank, in their own dtype, and their gradients are not reduced (_fsdp_init.py,
 * _get_managed_states). */
#include "strategy/fsdp_ignored.h"

#define KEY "fsdp.ignored"

static const GPtrArray *
lists_of(const PlanSpec *plan)
{
  return plan_spec_option(plan, "ignored")->lists;
}

static char *
pattern_at(const GPtrArray *lists, guint i)
{
  return ((const NameList *) g_ptr_array_index(lists, i))->names[0];
}

gboolean
fsdp_ignores(const PlanSpec *plan, const char *name)
{
  const GPtrArray *lists = lists_of(plan);
  if (lists == NULL || lists->len == 0)
    return FALSE;
  g_autoptr(GPtrArray) patterns = g_ptr_array_new();
  for (guint i = 0; i < lists->len; i++)
    g_ptr_array_add(patterns, pattern_at(lists, i));
  return name_patterns_choose(&(NamePatterns){patterns}, name);
}

/* ---- refusals ---- */

static gboolean
accept_patterns(const PlanSpec *plan, const Network *network, GError **error)
{
  const GPtrArray *lists = lists_of(plan);
  if (lists->len > NAME_PATTERNS_MOST)
    return plan_spec_refuse(plan, error, KEY, "has more than %d patterns", NAME_PATTERNS_MOST);
  for (guint i = 0; i < lists->len; i++) {
    gboolean matches = FALSE;
    if (!((const NameList *) g_ptr_array_index(lists, i))->is_single)
      return plan_spec_refuse(plan, error, KEY, "must be a list of patterns, not of lists");
    for (guint p = 0; p < network->parameters->len && !matches; p++)
      matches =
          name_pattern_matches(pattern_at(lists, i), network_parameter(network, (int) p)->name);
    if (!matches)
      return plan_spec_refuse(plan, error, KEY, "'%s' matches no parameter (see highwater show)",
                              pattern_at(lists, i));
  }
  return TRUE;
}

/* Whole tensors and DTensors in one list are an error of PyTorch's ("got mixed torch.Tensor and
 * DTensor"): of _foreach_norm, and of all optimizers but the loops. */
static gboolean
accept_mixture(const PlanSpec *plan, const Network *network, GError **error)
{
  gboolean whole = FALSE, sharded = FALSE;
  for (guint i = 0; i < network->parameters->len; i++) {
    const Parameter *p = network_parameter(network, (int) i);
    if (p->trainable)
      *(fsdp_ignores(plan, p->name) ? &whole : &sharded) = TRUE;
  }
  if (!whole || !sharded)
    return TRUE;
  if (plan_spec_clips(plan))
    return plan_spec_refuse(plan, error, "optimizer.clip_grad_norm",
                            "PyTorch cannot clip ignored parameters and sharded ones together "
                            "(\"got mixed torch.Tensor and DTensor\")");
  if (plan->optimizer.name != OPTIMIZER_NONE && plan->optimizer.implementation != OPTIMIZER_FORLOOP)
    return plan_spec_refuse(plan, error, "optimizer.implementation",
                            "only forloop updates ignored parameters and sharded ones together "
                            "(\"got mixed torch.Tensor and DTensor\")");
  return TRUE;
}

gboolean
fsdp_ignored_accept(const PlanSpec *plan, const Network *network, GError **error)
{
  if (lists_of(plan) == NULL)
    return TRUE;
  if (plan_spec_number(plan, "cpu_offload"))
    return plan_spec_refuse(plan, error, KEY, "not yet supported with fsdp.cpu_offload");
  if (plan->precision.compute != plan->precision.parameters)
    return plan_spec_refuse(plan, error, KEY,
                            "ignored parameters keep their dtype %s where FSDP computes in %s: not "
                            "yet supported",
                            dtype_name(plan->precision.parameters),
                            dtype_name(plan->precision.compute));
  if (network->split)
    return plan_spec_refuse(plan, error, KEY, "not yet supported where a tied weight becomes two");
  if (plan->phases.initialize.on == INITIALIZE_ON_CPU) /* _get_managed_states leaves them out */
    return plan_spec_refuse(plan, error, "phases.initialize.on",
                            "cpu: fully_shard does not move ignored parameters to the device");
  return accept_patterns(plan, network, error) && accept_mixture(plan, network, error);
}
