/* zero3_expected.c - what a step of stage 3 sends and holds, in closed form where there is one. */
#include "strategy/zero3_private.h"

/* Sums over parameters, in elements. */
typedef struct {
  gint64 whole;      /* padded to a multiple of the ranks, as gathered */
  gint64 persistent; /* the same, of persistent ones */
  int persistent_count;
  gint64 scattered;   /* reduced chunk by chunk, padded */
  gint64 all_reduced; /* reduced in the bucket */
  gint64 tied;        /* whole: of the one that two modules have, if it is not persistent */
} Sums;

/* Without reduce_scatter the bucket is all-reduced; what does not fit into it goes alone, and is
 * scattered. */
static gboolean
is_all_reduced(const Zero3 *z, const Zero3Parameter *p)
{
  return z->ds.contiguous_gradients && !z->ds.reduce_scatter && p->elements <= z->ds.reduce_bucket;
}

/* Uses of the parameter besides its module's first. */
static int
other_uses(const Network *network, int parameter)
{
  int uses = 0;
  for (guint i = 0; i < network->ties->len; i++)
    uses += network_tie(network, (int) i)->parameter == parameter;
  return uses;
}

static Sums
sum_up(StrategyContext *x)
{
  const Zero3 *z = zero3_of(x);
  Sums s = {0};
  for (int i = 0; i < z->count; i++) {
    const Zero3Parameter *p = &z->parameter[i];
    gint64 padded = p->shard * z->ds.ranks;
    s.whole += padded;
    s.persistent += p->persistent ? padded : 0;
    s.persistent_count += p->persistent;
    s.tied += !p->persistent ? padded * other_uses(x->network, i) : 0;
    if (!p->trains)
      continue;
    if (is_all_reduced(z, p))
      s.all_reduced += p->elements;
    else
      s.scattered += padded;
  }
  return s;
}

/* Elements of all uses in a forward and backward. */
static gint64
traced_elements(const Zero3 *z)
{
  gint64 elements = 0;
  for (guint i = 0; i < z->trace.uses->len; i++)
    elements += z->parameter[g_array_index(z->trace.uses, TracedUse, i).parameter].elements;
  return elements;
}

/* Gathered elements of a micro-batch.  Within the reuse distance everything is kept from its first
 * use to its last.  Without reuse and prefetch every use gathers: one in forward and one in
 * backward for every module that has the parameter. */
static gint64
fetched(StrategyContext *x, const Sums *s)
{
  const Zero3 *z = zero3_of(x);
  gint64 released = s->whole - s->persistent;
  if (released == 0)
    return 0;
  if (z->frozen_elements > 0 && checkpoint_spec_recomputes(&x->plan->checkpointing))
    return EXPECTED_UNKNOWN; /* what is fetched to recompute is released whoever uses it again */
  if (traced_elements(z) < z->ds.max_reuse)
    return released;
  gboolean every_use = z->ds.max_reuse == 0 && z->ds.prefetch_bucket == 0 &&
                       !checkpoint_spec_recomputes(&x->plan->checkpointing) &&
                       z->frozen_elements == 0;
  return every_use ? 2 * (released + s->tied) : EXPECTED_UNKNOWN;
}

/* Shards, and what is gathered after the step; one rank takes several persistent parameters as they
 * are. */
static gint64
held_bytes(const Zero3 *z, const Sums *s)
{
  gboolean copies = z->ds.ranks > 1 || s->persistent_count == 1 || z->ds.allgather_sequential ||
                    offload_is_parameters(z);
  gint64 shards = offload_is_parameters(z) ? 0 : z->shard_elements + z->frozen_elements;
  return (shards + (copies ? s->persistent : 0)) * z->ds.element;
}

ExpectedTotals
zero3_expected(StrategyContext *x)
{
  const Zero3 *z = zero3_of(x);
  Sums s = sum_up(x);
  ExpectedTotals total = {.parameter_bytes = held_bytes(z, &s)};
  if (z->ds.ranks == 1)
    return total;
  gint64 once = fetched(x, &s), steps = z->ds.accumulation_steps;
  gboolean known = once != EXPECTED_UNKNOWN && (once == 0 || !z->ds.all_reduce_for_fetch);
  total.elements_gathered = known ? steps * once + s.persistent : EXPECTED_UNKNOWN;
  total.elements_reduced = steps * s.scattered;
  total.elements_all_reduced = steps * s.all_reduced + z->groups + (z->ds.model == DTYPE_FP16);
  if (z->ds.all_reduce_for_fetch && once != 0)
    total.elements_all_reduced = EXPECTED_UNKNOWN;
  return total;
}
