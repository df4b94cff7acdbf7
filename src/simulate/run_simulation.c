/* run_simulation.c - from what the command line asked for to a Recording and what reports say
 * beside it. */
#include "simulate/run_simulation.h"

#include "base/units.h"
#include "exec/executor.h"
#include "simulate/prefetch_cost.h"
#include "simulate/process_memory.h"
#include "simulate/program_run.h"
#include "simulate/run_facts.h"
#include "simulate/run_failure.h"
#include "simulate/simulate_ranks.h"
#include "strategy/shard.h"

void
run_request_clear(RunRequest *request)
{
  input_text_clear(&request->inputs.network);
  input_text_clear(&request->inputs.plan);
  input_text_clear(&request->inputs.cluster);
}

void
run_result_clear(RunResult *result)
{
  g_clear_pointer(&result->recording, recording_free);
  g_clear_pointer(&result->info, run_info_free);
}

/* ---- memory ---- */

static void
set_allocator(AllocatorConfig *config, const RunRequest *request, const Scenario *s)
{
  config->expandable_segments = s->plan->allocator.expandable_segments;
  config->max_split_size = s->plan->allocator.max_split_size;
  config->garbage_collection_threshold = s->plan->allocator.garbage_collection_threshold;
  config->roundup_power2_divisions = s->plan->allocator.roundup_power2_divisions;
  if (config->garbage_collection_threshold > 0 && request->memory_limit > 0)
    config->process_limit =
        request->memory_limit; /* a share of a limit: PyTorch collects only under one */
  if (request->without_limit)
    config->memory_limit = config->process_limit = G_MAXINT64;
}

static ExecutorConfig
executor_config(const RunRequest *request, const Scenario *s, const Lowered *lowered)
{
  ExecutorConfig config = {
      .cluster = s->cluster,
      .allocator = allocator_config_default(),
      .keeps_gradients = lowered->keeps_gradients,
      .keep_spans = request->keep_spans,
      .title = s->network->name,
  };
  limit_memory(&config, lowered->program, request->memory_limit);
  set_allocator(&config.allocator, request, s);
  return config;
}

/* Up to so many steps all are simulated; of more, as many as differ. */
#define STEPS_ALL_SIMULATED 16

static Recording *
simulate_rank(const RunRequest *request, const Scenario *s, int rank, Lowered **lowered,
              GError **error)
{
  *lowered = scenario_lower(s, rank, request->steps, error);
  if (*lowered == NULL)
    return NULL;
  ExecutorConfig config = executor_config(request, s, *lowered);
  config.stops_when_steady = request->steps > STEPS_ALL_SIMULATED;
  return executor_run((*lowered)->program, &config);
}

/* The same, up to where the plan has a rank fail. */
static Recording *
simulate_failure(const RunRequest *request, const Scenario *s, Lowered **lowered, Failure **failure,
                 GError **error)
{
  int steps = MIN(request->steps, s->plan->failure.step + 1); /* the host may run ahead by one */
  *lowered = scenario_lower(s, request->rank, steps, error);
  if (*lowered == NULL)
    return NULL;
  ExecutorConfig config = executor_config(request, s, *lowered);
  return run_failure(s, *lowered, &config, failure, error);
}

/* ---- all ranks ---- */

enum { MOST_OTHERS = 3 };

static int
add_rank(int others[MOST_OTHERS], int count, int rank)
{
  for (int i = 0; i < count; i++)
    if (others[i] == rank)
      return count;
  others[count] = rank;
  return count + 1;
}

/* Ranks that stand for the others.  The first rank has the most rows and the last one the fewest
 * where rows are uneven; where ranks differ by more than rows the strategy names a third.  Returns
 * how many. */
static int
ranks_to_try(const Scenario *s, int rank, int others[MOST_OTHERS])
{
  gboolean by_rows = s->strategy->heaviest_rank == NULL;
  int heaviest = by_rows ? rank : s->strategy->heaviest_rank(s->plan, s->network);
  if (heaviest < 0)
    return 0;
  const int candidates[MOST_OTHERS] = {0, s->plan->shard * (by_rows ? 1 : s->plan->replicate) - 1,
                                       heaviest};
  int count = 0, shard = s->plan->shard;
  for (int i = 0; i < MOST_OTHERS; i++)
    if (candidates[i] != rank &&
        (!by_rows || shards_differ(s->network, shard, rank % shard, candidates[i] % shard)))
      count = add_rank(others, count, candidates[i]);
  return count;
}

/* Returns a rank that runs out of memory although `rank` does not, or -1. */
static int
rank_without_room(const RunRequest *request, const Scenario *s, int rank)
{
  int others[MOST_OTHERS], count = ranks_to_try(s, rank, others);
  for (int i = 0; i < count; i++) {
    g_autoptr(Lowered) lowered = NULL;
    g_autoptr(Recording) recording = simulate_rank(request, s, others[i], &lowered, NULL);
    if (recording != NULL && recording->out_of_memory.happened)
      return others[i];
  }
  return -1;
}

static gboolean
run_several(const RunRequest *request, const Scenario *s, RunResult *result, GError **error)
{
  g_autoptr(Lowered) lowered = scenario_lower(s, request->rank, request->steps, error);
  if (lowered == NULL)
    return FALSE;
  ExecutorConfig config = executor_config(request, s, lowered);
  result->info = run_facts(s, lowered, request->rank);
  result->allocator = config.allocator;
  return simulate_ranks(request, s, lowered, &config, result, error);
}

gboolean
run_simulation(const RunRequest *request, RunResult *result, GError **error)
{
  if (is_program(&request->inputs.network))
    return program_run(request, result, error);
  g_autoptr(Scenario) s = scenario_new(&request->inputs, request->rank, error);
  if (s == NULL)
    return FALSE;
  s->memory_limit = request->memory_limit;
  if (ranks_are_asked_for(request, s) && s->plan->failure.given)
    return plan_spec_refuse(
        s->plan, error, "failure",
        "is simulated with equal ranks only: neither \"ranks\" nor --all-ranks");
  if (ranks_are_asked_for(request, s))
    return run_several(request, s, result, error);
  g_autoptr(Lowered) lowered = NULL;
  Failure *failure = NULL;
  result->recording = s->plan->failure.given
                          ? simulate_failure(request, s, &lowered, &failure, error)
                          : simulate_rank(request, s, request->rank, &lowered, error);
  if (result->recording == NULL)
    return FALSE;
  result->info = run_facts(s, lowered, request->rank);
  result->allocator = executor_config(request, s, lowered).allocator;
  prefetch_cost(request, s, result->info);
  result->info->failure = failure;
  if (failure == NULL && !result->recording->out_of_memory.happened)
    result->info->repeated_steps = request->steps - (int) result->recording->steps->len;
  if (s->plan->failure.given && failure == NULL)
    run_info_warn(result->info, "memory runs out before rank %d fails", s->plan->failure.rank);
  if (!result->recording->out_of_memory.happened)
    result->info->rank_without_room = rank_without_room(request, s, request->rank);
  return TRUE;
}
