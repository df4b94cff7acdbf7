/* zero3_trace.c - which modules follow each other in a forward and backward, what to fetch ahead of
 * them and what to keep for them (partitioned_param_coordinator.py).
 *
 * The first forward and backward are recorded; from the next on the trace is known, and each fetch
 * looks ahead in it.  Modules are counted by `step`: one for every fetch, in forward, in a
 * recomputation and in backward. */
#include "strategy/zero3_private.h"

void
trace_init(Trace *t)
{
  *t = (Trace){.mode = TRACE_INVALID};
  t->modules = g_array_new(FALSE, FALSE, sizeof(int));
  t->uses = g_array_new(FALSE, FALSE, sizeof(TracedUse));
  t->releases = g_hash_table_new_full(g_int64_hash, g_int64_equal, g_free, g_free);
}

void
trace_clear(Trace *t)
{
  g_array_unref(t->modules);
  g_array_unref(t->uses);
  g_hash_table_unref(t->releases);
}

static void
forget_fetches(Zero3 *z)
{
  for (int p = 0; p < z->count; p++)
    z->parameter[p].fetched_for = -1;
}

static void
invalidate(Zero3 *z)
{
  Trace *t = &z->trace;
  t->mode = TRACE_INVALID;
  g_array_set_size(t->modules, 0);
  g_array_set_size(t->uses, 0);
  t->next = 0;
  forget_fetches(z);
}

gboolean
trace_enter(StrategyContext *x, int module)
{
  Zero3 *z = zero3_of(x);
  Trace *t = &z->trace;
  if (t->mode == TRACE_COMPLETE &&
      (t->step >= (int) t->modules->len || g_array_index(t->modules, int, t->step) != module)) {
    invalidate(z);
    return FALSE;
  }
  if (t->mode == TRACE_RECORD)
    g_array_append_val(t->modules, module);
  return TRUE;
}

/* ---- prefetch ---- */

static const TracedUse *
next_use(Trace *t)
{
  return &g_array_index(t->uses, TracedUse, t->next++);
}

/* Uses of the module's own parameters leave the queue, unless prefetching has taken them already.
 */
static void
take_current(StrategyContext *x, int module)
{
  Zero3 *z = zero3_of(x);
  Trace *t = &z->trace;
  int missing = 0;
  for (int i = 0; i < zero3_module_parameters(x, module); i++)
    missing += z->parameter[zero3_module_parameter(x, module, i)].fetched_for < t->step;
  while (missing > 0 && t->next < t->uses->len) {
    const TracedUse *use = next_use(t);
    z->parameter[use->parameter].fetched_for = use->step;
    missing--;
  }
}

static gboolean
contains(const GArray *chosen, int parameter)
{
  for (guint i = 0; i < chosen->len; i++)
    if (g_array_index(chosen, int, i) == parameter)
      return TRUE;
  return FALSE;
}

/* The bucket is looked at before a parameter is added, so that the last one may exceed it.  What is
 * there already costs nothing, but it is marked: it must stay until that use. */
static void
look_ahead(StrategyContext *x, GArray *chosen)
{
  Zero3 *z = zero3_of(x);
  Trace *t = &z->trace;
  gint64 limit = MIN(z->ds.max_live - t->available, z->ds.prefetch_bucket), elements = 0;
  while (t->next < t->uses->len && elements < limit) {
    const TracedUse *use = next_use(t);
    Zero3Parameter *p = &z->parameter[use->parameter];
    gboolean wanted = p->state == PARAMETER_RELEASED && !contains(chosen, use->parameter);
    p->fetched_for = MAX(p->fetched_for, use->step);
    if (!wanted)
      continue;
    g_array_append_val(chosen, use->parameter);
    elements += p->elements;
  }
}

void
trace_prefetch(StrategyContext *x, int module, GArray *chosen)
{
  Zero3 *z = zero3_of(x);
  if (z->trace.mode == TRACE_COMPLETE) {
    take_current(x, module);
    if (z->ds.prefetch_bucket > 0)
      look_ahead(x, chosen);
  }
  z->trace.step++;
}

/* ---- releases ---- */

/* The module's parameters without those that are persistent, that prefetching counts on, or that a
 * module within the reuse distance uses again. */
static guint64
decide(StrategyContext *x, int module)
{
  const Zero3 *z = zero3_of(x);
  const Trace *t = &z->trace;
  int n = zero3_module_parameters(x, module);
  guint64 mask = 0;
  for (int i = 0; i < n; i++) {
    const Zero3Parameter *p = &z->parameter[zero3_module_parameter(x, module, i)];
    if (!p->persistent && p->fetched_for <= t->step)
      mask |= (guint64) 1 << i;
  }
  gint64 distance = 0;
  for (guint k = (guint) t->step; k < t->modules->len && distance < z->ds.max_reuse; k++) {
    int other = g_array_index(t->modules, int, k);
    for (int j = 0; j < zero3_module_parameters(x, other); j++) {
      int again = zero3_module_parameter(x, other, j);
      distance += z->parameter[again].elements;
      for (int i = 0; i < n; i++)
        if (zero3_module_parameter(x, module, i) == again)
          mask &= ~((guint64) 1 << i);
    }
  }
  return mask;
}

guint64
trace_releases(StrategyContext *x, int module)
{
  Trace *t = &zero3_of(x)->trace;
  int n = zero3_module_parameters(x, module);
  g_assert(n < 64);
  if (n == 0)
    return 0;
  if (t->mode != TRACE_COMPLETE)
    return ((guint64) 1 << n) - 1;
  gint64 key = ((gint64) module << 32) | t->step;
  guint64 *known = g_hash_table_lookup(t->releases, &key);
  if (known == NULL) { /* lru_cache(maxsize=None) */
    known = g_new(guint64, 1);
    *known = decide(x, module);
    g_hash_table_insert(t->releases, g_memdup2(&key, sizeof(key)), known);
  }
  return *known;
}

/* ---- from one forward to the next ---- */

static void
record_uses(StrategyContext *x)
{
  Trace *t = &zero3_of(x)->trace;
  g_array_set_size(t->uses, 0);
  for (guint k = 0; k < t->modules->len; k++) {
    int module = g_array_index(t->modules, int, k);
    for (int i = 0; i < zero3_module_parameters(x, module); i++) {
      TracedUse use = {zero3_module_parameter(x, module, i), (int) k};
      g_array_append_val(t->uses, use);
    }
  }
}

int
trace_begin(StrategyContext *x, gint64 compared[3])
{
  Zero3 *z = zero3_of(x);
  Trace *t = &z->trace;
  int comparisons = 0;
  if (t->mode != TRACE_COMPLETE)
    compared[comparisons++] = t->modules->len;
  if (t->mode == TRACE_RECORD) {
    record_uses(x);
    compared[comparisons++] = t->uses->len;
    compared[comparisons++] = t->uses->len;
    t->mode = TRACE_COMPLETE;
  } else if (t->mode == TRACE_INVALID) {
    t->mode = TRACE_RECORD;
  }
  t->next = 0;
  t->step = 0;
  t->available = 0;
  forget_fetches(z);
  return comparisons;
}
