/* check_trials.c - many plans tried at once: the same outcomes with one thread and with several,
 * each told once, and none begun after a stop. */
#include <string.h>

#include "search/trials.h"
#include "tap_main.h"

/* Shards, with micro-batches: 7 has no meaning for eight ranks' clusters, but runs; 0 is refused.
 */
static const char *const plans[] = {
    "mesh.shard=1", "mesh.shard=2", "mesh.shard=4",        "mesh.shard=8",
    "mesh.shard=7", "mesh.shard=0", "batch.micro_batch=2", "activation_checkpointing.policy=full"};
enum { PLANS = G_N_ELEMENTS(plans) };

typedef struct {
  RunRequest request;
  char *assignments[PLANS][2];
  Trial trials[PLANS];
  GArray *told; /* guint: the trials, in the order in which they were told */
  guint stop_after;
} Fixture;

static void
fixture_init(Fixture *f)
{
  *f = (Fixture){.told = g_array_new(FALSE, FALSE, sizeof(guint)), .stop_after = G_MAXUINT};
  f->request.steps = 2;
  ck_assert(input_text_read("network", "tiny", &f->request.inputs.network, NULL));
  ck_assert(input_text_read("plan", "fsdp2", &f->request.inputs.plan, NULL));
  ck_assert(input_text_read("cluster", "h100-8", &f->request.inputs.cluster, NULL));
  for (guint i = 0; i < PLANS; i++) {
    f->assignments[i][0] = g_strdup(plans[i]);
    f->assignments[i][1] = NULL;
    f->trials[i].assignments = f->assignments[i];
  }
}

static void
fixture_clear(Fixture *f)
{
  run_request_clear(&f->request);
  for (guint i = 0; i < PLANS; i++) {
    g_free(f->assignments[i][0]);
    outcome_clear(&f->trials[i].outcome);
  }
  g_array_unref(f->told);
}

static void
tell(Trial *trial, gpointer user)
{
  Fixture *f = user;
  guint number = (guint) (trial - f->trials);
  g_array_append_val(f->told, number);
}

static gboolean
enough(gpointer user)
{
  const Fixture *f = user;
  return f->told->len >= f->stop_after;
}

static int
times_told(const Fixture *f, guint trial)
{
  int times = 0;
  for (guint i = 0; i < f->told->len; i++)
    times += g_array_index(f->told, guint, i) == trial;
  return times;
}

START_TEST(every_trial_is_told_once_and_what_does_not_go_together_is_refused)
{
  Fixture f;
  fixture_init(&f);
  trials_run(&f.request, f.trials, PLANS, 3, tell, &f);
  ck_assert_uint_eq(f.told->len, PLANS);
  for (guint i = 0; i < PLANS; i++) {
    ck_assert_int_eq(times_told(&f, i), 1);
    ck_assert_msg((f.trials[i].outcome.refusal != NULL) == (strcmp(plans[i], "mesh.shard=0") == 0),
                  "%s: %s", plans[i], f.trials[i].outcome.refusal);
  }
  fixture_clear(&f);
}
END_TEST

START_TEST(outcomes_do_not_depend_on_how_many_threads_there_are)
{
  Fixture one, many;
  fixture_init(&one);
  fixture_init(&many);
  trials_run(&one.request, one.trials, PLANS, 1, NULL, NULL);
  trials_run(&many.request, many.trials, PLANS, 5, NULL, NULL);
  for (guint i = 0; i < PLANS; i++) {
    const Outcome *a = &one.trials[i].outcome, *b = &many.trials[i].outcome;
    ck_assert_str_eq(outcome_verdict(a), outcome_verdict(b));
    ck_assert_int_eq(a->peak_allocated, b->peak_allocated);
    ck_assert_int_eq(a->peak_reserved, b->peak_reserved);
    ck_assert_int_eq(a->time.step, b->time.step);
    ck_assert_int_eq(a->collectives, b->collectives);
  }
  fixture_clear(&one);
  fixture_clear(&many);
}
END_TEST

START_TEST(a_plan_of_more_shards_keeps_less_on_each_rank)
{
  Fixture f;
  fixture_init(&f);
  trials_run(&f.request, f.trials, 4, 0, NULL, NULL);
  for (guint i = 1; i < 4; i++)
    ck_assert_int_lt(f.trials[i].outcome.peak_allocated, f.trials[i - 1].outcome.peak_allocated);
  fixture_clear(&f);
}
END_TEST

START_TEST(a_trial_may_have_a_request_of_its_own)
{
  Fixture f;
  fixture_init(&f);
  RunRequest other = f.request;
  other.memory_limit = 64 << 20; /* less than the 32 MiB workspaces and the step take */
  f.trials[1].request = &other;
  trials_run(&f.request, f.trials, 2, 2, NULL, NULL);
  ck_assert_str_eq(outcome_verdict(&f.trials[0].outcome), "fits");
  ck_assert_str_eq(outcome_verdict(&f.trials[1].outcome), "does_not_fit");
  fixture_clear(&f);
}
END_TEST

START_TEST(nothing_is_begun_after_a_stop)
{
  Fixture f;
  fixture_init(&f);
  f.stop_after = 0;
  TrialWatch watch = {.workers = 1, .done = tell, .stops = enough, .user = &f};
  guint done = trials_run_watched(&f.request, f.trials, PLANS, &watch);
  ck_assert_uint_eq(done, f.told->len);
  ck_assert_uint_lt(done, PLANS);
  fixture_clear(&f);
}
END_TEST

Suite *
test_suite(void)
{
  Suite *suite = suite_create("trials");
  TCase *tcase = tcase_create("trials");
  tcase_add_test(tcase, every_trial_is_told_once_and_what_does_not_go_together_is_refused);
  tcase_add_test(tcase, outcomes_do_not_depend_on_how_many_threads_there_are);
  tcase_add_test(tcase, a_plan_of_more_shards_keeps_less_on_each_rank);
  tcase_add_test(tcase, a_trial_may_have_a_request_of_its_own);
  tcase_add_test(tcase, nothing_is_begun_after_a_stop);
  suite_add_tcase(suite, tcase);
  return suite;
}
