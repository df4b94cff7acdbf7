/* equivalence.c - is every gradient reduced over all ranks once, and every element updated once? */
#include "search/equivalence_internal.h"

#include <string.h>

#include "strategy/fsdp_ignored.h"

/* Ranks that are followed where a StateLayout speaks for the others, and where none does. */
enum { MOST_FOLLOWED = 8, MOST_WITHOUT_LAYOUT = 64 };

/* ---- who holds what ---- */

static gboolean
is_apart(const EquivalenceCheck *c, int parameter)
{
  return g_str_equal(c->plan->strategy, "fsdp2") &&
         fsdp_ignores(c->plan, network_parameter(c->network, parameter)->name);
}

/* Is a parameter's state divided over the ranks? */
static gboolean
is_divided(const EquivalenceCheck *c, int parameter)
{
  return network_parameter(c->network, parameter)->trainable && !is_apart(c, parameter);
}

/* Every element of every parameter that is trained has one owner; else a violation. */
static void
prove_layout(EquivalenceCheck *c, const StateLayout *layout)
{
  guint n = c->network->parameters->len;
  g_autoptr(StateLayout) divided = state_layout_new(layout->ranks);
  g_autofree gint64 *elements = g_new0(gint64, MAX(n, 1));
  for (guint i = 0; i < n; i++)
    if (is_divided(c, (int) i))
      elements[i] = network_parameter(c->network, (int) i)->elements;
  for (int rank = 0; rank < layout->ranks; rank++) {
    const GArray *held = state_layout_held(layout, rank);
    for (guint i = 0; i < held->len; i++)
      if (is_divided(c, g_array_index(held, StateRange, i).parameter))
        state_layout_add(divided, rank, g_array_index(held, StateRange, i));
  }
  g_autofree char *fault = range_map_fault(divided, divided, elements, n);
  if (fault != NULL)
    equivalence_violate(c, "owners: %s", fault);
}

/* Elements of every parameter by rank, where they are divided. */
static void
read_layout(EquivalenceCheck *c)
{
  LowerInput input = scenario_lower_input(c->s);
  guint n = c->network->parameters->len;
  g_autoptr(StateLayout) layout = lower_state_layout(&input, NULL);
  if (layout == NULL || layout->ranks == 1)
    return;
  c->layout_ranks = layout->ranks;
  c->layout = g_new(gint64 *, layout->ranks);
  for (int rank = 0; rank < layout->ranks; rank++) {
    const GArray *held = state_layout_held(layout, rank);
    c->layout[rank] = g_new0(gint64, MAX(n, 1));
    for (guint i = 0; i < held->len; i++) {
      const StateRange *range = &g_array_index(held, StateRange, i);
      c->layout[rank][range->parameter] += range->elements;
    }
  }
  if (c->report != NULL)
    prove_layout(c, layout);
}

static void
free_layout(EquivalenceCheck *c)
{
  for (int i = 0; c->layout != NULL && i < c->layout_ranks; i++)
    g_free(c->layout[i]);
  g_free(c->layout);
}

/* Ranks that share one copy of the optimizer's state. */
static int
owners_of(const Scenario *s)
{
  return s->strategy->only_replicas ? s->plan->replicate : s->plan->shard;
}

/* ---- all ranks together ---- */

/* Every element once in a replica group, or every element on every rank. */
static void
check_owners(EquivalenceCheck *c, int parameter)
{
  ParameterEvidence *e = equivalence_evidence(c, parameter);
  gint64 total = 0, followed_held = 0;
  int followed = 0, whole = 0;
  for (int i = 0; i < c->count; i++) {
    const FollowedRank *r = &c->ranks[i];
    gint64 n = r->updated[parameter];
    total += n * r->like;
    followed += r->like;
    followed_held += equivalence_held(c, r, parameter) * r->like;
    whole += n == e->elements ? r->like : 0;
    e->owners += n > 0 ? r->like : 0;
    e->most = MAX(e->most, n);
    e->least = n > 0 ? (e->least == 0 ? n : MIN(e->least, n)) : e->least;
  }
  if (whole == followed)
    return;
  if (followed < c->report->owners && c->layout != NULL) {
    total += e->elements - followed_held;
    for (int rank = 0; rank < c->layout_ranks; rank++)
      e->owners += c->layout[rank][parameter] > 0;
    for (int i = 0; i < c->count; i++)
      e->owners -= c->ranks[i].updated[parameter] > 0 ? c->ranks[i].like : 0;
  }
  if (total != e->elements)
    equivalence_violate(
        c, "%s: %" G_GINT64_FORMAT " elements are updated in a replica group, of %" G_GINT64_FORMAT,
        e->name, total, e->elements);
}

static void
note(EquivalenceCheck *c, const char *text)
{
  if (c->report->not_followed == NULL)
    c->report->not_followed = g_strdup(text);
}

static void
begin_report(const Scenario *s, int step, EquivalenceReport *report)
{
  *report = (EquivalenceReport){
      .strategy = g_strdup(s->plan->strategy),
      .names = g_ptr_array_new_with_free_func(g_free),
      .parameters = g_array_new(FALSE, TRUE, sizeof(ParameterEvidence)),
      .step = step,
      .ranks = s->plan->shard * s->plan->replicate,
      .owners = owners_of(s),
      .micro_batches = s->plan->accumulation.steps,
  };
  report->sequences = (gint64) report->ranks * report->micro_batches * s->plan->micro_batch;
  for (guint i = 0; i < s->network->parameters->len; i++) {
    const Parameter *p = network_parameter(s->network, (int) i);
    ParameterEvidence e = {.name = g_strdup(p->name),
                           .elements = p->elements,
                           .trained = p->trainable,
                           .reduced_ranks = 1};
    g_ptr_array_add(report->names, (gpointer) (gsize) e.name);
    g_array_append_val(report->parameters, e);
  }
}

static void
follow_ranks(EquivalenceCheck *c, const RankProgram *programs, int step)
{
  guint n = c->network->parameters->len;
  for (int i = 0; i < c->count; i++) {
    FollowedRank *r = &c->ranks[i];
    *r = (FollowedRank){programs[i].rank,          programs[i].like,
                        programs[i].program,       NULL,
                        g_new0(gint64, MAX(n, 1)), NULL};
    if (c->layout != NULL)
      r->layout = c->layout[r->rank % c->layout_ranks];
    r->flow = gradient_flow_new(c->network, r->program, program_step(r->program, step - 1));
    equivalence_check_rank(c, r);
    c->report->followed += r->like;
  }
}

void
equivalence_follow(const Scenario *s, const RankProgram *programs, int count, int step,
                   EquivalenceReport *report)
{
  EquivalenceCheck c = {
      .s = s, .plan = s->plan, .network = s->network, .report = report, .count = count};
  begin_report(s, step, report);
  read_layout(&c);
  for (guint i = 0; i < s->network->parameters->len; i++)
    equivalence_evidence(&c, (int) i)->apart = is_apart(&c, (int) i);
  c.ranks = g_new0(FollowedRank, MAX(count, 1));
  follow_ranks(&c, programs, step);
  gboolean updates = TRUE;
  for (int i = 0; i < count; i++)
    updates &= !c.ranks[i].flow->optimizer_on_host;
  if (s->plan->optimizer.name == OPTIMIZER_NONE)
    note(&c, "the plan has no optimizer: only reductions were followed");
  else if (!updates)
    note(&c, "the optimizer works in the host's memory and names none of it: gradients were "
             "followed to there, updates were not");
  else
    for (guint i = 0; i < s->network->parameters->len; i++)
      if (network_parameter(s->network, (int) i)->trainable)
        check_owners(&c, (int) i);
  if (report->followed < report->owners && c.layout == NULL)
    note(&c, "not all ranks were followed, and where this strategy keeps its state is not known");
  for (int i = 0; i < count; i++) {
    gradient_flow_free(c.ranks[i].flow);
    g_free(c.ranks[i].updated);
  }
  g_free(c.ranks);
  free_layout(&c);
}

/* ---- which ranks ---- */

/* Do two ranks update as many elements of every parameter? */
static gboolean
ranks_are_alike(const EquivalenceCheck *c, int a, int b)
{
  return c->layout != NULL && memcmp(c->layout[a % c->layout_ranks], c->layout[b % c->layout_ranks],
                                     sizeof(gint64) * c->network->parameters->len) == 0;
}

/* Without a layout every rank may be another where the strategy says that some hold more. */
static gboolean
all_ranks_are_alike(const Scenario *s)
{
  return s->strategy->heaviest_rank == NULL || s->strategy->heaviest_rank(s->plan, s->network) < 0;
}

/* Ranks to follow, each with how many are like it: the first of its kind.  Of too many kinds the
 * first ones and the last one are taken. */
static GArray *
ranks_to_follow(const Scenario *s)
{
  EquivalenceCheck c = {.s = s, .plan = s->plan, .network = s->network};
  GArray *ranks = g_array_new(FALSE, FALSE, sizeof(RankProgram));
  int owners = owners_of(s);
  read_layout(&c);
  gboolean alike = c.layout == NULL && all_ranks_are_alike(s);
  for (int rank = 0; rank < owners; rank++) {
    guint i = 0;
    while (i < ranks->len &&
           !(alike || ranks_are_alike(&c, rank, g_array_index(ranks, RankProgram, i).rank)))
      i++;
    RankProgram one = {rank, 1, NULL};
    if (i < ranks->len)
      g_array_index(ranks, RankProgram, i).like++;
    else
      g_array_append_val(ranks, one);
  }
  guint most = c.layout != NULL ? MOST_FOLLOWED : MOST_WITHOUT_LAYOUT;
  if (ranks->len > most) {
    g_array_index(ranks, RankProgram, most - 1) = g_array_index(ranks, RankProgram, ranks->len - 1);
    g_array_set_size(ranks, most);
  }
  free_layout(&c);
  return ranks;
}

static void
name_groups(const Lowered *lowered, EquivalenceReport *report)
{
  for (guint i = 0; i < lowered->units->len; i++) {
    const Unit *unit = g_ptr_array_index(lowered->units, i);
    for (guint k = 0; k < unit->parameters->len; k++) {
      ParameterEvidence *e = &g_array_index(report->parameters, ParameterEvidence,
                                            g_array_index(unit->parameters, int, k));
      g_free(e->group);
      e->group = g_strdup(unit->name);
    }
  }
}

gboolean
equivalence_check(const Scenario *s, int step, EquivalenceReport *report, GError **error)
{
  g_autoptr(GArray) ranks = ranks_to_follow(s);
  g_autoptr(GPtrArray) lowered = g_ptr_array_new_with_free_func((GDestroyNotify) lowered_free);
  for (guint i = 0; i < ranks->len; i++) {
    RankProgram *r = &g_array_index(ranks, RankProgram, i);
    Lowered *one = scenario_lower(s, r->rank, step, error);
    if (one == NULL)
      return FALSE;
    g_ptr_array_add(lowered, one);
    r->program = one->program;
  }
  equivalence_follow(s, (const RankProgram *) (const void *) ranks->data, (int) ranks->len, step,
                     report);
  name_groups(g_ptr_array_index(lowered, 0), report);
  return TRUE;
}

void
equivalence_report_clear(EquivalenceReport *report)
{
  for (guint i = 0; report->parameters != NULL && i < report->parameters->len; i++) {
    ParameterEvidence *e = &g_array_index(report->parameters, ParameterEvidence, i);
    g_free(e->group);
    g_free(e->collectives);
  }
  g_clear_pointer(&report->parameters, g_array_unref);
  g_clear_pointer(&report->names, g_ptr_array_unref);
  g_clear_pointer(&report->violation, g_free);
  g_clear_pointer(&report->not_followed, g_free);
  g_clear_pointer(&report->strategy, g_free);
}
