/* check_ranks.c - ranks that differ: classes and where they meet, stragglers and jitter, and that a
 * class gives the same answer as all its ranks. */
#include "collective/collective.h"
#include "exec/executor.h"
#include "program/program_builder.h"
#include "simulate/simulate_ranks.h"
#include "simulation.h"
#include "tap_main.h"
#include <glib/gstdio.h>
#include <math.h>
#include <string.h>
#include <unistd.h>

/* ---- classes ---- */

/* Groups of `shard` neighbours, and groups of `replicate` ranks at that distance. */
static GArray *
mesh(int shard, int replicate)
{
  GArray *communicators = g_array_new(FALSE, TRUE, sizeof(Communicator));
  Communicator rows = {.ranks = shard, .stride = 1},
               columns = {.ranks = replicate, .stride = shard};
  g_array_append_val(communicators, rows);
  g_array_append_val(communicators, columns);
  return communicators;
}

static RankClasses *
classes_of(int shard, int replicate, const int *colours)
{
  g_autoptr(GArray) communicators = mesh(shard, replicate);
  return rank_classes_new(shard * replicate, colours, communicators);
}

START_TEST(equal_ranks_are_one_class)
{
  g_autofree int *colours = g_new0(int, 16384);
  g_autoptr(RankClasses) classes = classes_of(128, 128, colours);
  ck_assert_int_eq(classes->n, 1);
  ck_assert_int_eq(classes->count[0], 16384);
  ck_assert_uint_eq(classes->meetings->len, 2);
  ck_assert_int_eq(g_array_index(classes->meetings, int, 0), 1);
}
END_TEST

/* In a mesh of 4 x 3 rank 5 is the second of the second group.  Its neighbours 4, 6 and 7 meet it,
 * and 1 and 9; the other six do not, but meet those. */
START_TEST(one_slow_rank_of_a_mesh_makes_four_classes)
{
  const int colours[12] = {[5] = 1};
  static const int alike[4][7] = {{5, -1}, {4, 6, 7, -1}, {1, 9, -1}, {0, 2, 3, 8, 10, 11, -1}};
  g_autoptr(RankClasses) classes = classes_of(4, 3, colours);
  ck_assert_int_eq(classes->n, 4);
  for (guint i = 0; i < 4; i++)
    for (int k = 0; alike[i][k] >= 0; k++) {
      int of_this = classes->class_of[alike[i][k]];
      ck_assert_int_eq(of_this, classes->class_of[alike[i][0]]);
      ck_assert_int_eq(classes->first[of_this], alike[i][0]);
    }
  /* Rows: 5 with its neighbours, and (1 or 9) with the others.  Columns: 5 with 1 and 9, the rest.
   */
  ck_assert_uint_eq(classes->meetings->len, 4);
  for (guint i = 0; i < 4; i++)
    ck_assert_int_eq(g_array_index(classes->meetings, int, i), 2);
}
END_TEST

START_TEST(those_who_meet_sit_in_different_places_of_the_same_meeting)
{
  enum { SHARD = 5, REPLICATE = 4, RANKS = SHARD * REPLICATE };
  int colours[RANKS];
  for (int i = 0; i < RANKS; i++)
    colours[i] = i * i % 7;
  g_autoptr(RankClasses) classes = classes_of(SHARD, REPLICATE, colours);
  for (int a = 0; a < RANKS; a++)
    for (int b = 0; b < RANKS; b++)
      for (int k = 0; k < 2; k++) {
        gboolean meet = k == 0 ? a / SHARD == b / SHARD : a % SHARD == b % SHARD;
        int x = classes->class_of[a], y = classes->class_of[b];
        const ClassSeat *p = &classes->seats[x * 2 + k], *q = &classes->seats[y * 2 + k];
        if (meet)
          ck_assert_int_eq(p->meeting, q->meeting);
        if (meet && x != y)
          ck_assert_int_ne(p->party, q->party);
        if (x == y)
          ck_assert_int_eq(colours[a], colours[b]);
      }
}
END_TEST

/* ---- speed ---- */

START_TEST(jitter_has_its_deviation_and_its_seed)
{
  enum { N = 20000 };
  double sum = 0, squares = 0;
  for (int i = 0; i < N; i++) {
    RankSpeed speed = {.jitter = 0.05, .seed = 7, .rank = i % 200};
    double factor = rank_speed_factor(&speed, i / 200);
    ck_assert_double_eq(factor, rank_speed_factor(&speed, i / 200));
    ck_assert_double_le(fabs(factor - 1), 3 * 0.05 + 1e-12);
    sum += factor - 1;
    squares += (factor - 1) * (factor - 1);
  }
  /* Cutting a normal at three deviations takes 1.3 % off its own. */
  ck_assert_double_le(fabs(sum / N), 4 * 0.05 / sqrt(N));
  ck_assert_double_eq_tol(sqrt(squares / N), 0.05 * 0.987, 0.002);
  RankSpeed one = {.jitter = 0.05, .seed = 1}, other = {.jitter = 0.05, .seed = 2};
  ck_assert_double_ne(rank_speed_factor(&one, 1), rank_speed_factor(&other, 1));
  ck_assert_double_eq(rank_speed_factor(&(RankSpeed){.compute = 1.5}, 3), 1.5);
}
END_TEST

/* ---- whole runs ---- */

typedef struct {
  RunResult result;
} Run;

static Run
run_with(const char *network, const char *plan, const char *const *set, const RunRequest *wanted)
{
  g_autofree char *models = test_source_path("models");
  g_setenv("HIGHWATER_MODELS", models, FALSE);
  g_autoptr(GError) error = NULL;
  RunRequest request = *wanted;
  request.steps = 3;
  request.keep_spans = TRUE;
  request.inputs.assignments = g_strdupv((char **) (gsize) set);
  Run run = {0};
  ck_assert(input_text_read("network", network, &request.inputs.network, &error));
  ck_assert(input_text_read("plan", plan, &request.inputs.plan, &error));
  ck_assert(input_text_read("cluster", "h100-8", &request.inputs.cluster, &error));
  gboolean done = run_simulation(&request, &run.result, &error);
  ck_assert_msg(done, "%s", error ? error->message : "");
  input_text_clear(&request.inputs.network);
  input_text_clear(&request.inputs.plan);
  input_text_clear(&request.inputs.cluster);
  g_strfreev(request.inputs.assignments);
  return run;
}

static void
run_clear(Run *run)
{
  recording_free(run->result.recording);
  run_info_free(run->result.info);
}
G_DEFINE_AUTO_CLEANUP_CLEAR_FUNC(Run, run_clear)

static SimTime
step_time(const Run *run)
{
  const Recording *r = run->result.recording;
  return recording_step_duration(r, r->steps->len - 1);
}

#define SET(...) ((const char *const[]){__VA_ARGS__, NULL})

static void
assert_same(const Recording *a, const Recording *b)
{
  g_autofree char *path = g_build_filename(g_get_tmp_dir(), "highwater-ranks-XXXXXX", NULL);
  g_autofree char *one = NULL, *other = NULL;
  g_autoptr(GError) error = NULL;
  gsize length, length_b;
  int fd = g_mkstemp(path);
  ck_assert_int_ge(fd, 0);
  close(fd);
  ck_assert(recording_save(a, path, &error));
  ck_assert(g_file_get_contents(path, &one, &length, NULL));
  ck_assert(recording_save(b, path, &error));
  ck_assert(g_file_get_contents(path, &other, &length_b, NULL));
  g_remove(path);
  ck_assert_uint_eq(length, length_b);
  ck_assert_msg(memcmp(one, other, length) == 0, "the recordings differ");
}

static const struct {
  const char *network, *plan;
  const char *const *set;
} equal_runs[] = {
    {"tiny", "fsdp2", (const char *const[]){NULL}},
    {"tiny", "hsdp", (const char *const[]){"mesh.shard=4", "mesh.replicate=2", NULL}},
    {"gpt2", "fsdp1",
     (const char *const[]){"batch.sequence_length=512", "optimizer.clip_grad_norm=1.0", NULL}},
    {"tiny", "fsdp1-hybrid", (const char *const[]){"mesh.shard=2", "mesh.replicate=3", NULL}},
    {"tiny", "ddp", (const char *const[]){NULL}},
    {"tiny", "zero3", (const char *const[]){NULL}},
};

/* Not only the times: every span, allocation and range. */
START_TEST(all_ranks_give_the_same_recording_as_one_for_all)
{
  g_auto(Run) one = run_with(equal_runs[_i].network, equal_runs[_i].plan, equal_runs[_i].set,
                             &(RunRequest){.rank = 0});
  g_auto(Run) all = run_with(equal_runs[_i].network, equal_runs[_i].plan, equal_runs[_i].set,
                             &(RunRequest){.all_ranks = TRUE});
  ck_assert_int_eq(all.result.info->ranks.simulated, all.result.info->ranks.ranks);
  ck_assert_int_eq(all.result.info->ranks.waited, 0);
  assert_same(one.result.recording, all.result.recording);
}
END_TEST

/* Classes and all ranks are two ways to the same answer, whichever rank is described. */
START_TEST(classes_give_the_same_step_as_all_ranks)
{
  const char *const set[] = {"mesh.shard=4", "mesh.replicate=2",
                             "ranks.slow=[{\"rank\": 5, \"compute\": 1.5}]",
                             "batch.sequence_length=2048", NULL};
  for (int rank = 0; rank < 8; rank += 5) {
    g_auto(Run) classes = run_with("llama-3.2-1b", "hsdp", set, &(RunRequest){.rank = rank});
    g_auto(Run) all =
        run_with("llama-3.2-1b", "hsdp", set, &(RunRequest){.rank = rank, .all_ranks = TRUE});
    ck_assert_int_eq(classes.result.info->ranks.simulated, 4);
    ck_assert_int_eq(all.result.info->ranks.simulated, 8);
    ck_assert_int_eq(classes.result.info->ranks.slowest, 5);
    assert_same(classes.result.recording, all.result.recording);
  }
}
END_TEST

START_TEST(a_straggler_costs_no_more_than_if_all_were_as_slow)
{
  const char *const one[] = {"ranks.slow=[{\"rank\": 3, \"compute\": 1.2}]",
                             "batch.sequence_length=4096", NULL};
  g_auto(Run) straggler = run_with("llama-3.2-1b", "fsdp2", one, &(RunRequest){0});
  g_auto(Run) equal =
      run_with("llama-3.2-1b", "fsdp2", SET("batch.sequence_length=4096"), &(RunRequest){0});
  const RanksInfo *info = &straggler.result.info->ranks;
  ck_assert_int_eq(info->step_of_equals, step_time(&equal));
  ck_assert_int_gt(step_time(&straggler), step_time(&equal));
  ck_assert_double_le((double) step_time(&straggler), 1.2 * (double) step_time(&equal));
  ck_assert_int_eq(info->slowest, 3);
  ck_assert_double_eq(info->slowest_compute, 1.2);
  ck_assert_int_gt(info->waited, 0);
}
END_TEST

START_TEST(jitter_is_the_same_for_the_same_seed)
{
  const char *const set[] = {"ranks.jitter=0.05", "ranks.seed=3", NULL};
  g_auto(Run) one = run_with("tiny", "fsdp2", set, &(RunRequest){0});
  g_auto(Run) again = run_with("tiny", "fsdp2", set, &(RunRequest){0});
  ck_assert_int_eq(one.result.info->ranks.simulated, 8);
  assert_same(one.result.recording, again.result.recording);
}
END_TEST

/* 50257 rows on 8 ranks: seven get 6283, the last one 6276.  The other dimensions are even. */
START_TEST(uneven_shards_have_programs_of_their_own)
{
  g_auto(Run) all = run_with("gpt2", "fsdp2", SET("batch.sequence_length=512"),
                             &(RunRequest){.all_ranks = TRUE, .rank = 7});
  g_auto(Run) last =
      run_with("gpt2", "fsdp2", SET("batch.sequence_length=512"), &(RunRequest){.rank = 7});
  ck_assert_int_eq(all.result.recording->at_rest_bytes, last.result.recording->at_rest_bytes);
  ck_assert_int_eq(all.result.recording->peak.allocated, last.result.recording->peak.allocated);
}
END_TEST

/* 128256 rows on six ranks are even, but 14336 and 4096 are not: the first rank has more than the
 * last. With this limit the last one fits by itself, and the first does not; a run of all that
 * describes the last says so, and does not complain of the ranks that wait for the first. */
START_TEST(a_rank_without_room_is_named)
{
  const char *const set[] = {"mesh.shard=6", "batch.sequence_length=64", NULL};
  const gint64 limit = 24940000000;
  g_auto(Run) first =
      run_with("llama-3-8b", "fsdp2", set, &(RunRequest){.rank = 0, .memory_limit = limit});
  g_auto(Run) last =
      run_with("llama-3-8b", "fsdp2", set, &(RunRequest){.rank = 5, .memory_limit = limit});
  ck_assert(first.result.recording->out_of_memory.happened);
  ck_assert(!last.result.recording->out_of_memory.happened);
  g_auto(Run) all = run_with("llama-3-8b", "fsdp2", set,
                             &(RunRequest){.rank = 5, .memory_limit = limit, .all_ranks = TRUE});
  int without_room = all.result.info->rank_without_room;
  ck_assert_int_ge(without_room, 0);
  ck_assert_int_lt(without_room, 5);
  ck_assert_ptr_null(all.result.recording->stuck);
}
END_TEST

/* Two ranks compute for a while and then gather.  The second takes twice as long, and the first is
 * told when it came to the gather and when that began. */
START_TEST(a_collective_begins_when_its_last_rank_arrives)
{
  g_autofree char *models = test_source_path("models");
  g_setenv("HIGHWATER_MODELS", models, FALSE);
  g_autoptr(GError) error = NULL;
  g_autoptr(ClusterSpec) cluster = cluster_spec_load("h100-8", &error);
  ck_assert_msg(cluster != NULL, "%s", error ? error->message : "");
  ProgramBuilder *b = program_builder_new();
  Kernel k = {.kind = KERNEL_MEMORY,
              .dtype = DTYPE_FP32,
              .name = program_builder_name(b, "kernel"),
              .launches = 1,
              .bytes = 1e9};
  Collective c = {.kind = COLLECTIVE_ALL_GATHER,
                  .dtype = DTYPE_UINT8,
                  .communicator = program_builder_communicator(b, "shard", 2, 1),
                  .name = program_builder_name(b, "group"),
                  .bytes = 1 << 20};
  program_builder_begin_list(b);
  program_builder_begin_list(b);
  program_builder_add_step(b);
  program_builder_launch(b, STREAM_COMPUTE, program_builder_kernel(b, &k));
  program_builder_collective(b, STREAM_COMPUTE, &c);
  g_autoptr(Program) program = program_builder_finish(b);
  const int colours[] = {0, 1};
  g_autoptr(RankClasses) classes = rank_classes_new(2, colours, program->communicators);
  const SimulatedRank ranks[] = {{.program = program},
                                 {.program = program, .speed = {.compute = 2, .rank = 1}}};
  ExecutorConfig config = {
      .cluster = cluster, .allocator = allocator_config_default(), .keep_spans = TRUE};
  RankOutcome outcomes[2];
  g_autoptr(Recording) r = executor_run_ranks(classes, ranks, 0, &config, outcomes);
  const Span *kernel = &g_array_index(r->spans, Span, 0);
  const Span *gather = &g_array_index(r->spans, Span, 1);
  SimTime alone = kernel->end - kernel->start;
  ck_assert_int_eq(kernel->start, 0);
  ck_assert_int_eq(gather->arrived, alone);
  ck_assert_int_eq(gather->start, 2 * alone);
  ck_assert_int_eq(outcomes[0].waited, alone);
  ck_assert_int_eq(outcomes[1].waited, 0);
  ck_assert_int_eq(outcomes[0].last_step, outcomes[1].last_step);
}
END_TEST

Suite *
test_suite(void)
{
  Suite *suite = suite_create("ranks");
  TCase *classes = tcase_create("classes"), *runs = tcase_create("runs");

  suite_add_tcase(suite, classes);
  tcase_add_test(classes, equal_ranks_are_one_class);
  tcase_add_test(classes, one_slow_rank_of_a_mesh_makes_four_classes);
  tcase_add_test(classes, those_who_meet_sit_in_different_places_of_the_same_meeting);
  tcase_add_test(classes, jitter_has_its_deviation_and_its_seed);
  suite_add_tcase(suite, runs);
  tcase_add_loop_test(runs, all_ranks_give_the_same_recording_as_one_for_all, 0,
                      G_N_ELEMENTS(equal_runs));
  tcase_add_test(runs, classes_give_the_same_step_as_all_ranks);
  tcase_add_test(runs, a_straggler_costs_no_more_than_if_all_were_as_slow);
  tcase_add_test(runs, jitter_is_the_same_for_the_same_seed);
  tcase_add_test(runs, uneven_shards_have_programs_of_their_own);
  tcase_add_test(runs, a_rank_without_room_is_named);
  tcase_add_test(runs, a_collective_begins_when_its_last_rank_arrives);
  return suite;
}
