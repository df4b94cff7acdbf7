/* check_critical_path.c - what a step hangs on, on timelines drawn by hand.
 *
 * Streams: 0 compute, 1 all_gather.  The step is number 1, from 1000 to wherever its last span
 * ends. */
#include "report/critical_path.h"
#include "tap_main.h"
#include <string.h>

enum { COMPUTE, GATHER };

static Recording *recording;

static void
set_up(void)
{
  recording = recording_new();
  g_ptr_array_add(recording->streams, g_strdup("compute"));
  g_ptr_array_add(recording->streams, g_strdup("all_gather"));
}

static void
tear_down(void)
{
  recording_free(recording);
}

/* A span that has begun as soon as it was issued, unless `issued` says when that was. */
static Span *
add(SpanKind kind, int stream, SimTime start, SimTime end, SimTime issued)
{
  Span span = {.kind = (guint8) kind,
               .stream = (guint8) stream,
               .start = start,
               .end = end,
               .issued = issued,
               .step = 1,
               .name = -1,
               .module = -1,
               .communicator = -1};
  g_array_append_val(recording->spans, span);
  return &g_array_index(recording->spans, Span, recording->spans->len - 1);
}

/* "compute 1000-1100, ...". */
static char *
path_text(const CriticalPath *path)
{
  GString *text = g_string_new(NULL);
  for (guint i = 0; i < path->stretches->len; i++) {
    const PathStretch *s = &g_array_index(path->stretches, PathStretch, i);
    g_string_append_printf(text, "%s%s %d-%d", i > 0 ? ", " : "", path_kind_name(s->kind),
                           (int) s->start, (int) s->end);
  }
  return g_string_free(text, FALSE);
}

static void
assert_path(SimTime end, const char *expected)
{
  g_autoptr(CriticalPath) path = critical_path_new(recording, 1, COMPUTE, 1000, end);
  g_autofree char *text = path_text(path);
  ck_assert_str_eq(text, expected);
  SimTime sum = 0;
  for (int i = 0; i < PATH_KINDS; i++)
    sum += path->time[i];
  ck_assert_int_eq(sum, end - 1000);
}

/* The second kernel waits for the gather, which began with the step; the first is off the path. */
START_TEST(a_kernel_hangs_on_the_gather_that_it_waited_for)
{
  add(SPAN_KERNEL, COMPUTE, 1000, 1050, 900);
  add(SPAN_COLLECTIVE, GATHER, 1000, 1100, 900);
  add(SPAN_KERNEL, COMPUTE, 1100, 1300, 910);
  assert_path(1300, "collective 1000-1100, compute 1100-1300");
}
END_TEST

START_TEST(a_kernel_hangs_on_its_own_stream_where_both_ended_together)
{
  add(SPAN_KERNEL, COMPUTE, 1000, 1100, 900);
  add(SPAN_COLLECTIVE, GATHER, 1050, 1100, 900);
  add(SPAN_KERNEL, COMPUTE, 1100, 1300, 910);
  assert_path(1300, "compute 1000-1300");
}
END_TEST

/* The kernel at 1200 began when it was issued: since the host had nothing to wait for, it was busy
 * all the time. */
START_TEST(a_kernel_that_began_when_it_was_issued_hangs_on_the_host)
{
  add(SPAN_KERNEL, COMPUTE, 1000, 1100, 900);
  add(SPAN_KERNEL, COMPUTE, 1200, 1300, 1200);
  assert_path(1300, "host 1000-1200, compute 1200-1300");
}
END_TEST

/* The host waited until 1100 for the first kernel, and then took 100 to issue the next. */
START_TEST(the_host_hangs_on_what_it_waited_for)
{
  add(SPAN_KERNEL, COMPUTE, 1000, 1100, 900);
  add(SPAN_HOST_BLOCKED, 2, 950, 1100, 950);
  add(SPAN_KERNEL, COMPUTE, 1200, 1300, 1200);
  assert_path(1300, "compute 1000-1100, host 1100-1200, compute 1200-1300");
}
END_TEST

/* cudaMalloc waits for the kernel, and takes 40 after that. */
START_TEST(the_drivers_own_time_is_told_apart)
{
  add(SPAN_KERNEL, COMPUTE, 1000, 1100, 900);
  add(SPAN_LOST, 2, 950, 1140, 950);
  add(SPAN_KERNEL, COMPUTE, 1200, 1300, 1200);
  assert_path(1300, "compute 1000-1100, host_call 1100-1140, host 1140-1200, compute 1200-1300");
}
END_TEST

/* This rank came to the gather at 1040, when its kernel ended; the last one at 1100. */
START_TEST(a_collective_that_waits_for_ranks_says_so)
{
  add(SPAN_KERNEL, COMPUTE, 1000, 1040, 900);
  add(SPAN_COLLECTIVE, GATHER, 1100, 1150, 910)->arrived = 1040;
  add(SPAN_KERNEL, COMPUTE, 1150, 1300, 920);
  assert_path(1300, "compute 1000-1040, ranks 1040-1100, collective 1100-1150, compute 1150-1300");
}
END_TEST

START_TEST(what_began_before_the_step_counts_from_its_start)
{
  add(SPAN_COLLECTIVE, GATHER, 800, 1100, 700);
  add(SPAN_KERNEL, COMPUTE, 1100, 1300, 900);
  assert_path(1300, "collective 1000-1100, compute 1100-1300");
}
END_TEST

/* Without times of issue, as in a measured trace, a gap is the host's and no more. */
START_TEST(without_times_of_issue_a_gap_is_the_hosts)
{
  add(SPAN_KERNEL, COMPUTE, 1000, 1100, 0);
  add(SPAN_KERNEL, COMPUTE, 1120, 1300, 0);
  assert_path(1310, "compute 1000-1100, host 1100-1120, compute 1120-1300, host 1300-1310");
}
END_TEST

START_TEST(only_what_is_on_the_path_counts_as_lost_to_contention)
{
  add(SPAN_KERNEL, COMPUTE, 1000, 1050, 900)->alone = 20;
  add(SPAN_COLLECTIVE, GATHER, 1000, 1100, 900)->alone = 90;
  add(SPAN_KERNEL, COMPUTE, 1100, 1300, 910)->alone = 195;
  g_autoptr(CriticalPath) path = critical_path_new(recording, 1, COMPUTE, 1000, 1300);
  ck_assert_int_eq(path->contention, 10 + 5);
}
END_TEST

/* A reduce-scatter stood behind a gather in their communicator's queue; a gather that stood behind
 * one of its own stream was no less urgent. */
START_TEST(a_gather_before_a_more_urgent_collective_is_told)
{
  gint32 shard = recording_string(recording, "shard");
  g_ptr_array_add(recording->streams, g_strdup("reduce_scatter"));
  for (int stream = GATHER; stream <= GATHER + 1; stream++) {
    g_array_set_size(recording->spans, 0);
    Span *gather = add(SPAN_COLLECTIVE, GATHER, 1000, 1100, 900);
    gather->name = recording_string(recording, "all_gather");
    gather->communicator = shard;
    add(SPAN_COLLECTIVE, stream, 1100, 1200, 910)->communicator = shard;
    add(SPAN_KERNEL, COMPUTE, 1200, 1300, 920);
    g_autoptr(CriticalPath) path = critical_path_new(recording, 1, COMPUTE, 1000, 1300);
    ck_assert_int_eq(path->queued, stream == GATHER ? 0 : 100);
  }
}
END_TEST

START_TEST(spans_of_no_length_do_not_stop_the_walk)
{
  add(SPAN_KERNEL, COMPUTE, 1000, 1100, 900);
  add(SPAN_COLLECTIVE, COMPUTE, 1100, 1100, 900);
  add(SPAN_KERNEL, COMPUTE, 1100, 1100, 900);
  add(SPAN_KERNEL, COMPUTE, 1100, 1300, 900);
  assert_path(1300, "compute 1000-1300");
}
END_TEST

Suite *
test_suite(void)
{
  Suite *suite = suite_create("critical_path");
  TCase *tcase = tcase_create("critical_path");

  tcase_add_checked_fixture(tcase, set_up, tear_down);
  suite_add_tcase(suite, tcase);
  tcase_add_test(tcase, a_kernel_hangs_on_the_gather_that_it_waited_for);
  tcase_add_test(tcase, a_kernel_hangs_on_its_own_stream_where_both_ended_together);
  tcase_add_test(tcase, a_kernel_that_began_when_it_was_issued_hangs_on_the_host);
  tcase_add_test(tcase, the_host_hangs_on_what_it_waited_for);
  tcase_add_test(tcase, the_drivers_own_time_is_told_apart);
  tcase_add_test(tcase, a_collective_that_waits_for_ranks_says_so);
  tcase_add_test(tcase, what_began_before_the_step_counts_from_its_start);
  tcase_add_test(tcase, without_times_of_issue_a_gap_is_the_hosts);
  tcase_add_test(tcase, only_what_is_on_the_path_counts_as_lost_to_contention);
  tcase_add_test(tcase, a_gather_before_a_more_urgent_collective_is_told);
  tcase_add_test(tcase, spans_of_no_length_do_not_stop_the_walk);
  return suite;
}
