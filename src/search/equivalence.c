/* equivalence.c - is every gradient reduced over all ranks once, and every element updated once? */
#include "search/equivalence.h"

#include <string.h>

#include "search/gradient_flow.h"
#include "strategy/fsdp_ignored.h"

/* Ranks that are followed where a StateLayout speaks for the others, and where none does. */
enum { MOST_FOLLOWED = 8, MOST_WITHOUT_LAYOUT = 64 };

/* One rank's Program, followed. */
typedef struct {
  int rank, like;
  const Program *program;
  GradientFlow *flow;
  gint64 *updated;      /* by parameter: elements */
  const gint64 *layout; /* by parameter: elements that it holds; NULL: unknown */
} Followed;

typedef struct {
  const Scenario *s;
  const PlanSpec *plan;
  const Network *network;
  EquivalenceReport *report;
  gint64 **layout; /* by rank of the shard group and parameter; NULL: not sharded, or not known */
  int layout_ranks;
  Followed *ranks;
  int count;
} Check;

/* ---- the first violation ---- */

static void violate(Check *c, const char *format, ...) G_GNUC_PRINTF(2, 3);

static void
violate(Check *c, const char *format, ...)
{
  va_list arguments;
  if (c->report->violation != NULL)
    return;
  va_start(arguments, format);
  c->report->violation = g_strdup_vprintf(format, arguments);
  va_end(arguments);
}

static ParameterEvidence *
evidence(const Check *c, int parameter)
{
  return &g_array_index(c->report->parameters, ParameterEvidence, parameter);
}

/* ---- who holds what ---- */

static LowerInput
lower_input(const Scenario *s)
{
  return (LowerInput){.network = s->network,
                      .plan = s->plan,
                      .device = s->cluster->device,
                      .strategy = s->strategy,
                      .steps = 1,
                      .memory_limit = s->memory_limit,
                      .evaluation = s->evaluation};
}

static gboolean
is_apart(const Check *c, int parameter)
{
  return g_str_equal(c->plan->strategy, "fsdp2") &&
         fsdp_ignores(c->plan, network_parameter(c->network, parameter)->name);
}

/* Is a parameter's state divided over the ranks? */
static gboolean
is_divided(const Check *c, int parameter)
{
  return network_parameter(c->network, parameter)->trainable && !is_apart(c, parameter);
}

/* Every element of every parameter that is trained has one owner; else a violation. */
static void
prove_layout(Check *c, const StateLayout *layout)
{
  guint n = c->network->parameters->len;
  g_autoptr(StateLayout) divided = state_layout_new(layout->ranks);
  g_autofree gint64 *elements = g_new0(gint64, MAX(n, 1));
  for (guint i = 0; i < n; i++)
    if (is_divided(c, (int) i))
      elements[i] = network_parameter(c->network, (int) i)->elements;
  for (int rank = 0; rank < layout->ranks; rank++) {
    const GArray *held = g_ptr_array_index(layout->held, (guint) rank);
    for (guint i = 0; i < held->len; i++)
      if (is_divided(c, g_array_index(held, StateRange, i).parameter))
        state_layout_add(divided, rank, g_array_index(held, StateRange, i));
  }
  g_autofree char *fault = range_map_fault(divided, divided, elements, n);
  if (fault != NULL)
    violate(c, "owners: %s", fault);
}

/* Elements of every parameter by rank, where they are divided. */
static void
read_layout(Check *c)
{
  LowerInput input = lower_input(c->s);
  guint n = c->network->parameters->len;
  g_autoptr(StateLayout) layout = lower_state_layout(&input, NULL);
  if (layout == NULL || layout->ranks == 1)
    return;
  c->layout_ranks = layout->ranks;
  c->layout = g_new(gint64 *, layout->ranks);
  for (int rank = 0; rank < layout->ranks; rank++) {
    const GArray *held = g_ptr_array_index(layout->held, (guint) rank);
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
free_layout(Check *c)
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

/* ---- reductions ---- */

static const Communicator *
communicator_at(const Followed *r, int i)
{
  return &g_array_index(r->program->communicators, Communicator, i);
}

/* A part of the parameter's way, in words: "reduce_scatter over shard (8)". */
static void
append_way(const Followed *r, const GradientShare *share, GString *way)
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
ranks_summed(const Followed *r, const GradientShare *share)
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
most_reductions(const Followed *r, const GradientShare *share, int *all)
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
allowed_reductions(const Check *c, int micro_batch)
{
  const PlanSpec *plan = c->plan;
  gboolean averages_again = c->s->strategy->only_replicas && plan->accumulation.sync_every_step;
  return averages_again ? plan->accumulation.steps - micro_batch : 1;
}

static void
check_share(Check *c, const Followed *r, int parameter, const GradientShare *share)
{
  const char *name = evidence(c, parameter)->name;
  int m = share->micro_batch, all, most = most_reductions(r, share, &all);
  int ranks = ranks_summed(r, share), needed = evidence(c, parameter)->apart ? 1 : c->report->ranks;
  g_autoptr(GString) way = g_string_new(NULL);
  append_way(r, share, way);
  if (way->len == 0)
    g_string_append(way, "nothing");
  if (share->times != 1)
    violate(c, "rank %d adds the gradient of %s, micro-batch %d, %d times", r->rank, name, m,
            share->times);
  if (most > allowed_reductions(c, m))
    violate(c, "rank %d reduces the gradient of %s, micro-batch %d, %d times: %s", r->rank, name, m,
            most, way->str);
  if (share->mixed)
    violate(c, "rank %d reduces only part of the gradient of %s, micro-batch %d", r->rank, name, m);
  if (ranks != needed)
    violate(c,
            "rank %d: the gradient of %s, micro-batch %d, goes through %s, not over all %d ranks",
            r->rank, name, m, way->str, needed);
}

/* A result that nobody took is no harm to the sum, but a reduction too many. */
static void
check_scattered(Check *c, const Followed *r, int parameter)
{
  for (int i = 0; i < GRADIENT_COMMUNICATORS; i++) {
    const GradientPart *part = gradient_set_find(r->flow->scattered[i], parameter);
    for (guint k = 0; part != NULL && k < part->shares->len; k++) {
      const GradientShare *share = &g_array_index(part->shares, GradientShare, k);
      if (share->times > 1)
        violate(c, "rank %d sends the gradient of %s, micro-batch %d, %d times through %s", r->rank,
                evidence(c, parameter)->name, share->micro_batch, share->times,
                program_text(r->program, communicator_at(r, i)->name));
    }
  }
}

/* The gradient that the optimizer reads has every micro-batch once, reduced once. */
static void
check_part(Check *c, const Followed *r, int parameter, const GradientPart *part)
{
  ParameterEvidence *e = evidence(c, parameter);
  guint k = 0;
  for (int m = 0; m < c->report->micro_batches; m++) {
    const GradientShare *share = part != NULL && k < part->shares->len
                                     ? &g_array_index(part->shares, GradientShare, k)
                                     : NULL;
    if (share == NULL || share->micro_batch != m) {
      violate(c, "rank %d: what updates %s lacks its gradient of micro-batch %d", r->rank, e->name,
              m);
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
update_at(const Followed *r, guint i)
{
  return &g_array_index(r->flow->updates, GradientUpdate, i);
}

/* The update of a parameter's own memory, or the first of a buffer that its gradient went into. */
static const GradientUpdate *
find_update(const Followed *r, int parameter)
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
is_updated_again(const Followed *r, int parameter)
{
  for (guint i = 0; i < r->flow->updates->len; i++)
    if (update_at(r, i)->parameter == parameter && update_at(r, i)->again)
      return TRUE;
  return FALSE;
}

/* Elements of a parameter that a rank should update, as far as the layout says: else those of all.
 */
static gint64
held_elements(const Check *c, const Followed *r, int parameter)
{
  if (r->layout != NULL && !evidence(c, parameter)->apart)
    return r->layout[parameter];
  return network_parameter(c->network, parameter)->elements;
}

/* Memory of a rank with fewer rows than others may be as large as theirs, and what is behind them
 * is updated along. */
static gboolean
is_padding(const Check *c, int parameter, gint64 elements, gint64 held)
{
  gint64 most = held;
  for (int rank = 0; c->layout != NULL && rank < c->layout_ranks; rank++)
    most = MAX(most, c->layout[rank][parameter]);
  return elements > held && elements <= most;
}

static void
check_trained(Check *c, Followed *r, int parameter)
{
  const char *name = evidence(c, parameter)->name;
  const GradientUpdate *u = find_update(r, parameter);
  gint64 held = held_elements(c, r, parameter);
  if (u == NULL || held == 0) {
    if (r->layout != NULL && held > 0)
      violate(c, "rank %d does not update its %" G_GINT64_FORMAT " elements of %s", r->rank, held,
              name);
    return;
  }
  const GradientPart *part = gradient_set_find(u->from, parameter);
  if (is_updated_again(r, parameter))
    violate(c, "rank %d updates %s more than once", r->rank, name);
  check_part(c, r, parameter, part);
  r->updated[parameter] =
      u->parameter < 0 || is_padding(c, parameter, u->elements, held) ? held : u->elements;
  if (r->updated[parameter] != held && r->layout != NULL)
    violate(c,
            "rank %d updates %" G_GINT64_FORMAT " elements of %s, of which it holds "
            "%" G_GINT64_FORMAT,
            r->rank, r->updated[parameter], name, held);
}

/* Frozen: no gradient comes to the optimizer, and nothing is written. */
static void
check_frozen(Check *c, const Followed *r, int parameter)
{
  for (guint i = 0; i < r->flow->updates->len; i++)
    if (update_at(r, i)->parameter == parameter ||
        gradient_set_find(update_at(r, i)->from, parameter) != NULL)
      violate(c, "rank %d updates %s, which is frozen", r->rank, evidence(c, parameter)->name);
}

/* Buffers of several parameters: as many elements are updated as the rank holds of those in them.
 */
static void
check_buffers(Check *c, const Followed *r)
{
  gint64 there = 0, held = 0;
  int last = -1;
  for (guint i = 0; i < r->flow->updates->len; i++) {
    const GradientUpdate *u = update_at(r, i);
    if (u->parameter >= 0)
      continue;
    there += u->elements;
    if (u->again)
      violate(c,
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
    violate(c,
            "rank %d updates %" G_GINT64_FORMAT " elements of its flat parameters, which hold "
            "%" G_GINT64_FORMAT " up to %s",
            r->rank, there, held, evidence(c, last)->name);
}

/* Without updates to look at: what the gradient is when the optimizer, or the next step, gets it.
 */
static void
check_gradients_only(Check *c, const Followed *r, const GradientSet *set)
{
  for (guint i = 0; i < c->network->parameters->len; i++) {
    if (!network_parameter(c->network, (int) i)->trainable || held_elements(c, r, (int) i) == 0)
      continue;
    check_part(c, r, (int) i, gradient_set_find(set, (gint32) i));
  }
}

static void
check_rank(Check *c, Followed *r)
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

/* ---- all ranks together ---- */

/* Every element once in a replica group, or every element on every rank. */
static void
check_owners(Check *c, int parameter)
{
  ParameterEvidence *e = evidence(c, parameter);
  gint64 total = 0, followed_held = 0;
  int followed = 0, whole = 0;
  for (int i = 0; i < c->count; i++) {
    const Followed *r = &c->ranks[i];
    gint64 n = r->updated[parameter];
    total += n * r->like;
    followed += r->like;
    followed_held += held_elements(c, r, parameter) * r->like;
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
    violate(
        c, "%s: %" G_GINT64_FORMAT " elements are updated in a replica group, of %" G_GINT64_FORMAT,
        e->name, total, e->elements);
}

static void
note(Check *c, const char *text)
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
follow_ranks(Check *c, const RankProgram *programs, int step)
{
  guint n = c->network->parameters->len;
  for (int i = 0; i < c->count; i++) {
    Followed *r = &c->ranks[i];
    *r = (Followed){programs[i].rank,          programs[i].like,
                    programs[i].program,       NULL,
                    g_new0(gint64, MAX(n, 1)), NULL};
    if (c->layout != NULL)
      r->layout = c->layout[r->rank % c->layout_ranks];
    r->flow = gradient_flow_new(c->network, r->program, program_step(r->program, step - 1));
    check_rank(c, r);
    c->report->followed += r->like;
  }
}

void
equivalence_follow(const Scenario *s, const RankProgram *programs, int count, int step,
                   EquivalenceReport *report)
{
  Check c = {.s = s, .plan = s->plan, .network = s->network, .report = report, .count = count};
  begin_report(s, step, report);
  read_layout(&c);
  for (guint i = 0; i < s->network->parameters->len; i++)
    evidence(&c, (int) i)->apart = is_apart(&c, (int) i);
  c.ranks = g_new0(Followed, MAX(count, 1));
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
ranks_are_alike(const Check *c, int a, int b)
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
  Check c = {.s = s, .plan = s->plan, .network = s->network};
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
