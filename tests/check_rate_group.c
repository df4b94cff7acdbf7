/* check_rate_group.c - work that is slowed down by what else runs: timelines worked out on paper,
 * and the law that the rate, summed over a work's time, gives its duration. */
#include "engine/engine.h"
#include "history.h"
#include "tap_main.h"
#include <math.h>

static History history;
static Engine *engine;
static int questions;

static void
set_up(void)
{
  history = history_new();
  engine = history.engine;
  questions = 0;
}

static void
tear_down(void)
{
  history_clear(&history);
}

static void
submit(Stream *stream, SimTime not_before, guint64 tag, SimTime duration, RateGroup *group,
       int rate_class)
{
  Work work = history_work(&history, tag, duration);

  work.group = group;
  work.rate_class = rate_class;
  stream_submit(stream, not_before, &work);
}

/* Class 0 runs at half speed while anything of class 1 does. */
static double
half_beside_the_other(gpointer user, int rate_class, const int *running, G_GNUC_UNUSED int total)
{
  (void) user;
  questions++;
  return rate_class == 0 && running[1] > 0 ? 0.5 : 1;
}

/* Work 1 (class 0) has done 20 of its 100 when work 2 begins at 20.  By its end at 80 it has done
 * 30 more; the remaining 50 take until 130. */
START_TEST(work_is_slower_while_other_work_runs)
{
  RateGroup *group = rate_group_new(engine, 2, half_beside_the_other, NULL);

  submit(stream_new(engine, "a"), 0, 1, 100, group, 0);
  submit(stream_new(engine, "b"), 20, 2, 60, group, 1);
  engine_run(engine);
  ck_assert_ended(&history, 2, 80);
  ck_assert_ended(&history, 1, 130);
}
END_TEST

/* The other work is there from the beginning and ends at 40, when 20 of 100 are done. */
START_TEST(work_gets_faster_when_other_work_ends)
{
  RateGroup *group = rate_group_new(engine, 2, half_beside_the_other, NULL);

  submit(stream_new(engine, "b"), 0, 2, 40, group, 1);
  submit(stream_new(engine, "a"), 0, 1, 100, group, 0);
  engine_run(engine);
  ck_assert_ended(&history, 1, 120);
}
END_TEST

START_TEST(work_of_other_groups_and_of_none_is_not_slowed)
{
  RateGroup *group = rate_group_new(engine, 2, half_beside_the_other, NULL);
  RateGroup *other = rate_group_new(engine, 2, half_beside_the_other, NULL);

  submit(stream_new(engine, "b"), 0, 1, 50, group, 1);
  submit(stream_new(engine, "a"), 0, 2, 100, other, 0);
  submit(stream_new(engine, "c"), 0, 3, 100, NULL, 0);
  engine_run(engine);
  ck_assert_ended(&history, 2, 100);
  ck_assert_ended(&history, 3, 100);
}
END_TEST

static double
a_third_beside_the_other(gpointer user, int rate_class, const int *running, G_GNUC_UNUSED int total)
{
  (void) user;
  return rate_class == 0 && running[1] > 0 ? 1.0 / 3 : 1;
}

/* Ten works of 30, at 10, 110, 210 ...: each costs the other 20, so 1000 become 1200.  The tenths
 * and thirds of a nanosecond in between must not be rounded away. */
START_TEST(many_changes_of_rate_lose_nothing)
{
  RateGroup *group = rate_group_new(engine, 2, a_third_beside_the_other, NULL);
  Stream *other = stream_new(engine, "b");

  submit(stream_new(engine, "a"), 0, 100, 1000, group, 0);
  for (guint64 i = 0; i < 10; i++)
    submit(other, 10 + 100 * (SimTime) i, i, 30, group, 1);
  engine_run(engine);
  ck_assert_ended(&history, 100, 1200);
}
END_TEST

/* A thousand works of class 0 in a row: what runs changes at the first and the last only, and two
 * classes are asked for each time. */
START_TEST(rates_are_not_asked_for_when_one_work_takes_the_place_of_another)
{
  RateGroup *group = rate_group_new(engine, 2, half_beside_the_other, NULL);
  Stream *stream = stream_new(engine, "s");

  for (guint64 i = 0; i < 1000; i++)
    submit(stream, 0, i, 10, group, 0);
  engine_run(engine);
  ck_assert_ended(&history, 999, 10000);
  ck_assert_int_le(questions, 4);
}
END_TEST

/* Both parties last 60 at full rate.  The first is halved by work that runs until 40, and ends at
 * 80; the other, though done at 60, ends with it. */
START_TEST(parties_of_a_rendezvous_end_with_the_slowest)
{
  Rendezvous *rendezvous = rendezvous_new(engine, "meet", -1, 2);
  RateGroup *group[2];

  for (int party = 0; party < 2; party++) {
    Work work = history_work(&history, (guint64) party, 60);

    group[party] = rate_group_new(engine, 2, half_beside_the_other, NULL);
    work.group = group[party];
    work.rendezvous = rendezvous;
    work.party = party;
    stream_submit(stream_new(engine, "s"), 0, &work);
  }
  submit(stream_new(engine, "other"), 0, 9, 40, group[0], 1);
  engine_run(engine);
  ck_assert_ended(&history, 0, 80);
  ck_assert_ended(&history, 1, 80);
}
END_TEST

/* ---- the law ---- */

#define CLASSES 3
#define WORKS 300

static double
by_table(gpointer user, int rate_class, const int *running, G_GNUC_UNUSED int total)
{
  (void) user;
  return 1.0 / (1 + rate_class + 0.7 * running[0] + 0.3 * running[1] * running[2]);
}

static const int no_work_runs[CLASSES];

/* Sums rate * time over the life of each work by walking through the history: the rate between two
 * entries follows from what runs then. */
START_TEST(the_sum_of_the_rate_over_the_time_of_a_work_is_its_duration)
{
  RateGroup *group = rate_group_new(engine, CLASSES, by_table, NULL);
  Stream *streams[7];
  SimTime durations[WORKS], now = 0;
  double done[WORKS] = {0};
  gboolean runs[WORKS] = {0};
  int running[CLASSES] = {0};
  guint64 random = 5;

  for (guint i = 0; i < G_N_ELEMENTS(streams); i++)
    streams[i] = stream_new(engine, "s");
  for (guint64 i = 0; i < WORKS; i++) {
    durations[i] = 1 + (SimTime) (history_random(&random) % 10000);
    submit(streams[history_random(&random) % G_N_ELEMENTS(streams)],
           (SimTime) (history_random(&random) % 1000000), i, durations[i], group,
           (int) (i % CLASSES));
  }
  engine_run(engine);
  for (guint e = 0; e < history.entries->len; e++) {
    const HistoryEntry *entry = &g_array_index(history.entries, HistoryEntry, e);
    gboolean begins = entry->what == WORK_BEGAN;

    for (int i = 0; i < WORKS; i++) {
      if (runs[i])
        done[i] += (double) (entry->time - now) * by_table(NULL, i % CLASSES, running, 0);
    }
    now = entry->time;
    runs[entry->tag] = begins;
    running[entry->tag % CLASSES] += begins ? 1 : -1;
  }
  ck_assert_mem_eq(running, no_work_runs, sizeof running);
  /* Ends are rounded to the nanosecond, once. */
  for (int i = 0; i < WORKS; i++)
    ck_assert_double_le(fabs(done[i] - (double) durations[i]), 0.5 + 1e-6);
}
END_TEST

Suite *
test_suite(void)
{
  Suite *suite = suite_create("rate_group");
  TCase *tcase = tcase_create("rate_group");

  tcase_add_checked_fixture(tcase, set_up, tear_down);
  suite_add_tcase(suite, tcase);
  tcase_add_test(tcase, work_is_slower_while_other_work_runs);
  tcase_add_test(tcase, work_gets_faster_when_other_work_ends);
  tcase_add_test(tcase, work_of_other_groups_and_of_none_is_not_slowed);
  tcase_add_test(tcase, many_changes_of_rate_lose_nothing);
  tcase_add_test(tcase, rates_are_not_asked_for_when_one_work_takes_the_place_of_another);
  tcase_add_test(tcase, parties_of_a_rendezvous_end_with_the_slowest);
  tcase_add_test(tcase, the_sum_of_the_rate_over_the_time_of_a_work_is_its_duration);
  return suite;
}
