/* check_engine.c - streams, sync points, rendezvous and calls of the engine, and what it says about
 * parties that wait for ever.  Rates and links have tests of their own. */
#include "engine/engine.h"
#include "history.h"
#include "tap_main.h"
#include <string.h>

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

/* ---- streams ---- */

START_TEST(a_stream_runs_its_works_one_after_another_in_the_order_of_submission)
{
  Stream *stream = stream_new(engine, "s");
  SimTime begin = 0;

  for (int i = 0; i < 1000; i++)
    history_submit(&history, stream, (guint64) i, i % 7);
  engine_run(engine);
  ck_assert_uint_eq(history.entries->len, 2000);
  for (int i = 0; i < 1000; i++) {
    const HistoryEntry *began = &g_array_index(history.entries, HistoryEntry, 2 * i);

    ck_assert_uint_eq(began[0].tag, (guint64) i);
    ck_assert_uint_eq(began[0].what, WORK_BEGAN);
    ck_assert_int_eq(began[0].time, begin);
    ck_assert_uint_eq(began[1].tag, (guint64) i);
    ck_assert_uint_eq(began[1].what, WORK_ENDED);
    ck_assert_int_eq(began[1].time, begin + i % 7);
    begin += i % 7;
  }
  ck_assert(stream_is_idle(stream));
}
END_TEST

/*      0    10   20   30   40   50   60
 *   a  |---------|
 *   b            |---------|                       */
START_TEST(streams_run_side_by_side)
{
  Stream *a = stream_new(engine, "a"), *b = stream_new(engine, "b");
  Work late = history_work(&history, 2, 20);

  history_submit(&history, a, 1, 20);
  stream_submit(b, 20, &late);
  history_submit(&history, b, 3, 20);
  engine_run(engine);
  ck_assert_ended(&history, 1, 20);
  ck_assert_began(&history, 2, 20);
  ck_assert_began(&history, 3, 40);
  ck_assert_ended(&history, 3, 60);
}
END_TEST

START_TEST(no_item_begins_before_its_time)
{
  Stream *stream = stream_new(engine, "s"), *waiter = stream_new(engine, "w");
  SyncPoint *point = sync_point_new(engine, "p", -1);
  Work work = history_work(&history, 1, 5);

  stream_submit(stream, 100, &work);
  work.tag = 2;
  stream_submit(stream, 50, &work); /* is behind the first all the same */
  stream_record(stream, 200, point);
  stream_wait(waiter, 0, point);
  work.tag = 3;
  stream_submit(waiter, 300, &work);
  engine_run(engine);
  ck_assert_began(&history, 1, 100);
  ck_assert_began(&history, 2, 105);
  ck_assert_int_eq(sync_point_time(point), 200);
  ck_assert_began(&history, 3, 300);
}
END_TEST

START_TEST(a_time_in_the_past_means_now)
{
  Stream *stream = stream_new(engine, "s");

  history_submit(&history, stream, 1, 70);
  engine_run(engine);
  history_submit(&history, stream, 2, 1);
  engine_run(engine);
  ck_assert_began(&history, 2, 70);
}
END_TEST

/* Its work's number is the tag; submits the next one to the same stream, up to 10. */
static void
submit_next(gpointer stream, guint64 tag)
{
  Work next = {.duration = 3, .finished = submit_next, .user = stream, .tag = tag + 1};

  history_ended(&history, tag);
  if (tag < 10)
    stream_submit(stream, 0, &next);
}

/* 0 ends at 3, then comes what was already there, then 1, 2, ... 10. */
START_TEST(a_callback_may_submit_to_its_own_stream)
{
  Stream *stream = stream_new(engine, "s");
  Work work = {.duration = 3, .finished = submit_next, .user = stream};

  stream_submit(stream, 0, &work);
  history_submit(&history, stream, 99, 100);
  engine_run(engine);
  ck_assert_ended(&history, 0, 3);
  ck_assert_ended(&history, 99, 103);
  for (guint64 tag = 1; tag <= 10; tag++)
    ck_assert_ended(&history, tag, 103 + 3 * (SimTime) tag);
}
END_TEST

/* ---- sync points ---- */

START_TEST(a_point_fires_when_everything_before_it_on_its_stream_is_done)
{
  Stream *a = stream_new(engine, "a"), *b = stream_new(engine, "b");
  SyncPoint *early = sync_point_new(engine, "early", -1), *late = sync_point_new(engine, "late", 1);

  stream_record(a, 0, early);
  history_submit(&history, a, 1, 10);
  history_submit(&history, a, 2, 15);
  stream_record(a, 0, late);
  history_submit(&history, a, 3, 5);
  stream_wait(b, 0, early);
  history_submit(&history, b, 4, 1);
  stream_wait(b, 0, late);
  history_submit(&history, b, 5, 1);
  ck_assert(!sync_point_fired(early));
  engine_run(engine);
  ck_assert_int_eq(sync_point_time(early), 0);
  ck_assert_int_eq(sync_point_time(late), 25);
  ck_assert_began(&history, 3, 25);
  ck_assert_began(&history, 4, 0);
  ck_assert_began(&history, 5, 25);
}
END_TEST

START_TEST(a_wait_for_a_point_that_has_fired_takes_no_time)
{
  Stream *a = stream_new(engine, "a"), *b = stream_new(engine, "b");
  SyncPoint *point = sync_point_new(engine, "p", 0);

  stream_record(a, 5, point);
  history_submit(&history, b, 1, 30);
  stream_wait(b, 0, point);
  history_submit(&history, b, 2, 1);
  engine_run(engine);
  ck_assert_began(&history, 2, 30);
}
END_TEST

START_TEST(those_who_wait_for_one_point_go_on_in_the_order_they_came)
{
  Stream *a = stream_new(engine, "a");
  SyncPoint *point = sync_point_new(engine, "p", 0);
  guint64 order[] = {3, 0, 4, 1, 2};

  for (guint i = 0; i < G_N_ELEMENTS(order); i++) {
    Stream *waiter = stream_new(engine, "w");

    /* Comes to its wait at time i. */
    stream_wait(waiter, (SimTime) i, point);
    history_submit(&history, waiter, order[i], 0);
  }
  history_submit(&history, a, 100, 50);
  stream_record(a, 0, point);
  engine_run(engine);
  for (guint i = 0; i < G_N_ELEMENTS(order); i++)
    ck_assert_uint_eq(g_array_index(history.entries, HistoryEntry, 2 + i).tag, order[i]);
}
END_TEST

START_TEST(a_point_can_be_reset_and_fired_again)
{
  Stream *a = stream_new(engine, "a"), *b = stream_new(engine, "b");
  SyncPoint *point = sync_point_new(engine, "p", 0);

  for (int round = 0; round < 3; round++) {
    if (round > 0)
      sync_point_reset(point);
    ck_assert(!sync_point_fired(point));
    history_submit(&history, a, 100 + (guint64) round, 10);
    stream_record(a, 0, point);
    stream_wait(b, 0, point);
    history_submit(&history, b, (guint64) round, 0);
    engine_run(engine);
    ck_assert_began(&history, (guint64) round, 10 * (round + 1));
  }
}
END_TEST

/* Stream i waits for stream i-1 and is submitted before it, so that nothing can run at once. */
START_TEST(a_long_chain_of_zero_duration_ends_at_once_and_in_order)
{
  enum { LINKS = 20000 };
  SyncPoint **points = g_new(SyncPoint *, LINKS + 1);

  for (int i = 0; i <= LINKS; i++)
    points[i] = sync_point_new(engine, "link", i);
  for (int i = LINKS; i > 0; i--) {
    Stream *stream = stream_new(engine, "s");

    stream_wait(stream, 0, points[i - 1]);
    history_submit(&history, stream, (guint64) i, 0);
    stream_record(stream, 0, points[i]);
  }
  stream_record(stream_new(engine, "first"), 8, points[0]);
  engine_run(engine);
  ck_assert_int_eq(sync_point_time(points[LINKS]), 8);
  ck_assert_uint_eq(history.entries->len, 2 * LINKS);
  for (int i = 0; i < LINKS; i++)
    ck_assert_uint_eq(g_array_index(history.entries, HistoryEntry, 2 * i).tag, (guint64) (i + 1));
  g_free(points);
}
END_TEST

/* ---- running and calls ---- */

START_TEST(calls_come_at_their_time_and_in_the_order_they_were_asked_for)
{
  engine_call_at(engine, 20, history_called, &history, 3);
  engine_call_at(engine, 10, history_called, &history, 1);
  engine_call_at(engine, 20, history_called, &history, 4);
  engine_call_at(engine, 10, history_called, &history, 2);
  engine_run(engine);
  for (guint i = 0; i < 4; i++) {
    ck_assert_uint_eq(g_array_index(history.entries, HistoryEntry, i).tag, i + 1);
    ck_assert_int_eq(g_array_index(history.entries, HistoryEntry, i).time, i < 2 ? 10 : 20);
  }
  ck_assert_uint_eq(engine_event_count(engine), 4);
}
END_TEST

/* Asks for two more calls each, down to depth 0: tag is the depth. */
static void
call_two(gpointer user, guint64 tag)
{
  history_called(&history, tag);
  for (int i = 0; i < 2 && tag > 0; i++)
    engine_call_at(engine, engine_now(engine) + 1, call_two, user, tag - 1);
}

START_TEST(a_call_may_ask_for_calls)
{
  engine_call_at(engine, 0, call_two, NULL, 10);
  engine_run(engine);
  ck_assert_uint_eq(history.entries->len, (1 << 11) - 1);
  ck_assert_int_eq(engine_now(engine), 10);
}
END_TEST

START_TEST(running_until_a_point_stops_there)
{
  Stream *a = stream_new(engine, "a"), *b = stream_new(engine, "b");
  SyncPoint *point = sync_point_new(engine, "p", 0), *never = sync_point_new(engine, "never", 0);

  history_submit(&history, a, 1, 10);
  stream_record(a, 0, point);
  history_submit(&history, a, 2, 10);
  history_submit(&history, b, 3, 15);
  ck_assert(engine_run_until(engine, point));
  ck_assert_int_eq(engine_now(engine), 10);
  ck_assert(engine_run_until(engine, point));
  ck_assert_int_eq(engine_now(engine), 10);
  ck_assert(!engine_run_until(engine, never));
  ck_assert_ended(&history, 2, 20);
  ck_assert_ended(&history, 3, 15);
}
END_TEST

START_TEST(running_to_a_time_shows_what_is_done_by_then)
{
  Stream *stream = stream_new(engine, "s");
  SyncPoint *points[3];

  for (int i = 0; i < 3; i++) {
    points[i] = sync_point_new(engine, "p", i);
    history_submit(&history, stream, (guint64) i, 10);
    stream_record(stream, 0, points[i]);
  }
  engine_run_to(engine, 20); /* the second is done exactly then */
  ck_assert_int_eq(engine_now(engine), 20);
  ck_assert(sync_point_fired(points[0]) && sync_point_fired(points[1]));
  ck_assert(!sync_point_fired(points[2]));
  engine_run_to(engine, 29);
  ck_assert(!sync_point_fired(points[2]));
  engine_run_to(engine, 1000);
  ck_assert_int_eq(sync_point_time(points[2]), 30);
  ck_assert_int_eq(engine_now(engine), 1000);
  history_submit(&history, stream, 9, 1);
  engine_run(engine);
  ck_assert_ended(&history, 9, 1001);
}
END_TEST

/* ---- rendezvous ---- */

/* Parties arrive at 10, 40 and 25; theirs lasts 5, 7 and 30. */
START_TEST(a_rendezvous_begins_with_the_last_party_and_lasts_as_long_as_the_longest)
{
  Rendezvous *rendezvous = rendezvous_new(engine, "meet", 1, 3);
  SimTime arrivals[] = {10, 40, 25}, durations[] = {5, 7, 30};

  for (int i = 0; i < 3; i++) {
    Stream *stream = stream_new(engine, "s");
    Work work = history_work(&history, (guint64) i, durations[i]);

    work.rendezvous = rendezvous;
    work.party = i;
    history_submit(&history, stream, 10 + (guint64) i, arrivals[i]);
    stream_submit(stream, 0, &work);
    history_submit(&history, stream, 20 + (guint64) i, 1);
  }
  engine_run(engine);
  for (guint64 i = 0; i < 3; i++) {
    ck_assert_began(&history, i, 40);
    ck_assert_ended(&history, i, 70);
    ck_assert_began(&history, 20 + i, 70);
  }
}
END_TEST

START_TEST(a_rendezvous_of_one_party_is_plain_work)
{
  Stream *stream = stream_new(engine, "s");
  Work work = history_work(&history, 1, 12);

  work.rendezvous = rendezvous_new(engine, "alone", -1, 1);
  stream_submit(stream, 4, &work);
  engine_run(engine);
  ck_assert_began(&history, 1, 4);
  ck_assert_ended(&history, 1, 16);
}
END_TEST

/* Two parties, in each round one of them is late by 10: a round takes 10 + 5. */
START_TEST(a_rendezvous_can_be_used_again)
{
  Rendezvous *rendezvous = rendezvous_new(engine, "again", -1, 2);
  Stream *stream[] = {stream_new(engine, "a"), stream_new(engine, "b")};

  for (guint64 round = 0; round < 6; round++) {
    history_submit(&history, stream[round % 2], 100 + round, 10);
    for (int party = 0; party < 2; party++) {
      Work work = history_work(&history, 2 * round + (guint64) party, 5);

      work.rendezvous = rendezvous;
      work.party = party;
      stream_submit(stream[party], 0, &work);
    }
  }
  engine_run(engine);
  for (guint64 round = 0; round < 6; round++) {
    for (guint64 party = 0; party < 2; party++) {
      ck_assert_began(&history, 2 * round + party, 15 * (SimTime) round + 10);
      ck_assert_ended(&history, 2 * round + party, 15 * (SimTime) round + 15);
    }
  }
}
END_TEST

/* ---- stuck ---- */

START_TEST(nothing_is_stuck_when_all_has_run)
{
  Stream *stream = stream_new(engine, "s");

  history_submit(&history, stream, 1, 10);
  engine_run(engine);
  g_autofree char *report = engine_stuck_report(engine);
  ck_assert_str_eq(report, "");
}
END_TEST

START_TEST(parties_that_wait_and_those_that_never_came_are_named)
{
  Rendezvous *gather = rendezvous_new(engine, "gather", 12, 6);
  Rendezvous *reduce = rendezvous_new(engine, "reduce", -1, 2);
  SyncPoint *point = sync_point_new(engine, "gathered", 7);

  for (int party = 0; party < 6; party++) {
    g_autofree char *name = g_strdup_printf("comm %d", party);
    Stream *stream = stream_new(engine, name);
    Work work = {.duration = 1, .rendezvous = party == 4 ? reduce : gather, .party = party % 4};

    if (party == 3 || party == 4)
      stream_submit(stream, 0, &work);
    if (party == 3)
      stream_record(stream, 0, point);
  }
  stream_wait(stream_new(engine, "compute"), 0, point);
  stream_wait(stream_new(engine, "copy"), 0, sync_point_new(engine, "freed", 3));
  engine_run(engine);
  g_autofree char *report = engine_stuck_report(engine);
  ck_assert_str_eq(report, "comm 3 waits in rendezvous 'gather 12', which lacks parties 0-2, 4-5\n"
                           "comm 4 waits in rendezvous 'reduce', which lacks party 1\n"
                           "compute waits for sync point 'gathered 7', which comm 3 would record\n"
                           "copy waits for sync point 'freed 3', which nothing records\n");
}
END_TEST

/* ---- determinism ---- */

#define RANDOM_STREAMS 20

static double
half_when_crowded(gpointer user, int rate_class, const int *running, G_GNUC_UNUSED int total)
{
  (void) user;
  return running[1 - rate_class] > 2 ? 0.5 : 1;
}

/* Everything the engine has, in an order that random numbers decide; nobody waits for anything that
 * was not submitted before, so nothing gets stuck. */
static void
run_anything(History *target)
{
  Stream *streams[RANDOM_STREAMS];
  RateGroup *group = rate_group_new(target->engine, 2, half_when_crowded, NULL);
  SharedLink *link = shared_link_new(target->engine, "link", 3e9, 1e9);
  SyncPoint *last = sync_point_new(target->engine, "point", 0);
  guint64 random = 99;

  for (int i = 0; i < RANDOM_STREAMS; i++)
    streams[i] = stream_new(target->engine, "s");
  stream_record(streams[0], 0, last);
  for (guint64 i = 0; i < 5000; i++) {
    Stream *stream = streams[history_random(&random) % RANDOM_STREAMS];
    SimTime not_before = (SimTime) (history_random(&random) % 5000);
    Work work = history_work(target, i, (SimTime) (history_random(&random) % 4 * 50));

    switch (history_random(&random) % 4) {
    case 0:
      work.group = group;
      work.rate_class = (int) (i % 2);
      break;
    case 1:
      work.link = link;
      work.link_bytes = (double) (history_random(&random) % 1000);
      break;
    case 2:
      stream_wait(stream, not_before, last);
      break;
    default:
      last = sync_point_new(target->engine, "point", (gint64) i);
      stream_record(stream, not_before, last);
      engine_call_at(target->engine, not_before, history_called, target, i);
      break;
    }
    stream_submit(stream, not_before, &work);
  }
  engine_run(target->engine);
}

START_TEST(the_same_calls_give_the_same_history)
{
  History again = history_new();

  run_anything(&history);
  run_anything(&again);
  g_autofree char *report = engine_stuck_report(engine);
  ck_assert_str_eq(report, "");
  ck_assert_uint_ge(history.entries->len, 10000);
  ck_assert_uint_eq(history.entries->len, again.entries->len);
  ck_assert_mem_eq(history.entries->data, again.entries->data,
                   history.entries->len * sizeof(HistoryEntry));
  ck_assert_uint_eq(engine_event_count(engine), engine_event_count(again.engine));
  history_clear(&again);
}
END_TEST

static void
add_streams(TCase *tcase)
{
  tcase_add_test(tcase, a_stream_runs_its_works_one_after_another_in_the_order_of_submission);
  tcase_add_test(tcase, streams_run_side_by_side);
  tcase_add_test(tcase, no_item_begins_before_its_time);
  tcase_add_test(tcase, a_time_in_the_past_means_now);
  tcase_add_test(tcase, a_callback_may_submit_to_its_own_stream);
}

static void
add_points(TCase *tcase)
{
  tcase_add_test(tcase, a_point_fires_when_everything_before_it_on_its_stream_is_done);
  tcase_add_test(tcase, a_wait_for_a_point_that_has_fired_takes_no_time);
  tcase_add_test(tcase, those_who_wait_for_one_point_go_on_in_the_order_they_came);
  tcase_add_test(tcase, a_point_can_be_reset_and_fired_again);
  tcase_add_test(tcase, a_long_chain_of_zero_duration_ends_at_once_and_in_order);
}

Suite *
test_suite(void)
{
  Suite *suite = suite_create("engine");
  TCase *tcase = tcase_create("engine");

  tcase_add_checked_fixture(tcase, set_up, tear_down);
  suite_add_tcase(suite, tcase);
  add_streams(tcase);
  add_points(tcase);
  tcase_add_test(tcase, calls_come_at_their_time_and_in_the_order_they_were_asked_for);
  tcase_add_test(tcase, a_call_may_ask_for_calls);
  tcase_add_test(tcase, running_until_a_point_stops_there);
  tcase_add_test(tcase, running_to_a_time_shows_what_is_done_by_then);
  tcase_add_test(tcase, a_rendezvous_begins_with_the_last_party_and_lasts_as_long_as_the_longest);
  tcase_add_test(tcase, a_rendezvous_of_one_party_is_plain_work);
  tcase_add_test(tcase, a_rendezvous_can_be_used_again);
  tcase_add_test(tcase, nothing_is_stuck_when_all_has_run);
  tcase_add_test(tcase, parties_that_wait_and_those_that_never_came_are_named);
  tcase_add_test(tcase, the_same_calls_give_the_same_history);
  return suite;
}
