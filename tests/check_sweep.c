/* check_sweep.c - variants of a sweep: what is refused and when, what is the same in all, which are
 * best; outcomes do not depend on threads, results read again are the same, an interrupted sweep
 * goes on where it was. */
#include <glib/gstdio.h>
#include <math.h>
#include <string.h>

#include "search/sweep_evidence.h"
#include "search/sweep_results.h"
#include "search/sweep_run.h"
#include "search/sweep_verification.h"
#include "tap_main.h"

/* ---- a sweep of the small network ---- */

typedef struct {
  RunRequest base;
  SweepRequest request;
  char *vary[4], *set[4];
} Fixture;

static Fixture fixture;

static void
setup(void)
{
  g_autofree char *models = test_source_path("models");
  g_setenv("HIGHWATER_MODELS", models, FALSE);
  fixture = (Fixture){.base = {.steps = 2}};
  ck_assert(input_text_read("network", "tiny", &fixture.base.inputs.network, NULL));
  ck_assert(input_text_read("plan", "fsdp2", &fixture.base.inputs.plan, NULL));
  ck_assert(input_text_read("cluster", "h100-8", &fixture.base.inputs.cluster, NULL));
  fixture.base.inputs.assignments = fixture.set;
  fixture.request = (SweepRequest){.base = &fixture.base, .vary = fixture.vary};
}

static void
teardown(void)
{
  run_request_clear(&fixture.base);
}

static void
vary(const char *first, const char *second)
{
  fixture.vary[0] = (char *) (gsize) first;
  fixture.vary[1] = (char *) (gsize) second;
}

static Sweep *
make(void)
{
  g_autoptr(GError) error = NULL;
  Sweep *sweep = sweep_new(&fixture.request, &error);
  ck_assert_msg(sweep != NULL, "%s", error ? error->message : "no error");
  return sweep;
}

static void
run_with(Sweep *sweep, const SweepWatch *watch)
{
  g_autoptr(GError) error = NULL;
  gboolean is_complete;
  ck_assert_msg(sweep_run(sweep, &fixture.request, watch, &is_complete, &error), "%s",
                error ? error->message : "no error");
  ck_assert(is_complete);
}

/* All results as lines of JSON, by so many threads. */
static char *
results_of(int workers)
{
  g_autoptr(Sweep) sweep = make();
  run_with(sweep, &(SweepWatch){.workers = workers});
  GString *lines = g_string_new(NULL);
  sweep_results_json(sweep, lines);
  return g_string_free(lines, FALSE);
}

/* ---- what is refused ---- */

static const struct {
  const char *first, *second, *set, *says;
} wrong[] = {
    {"fsdp.blocks_per_grup=1,2", NULL, NULL, "did you mean 'blocks_per_group'?"},
    {"fsdp.blocks_per_grup=1,2", NULL, NULL, "--vary fsdp.blocks_per_grup=1: "},
    {"batch.micro_batch=1,2", "mesh.shrd=1,2", NULL, "did you mean 'shard'?"},
    {"strategy=fsdp2,fsdp1", "fsdpx={}", NULL, "unknown key 'fsdpx'"},
    {"mesh.shard=0,-1", NULL, NULL, "is not in 1.."},
    {"batch.micro_batch=1,2", NULL, "mesh.shrd=4", "--set mesh.shrd=4: "},
    {"cluster=h100-8,h10-8", NULL, NULL, "did you mean 'h100-8'?"},
    {"steps=1,0", NULL, NULL, "--vary steps: 0 is not in 1..10000"},
    {"steps=1,2x", NULL, NULL, "--vary steps: 2x is not in 1..10000"},
    {"memory_limit=1GiB,much", NULL, NULL, "--vary memory_limit: 'much' is not a size"},
    {"memory_limit=0", NULL, NULL, "a limit is at least one byte"},
    {"k=1,,2", NULL, NULL, "a value is empty"},
};

START_TEST(a_wrong_key_is_refused_before_anything_runs)
{
  g_autoptr(GError) error = NULL;
  vary(wrong[_i].first, wrong[_i].second);
  fixture.set[0] = (char *) (gsize) wrong[_i].set;
  ck_assert_ptr_null(sweep_new(&fixture.request, &error));
  ck_assert(test_error_says(error, wrong[_i].says));
}
END_TEST

START_TEST(a_value_that_is_refused_is_a_result)
{
  vary("mesh.shard=2,0,1000000000,4", NULL);
  g_autoptr(Sweep) sweep = make();
  run_with(sweep, &(SweepWatch){0});
  for (guint i = 0; i < 4; i++) {
    const Outcome *outcome = &sweep_variant(sweep, i)->outcome;
    gboolean is_refused = i == 1 || i == 2;
    ck_assert_str_eq(outcome_verdict(outcome), is_refused ? "refused" : "fits");
    g_autofree char *reason = outcome_reason(outcome);
    ck_assert_int_eq(reason != NULL, is_refused);
  }
  ck_assert_ptr_nonnull(strstr(sweep_variant(sweep, 1)->outcome.refusal, "'mesh.shard': 0"));
}
END_TEST

/* ---- what is the same in all ---- */

static const char *
fact(const Sweep *sweep, const char *name)
{
  for (guint i = 0; i < sweep->facts->len; i++) {
    const SweepFact *fact = &g_array_index(sweep->facts, SweepFact, i);
    if (g_str_equal(fact->name, name))
      return fact->text;
  }
  ck_abort_msg("no fact %s", name);
}

START_TEST(what_all_variants_share_is_named)
{
  vary("fsdp.blocks_per_group=1,2", NULL);
  fixture.set[0] = (char *) (gsize) "batch={\"micro_batch\": 2, \"sequence_length\": 512}";
  fixture.set[1] = (char *) (gsize) "mesh.shard=4";
  g_autoptr(Sweep) sweep = make();
  ck_assert_str_eq(fact(sweep, "shard degree"), "4");
  ck_assert_str_eq(fact(sweep, "global batch"), "4,096 tokens"); /* 2 x 512 x 4 ranks */
  ck_assert_str_eq(fact(sweep, "reshard after forward"), "true");
  ck_assert_int_eq(sweep->least_global_batch, sweep->most_global_batch);
}
END_TEST

START_TEST(what_differs_is_not_called_fixed)
{
  vary("mesh.shard=2,4", "fsdp.reshard_after_forward=true,false");
  g_autoptr(Sweep) sweep = make();
  ck_assert_ptr_null(fact(sweep, "shard degree"));
  ck_assert_ptr_null(fact(sweep, "global batch"));
  ck_assert_ptr_null(fact(sweep, "reshard after forward"));
  ck_assert_str_eq(fact(sweep, "strategy"), "fsdp2");
  ck_assert_int_eq(2 * sweep->least_global_batch, sweep->most_global_batch);
}
END_TEST

START_TEST(the_global_batch_is_held_by_accumulation)
{
  static const int steps[] = {8, 4, 0, 2};
  vary("batch.micro_batch=1,2,3,4", NULL);
  fixture.set[0] = (char *) (gsize) "accumulation.steps=8";
  fixture.request.hold_global_batch = TRUE;
  g_autoptr(Sweep) sweep = make();
  for (guint i = 0; i < G_N_ELEMENTS(steps); i++) {
    SweepVariant *variant = sweep_variant(sweep, i);
    g_autofree char *assigned = g_strdup_printf("accumulation.steps=%d", steps[i]);
    if (steps[i] == 0)
      ck_assert_ptr_nonnull(strstr(variant->outcome.refusal, "is no multiple of"));
    else
      ck_assert_str_eq(g_ptr_array_index(variant->owned, 1), assigned);
  }
  ck_assert_int_eq(sweep->least_global_batch, sweep->most_global_batch);
}
END_TEST

START_TEST(the_machine_and_its_memory_can_be_varied)
{
  vary("cluster=h100-8,a100-80gb-8", "memory_limit=1GiB,8MiB");
  g_autoptr(Sweep) sweep = make();
  run_with(sweep, &(SweepWatch){0});
  for (guint i = 0; i < 4; i++) {
    const Outcome *outcome = &sweep_variant(sweep, i)->outcome;
    ck_assert_int_eq(outcome->capacity, i % 2 ? 8 * MIB : GIB);
    ck_assert_int_eq(outcome_fits(outcome), i % 2 == 0);
  }
  /* An A100 computes at a third of the rate. */
  ck_assert_int_gt(sweep_variant(sweep, 2)->outcome.time.step,
                   sweep_variant(sweep, 0)->outcome.time.compute);
}
END_TEST

/* ---- the best ---- */

/* Outcomes of which only what is judged is filled in, small numbers so that many are equal. */
static void
make_up(Sweep *sweep, GRand *random)
{
  for (guint i = 0; i < sweep->variants->len; i++) {
    SweepVariant *variant = sweep_variant(sweep, i);
    variant->is_done = g_rand_int_range(random, 0, 8) > 0;
    variant->outcome.verdict = (Verdict) g_rand_int_range(random, 0, 3);
    variant->outcome.peak_reserved = g_rand_int_range(random, 1, 9);
    variant->outcome.time.known = g_rand_int_range(random, 0, 8) > 0;
    variant->outcome.time.step = g_rand_int_range(random, 1, 9);
  }
}

static gboolean
counts(const SweepVariant *variant)
{
  return variant->is_done && variant->outcome.time.known && outcome_fits(&variant->outcome);
}

/* As the word is defined: no worse in both, and better in one. */
static gboolean
dominates(const Outcome *a, const Outcome *b)
{
  return a->peak_reserved <= b->peak_reserved && a->time.step <= b->time.step &&
         (a->peak_reserved < b->peak_reserved || a->time.step < b->time.step);
}

static gboolean
is_dominated(const Sweep *sweep, const SweepVariant *variant)
{
  for (guint k = 0; k < sweep->variants->len; k++) {
    const SweepVariant *other = sweep_variant(sweep, k);
    if (counts(other) && dominates(&other->outcome, &variant->outcome))
      return TRUE;
  }
  return FALSE;
}

START_TEST(the_pareto_front_is_what_nothing_dominates)
{
  g_autoptr(GRand) random = g_rand_new_with_seed((guint32) _i);
  vary("optimizer.clip_grad_norm=1..12", NULL);
  g_autoptr(Sweep) sweep = make();
  make_up(sweep, random);
  sweep_judge(sweep);
  SimTime least = SIM_TIME_MAX;
  for (guint i = 0; i < sweep->variants->len; i++) {
    const SweepVariant *variant = sweep_variant(sweep, i);
    ck_assert_int_eq(variant->is_pareto, counts(variant) && !is_dominated(sweep, variant));
    least = counts(variant) ? MIN(least, variant->outcome.time.step) : least;
  }
  ck_assert_int_eq(sweep->fastest >= 0, least < SIM_TIME_MAX);
  if (sweep->fastest >= 0) {
    const SweepVariant *fastest = sweep_variant(sweep, (guint) sweep->fastest);
    ck_assert_int_eq(fastest->outcome.time.step, least);
    ck_assert(fastest->is_pareto);
  }
}
END_TEST

START_TEST(with_other_batches_the_time_of_a_token_counts)
{
  vary("batch.micro_batch=1,2", NULL);
  g_autoptr(Sweep) sweep = make();
  for (guint i = 0; i < 2; i++) {
    SweepVariant *variant = sweep_variant(sweep, i);
    variant->is_done = TRUE;
    variant->outcome.peak_reserved = 1;
    variant->outcome.time = (TimeSummary){.known = TRUE, .step = i == 0 ? 100 : 150};
    variant->outcome.tokens_per_step = i == 0 ? 1024 : 2048;
  }
  sweep_judge(sweep);
  ck_assert_int_eq(sweep->fastest, 1);
  ck_assert_double_eq(sweep_cost(sweep, sweep_variant(sweep, 1)), 75);
}
END_TEST

/* ---- trying ---- */

#define TWELVE "fsdp.blocks_per_group=1,2,4,0", "activation_checkpointing.policy=full,none,every_n"

START_TEST(outcomes_do_not_depend_on_the_number_of_threads)
{
  vary(TWELVE);
  g_autofree char *one = results_of(1), *two = results_of(2), *many = results_of(7);
  ck_assert_str_eq(one, two);
  ck_assert_str_eq(one, many);
}
END_TEST

START_TEST(what_a_step_starts_is_what_its_streams_ran)
{
  vary("fsdp.blocks_per_group=1,2,4", "mesh.replicate=1,2");
  g_autoptr(Sweep) sweep = make();
  run_with(sweep, &(SweepWatch){0});
  for (guint i = 0; i < sweep->variants->len; i++) {
    const Outcome *outcome = &sweep_variant(sweep, i)->outcome;
    gint64 by_kind = 0;
    for (int kind = 0; kind < COLLECTIVE_KIND_COUNT; kind++)
      by_kind += outcome->collectives_of[kind];
    ck_assert_int_eq(outcome->startup.collectives, outcome->collectives);
    ck_assert_int_eq(by_kind, outcome->collectives);
    ck_assert_int_eq(outcome->gathers.count, outcome->collectives_of[COLLECTIVE_ALL_GATHER]);
    ck_assert_int_eq(outcome->step_times->len, 2);
    ck_assert_int_gt(outcome->startup.time, 0);
  }
  /* Groups of two blocks have half of the gathers of the blocks, so they pay less to begin. */
  ck_assert_int_gt(sweep_variant(sweep, 0)->outcome.startup.time,
                   sweep_variant(sweep, 2)->outcome.startup.time);
}
END_TEST

/* Stops once three are done. */
static void
count_done(const SweepProgress *progress, gpointer user)
{
  *(guint *) user = progress->done;
}

static gboolean
stops_after_three(gpointer user)
{
  return *(guint *) user >= 3;
}

START_TEST(a_stopped_sweep_begins_no_further_variant)
{
  guint done = 0;
  gboolean is_complete = TRUE;
  const SweepWatch watch = {
      .workers = 1, .progress = count_done, .stops = stops_after_three, .user = &done};
  vary("optimizer.clip_grad_norm=1..200", NULL);
  g_autoptr(Sweep) sweep = make();
  ck_assert(sweep_run(sweep, &fixture.request, &watch, &is_complete, NULL));
  ck_assert(!is_complete);
  ck_assert_uint_ge(done, 3);
  ck_assert_uint_lt(done, 100);
  guint marked = 0;
  for (guint i = 0; i < sweep->variants->len; i++)
    marked += sweep_variant(sweep, i)->is_done;
  ck_assert_uint_eq(marked, done);
}
END_TEST

/* ---- results ---- */

START_TEST(results_read_again_are_the_same)
{
  g_autoptr(GString) before = g_string_new(NULL), after = g_string_new(NULL);
  vary("memory_limit=100MiB,80GiB", "batch.micro_batch=1,0");
  g_autoptr(Sweep) sweep = make();
  g_autoptr(Sweep) again = make();
  run_with(sweep, &(SweepWatch){0});
  sweep_results_json(sweep, before);
  gsize whole = 0;
  ck_assert(sweep_results_read(again, "lines", before->str, before->len, &whole, NULL));
  ck_assert_uint_eq(whole, before->len);
  sweep_judge(again);
  sweep_results_json(again, after);
  ck_assert_str_eq(before->str, after->str);
}
END_TEST

static const struct {
  const char *line, *says;
} bad_lines[] = {
    {"{}\n", "key 'variant' is missing"},
    {"[]\n", "an object"},
    {"nonsense\n", "lines: row 1: line 1: "},
    {"{\"variant\": 3, \"label\": \"1\"}\n", "3 is not in 1..2"},
    {"{\"variant\": 1, \"label\": \"2\", \"verdict\": \"fits\"}\n", "variant 1 is '1', not '2'"},
    {"{\"variant\": 1, \"label\": \"1\"}\n", "key 'verdict' is missing"},
    {"{\"variant\": 1, \"label\": \"1\", \"verdict\": \"refused\"}\n", "key 'reason' is missing"},
    {"{\"variant\": 1, \"label\": \"1\", \"verdict\": \"fits\", \"step_s\": -1}\n", "-1 is not in"},
    {"{\"variant\": 1, \"label\": \"1\", \"verdict\": \"fits\", \"steps_s\": [\"x\"]}\n",
     "a list of seconds"},
};

START_TEST(wrong_lines_are_named)
{
  gsize whole;
  g_autoptr(GError) error = NULL;
  vary("batch.micro_batch=1,2", NULL);
  g_autoptr(Sweep) sweep = make();
  const char *line = bad_lines[_i].line;
  ck_assert(!sweep_results_read(sweep, "lines", line, strlen(line), &whole, &error));
  ck_assert(test_error_says(error, bad_lines[_i].says));
}
END_TEST

/* ---- the folder ---- */

static char *
read_text(const char *folder, const char *name)
{
  g_autofree char *path = g_build_filename(folder, name, NULL);
  char *text = NULL;
  ck_assert_msg(g_file_get_contents(path, &text, NULL, NULL), "%s", path);
  return text;
}

/* Runs in the folder; returns how many variants were done before. */
static guint
run_in(const char *path, gboolean has_evidence)
{
  g_autoptr(GError) error = NULL;
  g_autoptr(Sweep) sweep = make();
  g_autoptr(SweepDirectory) directory = sweep_directory_open(path, sweep, &fixture.request, &error);
  ck_assert_msg(directory != NULL, "%s", error ? error->message : "no error");
  guint before = 0;
  for (guint i = 0; i < sweep->variants->len; i++)
    before += sweep_variant(sweep, i)->is_done;
  run_with(sweep, &(SweepWatch){.directory = directory, .has_evidence = has_evidence});
  return before;
}

/* What a sweep leaves that is killed while it writes: two lines and a half. */
static void
cut_short(const char *path)
{
  g_autofree char *file = g_build_filename(path, SWEEP_LINES, NULL);
  g_autofree char *text = read_text(path, SWEEP_LINES);
  const char *second = strchr(strchr(text, '\n') + 1, '\n') + 1;
  ck_assert(g_file_set_contents(file, text, (second - text) + 20, NULL));
}

START_TEST(an_interrupted_sweep_goes_on_where_it_was)
{
  char *folder = test_folder_new();
  g_autofree char *path = g_build_filename(folder, "sweep", NULL);
  vary(TWELVE);
  ck_assert_uint_eq(run_in(path, FALSE), 0);
  g_autofree char *table = read_text(path, SWEEP_TABLE), *csv = read_text(path, SWEEP_CSV);
  cut_short(path);
  ck_assert_uint_eq(run_in(path, FALSE), 2);
  g_autofree char *lines = read_text(path, SWEEP_LINES);
  g_auto(GStrv) rows = g_strsplit(lines, "\n", -1);
  ck_assert_uint_eq(g_strv_length(rows), 13); /* twelve, and nothing after the last end */
  g_autofree char *table_again = read_text(path, SWEEP_TABLE);
  g_autofree char *csv_again = read_text(path, SWEEP_CSV);
  ck_assert_str_eq(table, table_again);
  ck_assert_str_eq(csv, csv_again);
  ck_assert_uint_eq(run_in(path, FALSE), 12);
  test_folder_remove(folder);
}
END_TEST

START_TEST(evidence_that_is_missing_is_made)
{
  char *folder = test_folder_new();
  g_autofree char *path = g_build_filename(folder, "sweep", NULL);
  g_autofree char *of_two = g_build_filename(path, SWEEP_VARIANTS, "2", NULL);
  g_autofree char *of_bad = g_build_filename(path, SWEEP_VARIANTS, "-1", NULL);
  vary("fsdp.blocks_per_group=1,2,-1", NULL);
  run_in(path, FALSE);
  g_autofree char *lines = read_text(path, SWEEP_LINES);
  ck_assert(!sweep_evidence_is_there(of_two));
  run_in(path, TRUE);
  ck_assert(sweep_evidence_is_there(of_two));
  ck_assert(!g_file_test(of_bad, G_FILE_TEST_EXISTS));
  g_autofree char *again = read_text(path, SWEEP_LINES);
  ck_assert_str_eq(lines, again);
  g_autofree char *equivalence = sweep_evidence_equivalence(of_two);
  ck_assert_msg(g_str_has_prefix(equivalence, "equivalent"), "%s", equivalence);
  /* Half of it goes again, and all is there afterwards. */
  g_autofree char *last = g_build_filename(of_two, EVIDENCE_EQUIVALENCE, NULL);
  ck_assert_int_eq(g_unlink(last), 0);
  run_in(path, TRUE);
  ck_assert(sweep_evidence_is_there(of_two));
  test_folder_remove(folder);
}
END_TEST

START_TEST(another_sweep_s_folder_is_refused)
{
  char *folder = test_folder_new();
  g_autofree char *path = g_build_filename(folder, "sweep", NULL);
  g_autoptr(GError) error = NULL, foreign = NULL;
  vary("batch.micro_batch=1,2", NULL);
  run_in(path, FALSE);
  fixture.base.steps = 3;
  g_autoptr(Sweep) sweep = make();
  ck_assert_ptr_null(sweep_directory_open(path, sweep, &fixture.request, &error));
  ck_assert(test_error_says(error, "is of another sweep"));
  ck_assert_ptr_null(sweep_directory_open(folder, sweep, &fixture.request, &foreign));
  ck_assert(test_error_says(foreign, "is not a folder written by 'highwater sweep --output'"));
  test_folder_remove(folder);
}
END_TEST

START_TEST(two_sweeps_do_not_write_in_one_folder_at_once)
{
  char *folder = test_folder_new();
  g_autofree char *path = g_build_filename(folder, "sweep", NULL);
  g_autoptr(GError) error = NULL;
  vary("batch.micro_batch=1,2", NULL);
  g_autoptr(Sweep) sweep = make();
  g_autoptr(SweepDirectory) first = sweep_directory_open(path, sweep, &fixture.request, NULL);
  ck_assert_ptr_nonnull(first);
  ck_assert_ptr_null(sweep_directory_open(path, sweep, &fixture.request, &error));
  ck_assert(test_error_says(error, "another sweep is writing there"));
  test_folder_remove(folder);
}
END_TEST

/* ---- numbers ---- */

static void
say(SweepVariant *variant, SweepAnswer answer, const char *training, double loss)
{
  sweep_verification_clear(&variant->verification);
  variant->verification.answer = answer;
  variant->verification.training = g_strdup(training);
  variant->verification.losses = g_array_new(FALSE, FALSE, sizeof(double));
  g_array_append_val(variant->verification.losses, loss);
}

START_TEST(losses_are_compared_among_variants_that_train_the_same)
{
  vary("fsdp.blocks_per_group=1,2,4", NULL);
  g_autoptr(Sweep) sweep = make();
  say(sweep_variant(sweep, 0), SWEEP_EQUAL, "8 samples", 4);
  say(sweep_variant(sweep, 1), SWEEP_EQUAL, "4 samples", 3);
  say(sweep_variant(sweep, 2), SWEEP_EQUAL, "8 samples", 4 + 1e-12);
  ck_assert(!sweep_verification_fails(sweep));
  say(sweep_variant(sweep, 2), SWEEP_EQUAL, "8 samples", 4.001);
  ck_assert(sweep_verification_fails(sweep));
  say(sweep_variant(sweep, 2), SWEEP_EQUAL, "8 samples", NAN);
  ck_assert(sweep_verification_fails(sweep));
  say(sweep_variant(sweep, 2), SWEEP_DIFFERS, "2 samples", 4);
  ck_assert(sweep_verification_fails(sweep));
}
END_TEST

START_TEST(plans_that_differ_in_nothing_numbers_see_are_executed_once)
{
  vary("memory_limit=1GiB,2GiB", "fsdp.blocks_per_group=1,2");
  g_autoptr(Sweep) sweep = make();
  ck_assert(sweep_verify(sweep, 2, NULL, NULL));
  const GArray *losses[4];
  for (guint i = 0; i < 4; i++) {
    const SweepVerification *v = &sweep_variant(sweep, i)->verification;
    ck_assert_str_eq(sweep_verification_word(v), "equal");
    ck_assert_int_eq(v->losses->len, SWEEP_VERIFIED_STEPS);
    losses[i] = v->losses;
  }
  ck_assert_ptr_eq(losses[0], losses[2]); /* one limit with one group, and the other limit */
  ck_assert_ptr_eq(losses[1], losses[3]);
  ck_assert_ptr_ne(losses[0], losses[1]);
}
END_TEST

Suite *
test_suite(void)
{
  Suite *suite = suite_create("sweep");
  TCase *all = tcase_create("sweep");
  tcase_add_checked_fixture(all, setup, teardown);
  tcase_add_loop_test(all, a_wrong_key_is_refused_before_anything_runs, 0, G_N_ELEMENTS(wrong));
  tcase_add_test(all, a_value_that_is_refused_is_a_result);
  tcase_add_test(all, what_all_variants_share_is_named);
  tcase_add_test(all, what_differs_is_not_called_fixed);
  tcase_add_test(all, the_global_batch_is_held_by_accumulation);
  tcase_add_test(all, the_machine_and_its_memory_can_be_varied);
  tcase_add_loop_test(all, the_pareto_front_is_what_nothing_dominates, 0, 20);
  tcase_add_test(all, with_other_batches_the_time_of_a_token_counts);
  tcase_add_test(all, outcomes_do_not_depend_on_the_number_of_threads);
  tcase_add_test(all, what_a_step_starts_is_what_its_streams_ran);
  tcase_add_test(all, a_stopped_sweep_begins_no_further_variant);
  tcase_add_test(all, results_read_again_are_the_same);
  tcase_add_loop_test(all, wrong_lines_are_named, 0, G_N_ELEMENTS(bad_lines));
  tcase_add_test(all, an_interrupted_sweep_goes_on_where_it_was);
  tcase_add_test(all, evidence_that_is_missing_is_made);
  tcase_add_test(all, another_sweep_s_folder_is_refused);
  tcase_add_test(all, two_sweeps_do_not_write_in_one_folder_at_once);
  tcase_add_test(all, losses_are_compared_among_variants_that_train_the_same);
  tcase_add_test(all, plans_that_differ_in_nothing_numbers_see_are_executed_once);
  suite_add_tcase(suite, all);
  return suite;
}
