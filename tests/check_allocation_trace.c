/* check_allocation_trace.c - traces: what is read, what is refused, and that recordings of the real
 * allocator replay to its peaks, segments and addresses.  The recordings are those in traces/ and,
 * when present, those of the reference data.  Not pinned: the order of segments a collection frees
 * when frees of other streams were under way, which a trace does not tell. */
#include "base/units.h"
#include "import/trace_replay.h"
#include "tap_main.h"
#include <string.h>

/* ---- Recordings */

static GPtrArray *recordings; /* paths */

static void
add_recordings(const char *folder)
{
  g_autoptr(GDir) dir = g_dir_open(folder, 0, NULL);
  const char *name;
  while (dir && (name = g_dir_read_name(dir))) {
    if (g_str_has_suffix(name, ".trace.json.gz"))
      g_ptr_array_add(recordings, g_build_filename(folder, name, NULL));
  }
}

static gint
compare_paths(gconstpointer a, gconstpointer b)
{
  return g_strcmp0(*(char *const *) a, *(char *const *) b);
}

static TraceReplay *
replay_trace(const AllocationTrace *trace, gboolean follow_addresses)
{
  const ReplayOptions options = {.follow_addresses = follow_addresses};
  g_autoptr(GError) error = NULL;
  TraceReplay *replay = trace_replay_run(trace, &options, &error);
  if (!replay)
    test_note("%s", error->message);
  ck_assert(replay != NULL);
  return replay;
}

static AllocationTrace *
load(const char *path)
{
  g_autoptr(GError) error = NULL;
  AllocationTrace *trace = allocation_trace_load(path, &error);
  if (!trace)
    test_note("%s", error->message);
  ck_assert(trace != NULL);
  return trace;
}

/* What the trace itself says: the highest sum of its segments, and how often they changed. */
static gint64
reserved_peak_of(const AllocationTrace *trace, guint *n_changes)
{
  gint64 reserved = 0;
  for (guint i = 0; i < trace->blocks->len; i++)
    reserved += g_array_index(trace->blocks, TraceBlock, i).bytes;
  gint64 peak = reserved;
  *n_changes = 0;
  for (guint i = 0; i < trace->events->len; i++) {
    const TraceEvent *event = trace_event(trace, i);
    gboolean comes = event->action == TRACE_SEGMENT_ALLOC || event->action == TRACE_SEGMENT_MAP;
    gboolean goes = event->action == TRACE_SEGMENT_FREE || event->action == TRACE_SEGMENT_UNMAP;
    reserved += comes ? event->bytes : goes ? -event->bytes : 0;
    *n_changes += comes || goes;
    peak = MAX(peak, reserved);
  }
  return peak;
}

START_TEST(a_recording_replays_to_its_peaks_segments_and_addresses)
{
  const char *path = g_ptr_array_index(recordings, (guint) _i);
  test_note("%s", path);
  g_autoptr(AllocationTrace) trace = load(path);
  g_autoptr(TraceReplay) replay = replay_trace(trace, TRUE);
  guint n_changes;
  ck_assert_int_eq(replay->complete_peak_allocated, trace->recorded_peak_allocated);
  ck_assert_int_eq(replay->complete_peak_reserved, trace->recorded_peak_reserved);
  ck_assert_int_eq(replay->stats.reserved_bytes.peak, reserved_peak_of(trace, &n_changes));
  if (replay->first_divergence >= 0)
    test_note("event %d: the trace did %s, the replay %s", replay->first_divergence,
              replay->trace_did, replay->replay_did);
  ck_assert_int_eq(replay->first_divergence, -1);
  ck_assert_uint_eq(replay->segment_events_compared, n_changes);
  ck_assert_int_eq(replay->first_misplaced, -1);
  /* Only the random ones, which have no phases, empty the cache. */
  ck_assert(replay->empty_caches == 0 || trace->phases->len == 0);
}
END_TEST

/* First fit is what the device of the recordings does for cudaMalloc; where reservations lie is up
 * to its host. */
START_TEST(first_fit_alone_finds_the_same_addresses)
{
  g_autoptr(AllocationTrace) trace = load(g_ptr_array_index(recordings, (guint) _i));
  g_autoptr(TraceReplay) replay = replay_trace(trace, FALSE);
  g_autoptr(TraceReplay) followed = replay_trace(trace, TRUE);
  ck_assert_int_eq(replay->stats.allocated_bytes.peak, followed->stats.allocated_bytes.peak);
  ck_assert_int_eq(replay->stats.reserved_bytes.peak, followed->stats.reserved_bytes.peak);
  if (!trace->config.expandable_segments) {
    ck_assert_int_eq(replay->first_divergence, -1);
    ck_assert_int_eq(replay->first_misplaced, -1);
  }
}
END_TEST

START_TEST(there_are_recordings_of_our_own)
{
  g_autofree char *folder = test_source_path("traces");
  guint count = 0;
  for (guint i = 0; i < recordings->len; i++)
    count += g_str_has_prefix(g_ptr_array_index(recordings, i), folder);
  ck_assert_uint_ge(count, 8);
}
END_TEST

START_TEST(the_reference_traces_are_replayed_too)
{
  g_autofree char *folder = test_reference_path("reference/pytorch");
  if (!folder) {
    test_note("SKIP: the reference data is not here; its traces are not replayed");
    return;
  }
  guint count = 0;
  for (guint i = 0; i < recordings->len; i++)
    count += g_str_has_prefix(g_ptr_array_index(recordings, i), folder);
  ck_assert_uint_ge(count, 16);
}
END_TEST

/* ---- Small traces by hand */

static AllocationTrace *
read_text(const char *text, GError **error)
{
  g_autoptr(ByteSource) source = byte_source_from_memory("input", text, strlen(text));
  return allocation_trace_read(source, error);
}

static AllocationTrace *
good_text(const char *text)
{
  g_autoptr(GError) error = NULL;
  AllocationTrace *trace = read_text(text, &error);
  if (!trace)
    test_note("%s", error->message);
  ck_assert(trace != NULL);
  return trace;
}

#define COLUMNS "\"columns\": [\"action\", \"size\", \"addr\", \"stream\"]"
#define MIB20 "20971520"

START_TEST(a_free_that_waits_keeps_its_block_until_the_trace_completes_it)
{
  /* The block at 0 is freed while stream 7 uses it: the second allocation of 1 MiB finds the other
   * half of the segment, the third a new one, the fourth the first half again. */
  g_autoptr(AllocationTrace) trace =
      good_text("{" COLUMNS ", \"events\": ["
                "[\"segment_alloc\", 2097152, 0, 0], [\"alloc\", 1048576, 0, 0],"
                "[\"free_requested\", 1048576, 0, 0], [\"alloc\", 1048576, 1048576, 0],"
                "[\"segment_alloc\", 2097152, 2097152, 0], [\"alloc\", 1048576, 2097152, 0],"
                "[\"free_completed\", 1048576, 0, 0], [\"alloc\", 1048576, 0, 0]]}");
  g_autoptr(TraceReplay) replay = replay_trace(trace, TRUE);
  ck_assert_int_eq(trace->n_lanes, 1);
  ck_assert_int_eq(replay->first_divergence, -1);
  ck_assert_int_eq(replay->first_misplaced, -1);
  ck_assert_int_eq(replay->stats.allocated_bytes.peak, 3 * MIB);
  ck_assert_int_eq(replay->stats.active_bytes.peak, 3 * MIB);
}
END_TEST

START_TEST(frees_under_way_at_the_start_are_active_but_not_allocated)
{
  g_autoptr(AllocationTrace) trace = good_text(
      "{\"base_address\": 1073741824, \"segments_before\": [{\"address\": 0, \"total_size\": " MIB20
      ", \"stream\": 5, \"segment_type\": \"large\", \"blocks\": ["
      "[8388608, 8388600, \"active_pending_free\"], [4194304, 4194304, \"active_allocated\"],"
      "[8388608, 0, \"inactive\"]]}], " COLUMNS ", \"events\": ["
      "[\"alloc\", 8388608, 12582912, 5], [\"free_completed\", 8388600, 0, 5],"
      "[\"alloc\", 8388608, 0, 5]]}");
  g_autoptr(TraceReplay) replay = replay_trace(trace, TRUE);
  ck_assert_int_eq(replay->first_misplaced, -1);
  ck_assert_int_eq(replay->stats.allocated_bytes.peak, 20 * MIB);
  ck_assert_int_eq(replay->stats.reserved_bytes.peak, 20 * MIB);
  ck_assert_int_eq(g_array_index(replay->streams, ReplayStream, 0).stream, 5);
}
END_TEST

START_TEST(two_queues_explain_frees_that_complete_out_of_order)
{
  /* Requested 0, 2, 4 (in MiB); completed 2, 0, 4: 2 cannot stand behind 0, 4 may stand behind
   * either. */
  g_autoptr(AllocationTrace) trace =
      good_text("{" COLUMNS ", \"events\": [[\"segment_alloc\", " MIB20 ", 0, 0],"
                "[\"alloc\", 2097152, 0, 0], [\"alloc\", 2097152, 2097152, 0],"
                "[\"alloc\", 2097152, 4194304, 0], [\"free_requested\", 2097152, 0, 0],"
                "[\"free_requested\", 2097152, 2097152, 0],"
                "[\"free_requested\", 2097152, 4194304, 0],"
                "[\"free_completed\", 2097152, 2097152, 0], [\"free_completed\", 2097152, 0, 0],"
                "[\"free_completed\", 2097152, 4194304, 0], [\"alloc\", 2097152, 0, 0]]}");
  g_autoptr(TraceReplay) replay = replay_trace(trace, TRUE);
  ck_assert_int_eq(trace->n_lanes, 2);
  ck_assert_int_eq(replay->first_misplaced, -1);
  ck_assert_int_eq(replay->end.active, 2 * MIB);
}
END_TEST

START_TEST(the_first_divergence_says_what_each_did)
{
  /* For 3 MiB the allocator takes 20, not 22. */
  g_autoptr(AllocationTrace) trace =
      good_text("{" COLUMNS ", \"events\": [[\"segment_alloc\", 2097152, 0, 3],"
                "[\"alloc\", 512, 0, 3], [\"segment_alloc\", 23068672, 2097152, 3],"
                "[\"alloc\", 3145728, 2097152, 3]]}");
  g_autoptr(TraceReplay) replay = replay_trace(trace, TRUE);
  ck_assert_int_eq(replay->first_divergence, 2);
  ck_assert_uint_eq(replay->segment_events_compared, 1);
  ck_assert_str_eq(replay->trace_did, "segment_alloc of 23068672 bytes at 2097152 on stream 3");
  ck_assert_str_eq(replay->replay_did, "segment_alloc of 20971520 bytes at 2097152 on stream 3");
}
END_TEST

START_TEST(what_only_the_trace_did_is_a_divergence)
{
  g_autoptr(AllocationTrace) trace = good_text(
      "{" COLUMNS ", \"events\": [[\"segment_alloc\", 2097152, 0, 0], [\"alloc\", 512, 0, 0],"
      "[\"segment_alloc\", 2097152, 2097152, 0], [\"alloc\", 512, 2097152, 0]]}");
  g_autoptr(TraceReplay) replay = replay_trace(trace, TRUE);
  ck_assert_int_eq(replay->first_divergence, 2);
  ck_assert_str_eq(replay->replay_did, "nothing");
  ck_assert_int_eq(replay->first_misplaced, 3);
  ck_assert_uint_eq(replay->replay_address, 512);
}
END_TEST

START_TEST(releases_that_nobody_needed_are_an_empty_cache)
{
  g_autoptr(AllocationTrace) trace = good_text(
      "{" COLUMNS ", \"events\": [[\"segment_alloc\", 2097152, 0, 0], [\"alloc\", 512, 0, 0],"
      "[\"free_requested\", 512, 0, 0], [\"free_completed\", 512, 0, 0],"
      "[\"segment_free\", 2097152, 0, 0], [\"segment_alloc\", 2097152, 0, 0],"
      "[\"alloc\", 512, 0, 0]]}");
  g_autoptr(TraceReplay) replay = replay_trace(trace, TRUE);
  ck_assert_uint_eq(replay->empty_caches, 1);
  ck_assert_int_eq(replay->first_divergence, -1);
  ck_assert_int_eq(replay->stats.num_device_free, 1);
}
END_TEST

START_TEST(the_recorded_device_and_options_are_used)
{
  g_autoptr(AllocationTrace) trace = good_text(
      "{\"config\": {\"cap_mib\": 30, \"total_mib\": 1000, \"name\": [1, {}], \"alloc_conf\": "
      "\"max_split_size_mb:20,per_process_memory_fraction:0.5\"}, " COLUMNS ", \"events\": ["
      "[\"segment_alloc\", " MIB20 ", 0, 0], [\"alloc\", " MIB20 ", 0, 0],"
      "[\"oom\", 12582912, -5, 0]], \"summary\": {\"peak_allocated\": 7, \"peak_reserved\": 9},"
      "\"peak_reserved_traced\": null, \"peak_allocated_traced\": 8}");
  ck_assert_int_eq(trace->config.memory_limit, 30 * MIB);
  ck_assert_int_eq(trace->config.device_total_bytes, 30 * MIB);
  /* The options were read when the device was whole. */
  ck_assert_int_eq(trace->config.process_limit, 500 * MIB);
  ck_assert_int_eq(trace->config.max_split_size, 20 * MIB);
  ck_assert_int_eq(trace->recorded_peak_allocated, 8);
  ck_assert_int_eq(trace->recorded_peak_reserved, 9);
  g_autoptr(TraceReplay) replay = replay_trace(trace, TRUE);
  ck_assert_int_eq(replay->out_of_memory_at, 2);
  ck_assert_int_eq(replay->failure.segment_bytes, 12 * MIB);
  ck_assert_int_eq(replay->failure.allocated_bytes, 20 * MIB);
  ck_assert_int_eq(replay->first_divergence, -1);
  /* On a larger device it would have gone on. */
  trace->config.memory_limit = 40 * MIB;
  g_autoptr(TraceReplay) larger = replay_trace(trace, TRUE);
  ck_assert_int_eq(larger->out_of_memory_at, -1);
  ck_assert_int_eq(larger->first_divergence, 2);
  ck_assert_str_eq(larger->trace_did, "out of memory");
  ck_assert_int_eq(larger->stats.allocated_bytes.peak, 32 * MIB);
}
END_TEST

/* A step of phases f and o that holds 12 MiB; then 14 MiB more and a failure: in the next step (the
 * name it began with comes up again), or in the first one itself, which is then all there is. */
static const struct {
  const char *last;
  gint64 complete, all;
} failures[] = {
    {"", 12 * MIB, 12 * MIB},
    {", [\"segment_alloc\", 14680064, 12582912, 0, \"f\"],"
     "[\"alloc\", 14680064, 12582912, 0, \"\"], [\"oom\", 41943040, 0, 0, \"\"]",
     12 * MIB, 26 * MIB},
    {", [\"segment_alloc\", 14680064, 12582912, 0, \"o\"],"
     "[\"alloc\", 14680064, 12582912, 0, \"o\"], [\"oom\", 41943040, 0, 0, \"o\"]",
     26 * MIB, 26 * MIB},
};

START_TEST(peaks_are_those_of_complete_steps)
{
  g_autofree char *text = g_strconcat(
      "{\"config\": {\"cap_mib\": 40}, \"columns\": [\"action\", \"size\", \"addr\", \"stream\", "
      "\"phase\"],"
      "\"events\": [[\"segment_alloc\", 12582912, 0, 0, \"\"], [\"alloc\", 12582912, 0, 0, \"f\"],"
      "[\"free_requested\", 12582912, 0, 0, \"o\"], [\"free_completed\", 12582912, 0, 0, \"o\"],"
      "[\"alloc\", 12582912, 0, 0, \"o\"]",
      failures[_i].last, "]}", NULL);
  g_autoptr(AllocationTrace) trace = good_text(text);
  g_autoptr(TraceReplay) replay = replay_trace(trace, TRUE);
  ck_assert_int_eq(replay->first_divergence, -1);
  ck_assert_int_eq(replay->complete_peak_allocated, failures[_i].complete);
  ck_assert_int_eq(replay->complete_peak_reserved, failures[_i].complete);
  ck_assert_int_eq(replay->stats.allocated_bytes.peak, failures[_i].all);
}
END_TEST

START_TEST(a_list_of_lines_is_a_trace)
{
  g_autoptr(AllocationTrace) trace = good_text("# a comment\n"
                                               "alloc a 3MiB\r\n"
                                               "\n"
                                               "  alloc\tb 600 7 # on stream 7\n"
                                               "free a\n"
                                               "empty_cache\n"
                                               "alloc a 10MiB");
  g_autoptr(TraceReplay) replay = replay_trace(trace, TRUE);
  ck_assert_uint_eq(trace->events->len, 5);
  ck_assert_int_eq(replay->stats.allocated_bytes.peak, 10 * MIB + 1024);
  ck_assert_int_eq(replay->stats.reserved_bytes.peak, 22 * MIB);
  ck_assert_int_eq(replay->stats.reserved_bytes.current, 12 * MIB);
  ck_assert_int_eq(replay->first_divergence, -1);
  ck_assert_uint_eq(replay->streams->len, 2);
  const ReplayStream *last = &g_array_index(replay->streams, ReplayStream, 1);
  ck_assert_uint_eq(last->stream, 7);
  ck_assert_int_eq(last->peak_allocated, 1024);
  ck_assert_int_eq(last->cached, 2 * MIB - 1024);
}
END_TEST

/* ---- What is refused */

#define BEGIN "{" COLUMNS ", \"events\": ["
#define ONE "[\"alloc\", 512, 0, 0]"
#define FREE "[\"free_requested\", 512, 0, 0]"
#define DONE "[\"free_completed\", 512, 0, 0]"
#define SEGMENT(blocks, total)                                                                     \
  "{\"segments_before\": [{\"address\": 0, \"total_size\": " total                                 \
  ", \"stream\": 0, \"segment_type\": \"small\", \"blocks\": [" blocks "]}], \"events\": []}"

static const struct {
  const char *text, *message;
} refused[] = {
    {"", "input: no events"},
    {"# nothing\n\n", "input: no events"},
    {"{}", "input: no events"},
    {"{", "input: byte 1: the input ends where a key is expected"},
    {BEGIN ONE, "the input ends where ',' or ']' is expected"},
    {BEGIN ONE "]} x", "'x' where the end of the input is expected"},
    {BEGIN ONE ","
               "]}",
     "']' where an array is expected"},
    {BEGIN "[\"alloc\", 512, 0]]}", "event 0: 3 columns, expected 4"},
    {BEGIN "[\"alloc\", 512, 0, 0, 0]]}", "event 0: more than 4 columns"},
    {BEGIN "[\"allocate\", 512, 0, 0]]}", "event 0: unknown action 'allocate'"},
    {BEGIN "[\"empty_cache\", 512, 0, 0]]}", "event 0: unknown action 'empty_cache'"},
    {BEGIN "[\"alloc\", -512, 0, 0]]}", "size -512 is not in 0..2^50"},
    {BEGIN "[\"alloc\", 1125899906842625, 0, 0]]}", "is not in 0..2^50"},
    {BEGIN "[\"alloc\", 9223372036854775808, 0, 0]]}", "a number beyond 64 bits"},
    {BEGIN "[\"alloc\", 5.5, 0, 0]]}", "'.' where the end of a whole number is expected"},
    {BEGIN "[\"alloc\", 05, 0, 0]]}", "a number that begins with 0"},
    {BEGIN "[\"alloc\", \"5\", 0, 0]]}", "'\"' where a whole number is expected"},
    {BEGIN "[\"alloc\", 0, 0, 0]]}", "event 0: alloc of 0 bytes"},
    {BEGIN "[\"alloc\", 512, -512, 0]]}", "event 0: address -512 is not in 0..2^52"},
    {BEGIN "[\"alloc\", 512, 9007199254740992, 0]]}", "event 0: address"},
    {BEGIN "[\"alloc\", 512, 0, -1]]}", "stream -1 is negative"},
    {BEGIN ONE "," ONE "]}", "event 1: alloc where something is already allocated (address 0)"},
    {BEGIN FREE "]}", "event 0: free of an unknown block"},
    {BEGIN ONE "," FREE "," FREE "]}", "event 2: double free"},
    {BEGIN ONE "," FREE "," DONE "," FREE "]}", "event 3: free of an unknown block"},
    {BEGIN ONE "," DONE "]}", "event 1: completed free that nobody requested"},
    {BEGIN DONE "]}", "event 0: completed free of an unknown block"},
    {"{\"events\": [], \"events\": []}", "key 'events' appears twice"},
    {BEGIN ONE "], \"segments_before\": []}", "'segments_before' must stand before 'events'"},
    {"{\"events\": [[\"alloc\", 512, 0, 0, 0, 0, \"\"]], " COLUMNS "}",
     "'columns' must stand before 'events'"},
    {"{\"config\": {\"alloc_conf\": \"max_split:1\"}, \"events\": [" ONE "]}",
     "event 0: 4 columns"},
    {"{\"config\": {\"alloc_conf\": \"max_split:1\"}}",
     "key 'config.alloc_conf': allocator option 'max_split' is unknown"},
    {"{\"config\": {\"cap_mib\": -1}}", "cap_mib and total_mib must be in 0..2^30"},
    {"{\"base_address\": -4096}", "base_address is not in 0..2^52"},
    {"{\"x\": \"\\ud800\"}", "half of a surrogate pair"},
    {"{\"x\": \"\x80\"}", "a string that is not UTF-8"},
    {"{\"x\": \"a\nb\"}", "byte 0x0a where the end of a string is expected"},
    {"{\"x\": tru}", "'}' where a value is expected"},
    {"{\"x\": 1.}", "'}' where a digit is expected"},
    {SEGMENT("", "0"), "segment 0: no blocks"},
    {SEGMENT("[512, 512, \"active_allocated\"]", "1024"), "do not tile a segment of 1024"},
    {SEGMENT("[100, 100, \"inactive\"]", "100"), "100 bytes, not a positive multiple of 512"},
    {SEGMENT("[512, 600, \"active_allocated\"]", "512"), "512 bytes, but 600 requested"},
    {SEGMENT("[512, 0, \"free\"]", "512"), "state 'free' is none of inactive, active_allocated"},
    {SEGMENT("[512, 0, \"inactive\"], [512, 0, \"inactive\"]", "1024"),
     "blocks 0 and 1 are both free but not merged"},
    {SEGMENT("[512, 0]", "512"), "a block is [SIZE, REQUESTED, STATE]"},
    {"alloc a", "line 1: alloc takes 2 to 3 words, not 1"},
    {"alloc a 1 2 3", "line 1: alloc takes 2 to 3 words, not 4"},
    {"alloc a -5", "line 1: '-5' is not a size"},
    {"alloc a 0", "line 1: 0 bytes are not in 1..2^50"},
    {"alloc a 2000TiB", "line 1: 2000TiB bytes are not in 1..2^50"},
    {"alloc a 5 x", "line 1: 'x' is not a stream"},
    {"alloc a 5 -1", "line 1: '-1' is not a stream"},
    {"alloc a 5\nalloc a 5", "line 2: 'a' is already allocated"},
    {"free a", "line 1: free of 'a', which is not allocated"},
    {"alloc a 5\nfree a\nfree a", "line 3: free of 'a', which is not allocated"},
    {"malloc 5", "line 1: 'malloc' is none of alloc, free, empty_cache"},
    {"alloc \x01 5", "line 1: byte 0x01 in a list of allocations"},
    {"alloc \xff 5", "line 1: not UTF-8 text"},
    {"[1, 2]", "line 1: '[1,' is none of alloc, free, empty_cache"},
};

START_TEST(what_cannot_be_a_trace_is_refused_in_one_line)
{
  g_autoptr(GError) error = NULL;
  g_autoptr(AllocationTrace) trace = read_text(refused[_i].text, &error);
  g_autoptr(TraceReplay) replay = NULL;
  const ReplayOptions options = {.follow_addresses = TRUE};
  /* Segments are judged when the allocator takes them over. */
  if (trace)
    replay = trace_replay_run(trace, &options, &error);
  ck_assert(replay == NULL);
  ck_assert(test_error_says(error, refused[_i].message));
  ck_assert(strchr(error->message, '\n') == NULL);
}
END_TEST

static char *
deep_text(guint depth)
{
  g_autofree char *open = g_strnfill(depth, '['), *close = g_strnfill(depth, ']');
  return g_strdup_printf("{\"x\": %s%s}", open, close);
}

START_TEST(nesting_is_limited)
{
  g_autoptr(GError) error = NULL;
  g_autofree char *text = deep_text(100000);
  ck_assert(read_text(text, &error) == NULL);
  ck_assert(test_error_says(error, "nested deeper than 64 levels"));
}
END_TEST

START_TEST(streams_are_limited)
{
  g_autoptr(GString) text = g_string_new(NULL);
  for (int i = 0; i < 1025; i++)
    g_string_append_printf(text, "alloc %d 1 %d\n", i, 7 * i);
  g_autoptr(GError) error = NULL;
  ck_assert(read_text(text->str, &error) == NULL);
  ck_assert(test_error_says(error, "line 1025: more than 1024 streams"));
}
END_TEST

static void
add_list_tests(TCase *tcase)
{
  tcase_add_test(tcase, a_list_of_lines_is_a_trace);
  tcase_add_loop_test(tcase, what_cannot_be_a_trace_is_refused_in_one_line, 0,
                      G_N_ELEMENTS(refused));
  tcase_add_test(tcase, nesting_is_limited);
  tcase_add_test(tcase, streams_are_limited);
}

static void
add_hand_tests(TCase *tcase)
{
  tcase_add_test(tcase, a_free_that_waits_keeps_its_block_until_the_trace_completes_it);
  tcase_add_test(tcase, frees_under_way_at_the_start_are_active_but_not_allocated);
  tcase_add_test(tcase, two_queues_explain_frees_that_complete_out_of_order);
  tcase_add_test(tcase, the_first_divergence_says_what_each_did);
  tcase_add_test(tcase, what_only_the_trace_did_is_a_divergence);
  tcase_add_test(tcase, releases_that_nobody_needed_are_an_empty_cache);
  tcase_add_test(tcase, the_recorded_device_and_options_are_used);
  tcase_add_loop_test(tcase, peaks_are_those_of_complete_steps, 0, G_N_ELEMENTS(failures));
}

Suite *
test_suite(void)
{
  recordings = g_ptr_array_new_with_free_func(g_free);
  g_autofree char *ours = test_source_path("traces");
  g_autofree char *reference = test_reference_path("reference/pytorch");
  add_recordings(ours);
  if (reference)
    add_recordings(reference);
  g_ptr_array_sort(recordings, compare_paths);

  Suite *suite = suite_create("allocation_trace");
  TCase *tcase = tcase_create("allocation_trace");
  suite_add_tcase(suite, tcase);
  tcase_add_test(tcase, there_are_recordings_of_our_own);
  tcase_add_test(tcase, the_reference_traces_are_replayed_too);
  tcase_add_loop_test(tcase, a_recording_replays_to_its_peaks_segments_and_addresses, 0,
                      (int) recordings->len);
  tcase_add_loop_test(tcase, first_fit_alone_finds_the_same_addresses, 0, (int) recordings->len);
  add_hand_tests(tcase);
  add_list_tests(tcase);
  return suite;
}
