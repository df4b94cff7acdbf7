/* check_shared_link.c - transfers that share a link max-min fairly: arrivals, departures and limits
 * worked out on paper; bytes conserved.  Times are ns, and 1e9 bytes a second are 1 byte a ns. */
#include "engine/engine.h"
#include "history.h"
#include "tap_main.h"

#define BYTE_PER_NS 1e9

static History history;
static Engine *engine;

static void
set_up(void)
{
  history = history_new();
  engine = history.engine;
}

static void
tear_down(void)
{
  history_clear(&history);
}

/* A transfer on a stream of its own that begins at time. */
static void
submit(SimTime time, guint64 tag, SharedLink *link, double bytes)
{
  Work work = history_work(&history, tag, 0);

  work.link = link;
  work.link_bytes = bytes;
  stream_submit(stream_new(engine, "s"), time, &work);
}

START_TEST(one_transfer_has_the_link_to_itself_after_its_latency)
{
  SharedLink *link = shared_link_new(engine, "link", 2 * BYTE_PER_NS, 0);
  Work work = history_work(&history, 1, 30);

  work.link = link;
  work.link_bytes = 500;
  stream_submit(stream_new(engine, "s"), 100, &work);
  engine_run(engine);
  ck_assert_began(&history, 1, 100);
  ck_assert_ended(&history, 1, 380);
}
END_TEST

START_TEST(no_bytes_take_no_time)
{
  SharedLink *link = shared_link_new(engine, "link", BYTE_PER_NS, 0);

  submit(10, 1, link, 0);
  engine_run(engine);
  ck_assert_ended(&history, 1, 10);
}
END_TEST

/* Capacity 1.  1 has moved 100 of its 1000 when 2 arrives; at 1/2 each, 2 needs 400 for its 200 and
 * ends at 500; 1 has 700 left then and ends at 1200. */
START_TEST(two_transfers_share_equally_while_both_are_there)
{
  SharedLink *link = shared_link_new(engine, "link", BYTE_PER_NS, 0);

  submit(0, 1, link, 1000);
  submit(100, 2, link, 200);
  engine_run(engine);
  ck_assert_ended(&history, 2, 500);
  ck_assert_ended(&history, 1, 1200);
}
END_TEST

/* Capacity 1, at most 0.4 each: one or two transfers have 0.4, three have 1/3.
 *   1: 500 bytes.  0-300 at 0.4: 120.  Then 380 left.
 *   2: 400 bytes from 100.  100-300 at 0.4: 80.  Then 320 left.
 *   3: 200 bytes from 300 at 1/3: ends at 900.  1 has 180 left, 2 has 120.
 *   From 900 at 0.4: 2 ends at 1200, 1 has 60 left and ends at 1350. */
START_TEST(a_limit_holds_until_the_equal_share_is_less)
{
  SharedLink *link = shared_link_new(engine, "link", BYTE_PER_NS, 0.4 * BYTE_PER_NS);

  submit(0, 1, link, 500);
  submit(100, 2, link, 400);
  submit(300, 3, link, 200);
  engine_run(engine);
  ck_assert_ended(&history, 3, 900);
  ck_assert_ended(&history, 2, 1200);
  ck_assert_ended(&history, 1, 1350);
}
END_TEST

static double
a_fifth_for_class_1(gpointer user, int rate_class, const int *running, G_GNUC_UNUSED int total)
{
  (void) user;
  (void) running;
  return rate_class == 1 ? 0.2 : 1;
}

/* Capacity 1; 1 can take 0.2 because of its rate.
 *   0-250: 2 takes the 0.8 that 1 leaves and moves 200.  1: 50.
 *   From 250 also 3: 0.2, 0.4, 0.4.  3 moves its 100 by 500; 2 has moved 300.  1: 100.
 *   From 500: 0.2, 0.8.  2 moves its last 100 by 625.  1 has moved 125 and ends at 1000 with 200.
 */
START_TEST(what_a_slow_transfer_leaves_is_shared_by_the_others)
{
  SharedLink *link = shared_link_new(engine, "link", BYTE_PER_NS, 0);
  RateGroup *group = rate_group_new(engine, 2, a_fifth_for_class_1, NULL);
  Work work = history_work(&history, 1, 0);

  work.group = group;
  work.rate_class = 1;
  work.link = link;
  work.link_bytes = 200;
  stream_submit(stream_new(engine, "slow"), 0, &work);
  submit(0, 2, link, 400);
  submit(250, 3, link, 100);
  engine_run(engine);
  ck_assert_ended(&history, 3, 500);
  ck_assert_ended(&history, 2, 625);
  ck_assert_ended(&history, 1, 1000);
}
END_TEST

static double
half_when_two(gpointer user, int rate_class, const int *running, G_GNUC_UNUSED int total)
{
  (void) user;
  return rate_class == 0 && running[1] > 0 ? 0.5 : 1;
}

/* Latency and transfer are both slowed while the other work runs, from 50 to 250.
 * Latency 100: 50 by 50, the other 50 by 150.  Then 300 bytes: 50 by 250 at 1/2, 250 more at 1. */
START_TEST(a_rate_scales_latency_and_transfer)
{
  SharedLink *link = shared_link_new(engine, "link", BYTE_PER_NS, 0);
  RateGroup *group = rate_group_new(engine, 2, half_when_two, NULL);
  Work work = history_work(&history, 1, 100);
  Work other = history_work(&history, 2, 200);

  work.group = other.group = group;
  work.link = link;
  work.link_bytes = 300;
  other.rate_class = 1;
  stream_submit(stream_new(engine, "a"), 0, &work);
  stream_submit(stream_new(engine, "b"), 50, &other);
  engine_run(engine);
  ck_assert_ended(&history, 2, 250);
  ck_assert_ended(&history, 1, 500);
}
END_TEST

/* Each party moves 300 over the same link of capacity 1: all have moved theirs at 900. */
START_TEST(parties_of_a_rendezvous_share_a_link)
{
  SharedLink *link = shared_link_new(engine, "link", BYTE_PER_NS, 0);
  Rendezvous *rendezvous = rendezvous_new(engine, "meet", -1, 3);

  for (int party = 0; party < 3; party++) {
    Work work = history_work(&history, (guint64) party, 10);

    work.link = link;
    work.link_bytes = 300;
    work.rendezvous = rendezvous;
    work.party = party;
    stream_submit(stream_new(engine, "s"), 0, &work);
  }
  engine_run(engine);
  for (guint64 party = 0; party < 3; party++)
    ck_assert_ended(&history, party, 910);
}
END_TEST

START_TEST(links_do_not_disturb_each_other)
{
  submit(0, 1, shared_link_new(engine, "a", BYTE_PER_NS, 0), 100);
  submit(0, 2, shared_link_new(engine, "b", BYTE_PER_NS, 0), 100);
  engine_run(engine);
  ck_assert_ended(&history, 1, 100);
  ck_assert_ended(&history, 2, 100);
}
END_TEST

/* ---- conservation ---- */

/* Capacity 1, transfers of 400 from 0 and 300 from 100. */
START_TEST(bytes_moved_can_be_read_at_any_time)
{
  SharedLink *link = shared_link_new(engine, "link", BYTE_PER_NS, 0);

  submit(0, 1, link, 400);
  submit(100, 2, link, 300);
  for (SimTime time = 50; time <= 700; time += 50) {
    engine_run_to(engine, time);
    ck_assert_double_eq_tol(shared_link_bytes(link), (double) time, 1e-6);
  }
  ck_assert_int_eq(shared_link_flows(link), 0);
}
END_TEST

/* Random transfers of whole bytes.  Without limits the link is never idle while there is anything
 * to move, and bytes are integers, so all of it is known: the sum, and when the last one ends. With
 * a limit the end is later, the sum the same. */
START_TEST(all_bytes_arrive_and_none_twice)
{
  const double limit = _i == 0 ? 0 : 0.3 * BYTE_PER_NS;
  SharedLink *link = shared_link_new(engine, "link", 0.7 * BYTE_PER_NS, limit);
  guint64 random = 11;
  double sum = 0, last;

  for (guint64 i = 0; i < 500; i++) {
    double bytes = (double) (history_random(&random) % 5000);

    /* They arrive within 1000 ns, far less than the sum takes. */
    submit((SimTime) (history_random(&random) % 1000), i, link, bytes);
    sum += bytes;
  }
  submit(0, 500, link, 5000); /* from the beginning, so that the link is never idle */
  sum += 5000;
  engine_run_to(engine, 1000);
  /* Never more than the capacity, but that each end is rounded by half a nanosecond at most. */
  while (shared_link_flows(link) > 0) {
    double before = shared_link_bytes(link);
    int flows = shared_link_flows(link);

    engine_run_to(engine, engine_now(engine) + 1000);
    ck_assert_double_le(shared_link_bytes(link) - before,
                        0.7 * (1000 + 0.5 * (flows - shared_link_flows(link))) + 1e-6);
  }
  ck_assert_double_eq(shared_link_bytes(link), sum);
  last = (double) g_array_index(history.entries, HistoryEntry, history.entries->len - 1).time;
  ck_assert_double_ge(last, sum / 0.7 - 501 * 0.5);
  if (_i == 0)
    ck_assert_double_le(last, sum / 0.7 + 501 * 0.5);
}
END_TEST

Suite *
test_suite(void)
{
  Suite *suite = suite_create("shared_link");
  TCase *tcase = tcase_create("shared_link");

  tcase_add_checked_fixture(tcase, set_up, tear_down);
  suite_add_tcase(suite, tcase);
  tcase_add_test(tcase, one_transfer_has_the_link_to_itself_after_its_latency);
  tcase_add_test(tcase, no_bytes_take_no_time);
  tcase_add_test(tcase, two_transfers_share_equally_while_both_are_there);
  tcase_add_test(tcase, a_limit_holds_until_the_equal_share_is_less);
  tcase_add_test(tcase, what_a_slow_transfer_leaves_is_shared_by_the_others);
  tcase_add_test(tcase, a_rate_scales_latency_and_transfer);
  tcase_add_test(tcase, parties_of_a_rendezvous_share_a_link);
  tcase_add_test(tcase, links_do_not_disturb_each_other);
  tcase_add_test(tcase, bytes_moved_can_be_read_at_any_time);
  tcase_add_loop_test(tcase, all_bytes_arrive_and_none_twice, 0, 2);
  return suite;
}
