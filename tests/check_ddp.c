/* check_ddp.c - DDP's less usual options: a search for unused parameters, and
 * ZeroRedundancyOptimizer on top of it.
 *
 * Expectations are worked out by hand from PyTorch's code (the file is named where it matters). */
#include "base/units.h"
#include "simulation.h"
#include "strategy/zero_redundancy.h"
#include "tap_main.h"
#include <string.h>

#define STEPS 3

/* Five linear layers of 1 MiB each in fp32. */
static const char five[] =
    "{'family': 'blocks', 'hidden': 512, 'embedding': false, 'head': false, 'loss': 'sum',"
    " 'blocks': [{'repeat': 5, 'ops': [{'op': 'linear', 'out': 512}]}]}";
enum { FIVE = 5, WIDTH = 512 * 512 };

/* Parameters of 3, 7, 4, 3 and 5 elements, in this order. */
static const char uneven[] =
    "{'family': 'blocks', 'hidden': 8, 'embedding': false, 'head': false, 'loss': 'sum',"
    " 'blocks': [{'ops': [{'op': 'numbers', 'parameters': 3}, {'op': 'numbers', 'parameters': 7},"
    " {'op': 'numbers', 'parameters': 4}, {'op': 'numbers', 'parameters': 3},"
    " {'op': 'numbers', 'parameters': 5}]}]}";
enum { UNEVEN = 5, UNEVEN_ELEMENTS = 22 };

static const char plan[] = "{'strategy': 'ddp', 'mesh': {'replicate': 2},"
                           " 'batch': {'micro_batch': 2, 'sequence_length': 8},"
                           " 'optimizer': {'implementation': 'foreach'}}";

static Simulated *
lower_rank(const char *network, const char *options, int rank)
{
  return simulation_lower_options(network, plan, options, rank, STEPS);
}

static int
count_launches(const Simulated *s, int step, const char *kernel)
{
  const Program *program = s->lowered->program;
  const GArray *ops = simulated_ops(s, step);
  int n = 0;
  for (guint i = 0; i < ops->len; i++) {
    const ProgramOp *op = &g_array_index(ops, ProgramOp, i);
    if (op->kind == PROGRAM_LAUNCH)
      n += strcmp(program_text(program, g_array_index(program->kernels, Kernel, op->a).name),
                  kernel) == 0;
  }
  return n;
}

/* ---- find_unused_parameters */

/* A reducer that rebuilds starts with one bucket, then follows the order of gradients: the last
 * layers first.  One that looks for unused parameters keeps what its constructor made of the
 * order of definition, the last bucket first (torch/nn/parallel/distributed.py). */
START_TEST(buckets_that_are_never_rebuilt_follow_the_definition)
{
  g_autoptr(Simulated) usual = lower_rank(five, "ddp.bucket_cap_mb=2", 0);
  g_autofree char *first = simulated_collective_bytes(usual, 0, COLLECTIVE_ALL_REDUCE, "bucket", 1);
  g_autofree char *later = simulated_collective_bytes(usual, 2, COLLECTIVE_ALL_REDUCE, "bucket", 1);
  ck_assert_str_eq(first, "5242880");
  ck_assert_str_eq(later, "2097152 2097152 1048576");
  g_autoptr(Simulated) searching =
      lower_rank(five, "ddp.bucket_cap_mb=2 ddp.find_unused_parameters=true", 0);
  for (int step = 0; step < STEPS; step++) {
    g_autofree char *bytes =
        simulated_collective_bytes(searching, step, COLLECTIVE_ALL_REDUCE, "bucket", 1);
    ck_assert_str_eq(bytes, "1048576 2097152 2097152");
  }
}
END_TEST

/* local_used_map_dev_: 4 bytes a parameter on the device for ever, summed once for each backward
 * that synchronizes. */
START_TEST(the_map_of_used_parameters_is_summed_over_the_ranks)
{
  g_autoptr(Simulated) s =
      lower_rank(five, "ddp.find_unused_parameters=true accumulation.steps=3", 0);
  g_autofree char *maps =
      simulated_collective_bytes(s, 2, COLLECTIVE_ALL_REDUCE, "map of used parameters", 1);
  ck_assert_str_eq(maps, "20 20 20");
  g_autoptr(Simulated) once = lower_rank(
      five,
      "ddp.find_unused_parameters=true accumulation.steps=3 accumulation.sync_every_step=false", 0);
  g_autofree char *map =
      simulated_collective_bytes(once, 2, COLLECTIVE_ALL_REDUCE, "map of used parameters", 1);
  ck_assert_str_eq(map, "20");
  g_autoptr(Simulated) without = lower_rank(five, "", 0);
  ck_assert_int_eq(simulated_bytes_alive(s, STEPS, CATEGORY_OTHER) -
                       simulated_bytes_alive(without, STEPS, CATEGORY_OTHER),
                   FIVE * 4 + 2 * 2 * 8 * 512 * 4); /* and two more micro-batches of inputs */
}
END_TEST

/* _DDPSink.forward clones the outputs, in every forward. */
START_TEST(outputs_are_cloned_to_see_what_of_them_is_used)
{
  g_autoptr(Simulated) with =
      lower_rank(five, "ddp.find_unused_parameters=true accumulation.steps=3", 0);
  g_autoptr(Simulated) without = lower_rank(five, "accumulation.steps=3", 0);
  ck_assert_int_eq(count_launches(with, 2, "clone") - count_launches(without, 2, "clone"), 3);
}
END_TEST

/* Without a node an output stays what it is ("Do not touch tensors that have no grad_fn"): what
 * goes first after the copy is the copy in an evaluation, and the original in a step. */
START_TEST(an_evaluations_outputs_outlive_their_copies)
{
  g_autoptr(Simulated) s =
      lower_rank(five, "ddp.find_unused_parameters=true phases.evaluate.every=1", 0);
  const Program *program = s->lowered->program;
  const GArray *ops = simulated_ops(s, 2);
  gint32 copy = -1;
  int steps_kept = 0, evaluations_dropped = 0;
  for (guint i = 0; i < ops->len; i++) {
    const ProgramOp *op = &g_array_index(ops, ProgramOp, i);
    if (op->kind == PROGRAM_ALLOC) {
      const Storage *storage = &g_array_index(program->storages, Storage, op->a);
      if (strcmp(program_text(program, storage->what), "clone") == 0)
        copy = op->a;
    } else if (op->kind == PROGRAM_FREE && copy >= 0) {
      if (op->a == copy)
        evaluations_dropped++;
      else
        steps_kept++;
      copy = -1;
    }
  }
  ck_assert_int_eq(steps_kept, 1);
  ck_assert_int_eq(evaluations_dropped, 1);
}
END_TEST

/* Ops that a step's host issues in forward. */
static int
ops_issued(const Simulated *s)
{
  const GArray *ops = simulated_ops(s, 1);
  int n = 0;
  for (guint i = 0; i < ops->len; i++) {
    const ProgramOp *op = &g_array_index(ops, ProgramOp, i);
    n += op->kind == PROGRAM_HOST_WORK && op->a == HOST_WORK_OP_FORWARD ? op->b : 0;
  }
  return n;
}

/* A linear layer makes four nodes (view, t, mm, view): 400 of them and the loss take the host as
 * long to search as issuing 17 ops; checkpointed blocks leave it the loss.  The clone is one more
 * op. */
START_TEST(searching_the_graph_takes_the_host_time)
{
  static const char long_one[] =
      "{'family': 'blocks', 'hidden': 8, 'embedding': false, 'head': false, 'loss': 'sum',"
      " 'blocks': [{'repeat': 400, 'ops': [{'op': 'linear', 'out': 8}]}]}";
  static const char *const policies[] = {"activation_checkpointing.policy=none",
                                         "activation_checkpointing.policy=full"};
  static const int search[] = {17, 1};
  for (int i = 0; i < 2; i++) {
    g_autofree char *set = g_strconcat(policies[i], " ddp.find_unused_parameters=true", NULL);
    g_autoptr(Simulated) with = lower_rank(long_one, set, 0);
    g_autoptr(Simulated) without = lower_rank(long_one, policies[i], 0);
    ck_assert_int_eq(ops_issued(with) - ops_issued(without), search[i] + 1);
  }
}
END_TEST

/* ---- ZeroRedundancyOptimizer */

#define ZERO "ddp.zero_redundancy_optimizer=true"
#define VIEWS ZERO " ddp.parameters_as_bucket_view=true"

/* Largest first, each to the first rank that has least: 7 to rank 0, 5 to 1, 4 to 1 (9), 3 to 0
 * (10), the other 3 to 1 (12) (_partition_parameters). */
START_TEST(parameters_are_dealt_by_size)
{
  static const int expected[UNEVEN] = {0, 0, 1, 1, 1};
  g_autoptr(Simulated) s = lower_rank(uneven, "", 0);
  const Network *network = s->scenario->network;
  g_autofree int *owner = zero_redundancy_owners(network, 2);
  for (int i = 0; i < UNEVEN; i++)
    ck_assert_int_eq(owner[i], expected[i]);
  ck_assert_int_eq(zero_redundancy_heaviest_rank(network, 2), 1);
}
END_TEST

/* The optimizer is given what trains: without the 7, 5 go to rank 0, 4 to 1, 3 to 1 (7), 3 to 0
 * (8).
 */
START_TEST(frozen_parameters_are_nobodys)
{
  static const int expected[UNEVEN] = {1, -1, 1, 0, 0};
  g_autoptr(Simulated) s = lower_rank(uneven, ZERO " trainable=[\"!layers.0.numbers_2.*\"]", 0);
  g_autofree int *owner = zero_redundancy_owners(s->scenario->network, 2);
  for (int i = 0; i < UNEVEN; i++)
    ck_assert_int_eq(owner[i], expected[i]);
  ck_assert_int_eq(zero_redundancy_heaviest_rank(s->scenario->network, 2), 0);
  ck_assert_int_eq(simulated_bytes_alive(s, STEPS, CATEGORY_OPTIMIZER_STATE), 8 * 8);
  g_autofree char *bytes = simulated_collective_bytes(s, 1, COLLECTIVE_BROADCAST, "", 1);
  ck_assert_str_eq(bytes, "20 12 16 12");
}
END_TEST

/* With more ranks than parameters the first ones have one each, the largest first. */
START_TEST(ranks_beyond_the_parameters_get_none)
{
  static const int expected[UNEVEN] = {3, 0, 2, 4, 1};
  g_autoptr(Simulated) s = lower_rank(uneven, "", 0);
  g_autofree int *owner = zero_redundancy_owners(s->scenario->network, 1000000);
  for (int i = 0; i < UNEVEN; i++)
    ck_assert_int_eq(owner[i], expected[i]);
}
END_TEST

/* Adam's two moments of what a rank updates; gradients and parameters are whole. */
START_TEST(a_rank_has_the_states_of_its_own_parameters)
{
  static const int elements[] = {10, 12};
  for (int rank = 0; rank < 2; rank++) {
    g_autoptr(Simulated) s = lower_rank(uneven, _i ? VIEWS : ZERO, rank);
    ck_assert_int_eq(simulated_bytes_alive(s, STEPS, CATEGORY_OPTIMIZER_STATE), 8 * elements[rank]);
    ck_assert_int_eq(simulated_bytes_alive(s, STEPS, CATEGORY_PARAMETER), 4 * UNEVEN_ELEMENTS);
    ck_assert_int_eq(simulated_bytes_alive(s, STEPS, CATEGORY_UNSHARDED_GRADIENT),
                     4 * UNEVEN_ELEMENTS);
    ck_assert_int_eq(s->lowered->zero_stage, 1);
  }
}
END_TEST

/* Owner by owner, what it was dealt in that order; or its buffer at once.  A rank without any sends
 * a buffer of one zero. */
START_TEST(every_owner_sends_what_it_has_updated)
{
  g_autoptr(Simulated) single = lower_rank(uneven, ZERO, 1);
  g_autofree char *one_by_one = simulated_collective_bytes(single, 1, COLLECTIVE_BROADCAST, "", 1);
  ck_assert_str_eq(one_by_one, "28 12 20 16 12");
  g_autoptr(Simulated) views = lower_rank(uneven, VIEWS, 1);
  g_autofree char *at_once = simulated_collective_bytes(views, 1, COLLECTIVE_BROADCAST, "", 1);
  ck_assert_str_eq(at_once, "40 48");
  g_autoptr(Simulated) many = lower_rank(uneven, VIEWS " mesh.replicate=7", 6);
  g_autofree char *some_empty = simulated_collective_bytes(many, 1, COLLECTIVE_BROADCAST, "", 1);
  ck_assert_str_eq(some_empty, "28 20 16 12 12 4 4");
}
END_TEST

/* Stage 1 of the paper sends 2 elements a parameter; a broadcast of whole parameters makes it 3. */
START_TEST(it_sends_half_more_than_data_parallelism)
{
  g_autoptr(Simulated) s = lower_rank(five, ZERO, 0);
  ck_assert_int_eq(simulated_collectives(s, 1, COLLECTIVE_ALL_REDUCE).elements, FIVE * WIDTH);
  ck_assert_int_eq(simulated_collectives(s, 1, COLLECTIVE_BROADCAST).elements, FIVE * WIDTH);
}
END_TEST

/* foreach Adam's temporaries are of what the rank updates: no rank has more than the one that is
 * named heaviest. */
START_TEST(no_rank_peaks_above_the_heaviest)
{
  enum { RANKS = 3 };
  gint64 peak[RANKS];
  for (int rank = 0; rank < RANKS; rank++) {
    g_autoptr(Simulated) s =
        simulation_execute(&(Simulation){five, plan,
                                         (const char *const[]){"ddp.zero_redundancy_optimizer=true",
                                                               "mesh.replicate=3", NULL},
                                         rank},
                           STEPS, (gint64) 1 << 60);
    peak[rank] = g_array_index(s->recording->steps, StepRecord, 1).peak_allocated;
  }
  g_autoptr(Simulated) s = lower_rank(five, "", 0);
  int heaviest = zero_redundancy_heaviest_rank(s->scenario->network, RANKS);
  ck_assert_int_eq(heaviest, 0); /* 2, 2 and 1 layers */
  ck_assert_int_eq(peak[0], peak[1]);
  ck_assert_int_gt(peak[0], peak[2]);
}
END_TEST

/* ---- refusals */

static const struct {
  const char *set, *says;
} refused[] = {
    {"ddp.static_graph=true", "key 'ddp.static_graph': not yet supported"},
    {ZERO " ddp.overlap_with_ddp=true", "key 'ddp.overlap_with_ddp': not yet supported"},
    {"ddp.parameters_as_bucket_view=true", "needs \"zero_redundancy_optimizer\": true"},
    {ZERO " phases.save={}", "key 'phases.save.optimizer': states that ZeroRedundancyOptimizer"},
    {ZERO " optimizer.name=none", "key 'ddp.zero_redundancy_optimizer': needs an optimizer"},
};

START_TEST(what_ddp_cannot_honour_is_refused_by_name)
{
  g_autofree char *message = simulation_refusal(five, plan, refused[_i].set);
  ck_assert_msg(strstr(message, refused[_i].says) != NULL, "%s", message);
}
END_TEST

Suite *
test_suite(void)
{
  Suite *suite = suite_create("ddp");
  TCase *tests = tcase_create("ddp");
  tcase_add_test(tests, buckets_that_are_never_rebuilt_follow_the_definition);
  tcase_add_test(tests, the_map_of_used_parameters_is_summed_over_the_ranks);
  tcase_add_test(tests, outputs_are_cloned_to_see_what_of_them_is_used);
  tcase_add_test(tests, an_evaluations_outputs_outlive_their_copies);
  tcase_add_test(tests, searching_the_graph_takes_the_host_time);
  tcase_add_test(tests, parameters_are_dealt_by_size);
  tcase_add_test(tests, frozen_parameters_are_nobodys);
  tcase_add_test(tests, ranks_beyond_the_parameters_get_none);
  tcase_add_loop_test(tests, a_rank_has_the_states_of_its_own_parameters, 0, 2);
  tcase_add_test(tests, every_owner_sends_what_it_has_updated);
  tcase_add_test(tests, it_sends_half_more_than_data_parallelism);
  tcase_add_test(tests, no_rank_peaks_above_the_heaviest);
  tcase_add_loop_test(tests, what_ddp_cannot_honour_is_refused_by_name, 0, G_N_ELEMENTS(refused));
  suite_add_tcase(suite, tests);
  return suite;
}
