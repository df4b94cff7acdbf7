/* run_failure.c - first the run in which nobody fails, to know when the moment is; then the one
 * that ends there. */
#include "simulate/run_failure.h"

#include "program/program_totals.h"

/* The failed rank's own part: ranks can differ. */
static gboolean
lost_state(const Scenario *s, const StateSpread *spread, FailureState *state, GError **error)
{
  const FailureSpec *spec = &s->plan->failure;
  g_autoptr(Lowered) failed = scenario_lower(s, spec->rank, spec->step, error);
  if (failed == NULL)
    return FALSE;
  *state = (FailureState){
      .spread = {spread->parameters, spread->optimizer_state},
      .bytes = {program_category_bytes(failed->program, spec->step - 1, CATEGORY_PARAMETER),
                program_category_bytes(failed->program, spec->step - 1, CATEGORY_OPTIMIZER_STATE)},
  };
  return TRUE;
}

static Recording *
run_up_to(const Program *program, ExecutorConfig config, FailureInput *input)
{
  ExecutorStop stop = {0};
  config.stop_at = input->time;
  config.stop = &stop;
  Recording *recording = executor_run(program, &config);
  input->stopped = recording;
  input->issued_step = stop.step;
  input->issued_ops = stop.ops;
  return recording;
}

Recording *
run_failure(const Scenario *s, const Lowered *lowered, const ExecutorConfig *config,
            Failure **failure, GError **error)
{
  if (s->cluster->device->clock != CLOCK_RUNNING) {
    plan_spec_refuse(s->plan, error, "failure", "has no moment on device %s, which takes no time",
                     s->cluster->device->name);
    return NULL;
  }
  ExecutorConfig whole_config = *config;
  whole_config.keep_spans = TRUE;
  g_autoptr(Recording) whole = executor_run(lowered->program, &whole_config);
  const OutOfMemoryRecord *oom = &whole->out_of_memory;
  if (oom->happened && oom->step <= s->plan->failure.step)
    return g_steal_pointer(&whole);
  FailureInput input = {.plan = s->plan, .program = lowered->program, .whole = whole};
  if (!failure_moment(s->plan, whole, &input.time, error) ||
      !lost_state(s, &lowered->spread, &input.state, error))
    return NULL;
  Recording *stopped = run_up_to(lowered->program, whole_config, &input);
  *failure = failure_new(&input);
  return stopped;
}
