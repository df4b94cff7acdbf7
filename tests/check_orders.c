/* check_orders.c - make check-orders: 10,000 random orders of the Programs of all strategies, with
 * each of their settings, on two ranks.  None of them may be accused.  HIGHWATER_ORDERS asks for
 * another number. */
#include <stdlib.h>

#include "tap_main.h"
#include "verification_axes.h"

/* The first random one of two ranks: two of each of at most seven parts and two ranks delay
 * somebody. */
enum { ORDERS = 10000, RANKS = 2, FIRST_RANDOM = 2 * (7 + RANKS) };

static int
orders_of_all(void)
{
  const char *asked = g_getenv("HIGHWATER_ORDERS");
  return asked != NULL ? MAX(atoi(asked), 1) : ORDERS;
}

static guint
count_of_all(void)
{
  guint count = 0;
  for (int i = 0; i < varied_strategy_count(); i++) {
    g_autoptr(GArray) cases = varied_cases(&varied_strategies[i], RANKS, 0);
    count += cases->len;
  }
  return count;
}

START_TEST(no_random_order_is_accused)
{
  g_autoptr(GArray) cases = varied_cases(&varied_strategies[_i], RANKS, 0);
  const Trial trial = {.orders = (int) ((guint) orders_of_all() / count_of_all()) + 1,
                       .skipped = FIRST_RANDOM};
  for (guint i = 0; i < cases->len; i++) {
    const Plan *plan = &g_array_index(cases, Plan, i);
    VerificationReport report = {0};
    g_autoptr(GError) error = NULL;
    gboolean ok = verification_run(plan, &trial, &report, &error);
    ck_assert_msg(ok, "%s: %s", plan->options, ok ? "" : error->message);
    ck_assert_msg(report.fault == NULL, "%s: %s", plan->options, report.fault);
    verification_report_clear(&report);
  }
}
END_TEST

Suite *
test_suite(void)
{
  Suite *suite = suite_create("orders");
  TCase *c = tcase_create("random");
  tcase_set_timeout(c, 3600);
  tcase_add_loop_test(c, no_random_order_is_accused, 0, varied_strategy_count());
  suite_add_tcase(suite, c);
  return suite;
}
