/* plan_stages.c - the stages of a search: coarse axes with each other, fine ones around the best.
 */
#include "search/plan_stages.h"

/* Starts of the fine stage: that fit, and that do not but are faster. */
enum { MOST_STARTS = 4, MOST_ROUNDS = 3 };
/* Blocks of micro-batches that trying combinations may compute. */
enum { WORK_MOST = 10000 };
/* Parts of the memory: that a plan may lack to be looked at more closely; beyond which it lacks too
 * much even without tokens. */
#define NEAR 0.25
#define HOPELESS 1.25
/* A choice that alone makes the step longer than this is not combined with others; one that saves
 * memory may lose more. */
#define LOSES_LITTLE 1.01
#define LOSES_AND_SAVES 1.05
/* ---- coarse ---- */

/* One sharding with one checkpointing. */
typedef struct {
  PlanPoint point; /* of the micro-batch that is next */
  int best, last;  /* indices, or -1 */
  gboolean ended, is_hopeless;
} Chain;

static GArray *
new_chains(const PlanSpace *space)
{
  GArray *chains = g_array_new(FALSE, FALSE, sizeof(Chain));
  for (guint s = 0; s < space->choices[AXIS_SHARDING]->len; s++)
    for (guint c = 0; c < space->choices[AXIS_CHECKPOINTING]->len; c++) {
      Chain chain = {.point = space->base, .best = -1, .last = -1};
      chain.point.at[AXIS_SHARDING] = (int) s;
      chain.point.at[AXIS_CHECKPOINTING] = (int) c;
      chain.point.at[AXIS_MICRO_BATCH] = (int) space->choices[AXIS_MICRO_BATCH]->len - 1;
      g_array_append_val(chains, chain);
    }
  return chains;
}

/* What a plan would need if its micro-batches had no tokens, from two of them of which the second
 * is half as large; 0: not known. */
static double
needed_at_rest(const PlanTrials *run, int larger, int smaller)
{
  if (larger < 0 || smaller < 0 || plan_trials_at(run, (guint) larger)->outcome.refusal != NULL ||
      plan_trials_at(run, (guint) smaller)->outcome.refusal != NULL)
    return 0;
  return 2.0 * (double) plan_trials_at(run, (guint) smaller)->outcome.peak_reserved -
         (double) plan_trials_at(run, (guint) larger)->outcome.peak_reserved;
}

/* Goes on to the next smaller micro-batch, unless one that fits is faster than the last, or none
 * can fit. */
static void
advance(PlanTrials *run, Chain *chain)
{
  const PlanSpace *space = run->search->space;
  PlanPoint point = plan_space_normal(space, chain->point);
  int tried = plan_trials_index(run, &point);
  gboolean is_worse = chain->best >= 0 && plan_trials_fits(run, (guint) chain->best) &&
                      plan_trials_better(run, chain->best, tried) != tried;
  chain->is_hopeless =
      needed_at_rest(run, chain->last, tried) > HOPELESS * (double) run->search->capacity;
  chain->best = plan_trials_better(run, chain->best, tried);
  chain->last = tried;
  chain->point.at[AXIS_MICRO_BATCH]--;
  chain->ended = is_worse || chain->is_hopeless || chain->point.at[AXIS_MICRO_BATCH] < 0;
}

/* The plans that chains were not followed to. */
static void
count_left_out(PlanSearch *search, const GArray *chains)
{
  for (guint i = 0; i < chains->len; i++) {
    const Chain *chain = &g_array_index(chains, Chain, i);
    for (PlanPoint left = chain->point; left.at[AXIS_MICRO_BATCH] >= 0; left.at[AXIS_MICRO_BATCH]--)
      *(chain->is_hopeless ? &search->hopeless : &search->smaller) +=
          plan_space_fine_size(search->space, &left);
  }
}

/* Where nothing fits, the smallest micro-batch says what is closest. */
static gboolean
try_smallest(PlanTrials *run, GArray *chains)
{
  g_autoptr(GArray) points = g_array_new(FALSE, FALSE, sizeof(PlanPoint));
  for (guint i = 0; i < chains->len; i++) {
    const Chain *chain = &g_array_index(chains, Chain, i);
    PlanPoint point = chain->point;
    if (chain->best >= 0 && plan_trials_fits(run, (guint) chain->best))
      return TRUE;
    point.at[AXIS_MICRO_BATCH] = 0;
    g_array_append_val(points, point);
  }
  return plan_trials_add(run, points);
}

gboolean
plan_stages_coarse(PlanTrials *run)
{
  g_autoptr(GArray) chains = new_chains(run->search->space);
  run->stage = "sharding, checkpointing, micro-batch";
  for (;;) {
    g_autoptr(GArray) points = g_array_new(FALSE, FALSE, sizeof(PlanPoint));
    for (guint i = 0; i < chains->len; i++)
      if (!g_array_index(chains, Chain, i).ended)
        g_array_append_val(points, g_array_index(chains, Chain, i).point);
    if (points->len == 0)
      break;
    if (!plan_trials_add(run, points))
      return FALSE;
    for (guint i = 0; i < chains->len; i++)
      if (!g_array_index(chains, Chain, i).ended)
        advance(run, &g_array_index(chains, Chain, i));
  }
  count_left_out(run->search, chains);
  return try_smallest(run, chains);
}

/* ---- fine ---- */

static int
compare_indices(gconstpointer a, gconstpointer b, gpointer run)
{
  return plan_trials_compare(run, *(const guint *) a, *(const guint *) b);
}

/* Could other groups, resharding or prefetching save what it lacks? */
static gboolean
is_near(const PlanTrials *run, guint i)
{
  return (double) plan_search_lacks(run->search, plan_trials_at(run, i)) <
         NEAR * (double) run->search->capacity;
}

/* Where to look closer: the best, and of those that are faster but lack memory the ones that lack
 * least.  guint: indices. */
static GArray *
choose_starts(PlanTrials *run)
{
  g_autoptr(GArray) all = g_array_new(FALSE, FALSE, sizeof(guint));
  GArray *starts = g_array_new(FALSE, FALSE, sizeof(guint));
  for (guint i = 0; i < run->search->tried->len; i++)
    if (plan_trials_at(run, i)->outcome.refusal == NULL)
      g_array_append_val(all, i);
  g_array_sort_with_data(all, compare_indices, run);
  guint fitting = 0, lacking = 0;
  SimTime best = SIM_TIME_MAX;
  for (guint i = 0; i < all->len; i++) {
    guint index = g_array_index(all, guint, i);
    SimTime step = plan_trials_at(run, index)->outcome.time.step;
    gboolean is_fit = plan_trials_fits(run, index);
    if (is_fit && i == 0)
      best = step;
    if (is_fit ? fitting++ < MOST_STARTS
               : step < best && is_near(run, index) && lacking++ < MOST_STARTS)
      g_array_append_val(starts, index);
  }
  if (starts->len == 0 && all->len > 0) /* what is closest is worth a closer look, too */
    g_array_append_val(starts, g_array_index(all, guint, 0));
  return starts;
}

/* All choices of one axis at a point. */
static void
add_line(const PlanSpace *space, PlanPoint point, PlanAxis axis, GArray *points)
{
  for (guint k = 0; k < space->choices[axis]->len && point.at[axis] >= 0; k++) {
    point.at[axis] = (int) k;
    g_array_append_val(points, point);
  }
}

static int
best_of(const PlanTrials *run, const GArray *points, int best)
{
  for (guint i = 0; i < points->len; i++) {
    PlanPoint point = plan_space_normal(run->search->space, g_array_index(points, PlanPoint, i));
    best = plan_trials_better(run, best, plan_trials_index(run, &point));
  }
  return best;
}

/* One axis for all starts, which move to the best of it.  TRUE in *moved: one of them has. */
static gboolean
try_axis(PlanTrials *run, PlanAxis axis, GArray *starts, gboolean *moved)
{
  const PlanSpace *space = run->search->space;
  g_autoptr(GArray) points = g_array_new(FALSE, FALSE, sizeof(PlanPoint));
  for (guint i = 0; i < starts->len; i++)
    add_line(space, plan_trials_at(run, g_array_index(starts, guint, i))->point, axis, points);
  if (!plan_trials_add(run, points))
    return FALSE;
  for (guint i = 0; i < starts->len; i++) {
    guint *start = &g_array_index(starts, guint, i);
    g_array_set_size(points, 0);
    add_line(space, plan_trials_at(run, *start)->point, axis, points);
    guint best = (guint) best_of(run, points, (int) *start);
    *moved |= best != *start;
    *start = best;
  }
  return TRUE;
}

gboolean
plan_stages_fine(PlanTrials *run, GArray **found)
{
  GArray *starts = *found = choose_starts(run);
  run->stage = "groups, resharding, prefetching";
  gboolean moved = TRUE;
  for (int round = 0; round < MOST_ROUNDS && moved; round++) {
    moved = FALSE;
    for (int axis = AXIS_FIRST_FINE; axis < AXIS_COUNT; axis++)
      if (!try_axis(run, (PlanAxis) axis, starts, &moved))
        return FALSE;
  }
  g_array_sort_with_data(starts, compare_indices, run);
  return TRUE;
}

/* Is a choice worth combining with others: alone, beside the best, it loses little, or a bit more
 * but saves memory, or would be faster and nearly fits? */
static gboolean
is_promising(const PlanTrials *run, guint best, PlanPoint point, PlanAxis axis, int choice)
{
  const Outcome *own = &plan_trials_at(run, best)->outcome;
  point.at[axis] = choice;
  point = plan_space_normal(run->search->space, point);
  int index = plan_trials_index(run, &point);
  if (index < 0 || plan_trials_at(run, (guint) index)->outcome.refusal != NULL)
    return FALSE;
  const Outcome *other = &plan_trials_at(run, (guint) index)->outcome;
  double loses = (double) other->time.step / (double) own->time.step;
  if (!plan_trials_fits(run, (guint) index))
    return loses < 1 && is_near(run, (guint) index);
  return loses <= (other->peak_reserved < own->peak_reserved ? LOSES_AND_SAVES : LOSES_LITTLE);
}

/* The lines through a point along all fine axes. */
static gboolean
try_lines(PlanTrials *run, const PlanPoint *point)
{
  g_autoptr(GArray) points = g_array_new(FALSE, FALSE, sizeof(PlanPoint));
  for (int axis = AXIS_FIRST_FINE; axis < AXIS_COUNT; axis++)
    add_line(run->search->space, *point, (PlanAxis) axis, points);
  return plan_trials_add(run, points);
}

/* All points whose fine choices are promising, by axis a list of int. */
static GArray *
combine(GArray *const promising[AXIS_COUNT], PlanPoint point, gint64 count)
{
  GArray *points = g_array_new(FALSE, FALSE, sizeof(PlanPoint));
  for (gint64 n = 0; n < count; n++) {
    gint64 rest = n;
    for (int axis = AXIS_FIRST_FINE; axis < AXIS_COUNT; axis++) {
      if (point.at[axis] < 0)
        continue;
      point.at[axis] = g_array_index(promising[axis], int, rest % promising[axis]->len);
      rest /= promising[axis]->len;
    }
    g_array_append_val(points, point);
  }
  return points;
}

/* Around one plan; *work: what may still be computed. */
static gboolean
combine_around(PlanTrials *run, guint index, gint64 *work)
{
  const PlanSpace *space = run->search->space;
  PlanPoint point = plan_trials_at(run, index)->point;
  gint64 count = 1, each = (gint64) plan_space_micro_batches(space, &point) * space->blocks;
  if (!try_lines(run, &point))
    return FALSE;
  GArray *promising[AXIS_COUNT] = {NULL};
  for (int axis = AXIS_FIRST_FINE; axis < AXIS_COUNT; axis++) {
    promising[axis] = g_array_new(FALSE, FALSE, sizeof(int));
    for (int k = 0; k < (int) space->choices[axis]->len && point.at[axis] >= 0; k++)
      if (k == point.at[axis] || is_promising(run, index, point, (PlanAxis) axis, k))
        g_array_append_val(promising[axis], k);
    count *= MAX(promising[axis]->len, 1);
  }
  gboolean goes_on = TRUE;
  if (count * each <= *work) {
    g_autoptr(GArray) points = combine(promising, point, count);
    *work -= count * each;
    goes_on = plan_trials_add(run, points);
  }
  for (int axis = AXIS_FIRST_FINE; axis < AXIS_COUNT; axis++)
    g_array_unref(promising[axis]);
  return goes_on;
}

gboolean
plan_stages_combine(PlanTrials *run, const GArray *starts)
{
  gint64 work = WORK_MOST;
  run->stage = "combinations";
  for (guint i = 0; i < starts->len; i++)
    if (!combine_around(run, g_array_index(starts, guint, i), &work))
      return FALSE;
  return TRUE;
}
