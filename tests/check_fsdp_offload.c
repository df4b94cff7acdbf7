/* check_fsdp_offload.c - FSDP with shards, gradients and optimizer in the host's memory: what is
 * where, what is copied, what the host waits for and works on.
 *
 * Expectations are worked out by hand from PyTorch's code (the file is named where it matters).
 * Whole runs are compared with recorded ones where the reference data is there. */
#include "base/units.h"
#include "recorded_run.h"
#include "simulation.h"
#include "tap_main.h"
#include <string.h>

#define STEPS 3

/* Five linear layers of 60 x 60 without biases: five parameters of 3600 elements, each a group; the
 * root has none. */
static const char five[] =
    "{'family': 'blocks', 'hidden': 60, 'embedding': false, 'head': false, 'loss': 'sum',"
    " 'blocks': [{'repeat': 5, 'ops': [{'op': 'linear', 'out': 60}]}]}";
enum { FIVE = 5, WIDTH = 3600, ALL = FIVE * WIDTH, RANKS = 4, SHARD = WIDTH / RANKS };

static const char plan[] = "{'strategy': 'fsdp2', 'mesh': {'shard': 4},"
                           " 'batch': {'micro_batch': 1, 'sequence_length': 8},"
                           " 'precision': {'compute': 'bf16', 'reduce': 'fp32'},"
                           " 'optimizer': {'implementation': 'fused'},"
                           " 'fsdp': {'cpu_offload': true, 'reshard_after_forward': true}}";

static Simulated *
lower_options(const char *network, const char *options)
{
  return simulation_lower_options(network, plan, options, 0, STEPS);
}

/* ---- what a Program holds */

typedef struct {
  int copies, event_syncs, stream_syncs;
  gint64 copied;        /* bytes */
  int mebibytes_worked; /* by the host on its memory */
} Traffic;

/* Of step `step`: copies of that name. */
static Traffic
traffic_of(const Simulated *s, int step, const char *what)
{
  const Program *program = s->lowered->program;
  const GArray *ops = simulated_ops(s, step);
  Traffic t = {0};
  for (guint i = 0; i < ops->len; i++) {
    const ProgramOp *op = &g_array_index(ops, ProgramOp, i);
    t.event_syncs += op->kind == PROGRAM_EVENT_SYNC;
    t.stream_syncs += op->kind == PROGRAM_STREAM_SYNC;
    if (op->kind == PROGRAM_HOST_WORK && op->a == HOST_WORK_MEMORY)
      t.mebibytes_worked += op->b;
    if (op->kind != PROGRAM_COPY)
      continue;
    const Kernel *kernel = &g_array_index(program->kernels, Kernel, op->a);
    if (strcmp(program_text(program, kernel->name), what) != 0)
      continue;
    t.copies++;
    t.copied += (gint64) kernel->bytes;
  }
  return t;
}

/* ---- what is where */

/* Master weights and gradients in fp32, two moments; the optimizer's zeros_like pins nothing. */
START_TEST(shards_gradients_and_states_are_on_the_host)
{
  g_autoptr(Simulated) s = lower_options(five, "");
  const gint64 share = 4 * ALL / RANKS;
  static const Category states[] = {CATEGORY_PARAMETER, CATEGORY_SHARDED_GRADIENT,
                                    CATEGORY_OPTIMIZER_STATE};
  for (guint i = 0; i < G_N_ELEMENTS(states); i++)
    ck_assert_int_eq(simulated_bytes_in(s, STEPS, states[i], SPACE_DEVICE), 0);
  ck_assert_int_eq(simulated_bytes_in(s, STEPS, CATEGORY_PARAMETER, SPACE_PINNED), share);
  ck_assert_int_eq(simulated_bytes_in(s, STEPS, CATEGORY_SHARDED_GRADIENT, SPACE_PINNED), share);
  ck_assert_int_eq(simulated_bytes_in(s, STEPS, CATEGORY_OPTIMIZER_STATE, SPACE_HOST), 2 * share);
}
END_TEST

/* .to("cpu", non_blocking=False) makes pageable memory. */
START_TEST(without_pinning_all_of_it_is_pageable)
{
  g_autoptr(Simulated) s = lower_options(five, "fsdp.pin_memory=false");
  const gint64 share = 4 * ALL / RANKS;
  ck_assert_int_eq(simulated_bytes_in(s, STEPS, CATEGORY_PARAMETER, SPACE_HOST), share);
  ck_assert_int_eq(simulated_bytes_in(s, STEPS, CATEGORY_SHARDED_GRADIENT, SPACE_HOST), share);
  ck_assert_int_eq(simulated_bytes_in(s, STEPS, CATEGORY_PARAMETER, SPACE_PINNED), 0);
  ck_assert_int_eq(simulated_bytes_in(s, STEPS, CATEGORY_SHARDED_GRADIENT, SPACE_PINNED), 0);
}
END_TEST

/* The last of 7 ranks has 6 of 60 rows, stored as 9; gradients and states are of the 6. */
START_TEST(a_shard_is_padded_and_its_gradient_is_not)
{
  static const char *const set[] = {"mesh.shard=7", NULL};
  g_autoptr(Simulated) s = simulation_lower(&(Simulation){five, plan, set, 6}, STEPS);
  ck_assert_int_eq(simulated_bytes_in(s, STEPS, CATEGORY_PARAMETER, SPACE_PINNED),
                   FIVE * 4 * 9 * 60);
  ck_assert_int_eq(simulated_bytes_in(s, STEPS, CATEGORY_SHARDED_GRADIENT, SPACE_PINNED),
                   FIVE * 4 * 6 * 60);
  ck_assert_int_eq(simulated_bytes_in(s, STEPS, CATEGORY_OPTIMIZER_STATE, SPACE_HOST),
                   FIVE * 8 * 6 * 60);
}
END_TEST

/* ---- what is copied */

/* Every gather begins with the fp32 shard, forward and backward; every reduction ends with it, in
 * all micro-batches that reduce. */
START_TEST(a_shard_comes_for_each_gather_and_goes_for_each_reduction)
{
  g_autofree char *options = g_strdup_printf("accumulation.steps=%d", _i);
  g_autoptr(Simulated) s = lower_options(five, options);
  Traffic in = traffic_of(s, 1, "shard to device"), out = traffic_of(s, 1, "gradient to host");
  ck_assert_int_eq(in.copied, 2 * _i * 4 * ALL / RANKS);
  ck_assert_int_eq(out.copied, _i * 4 * ALL / RANKS);
  ck_assert_int_eq(in.copies, 2 * _i * FIVE);
  ck_assert_int_eq(out.copies, _i * FIVE);
}
END_TEST

/* finalize_backward waits for each gradient that came without blocking. */
START_TEST(the_host_waits_for_each_gradient_at_the_end_of_backward)
{
  g_autoptr(Simulated) s = lower_options(five, "");
  Traffic t = traffic_of(s, 1, "gradient to host");
  ck_assert_int_eq(t.event_syncs, FIVE);
  ck_assert_int_eq(t.stream_syncs, 0);
}
END_TEST

/* "only overlap the D2H copy (copying to pinned memory) if not accumulating gradients": the second
 * micro-batch's gradients are waited for one by one. */
START_TEST(a_gradient_that_is_added_is_waited_for_at_once)
{
  g_autoptr(Simulated) s = lower_options(five, "accumulation.steps=2");
  Traffic t = traffic_of(s, 1, "gradient to host");
  ck_assert_int_eq(t.event_syncs, FIVE);
  ck_assert_int_eq(t.stream_syncs, FIVE);
}
END_TEST

START_TEST(pageable_memory_makes_every_copy_wait)
{
  g_autoptr(Simulated) s = lower_options(five, "fsdp.pin_memory=false");
  Traffic t = traffic_of(s, 1, "gradient to host");
  ck_assert_int_eq(t.event_syncs, 0);
  ck_assert_int_eq(t.stream_syncs, 3 * FIVE);
}
END_TEST

/* ---- the optimizer */

/* 4 layers of 1024 x 1024 in fp32 are 4 MiB for each of four ranks.  Fused Adam reads weight,
 * gradient and moments and writes all but the gradient, 7 times that; clipping reads gradients for
 * their norm, then reads and writes them. */
START_TEST(the_cpu_updates_and_clips_at_its_memorys_speed)
{
  static const char wide[] =
      "{'family': 'blocks', 'hidden': 1024, 'embedding': false, 'head': false, 'loss': 'sum',"
      " 'blocks': [{'repeat': 4, 'ops': [{'op': 'linear', 'out': 1024}]}]}";
  g_autoptr(Simulated) adam = lower_options(wide, "");
  ck_assert_int_eq(traffic_of(adam, 1, "").mebibytes_worked, 7 * 4);
  g_autoptr(Simulated) clipped = lower_options(wide, "optimizer.clip_grad_norm=1");
  ck_assert_int_eq(traffic_of(clipped, 1, "").mebibytes_worked, (7 + 3) * 4);
  g_autoptr(Simulated) summed =
      lower_options(wide, "optimizer.name=none accumulation.steps=2 fsdp.pin_memory=false");
  ck_assert_int_eq(traffic_of(summed, 1, "").mebibytes_worked, 3 * 4);
}
END_TEST

/* ---- FSDP1 */

/* Both are page-locked whatever the optimizer makes of them: the shard and the gradient that is
 * copied into (_cpu_grad), padded.  5 flat parameters of 3600 elements, cut into 4. */
START_TEST(fsdp1_keeps_shards_and_gradients_in_page_locked_memory)
{
  g_autoptr(Simulated) s = lower_options(five, "strategy=fsdp1 fsdp.reshard_after_forward=null");
  const gint64 share = 4 * ALL / RANKS;
  ck_assert_int_eq(simulated_bytes_in(s, 0, CATEGORY_PARAMETER, SPACE_PINNED), share);
  ck_assert_int_eq(simulated_bytes_in(s, 0, CATEGORY_SHARDED_GRADIENT, SPACE_PINNED), share);
  ck_assert_int_eq(simulated_bytes_in(s, STEPS, CATEGORY_OPTIMIZER_STATE, SPACE_HOST), 2 * share);
  for (int k = 0; k < CATEGORY_COUNT; k++)
    if (k != CATEGORY_OTHER && k != CATEGORY_WORKSPACE)
      ck_assert_int_eq(simulated_bytes_in(s, STEPS, (Category) k, SPACE_DEVICE), 0);
}
END_TEST

/* pre_unshard fetches the shard even where the parameters are gathered still: SHARD_GRAD_OP
 * gathers once, and copies twice. */
START_TEST(fsdp1_fetches_the_shard_at_every_unshard)
{
  static const char *const strategies[] = {"FULL_SHARD", "SHARD_GRAD_OP"};
  g_autofree char *options = g_strdup_printf(
      "strategy=fsdp1 fsdp.reshard_after_forward=null fsdp.sharding_strategy=%s", strategies[_i]);
  g_autoptr(Simulated) s = lower_options(five, options);
  ck_assert_int_eq(traffic_of(s, 1, "shard to device").copied, 2 * 4 * ALL / RANKS);
  ck_assert_int_eq(traffic_of(s, 1, "gradient to host").copied, 4 * ALL / RANKS);
  ck_assert_int_eq(simulated_collectives(s, 1, COLLECTIVE_ALL_GATHER).elements,
                   (_i == 0 ? 2 : 1) * ALL);
}
END_TEST

/* What is fetched are the original parameters, as views, until the unit is resharded; without them
 * flat_param.data alone was it, and that is the gathered one next (_use_unsharded_flat_param). */
START_TEST(fsdp1_lets_a_fetched_shard_go_where_no_original_parameter_is_its_view)
{
  for (int original = 0; original < 2; original++) {
    g_autoptr(Simulated) s = lower_options(
        five, original ? "strategy=fsdp1 fsdp.reshard_after_forward=null precision.compute=fp32"
                       : "strategy=fsdp1 fsdp.reshard_after_forward=null precision.compute=fp32"
                         " fsdp.use_orig_params=false");
    const Program *program = s->lowered->program;
    const GArray *ops = simulated_ops(s, 1);
    gint32 shard = -1;
    int kernels = 0; /* of the compute stream, while a fetched shard is there */
    for (guint i = 0; i < ops->len; i++) {
      const ProgramOp *op = &g_array_index(ops, ProgramOp, i);
      if (op->kind == PROGRAM_ALLOC &&
          strcmp(program_text(program, g_array_index(program->storages, Storage, op->a).what),
                 "shard on the device") == 0)
        shard = op->a;
      else if (op->kind == PROGRAM_FREE && op->a == shard)
        shard = -1;
      else if (op->kind == PROGRAM_LAUNCH && op->stream == STREAM_COMPUTE)
        kernels += shard >= 0;
    }
    ck_assert_msg((kernels > 0) == original, "%d kernels with use_orig_params %d", kernels,
                  original);
  }
}
END_TEST

/* A state dict unshards as ever, so every unit's shard comes once more, gathered or not. */
START_TEST(fsdp1_fetches_the_shard_for_a_state_dict)
{
  static const char *const strategies[] = {"FULL_SHARD", "SHARD_GRAD_OP"};
  for (guint i = 0; i < G_N_ELEMENTS(strategies); i++) {
    g_autofree char *options =
        g_strdup_printf("strategy=fsdp1 fsdp.reshard_after_forward=null fsdp.sharding_strategy=%s"
                        " phases.evaluate.every=1",
                        strategies[i]);
    g_autofree char *saving =
        g_strconcat(options, " phases.save.state=full phases.save.optimizer=false", NULL);
    g_autoptr(Simulated) without = lower_options(five, options);
    g_autoptr(Simulated) with = lower_options(five, saving);
    ck_assert_int_eq(simulated_allocations(with, STEPS - 1, "shard on the device").count -
                         simulated_allocations(without, STEPS - 1, "shard on the device").count,
                     FIVE);
  }
}
END_TEST

/* ---- refusals */

static const struct {
  const char *set, *key;
} refused[] = {
    {"fsdp.cpu_offload=false fsdp.pin_memory=false", "fsdp.pin_memory"},
    {"strategy=fsdp1 fsdp.reshard_after_forward=null fsdp.pin_memory=false", "fsdp.pin_memory"},
    {"strategy=fsdp1 fsdp.reshard_after_forward=null accumulation.steps=2",
     "accumulation.sync_every_step"},
    {"strategy=fsdp1 fsdp.reshard_after_forward=null fsdp.sharding_strategy=NO_SHARD",
     "fsdp.cpu_offload"},
    {"strategy=fsdp1 fsdp.reshard_after_forward=null mesh.shard=1", "fsdp.cpu_offload"},
};

START_TEST(what_cannot_be_offloaded_is_refused_with_its_key)
{
  g_auto(GStrv) set = g_strsplit(refused[_i].set, " ", -1);
  g_autoptr(GError) error = NULL;
  g_autoptr(Simulated) s =
      simulation_try(&(Simulation){five, plan, (const char *const *) set, 0}, STEPS, &error);
  ck_assert_ptr_null(s);
  ck_assert_msg(strstr(error->message, refused[_i].key) != NULL, "%s", error->message);
}
END_TEST

/* ---- recorded runs */

static const char *const recorded[] = {"1b_cpuoffload", "7b_cpuoffload",
                                       "7b_cpuoffload_clip_foreach"};

static char *
recorded_run_plan(const cJSON *config)
{
  return g_strdup_printf(
      "{'strategy': 'fsdp2', 'mesh': {'shard': %d},"
      " 'batch': {'micro_batch': %d, 'sequence_length': %d},"
      " 'precision': {'compute': 'bf16', 'reduce': 'fp32'},"
      " 'activation_checkpointing': {'policy': '%s'},"
      " 'optimizer': {'implementation': '%s', 'clip_grad_norm': %d},"
      " 'fsdp': {'cpu_offload': true, 'pin_memory': %s, 'reshard_after_forward': %s}}",
      recorded_int(config, "world"), recorded_int(config, "batch"), recorded_int(config, "seq"),
      recorded_text(config, "ac"), recorded_text(config, "opt_impl"), recorded_flag(config, "clip"),
      recorded_flag(config, "pin") ? "true" : "false", recorded_text(config, "raf"));
}

START_TEST(recorded_runs_have_the_same_peaks_to_the_byte)
{
  cJSON *run;
  g_autoptr(Simulated) s = recorded_run_compare(recorded[_i], recorded_run_plan, &run);
  if (s == NULL)
    return;
  cJSON_Delete(run);
}
END_TEST

Suite *
test_suite(void)
{
  Suite *suite = suite_create("fsdp offload");
  TCase *tests = tcase_create("fsdp offload");
  tcase_add_test(tests, shards_gradients_and_states_are_on_the_host);
  tcase_add_test(tests, without_pinning_all_of_it_is_pageable);
  tcase_add_test(tests, a_shard_is_padded_and_its_gradient_is_not);
  tcase_add_loop_test(tests, a_shard_comes_for_each_gather_and_goes_for_each_reduction, 1, 4);
  tcase_add_test(tests, the_host_waits_for_each_gradient_at_the_end_of_backward);
  tcase_add_test(tests, a_gradient_that_is_added_is_waited_for_at_once);
  tcase_add_test(tests, pageable_memory_makes_every_copy_wait);
  tcase_add_test(tests, the_cpu_updates_and_clips_at_its_memorys_speed);
  tcase_add_test(tests, fsdp1_keeps_shards_and_gradients_in_page_locked_memory);
  tcase_add_loop_test(tests, fsdp1_fetches_the_shard_at_every_unshard, 0, 2);
  tcase_add_test(tests, fsdp1_lets_a_fetched_shard_go_where_no_original_parameter_is_its_view);
  tcase_add_test(tests, fsdp1_fetches_the_shard_for_a_state_dict);
  tcase_add_loop_test(tests, what_cannot_be_offloaded_is_refused_with_its_key, 0,
                      G_N_ELEMENTS(refused));
  tcase_add_loop_test(tests, recorded_runs_have_the_same_peaks_to_the_byte, 0,
                      G_N_ELEMENTS(recorded));
  suite_add_tcase(suite, tests);
  return suite;
}
