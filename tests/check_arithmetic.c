/* check_arithmetic.c - figures that papers and their readers work out by hand, as the simulated
 * Programs have them: what a parameter costs, what sharding divides, what is sent.
 *
 * ZeRO: Rajbhandari et al., arXiv 1910.02054.  How a framework orders things is tested elsewhere.
 */
#include "base/units.h"
#include "simulation.h"
#include "strategy/shard.h"
#include "tap_main.h"
#include <math.h>

#define BILLION G_GINT64_CONSTANT(1000000000)
#define WITHOUT_LIMIT ((gint64) 1 << 60)

/* ---- networks and plans */

/* Blocks that are nothing but so many parameters each.  Caller frees. */
static char *
network_of_numbers(gint64 parameters, int blocks)
{
  return g_strdup_printf("{'family': 'blocks', 'hidden': 8, 'embedding': false, 'head': false,"
                         " 'loss': 'sum', 'blocks': [{'repeat': %d, 'ops':"
                         " [{'op': 'numbers', 'parameters': %" G_GINT64_FORMAT "}]}]}",
                         blocks, parameters);
}

#define TRAINING                                                                                   \
  "'batch': {'micro_batch': 1, 'sequence_length': 8},"                                             \
  "'optimizer': {'name': 'adamw', 'implementation': 'foreach', 'clip_grad_norm': null}}"

/* foreach keeps its step counters on the host: no bytes but those of the states. */
static const char whole[] = "{'strategy': 'none', 'precision': {'compute': 'fp32'}," TRAINING;
static const char replicated[] = "{'strategy': 'ddp', 'precision': {'compute': 'fp32'}," TRAINING;
static const char sharded[] =
    "{'strategy': 'fsdp2', 'precision': {'compute': 'bf16', 'reduce': 'fp32'}," TRAINING;

static Simulated *
lower_numbers(gint64 parameters, int blocks, const char *plan, const char *mesh)
{
  g_autofree char *network = network_of_numbers(parameters, blocks);
  const char *set[] = {mesh, NULL};
  return simulation_lower(&(Simulation){network, plan, set, 0}, 2);
}

/* Parameters, gradients and optimizer states of a rank when its steady step ends. */
static gint64
model_states(const Simulated *s)
{
  return simulated_bytes_alive(s, 2, CATEGORY_PARAMETER) +
         simulated_bytes_alive(s, 2, CATEGORY_UNSHARDED_GRADIENT) +
         simulated_bytes_alive(s, 2, CATEGORY_SHARDED_GRADIENT) +
         simulated_bytes_alive(s, 2, CATEGORY_OPTIMIZER_STATE);
}

static gint64
states_of_numbers(gint64 parameters, int blocks, const char *plan, const char *mesh)
{
  g_autoptr(Simulated) s = lower_numbers(parameters, blocks, plan, mesh);
  return model_states(s);
}

/* ---- model states */

START_TEST(a_parameter_with_adam_costs_sixteen_bytes)
{
  ck_assert_int_eq(states_of_numbers(1000, 7, whole, "mesh.shard=1"), 16 * 7000);
  ck_assert_int_eq(states_of_numbers(1000, 7, sharded, "mesh.shard=1"), 16 * 7000);
}
END_TEST

START_TEST(full_sharding_divides_model_states_by_the_number_of_devices)
{
  gint64 parameters = 1 << 20;
  for (int devices = 1; devices <= 1024; devices *= 2) {
    g_autofree char *mesh = g_strdup_printf("mesh.shard=%d", devices);
    ck_assert_int_eq(states_of_numbers(parameters, 3, sharded, mesh) * devices,
                     16 * 3 * parameters);
  }
}
END_TEST

START_TEST(sixty_four_devices_hold_a_sixty_fourth_each)
{
  gint64 one = states_of_numbers(BILLION / 8, 8, sharded, "mesh.shard=1");
  ck_assert_int_eq(one, 16 * BILLION);
  ck_assert_int_eq(one, 64 * states_of_numbers(BILLION / 8, 8, sharded, "mesh.shard=64"));
}
END_TEST

START_TEST(data_parallelism_divides_nothing)
{
  gint64 one = states_of_numbers(1000, 7, whole, "mesh.shard=1");
  ck_assert_int_eq(states_of_numbers(1000, 7, replicated, "mesh.replicate=64"), one);
}
END_TEST

START_TEST(a_trillion_parameters_on_1024_devices_are_about_16_GB_each)
{
  gint64 bytes = states_of_numbers(10 * BILLION, 100, sharded, "mesh.shard=1024");
  ck_assert_int_eq(bytes, G_GINT64_CONSTANT(15625000000)); /* 16 10^12 / 2^10 */
  ck_assert_double_eq_tol((double) bytes / 1e9, 16, 0.5);
}
END_TEST

START_TEST(a_hundred_billion_parameters_on_64_devices_fit_a_32_GB_device)
{
  gint64 bytes = states_of_numbers(BILLION, 100, sharded, "mesh.shard=64");
  ck_assert_int_eq(bytes, 25 * BILLION);
  ck_assert_int_lt(bytes, 32 * BILLION);
}
END_TEST

/* Bytes of a parameter on each device: 16-bit parameter and gradient, fp32 copy and two moments;
 * stage 1 shards the last three, stage 2 the gradient too, stage 3 all. */
static double
bytes_per_parameter(int stage, int devices)
{
  double parameter = dtype_size(DTYPE_BF16), gradient = dtype_size(DTYPE_BF16);
  double states = 3 * dtype_size(DTYPE_FP32);
  return parameter / (stage >= 3 ? devices : 1) + gradient / (stage >= 2 ? devices : 1) +
         states / (stage >= 1 ? devices : 1);
}

START_TEST(stages_1_and_2_flatten_at_4_and_8_times)
{
  double all = bytes_per_parameter(0, 1);
  ck_assert_double_eq(all, 16);
  for (int devices = 2; devices <= 1 << 20; devices *= 2) {
    ck_assert_double_lt(all / bytes_per_parameter(1, devices), 4);
    ck_assert_double_lt(all / bytes_per_parameter(2, devices), 8);
  }
  ck_assert_double_gt(all / bytes_per_parameter(1, 1 << 20), 3.999);
  ck_assert_double_gt(all / bytes_per_parameter(2, 1 << 20), 7.999);
  /* Figure 1 of ZeRO: GB of a model of 7.5 billion on 64 devices. */
  ck_assert_double_eq_tol(7.5 * bytes_per_parameter(1, 64), 31.4, 0.05);
  ck_assert_double_eq_tol(7.5 * bytes_per_parameter(2, 64), 16.6, 0.05);
  ck_assert_double_eq_tol(7.5 * bytes_per_parameter(3, 64), 1.9, 0.05);
}
END_TEST

START_TEST(stage_3_is_what_full_sharding_holds)
{
  gint64 parameters = 15 * BILLION / 2 / 100;
  gint64 bytes = states_of_numbers(parameters, 100, sharded, "mesh.shard=64");
  double expected = 7.5e9 * bytes_per_parameter(3, 64);
  ck_assert_double_eq_tol((double) bytes / expected, 1, 1e-6); /* rows are padded */
}
END_TEST

/* ---- does it fit? */

static gboolean
fits(const char *plan, const char *mesh)
{
  g_autofree char *network = network_of_numbers(BILLION / 2, 24);
  const char *set[] = {mesh, NULL};
  g_autoptr(Simulated) s = simulation_execute(&(Simulation){network, plan, set, 0}, 3, 80 * GIB);
  return !s->recording->out_of_memory.happened;
}

START_TEST(twelve_billion_parameters_fit_80_GiB_only_when_sharded)
{
  ck_assert(!fits(whole, "mesh.shard=1"));
  ck_assert(!fits(replicated, "mesh.replicate=8"));
  ck_assert(fits(sharded, "mesh.shard=8"));
}
END_TEST

/* ---- a floor under every run */

/* Small networks whose rows every mesh below divides. */
static const char *const networks[] = {
    "{'family': 'blocks', 'hidden': 64, 'vocabulary': 128,"
    " 'blocks': [{'repeat': 3, 'ops': [{'op': 'rms_norm'}, {'op': 'linear', 'out': 256},"
    " {'op': 'gelu'}, {'op': 'linear', 'out': 64}]}]}",
    "{'family': 'blocks', 'hidden': 64, 'vocabulary': 512,"
    " 'blocks': [{'repeat': 2, 'ops': [{'op': 'layer_norm'}, {'op': 'attention', 'heads': 4}]}]}",
};

static const struct {
  const char *set[6];
  int shards;
  int bytes; /* of a parameter, its gradient and Adam's states */
} floors[] = {
    {{"strategy=none", "precision.compute=fp32"}, 1, 16},
    {{"strategy=none", "precision.parameters=bf16", "precision.reduce=bf16"}, 1, 8},
    {{"strategy=ddp", "precision.compute=fp32", "mesh.replicate=8"}, 1, 16},
    {{"strategy=fsdp2", "mesh.shard=2"}, 2, 16},
    {{"strategy=fsdp2", "mesh.shard=8"}, 8, 16},
    {{"strategy=fsdp2", "mesh.shard=4", "mesh.replicate=2"}, 4, 16},
    {{"strategy=fsdp2", "mesh.shard=8", "precision.reduce=bf16"}, 8, 16},
    {{"strategy=fsdp2", "mesh.shard=8", "activation_checkpointing.policy=full"}, 8, 16},
    {{"strategy=fsdp2", "mesh.shard=8", "fsdp.reshard_after_forward=false"}, 8, 16},
    {{"strategy=fsdp2", "mesh.shard=8", "fsdp.blocks_per_group=0"}, 8, 16},
    {{"strategy=fsdp2", "mesh.shard=8", "optimizer.zero_grad=end"}, 8, 16},
};

static const char any_plan[] = "{'strategy': 'fsdp2', 'precision': {'compute': 'bf16', 'reduce':"
                               " 'fp32'}, 'batch': {'micro_batch': 1, 'sequence_length': 16}}";

START_TEST(parameters_times_bytes_over_shards_is_a_floor)
{
  for (guint i = 0; i < G_N_ELEMENTS(networks); i++) {
    g_autoptr(Simulated) s = simulation_execute(
        &(Simulation){networks[i], any_plan, floors[_i].set, 0}, 3, WITHOUT_LIMIT);
    const StepRecord *last = &g_array_index(s->recording->steps, StepRecord, 2);
    gint64 least =
        network_parameter_count(s->scenario->network) * floors[_i].bytes / floors[_i].shards;
    ck_assert_int_gt(least, 0);
    ck_assert_int_gt(last->peak_allocated, least);
  }
}
END_TEST

/* ---- what is sent */

/* Elements that a rank sends in a steady step. */
static double
sent(const Simulated *s)
{
  double elements = 0;
  for (int kind = 0; kind < COLLECTIVE_KIND_COUNT; kind++)
    elements += simulated_collectives(s, 2, (CollectiveKind) kind).sent;
  return elements;
}

static double
sent_under(const char *network, const char *const *set)
{
  g_autoptr(Simulated) s = simulation_lower(&(Simulation){network, any_plan, set, 0}, 3);
  return sent(s);
}

START_TEST(resharding_every_group_sends_half_as_much_again_as_data_parallelism)
{
  const char *const data[] = {"strategy=ddp", "precision.compute=fp32", "mesh.replicate=8", NULL};
  const char *const full[] = {"mesh.shard=8", "fsdp.reshard_after_forward=true", NULL};
  const char *const kept[] = {"mesh.shard=8", "fsdp.reshard_after_forward=false", NULL};
  for (guint i = 0; i < G_N_ELEMENTS(networks); i++) {
    g_autoptr(Simulated) s = simulation_lower(&(Simulation){networks[i], any_plan, full, 0}, 3);
    double parameters = (double) network_parameter_count(s->scenario->network);
    double reference = sent_under(networks[i], data);
    ck_assert_double_eq(reference, 2 * parameters * 7 / 8); /* a ring's all-reduce */
    ck_assert_double_eq(sent(s), 1.5 * reference);
    ck_assert_double_eq(sent_under(networks[i], kept), reference);
  }
}
END_TEST

/* ---- shards */

static gint64
rows_of(gint64 rows, int ranks, int rank)
{
  Parameter p = {.dims = 2, .shape = {rows, 3}, .elements = 3 * rows};
  Shard shard = shard_of(&p, ranks, rank);
  ck_assert_int_eq(shard.full_elements, ranks * shard.padded_elements);
  ck_assert_int_le(shard.local_elements, shard.padded_elements);
  ck_assert_int_eq(shard.local_elements % 3, 0);
  return shard.local_elements / 3;
}

START_TEST(rows_are_cut_into_chunks_rounded_up)
{
  static const struct {
    gint64 rows;
    int ranks;
    gint64 first, last;
  } cuts[] = {{10, 4, 3, 1}, {3, 8, 1, 0}, {4097, 8, 513, 506}, {16, 8, 2, 2}, {9, 8, 2, 0}};
  for (guint i = 0; i < G_N_ELEMENTS(cuts); i++) {
    gint64 total = 0;
    for (int rank = 0; rank < cuts[i].ranks; rank++)
      total += rows_of(cuts[i].rows, cuts[i].ranks, rank);
    ck_assert_int_eq(total, cuts[i].rows);
    ck_assert_int_eq(rows_of(cuts[i].rows, cuts[i].ranks, 0), cuts[i].first);
    ck_assert_int_eq(rows_of(cuts[i].rows, cuts[i].ranks, cuts[i].ranks - 1), cuts[i].last);
  }
}
END_TEST

/* ---- large models */

/* Largest reduce-scatter input of a steady step. */
static gint64
largest_reduction(const char *const *set)
{
  static const char tables[] =
      "{'family': 'blocks', 'hidden': 5120, 'vocabulary': 248320, 'loss': 'sum',"
      " 'blocks': [{'ops': [{'op': 'linear', 'bias': true}]}]}";
  g_autoptr(Simulated) s = simulation_lower(&(Simulation){tables, any_plan, set, 0}, 2);
  const Program *program = s->lowered->program;
  const GArray *ops = program_step(program, 1)->ops;
  gint64 largest = 0;
  for (guint i = 0; i < ops->len; i++) {
    const ProgramOp *op = &g_array_index(ops, ProgramOp, i);
    if (op->kind != PROGRAM_ALLOC)
      continue;
    const Storage *storage = &g_array_index(program->storages, Storage, op->a);
    if (storage->category == CATEGORY_REDUCE_SCATTER_BUFFER)
      largest = MAX(largest, storage->bytes);
  }
  return largest;
}

START_TEST(two_large_tables_in_the_root_are_reduced_from_9_GiB)
{
  const char *const root[] = {"mesh.shard=8", NULL};
  const char *const own[] = {"mesh.shard=8", "fsdp.embedding=own", "fsdp.head=own", NULL};
  gint64 bytes = largest_reduction(root);
  ck_assert_int_eq(bytes, G_GINT64_CONSTANT(2) * 248320 * 5120 * 4);
  ck_assert_double_eq_tol((double) bytes / (double) GIB, 9.473, 0.0005);
  ck_assert_int_eq(largest_reduction(own), bytes / 2);
}
END_TEST

/* Highest allocated bytes in the backward of a step (from 1). */
static gint64
backward_peak(const Recording *r, int step)
{
  gint64 peak = 0;
  for (guint i = 0; i < r->ranges->len; i++) {
    const Range *range = &g_array_index(r->ranges, Range, i);
    if (range->kind == RECORDED_PHASE && range->step == step &&
        g_str_equal(recording_text(r, range->name), "backward"))
      peak = MAX(peak, range->peak_allocated);
  }
  return peak;
}

static double
gib(gint64 bytes)
{
  return (double) bytes / (double) GIB;
}

/* 8 030 261 248 parameters, two fp32 states of each, an eighth on every rank.  The peak is in the
 * gradient of the loss, before the first matrix product of backward in whose thread cuBLAS makes
 * its workspace of 32 MiB: the steady step has that too. */
START_TEST(the_first_step_of_llama_3_8b_lacks_adams_states)
{
  const char *const set[] = {"mesh.shard=8", NULL};
  g_autoptr(Simulated) s =
      simulation_execute(&(Simulation){"llama-3-8b", "fsdp2", set, 0}, 3, WITHOUT_LIMIT);
  ck_assert_int_eq(network_parameter_count(s->scenario->network), G_GINT64_CONSTANT(8030261248));
  ck_assert_int_eq(simulated_bytes_alive(s, 0, CATEGORY_OPTIMIZER_STATE), 0);
  ck_assert_double_eq_tol(gib(simulated_bytes_alive(s, 1, CATEGORY_OPTIMIZER_STATE)), 7.48, 0.005);
  gint64 first = backward_peak(s->recording, 1), steady = backward_peak(s->recording, 3);
  ck_assert_int_gt(first, 0);
  ck_assert_double_eq_tol(gib(steady - first - 32 * MIB), 7.48, 0.005);
}
END_TEST

Suite *
test_suite(void)
{
  Suite *suite = suite_create("arithmetic");
  TCase *tests = tcase_create("arithmetic");
  tcase_add_test(tests, a_parameter_with_adam_costs_sixteen_bytes);
  tcase_add_test(tests, full_sharding_divides_model_states_by_the_number_of_devices);
  tcase_add_test(tests, sixty_four_devices_hold_a_sixty_fourth_each);
  tcase_add_test(tests, data_parallelism_divides_nothing);
  tcase_add_test(tests, a_trillion_parameters_on_1024_devices_are_about_16_GB_each);
  tcase_add_test(tests, a_hundred_billion_parameters_on_64_devices_fit_a_32_GB_device);
  tcase_add_test(tests, stages_1_and_2_flatten_at_4_and_8_times);
  tcase_add_test(tests, stage_3_is_what_full_sharding_holds);
  tcase_add_test(tests, twelve_billion_parameters_fit_80_GiB_only_when_sharded);
  tcase_add_loop_test(tests, parameters_times_bytes_over_shards_is_a_floor, 0,
                      G_N_ELEMENTS(floors));
  tcase_add_test(tests, resharding_every_group_sends_half_as_much_again_as_data_parallelism);
  tcase_add_test(tests, rows_are_cut_into_chunks_rounded_up);
  tcase_add_test(tests, two_large_tables_in_the_root_are_reduced_from_9_GiB);
  tcase_add_test(tests, the_first_step_of_llama_3_8b_lacks_adams_states);
  suite_add_tcase(suite, tests);
  return suite;
}
