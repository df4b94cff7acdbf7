/* check_verification_matrix.c - every strategy with every group size, reshard policy, prefetching,
 * checkpointing policy, way of accumulation, mesh, precision and optimizer, on 1 to 8 ranks, equals
 * an unsharded run, and takes as much memory as the simulation says. */
#include <string.h>

#include "quick.h"
#include "simulation.h"
#include "tap_main.h"
#include "verification_axes.h"

enum { MOST_RANKS = 8, COMBINED = 2, ORDERS = 1 };
static const int rank_counts[] = {1, 2, 3, 4, MOST_RANKS};

/* The allocator is the same one: what the timed executor counts in the last step is what numbers
 * took. */
static void
check_peaks(const Plan *plan, const VerificationReport *report)
{
  g_auto(GStrv) set = g_strsplit(plan->options, " ", -1);
  for (int rank = 0; rank < report->ranks; rank++) {
    const Simulation s = {plan->network, plan->plan, (const char *const *) set, rank};
    g_autoptr(Simulated) timed = simulation_execute(&s, 3, G_GINT64_CONSTANT(1) << 36);
    const GArray *steps = timed->recording->steps;
    gint64 peak = g_array_index(steps, StepRecord, steps->len - 1).peak_allocated;
    ck_assert_msg(report->peaks[rank] == peak,
                  "%s, rank %d: numbers take %" G_GINT64_FORMAT " bytes, the simulation says "
                  "%" G_GINT64_FORMAT,
                  plan->options, rank, report->peaks[rank], peak);
  }
}

/* A combination may be one that the strategy refuses: FALSE. */
static gboolean
check_case(const Plan *plan, int orders, int skipped, gboolean may_be_refused)
{
  const Trial trial = {.orders = orders, .skipped = skipped};
  VerificationReport report = {0};
  g_autoptr(GError) error = NULL;
  gboolean ok = verification_run(plan, &trial, &report, &error);
  if (!ok && may_be_refused && strstr(error->message, "key '") != NULL) {
    verification_report_clear(&report);
    return FALSE;
  }
  ck_assert_msg(ok, "%s: %s", plan->options, ok ? "" : error->message);
  verification_check_steps(plan, &report);
  check_peaks(plan, &report);
  verification_report_clear(&report);
  return TRUE;
}

/* One strategy on so many ranks.  Orders take turns, so that all are tried of each strategy; on
 * most ranks, which take longest, that of issue is enough. */
START_TEST(every_setting_of_a_strategy_equals_an_unsharded_run)
{
  const VariedStrategy *strategy = &varied_strategies[_i / (int) G_N_ELEMENTS(rank_counts)];
  int ranks = rank_counts[_i % (int) G_N_ELEMENTS(rank_counts)], tried = 0;
  g_autoptr(GArray) cases = varied_cases(strategy, ranks, COMBINED);
  guint alone = cases->len - COMBINED;
  /* Where another configuration has tried them all, one of each. */
  guint stride = quick() ? cases->len : 1;
  for (guint i = (guint) _i % stride; i < cases->len; i += stride) {
    const Plan *plan = &g_array_index(cases, Plan, i);
    tried += check_case(plan, ranks < MOST_RANKS ? ORDERS : 0, (int) (i * ORDERS % 14), i >= alone);
  }
  ck_assert_int_ge(tried, (int) (alone / stride));
}
END_TEST

Suite *
test_suite(void)
{
  Suite *suite = suite_create("verification_matrix");
  TCase *c = tcase_create("settings");
  tcase_set_timeout(c, 600);
  tcase_add_loop_test(c, every_setting_of_a_strategy_equals_an_unsharded_run, 0,
                      varied_strategy_count() * (int) G_N_ELEMENTS(rank_counts));
  suite_add_tcase(suite, c);
  return suite;
}
