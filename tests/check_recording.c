/* check_recording.c - the Recording and its file (what is saved comes back, bad files are refused),
 * and the recorder: peaks of phases and steps, who was alive at the highest point.  Not pinned: the
 * layout of the file beyond what the refusals name. */
#include <string.h>

#include "record/recorder.h"
#include "tap_main.h"

/* ---- a Recording with every field set to something of its own ---- */

enum { FORWARD, LAYER, WHAT }; /* ids of its strings */

/* Static, so that padding is zero and rows can be compared whole. */
static const Span spans[] = {
    {.start = 5,
     .end = 105,
     .issued = 3,
     .arrived = 2,
     .alone = 90,
     .kind = SPAN_KERNEL,
     .step = 1,
     .name = WHAT,
     .module = LAYER,
     .communicator = -1,
     .flops = 1.25e13},
    {.start = 50,
     .end = 300,
     .kind = SPAN_COLLECTIVE,
     .stream = 1,
     .step = 1,
     .name = FORWARD,
     .module = -1,
     .communicator = WHAT,
     .bytes = 1 << 20,
     .flops = 0.1},
};
static const MemoryEvent memory[] = {
    {.time = 0,
     .requested_bytes = 1000,
     .block_bytes = 1024,
     .allocated_after = 1024,
     .reserved_after = 2 << 20,
     .address = (guint64) 1 << 47,
     .allocation = 0,
     .category = CATEGORY_PARAMETER,
     .step = 0,
     .module = LAYER,
     .what = WHAT},
    {.time = 9,
     .requested_bytes = 600,
     .block_bytes = 1024,
     .allocated_after = 2048,
     .reserved_after = 2 << 20,
     .address = 512,
     .allocation = 1,
     .category = CATEGORY_ACTIVATION,
     .stream = 1,
     .step = 1,
     .module = -1,
     .what = WHAT},
    {.time = 11,
     .requested_bytes = -600,
     .block_bytes = -1024,
     .allocated_after = 1024,
     .reserved_after = 2 << 20,
     .address = 512,
     .allocation = 1,
     .category = CATEGORY_ACTIVATION,
     .stream = 1,
     .step = 1,
     .module = -1,
     .what = WHAT},
};
static const SegmentEvent segments[] = {
    {.time = 1, .address = 4096, .bytes = 2 << 20, .action = 2, .stream = 1, .memory_events = 1},
};
static const CompletionEvent completions[] = {
    {.time = 12, .allocation = 1, .memory_events = 3, .segment_events = 1},
};
static const Range ranges[] = {
    {.start = 3,
     .end = 12,
     .kind = RECORDED_PHASE,
     .step = 1,
     .micro_batch = -1,
     .name = FORWARD,
     .module = -1,
     .start_allocated = 1024,
     .end_allocated = 1025,
     .peak_allocated = 2048,
     .peak_reserved = 2 << 20},
};
static const RangeEvents range_events[] = {{.first = 1, .end = 3}};
static const StepRecord steps[] = {
    {.index = 1,
     .start = 2,
     .end = 400,
     .peak_allocated = 2048,
     .peak_reserved = 2 << 20,
     .end_allocated = 1024,
     .allocator_retries = 3},
};
static const gint64 cached[] = {7, 8};
static const LiveTensor live[] = {
    {.bytes = 2048, .category = CATEGORY_OTHER, .module = LAYER, .what = -1},
};

static Recording *
full_recording(void)
{
  Recording *r = recording_new();
  g_free(r->title);
  r->title = g_strdup("tiny \"quoted\" \\ h\303\244 \n, fsdp2");
  ck_assert_int_eq(recording_string(r, "forward"), FORWARD);
  ck_assert_int_eq(recording_string(r, "layers.0"), LAYER);
  ck_assert_int_eq(recording_string(r, "w\t1"), WHAT);
  g_ptr_array_add(r->streams, g_strdup("compute"));
  g_ptr_array_add(r->streams, g_strdup("host"));
  g_array_append_vals(r->spans, spans, G_N_ELEMENTS(spans));
  g_array_append_vals(r->memory, memory, G_N_ELEMENTS(memory));
  g_array_append_vals(r->segments, segments, G_N_ELEMENTS(segments));
  g_array_append_vals(r->completions, completions, G_N_ELEMENTS(completions));
  g_array_append_vals(r->ranges, ranges, G_N_ELEMENTS(ranges));
  g_array_append_vals(r->range_events, range_events, G_N_ELEMENTS(range_events));
  g_array_append_vals(r->steps, steps, G_N_ELEMENTS(steps));
  g_array_append_vals(r->cached, cached, G_N_ELEMENTS(cached));
  g_array_append_vals(r->peak.live, live, G_N_ELEMENTS(live));
  r->peak.step = 1;
  r->peak.phase = FORWARD;
  r->peak.module = LAYER;
  r->peak.micro_batch = 4;
  r->peak.time = 9;
  r->peak.allocated = 2048;
  r->peak.reserved = 2 << 20;
  r->peak.categories[CATEGORY_OTHER] = 2000;
  r->peak.categories[CATEGORY_PARAMETER] = 48;
  r->out_of_memory = (OutOfMemoryRecord){
      TRUE, 1, FORWARD, LAYER, WHAT, 11, 12, 13, 14, 15, CATEGORY_ACTIVATION, 1};
  r->capacity_bytes = 80LL << 30;
  r->outside_allocator_bytes = 21;
  r->construction_allocated = 22;
  r->construction_reserved = 23;
  r->at_rest_bytes = 24;
  r->stuck = g_strdup("compute waits\nfor ever");
  return r;
}

/* The file's text of a Recording. */
static char *
file_text(const Recording *recording)
{
  char *folder = test_folder_new();
  g_autofree char *path = g_build_filename(folder, "recording.json", NULL);
  g_autoptr(GError) error = NULL;
  char *text = NULL;
  ck_assert_msg(recording_save(recording, path, &error), "%s", error ? error->message : "");
  ck_assert(g_file_get_contents(path, &text, NULL, NULL));
  test_folder_remove(folder);
  return text;
}

static Recording *
parse(const char *text, GError **error)
{
  return recording_parse("F", text, strlen(text), error);
}

static void
assert_same_texts(const GPtrArray *a, const GPtrArray *b)
{
  ck_assert_uint_eq(a->len, b->len);
  for (guint i = 0; i < a->len; i++)
    ck_assert_str_eq(g_ptr_array_index(a, i), g_ptr_array_index(b, i));
}

static void
assert_same_rows(GArray *a, GArray *b)
{
  ck_assert_uint_eq(a->len, b->len);
  ck_assert_mem_eq(a->data, b->data, a->len * g_array_get_element_size(a));
}

START_TEST(what_is_saved_comes_back)
{
  g_autoptr(Recording) a = full_recording();
  g_autofree char *text = file_text(a);
  g_autoptr(GError) error = NULL;
  g_autoptr(Recording) b = parse(text, &error);
  ck_assert_msg(b != NULL, "%s", error ? error->message : "");
  ck_assert_str_eq(a->title, b->title);
  ck_assert_str_eq(a->stuck, b->stuck);
  assert_same_texts(a->strings, b->strings);
  assert_same_texts(a->streams, b->streams);
  assert_same_rows(a->spans, b->spans);
  assert_same_rows(a->memory, b->memory);
  assert_same_rows(a->segments, b->segments);
  assert_same_rows(a->completions, b->completions);
  assert_same_rows(a->ranges, b->ranges);
  assert_same_rows(a->range_events, b->range_events);
  assert_same_rows(a->steps, b->steps);
  assert_same_rows(a->cached, b->cached);
  assert_same_rows(a->peak.live, b->peak.live);
  ck_assert_int_eq(a->peak.step, b->peak.step);
  ck_assert_int_eq(a->peak.phase, b->peak.phase);
  ck_assert_int_eq(a->peak.module, b->peak.module);
  ck_assert_int_eq(a->peak.micro_batch, b->peak.micro_batch);
  ck_assert_int_eq(a->peak.time, b->peak.time);
  ck_assert_int_eq(a->peak.allocated, b->peak.allocated);
  ck_assert_int_eq(a->peak.reserved, b->peak.reserved);
  ck_assert_mem_eq(a->peak.categories, b->peak.categories, sizeof a->peak.categories);
  ck_assert_mem_eq(&a->out_of_memory, &b->out_of_memory, sizeof a->out_of_memory);
  ck_assert_int_eq(a->capacity_bytes, b->capacity_bytes);
  ck_assert_int_eq(a->outside_allocator_bytes, b->outside_allocator_bytes);
  ck_assert_int_eq(a->construction_allocated, b->construction_allocated);
  ck_assert_int_eq(a->construction_reserved, b->construction_reserved);
  ck_assert_int_eq(a->at_rest_bytes, b->at_rest_bytes);
  g_autofree char *again = file_text(b);
  ck_assert_str_eq(text, again);
}
END_TEST

START_TEST(an_empty_recording_has_no_limit_no_peak_and_comes_back)
{
  g_autoptr(Recording) a = recording_new();
  g_autofree char *text = file_text(a);
  g_autoptr(GError) error = NULL;
  g_autoptr(Recording) b = parse(text, &error);
  ck_assert_msg(b != NULL, "%s", error ? error->message : "");
  ck_assert_int_eq(b->capacity_bytes, G_MAXINT64);
  ck_assert_ptr_null(b->stuck);
  ck_assert(!b->out_of_memory.happened);
  ck_assert_int_eq(b->peak.step, 0);
  ck_assert_uint_eq(b->memory->len, 0);
}
END_TEST

START_TEST(a_folder_that_is_not_there_is_an_error_of_output)
{
  g_autoptr(Recording) a = recording_new();
  g_autoptr(GError) error = NULL;
  ck_assert(!recording_save(a, "/nonexistent/folder/recording.json", &error));
  ck_assert_ptr_nonnull(error);
}
END_TEST

/* ---- refusals: one text of the good file replaced by another ---- */

static const struct {
  const char *from, *to, *message;
} bad_files[] = {
    {"highwater-recording-1", "highwater-recording-9", "key 'format'"},
    {"\"title\"", "\"titel\"", "titel"},
    {"\"strings\": [\"forward\", ", "\"strings\": [7, ",
     "key 'strings': is not an array of strings"},
    {"\"strings\": [\"forward\", ", "\"strings\": [\"layers.0\", ", "has 'layers.0' twice"},
    {"\"phase\", \"module\"", "\"phase\", \"modul\"", "key 'names.range': has an unknown name"},
    {"\"cached_bytes\": [7, 8]", "\"cached_bytes\": [7]", "key 'cached_bytes': needs one"},
    {"\"cached_bytes\": [7, 8]", "\"cached_bytes\": [7, -8]",
     "key 'cached_bytes': an element is out"},
    {"\"at_rest_bytes\": 24", "\"at_rest_bytes\": 24.5",
     "key 'at_rest_bytes': is not a whole number"},
    {"\"at_rest_bytes\": 24", "\"at_rest_bytes\": -1", "key 'at_rest_bytes': is out of range"},
    {"\"at_rest_bytes\": 24", "\"at_rest_bytes\": 1e300",
     "key 'at_rest_bytes': is not a whole number"},
    {"\"at_rest_bytes\": 24,", "", "key 'at_rest_bytes': is missing"},
    {"\"limit_bytes\": 13", "\"limit_bytes\": \"13\"", "key 'out_of_memory.limit_bytes'"},
    {"\"other\": 2000", "\"other\": 1999", "key 'peak.categories': do not add up"},
    {"\"other\": 2000", "\"others\": 2000", "others"},
    {"\"index\"", "\"indices\"", "key 'steps': needs the columns"},
    {"[1,2,400,", "[1,2,400,0,", "key 'steps': row 1 has not one value a column"},
    {"[1,2,400,", "[1,2,", "key 'steps': row 1 has not one value a column"},
    {"[1,2,400,", "[2,2,400,", "key 'steps': row 1 is not in order"},
    {"[1,2,400,", "[1,2,1,", "key 'steps': row 1 is not in order"},
    {"[3,12,0,", "[3,12,3,", "key 'ranges': row 1: kind is out of range"},
    {"[3,12,0,", "[3,2,0,", "key 'ranges': row 1 is not in order"},
    {"[3,12,0,1,-1,", "[3,12,0,1,3000000000,", "key 'ranges': row 1: micro_batch is out of range"},
    {"[1,3]", "[1,4]", "key 'range_events': row 1 is not in order, or beyond the memory events"},
    {"[1,3]", "[3,2]", "key 'range_events': row 1 is not in order, or beyond the memory events"},
    {"[1,3]", "[1,2],[2,3]", "key 'range_events': has not one row a range"},
    {"[1,2,4096,", "[1,4,4096,", "key 'segments': row 1: action is out of range"},
    {"[0,0,1000,", "[0,1,1000,", "key 'memory': row 1 is not the next allocation"},
    {"[0,0,1000,", "[0,0,0,", "key 'memory': row 1 frees what was not allocated"},
    {"[0,0,1000,", "[10,0,1000,", "key 'memory': row 2 is earlier than the one before"},
    {"[11,1,-600,", "[11,1,-601,", "key 'memory': row 3 does not match its allocation"},
    {"[11,1,-600,", "[11,0,-600,", "key 'memory': row 3 does not match its allocation"},
    {"[11,1,-600,", "[11,2,-600,", "key 'memory': row 3 frees what was not allocated"},
    {"[11,1,-600,", "[11,1,-600.5,", "key 'memory': row 3: requested_bytes is not a whole number"},
    {"[5,105,3,2,90,0,0,1,2,1,-1,", "[5,105,3,2,90,0,2,1,2,1,-1,",
     "key 'spans': row 1: stream is out of range"},
    {"[5,105,3,2,90,0,0,1,2,1,-1,", "[5,105,3,2,90,0,0,1,3,1,-1,",
     "key 'spans': row 1: name is out of range"},
    {"[5,105,3,2,90,0,0,1,2,1,-1,", "[5,105,3,2,90,0,0,1,2,1,-2,",
     "row 1: communicator is out of range"},
    {"[5,105,3,2,90,0,0,", "[5,500,3,2,90,0,0,", "key 'spans': row 2 is not in order of the ends"},
    {"[5,105,3,2,90,0,0,", "[106,105,3,2,90,0,0,",
     "key 'spans': row 1 is not in order of the ends"},
    {"12500000000000", "-1", "key 'spans': row 1: flops is not a number >= 0"},
};

START_TEST(a_wrong_value_is_refused_by_name)
{
  g_autoptr(Recording) good = full_recording();
  g_autofree char *text = file_text(good);
  g_auto(GStrv) parts = g_strsplit(text, bad_files[_i].from, 2);
  ck_assert_msg(parts[1] != NULL, "the file has no %s", bad_files[_i].from);
  g_autofree char *bad = g_strconcat(parts[0], bad_files[_i].to, parts[1], NULL);
  g_autoptr(GError) error = NULL;
  g_autoptr(Recording) read = parse(bad, &error);
  ck_assert_ptr_null(read);
  ck_assert(test_error_says(error, bad_files[_i].message));
}
END_TEST

START_TEST(a_file_cut_short_is_refused_wherever_it_ends)
{
  g_autoptr(Recording) good = full_recording();
  g_autofree char *text = file_text(good);
  gsize whole = strlen(g_strchomp(text));
  for (gsize length = 0; length < whole; length++) {
    g_autoptr(GError) error = NULL;
    g_autoptr(Recording) read = recording_parse("F", text, length, &error);
    ck_assert_ptr_null(read);
    ck_assert_ptr_nonnull(error);
  }
}
END_TEST

START_TEST(enumerations_are_read_by_name_not_by_number)
{
  /* A file written when categories had another order: activation first. */
  g_autoptr(Recording) good = full_recording();
  g_autofree char *text = file_text(good);
  g_auto(GStrv) parts = g_strsplit(text, "\"category\": [\"parameter\", ", 2);
  ck_assert_ptr_nonnull(parts[1]);
  g_autofree char *moved =
      g_strconcat(parts[0], "\"category\": [\"activation\", \"parameter\", ", parts[1], NULL);
  g_autoptr(GError) error = NULL;
  g_autoptr(Recording) read = parse(moved, &error);
  ck_assert_msg(read != NULL, "%s", error ? error->message : "");
  ck_assert_int_eq(g_array_index(read->memory, MemoryEvent, 0).category, CATEGORY_ACTIVATION);
}
END_TEST

/* ---- strings, steps ---- */

START_TEST(equal_strings_share_an_id)
{
  g_autoptr(Recording) r = recording_new();
  gint32 a = recording_string(r, "a"), b = recording_string(r, "b");
  ck_assert_int_ne(a, b);
  ck_assert_int_eq(recording_string(r, "a"), a);
  ck_assert_str_eq(recording_text(r, b), "b");
  ck_assert_ptr_null(recording_text(r, -1));
}
END_TEST

START_TEST(a_step_lasts_from_the_end_of_the_one_before)
{
  /* The host begins step 2 at 70, while the device still works on step 1 until 100. */
  g_autoptr(Recording) r = recording_new();
  StepRecord two[] = {{.index = 1, .start = 10, .end = 100}, {.index = 2, .start = 70, .end = 180}};
  g_array_append_vals(r->steps, two, 2);
  ck_assert_int_eq(recording_step_duration(r, 0), 90);
  ck_assert_int_eq(recording_step_duration(r, 1), 80);
}
END_TEST

/* ---- the recorder, fed by hand ---- */

typedef struct {
  Recording *recording;
  Recorder *recorder;
  MemoryLevel level;
  SimTime time;
} Feed;

static MemoryLevel
feed_level(gpointer user)
{
  Feed *feed = user;
  MemoryLevel level = feed->level;
  feed->level.peak_allocated = feed->level.allocated;
  feed->level.peak_reserved = feed->level.reserved;
  return level;
}

static Feed *
feed_new(void)
{
  Feed *feed = g_new0(Feed, 1);
  feed->recording = recording_new();
  feed->recorder = recorder_new(feed->recording, feed_level, feed);
  return feed;
}

static void
feed_free(Feed *feed)
{
  recorder_free(feed->recorder);
  recording_free(feed->recording);
  g_free(feed);
}

/* One unit of time passes with every call.  A block is twice what is asked for, and reserved a
 * thousand more. */
static gint32
feed_alloc(Feed *feed, gint64 bytes, Category category, const char *what)
{
  feed->level.allocated += 2 * bytes;
  feed->level.peak_allocated = MAX(feed->level.peak_allocated, feed->level.allocated);
  feed->level.reserved = MAX(feed->level.reserved, feed->level.allocated + 1000);
  feed->level.peak_reserved = MAX(feed->level.peak_reserved, feed->level.reserved);
  MemoryEvent event = {.time = ++feed->time,
                       .requested_bytes = bytes,
                       .block_bytes = 2 * bytes,
                       .allocated_after = feed->level.allocated,
                       .reserved_after = feed->level.reserved,
                       .category = category,
                       .module = recording_string(feed->recording, "asked"),
                       .what = recording_string(feed->recording, what)};
  return recorder_allocate(feed->recorder, &event);
}

static void
feed_release(Feed *feed, gint32 allocation, gint64 bytes)
{
  feed->level.allocated -= 2 * bytes;
  recorder_release(feed->recorder, allocation, ++feed->time, feed->level.allocated,
                   feed->level.reserved);
}

static void
feed_push(Feed *feed, RecordedRange kind, const char *name)
{
  Range range = {.kind = kind,
                 .micro_batch = 2,
                 .name = recording_string(feed->recording, name),
                 .module = -1};
  recorder_push(feed->recorder, ++feed->time, &range);
}

static void
feed_pop(Feed *feed)
{
  recorder_pop(feed->recorder, ++feed->time);
}

START_TEST(a_phase_has_its_own_peak_with_what_was_there_at_its_start)
{
  Feed *feed = feed_new();
  gint32 w = feed_alloc(feed, 50, CATEGORY_PARAMETER, "w"); /* 100 in blocks */
  recorder_end_construction(feed->recorder);
  recorder_begin_step(feed->recorder, feed->time);
  feed_push(feed, RECORDED_PHASE, "forward");
  gint32 a = feed_alloc(feed, 200, CATEGORY_ACTIVATION, "a"); /* 500 */
  gint32 b = feed_alloc(feed, 100, CATEGORY_ACTIVATION, "b"); /* 700: the peak of the phase */
  feed_release(feed, b, 100);
  feed_pop(feed); /* 500 at the end */
  feed_release(feed, a, 200);
  feed_push(feed, RECORDED_PHASE, "backward");              /* 100 */
  gint32 c = feed_alloc(feed, 20, CATEGORY_TEMPORARY, "c"); /* 140 */
  feed_release(feed, c, 20);
  feed_pop(feed);
  gint32 d = feed_alloc(feed, 400, CATEGORY_TEMPORARY, "d"); /* 900, in no phase */
  feed_release(feed, d, 400);
  feed_push(feed, RECORDED_PHASE, "optimizer");
  feed_pop(feed);
  recorder_end_step(feed->recorder, feed->time);
  recorder_finish(feed->recorder);

  const Range *phases = (const Range *) (gconstpointer) feed->recording->ranges->data;
  ck_assert_uint_eq(feed->recording->ranges->len, 3);
  ck_assert_int_eq(phases[0].start_allocated, 100);
  ck_assert_int_eq(phases[0].peak_allocated, 700);
  ck_assert_int_eq(phases[0].end_allocated, 500);
  ck_assert_int_eq(phases[0].peak_reserved, 1700);
  ck_assert_int_eq(phases[1].start_allocated, 100);
  ck_assert_int_eq(phases[1].peak_allocated, 140);
  ck_assert_int_eq(phases[1].peak_reserved, 1700); /* what is cached stays reserved */
  ck_assert_int_eq(phases[2].peak_allocated, 100);
  ck_assert_int_eq(phases[2].peak_reserved, 1900);
  /* Events that came while they were open: from the second to the fourth, the sixth and seventh,
   * none. */
  const RangeEvents *events =
      (const RangeEvents *) (gconstpointer) feed->recording->range_events->data;
  ck_assert_uint_eq(feed->recording->range_events->len, 3);
  ck_assert_int_eq(events[0].first, 1);
  ck_assert_int_eq(events[0].end, 4);
  ck_assert_int_eq(events[1].first, 5);
  ck_assert_int_eq(events[1].end, 7);
  ck_assert_int_eq(events[2].first, 9);
  ck_assert_int_eq(events[2].end, 9);
  const StepRecord *step = &g_array_index(feed->recording->steps, StepRecord, 0);
  ck_assert_int_eq(step->peak_allocated, 900);
  ck_assert_int_eq(step->peak_reserved, 1900);
  ck_assert_int_eq(step->end_allocated, 100);
  ck_assert_int_eq(w, 0);
  feed_free(feed);
}
END_TEST

START_TEST(a_phase_inside_a_phase_hides_no_peak_from_it)
{
  Feed *feed = feed_new();
  recorder_begin_step(feed->recorder, 0);
  feed_push(feed, RECORDED_PHASE, "outer");
  feed_release(feed, feed_alloc(feed, 5, CATEGORY_OTHER, "x"), 5); /* 10 */
  feed_push(feed, RECORDED_PHASE, "inner");
  feed_release(feed, feed_alloc(feed, 50, CATEGORY_OTHER, "y"), 50); /* 100 */
  feed_pop(feed);
  feed_pop(feed);
  recorder_end_step(feed->recorder, feed->time);
  ck_assert_int_eq(g_array_index(feed->recording->ranges, Range, 0).peak_allocated, 100);
  ck_assert_int_eq(g_array_index(feed->recording->ranges, Range, 1).peak_allocated, 100);
  feed_free(feed);
}
END_TEST

START_TEST(the_peak_names_the_living_by_size_and_where_the_host_was)
{
  Feed *feed = feed_new();
  gint32 w = feed_alloc(feed, 30, CATEGORY_PARAMETER, "w"); /* 60 */
  recorder_end_construction(feed->recorder);
  recorder_begin_step(feed->recorder, feed->time);
  feed_push(feed, RECORDED_PHASE, "forward");
  feed_push(feed, RECORDED_MODULE, "layers.7");
  feed_push(feed, RECORDED_HOOK, "unshard");
  gint32 dead = feed_alloc(feed, 10, CATEGORY_TEMPORARY, "dead");
  feed_release(feed, dead, 10);
  feed_alloc(feed, 100, CATEGORY_ACTIVATION, "big");               /* 260 */
  gint32 late = feed_alloc(feed, 30, CATEGORY_ACTIVATION, "late"); /* 320: here */
  SimTime when = feed->time;
  feed_pop(feed);
  feed_pop(feed);
  feed_release(feed, late, 30);
  feed_alloc(feed, 30, CATEGORY_TEMPORARY, "equal"); /* 320 again: the first one counts */
  feed_pop(feed);
  recorder_end_step(feed->recorder, feed->time);
  recorder_finish(feed->recorder);

  const PeakRecord *peak = &feed->recording->peak;
  ck_assert_int_eq(peak->step, 1);
  ck_assert_str_eq(recording_text(feed->recording, peak->phase), "forward");
  ck_assert_str_eq(recording_text(feed->recording, peak->module), "layers.7");
  ck_assert_int_eq(peak->micro_batch, 2);
  ck_assert_int_eq(peak->time, when);
  ck_assert_int_eq(peak->allocated, 320);
  ck_assert_int_eq(peak->reserved, 1320);
  ck_assert_int_eq(peak->categories[CATEGORY_PARAMETER], 60);
  ck_assert_int_eq(peak->categories[CATEGORY_ACTIVATION], 260);
  ck_assert_int_eq(peak->categories[CATEGORY_TEMPORARY], 0);
  static const char *const order[] = {"big", "w", "late"};
  ck_assert_uint_eq(peak->live->len, G_N_ELEMENTS(order));
  for (guint i = 0; i < G_N_ELEMENTS(order); i++)
    ck_assert_str_eq(recording_text(feed->recording, g_array_index(peak->live, LiveTensor, i).what),
                     order[i]);
  ck_assert_int_eq(w, 0);
  feed_free(feed);
}
END_TEST

START_TEST(construction_is_no_step_and_has_no_peak)
{
  Feed *feed = feed_new();
  gint32 scratch = feed_alloc(feed, 5000, CATEGORY_TEMPORARY, "scratch");
  feed_release(feed, scratch, 5000);
  feed_alloc(feed, 10, CATEGORY_PARAMETER, "w");
  recorder_end_construction(feed->recorder);
  recorder_begin_step(feed->recorder, feed->time);
  recorder_end_step(feed->recorder, feed->time);
  recorder_finish(feed->recorder);
  ck_assert_int_eq(feed->recording->construction_allocated, 20);
  ck_assert_int_eq(feed->recording->construction_reserved, 11000);
  /* A step that allocates nothing is as high as it began. */
  ck_assert_int_eq(feed->recording->peak.allocated, 20);
  ck_assert_int_eq(feed->recording->peak.step, 1);
  ck_assert_int_eq(feed->recording->peak.module, -1);
  ck_assert_uint_eq(feed->recording->peak.live->len, 1);
  feed_free(feed);
}
END_TEST

START_TEST(gradients_are_not_at_rest)
{
  Feed *feed = feed_new();
  feed_alloc(feed, 10, CATEGORY_PARAMETER, "w");
  recorder_end_construction(feed->recorder);
  ck_assert_int_eq(feed->recording->at_rest_bytes, 20);
  recorder_begin_step(feed->recorder, feed->time);
  feed_alloc(feed, 20, CATEGORY_OPTIMIZER_STATE, "m");
  feed_alloc(feed, 300, CATEGORY_SHARDED_GRADIENT, "g");
  feed_alloc(feed, 4000, CATEGORY_UNSHARDED_GRADIENT, "u");
  gint32 freed = feed_alloc(feed, 50000, CATEGORY_SHARDED_GRADIENT, "h");
  feed_release(feed, freed, 50000);
  recorder_end_step(feed->recorder, feed->time);
  ck_assert_int_eq(feed->recording->at_rest_bytes, 60);
  feed_free(feed);
}
END_TEST

START_TEST(retries_belong_to_their_step)
{
  Feed *feed = feed_new();
  feed->level.retries = 5; /* of the construction */
  recorder_begin_step(feed->recorder, 0);
  feed->level.retries = 7;
  recorder_end_step(feed->recorder, 1);
  recorder_begin_step(feed->recorder, 1);
  feed->level.retries = 8;
  recorder_end_step(feed->recorder, 2);
  ck_assert_int_eq(g_array_index(feed->recording->steps, StepRecord, 0).allocator_retries, 2);
  ck_assert_int_eq(g_array_index(feed->recording->steps, StepRecord, 1).allocator_retries, 1);
  feed_free(feed);
}
END_TEST

START_TEST(a_run_that_ends_early_closes_its_ranges_and_says_where)
{
  Feed *feed = feed_new();
  recorder_begin_step(feed->recorder, 0);
  feed_push(feed, RECORDED_PHASE, "backward");
  feed_push(feed, RECORDED_MODULE, "layers.1");
  OutOfMemoryRecord record = {.module = recording_string(feed->recording, "asked"),
                              .what = recording_string(feed->recording, "grad"),
                              .requested_bytes = 9};
  recorder_out_of_memory(feed->recorder, &record);
  recorder_end_step(feed->recorder, 77);
  const OutOfMemoryRecord *out = &feed->recording->out_of_memory;
  ck_assert(out->happened);
  ck_assert_int_eq(out->step, 1);
  ck_assert_str_eq(recording_text(feed->recording, out->phase), "backward");
  ck_assert_str_eq(recording_text(feed->recording, out->module), "layers.1");
  ck_assert_str_eq(recording_text(feed->recording, out->what), "grad");
  ck_assert_int_eq(out->requested_bytes, 9);
  for (guint i = 0; i < 2; i++)
    ck_assert_int_eq(g_array_index(feed->recording->ranges, Range, i).end, 77);
  feed_free(feed);
}
END_TEST

START_TEST(the_live_set_at_any_event_follows_from_the_events)
{
  Feed *feed = feed_new();
  gint32 a = feed_alloc(feed, 1, CATEGORY_OTHER, "a");
  feed_alloc(feed, 2, CATEGORY_OTHER, "b");
  feed_release(feed, a, 1);
  feed_alloc(feed, 2, CATEGORY_OTHER, "c");
  static const char *const expected[] = {"", "a", "ba", "b", "bc"};
  for (guint n = 0; n < G_N_ELEMENTS(expected); n++) {
    g_autoptr(GArray) alive = recording_live(feed->recording, n);
    g_autoptr(GString) names = g_string_new(NULL);
    for (guint i = 0; i < alive->len; i++)
      g_string_append(names,
                      recording_text(feed->recording, g_array_index(alive, LiveTensor, i).what));
    ck_assert_str_eq(names->str, expected[n]);
  }
  feed_free(feed);
}
END_TEST

Suite *
test_suite(void)
{
  Suite *suite = suite_create("recording");
  TCase *file = tcase_create("file");
  tcase_add_test(file, what_is_saved_comes_back);
  tcase_add_test(file, an_empty_recording_has_no_limit_no_peak_and_comes_back);
  tcase_add_test(file, a_folder_that_is_not_there_is_an_error_of_output);
  tcase_add_loop_test(file, a_wrong_value_is_refused_by_name, 0, G_N_ELEMENTS(bad_files));
  tcase_add_test(file, a_file_cut_short_is_refused_wherever_it_ends);
  tcase_add_test(file, enumerations_are_read_by_name_not_by_number);
  suite_add_tcase(suite, file);
  TCase *recorder = tcase_create("recorder");
  tcase_add_test(recorder, equal_strings_share_an_id);
  tcase_add_test(recorder, a_step_lasts_from_the_end_of_the_one_before);
  tcase_add_test(recorder, a_phase_has_its_own_peak_with_what_was_there_at_its_start);
  tcase_add_test(recorder, a_phase_inside_a_phase_hides_no_peak_from_it);
  tcase_add_test(recorder, the_peak_names_the_living_by_size_and_where_the_host_was);
  tcase_add_test(recorder, construction_is_no_step_and_has_no_peak);
  tcase_add_test(recorder, gradients_are_not_at_rest);
  tcase_add_test(recorder, retries_belong_to_their_step);
  tcase_add_test(recorder, a_run_that_ends_early_closes_its_ranges_and_says_where);
  tcase_add_test(recorder, the_live_set_at_any_event_follows_from_the_events);
  suite_add_tcase(suite, recorder);
  return suite;
}
