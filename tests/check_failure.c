/* check_failure.c - what a worker's failure leaves, under every family of strategies.
 *
 * Two blocks of one linear layer each, 64 x 64, without embedding and head: 8192 parameters in
 * fp32, so that everything can be counted by hand.  SGD with momentum keeps one more fp32 number a
 * parameter.  When things happen is not asked here, only in which order. */
#include "simulate/run_failure.h"
#include "simulation.h"
#include "spec/plan_spec.h"
#include "tap_main.h"

#include <string.h>

#define WITHOUT_LIMIT ((gint64) 1 << 60)
#define PARAMETERS 8192

static const char network[] = "{'family': 'blocks', 'hidden': 64, 'embedding': false, "
                              "'head': false, 'loss': 'sum', 'blocks': [{'repeat': 2, 'ops': ["
                              "{'op': 'linear', 'out': 64}]}]}";
static const char plan[] = "{'strategy': 'none', 'batch': {'micro_batch': 2, 'sequence_length': "
                           "24}, 'optimizer': {'name': 'sgd'}}";

/* A run that a failure ends. */
typedef struct {
  Simulated *simulated; /* its recording is the one that ended */
  Recording *whole;
  Failure *failure;
} Failed;

static void
failed_clear(Failed *f)
{
  failure_free(f->failure);
  recording_free(f->whole);
  simulated_free(f->simulated);
}
G_DEFINE_AUTO_CLEANUP_CLEAR_FUNC(Failed, failed_clear)

/* set: assignments with | between them, as moments have spaces. */
static Failed
failed_or_refused(const char *set, GError **error)
{
  enum { STEPS = 3 };
  g_auto(GStrv) words = g_strsplit(set, "|", -1);
  const Simulation simulation = {network, plan, (const char *const *) words, 0};
  Failed f = {.simulated = simulation_lower(&simulation, STEPS)};
  ExecutorConfig config = {.cluster = f.simulated->scenario->cluster,
                           .allocator = allocator_config_default(),
                           .keep_spans = TRUE};
  config.allocator.memory_limit = WITHOUT_LIMIT;
  f.whole = executor_run(f.simulated->lowered->program, &config);
  f.simulated->recording =
      run_failure(f.simulated->scenario, f.simulated->lowered, &config, &f.failure, error);
  return f;
}

static Failed
failed_by(const char *set)
{
  g_autoptr(GError) error = NULL;
  Failed f = failed_or_refused(set, &error);
  ck_assert_msg(f.failure != NULL, "%s: %s", set, error ? error->message : "no failure");
  return f;
}

static void
assert_ranks(const RankSet *set, const char *expected)
{
  g_autofree char *text = rank_set_text(set);
  ck_assert_str_eq(text, expected);
}

/* One stuck collective as a line: "shard 7 all_gather layers.0 step 2: ranks 0, 2 | rank 1". */
static void
assert_stuck(const Failure *failure, guint i, const char *expected)
{
  ck_assert_uint_lt(i, failure->stuck->len);
  const StuckInfo *s = &g_array_index(failure->stuck, StuckInfo, i);
  g_autofree char *waiting = rank_set_text(&s->waiting), *missing = rank_set_text(&s->missing);
  g_autofree char *text =
      g_strdup_printf("%s %" G_GINT64_FORMAT " %s %s step %d: %s | %s", s->communicator, s->number,
                      s->collective, s->group, s->step, waiting, missing);
  ck_assert_str_eq(text, expected);
}

static SimTime
end_of_step(const Failed *f, int step)
{
  return g_array_index(f->whole->steps, StepRecord, step - 1).end;
}

/* ---- FSDP2 */

/* A step sends 2 gathers in forward, 2 in backward and 2 reduce-scatters in each shard group, and
 * 2 all-reduces between replicas: the root has no parameters.  Rank 5 is the second of the second
 * replica's four.  Its replica needs it at once; the other replica goes on until it needs partners
 * that hang. */
START_TEST(a_replica_holds_what_hsdp_loses)
{
  g_auto(Failed) f = failed_by("strategy=fsdp2|mesh.shard=4|mesh.replicate=2|failure.rank=5|"
                               "failure.at=step 2 forward 0");
  const Failure *failure = f.failure;
  for (int k = 0; k < HELD_STATES; k++) {
    ck_assert_int_eq(failure->held[k].lost_bytes, 4 * PARAMETERS / 4);
    assert_ranks(&failure->held[k].copies, "rank 1");
    assert_ranks(&failure->held[k].others, "ranks 0, 2-4, 6-7");
  }
  ck_assert_uint_eq(failure->stuck->len, 3);
  assert_stuck(failure, 0, "shard 7 all_gather layers.0 step 2: ranks 4, 6-7 | rank 5");
  assert_stuck(failure, 1, "replicate 3 all_reduce layers.1 step 2: rank 1 | rank 5");
  assert_stuck(failure, 2, "replicate 3 all_reduce layers.1 step 2: ranks 0, 2-3 | ranks 4, 6-7");
  ck_assert(failure->from_others);
  ck_assert_int_eq(failure->last_step, 1);
  ck_assert_int_eq(failure->lost, failure->time - end_of_step(&f, 1));
  ck_assert_int_ge(failure->lost, 0);
}
END_TEST

/* Pure sharding: nobody else has the failed rank's rows, so what was saved is the last state; the
 * others finish the step without noticing and hang in the next one's first gather, the 13th. */
START_TEST(pure_sharding_goes_back_to_the_last_save)
{
  static const char set[] = "strategy=fsdp2|mesh.shard=4|failure.rank=2|"
                            "failure.at=step 2 optimizer 0.5";
  g_auto(Failed) f = failed_by(set);
  ck_assert(!f.failure->from_others);
  ck_assert_int_eq(f.failure->last_step, 0);
  ck_assert_int_eq(f.failure->lost,
                   f.failure->time - g_array_index(f.whole->steps, StepRecord, 0).start);
  ck_assert(f.failure->others_agree);
  ck_assert_int_eq(f.failure->others_step, 2);
  assert_ranks(&f.failure->held[HELD_PARAMETERS].copies, "no rank");
  assert_ranks(&f.failure->held[HELD_PARAMETERS].others, "ranks 0-1, 3");
  ck_assert_uint_eq(f.failure->stuck->len, 1);
  assert_stuck(f.failure, 0, "shard 13 all_gather layers.0 step 3: ranks 0-1, 3 | rank 2");
  g_autofree char *saved = g_strconcat(set, "|failure.last_save=1", NULL);
  g_auto(Failed) g = failed_by(saved);
  ck_assert_int_eq(g.failure->last_step, 1);
  ck_assert_int_eq(g.failure->lost, g.failure->time - end_of_step(&g, 1));
}
END_TEST

/* Saves after every step, or every second one: the last before step 3. */
START_TEST(a_plan_that_saves_knows_its_last_save)
{
  static const struct {
    const char *save;
    int last;
  } cases[] = {
      {"phases.save.every=1", 2},
      {"phases.save.every=2", 2},
      {"phases.save.every=3", 0},
      {"phases.save.every=1|phases.save.optimizer=false", 0}, /* no state to go on from */
      {"phases.save.every=1|failure.last_save=1", 1},
  };
  g_autofree char *set = g_strdup_printf("strategy=fsdp2|mesh.shard=4|failure.rank=1|"
                                         "failure.at=step 3 forward 0|%s",
                                         cases[_i].save);
  g_auto(Failed) f = failed_by(set);
  ck_assert(!f.failure->from_others);
  ck_assert_int_eq(f.failure->last_step, cases[_i].last);
}
END_TEST

/* Reductions begin with the last layer; by the end of backward all are done, at its beginning none,
 * and nothing of the step is updated. */
START_TEST(reductions_are_pending_until_the_device_has_done_them)
{
  static const struct {
    const char *at;
    int done;
  } moments[] = {{"backward 0", 0}, {"backward 1", 2}};
  for (guint i = 0; i < G_N_ELEMENTS(moments); i++) {
    g_autofree char *set = g_strdup_printf("strategy=fsdp2|mesh.shard=4|failure.rank=1|"
                                           "failure.at=step 2 %s",
                                           moments[i].at);
    g_auto(Failed) f = failed_by(set);
    const GArray *reductions = f.failure->reductions;
    ck_assert_uint_eq(reductions->len, 2);
    int done = 0;
    for (guint k = 0; k < reductions->len; k++) {
      const ReductionState *state = &g_array_index(reductions, ReductionState, k);
      ck_assert_str_eq(state->group, k == 0 ? "layers.1" : "layers.0");
      ck_assert_int_eq(state->all, 1);
      done += state->done;
    }
    ck_assert_int_eq(done, moments[i].done);
    ck_assert_int_eq(f.failure->held[HELD_PARAMETERS].updated, 0);
    ck_assert_int_eq(f.failure->held[HELD_PARAMETERS].tensors, 2);
    ck_assert_int_eq(f.failure->micro_batches_done, moments[i].done == 2);
  }
}
END_TEST

START_TEST(the_end_of_the_optimizer_has_updated_everything)
{
  g_auto(Failed) f = failed_by("strategy=fsdp2|mesh.shard=4|failure.rank=1|"
                               "failure.at=step 2 optimizer 1");
  for (int k = 0; k < HELD_STATES; k++) {
    ck_assert_int_eq(f.failure->held[k].tensors, 2);
    ck_assert_int_eq(f.failure->held[k].updated, 2);
    ck_assert_int_eq(f.failure->held[k].updated_bytes, 4 * PARAMETERS / 4);
  }
}
END_TEST

/* Accumulated gradients of both layers are whole, in fp32, after a micro-batch that reduces
 * nothing. */
START_TEST(gradients_under_no_sync_are_whole_and_void)
{
  g_auto(Failed) f = failed_by("strategy=fsdp2|mesh.shard=4|accumulation.steps=2|"
                               "accumulation.sync_every_step=false|failure.rank=0|"
                               "failure.at=step 2 micro_batch 1 forward 0");
  ck_assert_int_eq(f.failure->micro_batches_done, 1);
  ck_assert_int_eq(f.failure->alive[CATEGORY_UNSHARDED_GRADIENT], 4 * PARAMETERS);
  ck_assert_int_eq(f.failure->alive[CATEGORY_SHARDED_GRADIENT], 0);
}
END_TEST

/* ---- DDP, none */

/* Every rank has everything: before the update the end of step 1 stands, and once the gradients are
 * reduced the others need nobody to finish step 2. */
START_TEST(ddp_loses_no_state)
{
  g_auto(Failed) f = failed_by("strategy=ddp|mesh.replicate=3|failure.rank=1|"
                               "failure.at=step 2 backward 0");
  ck_assert_int_eq(f.failure->held[HELD_PARAMETERS].lost_bytes, 4 * PARAMETERS);
  assert_ranks(&f.failure->held[HELD_OPTIMIZER_STATE].copies, "ranks 0, 2");
  assert_ranks(&f.failure->held[HELD_OPTIMIZER_STATE].others, "no rank");
  ck_assert(f.failure->from_others);
  ck_assert_int_eq(f.failure->last_step, 1);
  assert_stuck(f.failure, 0, "replicate 2 all_reduce bucket step 2: ranks 0, 2 | rank 1");
  g_auto(Failed) late = failed_by("strategy=ddp|mesh.replicate=3|failure.rank=1|"
                                  "failure.at=step 2 optimizer 0.5");
  ck_assert(late.failure->from_others);
  ck_assert_int_eq(late.failure->last_step, 2);
  ck_assert_int_eq(late.failure->lost, 0);
  assert_stuck(late.failure, 0, "replicate 3 all_reduce bucket step 3: ranks 0, 2 | rank 1");
}
END_TEST

/* With views of the bucket nothing comes after the all-reduce in backward. */
START_TEST(a_rank_can_fail_inside_a_collective)
{
  g_auto(Failed) f = failed_by("strategy=ddp|mesh.replicate=3|ddp.gradient_as_bucket_view=true|"
                               "failure.rank=1|failure.at=step 2 backward 0.999");
  ck_assert_uint_eq(f.failure->stuck->len, 1);
  const StuckInfo *stuck = &g_array_index(f.failure->stuck, StuckInfo, 0);
  ck_assert(stuck->failed_inside);
  assert_stuck(f.failure, 0, "replicate 2 all_reduce bucket step 2: ranks 0, 2 | no rank");
  const ReductionState *state = &g_array_index(f.failure->reductions, ReductionState, 0);
  ck_assert_int_eq(state->in_flight, 1);
  ck_assert_int_eq(state->done, 0);
}
END_TEST

START_TEST(alone_nobody_waits_and_nothing_survives)
{
  g_auto(Failed) f = failed_by("strategy=none|failure.rank=0|failure.at=step 3 forward 0.5");
  ck_assert_uint_eq(f.failure->stuck->len, 0);
  ck_assert_uint_eq(f.failure->reductions->len, 0);
  ck_assert(!f.failure->from_others);
  ck_assert_int_eq(f.failure->last_step, 0);
  assert_ranks(&f.failure->held[HELD_PARAMETERS].others, "no rank");
}
END_TEST

/* ---- DeepSpeed */

/* Stages 1 and 2: parameters are everywhere, the failed rank's part of master weights and momentum
 * nowhere else.  A step all-reduces the gradients, then the norm, and gathers the parameters: in
 * the middle of the optimizer the others have own parts that are updated, and parameters that are
 * not. */
START_TEST(zero_1_and_2_keep_the_parameters_alone)
{
  static const char *const names[] = {"zero1", "zero2"};
  g_autofree char *set = g_strdup_printf("strategy=%s|mesh.shard=4|failure.rank=3|"
                                         "failure.at=step 2 forward 0",
                                         names[_i]);
  g_auto(Failed) f = failed_by(set);
  ck_assert_int_eq(f.failure->held[HELD_PARAMETERS].lost_bytes, 4 * PARAMETERS);
  assert_ranks(&f.failure->held[HELD_PARAMETERS].copies, "ranks 0-2");
  ck_assert_int_eq(f.failure->held[HELD_OPTIMIZER_STATE].lost_bytes, 2 * 4 * PARAMETERS / 4);
  assert_ranks(&f.failure->held[HELD_OPTIMIZER_STATE].copies, "no rank");
  assert_ranks(&f.failure->held[HELD_OPTIMIZER_STATE].others, "ranks 0-2");
  ck_assert(!f.failure->from_others);
  ck_assert_int_eq(f.failure->last_step, 0);
  assert_stuck(f.failure, 0, "shard 4 all_reduce gradients step 2: ranks 0-2 | rank 3");
  g_autofree char *in_step = g_strdup_printf("strategy=%s|mesh.shard=4|failure.rank=3|"
                                             "failure.at=step 2 optimizer 0",
                                             names[_i]);
  g_auto(Failed) late = failed_by(in_step);
  ck_assert(late.failure->others_agree); /* nobody updates anything before the norm is known */
  ck_assert_int_eq(late.failure->others_step, 1);
  assert_stuck(late.failure, 0, "shard 5 all_reduce scalar step 2: ranks 0-2 | rank 3");
}
END_TEST

/* bf16 with sums in fp32 is BF16_Optimizer, which asks nobody for the norm: the others update their
 * parts, and wait for the parameters' gather. */
START_TEST(an_update_without_its_gather_is_no_state)
{
  g_auto(Failed) f = failed_by("strategy=zero1|mesh.shard=4|precision.parameters=bf16|"
                               "deepspeed.grad_accum_dtype=\"fp32\"|failure.rank=0|"
                               "failure.at=step 2 optimizer 0");
  ck_assert(!f.failure->others_agree);
  ck_assert(!f.failure->from_others);
  assert_stuck(f.failure, 0, "shard 4 all_gather flat parameters step 2: ranks 1-3 | rank 0");
}
END_TEST

/* InternEvo's zero1 groups are neighbours: rank 1's owner part is also rank 3's. */
START_TEST(owners_in_another_zero_group_hold_the_same_part)
{
  g_auto(Failed) f = failed_by("strategy=internevo|optimizer.name=adamw|mesh.shard=2|"
                               "mesh.replicate=2|precision.parameters=bf16|failure.rank=1|"
                               "failure.at=step 2 forward 0");
  assert_ranks(&f.failure->held[HELD_PARAMETERS].copies, "ranks 0, 2-3");
  assert_ranks(&f.failure->held[HELD_OPTIMIZER_STATE].copies, "rank 3");
  assert_ranks(&f.failure->held[HELD_OPTIMIZER_STATE].others, "ranks 0, 2");
  ck_assert(f.failure->from_others);
  ck_assert_int_eq(f.failure->last_step, 1);
}
END_TEST

START_TEST(zero_0_has_everything_everywhere)
{
  g_auto(Failed) f = failed_by("strategy=zero0|mesh.shard=4|failure.rank=1|"
                               "failure.at=step 2 backward 0");
  assert_ranks(&f.failure->held[HELD_OPTIMIZER_STATE].copies, "ranks 0, 2-3");
  ck_assert(f.failure->from_others);
  ck_assert_int_eq(f.failure->last_step, 1);
}
END_TEST

/* ZeRO-2 reduces in every micro-batch: one bucket each. */
START_TEST(zero_2_has_reduced_the_first_micro_batch)
{
  g_auto(Failed) f = failed_by("strategy=zero2|mesh.shard=4|accumulation.steps=2|failure.rank=3|"
                               "failure.at=step 2 micro_batch 1 forward 0.5");
  ck_assert_uint_eq(f.failure->reductions->len, 1);
  const ReductionState *state = &g_array_index(f.failure->reductions, ReductionState, 0);
  ck_assert_int_eq(state->all, 2);
  ck_assert_int_eq(state->done, 1);
  ck_assert_int_eq(f.failure->micro_batches_done, 1);
}
END_TEST

/* hpZ keeps a second copy of the parameters among neighbours: of rank 1's part that is rank 3's. */
START_TEST(zero_3_loses_shards_and_hpz_keeps_the_parameters)
{
  g_auto(Failed) f = failed_by("strategy=zero3|mesh.shard=4|failure.rank=1|"
                               "deepspeed.stage3_param_persistence_threshold=0|"
                               "failure.at=step 2 forward 0");
  ck_assert_int_eq(f.failure->held[HELD_PARAMETERS].lost_bytes, 4 * PARAMETERS / 4);
  ck_assert_int_eq(f.failure->held[HELD_OPTIMIZER_STATE].lost_bytes, 2 * 4 * PARAMETERS / 4);
  assert_ranks(&f.failure->held[HELD_PARAMETERS].copies, "no rank");
  assert_ranks(&f.failure->held[HELD_PARAMETERS].others, "ranks 0, 2-3");
  ck_assert(!f.failure->from_others);
  g_auto(Failed) hpz = failed_by("strategy=zero3|mesh.shard=4|failure.rank=1|"
                                 "deepspeed.stage3_param_persistence_threshold=0|"
                                 "deepspeed.zero_hpz_partition_size=2|failure.at=step 2 forward 0");
  assert_ranks(&hpz.failure->held[HELD_PARAMETERS].copies, "rank 3");
  assert_ranks(&hpz.failure->held[HELD_OPTIMIZER_STATE].copies, "no rank");
  ck_assert(!hpz.failure->from_others);
}
END_TEST

/* ---- FSDP1 */

START_TEST(fsdp1_loses_what_its_strategy_shards)
{
  static const struct {
    const char *set, *copies;
    gboolean from_others;
  } cases[] = {
      {"mesh.shard=4|fsdp.sharding_strategy=FULL_SHARD", "no rank", FALSE},
      {"mesh.shard=4|fsdp.sharding_strategy=SHARD_GRAD_OP", "no rank", FALSE},
      {"mesh.replicate=4|fsdp.sharding_strategy=NO_SHARD", "ranks 0, 2-3", TRUE},
      {"mesh.shard=2|mesh.replicate=2|fsdp.sharding_strategy=HYBRID_SHARD", "rank 3", TRUE},
      {"mesh.shard=2|mesh.replicate=2|fsdp.sharding_strategy=_HYBRID_SHARD_ZERO2", "rank 3", TRUE},
  };
  g_autofree char *set = g_strdup_printf("strategy=fsdp1|%s|failure.rank=1|"
                                         "failure.at=step 2 backward 0",
                                         cases[_i].set);
  g_auto(Failed) f = failed_by(set);
  assert_ranks(&f.failure->held[HELD_PARAMETERS].copies, cases[_i].copies);
  assert_ranks(&f.failure->held[HELD_OPTIMIZER_STATE].copies, cases[_i].copies);
  ck_assert_int_eq(f.failure->from_others, cases[_i].from_others);
  ck_assert_int_eq(f.failure->last_step, cases[_i].from_others);
  ck_assert_uint_ge(f.failure->stuck->len, 1);
}
END_TEST

/* ---- the moment, and the run up to it */

/* What was recorded is what the whole run recorded until then. */
START_TEST(a_run_ends_at_the_failure_and_is_the_same_until_then)
{
  g_auto(Failed) f = failed_by("strategy=fsdp2|mesh.shard=4|failure.rank=1|"
                               "failure.at=step 2 backward 0.4");
  const Recording *whole = f.whole, *stopped = f.simulated->recording;
  const char *key = NULL;
  g_autofree char *broken = recording_check(stopped, &key);
  ck_assert_ptr_null(broken);
  guint spans = 0;
  for (guint i = 0; i < whole->spans->len; i++)
    spans += g_array_index(whole->spans, Span, i).end <= f.failure->time;
  ck_assert_uint_eq(stopped->spans->len, spans);
  ck_assert_uint_lt(spans, whole->spans->len);
  for (guint i = 0; i < spans; i++)
    ck_assert_int_eq(g_array_index(stopped->spans, Span, i).end,
                     g_array_index(whole->spans, Span, i).end);
  ck_assert_uint_lt(stopped->memory->len, whole->memory->len);
  ck_assert_mem_eq(stopped->memory->data, whole->memory->data,
                   stopped->memory->len * sizeof(MemoryEvent));
  const StepRecord *last = &g_array_index(stopped->steps, StepRecord, stopped->steps->len - 1);
  ck_assert_int_eq(last->end, f.failure->time);
}
END_TEST

START_TEST(the_fraction_is_of_the_time_between_the_phases_ends)
{
  static const char *const at[] = {"0", "0.25", "0.5", "1"};
  SimTime times[G_N_ELEMENTS(at)];
  for (guint i = 0; i < G_N_ELEMENTS(at); i++) {
    g_autofree char *set = g_strdup_printf("strategy=fsdp2|mesh.shard=4|failure.rank=1|"
                                           "failure.at=step 2 forward %s",
                                           at[i]);
    g_auto(Failed) f = failed_by(set);
    times[i] = f.failure->time;
    ck_assert_int_gt(times[i], end_of_step(&f, 1) - 1);
    ck_assert_int_lt(times[i], end_of_step(&f, 2));
  }
  ck_assert_int_lt(times[0], times[1]);
  ck_assert_int_le(ABS(2 * (times[1] - times[0]) - (times[2] - times[0])), 1);
  ck_assert_int_le(ABS(2 * (times[2] - times[0]) - (times[3] - times[0])), 1);
}
END_TEST

static const struct {
  const char *set, *message;
} refused[] = {
    {"failure.rank=1|failure.at=step 1 forward 0", "key 'failure.rank': 1 is not in 0..0"},
    {"failure.rank=0", "key 'failure.at' is missing"},
    {"failure.at=step 1 forward 0", "key 'failure.rank' is missing"},
    {"failure.rank=0|failure.at=soon", "'soon' is not \"step N PHASE FRACTION\""},
    {"failure.rank=0|failure.at=step 0 forward 0", "step '0' is not in 1..10000"},
    {"failure.rank=0|failure.at=step 2 backwards 0.4",
     "phase 'backwards' is not one of zero_grad, forward, backward, clip, optimizer"},
    {"failure.rank=0|failure.at=step 2 backward 1.5", "'1.5' is not a fraction from 0 to 1"},
    {"failure.rank=0|failure.at=step 2 backward -0.5", "'-0.5' is not a fraction from 0 to 1"},
    {"failure.rank=0|failure.at=step 2 backward nan", "'nan' is not a fraction from 0 to 1"},
    {"failure.rank=0|failure.at=step 2 micro_batch 1 backward 0", "micro-batch '1' is not in 0..0"},
    {"failure.rank=0|failure.at=step 2 micro_batch 0 optimizer 0",
     "only forward and backward have micro-batches"},
    {"failure.rank=0|failure.at=step 2 forward 0|failure.last_save=2",
     "key 'failure.last_save': 2 is not in 0..1"},
    {"failure.rank=0|failure.at=step 2 forward 0|failure.node=2", "unknown key 'failure.node'"},
};

START_TEST(a_plan_says_what_is_wrong_with_its_failure)
{
  g_auto(GStrv) words = g_strsplit(refused[_i].set, "|", -1);
  const Simulation simulation = {network, plan, (const char *const *) words, 0};
  g_autoptr(GError) error = NULL;
  ck_assert_ptr_null(simulation_read(&simulation, &error));
  ck_assert_msg(strstr(error->message, refused[_i].message) != NULL, "%s", error->message);
}
END_TEST

static const struct {
  const char *at, *message;
} impossible[] = {
    {"step 4 forward 0", "step 4 is beyond the 3 steps of this run"},
    {"step 2 clip 0", "step 2 has no phase clip: its phases are zero_grad, forward, backward, "
                      "optimizer"},
};

START_TEST(a_run_says_which_phases_it_has)
{
  g_autofree char *set = g_strdup_printf("strategy=fsdp2|mesh.shard=4|failure.rank=0|"
                                         "failure.at=%s",
                                         impossible[_i].at);
  g_autoptr(GError) error = NULL;
  g_auto(Failed) f = failed_or_refused(set, &error);
  ck_assert_ptr_null(f.failure);
  ck_assert_msg(strstr(error->message, impossible[_i].message) != NULL, "%s", error->message);
}
END_TEST

/* ---- how far ranks get */

/* A reduction, then an all-gather of two ranks behind an event that the host waits for, then one of
 * the other communicator. */
#define PROGRAM_WITH(wait)                                                                         \
  "highwater-program-1\n"                                                                          \
  "name 0 \"pair\"\nname 1 \"cross\"\nname 2 \"g\"\n"                                              \
  "communicator 0 name=0 ranks=2 stride=1\n"                                                       \
  "communicator 1 name=1 ranks=2 stride=2\n"                                                       \
  "collective 0 kind=all_reduce dtype=fp32 communicator=0 name=2 bytes=4\n"                        \
  "collective 1 kind=all_gather dtype=fp32 communicator=1 name=2 bytes=4\n"                        \
  "events 1\n"                                                                                     \
  "list\n"                                                                                         \
  "list\n"                                                                                         \
  "collective all_reduce 0\n"                                                                      \
  "event_record all_reduce 0\n" wait "collective all_gather 1\n"                                   \
  "steps 1 1\n"

/* Rank 0 of four stops before its first collective.  Rank 1 waits for it in the pair; ranks 2 and 3
 * are another pair.  If the host waits for the pair's event, rank 1 never comes to the second
 * collective, and rank 3 waits there too; if not, only rank 2 waits for rank 0, and 1 and 3 go on
 * to the next step, where 1 is stuck behind its first. */
START_TEST(a_host_that_waits_issues_nothing_more)
{
  static const char *const texts[] = {PROGRAM_WITH(""), PROGRAM_WITH("event_sync 0\n")};
  g_autoptr(GError) error = NULL;
  g_autoptr(Program) program = program_parse("test", texts[_i], &error);
  ck_assert_msg(program != NULL, "%s", error ? error->message : "");
  const gint64 none[2] = {0, 0};
  const ReachInput input = {.rank = 0, .ranks = 4, .step = 1, .done = none, .begun = none};
  g_autoptr(Reach) reach = program_reach(program, &input);
  const char *const with_wait[] = {"0 1: rank 1 | rank 0", "1 1: rank 2 | rank 0",
                                   "1 1: rank 3 | rank 1"};
  const char *const without[] = {"0 1: rank 1 | rank 0", "1 1: rank 2 | rank 0"};
  const char *const *expected = _i == 0 ? without : with_wait;
  ck_assert_uint_eq(reach->stuck->len, _i == 0 ? 2 : 3);
  for (guint i = 0; i < reach->stuck->len; i++) {
    const StuckCollective *s = &g_array_index(reach->stuck, StuckCollective, i);
    g_autofree char *waiting = rank_set_text(&s->waiting), *missing = rank_set_text(&s->missing);
    g_autofree char *line = g_strdup_printf("%d %" G_GINT64_FORMAT ": %s | %s", s->communicator,
                                            s->number, waiting, missing);
    ck_assert_str_eq(line, expected[i]);
  }
}
END_TEST

/* Every rank walked by itself, without classes: what program_reach() must come to. */
typedef struct {
  const Program *program;
  const ReachInput *input;
  const gint64 *built;     /* by communicator: collectives of the construction */
  gint64 *joined, *limits; /* by communicator and rank; limits by the group's first rank */
} AllRanks;

static int
first_of_group(const Communicator *c, int rank)
{
  return rank - rank / c->stride % c->ranks * c->stride;
}

static gint64 *
at_rank(const AllRanks *a, gint64 *table, guint communicator, int rank)
{
  return &table[(guint) a->input->ranks * communicator + (guint) rank];
}

static void
walk_rank(const AllRanks *a, int rank)
{
  const Program *program = a->program;
  guint n = program->communicators->len;
  g_autofree gboolean *event = g_new0(gboolean, program->events + 1);
  g_autofree gboolean *queue = g_new0(gboolean, n + 1);
  g_autofree gint64 *count = g_memdup2(a->built, (n + 1) * sizeof(gint64));
  gboolean stream[STREAM_COUNT] = {FALSE}, host = FALSE;
  for (guint c = 0; c < n; c++)
    *at_rank(a, a->joined, c, rank) = count[c];
  for (int step = a->input->step; step <= a->input->step + 1; step++) {
    const GArray *ops = program_step(program, step - 1)->ops;
    for (guint i = 0; i < ops->len && !host; i++) {
      const ProgramOp *op = &g_array_index(ops, ProgramOp, i);
      if (op->kind == PROGRAM_COLLECTIVE) {
        guint c = (guint) g_array_index(program->collectives, Collective, op->a).communicator;
        const Communicator *group = &g_array_index(program->communicators, Communicator, c);
        gint64 number = count[c]++, limit = *at_rank(a, a->limits, c, first_of_group(group, rank));
        gboolean joins = !stream[op->stream] && !queue[c];
        if (joins)
          *at_rank(a, a->joined, c, rank) = number + 1;
        queue[c] |= !joins || number >= limit;
        stream[op->stream] |= !joins || number >= limit;
      } else if (op->kind == PROGRAM_EVENT_RECORD) {
        event[op->a] = stream[op->stream];
      } else if (op->kind == PROGRAM_STREAM_WAIT) {
        stream[op->stream] |= event[op->a];
      } else if (op->kind == PROGRAM_EVENT_SYNC) {
        host = event[op->a];
      } else if (op->kind == PROGRAM_STREAM_SYNC) {
        host = stream[op->stream];
      }
    }
  }
}

/* TRUE when a group's limit fell. */
static gboolean
lower_limits(const AllRanks *a)
{
  gboolean fell = FALSE;
  for (guint c = 0; c < a->program->communicators->len; c++)
    for (int rank = 0; rank < a->input->ranks; rank++) {
      const Communicator *group = &g_array_index(a->program->communicators, Communicator, c);
      gint64 *limit = at_rank(a, a->limits, c, first_of_group(group, rank));
      gint64 joined = rank == a->input->rank ? a->input->done[c] : *at_rank(a, a->joined, c, rank);
      fell |= joined < *limit;
      *limit = MIN(*limit, joined);
    }
  return fell;
}

static void
walk_all_ranks(const AllRanks *a)
{
  do {
    for (int rank = 0; rank < a->input->ranks; rank++)
      if (rank != a->input->rank)
        walk_rank(a, rank);
  } while (lower_limits(a));
}

static void
compare_with_all_ranks(const AllRanks *a)
{
  g_autoptr(Reach) reach = program_reach(a->program, a->input);
  for (guint c = 0; c < a->program->communicators->len; c++)
    for (int rank = 0; rank < a->input->ranks; rank++) {
      const Communicator *group = &g_array_index(a->program->communicators, Communicator, c);
      gint64 limit = *at_rank(a, a->limits, c, first_of_group(group, rank)), number = -1;
      gboolean waits = rank != a->input->rank && *at_rank(a, a->joined, c, rank) > limit;
      for (guint i = 0; i < reach->stuck->len; i++) {
        const StuckCollective *s = &g_array_index(reach->stuck, StuckCollective, i);
        if (s->communicator == (gint32) c && rank_set_contains(&s->waiting, rank))
          number = s->number;
      }
      ck_assert_int_eq(number, waits ? limit + 1 : -1);
    }
}

/* Stopped after each possible number of collectives, in the order of issue. */
START_TEST(classes_of_ranks_get_as_far_as_each_rank_does)
{
  static const struct {
    const char *set;
    int ranks;
  } meshes[] = {
      {"strategy=fsdp2|mesh.shard=3|mesh.replicate=2", 6},
      {"strategy=fsdp2|mesh.shard=4|fsdp.reshard_after_forward=2|mesh.replicate=2", 8},
      {"strategy=fsdp1|mesh.shard=2|mesh.replicate=3|fsdp.sharding_strategy=HYBRID_SHARD", 6},
      {"strategy=zero3|mesh.shard=6|deepspeed.zero_hpz_partition_size=2|"
       "deepspeed.stage3_param_persistence_threshold=0",
       6},
      {"strategy=internevo|optimizer.name=adamw|precision.parameters=bf16|mesh.shard=2|"
       "mesh.replicate=2",
       4},
  };
  g_auto(GStrv) words = g_strsplit(meshes[_i].set, "|", -1);
  const Simulation simulation = {network, plan, (const char *const *) words, 0};
  g_autoptr(Simulated) s = simulation_lower(&simulation, 2);
  const Program *program = s->lowered->program;
  guint n = program->communicators->len, cells = (n + 1) * (guint) meshes[_i].ranks;
  g_autofree gint64 *done = g_new0(gint64, n + 1);
  const GArray *ops = program_step(program, 0)->ops;
  const GArray *built = ((const OpList *) g_ptr_array_index(program->lists, 0))->ops;
  for (guint i = 0; i < built->len; i++) {
    const ProgramOp *op = &g_array_index(built, ProgramOp, i);
    if (op->kind == PROGRAM_COLLECTIVE)
      done[g_array_index(program->collectives, Collective, op->a).communicator]++;
  }
  g_autofree gint64 *base = g_memdup2(done, (n + 1) * sizeof(gint64));
  for (guint i = 0; i < ops->len; i++) {
    const ProgramOp *op = &g_array_index(ops, ProgramOp, i);
    if (op->kind != PROGRAM_COLLECTIVE)
      continue;
    for (int rank = 0; rank < meshes[_i].ranks; rank++) {
      const ReachInput input = {
          .rank = rank, .ranks = meshes[_i].ranks, .step = 1, .done = done, .begun = done};
      AllRanks all = {program, &input, base, g_new0(gint64, cells), g_new(gint64, cells)};
      for (guint k = 0; k < cells; k++)
        all.limits[k] = G_MAXINT64;
      walk_all_ranks(&all);
      compare_with_all_ranks(&all);
      g_free(all.joined);
      g_free(all.limits);
    }
    done[g_array_index(program->collectives, Collective, op->a).communicator]++;
  }
}
END_TEST

START_TEST(sets_of_ranks_are_written_as_runs)
{
  RankSet set = {0};
  assert_ranks(&set, "no rank");
  rank_set_append(&set, 3);
  assert_ranks(&set, "rank 3");
  rank_set_append(&set, 4);
  rank_set_append(&set, 6);
  assert_ranks(&set, "ranks 3-4, 6");
  ck_assert_int_eq(rank_set_size(&set), 3);
  ck_assert(rank_set_contains(&set, 4) && !rank_set_contains(&set, 5));
  for (int rank = 8; rank < 40; rank += 2)
    rank_set_append(&set, rank);
  assert_ranks(&set, "ranks 3-4, 6, 8, 10, 12, 14, 16, 18, ... (19 ranks)");
  rank_set_clear(&set);
}
END_TEST

Suite *
test_suite(void)
{
  Suite *suite = suite_create("failure");
  TCase *tests = tcase_create("failure");
  tcase_add_test(tests, a_replica_holds_what_hsdp_loses);
  tcase_add_test(tests, pure_sharding_goes_back_to_the_last_save);
  tcase_add_loop_test(tests, a_plan_that_saves_knows_its_last_save, 0, 5);
  tcase_add_test(tests, reductions_are_pending_until_the_device_has_done_them);
  tcase_add_test(tests, the_end_of_the_optimizer_has_updated_everything);
  tcase_add_test(tests, gradients_under_no_sync_are_whole_and_void);
  tcase_add_test(tests, ddp_loses_no_state);
  tcase_add_test(tests, a_rank_can_fail_inside_a_collective);
  tcase_add_test(tests, alone_nobody_waits_and_nothing_survives);
  tcase_add_loop_test(tests, zero_1_and_2_keep_the_parameters_alone, 0, 2);
  tcase_add_test(tests, an_update_without_its_gather_is_no_state);
  tcase_add_test(tests, owners_in_another_zero_group_hold_the_same_part);
  tcase_add_test(tests, zero_0_has_everything_everywhere);
  tcase_add_test(tests, zero_2_has_reduced_the_first_micro_batch);
  tcase_add_test(tests, zero_3_loses_shards_and_hpz_keeps_the_parameters);
  tcase_add_loop_test(tests, fsdp1_loses_what_its_strategy_shards, 0, 5);
  tcase_add_test(tests, a_run_ends_at_the_failure_and_is_the_same_until_then);
  tcase_add_test(tests, the_fraction_is_of_the_time_between_the_phases_ends);
  tcase_add_loop_test(tests, a_plan_says_what_is_wrong_with_its_failure, 0, G_N_ELEMENTS(refused));
  tcase_add_loop_test(tests, a_run_says_which_phases_it_has, 0, G_N_ELEMENTS(impossible));
  tcase_add_loop_test(tests, a_host_that_waits_issues_nothing_more, 0, 2);
  tcase_add_loop_test(tests, classes_of_ranks_get_as_far_as_each_rank_does, 0, 5);
  tcase_add_test(tests, sets_of_ranks_are_written_as_runs);
  suite_add_tcase(suite, tests);
  return suite;
}
