/* check_step_time.c - what a step's time is made of: whole steps, executed and reported, against
 * what must hold whatever the constants are. */
#include "base/units.h"
#include "cli/run_facts.h"
#include "exec/executor.h"
#include "report/summary.h"
#include "simulation.h"
#include "tap_main.h"
#include <math.h>

#define STEPS 3

/* A step, executed and summed up. */
typedef struct {
  Simulated *s;
  RunInfo *info;
  ReportModel *model;
} Step;

/* Executes with the cluster as the scenario has it; limit 0: more than enough. */
static Step
step_of(Simulated *s, gint64 limit)
{
  ExecutorConfig config = {
      .cluster = s->scenario->cluster, .allocator = allocator_config_default(), .keep_spans = TRUE};
  if (limit > 0)
    config.allocator.memory_limit = limit;
  s->recording = executor_run(s->lowered->program, &config);
  Step step = {.s = s, .info = run_facts(s->scenario, s->lowered, 0)};
  step.model = report_model_new(s->recording, step.info);
  return step;
}

static void
step_clear(Step *step)
{
  report_model_free(step->model);
  run_info_free(step->info);
  simulated_free(step->s);
}
G_DEFINE_AUTO_CLEANUP_CLEAR_FUNC(Step, step_clear)

static Simulated *
lowered(const char *network, const char *plan, const char *const *set)
{
  Simulation simulation = {.network = network, .plan = plan, .set = set};
  return simulation_lower(&simulation, STEPS);
}

static Step
run(const char *network, const char *plan, const char *const *set)
{
  return step_of(lowered(network, plan, set), 0);
}

#define SET(...) ((const char *const[]){__VA_ARGS__, NULL})

/* ---- what bounds a step ---- */

START_TEST(a_small_model_with_few_tokens_is_bound_by_the_host)
{
  static const char *const plans[] = {"fsdp1", "fsdp2", "zero1", "zero3"};
  for (guint i = 0; i < G_N_ELEMENTS(plans); i++) {
    g_auto(Step) step =
        run("gpt2", plans[i], SET("batch.sequence_length=1024", "batch.micro_batch=2"));
    ck_assert_int_eq(step.model->time.bound, BOUND_HOST);
  }
}
END_TEST

START_TEST(a_large_model_is_not_bound_by_the_host)
{
  static const char *const plans[] = {"fsdp1", "fsdp2"};
  for (guint i = 0; i < G_N_ELEMENTS(plans); i++) {
    g_auto(Step) step = run("llama-3-8b", plans[i], SET("batch.sequence_length=2048"));
    ck_assert_int_eq(step.model->time.bound, BOUND_COMPUTE);
    SimTime without_device = step.model->time.host_bound - step.model->time.rate_limited;
    ck_assert_double_le((double) without_device, 0.02 * (double) step.model->time.step);
  }
}
END_TEST

/* Each module call costs the host's time for one: the step of a host-bound model is longer by
 * those, forward once and again where a checkpoint runs it again. */
START_TEST(every_module_call_takes_the_hosts_time)
{
  Simulated *fast = lowered("tiny", "{'strategy': 'none'}", SET("batch.sequence_length=512"));
  Simulated *slow = lowered("tiny", "{'strategy': 'none'}", SET("batch.sequence_length=512"));
  const double more_ns = 1e6;
  slow->scenario->cluster->device->host_module_ns += more_ns;
  int calls = 0;
  const GArray *ops = program_step(slow->lowered->program, STEPS - 1)->ops;
  for (guint i = 0; i < ops->len; i++) {
    const ProgramOp *op = &g_array_index(ops, ProgramOp, i);
    if (op->kind == PROGRAM_HOST_WORK && op->a == HOST_WORK_MODULE)
      calls += op->b;
  }
  int called = 0; /* modules that have parameters are all called */
  for (guint i = 0; i < slow->scenario->network->modules->len; i++)
    called += network_module(slow->scenario->network, (int) i)->parameter_count > 0;
  ck_assert_int_ge(calls, called);
  g_auto(Step) a = step_of(fast, 0), b = step_of(slow, 0);
  ck_assert_double_eq_tol((double) (b.model->time.step - a.model->time.step), calls * more_ns,
                          0.02 * calls * more_ns);
}
END_TEST

/* FSDP1 lets the host run two gathers ahead.  With a prefetch it could be further: what the compute
 * stream waits meanwhile is the limiter's. */
START_TEST(gaps_of_a_rate_limiter_are_named)
{
  const char *const set[] = {"batch.sequence_length=512", NULL};
  const char *const unlimited[] = {"batch.sequence_length=512", "fsdp.limit_all_gathers=false",
                                   NULL};
  g_auto(Step) with = run("llama-3-8b", "fsdp1", set);
  g_auto(Step) without = run("llama-3-8b", "fsdp1", unlimited);
  ck_assert_int_gt(with.model->time.rate_limited, 0);
  ck_assert_int_eq(without.model->time.rate_limited, 0);
  ck_assert_int_le(with.model->time.rate_limited,
                   with.model->time.host_bound + with.model->time.exposed);
}
END_TEST

static int
launches_of(const Simulated *s, const char *name)
{
  const Program *program = s->lowered->program;
  const GArray *ops = program_step(program, STEPS - 1)->ops;
  int launches = 0;
  for (guint i = 0; i < ops->len; i++) {
    const ProgramOp *op = &g_array_index(ops, ProgramOp, i);
    if (op->kind == PROGRAM_LAUNCH &&
        g_str_equal(program_text(program, g_array_index(program->kernels, Kernel, op->a).name),
                    name))
      launches++;
  }
  return launches;
}

/* A Llama's block ends with a product and a sum, of which backward needs nothing but the product's
 * input. */
START_TEST(without_early_stop_the_last_product_of_a_block_is_computed_again)
{
  enum { BLOCKS = 16 }; /* of Llama 3.2 1B, with seven products each */
  Simulated *stops = lowered("llama-3.2-1b", "fsdp2", SET("activation_checkpointing.policy=full"));
  Simulated *goes_on = lowered(
      "llama-3.2-1b", "fsdp2",
      SET("activation_checkpointing.policy=full", "activation_checkpointing.early_stop=false"));
  ck_assert_int_eq(launches_of(goes_on, "mm"), launches_of(stops, "mm") + BLOCKS);
  ck_assert_int_eq(launches_of(goes_on, "add"), launches_of(stops, "add") + BLOCKS);
  ck_assert_int_eq(launches_of(goes_on, "mm"), BLOCKS * 7 * 4 + 3);
  simulated_free(stops);
  simulated_free(goes_on);
}
END_TEST

/* In 30 GiB Llama 3 8B on 8 ranks fits, but cached segments have to be given back in each step. */
START_TEST(what_allocator_retries_cost_is_reported)
{
  Simulated *wide = lowered("llama-3-8b", "fsdp2", SET("mesh.shard=8"));
  g_auto(Step) roomy = step_of(wide, 0);
  Simulated *narrow = lowered("llama-3-8b", "fsdp2", SET("mesh.shard=8"));
  g_auto(Step) tight = step_of(narrow, 30 * GIB);
  ck_assert_int_eq(roomy.model->time.allocator, 0);
  ck_assert_int_gt(tight.model->time.allocator, 0);
  double longer = (double) (tight.model->time.step - roomy.model->time.step);
  ck_assert_double_ge(longer, 0.8 * (double) tight.model->time.allocator);
}
END_TEST

/* ---- contention ---- */

START_TEST(without_contention_nothing_takes_longer_than_alone)
{
  Simulated *s = lowered("llama-3.2-1b", "fsdp2", SET("batch.sequence_length=2048"));
  s->scenario->cluster->contention.enabled = FALSE;
  g_auto(Step) off = step_of(s, 0);
  g_auto(Step) on = run("llama-3.2-1b", "fsdp2", SET("batch.sequence_length=2048"));
  ck_assert_int_eq(off.model->time.contention, 0);
  ck_assert_int_gt(on.model->time.contention, 0);
  ck_assert_int_eq(on.model->time.compute - on.model->time.contention, off.model->time.compute);
  ck_assert_int_gt(on.model->time.step, off.model->time.step);
}
END_TEST

Suite *
test_suite(void)
{
  Suite *suite = suite_create("step_time");
  TCase *tcase = tcase_create("step_time");

  suite_add_tcase(suite, tcase);
  tcase_add_test(tcase, a_small_model_with_few_tokens_is_bound_by_the_host);
  tcase_add_test(tcase, a_large_model_is_not_bound_by_the_host);
  tcase_add_test(tcase, every_module_call_takes_the_hosts_time);
  tcase_add_test(tcase, gaps_of_a_rate_limiter_are_named);
  tcase_add_test(tcase, without_early_stop_the_last_product_of_a_block_is_computed_again);
  tcase_add_test(tcase, what_allocator_retries_cost_is_reported);
  tcase_add_test(tcase, without_contention_nothing_takes_longer_than_alone);
  return suite;
}
