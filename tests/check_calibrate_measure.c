/* check_calibrate_measure.c - measuring on stand-in devices: order statistics, rounds and budget,
 * what is measured, constants found again within 3 %, jobs of several processes. */
#include <math.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/units.h"
#include "calibrate/fit_device.h"
#include "calibrate/measure.h"
#include "calibrate/probe_group.h"
#include "calibrate/sweep.h"
#include "calibrate/wire.h"
#include "stand_in_probe.h"
#include "tap_main.h"

/* ---- order statistics ---- */

START_TEST(the_median_of_an_even_number_lies_between_the_middle_two)
{
  const double values[] = {4, 1, 3, 2};
  SampleStats stats = sample_stats(values, 4);
  ck_assert_double_eq(stats.median, 2.5);
  ck_assert_double_eq(stats.least, 1);
  ck_assert_int_eq(stats.count, 4);
  ck_assert_int_eq(stats.outliers, 0);
}
END_TEST

START_TEST(quantiles_are_interpolated)
{
  const double sorted[] = {0, 10, 20};
  ck_assert_double_eq(sample_quantile(sorted, 3, 0.5), 10);
  ck_assert_double_eq(sample_quantile(sorted, 3, 0.25), 5);
  ck_assert_double_eq(sample_quantile(sorted, 3, 1), 20);
  ck_assert_double_eq(sample_quantile(sorted, 1, 0.9), 0);
}
END_TEST

START_TEST(outliers_are_counted_and_do_not_move_the_median)
{
  /* Deviations from 11: 0 1 1 2 2 3 89: their median is 2, so 3 * 1.4826 * 2 = 8.9 is the limit. */
  const double values[] = {10, 11, 9, 12, 8, 13, 100};
  SampleStats stats = sample_stats(values, 7);
  ck_assert_double_eq(stats.median, 11);
  ck_assert_int_eq(stats.outliers, 1);
}
END_TEST

START_TEST(more_samples_know_the_median_better)
{
  double values[400];
  for (int i = 0; i < 400; i++)
    values[i] = 1 + 0.001 * (i * 7919 % 400);
  double few = sample_stats(values, 25).precision, many = sample_stats(values, 400).precision;
  ck_assert_double_gt(few, many);
  ck_assert_double_gt(many, 0);
}
END_TEST

/* ---- the loop ---- */

static StandIn
stand_in(void)
{
  StandIn truth = {
      .ranks = 1, .noise = 0.01, .alpha_ns = 20e3, .busbw = 100e9, .launch_ns = 3e3, .seed = 7};
  g_autoptr(DeviceProfile) device = device_profile_load("h100-sxm-80gb", NULL);
  ck_assert_ptr_nonnull(device);
  truth.device = *device;
  truth.device.name = truth.device.source = NULL;
  truth.device.gemm_in_step = 1;
  return truth;
}

static const Experiment three[] = {
    {.kind = EXPERIMENT_MEMORY, .bytes = 64 << 20},
    {.kind = EXPERIMENT_CUDA_MALLOC, .bytes = 2 << 20},
    {.kind = EXPERIMENT_MEMORY, .bytes = 256 << 20},
};

START_TEST(every_round_visits_every_experiment)
{
  StandIn truth = stand_in();
  MeasureOptions options = measure_defaults();
  g_autoptr(DeviceProbe) probe = stand_in_open(&truth);
  g_autoptr(Measurements) all = measure(probe, three, 3, &options);
  ck_assert(all->complete);
  ck_assert(!all->interrupted);
  ck_assert_uint_eq(all->measurements->len, 3);
  for (int i = 0; i < 3; i++) {
    Measurement *m = g_ptr_array_index(all->measurements, i);
    ck_assert_uint_eq(m->medians->len, 3);
    ck_assert_uint_ge(m->samples->len, 30);
    ck_assert_uint_le(m->samples->len, 120);
    ck_assert_int_eq(m->experiment.bytes, three[i].bytes);
  }
  ck_assert_str_eq(all->conditions_before, "1.5 GHz, 20 degrees");
  ck_assert_str_eq(all->conditions_after, "1.5 GHz, 20 degrees");
}
END_TEST

START_TEST(a_quiet_device_needs_no_long_series)
{
  StandIn truth = stand_in();
  truth.noise = 0;
  MeasureOptions options = measure_defaults();
  g_autoptr(DeviceProbe) probe = stand_in_open(&truth);
  g_autoptr(Measurements) all = measure(probe, three, 3, &options);
  /* 3 experiments, 3 rounds, one series of 10 after 10 for warming up. */
  ck_assert_int_eq(stand_in_series(probe), 9);
  ck_assert_int_eq(stand_in_iterations(probe), 180);
  ck_assert(all->complete);
}
END_TEST

START_TEST(no_time_no_experiments)
{
  StandIn truth = stand_in();
  MeasureOptions options = measure_defaults();
  options.budget_s = 0;
  g_autoptr(DeviceProbe) probe = stand_in_open(&truth);
  g_autoptr(Measurements) all = measure(probe, three, 3, &options);
  ck_assert(!all->complete);
  ck_assert_int_eq(stand_in_series(probe), 0);
  ck_assert_double_eq(((Measurement *) g_ptr_array_index(all->measurements, 0))->median_ns, 0);
}
END_TEST

typedef struct {
  volatile int stop;
  int after, told;
} Interruption;

static void
stop_after(const MeasureProgress *progress, gpointer data)
{
  Interruption *interruption = data;
  ck_assert_int_eq(progress->of, 3);
  interruption->told++;
  interruption->stop = interruption->told >= interruption->after;
}

START_TEST(an_interrupted_run_keeps_what_it_has)
{
  StandIn truth = stand_in();
  Interruption interruption = {.after = 2};
  MeasureOptions options = measure_defaults();
  options.interrupted = &interruption.stop;
  options.progress = stop_after;
  options.data = &interruption;
  g_autoptr(DeviceProbe) probe = stand_in_open(&truth);
  g_autoptr(Measurements) all = measure(probe, three, 3, &options);
  ck_assert(all->interrupted);
  ck_assert(!all->complete);
  int measured = 0;
  for (int i = 0; i < 3; i++)
    measured += ((Measurement *) g_ptr_array_index(all->measurements, i))->median_ns > 0;
  ck_assert_int_eq(measured, 2);
}
END_TEST

START_TEST(what_the_device_refuses_carries_its_message)
{
  StandIn truth = stand_in();
  truth.refuses_bytes = 100 << 20;
  MeasureOptions options = measure_defaults();
  options.device_bytes = 1;
  g_autoptr(DeviceProbe) probe = stand_in_open(&truth);
  g_autoptr(Measurements) small = measure(probe, three, 1, &options);
  options.device_bytes = 0;
  g_autoptr(Measurements) all = measure(probe, three, 3, &options);
  Measurement *refused = g_ptr_array_index(all->measurements, 2);
  ck_assert_str_eq(refused->failure, "out of memory");
  ck_assert_uint_eq(refused->samples->len, 0);
  ck_assert_double_gt(((Measurement *) g_ptr_array_index(all->measurements, 0))->median_ns, 0);
  Measurement *large = g_ptr_array_index(small->measurements, 0);
  ck_assert_str_eq(large->failure, "needs more device memory than there is");
}
END_TEST

/* ---- what is measured ---- */

static Program *
program_with(const Kernel *kernels, guint count, RankGroup first, RankGroup second)
{
  Program *program = program_new();
  g_array_append_vals(program->kernels, kernels, count);
  Communicator communicators[] = {{.ranks = first.ranks, .stride = first.stride},
                                  {.ranks = second.ranks, .stride = second.stride}};
  g_array_append_vals(program->communicators, communicators, 2);
  return program;
}

static Kernel
product(gint64 m, gint64 n, gint64 k)
{
  return (Kernel){.kind = KERNEL_GEMM,
                  .dtype = DTYPE_BF16,
                  .launches = 1,
                  .m = m,
                  .n = n,
                  .k = k,
                  .flops = 2.0 * (double) (m * n * k)};
}

static int
count_kind(const GArray *list, ExperimentKind kind, BesideKind beside)
{
  int found = 0;
  for (guint i = 0; i < list->len; i++) {
    const Experiment *e = &g_array_index(list, Experiment, i);
    found += e->kind == kind && e->beside == beside;
  }
  return found;
}

START_TEST(products_of_the_program_are_measured_once_each_the_costliest_first)
{
  const Kernel kernels[] = {product(8, 8, 8), product(64, 64, 64), product(8, 8, 8)};
  g_autoptr(Program) program = program_with(kernels, 3, (RankGroup){1, 1}, (RankGroup){1, 1});
  ProbeFacts facts = {.ranks = 1};
  g_autoptr(GArray) list = sweep_experiments(&facts, program);
  ck_assert_int_eq(count_kind(list, EXPERIMENT_GEMM, BESIDE_NOTHING), 2);
  for (guint i = 0; i < list->len; i++) {
    const Experiment *e = &g_array_index(list, Experiment, i);
    if (e->kind != EXPERIMENT_GEMM)
      continue;
    ck_assert_int_eq(e->m, 64);
    break;
  }
  ck_assert_int_eq(count_kind(list, EXPERIMENT_COLLECTIVE, BESIDE_NOTHING), 0);
  ck_assert_int_eq(count_kind(list, EXPERIMENT_GEMM, BESIDE_TRAFFIC), 8);
}
END_TEST

START_TEST(without_a_program_products_of_usual_sizes_are_measured)
{
  ProbeFacts facts = {.ranks = 1};
  g_autoptr(GArray) list = sweep_experiments(&facts, NULL);
  ck_assert_int_eq(count_kind(list, EXPERIMENT_GEMM, BESIDE_NOTHING), 8);
}
END_TEST

START_TEST(groups_of_the_program_and_the_whole_job_are_measured)
{
  const Kernel kernels[] = {product(64, 64, 64)};
  g_autoptr(Program) program = program_with(kernels, 1, (RankGroup){4, 1}, (RankGroup){2, 4});
  ProbeFacts facts = {.ranks = 8, .nccl = "2"};
  g_autoptr(GArray) list = sweep_experiments(&facts, program);
  /* 7 kinds and placements, 21 sizes from 1 KiB to 1 GiB, groups of 4, 2 and all 8. */
  ck_assert_int_eq(count_kind(list, EXPERIMENT_COLLECTIVE, BESIDE_NOTHING), 7 * 21 * 3);
  /* Each beside each of the two others, in three sizes; a product beside each of three. */
  ck_assert_int_eq(count_kind(list, EXPERIMENT_COLLECTIVE, BESIDE_COLLECTIVE), 3 * 2 * 3);
  ck_assert_int_eq(count_kind(list, EXPERIMENT_GEMM, BESIDE_COLLECTIVE), 3 * 3);
  g_autoptr(GArray) none = sweep_groups_left_out(&facts, program);
  ck_assert_uint_eq(none->len, 0);
}
END_TEST

START_TEST(groups_that_the_job_is_too_small_for_are_named)
{
  const Kernel kernels[] = {product(64, 64, 64)};
  g_autoptr(Program) program = program_with(kernels, 1, (RankGroup){64, 1}, (RankGroup){2, 64});
  ProbeFacts facts = {.ranks = 8, .nccl = "2"};
  g_autoptr(GArray) left_out = sweep_groups_left_out(&facts, program);
  ck_assert_uint_eq(left_out->len, 2);
  ck_assert_int_eq(g_array_index(left_out, RankGroup, 0).ranks, 64);
}
END_TEST

START_TEST(shards_of_collectives_are_whole)
{
  ProbeFacts facts = {.ranks = 6, .nccl = "2"};
  g_autoptr(GArray) list = sweep_experiments(&facts, NULL);
  for (guint i = 0; i < list->len; i++) {
    const Experiment *e = &g_array_index(list, Experiment, i);
    if (e->kind == EXPERIMENT_COLLECTIVE)
      ck_assert_int_eq(e->call.bytes % (6 * 16), 0);
  }
}
END_TEST

START_TEST(experiments_are_told_in_words)
{
  Experiment e = {.kind = EXPERIMENT_GEMM,
                  .dtype = DTYPE_BF16,
                  .m = 8192,
                  .n = 4096,
                  .k = 1024,
                  .beside = BESIDE_TRAFFIC,
                  .blocks = 16};
  g_autofree char *text = experiment_text(&e);
  ck_assert_str_eq(text, "gemm bf16 8192 x 4096 x 1024 beside 16 blocks of traffic");
  Experiment c = {.kind = EXPERIMENT_COLLECTIVE,
                  .call = {COLLECTIVE_ALL_GATHER, TRUE, {8, 2}, 64 << 20}};
  g_autofree char *gather = experiment_text(&c);
  ck_assert_str_eq(gather, "all_gather of 64.0 MiB in place, 8 ranks 2 apart");
}
END_TEST

/* ---- constants ---- */

static const FittedConstant *
constant(const GArray *constants, const char *key)
{
  for (guint i = 0; i < constants->len; i++)
    if (strcmp(g_array_index(constants, FittedConstant, i).key, key) == 0)
      return &g_array_index(constants, FittedConstant, i);
  ck_abort_msg("no constant %s", key);
  return NULL;
}

static void
assert_near(const GArray *constants, const char *key, double truth)
{
  const FittedConstant *c = constant(constants, key);
  ck_assert_msg(fabs(c->value / truth - 1) < 0.03, "%s is %g, found %g", key, truth, c->value);
  ck_assert_int_gt(c->experiments, 0);
  ck_assert_double_lt(c->median_error, 0.03);
}

/* Through 2 % of noise and one sample in twenty that takes three times as long. */
START_TEST(known_constants_are_found_again_within_three_percent)
{
  StandIn truth = stand_in();
  g_autoptr(DeviceProfile) base = device_profile_load("h100-sxm-80gb", NULL);
  truth.noise = 0.02;
  truth.outliers = 0.05;
  truth.device.gemm_efficiency = base->gemm_efficiency * 0.81;
  truth.device.memory_efficiency = base->memory_efficiency * 0.9;
  truth.device.host_copy_bandwidth = 23e9;
  truth.device.cuda_malloc_ns = 123e3;
  truth.device.cuda_free_ns = 77e3;
  ProbeFacts facts = {.ranks = 1};
  g_autoptr(GArray) list = sweep_experiments(&facts, NULL);
  MeasureOptions options = measure_defaults();
  g_autoptr(DeviceProbe) probe = stand_in_open(&truth);
  g_autoptr(Measurements) all =
      measure(probe, (const Experiment *) (void *) list->data, list->len, &options);
  g_autoptr(GArray) constants = fit_device(base, all);
  assert_near(constants, "gemm_efficiency", truth.device.gemm_efficiency);
  assert_near(constants, "memory_efficiency", truth.device.memory_efficiency);
  assert_near(constants, "host_copy_gb_per_s", 23);
  assert_near(constants, "cuda_malloc_us", 123);
  assert_near(constants, "cuda_free_us", 77);
}
END_TEST

START_TEST(what_was_not_measured_keeps_its_value)
{
  StandIn truth = stand_in();
  g_autoptr(DeviceProfile) base = device_profile_load("h100-sxm-80gb", NULL);
  MeasureOptions options = measure_defaults();
  g_autoptr(DeviceProbe) probe = stand_in_open(&truth);
  g_autoptr(Measurements) all = measure(probe, three, 1, &options);
  g_autoptr(GArray) constants = fit_device(base, all);
  const FittedConstant *gemm = constant(constants, "gemm_efficiency");
  ck_assert_int_eq(gemm->experiments, 0);
  ck_assert_double_eq(gemm->value, base->gemm_efficiency);
  ck_assert_int_eq(constant(constants, "memory_efficiency")->experiments, 1);
}
END_TEST

/* ---- jobs of several processes ---- */

static void
clear_launchers(void)
{
  const char *const variables[] = {
      "OMPI_COMM_WORLD_RANK", "RANK",        "PMI_RANK",   "SLURM_PROCID",
      "SLURM_JOB_NODELIST",   "MASTER_ADDR", "MASTER_PORT"};
  for (guint i = 0; i < G_N_ELEMENTS(variables); i++)
    g_unsetenv(variables[i]);
}

START_TEST(without_a_launcher_the_process_is_alone)
{
  clear_launchers();
  ProcessPlace place;
  ck_assert(process_place_find(&place, NULL));
  ck_assert_int_eq(place.rank, 0);
  ck_assert_int_eq(place.size, 1);
}
END_TEST

START_TEST(launchers_say_where_the_process_is)
{
  clear_launchers();
  g_setenv("SLURM_PROCID", "9", TRUE);
  g_setenv("SLURM_NTASKS", "16", TRUE);
  g_setenv("SLURM_LOCALID", "1", TRUE);
  ProcessPlace place;
  ck_assert(process_place_find(&place, NULL));
  ck_assert_int_eq(place.rank, 9);
  ck_assert_int_eq(place.size, 16);
  ck_assert_int_eq(place.local_rank, 1);
  ck_assert_int_eq(place.local_size, 0);
  g_setenv("SLURM_PROCID", "16", TRUE);
  g_autoptr(GError) error = NULL;
  ck_assert(!process_place_find(&place, &error));
  ck_assert(test_error_says(error, "SLURM_PROCID: '16' is not in 0..15"));
}
END_TEST

START_TEST(the_first_host_of_a_list_is_the_meeting_point)
{
  static const char *const lists[][2] = {{"gpu[07-09,12],login", "gpu07"},
                                         {"node1,node2", "node1"},
                                         {"a100-3", "a100-3"},
                                         {"n[3,5]", "n3"}};
  for (guint i = 0; i < G_N_ELEMENTS(lists); i++) {
    g_autofree char *host = first_host(lists[i][0]);
    ck_assert_str_eq(host, lists[i][1]);
  }
  clear_launchers();
  ProcessPlace place = {.rank = 1, .size = 4};
  MeetingPoint point;
  g_autoptr(GError) error = NULL;
  ck_assert(!meeting_point_find(&place, &point, &error));
  ck_assert(test_error_says(error, "MASTER_ADDR is not set"));
  g_setenv("SLURM_JOB_NODELIST", "n[3,5]", TRUE);
  ck_assert(meeting_point_find(&place, &point, NULL));
  ck_assert_str_eq(point.host, "n3");
  ck_assert_int_eq(point.port, 29411);
  g_free(point.host);
}
END_TEST

/* A module of stand-ins: process r has two GPUs and takes r + 1 times as long; the last refuses
 * what is larger than 100 MiB. */
static gboolean
fake_id(char id[DEVICE_PROBE_ID_BYTES], GError **error G_GNUC_UNUSED)
{
  memset(id, 42, DEVICE_PROBE_ID_BYTES);
  return TRUE;
}

static gboolean
fake_count(const ProcessPlace *place, int *gpus, GError **error G_GNUC_UNUSED)
{
  /* All processes of the test are on one node. */
  *gpus = place->local_size == place->size && place->local_rank == place->rank ? 2 : 1000;
  return TRUE;
}

static DeviceProbe *
fake_open(const ProcessPlace *place, int first, int ranks, const char id[DEVICE_PROBE_ID_BYTES],
          GError **error)
{
  if (first != 2 * place->rank || ranks != 2 * place->size || id == NULL || id[100] != 42) {
    g_set_error(error, HIGHWATER_ERROR, HIGHWATER_ERROR_INPUT, "wrong seat");
    return NULL;
  }
  StandIn truth = stand_in();
  truth.noise = 0;
  truth.slower = place->rank + 1;
  truth.refuses_bytes = place->rank == place->size - 1 ? 100 << 20 : 0;
  return stand_in_open(&truth);
}

static DeviceProbe *
fake_broken(const ProcessPlace *place, int first, int ranks, const char *id, GError **error)
{
  if (place->rank != 2)
    return fake_open(place, first, ranks, id, error);
  g_set_error(error, HIGHWATER_ERROR, HIGHWATER_ERROR_INPUT, "GPU fell off the bus");
  return NULL;
}

enum { PROCESSES = 3 };

static char local_host[] = "127.0.0.1";

typedef struct {
  ProbeJob job;
  pid_t others[PROCESSES];
} FakeJob;

static void
start_job(FakeJob *fake, const DeviceProbeModule *module)
{
  int port = 0;
  *fake = (FakeJob){.job = {.module = module,
                            .place = {.size = PROCESSES},
                            .point = {.host = local_host},
                            .patience_s = 20}};
  fake->job.listener = wire_listen(&port, NULL);
  ck_assert_int_ge(fake->job.listener, 0);
  fake->job.point.port = port;
  for (int rank = 1; rank < PROCESSES; rank++) {
    fake->others[rank] = fork();
    if (fake->others[rank] == 0) {
      fake->job.place.rank = rank;
      close(fake->job.listener);
      _exit(probe_group_serve(&fake->job, NULL) ? 0 : 1);
    }
  }
}

static int
join_job(FakeJob *fake)
{
  int failed = 0, status;
  for (int rank = 1; rank < PROCESSES; rank++) {
    waitpid(fake->others[rank], &status, 0);
    failed += !WIFEXITED(status) || WEXITSTATUS(status) != 0;
  }
  return failed;
}

START_TEST(the_slowest_process_of_a_job_counts)
{
  static const DeviceProbeModule module = {fake_id, fake_count, fake_open};
  FakeJob fake;
  start_job(&fake, &module);
  g_autoptr(GError) error = NULL;
  DeviceProbe *probe = probe_group_open(&fake.job, &error);
  ck_assert_msg(probe != NULL, "%s", error != NULL ? error->message : "");
  ProbeFacts facts;
  probe->class->describe(probe, &facts);
  ck_assert_int_eq(facts.ranks, 6);
  ck_assert_int_eq(facts.ranks_of_node, 6);
  MeasureOptions options = measure_defaults();
  g_autoptr(Measurements) all = measure(probe, three, 3, &options);
  device_probe_close(probe);
  ck_assert_int_eq(join_job(&fake), 0);
  StandIn truth = stand_in();
  Measurement *allocation = g_ptr_array_index(all->measurements, 1);
  ck_assert_double_eq_tol(allocation->median_ns, PROCESSES * truth.device.cuda_malloc_ns, 1);
  Measurement *refused = g_ptr_array_index(all->measurements, 2);
  ck_assert_str_eq(refused->failure, "process 2: out of memory");
}
END_TEST

START_TEST(a_process_that_cannot_ends_the_job)
{
  static const DeviceProbeModule module = {fake_id, fake_count, fake_broken};
  FakeJob fake;
  start_job(&fake, &module);
  g_autoptr(GError) error = NULL;
  ck_assert_ptr_null(probe_group_open(&fake.job, &error));
  ck_assert(test_error_says(error, "process 2: GPU fell off the bus"));
  ck_assert_int_eq(join_job(&fake), 1);
}
END_TEST

START_TEST(nobody_waits_for_ever)
{
  int port = 0;
  ProbeJob job = {.place = {.size = 2}, .patience_s = 0.05};
  job.listener = wire_listen(&port, NULL);
  g_autoptr(GError) error = NULL;
  ck_assert_ptr_null(probe_group_open(&job, &error));
  ck_assert(test_error_says(error, "did not call in time"));
}
END_TEST

Suite *
test_suite(void)
{
  Suite *suite = suite_create("measuring");
  TCase *samples = tcase_create("samples");
  tcase_add_test(samples, the_median_of_an_even_number_lies_between_the_middle_two);
  tcase_add_test(samples, quantiles_are_interpolated);
  tcase_add_test(samples, outliers_are_counted_and_do_not_move_the_median);
  tcase_add_test(samples, more_samples_know_the_median_better);
  suite_add_tcase(suite, samples);

  TCase *loop = tcase_create("loop");
  tcase_add_test(loop, every_round_visits_every_experiment);
  tcase_add_test(loop, a_quiet_device_needs_no_long_series);
  tcase_add_test(loop, no_time_no_experiments);
  tcase_add_test(loop, an_interrupted_run_keeps_what_it_has);
  tcase_add_test(loop, what_the_device_refuses_carries_its_message);
  suite_add_tcase(suite, loop);

  TCase *sweep = tcase_create("sweep");
  tcase_add_test(sweep, products_of_the_program_are_measured_once_each_the_costliest_first);
  tcase_add_test(sweep, without_a_program_products_of_usual_sizes_are_measured);
  tcase_add_test(sweep, groups_of_the_program_and_the_whole_job_are_measured);
  tcase_add_test(sweep, groups_that_the_job_is_too_small_for_are_named);
  tcase_add_test(sweep, shards_of_collectives_are_whole);
  tcase_add_test(sweep, experiments_are_told_in_words);
  suite_add_tcase(suite, sweep);

  TCase *fit = tcase_create("fit");
  tcase_add_test(fit, known_constants_are_found_again_within_three_percent);
  tcase_add_test(fit, what_was_not_measured_keeps_its_value);
  suite_add_tcase(suite, fit);

  TCase *job = tcase_create("job");
  tcase_add_test(job, without_a_launcher_the_process_is_alone);
  tcase_add_test(job, launchers_say_where_the_process_is);
  tcase_add_test(job, the_first_host_of_a_list_is_the_meeting_point);
  tcase_add_test(job, the_slowest_process_of_a_job_counts);
  tcase_add_test(job, a_process_that_cannot_ends_the_job);
  tcase_add_test(job, nobody_waits_for_ever);
  suite_add_tcase(suite, job);
  return suite;
}
