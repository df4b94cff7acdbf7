/* fsdp2_prefetch.c - which groups FSDP2 gathers ahead explicitly: so many, or as many as a budget
 * has room for (set_modules_to_forward_prefetch, set_modules_to_backward_prefetch). */
#include "strategy/fsdp2_private.h"
#include "strategy/fsdp_groups.h"

/* ---- by number: the next groups of blocks, or of those that the plan lists, as they are called
 * ---- */

static void
prefetch_by_number(StrategyContext *x, Fsdp2 *f)
{
  int forward = (int) plan_spec_number(x->plan, "forward_prefetch");
  int backward = (int) plan_spec_number(x->plan, "backward_prefetch");
  g_autoptr(GArray) blocks = g_array_new(FALSE, FALSE, sizeof(int));
  for (int i = 0; i < f->count; i++) {
    int module = g_array_index(f->groups[i].unit->modules, int, 0);
    if (fsdp_groups_given(x->plan) ? i > 0 : network_module(x->network, module)->block >= 0)
      g_array_append_val(blocks, i);
  }
  if (fsdp_groups_given(x->plan))
    fsdp_groups_sort_by_call(x, blocks);
  for (int k = 0; k < (int) blocks->len; k++) {
    Group *g = &f->groups[g_array_index(blocks, int, k)];
    g->forward_prefetch = g_array_new(FALSE, FALSE, sizeof(int));
    for (int j = k + 1; j <= k + forward && j < (int) blocks->len; j++)
      g_array_append_val(g->forward_prefetch, g_array_index(blocks, int, j));
    g->backward_prefetch = g_array_new(FALSE, FALSE, sizeof(int));
    for (int j = k - 1; j >= k - backward && j >= 0; j--)
      g_array_append_val(g->backward_prefetch, g_array_index(blocks, int, j));
  }
}

/* ---- by budget: the next groups of all, while their gathered buffers fit together ---- */

/* Those that lie `step` (1 or -1) further on and have to be gathered; what they take goes into
 * *bytes. */
static GArray *
within_budget(const Fsdp2 *f, int from, int step, gint64 budget, gint64 *bytes)
{
  GArray *list = g_array_new(FALSE, FALSE, sizeof(int));
  *bytes = 0;
  for (int j = from + step; j >= 0 && j < f->count; j += step) {
    const Group *g = &f->groups[j];
    gboolean is_there = step < 0 && g->reshard_after_forward == RESHARD_NO;
    if (g->count == 0 || is_there)
      continue;
    if (g->unit->unsharded_bytes > budget - *bytes)
      break;
    *bytes += g->unit->unsharded_bytes;
    g_array_append_val(list, j);
  }
  return list;
}

static void
prefetch_by_budget(Fsdp2 *f, gint64 budget)
{
  for (int k = 0; k < f->count; k++) {
    Group *g = &f->groups[k];
    Unit *unit = g->unit;
    g->forward_prefetch = within_budget(f, k, 1, budget, &unit->forward_prefetched_bytes);
    g->backward_prefetch = within_budget(f, k, -1, budget, &unit->backward_prefetched_bytes);
    unit->forward_prefetches = (int) g->forward_prefetch->len;
    unit->backward_prefetches = (int) g->backward_prefetch->len;
  }
}

void
fsdp2_set_prefetch(StrategyContext *x, Fsdp2 *f)
{
  const OptionValue *budget = plan_spec_option(x->plan, "prefetch_budget");
  if (budget->is_null)
    prefetch_by_number(x, f);
  else
    prefetch_by_budget(f, budget->number);
}
