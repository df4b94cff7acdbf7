/* plan_search.c - the fastest plan of a space that fits with headroom. */
#include "search/plan_search.h"

#include <string.h>

#include "base/units.h"
#include "search/trials.h"

/* Starts of the fine stage: that fit, and that do not but are faster. */
enum { MOST_STARTS = 4, MOST_ROUNDS = 3 };
/* Blocks of micro-batches that trying all combinations may compute. */
enum { WORK_MOST = 60000, COMBINATIONS_MOST = 600 };
/* In the second step segments are still found, in the third none, or few. */
enum { SEARCH_STEPS = 3, EQUIVALENCE_STEP = 2, MOST_REJECTED = 32 };
/* More than any device has. */
#define UNLIMITED ((gint64) 1 << 52)

typedef struct {
  PlanSearch *search;
  const PlanSearchOptions *options;
  const RunRequest *base;
  GHashTable *known; /* point -> index + 1 */
  guint done, planned;
  const char *stage;
  gboolean stopped;
} Run;

const PlanTried *
plan_search_tried(const PlanSearch *search, guint i)
{
  return g_ptr_array_index(search->tried, i);
}

static PlanTried *
tried_at(const Run *run, guint i)
{
  return g_ptr_array_index(run->search->tried, i);
}

/* ---- which is better ---- */

gint64
plan_search_lacks(const PlanSearch *search, const Outcome *outcome)
{
  if (outcome->refusal != NULL || !outcome->time.known)
    return G_MAXINT64;
  if (search->capacity == G_MAXINT64)
    return 0;
  return outcome->peak_reserved + search->headroom - search->capacity;
}

static gboolean
fits(const Run *run, guint i)
{
  const PlanTried *tried = tried_at(run, i);
  return !tried->is_left_out && plan_search_lacks(run->search, &tried->outcome) <= 0;
}

/* The faster of two that fit; the one that fits; the one that lacks less.  All have the same tokens
 * a step.  Negative: a is better. */
static int
compare(const Run *run, guint a, guint b)
{
  const Outcome *x = &tried_at(run, a)->outcome, *y = &tried_at(run, b)->outcome;
  if (fits(run, a) != fits(run, b))
    return fits(run, a) ? -1 : 1;
  gint64 lacks_x = plan_search_lacks(run->search, x), lacks_y = plan_search_lacks(run->search, y);
  if (fits(run, a) && x->time.step != y->time.step)
    return x->time.step < y->time.step ? -1 : 1;
  if (lacks_x != lacks_y)
    return lacks_x < lacks_y ? -1 : 1;
  return a < b ? -1 : a > b;
}

static int
better(const Run *run, int a, int b)
{
  if (a < 0 || b < 0)
    return a < 0 ? b : a;
  return compare(run, (guint) a, (guint) b) <= 0 ? a : b;
}

/* ---- trying ---- */

static void
tried_free(gpointer data)
{
  PlanTried *tried = data;
  outcome_clear(&tried->outcome);
  g_free(tried);
}

static guint
point_hash(gconstpointer key)
{
  const PlanPoint *point = key;
  guint hash = 5381;
  for (int i = 0; i < AXIS_COUNT; i++)
    hash = hash * 33 + (guint) point->at[i];
  return hash;
}

static gboolean
point_equal(gconstpointer a, gconstpointer b)
{
  return memcmp(a, b, sizeof(PlanPoint)) == 0;
}

/* Index of what became of a point, or -1. */
static int
index_of(const Run *run, const PlanPoint *point)
{
  return GPOINTER_TO_INT(g_hash_table_lookup(run->known, point)) - 1;
}

static void
count_done(Trial *trial, gpointer user)
{
  Run *run = user;
  (void) trial;
  run->done++;
  if (run->options->progress != NULL)
    run->options->progress(run->done, run->planned, run->stage, run->options->user);
}

static gboolean
asks_to_stop(gpointer user)
{
  Run *run = user;
  return run->options->stops != NULL && run->options->stops(run->options->user);
}

/* Runs these points under a limit; the outcomes are in the trials, whose assignments are owned. */
static Trial *
try_points(Run *run, const PlanPoint *points, guint count, int steps, gint64 limit)
{
  Trial *trials = g_new0(Trial, MAX(count, 1));
  g_autofree RunRequest *requests = g_new(RunRequest, MAX(count, 1));
  for (guint i = 0; i < count; i++) {
    requests[i] = *plan_space_request(run->search->space, &points[i]);
    requests[i].steps = steps;
    requests[i].memory_limit = limit;
    trials[i].request = &requests[i];
    trials[i].assignments = plan_space_assignments(run->search->space, &points[i]);
  }
  run->planned += count;
  const TrialWatch watch = {
      .workers = run->options->workers, .done = count_done, .stops = asks_to_stop, .user = run};
  if (trials_run_watched(run->base, trials, count, &watch) < count)
    run->stopped = TRUE;
  for (guint i = 0; i < count; i++) {
    g_free(trials[i].assignments);
    trials[i].request = NULL;
  }
  return trials;
}

/* Tries the points that are new; FALSE: it was stopped. */
static gboolean
try_new(Run *run, const GArray *points)
{
  g_autoptr(GArray) fresh = g_array_new(FALSE, FALSE, sizeof(PlanPoint));
  guint first = run->search->tried->len;
  for (guint i = 0; i < points->len && !run->stopped; i++) {
    PlanPoint point = plan_space_normal(run->search->space, g_array_index(points, PlanPoint, i));
    if (index_of(run, &point) >= 0)
      continue;
    PlanTried *tried = g_new0(PlanTried, 1);
    tried->point = point;
    g_array_append_val(fresh, point);
    g_ptr_array_add(run->search->tried, tried);
    g_hash_table_insert(run->known, &tried->point, GINT_TO_POINTER((int) run->search->tried->len));
  }
  if (run->stopped)
    return FALSE;
  Trial *trials = try_points(run, (const PlanPoint *) (const void *) fresh->data, fresh->len,
                             SEARCH_STEPS, UNLIMITED);
  for (guint i = 0; i < fresh->len; i++) {
    tried_at(run, first + i)->outcome = trials[i].outcome;
    run->search->refused += trials[i].outcome.refusal != NULL;
  }
  g_free(trials);
  return !run->stopped;
}

/* ---- coarse ---- */

/* One sharding with one checkpointing. */
typedef struct {
  PlanPoint point; /* of the micro-batch that is next */
  int best;        /* index, or -1 */
  gboolean ended;
} Chain;

static GArray *
new_chains(const PlanSpace *space)
{
  GArray *chains = g_array_new(FALSE, FALSE, sizeof(Chain));
  for (guint s = 0; s < space->choices[AXIS_SHARDING]->len; s++)
    for (guint c = 0; c < space->choices[AXIS_CHECKPOINTING]->len; c++) {
      Chain chain = {.point = space->base, .best = -1};
      chain.point.at[AXIS_SHARDING] = (int) s;
      chain.point.at[AXIS_CHECKPOINTING] = (int) c;
      chain.point.at[AXIS_MICRO_BATCH] = (int) space->choices[AXIS_MICRO_BATCH]->len - 1;
      g_array_append_val(chains, chain);
    }
  return chains;
}

/* Goes on to the next smaller micro-batch, unless one that fits is faster than the last. */
static void
advance(Run *run, Chain *chain)
{
  PlanPoint point = plan_space_normal(run->search->space, chain->point);
  int last = index_of(run, &point);
  gboolean is_worse =
      chain->best >= 0 && fits(run, (guint) chain->best) && better(run, chain->best, last) != last;
  chain->best = better(run, chain->best, last);
  chain->point.at[AXIS_MICRO_BATCH]--;
  chain->ended = is_worse || chain->point.at[AXIS_MICRO_BATCH] < 0;
  for (PlanPoint left = chain->point; left.at[AXIS_MICRO_BATCH] >= 0; left.at[AXIS_MICRO_BATCH]--)
    if (chain->ended)
      run->search->smaller += plan_space_fine_size(run->search->space, &left);
}

static gboolean
try_coarse(Run *run)
{
  g_autoptr(GArray) chains = new_chains(run->search->space);
  run->stage = "sharding, checkpointing, micro-batch";
  for (;;) {
    g_autoptr(GArray) points = g_array_new(FALSE, FALSE, sizeof(PlanPoint));
    for (guint i = 0; i < chains->len; i++)
      if (!g_array_index(chains, Chain, i).ended)
        g_array_append_val(points, g_array_index(chains, Chain, i).point);
    if (points->len == 0)
      return TRUE;
    if (!try_new(run, points))
      return FALSE;
    for (guint i = 0; i < chains->len; i++)
      if (!g_array_index(chains, Chain, i).ended)
        advance(run, &g_array_index(chains, Chain, i));
  }
}

/* ---- fine ---- */

static int
compare_indices(gconstpointer a, gconstpointer b, gpointer run)
{
  return compare(run, *(const guint *) a, *(const guint *) b);
}

/* Where to look closer: the best, and of those that are faster but lack memory the ones that lack
 * least.  guint: indices. */
static GArray *
choose_starts(Run *run)
{
  g_autoptr(GArray) all = g_array_new(FALSE, FALSE, sizeof(guint));
  GArray *starts = g_array_new(FALSE, FALSE, sizeof(guint));
  for (guint i = 0; i < run->search->tried->len; i++)
    if (tried_at(run, i)->outcome.refusal == NULL)
      g_array_append_val(all, i);
  g_array_sort_with_data(all, compare_indices, run);
  guint fitting = 0, lacking = 0;
  SimTime best = SIM_TIME_MAX;
  for (guint i = 0; i < all->len; i++) {
    guint index = g_array_index(all, guint, i);
    SimTime step = tried_at(run, index)->outcome.time.step;
    gboolean is_fit = fits(run, index);
    if (is_fit && i == 0)
      best = step;
    if (is_fit ? fitting++ < MOST_STARTS : step < best && lacking++ < MOST_STARTS)
      g_array_append_val(starts, index);
  }
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
best_of(const Run *run, const GArray *points, int best)
{
  for (guint i = 0; i < points->len; i++) {
    PlanPoint point = plan_space_normal(run->search->space, g_array_index(points, PlanPoint, i));
    best = better(run, best, index_of(run, &point));
  }
  return best;
}

/* One axis for all starts, which move to the best of it.  TRUE in *moved: one of them has. */
static gboolean
try_axis(Run *run, PlanAxis axis, GArray *starts, gboolean *moved)
{
  const PlanSpace *space = run->search->space;
  g_autoptr(GArray) points = g_array_new(FALSE, FALSE, sizeof(PlanPoint));
  for (guint i = 0; i < starts->len; i++)
    add_line(space, tried_at(run, g_array_index(starts, guint, i))->point, axis, points);
  if (!try_new(run, points))
    return FALSE;
  for (guint i = 0; i < starts->len; i++) {
    guint *start = &g_array_index(starts, guint, i);
    g_array_set_size(points, 0);
    add_line(space, tried_at(run, *start)->point, axis, points);
    guint best = (guint) best_of(run, points, (int) *start);
    *moved |= best != *start;
    *start = best;
  }
  return TRUE;
}

static gboolean
try_fine(Run *run)
{
  g_autoptr(GArray) starts = choose_starts(run);
  run->stage = "groups, resharding, prefetching";
  gboolean moved = TRUE;
  for (int round = 0; round < MOST_ROUNDS && moved; round++) {
    moved = FALSE;
    for (int axis = AXIS_FIRST_FINE; axis < AXIS_COUNT; axis++)
      if (!try_axis(run, (PlanAxis) axis, starts, &moved))
        return FALSE;
  }
  return TRUE;
}

static int
best_tried(const Run *run)
{
  int best = -1;
  for (guint i = 0; i < run->search->tried->len; i++)
    if (tried_at(run, i)->outcome.refusal == NULL)
      best = better(run, best, (int) i);
  return best;
}

/* All fine choices with each other around the best, if that is not too much. */
static gboolean
try_combinations(Run *run)
{
  const PlanSpace *space = run->search->space;
  int best = best_tried(run);
  if (best < 0)
    return TRUE;
  PlanPoint point = tried_at(run, (guint) best)->point;
  gint64 count = plan_space_fine_size(space, &point);
  if (count > COMBINATIONS_MOST ||
      count * plan_space_micro_batches(space, &point) * space->blocks > WORK_MOST)
    return TRUE;
  run->stage = "combinations";
  g_autoptr(GArray) points = g_array_new(FALSE, FALSE, sizeof(PlanPoint));
  for (gint64 n = 0; n < count; n++) {
    gint64 rest = n;
    for (int axis = AXIS_FIRST_FINE; axis < AXIS_COUNT; axis++) {
      if (point.at[axis] < 0)
        continue;
      point.at[axis] = (int) (rest % space->choices[axis]->len);
      rest /= space->choices[axis]->len;
    }
    g_array_append_val(points, point);
  }
  return try_new(run, points);
}

/* ---- the answer ---- */

/* The best that also fits when it runs longer, on all ranks that differ, under a limit that leaves
 * the headroom.  Of those as fast the one with most room. */
static int
next_choice(const Run *run)
{
  int best = best_tried(run);
  if (best < 0 || !fits(run, (guint) best))
    return -1;
  double as_fast = (double) tried_at(run, (guint) best)->outcome.time.step * PLAN_AS_FAST;
  for (guint i = 0; i < run->search->tried->len; i++)
    if (fits(run, i) && (double) tried_at(run, i)->outcome.time.step <= as_fast &&
        tried_at(run, i)->outcome.peak_reserved <
            tried_at(run, (guint) best)->outcome.peak_reserved)
      best = (int) i;
  return best;
}

/* Runs one point under a limit. */
static Outcome
try_once(Run *run, const PlanPoint *point, int steps, gint64 limit)
{
  Trial *trials = try_points(run, point, 1, steps, limit);
  Outcome outcome = trials[0].outcome;
  g_free(trials);
  return outcome;
}

/* Does a step more take as long? */
static gboolean
is_steady(const Outcome *outcome, const Outcome *longer)
{
  double step = (double) outcome->time.step;
  return ABS((double) longer->time.step - step) <= (PLAN_AS_FAST - 1) * step;
}

static gboolean
choose(Run *run)
{
  PlanSearch *search = run->search;
  int steps = MAX(run->options->steps, SEARCH_STEPS);
  gint64 limit = search->capacity == G_MAXINT64 ? 0 : search->capacity - search->headroom;
  run->stage = "the best, longer";
  for (int rejected = 0; rejected < MOST_REJECTED && !run->stopped; rejected++) {
    int choice = next_choice(run);
    if (choice < 0)
      break;
    const PlanPoint *point = &tried_at(run, (guint) choice)->point;
    Outcome longer = try_once(run, point, steps + 1, limit);
    gboolean holds = longer.refusal == NULL && longer.verdict == VERDICT_FITS;
    if (holds) {
      search->chosen = choice;
      search->outcome = try_once(run, point, steps, run->base->memory_limit);
      search->is_steady = is_steady(&search->outcome, &longer);
    } else {
      tried_at(run, (guint) choice)->is_left_out = TRUE;
    }
    outcome_clear(&longer);
    if (holds)
      break;
  }
  return !run->stopped;
}

/* For each other choice on each axis the best plan that has it. */
static gboolean
list_alternatives(Run *run)
{
  PlanSearch *search = run->search;
  int shown = search->chosen >= 0 ? search->chosen : search->closest;
  const PlanPoint *chosen = &tried_at(run, (guint) shown)->point;
  g_autoptr(GArray) points = g_array_new(FALSE, FALSE, sizeof(PlanPoint));
  for (int axis = 0; axis < AXIS_COUNT; axis++)
    for (int k = 0; k < (int) search->space->choices[axis]->len; k++) {
      int best = -1;
      if (k == chosen->at[axis] || chosen->at[axis] < 0)
        continue;
      for (guint i = 0; i < search->tried->len; i++)
        if (tried_at(run, i)->point.at[axis] == k && tried_at(run, i)->outcome.refusal == NULL &&
            (int) i != shown)
          best = better(run, best, (int) i);
      if (best < 0)
        continue;
      PlanAlternative a = {(PlanAxis) axis, k, (guint) best};
      g_array_append_val(search->alternatives, a);
      g_array_append_val(points, tried_at(run, (guint) best)->point);
    }
  Trial *trials = try_points(run, (const PlanPoint *) (const void *) points->data, points->len,
                             MAX(run->options->steps, SEARCH_STEPS), UNLIMITED);
  for (guint i = 0; i < points->len; i++) {
    PlanTried *tried = tried_at(run, g_array_index(search->alternatives, PlanAlternative, i).tried);
    outcome_clear(&tried->outcome);
    tried->outcome = trials[i].outcome;
  }
  g_free(trials);
  return !run->stopped;
}

/* Who reduces and updates what under the chosen plan; what cannot be lowered was refused before. */
static void
check_equivalence(Run *run)
{
  const PlanPoint *point = &tried_at(run, (guint) run->search->chosen)->point;
  RunRequest request = *plan_space_request(run->search->space, point);
  g_autofree char **assignments = plan_space_assignments(run->search->space, point);
  request.inputs.assignments = assignments;
  g_autoptr(Scenario) scenario = scenario_new(&request.inputs, 0, NULL);
  run->search->has_equivalence =
      scenario != NULL &&
      equivalence_check(scenario, EQUIVALENCE_STEP, &run->search->equivalence, NULL);
}

/* ---- all ---- */

/* What the allocator may take: of a run of the first point under the base's own limit. */
static gboolean
find_capacity(Run *run, GError **error)
{
  PlanSearch *search = run->search;
  PlanPoint first = search->space->base;
  first.at[AXIS_SHARDING] = MAX(first.at[AXIS_SHARDING], 0);
  first = plan_space_normal(search->space, first);
  for (int s = 0; s < (int) search->space->choices[AXIS_SHARDING]->len && !run->stopped; s++) {
    Trial *trials = try_points(run, &first, 1, 1, run->base->memory_limit);
    g_autofree char *refusal = g_strdup(trials[0].outcome.refusal);
    search->capacity = trials[0].outcome.capacity;
    outcome_clear(&trials[0].outcome);
    g_free(trials);
    if (refusal == NULL)
      break;
    if (s + 1 == (int) search->space->choices[AXIS_SHARDING]->len)
      return g_set_error(error, HIGHWATER_ERROR, HIGHWATER_ERROR_INPUT, "%s", refusal), FALSE;
    first.at[AXIS_SHARDING] = s;
    first = plan_space_normal(search->space, first);
  }
  search->headroom = headroom_of(&run->options->headroom, search->capacity);
  if (search->headroom < search->capacity)
    return TRUE;
  g_set_error(error, HIGHWATER_ERROR, HIGHWATER_ERROR_USAGE,
              "plan: --headroom: as much as there is, %" G_GINT64_FORMAT " bytes",
              search->capacity);
  return FALSE;
}

static gboolean
search_all(Run *run, GError **error)
{
  PlanSearch *search = run->search;
  if (!find_capacity(run, error) || !try_coarse(run) || !try_fine(run) || !try_combinations(run) ||
      !choose(run))
    return FALSE;
  if (search->chosen < 0)
    search->closest = best_tried(run);
  if (search->chosen >= 0)
    check_equivalence(run);
  search->combinations = search->size - search->smaller - search->tried->len;
  return (search->chosen < 0 && search->closest < 0) || list_alternatives(run);
}

PlanSearch *
plan_search_new(const PlanSpace *space, const PlanSearchOptions *options, GError **error)
{
  g_autoptr(PlanSearch) search = g_new0(PlanSearch, 1);
  g_autoptr(GHashTable) known = g_hash_table_new(point_hash, point_equal);
  search->space = space;
  search->tried = g_ptr_array_new_with_free_func(tried_free);
  search->alternatives = g_array_new(FALSE, FALSE, sizeof(PlanAlternative));
  search->chosen = search->closest = -1;
  search->size = plan_space_size(space);
  Run run = {.search = search,
             .options = options,
             .base = &g_array_index(space->shardings, PlanSharding, 0).request,
             .known = known};
  return search_all(&run, error) ? g_steal_pointer(&search) : NULL;
}

void
plan_search_free(PlanSearch *search)
{
  if (search == NULL)
    return;
  g_ptr_array_unref(search->tried);
  g_array_unref(search->alternatives);
  outcome_clear(&search->outcome);
  if (search->has_equivalence)
    equivalence_report_clear(&search->equivalence);
  g_free(search);
}
