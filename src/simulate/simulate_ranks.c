/* simulate_ranks.c - colours ranks by Program and speed, has each class simulated once, and names
 * the slowest. */
#include "simulate/simulate_ranks.h"

#include "strategy/shard.h"

/* Each class takes some milliseconds and a few hundred KiB: more of them help nobody. */
#define MOST_SIMULATED 16384

/* Ranks as the run sees them. */
typedef struct {
  const RunRequest *request;
  const Scenario *s;
  int ranks;
  int *shapes;         /* by place in the shard group: which Program */
  GPtrArray *programs; /* Lowered *, by shape; NULL until it is needed */
  const Lowered *described;
} SimulatedRanks;

gboolean
ranks_are_asked_for(const RunRequest *request, const Scenario *s)
{
  return request->all_ranks || s->plan->ranks.slow->len > 0 || s->plan->ranks.jitter > 0;
}

/* ---- Programs ---- */

/* Ranks with other rows have other Programs.  Where a rank's part is a slice of flat parameters the
 * slices have one size, and which parameters lie in them makes no difference in time: the described
 * rank's Program stands for all. */
static void
find_shapes(SimulatedRanks *set)
{
  int shard = set->s->plan->shard, n = 1;
  gboolean by_rows = set->s->strategy->sharded_norms;
  set->shapes = g_new0(int, shard);
  for (int i = 1; i < shard && by_rows; i++) {
    n += shards_differ(set->s->network, shard, i - 1, i);
    set->shapes[i] = n - 1;
  }
  set->programs = g_ptr_array_new_with_free_func((GDestroyNotify) lowered_free);
  g_ptr_array_set_size(set->programs, n);
}

static int
shape_of(const SimulatedRanks *set, int rank)
{
  return set->shapes[rank % set->s->plan->shard];
}

/* The Program of a rank, lowered when its shape is met first.  NULL and error when it cannot be. */
static const Program *
program_of(SimulatedRanks *set, int rank, GError **error)
{
  int shape = shape_of(set, rank);
  if (shape == shape_of(set, set->request->rank))
    return set->described->program;
  Lowered *lowered = g_ptr_array_index(set->programs, shape);
  if (lowered == NULL)
    lowered = scenario_lower(set->s, rank, set->request->steps, error);
  set->programs->pdata[shape] = lowered;
  return lowered != NULL ? lowered->program : NULL;
}

/* ---- speeds ---- */

static RankSpeed
speed_of(const PlanSpec *plan, int rank)
{
  RankSpeed speed = {
      .jitter = plan->ranks.jitter, .seed = (guint64) plan->ranks.seed, .rank = rank};
  for (guint i = 0; i < plan->ranks.slow->len; i++) {
    const SlowRank *slow = &g_array_index(plan->ranks.slow, SlowRank, i);
    if (slow->rank == rank)
      speed.compute = slow->compute;
  }
  return speed;
}

/* Ranks that may differ get different colours. */
static int *
colour_ranks(const SimulatedRanks *set)
{
  const PlanSpec *plan = set->s->plan;
  int *colours = g_new(int, set->ranks);
  gboolean each = set->request->all_ranks || plan->ranks.jitter > 0;
  int shapes = (int) set->programs->len;
  for (int r = 0; r < set->ranks; r++)
    colours[r] = each ? r : shape_of(set, r);
  for (guint i = 0; i < plan->ranks.slow->len && !each; i++) {
    const SlowRank *slow = &g_array_index(plan->ranks.slow, SlowRank, i);
    guint first = 0; /* of those that are as slow */
    while (g_array_index(plan->ranks.slow, SlowRank, first).compute != slow->compute)
      first++;
    colours[slow->rank] = shapes * ((int) first + 1) + shape_of(set, slow->rank);
  }
  return colours;
}

/* ---- what came out ---- */

/* The class that waits least for the others is the one that they wait for. */
static void
name_slowest(const SimulatedRanks *set, const RankClasses *classes, const RankOutcome *outcomes,
             RanksInfo *info)
{
  int slowest = 0, described = classes->class_of[set->request->rank];
  for (int i = 1; i < classes->n; i++)
    if (outcomes[i].waited < outcomes[slowest].waited)
      slowest = i;
  info->ranks = set->ranks;
  info->simulated = classes->n;
  info->described_class = classes->count[described];
  info->slowest = classes->first[slowest];
  RankSpeed speed = speed_of(set->s->plan, info->slowest);
  info->slowest_compute = speed.compute > 0 ? speed.compute : 1;
  info->waited = outcomes[described].waited / MAX(set->request->steps, 1);
  for (int i = 0; i < classes->n; i++)
    info->peak_reserved = MAX(info->peak_reserved, outcomes[i].peak_reserved);
}

static void
find_rank_without_room(const RankClasses *classes, const RankOutcome *outcomes, int rank,
                       RunResult *result)
{
  for (int i = 0; i < classes->n; i++)
    if (outcomes[i].out_of_memory && i != classes->class_of[rank])
      result->info->rank_without_room = classes->first[i];
  if (result->info->rank_without_room >= 0) /* the others wait for that one in vain */
    g_clear_pointer(&result->recording->stuck, g_free);
}

/* The last step if all ranks were as fast as the profile says. */
static SimTime
step_of_equals(const SimulatedRanks *set, const ExecutorConfig *config)
{
  const PlanSpec *plan = set->s->plan;
  if (plan->ranks.slow->len == 0 && plan->ranks.jitter <= 0)
    return 0;
  g_autoptr(Recording) equal = executor_run(set->described->program, config);
  return equal->steps->len > 0 ? recording_step_duration(equal, equal->steps->len - 1) : 0;
}

/* More classes than can be simulated are refused by what asks for them. */
static gboolean
check_number(const SimulatedRanks *set, int classes, GError **error)
{
  const PlanSpec *plan = set->s->plan;
  if (classes <= MOST_SIMULATED)
    return TRUE;
  if (!set->request->all_ranks)
    return plan_spec_refuse(plan, error, plan->ranks.jitter > 0 ? "ranks.jitter" : "ranks.slow",
                            "%d ranks would be simulated one by one, which is done for up to %d",
                            classes, MOST_SIMULATED);
  g_set_error(error, HIGHWATER_ERROR, HIGHWATER_ERROR_USAGE,
              "--all-ranks: %d ranks are more than the %d that are simulated one by one", classes,
              MOST_SIMULATED);
  return FALSE;
}

static gboolean
execute(SimulatedRanks *set, const ExecutorConfig *config, RunResult *result, GError **error)
{
  gboolean each = set->request->all_ranks || set->s->plan->ranks.jitter > 0;
  if (each && !check_number(set, set->ranks, error))
    return FALSE;
  g_autofree int *colours = colour_ranks(set);
  g_autoptr(RankClasses) classes =
      rank_classes_new(set->ranks, colours, set->described->program->communicators);
  if (!check_number(set, classes->n, error))
    return FALSE;
  g_autofree SimulatedRank *ranks = g_new0(SimulatedRank, classes->n);
  g_autofree RankOutcome *outcomes = g_new0(RankOutcome, classes->n);
  for (int i = 0; i < classes->n; i++) {
    ranks[i].speed = speed_of(set->s->plan, classes->first[i]);
    ranks[i].program = program_of(set, classes->first[i], error);
    if (ranks[i].program == NULL)
      return FALSE;
  }
  int described = classes->class_of[set->request->rank];
  result->recording = executor_run_ranks(classes, ranks, described, config, outcomes);
  name_slowest(set, classes, outcomes, &result->info->ranks);
  result->info->ranks.step_of_equals = step_of_equals(set, config);
  find_rank_without_room(classes, outcomes, set->request->rank, result);
  return TRUE;
}

gboolean
simulate_ranks(const RunRequest *request, const Scenario *s, const Lowered *lowered,
               const ExecutorConfig *config, RunResult *result, GError **error)
{
  SimulatedRanks set = {.request = request,
                        .s = s,
                        .ranks = s->plan->shard * s->plan->replicate,
                        .described = lowered};
  find_shapes(&set);
  gboolean done = execute(&set, config, result, error);
  g_ptr_array_unref(set.programs);
  g_free(set.shapes);
  return done;
}
