/* equivalence_rank.c - one rank: is what it updates from gradients that were reduced once, and all
 * of what it holds? */
#include "search/equivalence_internal.h"

void
equivalence_violate(EquivalenceCheck *c, const char *format, ...)
{
  va_list arguments;
  if (c->report->violation != NULL)
    return;
  va_start(arguments, format);
  c->report->violation = g_strdup_vprintf(format, arguments);
  va_end(arguments);
}

ParameterEvidence *
equivalence_evidence(const EquivalenceCheck *c, int parameter)
{
  return &g_array_index(c->report->parameters, ParameterEvidence, parameter);
}

/* ---- reductions ---- */

static const Communicator *
communicator_at(const FollowedRank *r, int i)
{
  return &g_array_index(r->program->communicators, Communicator, i);
}

/* A part of the parameter's way, in words: "reduce_scatter over shard (8)". */
static void
append_way(const FollowedRank *r, const GradientShare *share, GString *way)
{
  int n = MIN((int) r->program->communicators->len, GRADIENT_COMMUNICATORS);
  for (int i = 0; i < n; i++)
    if (share->reductions[i] > 0)
      g_string_append_printf(way, "%s%s over %s (%d)%s", way->len > 0 ? ", " : "",
                             program_collective_name((CollectiveKind) share->kind[i]),
                             program_text(r->program, communicator_at(r, i)->name),
                             communicator_at(r, i)->ranks,
                             share->reductions[i] > 1 ? " again" : "");
}

/* How many ranks the communicators that reduced it sum over together; 0: their groups do not make
 * up a grid.  Members of a communicator stand `stride` apart. */
static int
ranks_summed(const FollowedRank *r, const GradientShare *share)
{
  int n = MIN((int) r->program->communicators->len, GRADIENT_COMMUNICATORS), ranks = 1;
  gboolean used[GRADIENT_COMMUNICATORS] = {FALSE};
  for (int round = 0; round < n; round++)
    for (int i = 0; i < n; i++) {
      const Communicator *k = communicator_at(r, i);
      if (used[i] || share->reductions[i] == 0 || k->ranks == 1 || k->stride != ranks)
        continue;
      used[i] = TRUE;
      ranks *= k->ranks;
    }
  for (int i = 0; i < n; i++)
    if (share->reductions[i] > 0 && communicator_at(r, i)->ranks > 1 && !used[i])
      return 0;
  return ranks;
}

static int
most_reductions(const FollowedRank *r, const GradientShare *share, int *all)
{
  int n = MIN((int) r->program->communicators->len, GRADIENT_COMMUNICATORS), most = 0;
  *all = 0;
  for (int i = 0; i < n; i++) {
    if (communicator_at(r, i)->ranks == 1)
      continue;
    most = MAX(most, share->reductions[i]);
    *all += share->reductions[i];
  }
  return most;
}

/* DDP averages .grad as it is: what an earlier micro-batch left in it, the same on all ranks, goes
 * through again, and an average of equals is the same. */
static int
allowed_reductions(const EquivalenceCheck *c, int micro_batch)
{
  const PlanSpec *plan = c->plan;
  gboolean averages_again = c->s->strategy->only_replicas && plan->accumulation.sync_every_step;
  return averages_again ? plan->accumulation.steps - micro_batch : 1;
}

static void
check_share(EquivalenceCheck *c, const FollowedRank *r, int parameter, const GradientShare *share)
{
  const char *name = equivalence_evidence(c, parameter)->name;
  int m = share->micro_batch, all, most = most_reductions(r, share, &all);
  int ranks = ranks_summed(r, share),
      needed = equivalence_evidence(c, parameter)->apart ? 1 : c->report->ranks;
  g_autoptr(GString) way = g_string_new(NULL);
  append_way(r, share, way);
  if (way->len == 0)
    g_string_append(way, "nothing");
  if (share->times != 1)
    equivalence_violate(c, "rank %d adds the gradient of %s, micro-batch %d, %d times", r->rank,
                        name, m, share->times);
  if (most > allowed_reductions(c, m))
    equivalence_violate(c, "rank %d reduces the gradient of %s, micro-batch %d, %d times: %s",
                        r->rank, name, m, most, way->str);
  if (share->mixed)
    equivalence_violate(c, "rank %d reduces only part of the gradient of %s, micro-batch %d",
                        r->rank, name, m);
  if (ranks != needed)
    equivalence_violate(
        c, "rank %d: the gradient of %s, micro-batch %d, goes through %s, not over all %d ranks",
        r->rank, name, m, way->str, needed);
}

/* A result that nobody took is no harm to the sum, but a reduction too many. */
static void
check_scattered(EquivalenceCheck *c, const FollowedRank *r, int parameter)
{
  for (int i = 0; i < GRADIENT_COMMUNICATORS; i++) {
    const GradientPart *part = gradient_set_find(r->flow->scattered[i], parameter);
    for (guint k = 0; part != NULL && k < part->shares->len; k++) {
      const GradientShare *share = &g_array_index(part->shares, GradientShare, k);
      if (share->times > 1)
        equivalence_violate(c,
                            "rank %d sends the gradient of %s, micro-batch %d, %d times through %s",
                            r->rank, equivalence_evidence(c, parameter)->name, share->micro_batch,
                            share->times, program_text(r->program, communicator_at(r, i)->name));
    }
  }
}

/* The gradient that the optimizer reads has every micro-batch once, reduced once. */
static void
check_part(EquivalenceCheck *c, const FollowedRank *r, int parameter, const GradientPart *part)
{
  ParameterEvidence *e = equivalence_evidence(c, parameter);
  guint k = 0;
  for (int m = 0; m < c->report->micro_batches; m++) {
    const GradientShare *share = part != NULL && k < part->shares->len
                                     ? &g_array_index(part->shares, GradientShare, k)
                                     : NULL;
    if (share == NULL || share->micro_batch != m) {
      equivalence_violate(c, "rank %d: what updates %s lacks its gradient of micro-batch %d",
                          r->rank, e->name, m);
      continue;
    }
    k++;
    check_share(c, r, parameter, share);
    if (e->collectives != NULL)
      continue;
    g_autoptr(GString) way = g_string_new(NULL);
    append_way(r, share, way);
    most_reductions(r, share, &e->reductions);
    e->reduced_ranks = ranks_summed(r, share);
    if (way->len > 0)
      e->collectives = g_strdup(way->str);
  }
  check_scattered(c, r, parameter);
}

/* ---- updates ---- */

static const GradientUpdate *
update_at(const FollowedRank *r, guint i)
{
  return &g_array_index(r->flow->updates, GradientUpdate, i);
}

/* The update of a parameter's own memory, or the first of a buffer that its gradient went into. */
static const GradientUpdate *
find_update(const FollowedRank *r, int parameter)
{
  const GradientUpdate *pooled = NULL;
  for (guint i = 0; i < r->flow->updates->len; i++) {
    const GradientUpdate *u = update_at(r, i);
    if (u->parameter == parameter)
      return u;
    if (u->parameter < 0 && pooled == NULL &&
        (u->state == parameter || gradient_set_find(u->from, parameter) != NULL))
      pooled = u;
  }
  return pooled;
}

static gboolean
is_updated_again(const FollowedRank *r, int parameter)
{
  for (guint i = 0; i < r->flow->updates->len; i++)
    if (update_at(r, i)->parameter == parameter && update_at(r, i)->again)
      return TRUE;
  return FALSE;
}

gint64
equivalence_held(const EquivalenceCheck *c, const FollowedRank *r, int parameter)
{
  if (r->layout != NULL && !equivalence_evidence(c, parameter)->apart)
    return r->layout[parameter];
  return network_parameter(c->network, parameter)->elements;
}

/* Memory of a rank with fewer rows than others may be as large as theirs, and what is behind them
 * is updated along. */
static gboolean
is_padding(const EquivalenceCheck *c, int parameter, gint64 elements, gint64 held)
{
  gint64 most = held;
  for (int rank = 0; c->layout != NULL && rank < c->layout_ranks; rank++)
    most = MAX(most, c->layout[rank][parameter]);
  return elements > held && elements <= most;
}

static void
check_trained(EquivalenceCheck *c, FollowedRank *r, int parameter)
{
  const char *name = equivalence_evidence(c, parameter)->name;
  const GradientUpdate *u = find_update(r, parameter);
  gint64 held = equivalence_held(c, r, parameter);
  if (u == NULL || held == 0) {
    if (r->layout != NULL && held > 0)
      equivalence_violate(c, "rank %d does not update its %" G_GINT64_FORMAT " elements of %s",
                          r->rank, held, name);
    return;
  }
  const GradientPart *part = gradient_set_find(u->from, parameter);
  if (is_updated_again(r, parameter))
    equivalence_violate(c, "rank %d updates %s more than once", r->rank, name);
  check_part(c, r, parameter, part);
  r->updated[parameter] =
      u->parameter < 0 || is_padding(c, parameter, u->elements, held) ? held : u->elements;
  if (r->updated[parameter] != held && r->layout != NULL)
    equivalence_violate(c,
                        "rank %d updates %" G_GINT64_FORMAT " elements of %s, of which it holds "
                        "%" G_GINT64_FORMAT,
                        r->rank, r->updated[parameter], name, held);
}

/* Frozen: no gradient comes to the optimizer, and nothing is written. */
static void
check_frozen(EquivalenceCheck *c, const FollowedRank *r, int parameter)
{
  for (guint i = 0; i < r->flow->updates->len; i++)
    if (update_at(r, i)->parameter == parameter ||
        gradient_set_find(update_at(r, i)->from, parameter) != NULL)
      equivalence_violate(c, "rank %d updates %s, which is frozen", r->rank,
                          equivalence_evidence(c, parameter)->name);
}

/* Buffers of several parameters: as many elements are updated as the rank holds of those in them.
 */
static void
check_buffers(EquivalenceCheck *c, const FollowedRank *r)
{
  gint64 there = 0, held = 0;
  int last = -1;
  for (guint i = 0; i < r->flow->updates->len; i++) {
    const GradientUpdate *u = update_at(r, i);
    if (u->parameter >= 0)
      continue;
    there += u->elements;
    if (u->again)
      equivalence_violate(c,
                          "rank %d updates bytes %" G_GINT64_FORMAT " to %" G_GINT64_FORMAT
                          " of its flat parameters more than once",
                          r->rank, u->begin, u->end);
  }
  for (guint i = 0; i < c->network->parameters->len; i++) {
    const GradientUpdate *u = r->updated[i] > 0 ? find_update(r, (int) i) : NULL;
    if (u == NULL || u->parameter >= 0)
      continue;
    held += r->updated[i];
    last = (int) i;
  }
  if (held > there)
    equivalence_violate(c,
                        "rank %d updates %" G_GINT64_FORMAT
                        " elements of its flat parameters, which hold "
                        "%" G_GINT64_FORMAT " up to %s",
                        r->rank, there, held, equivalence_evidence(c, last)->name);
}

/* Without updates to look at: what the gradient is when the optimizer, or the next step, gets it.
 */
static void
check_gradients_only(EquivalenceCheck *c, const FollowedRank *r, const GradientSet *set)
{
  for (guint i = 0; i < c->network->parameters->len; i++) {
    if (!network_parameter(c->network, (int) i)->trainable || equivalence_held(c, r, (int) i) == 0)
      continue;
    check_part(c, r, (int) i, gradient_set_find(set, (gint32) i));
  }
}

void
equivalence_check_rank(EquivalenceCheck *c, FollowedRank *r)
{
  if (c->plan->optimizer.name == OPTIMIZER_NONE) {
    check_gradients_only(c, r, r->flow->left);
    return;
  }
  if (r->flow->optimizer_on_host) {
    check_gradients_only(c, r, r->flow->on_host);
    return;
  }
  for (guint i = 0; i < c->network->parameters->len; i++) {
    if (network_parameter(c->network, (int) i)->trainable)
      check_trained(c, r, (int) i);
    else
      check_frozen(c, r, (int) i);
  }
  check_buffers(c, r);
}
