/* check_chrome_trace.c - the trace of the fixture's two steps: valid JSON, tracks, launches and
 * what they launch, counters equal to the recording's memory. */
#include <cjson/cJSON.h>
#include <string.h>

#include "report/chrome_trace.h"
#include "report_fixture.h"
#include "tap_main.h"

typedef struct {
  Recording *recording;
  RunInfo *info;
  cJSON *root, *events;
} Traced;

static Traced
traced(void)
{
  Traced t = {.recording = fixture_recording(), .info = fixture_info()};
  g_autoptr(GString) text = g_string_new(NULL);
  chrome_trace(t.recording, t.info, text);
  t.root = cJSON_ParseWithOpts(text->str, NULL, TRUE);
  ck_assert_ptr_nonnull(t.root);
  t.events = cJSON_GetObjectItemCaseSensitive(t.root, "traceEvents");
  ck_assert(cJSON_IsArray(t.events));
  return t;
}

static void
traced_clear(Traced *t)
{
  cJSON_Delete(t->root);
  recording_free(t->recording);
  run_info_free(t->info);
}

static const char *
text_of(const cJSON *event, const char *key)
{
  const cJSON *value = cJSON_GetObjectItemCaseSensitive(event, key);
  return cJSON_IsString(value) ? value->valuestring : "";
}

static double
number_of(const cJSON *event, const char *key)
{
  const cJSON *value = cJSON_GetObjectItemCaseSensitive(event, key);
  return cJSON_IsNumber(value) ? value->valuedouble : -1;
}

static gboolean
has(const cJSON *event, const char *type, const char *category, const char *name)
{
  return g_str_equal(text_of(event, "ph"), type) &&
         (category == NULL || g_str_equal(text_of(event, "cat"), category)) &&
         (name == NULL || g_str_equal(text_of(event, "name"), name));
}

static int
count(const Traced *t, const char *type, const char *category, const char *name)
{
  int found = 0;
  const cJSON *event;
  cJSON_ArrayForEach(event, t->events) found += has(event, type, category, name);
  return found;
}

START_TEST(every_event_has_what_the_format_asks_for)
{
  Traced t = traced();
  const cJSON *event;
  cJSON_ArrayForEach(event, t.events)
  {
    ck_assert_int_eq(strlen(text_of(event, "ph")), 1);
    ck_assert_double_ge(number_of(event, "ts"), 0);
    ck_assert_double_ge(number_of(event, "pid"), 0);
    ck_assert_double_ge(number_of(event, "tid"), 0);
    if (has(event, "X", NULL, NULL))
      ck_assert_double_ge(number_of(event, "dur"), 0);
    ck_assert_str_ne(text_of(event, "name"), "");
  }
  ck_assert_str_eq(text_of(t.root, "displayTimeUnit"), "ms");
  traced_clear(&t);
}
END_TEST

/* Of the fixture's twelve spans five are kernels, one is a copy, six are collectives. */
START_TEST(work_on_the_device_is_on_the_tracks_of_its_streams)
{
  Traced t = traced();
  ck_assert_int_eq(count(&t, "X", "kernel", NULL), 5 + 6);
  ck_assert_int_eq(count(&t, "X", "gpu_memcpy", "copy"), 1);
  ck_assert_int_eq(count(&t, "X", "kernel", "ncclDevKernel_AllGather"), 3);
  ck_assert_int_eq(count(&t, "X", "kernel", "ncclDevKernel_ReduceScatter"), 2);
  ck_assert_int_eq(count(&t, "X", "communicator", NULL), 6);
  const cJSON *event;
  cJSON_ArrayForEach(event, t.events)
  {
    if (!has(event, "X", "kernel", "adamw"))
      continue;
    /* 2700 to 2750 us on the first stream, CUDA's default one. */
    ck_assert_double_eq(number_of(event, "ts"), 2700);
    ck_assert_double_eq(number_of(event, "dur"), 50);
    ck_assert_double_eq(number_of(event, "tid"), 7);
  }
  traced_clear(&t);
}
END_TEST

START_TEST(tracks_have_names)
{
  Traced t = traced();
  /* host, GPU, communicators; two threads of the host, five streams, two communicators */
  ck_assert_int_eq(count(&t, "M", NULL, "process_name"), 3);
  ck_assert_int_eq(count(&t, "M", NULL, "thread_name"), 2 + 5 + 2);
  traced_clear(&t);
}
END_TEST

START_TEST(counters_are_the_recordings_memory_to_the_byte)
{
  Traced t = traced();
  const cJSON *event;
  guint i = 0;
  cJSON_ArrayForEach(event, t.events)
  {
    if (!has(event, "C", NULL, "allocated"))
      continue;
    const MemoryEvent *memory = &g_array_index(t.recording->memory, MemoryEvent, i++);
    const cJSON *arguments = cJSON_GetObjectItemCaseSensitive(event, "args");
    ck_assert_double_eq(number_of(arguments, "bytes"), (double) memory->allocated_after);
    ck_assert_double_eq(number_of(event, "ts"), (double) memory->time / 1000);
  }
  ck_assert_uint_eq(i, t.recording->memory->len);
  /* Categories sum to what is allocated. */
  i = 0;
  cJSON_ArrayForEach(event, t.events)
  {
    if (!has(event, "C", NULL, "by category"))
      continue;
    double sum = 0;
    const cJSON *bytes;
    cJSON_ArrayForEach(bytes, cJSON_GetObjectItemCaseSensitive(event, "args")) sum +=
        bytes->valuedouble;
    const MemoryEvent *memory = &g_array_index(t.recording->memory, MemoryEvent, i++);
    ck_assert_double_eq(sum, (double) memory->allocated_after);
  }
  traced_clear(&t);
}
END_TEST

START_TEST(flows_lead_from_launches_to_what_they_launch)
{
  Traced t = traced();
  int launched = 0;
  for (guint i = 0; i < t.recording->spans->len; i++) {
    Span *span = &g_array_index(t.recording->spans, Span, i);
    span->issued = span->start - 300;
    launched++;
  }
  g_autoptr(GString) text = g_string_new(NULL);
  chrome_trace(t.recording, t.info, text);
  cJSON_Delete(t.root);
  t.root = cJSON_Parse(text->str);
  t.events = cJSON_GetObjectItemCaseSensitive(t.root, "traceEvents");
  ck_assert_int_eq(count(&t, "s", "ac2g", NULL), launched);
  ck_assert_int_eq(count(&t, "f", "ac2g", NULL), launched);
  ck_assert_int_eq(count(&t, "X", "cuda_runtime", "cudaMemcpyAsync"), 1);
  ck_assert_int_eq(count(&t, "X", "cuda_runtime", "cudaLaunchKernelExC"), 6);
  traced_clear(&t);
}
END_TEST

START_TEST(steps_are_profiler_steps)
{
  Traced t = traced();
  ck_assert_int_eq(count(&t, "X", "user_annotation", "ProfilerStep#1"), 1);
  const cJSON *event;
  cJSON_ArrayForEach(event, t.events)
  {
    /* The host is in the first from 1000 us until it begins the second at 1800. */
    if (has(event, "X", "user_annotation", "ProfilerStep#1")) {
      ck_assert_double_eq(number_of(event, "ts"), 1000);
      ck_assert_double_eq(number_of(event, "dur"), 800);
    }
  }
  traced_clear(&t);
}
END_TEST

Suite *
test_suite(void)
{
  Suite *suite = suite_create("Chrome trace");
  TCase *tests = tcase_create("trace");
  tcase_add_test(tests, every_event_has_what_the_format_asks_for);
  tcase_add_test(tests, work_on_the_device_is_on_the_tracks_of_its_streams);
  tcase_add_test(tests, tracks_have_names);
  tcase_add_test(tests, counters_are_the_recordings_memory_to_the_byte);
  tcase_add_test(tests, flows_lead_from_launches_to_what_they_launch);
  tcase_add_test(tests, steps_are_profiler_steps);
  suite_add_tcase(suite, tests);
  return suite;
}
