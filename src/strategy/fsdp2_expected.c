/* fsdp2_expected.c - what a step moves and a rank holds, in closed form. */
#include "base/units.h"
#include "strategy/fsdp2_private.h"
#include "strategy/fsdp_groups.h"

/* Parameters that are gathered again in backward: stage 3; kept from forward on: stage 2. */
int
fsdp2_zero_stage(StrategyContext *x)
{
  const Fsdp2 *f = fsdp2_of(x);
  if (f->ranks == 1)
    return 0;
  for (int i = 0; i < f->count; i++)
    if (f->groups[i].count > 0 && f->groups[i].reshard_after_forward != RESHARD_NO)
      return 3;
  return 2;
}

/* With set_is_last_backward(False) the order of the micro-batch before stays in place: the first
 * group of backward's end prefetches that one's last, which has been reduced already unless it is
 * the root.  The next forward uses what it gathers, the last micro-batch gives it up. */
static gint64
misled_prefetch(const Fsdp2 *f, const PlanSpec *plan)
{
  if (!plan->accumulation.set_last_backward || plan->accumulation.steps == 1 ||
      f->groups[0].count > 0)
    return 0;
  int first = 1, last = f->count - 1;
  while (first < last && f->groups[first].count == 0)
    first++;
  while (last > first && f->groups[last].count == 0)
    last--;
  return first < last ? f->groups[last].gathered_elements : 0;
}

/* Where backward comes to: the first group, in the order of forward, whose output requires a
 * gradient.  The root's hooks end last. */
static int
first_reached(const StrategyContext *x, const Fsdp2 *f)
{
  for (int i = 1; i < f->count; i++) {
    const GArray *modules = f->groups[i].unit->modules;
    if (f->groups[i].count > 0 &&
        strategy_output_requires_grad(x->network, g_array_index(modules, int, modules->len - 1)))
      return i;
  }
  return f->count;
}

/* The group before it is prefetched for nothing. */
static int
first_gathered_in_backward(const StrategyContext *x, const Fsdp2 *f)
{
  int i = first_reached(x, f) - 1;
  while (i > 0 && f->groups[i].count == 0)
    i--;
  return i;
}

/* Bytes of parameters that no group has, less those of shards that are another parameter's. */
static gint64
bytes_beside_groups(const StrategyContext *x)
{
  gint64 elements = 0;
  for (guint i = 0; i < x->network->parameters->len; i++) {
    if (x->parameters[i].ignored)
      elements += x->parameters[i].local_elements;
    if (network_parameter(x->network, (int) i)->shard_of >= 0)
      elements -= x->parameters[i].local_elements;
  }
  return elements * dtype_size(fsdp2_of(x)->stored);
}

/* Tensors whose norms are summed over ranks. */
static int
sharded_gradients(const StrategyContext *x)
{
  int count = 0;
  for (guint i = 0; i < x->network->parameters->len; i++) {
    const Parameter *p = network_parameter(x->network, (int) i);
    count += p->trainable && p->shard_of < 0 && !x->parameters[i].ignored;
  }
  return count;
}

/* Every group is gathered once in forward, and again in backward where it was resharded; its
 * gradients are reduced once in every micro-batch that synchronizes, and summed over replicas in
 * every n-th of them and the last. */
ExpectedTotals
fsdp2_expected(StrategyContext *x)
{
  const Fsdp2 *f = fsdp2_of(x);
  const PlanSpec *plan = x->plan;
  ExpectedTotals total = {.parameter_bytes = bytes_beside_groups(x)};
  int steps = plan->accumulation.steps,
      synchronized = plan->accumulation.sync_every_step ? steps : 1;
  gint64 summed = ceil_div(synchronized, plan->accumulation.all_reduce_every);
  int kept_backward = plan->accumulation.reshard_after_backward ? 0 : steps - 1;
  int first = first_gathered_in_backward(x, f);
  for (int i = 0; i < f->count; i++) {
    const Group *g = &f->groups[i];
    gint64 gathers = steps - kept_backward;
    if (g->reshard_after_forward != RESHARD_NO && (i == 0 || i >= first))
      gathers += steps;
    if (f->ranks > 1)
      total.elements_gathered += gathers * g->gathered_elements;
    if (f->ranks > 1)
      total.elements_reduced += synchronized * f->ranks * g->reduced_elements;
    total.elements_all_reduced += f->replicas > 1 ? summed * g->reduced_elements : 0;
    if (g->reshard_after_forward == RESHARD_SLICE && i > 0 && i < first_reached(x, f))
      total.parameter_bytes += g->gathered_elements / g->slice_ranks * dtype_size(f->gathered);
    *(x->offloads ? &total.host_parameter_bytes : &total.parameter_bytes) +=
        g->shard_elements * dtype_size(f->stored);
  }
  if (f->ranks > 1)
    total.elements_gathered += misled_prefetch(f, plan);
  /* Their norms; those of gradients on the host are summed between hosts. */
  if (f->ranks > 1 && plan_spec_clips(plan) && !x->offloads)
    total.elements_all_reduced += sharded_gradients(x);
  /* Below the first group that is reached, other orders than the implicit one are not counted; and
   * modules inside of a block are not used in the order of their definition. */
  gboolean other_order = plan_spec_number(plan, "backward_prefetch") > 0 || kept_backward > 0 ||
                         plan->accumulation.set_last_backward;
  if ((first > 0 && other_order) || (fsdp_groups_given(plan) && strategy_freezes(x->network)))
    total.elements_gathered = EXPECTED_UNKNOWN;
  return total;
}
