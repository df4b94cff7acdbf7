/* check_restart_failures.c - after a worker's failure training goes on from the last consistent
 * state as if nothing had happened, and from nothing that the failure makes invalid. */
#include <string.h>

#include "quick.h"
#include "restart_run.h"
#include "tap_main.h"

/* What is tried, by words of its line. */
enum {
  GRADIENTS = 1,
  REDUCTIONS = 2,
  NEWER_PARAMETERS = 4,
  NEWER_STATES = 8,
  NEW_PARAMETERS = 16,
  NEW_STATES = 32,
  NOT_REPEATED = 64
};

static const struct {
  int flag;
  const char *words;
} trial_kinds[] = {
    {GRADIENTS, "that were there stay"},
    {REDUCTIONS, "are taken for done"},
    {NEWER_PARAMETERS, "parameters as the other ranks have them"},
    {NEWER_STATES, "optimizer states as the other ranks have them"},
    {NEW_PARAMETERS, "rank 1's parameters as a new process"},
    {NEW_STATES, "rank 1's optimizer states as a new process"},
    {NOT_REPEATED, "is not repeated"},
};

#define LOST (NEW_PARAMETERS | NEW_STATES)
#define UNCLIPPED " optimizer.clip_grad_norm=null"

/* Rank 1 fails; last_step: of the last consistent state. */
static const struct {
  Side fails, goes_on; /* without a plan: the same one goes on */
  const char *at;
  int last_save, last_step;
  gboolean from_others;
  int tried;
} failures[] = {
    {{FSDP2, THREE}, {0}, "step 2 forward 0.5", 1, 1, FALSE, REDUCTIONS | LOST | NOT_REPEATED},
    {{FSDP2, THREE},
     {0},
     "step 2 backward 0.4",
     1,
     1,
     FALSE,
     GRADIENTS | REDUCTIONS | LOST | NOT_REPEATED},
    {{FSDP2, TWO},
     {0},
     "step 2 micro_batch 3 backward 0.6",
     1,
     1,
     FALSE,
     GRADIENTS | REDUCTIONS | LOST | NOT_REPEATED},
    {{FSDP2, TWO UNCLIPPED},
     {0},
     "step 2 optimizer 0.5",
     1,
     1,
     FALSE,
     GRADIENTS | NEWER_PARAMETERS | NEWER_STATES | LOST | NOT_REPEATED},
    {{FSDP2, TWO}, {0}, "step 1 backward 0.5", 0, 0, FALSE, GRADIENTS | REDUCTIONS | NOT_REPEATED},
    {{FSDP2, TWO},
     {0},
     "step 3 forward 0.5",
     1,
     1,
     FALSE,
     REDUCTIONS | NEWER_PARAMETERS | NEWER_STATES | LOST | NOT_REPEATED},
    {{FSDP2, HSDP},
     {0},
     "step 2 backward 0.5",
     1,
     1,
     TRUE,
     GRADIENTS | REDUCTIONS | LOST | NOT_REPEATED},
    {{DDP, REPLICAS},
     {0},
     "step 2 backward 0.9",
     0,
     1,
     TRUE,
     GRADIENTS | REDUCTIONS | LOST | NOT_REPEATED},
    {{DDP, REPLICAS}, {0}, "step 2 optimizer 0.5", 0, 2, TRUE, LOST},
    {{DDP, REPLICAS " ddp.zero_redundancy_optimizer=true"},
     {0},
     "step 2 backward 0.5",
     1,
     1,
     FALSE,
     GRADIENTS | REDUCTIONS | LOST | NOT_REPEATED},
    {{ZERO1, FOUR},
     {0},
     "step 2 backward 0.5",
     1,
     1,
     FALSE,
     GRADIENTS | REDUCTIONS | LOST | NOT_REPEATED},
    {{ZERO3, THREE},
     {0},
     "step 2 backward 0.5",
     1,
     1,
     FALSE,
     GRADIENTS | REDUCTIONS | LOST | NOT_REPEATED},
    {{FSDP1, TWO},
     {0},
     "step 2 backward 0.5",
     1,
     1,
     FALSE,
     GRADIENTS | REDUCTIONS | LOST | NOT_REPEATED},
    {{FSDP2, THREE},
     {FSDP2, TWO},
     "step 2 backward 0.4",
     1,
     1,
     FALSE,
     GRADIENTS | REDUCTIONS | LOST | NOT_REPEATED},
    {{DDP, REPLICAS},
     {FSDP2, FOUR},
     "step 2 backward 0.9",
     0,
     1,
     TRUE,
     GRADIENTS | REDUCTIONS | LOST | NOT_REPEATED},
};

static int
kind_of(const VerifiedTrial *trial)
{
  for (guint i = 0; i < G_N_ELEMENTS(trial_kinds); i++)
    if (strstr(trial->what, trial_kinds[i].words) != NULL)
      return trial_kinds[i].flag;
  return 0;
}

/* Told apart: by a loss, or in the plan's dtypes by a gradient. */
static void
check_failure(int n, gboolean rounds)
{
  g_autofree char *options =
      g_strdup_printf("%s failure={\"rank\":1,\"at\":\"%s\",\"last_save\":%d}",
                      failures[n].fails.options, failures[n].at, failures[n].last_save);
  const Side fails = {failures[n].fails.plan, options}, *goes_on = &failures[n].goes_on;
  const Asked asked = {.all = "",
                       .steps = 3,
                       .restart_after = goes_on->plan != NULL ? RESTART_ANYWHERE : 0,
                       .rounds = rounds};
  VerificationReport report = {0};
  g_autoptr(GError) error = NULL;
  gboolean ok =
      restart_run(&fails, goes_on->plan != NULL ? goes_on : NULL, &asked, &report, &error);
  ck_assert_msg(ok, "%d: %s", n, ok ? "" : error->message);
  ck_assert_msg(verification_holds(&report), "%d: %s", n, report.fault);
  ck_assert_int_eq(report.failure.last_step, failures[n].last_step);
  ck_assert_int_eq(report.failure.from_others, failures[n].from_others);
  gboolean reorders =
      strcmp(failures[n].fails.plan, DDP) == 0; /* a new process does: its buckets */
  ck_assert_int_eq(report.restart.in_bits, rounds && goes_on->plan == NULL && !reorders);
  int tried = 0;
  for (guint i = 0; i < report.failure.trials->len; i++) {
    const VerifiedTrial *trial = &g_array_index(report.failure.trials, VerifiedTrial, i);
    ck_assert_msg(trial->step > 0 || trial->gradient != NULL, "%d: %s: no loss differs", n,
                  trial->what);
    tried |= kind_of(trial);
  }
  ck_assert_msg(tried == failures[n].tried, "%d: tried %d, not %d", n, tried, failures[n].tried);
  verification_report_clear(&report);
}

START_TEST(after_a_failure_only_what_is_consistent_goes_on_as_before)
{
  check_failure(_i * quick_stride(), FALSE);
}
END_TEST

START_TEST(in_the_plans_dtypes_it_is_told_apart_too)
{
  check_failure(2 * _i * quick_stride() + 1, TRUE);
}
END_TEST

Suite *
test_suite(void)
{
  Suite *suite = suite_create("restart failures");
  TCase *tests = tcase_create("failures");
  tcase_set_timeout(tests, 120);
  tcase_add_loop_test(tests, after_a_failure_only_what_is_consistent_goes_on_as_before, 0,
                      (int) G_N_ELEMENTS(failures) / quick_stride());
  tcase_add_loop_test(tests, in_the_plans_dtypes_it_is_told_apart_too, 0,
                      (int) G_N_ELEMENTS(failures) / (2 * quick_stride()));
  suite_add_tcase(suite, tests);
  return suite;
}
