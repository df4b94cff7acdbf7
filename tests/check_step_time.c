/* check_step_time.c - what a step's time is made of: whole steps, executed and reported, against
 * what must hold whatever the constants are. */
#include "base/units.h"
#include "collective/collective.h"
#include "exec/executor.h"
#include "program/program_builder.h"
#include "report/summary.h"
#include "report/summary_json.h"
#include "simulate/run_facts.h"
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
  ck_assert_int_eq(off.model->time.compute_contention, 0);
  ck_assert_int_eq(off.model->time.contention, 0);
  ck_assert_int_gt(on.model->time.contention, 0);
  ck_assert_int_eq(on.model->time.compute - on.model->time.compute_contention,
                   off.model->time.compute);
  ck_assert_int_gt(on.model->time.step, off.model->time.step);
}
END_TEST

/* Exact while the path stays the same; to first order otherwise. */
START_TEST(what_contention_costs_is_nearly_the_difference)
{
  static const char *const lengths[] = {"batch.sequence_length=8192", "batch.sequence_length=2048"};
  for (guint i = 0; i < G_N_ELEMENTS(lengths); i++) {
    Simulated *s = lowered("llama-3-8b", "fsdp2", SET(lengths[i]));
    s->scenario->cluster->contention.enabled = FALSE;
    g_auto(Step) off = step_of(s, 0);
    g_auto(Step) on = run("llama-3-8b", "fsdp2", SET(lengths[i]));
    double longer = (double) (on.model->time.step - off.model->time.step);
    ck_assert_double_eq_tol((double) on.model->time.contention, longer, 0.1 * longer);
  }
}
END_TEST

/* ---- overlap ---- */

static gboolean
is_device_work(const Span *span)
{
  return span->step == STEPS && span->kind != SPAN_HOST_BLOCKED && span->kind != SPAN_LOST;
}

/* The last step's works one after another would take this long. */
static SimTime
sum_of_parts(const Recording *r)
{
  SimTime sum = 0;
  for (guint i = 0; i < r->spans->len; i++) {
    const Span *span = &g_array_index(r->spans, Span, i);
    if (is_device_work(span))
      sum += span->end - span->start;
  }
  return sum;
}

/* All parameters are gathered before anything is computed, and reduced when all is: nothing
 * overlaps, so nothing contends either. */
START_TEST(a_single_group_takes_the_sum_of_its_parts)
{
  g_auto(Step) step = run("llama-3.2-1b", "fsdp2",
                          SET("fsdp.blocks_per_group=0", "fsdp.embedding=root", "fsdp.head=root",
                              "fsdp.reshard_after_forward=false", "batch.sequence_length=8192"));
  const TimeSummary *time = &step.model->time;
  ck_assert_int_eq(time->compute_contention, 0);
  ck_assert_int_eq(time->exposed, time->communication);
  ck_assert_int_eq(time->step, sum_of_parts(step.s->recording));
}
END_TEST

/* Without dependences the longer of the two streams is all that is seen, whichever it is. */
START_TEST(perfect_overlap_takes_the_maximum)
{
  for (int kernels = 1; kernels <= 400; kernels *= 20) {
    Simulated *s = lowered("tiny", "fsdp2", SET("batch.sequence_length=64"));
    s->scenario->cluster->contention.enabled = FALSE;
    ProgramBuilder *b = program_builder_new();
    Kernel k = {.kind = KERNEL_MEMORY,
                .dtype = DTYPE_FP32,
                .name = program_builder_name(b, "kernel"),
                .launches = 1,
                .bytes = 1e8};
    Collective c = {.kind = COLLECTIVE_ALL_GATHER,
                    .dtype = DTYPE_BF16,
                    .communicator = program_builder_communicator(b, "shard", 8, 1),
                    .name = program_builder_name(b, "group"),
                    .bytes = (gint64) 1 << 28};
    program_builder_begin_list(b);
    program_builder_begin_list(b);
    program_builder_add_step(b);
    program_builder_collective(b, STREAM_ALL_GATHER, &c);
    program_builder_collective(b, STREAM_ALL_GATHER, &c);
    for (int i = 0; i < kernels; i++)
      program_builder_launch(b, STREAM_COMPUTE, program_builder_kernel(b, &k));
    g_autoptr(Program) program = program_builder_finish(b);
    ExecutorConfig config = {.cluster = s->scenario->cluster,
                             .allocator = allocator_config_default(),
                             .keep_spans = TRUE};
    g_autoptr(Recording) r = executor_run(program, &config);
    SimTime longest[STREAM_COUNT] = {0};
    for (guint i = 0; i < r->spans->len; i++) {
      const Span *span = &g_array_index(r->spans, Span, i);
      longest[span->stream] += span->end - span->start;
    }
    ck_assert_int_eq(recording_step_duration(r, 0),
                     MAX(longest[STREAM_COMPUTE], longest[STREAM_ALL_GATHER]));
    simulated_free(s);
  }
}
END_TEST

static const char *const overlapping[] = {"fsdp1", "fsdp2", "hsdp", "zero3", "ddp"};

/* Gathers and reductions come from streams of their own, but NCCL runs a communicator's in order.
 */
START_TEST(collectives_of_one_communicator_never_run_at_once)
{
  g_auto(Step) step = run("llama-3.2-1b", overlapping[_i], SET("batch.sequence_length=1024"));
  const GArray *spans = step.s->recording->spans;
  g_autoptr(GHashTable) ends = g_hash_table_new(NULL, NULL); /* communicator + 1 -> Span */
  guint collectives = 0;
  for (guint i = 0; i < spans->len; i++) { /* by end */
    const Span *span = &g_array_index(spans, Span, i);
    if (span->kind != SPAN_COLLECTIVE)
      continue;
    gpointer key = GINT_TO_POINTER(span->communicator + 1);
    const Span *before = g_hash_table_lookup(ends, key);
    ck_assert(before == NULL || before->end <= span->start);
    g_hash_table_insert(ends, key, (gpointer) (gsize) span);
    collectives++;
  }
  ck_assert_uint_gt(collectives, 0);
}
END_TEST

/* ---- groups ---- */

static CommunicationSummary
communication(const Step *step, const char *collective)
{
  for (guint i = 0; i < step->model->communication->len; i++) {
    const CommunicationSummary *c =
        &g_array_index(step->model->communication, CommunicationSummary, i);
    if (g_str_equal(c->collective, collective))
      return *c;
  }
  ck_abort_msg("no %s", collective);
}

START_TEST(smaller_groups_send_the_same_bytes_with_more_latency)
{
  static const char *const kinds[] = {"all_gather", "reduce_scatter"};
  Simulated *large = lowered("llama-3.2-1b", "fsdp2", SET("fsdp.blocks_per_group=4"));
  Simulated *small = lowered("llama-3.2-1b", "fsdp2", SET("fsdp.blocks_per_group=1"));
  large->scenario->cluster->contention.enabled = FALSE;
  small->scenario->cluster->contention.enabled = FALSE;
  g_auto(Step) a = step_of(large, 0), b = step_of(small, 0);
  for (guint i = 0; i < G_N_ELEMENTS(kinds); i++) {
    CommunicationSummary four = communication(&a, kinds[i]), one = communication(&b, kinds[i]);
    ck_assert_int_eq(four.bytes, one.bytes);
    ck_assert_int_gt(one.count, four.count);
    ck_assert_int_gt(one.time, four.time);
  }
}
END_TEST

static const GroupSummary *
group(const Step *step, const char *name)
{
  for (guint i = 0; i < step->model->groups->len; i++) {
    const GroupSummary *g = &g_array_index(step->model->groups, GroupSummary, i);
    if (g_str_equal(g->info->name, name))
      return g;
  }
  ck_abort_msg("no group %s", name);
}

/* A block's backward begins with its forward once more; the gather of the block before hides in
 * both. */
START_TEST(checkpointing_widens_the_window_of_a_backward_gather)
{
  g_auto(Step) with = run("llama-3.2-1b", "fsdp2", SET("activation_checkpointing.policy=full"));
  g_auto(Step) without = run("llama-3.2-1b", "fsdp2", SET("activation_checkpointing.policy=none"));
  const GroupSummary *a = group(&with, "layers.5"), *b = group(&without, "layers.5");
  ck_assert(a->backward.gathered && b->backward.gathered);
  ck_assert_int_gt(b->backward.window, 0);
  ck_assert_int_gt(a->backward.window, b->backward.window);
  ck_assert_int_ge(a->backward.window - b->backward.window, b->forward.compute / 2);
}
END_TEST

/* checkpoint(FSDP(block)) runs the hooks again: the recomputation gathers, and so does backward. */
START_TEST(fsdp1_inside_a_checkpoint_gathers_once_more)
{
  g_auto(Step) inside =
      run("llama-3.2-1b", "fsdp1",
          SET("activation_checkpointing.policy=full", "activation_checkpointing.around=fsdp"));
  g_auto(Step) outside =
      run("llama-3.2-1b", "fsdp1",
          SET("activation_checkpointing.policy=full", "activation_checkpointing.around=module"));
  ck_assert_int_eq(group(&inside, "layers.5")->all_gathers,
                   group(&outside, "layers.5")->all_gathers + 1);
}
END_TEST

/* ---- prefetching ---- */

static const char *const prefetches[] = {
    "fsdp.forward_prefetch=2",   "fsdp.forward_prefetch=6",   "fsdp.backward_prefetch=2",
    "fsdp.backward_prefetch=6",  "fsdp.prefetch_budget=1GiB", "fsdp.prefetch_budget=3GiB",
    "fsdp.prefetch_budget=8GiB",
};

static SimTime
lost_time(const Recording *r)
{
  SimTime lost = 0;
  for (guint i = 0; i < r->spans->len; i++) {
    const Span *span = &g_array_index(r->spans, Span, i);
    lost += span->step == STEPS && span->kind == SPAN_LOST ? span->end - span->start : 0;
  }
  return lost;
}

/* Gathers that come early are in nobody's way but in their own queue and in the memory.  If a step
 * is longer with them, that is what the report says, and it says enough. */
START_TEST(prefetching_slows_a_step_only_through_the_queue_or_the_allocator)
{
  static const char *const lengths[] = {"batch.sequence_length=512", "batch.sequence_length=1024",
                                        "batch.sequence_length=2048"};
  for (guint i = 0; i < G_N_ELEMENTS(lengths); i++) {
    Simulated *implicit = lowered("llama-3-8b", "fsdp2", SET(lengths[i]));
    Simulated *early = lowered("llama-3-8b", "fsdp2", SET(lengths[i], prefetches[_i]));
    implicit->scenario->cluster->contention.enabled = FALSE;
    early->scenario->cluster->contention.enabled = FALSE;
    g_auto(Step) a = step_of(implicit, 0), b = step_of(early, 0);
    SimTime longer = b.model->time.step - a.model->time.step;
    SimTime named = b.model->path->queued + lost_time(b.s->recording);
    ck_assert_msg(longer <= 0 || longer <= named, "%s %s: %d ns longer, %d named", lengths[i],
                  prefetches[_i], (int) longer, (int) named);
  }
}
END_TEST

/* What waits at any point is within the budget, and one more group would not be. */
START_TEST(a_budget_is_used_up_and_kept)
{
  const gint64 budget = 3 * GIB;
  g_auto(Step) step = run("llama-3-8b", "fsdp2", SET("fsdp.prefetch_budget=3GiB"));
  const GArray *groups = step.info->groups;
  for (guint i = 0; i < groups->len; i++) {
    const GroupInfo *g = &g_array_index(groups, GroupInfo, i);
    gint64 bytes = 0;
    guint depth = 0;
    while (i + depth + 1 < groups->len &&
           bytes + g_array_index(groups, GroupInfo, i + depth + 1).unsharded_bytes <= budget)
      bytes += g_array_index(groups, GroupInfo, i + ++depth).unsharded_bytes;
    ck_assert_int_eq(g->forward_prefetches, depth);
    ck_assert_int_eq(g->forward_prefetched_bytes, bytes);
    ck_assert_int_le(g->backward_prefetched_bytes, budget);
  }
}
END_TEST

/* ---- replicas ---- */

/* The outer all-reduces carry each rank's shard of the gradients; the optimizer reads what the last
 * of them leaves.  A GPU has one of the node's eight NICs for it. */
START_TEST(the_optimizer_waits_for_the_last_outer_all_reduce)
{
  g_auto(Step) step = run("llama-3.2-1b", "hsdp",
                          SET("mesh.shard=8", "mesh.replicate=2", "batch.sequence_length=1024"));
  const Recording *r = step.s->recording;
  SimTime reduced = 0, stepped = G_MAXINT64;
  gint64 gradient_bytes = 0;
  for (guint i = 0; i < r->spans->len; i++) {
    const Span *span = &g_array_index(r->spans, Span, i);
    if (span->step != STEPS)
      continue;
    if (span->communicator >= 0 && g_str_equal(recording_text(r, span->communicator), "replicate"))
      reduced = MAX(reduced, span->end);
    if (span->phase > 0 && is_device_work(span) &&
        g_str_equal(recording_text(r, g_array_index(r->ranges, Range, span->phase - 1).name),
                    "optimizer"))
      stepped = MIN(stepped, span->start);
  }
  for (guint i = 0; i < step.info->groups->len; i++)
    gradient_bytes += g_array_index(step.info->groups, GroupInfo, i).parameters *
                      dtype_size(step.s->scenario->plan->precision.reduce);
  ck_assert_int_gt(reduced, 0);
  ck_assert_int_ge(stepped, reduced);
  CommunicationSummary outer = communication(&step, "all_reduce");
  ck_assert_str_eq(outer.communicator, "replicate");
  ck_assert_int_eq(outer.bytes, gradient_bytes / 8);
  const ClusterSpec *cluster = step.s->scenario->cluster;
  GroupShape shape = group_shape(cluster, 2, 8);
  ck_assert_double_eq(shape.nics_per_group, (double) cluster->nics / 8);
  double fastest = (double) outer.bytes / cluster->nic_bandwidth; /* 2 (R-1)/R = 1 */
  ck_assert_double_ge((double) outer.time * 1e-9, fastest);
}
END_TEST

START_TEST(the_same_input_gives_the_same_report)
{
  g_auto(Step) a = run("llama-3.2-1b", "hsdp", SET("mesh.shard=8", "mesh.replicate=2"));
  g_auto(Step) b = run("llama-3.2-1b", "hsdp", SET("mesh.shard=8", "mesh.replicate=2"));
  g_autofree char *one = summary_json(a.model), *other = summary_json(b.model);
  ck_assert_str_eq(one, other);
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
  tcase_add_test(tcase, what_contention_costs_is_nearly_the_difference);
  tcase_add_test(tcase, a_single_group_takes_the_sum_of_its_parts);
  tcase_add_test(tcase, perfect_overlap_takes_the_maximum);
  tcase_add_loop_test(tcase, collectives_of_one_communicator_never_run_at_once, 0,
                      G_N_ELEMENTS(overlapping));
  tcase_add_test(tcase, smaller_groups_send_the_same_bytes_with_more_latency);
  tcase_add_test(tcase, checkpointing_widens_the_window_of_a_backward_gather);
  tcase_add_test(tcase, fsdp1_inside_a_checkpoint_gathers_once_more);
  tcase_add_loop_test(tcase, prefetching_slows_a_step_only_through_the_queue_or_the_allocator, 0,
                      G_N_ELEMENTS(prefetches));
  tcase_add_test(tcase, a_budget_is_used_up_and_kept);
  tcase_add_test(tcase, the_optimizer_waits_for_the_last_outer_all_reduce);
  tcase_add_test(tcase, the_same_input_gives_the_same_report);
  return suite;
}
