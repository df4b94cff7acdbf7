/* check_event_queue.c - the total order of events: by time, ties by insertion, whatever the mix of
 * insertions and removals; the clock. */
#include "engine/event_queue.h"
#include "history.h"
#include "tap_main.h"

#define EVENTS 100000

static int
compare_events(gconstpointer a, gconstpointer b)
{
  const Event *x = a, *y = b;

  if (x->time != y->time)
    return x->time < y->time ? -1 : 1;
  return x->id < y->id ? -1 : x->id > y->id;
}

/* Ranges of times: hardly any ties, some, mostly ties. */
static const guint64 ranges[] = {G_GUINT64_CONSTANT(1) << 62, EVENTS, 100, 1};

START_TEST(random_events_come_out_as_a_sorted_array)
{
  EventQueue queue;
  Event *expected = g_new(Event, EVENTS), event;
  guint64 random = 42;

  event_queue_init(&queue);
  for (guint i = 0; i < EVENTS; i++) {
    SimTime time = 1 + (SimTime) (history_random(&random) % ranges[_i]);

    expected[i] = (Event){time, event_queue_push(&queue, time, i)};
    ck_assert_uint_eq(event_target(&expected[i]), i);
  }
  qsort(expected, EVENTS, sizeof(Event), compare_events);
  for (guint i = 0; i < EVENTS; i++) {
    ck_assert_int_eq(event_queue_next_time(&queue), expected[i].time);
    ck_assert(event_queue_pop(&queue, &event));
    ck_assert_int_eq(event.time, expected[i].time);
    ck_assert_uint_eq(event.id, expected[i].id);
    ck_assert_int_eq(event_queue_now(&queue), event.time);
  }
  ck_assert(!event_queue_pop(&queue, &event));
  ck_assert_int_eq(event_queue_next_time(&queue), SIM_TIME_MAX);
  event_queue_clear(&queue);
  g_free(expected);
}
END_TEST

START_TEST(equal_times_come_out_in_the_order_of_insertion)
{
  EventQueue queue;
  Event event;

  event_queue_init(&queue);
  for (guint i = 0; i < 1000; i++)
    event_queue_push(&queue, 7, i);
  for (guint i = 0; i < 1000; i++) {
    ck_assert(event_queue_pop(&queue, &event));
    ck_assert_uint_eq(event_target(&event), i);
  }
  event_queue_clear(&queue);
}
END_TEST

START_TEST(an_event_inserted_for_the_present_comes_after_those_already_due)
{
  EventQueue queue;
  Event event;

  event_queue_init(&queue);
  for (guint i = 0; i < 3; i++)
    event_queue_push(&queue, 5, i);
  event_queue_push(&queue, 6, 4);
  ck_assert(event_queue_pop(&queue, &event));
  ck_assert_uint_eq(event_target(&event), 0);
  event_queue_push(&queue, 5, 3);
  for (guint i = 1; i <= 4; i++) {
    ck_assert(event_queue_pop(&queue, &event));
    ck_assert_uint_eq(event_target(&event), i);
  }
  event_queue_clear(&queue);
}
END_TEST

/* An array kept sorted by insertion is the queue's meaning. */
static void
insert_sorted(GArray *pending, Event event)
{
  guint at = pending->len;

  while (at > 0 && compare_events(&g_array_index(pending, Event, at - 1), &event) > 0)
    at--;
  g_array_insert_val(pending, at, event);
}

START_TEST(insertions_between_removals_keep_the_order)
{
  EventQueue queue;
  Event event;
  GArray *pending = g_array_new(FALSE, FALSE, sizeof(Event));
  guint64 random = 7;

  event_queue_init(&queue);
  for (guint i = 0; i < EVENTS; i++) {
    /* Grows to some hundred events, shrinks, and is emptied now and then. */
    gboolean insert = history_random(&random) % 100 < (i / 1000 % 2 ? 60 : 40);

    if (insert) {
      SimTime time = event_queue_now(&queue) + (SimTime) (history_random(&random) % 20);

      event = (Event){time, event_queue_push(&queue, time, i)};
      insert_sorted(pending, event);
    } else if (pending->len > 0) {
      ck_assert(event_queue_pop(&queue, &event));
      ck_assert_uint_eq(event.id, g_array_index(pending, Event, 0).id);
      g_array_remove_index(pending, 0);
    } else {
      ck_assert(!event_queue_pop(&queue, &event));
    }
    ck_assert_int_eq(event_queue_next_time(&queue),
                     pending->len > 0 ? g_array_index(pending, Event, 0).time : SIM_TIME_MAX);
  }
  event_queue_clear(&queue);
  g_array_free(pending, TRUE);
}
END_TEST

START_TEST(the_clock_can_be_advanced_up_to_the_next_event)
{
  EventQueue queue;
  Event event;

  event_queue_init(&queue);
  event_queue_push(&queue, 10, 1);
  event_queue_advance(&queue, 10);
  ck_assert_int_eq(event_queue_now(&queue), 10);
  event_queue_push(&queue, 10, 2);
  ck_assert(event_queue_pop(&queue, &event));
  ck_assert_uint_eq(event_target(&event), 1);
  ck_assert(event_queue_pop(&queue, &event));
  ck_assert_uint_eq(event_target(&event), 2);
  event_queue_clear(&queue);
}
END_TEST

Suite *
test_suite(void)
{
  Suite *suite = suite_create("event_queue");
  TCase *tcase = tcase_create("event_queue");

  suite_add_tcase(suite, tcase);
  tcase_add_loop_test(tcase, random_events_come_out_as_a_sorted_array, 0, G_N_ELEMENTS(ranges));
  tcase_add_test(tcase, equal_times_come_out_in_the_order_of_insertion);
  tcase_add_test(tcase, an_event_inserted_for_the_present_comes_after_those_already_due);
  tcase_add_test(tcase, insertions_between_removals_keep_the_order);
  tcase_add_test(tcase, the_clock_can_be_advanced_up_to_the_next_event);
  return suite;
}
