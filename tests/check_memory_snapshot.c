/* check_memory_snapshot.c - memory snapshots: those that PyTorch wrote give PyTorch's own
 * statistics, a history is undone as the allocator would have done it, what cannot have happened is
 * refused, and a Recording is written entry by entry.  That whole runs replay to their peaks is in
 * cli/memory_snapshot.sh. */
#include "base/pickle_writer.h"
#include "import/allocation_trace_snapshot.h"
#include "import/snapshot_recording.h"
#include "import/trace_replay.h"
#include "memory/segment_map.h"
#include "report/memory_snapshot.h"
#include "tap_main.h"
#include <string.h>

/* ---- what PyTorch recorded: traces/README.md ---- */

/* As torch.cuda.memory_stats() said when the snapshot was taken; -1: its peak was before the
 * history begins. */
static const struct {
  const char *kind;
  gint64 peak_allocated, peak_reserved, peak_active, allocated, reserved;
  guint steps;
} recorded[] = {
    {"training", 231526400, 243269632, 231526400, 168873984, 230686720, 3},
    {"pending", 231579136, 251658240, 237579264, 168873984, 239075328, 3},
    {"expandable", 224246784, 255852544, 224246784, 164212736, 255852544, 3},
    {"cut", -1, -1, -1, 168873984, 230686720, 3},
    {"out_of_memory", 32381128704, 32442941440, 32381128704, 168873984, 32384221184, 3},
};

static char *
recorded_path(const char *kind)
{
  g_autofree char *relative = g_strdup_printf("traces/snapshot_%s.pickle.gz", kind);
  return test_source_path(relative);
}

static SnapshotFile *
load_recorded(const char *kind)
{
  g_autofree char *path = recorded_path(kind);
  g_autoptr(GError) error = NULL;
  SnapshotFile *file = snapshot_file_load(path, -1, &error);
  ck_assert_msg(file != NULL, "%s", error ? error->message : "");
  return file;
}

static Recording *
recording_of(const SnapshotFile *file)
{
  g_autoptr(GError) error = NULL;
  Recording *recording = snapshot_recording(file, &error);
  ck_assert_msg(recording != NULL, "%s", error ? error->message : "");
  const char *key;
  g_autofree char *wrong = recording_check(recording, &key);
  ck_assert_msg(wrong == NULL, "%s: %s", key, wrong);
  return recording;
}

static const MemoryEvent *
memory_event(const Recording *recording, guint i)
{
  return &g_array_index(recording->memory, MemoryEvent, i);
}

START_TEST(a_recorded_snapshot_replays_to_the_statistics_of_pytorch)
{
  g_autofree char *path = recorded_path(recorded[_i].kind);
  g_autoptr(AllocationTrace) trace = allocation_trace_load(path, NULL);
  const ReplayOptions options = {.follow_addresses = TRUE};
  g_autoptr(TraceReplay) replay = trace_replay_run(trace, &options, NULL);
  ck_assert(replay != NULL);
  ck_assert_int_eq(replay->first_divergence, -1);
  ck_assert_int_eq(replay->first_misplaced, -1);
  ck_assert_uint_gt(replay->segment_events_compared, 0);
  if (recorded[_i].peak_allocated < 0)
    return;
  ck_assert_int_eq(replay->stats.allocated_bytes.peak, recorded[_i].peak_allocated);
  ck_assert_int_eq(replay->stats.reserved_bytes.peak, recorded[_i].peak_reserved);
  ck_assert_int_eq(replay->stats.active_bytes.peak, recorded[_i].peak_active);
}
END_TEST

START_TEST(a_recorded_snapshot_is_a_recording_with_the_statistics_of_pytorch)
{
  g_autoptr(SnapshotFile) file = load_recorded(recorded[_i].kind);
  g_autoptr(Recording) recording = recording_of(file);
  gint64 allocated = 0, reserved = 0;
  for (guint i = 0; i < recording->memory->len; i++) {
    allocated = MAX(allocated, memory_event(recording, i)->allocated_after);
    reserved = MAX(reserved, memory_event(recording, i)->reserved_after);
  }
  const MemoryEvent *last = memory_event(recording, recording->memory->len - 1);
  ck_assert_uint_eq(recording->steps->len, recorded[_i].steps);
  gboolean out_of_memory = recording->out_of_memory.happened;
  if (!out_of_memory) {
    ck_assert_int_eq(last->allocated_after, recorded[_i].allocated);
    ck_assert_int_eq(last->reserved_after, recorded[_i].reserved);
  }
  if (recorded[_i].peak_allocated < 0)
    return;
  ck_assert_int_eq(allocated, recorded[_i].peak_allocated);
  ck_assert_int_eq(reserved, recorded[_i].peak_reserved);
  ck_assert_int_eq(recording->peak.allocated, recorded[_i].peak_allocated);
}
END_TEST

START_TEST(who_asked_is_named_by_the_frames)
{
  g_autoptr(SnapshotFile) file = load_recorded("training");
  g_autoptr(Recording) recording = recording_of(file);
  guint found = 0;
  for (guint i = 0; i < recording->memory->len; i++) {
    const MemoryEvent *event = memory_event(recording, i);
    /* x @ weight.T of Net.b, 512 x 1000 float32 */
    if (event->requested_bytes != 512 * 1000 * 4 ||
        recording_text(recording, event->what) == NULL ||
        strncmp(recording_text(recording, event->what), "forward (linear.py:", 19) != 0)
      continue;
    ck_assert(
        strncmp(recording_text(recording, event->module), "forward (record_snapshot.py:", 28) == 0);
    found++;
  }
  ck_assert_uint_eq(found, 3); /* once a step */
}
END_TEST

START_TEST(annotated_optimizers_are_phases)
{
  g_autoptr(SnapshotFile) file = load_recorded("training");
  g_autoptr(Recording) recording = recording_of(file);
  guint optimizers = 0, zero_grads = 0;
  for (guint i = 0; i < recording->ranges->len; i++) {
    const Range *range = &g_array_index(recording->ranges, Range, i);
    const char *name = recording_text(recording, range->name);
    ck_assert_int_eq(range->kind, RECORDED_PHASE);
    optimizers += g_str_equal(name, "optimizer");
    zero_grads += g_str_equal(name, "zero_grad");
  }
  ck_assert_uint_eq(optimizers, 3);
  ck_assert_uint_eq(zero_grads, 3);
}
END_TEST

START_TEST(a_free_that_still_waits_is_recorded)
{
  g_autoptr(SnapshotFile) file = load_recorded("pending");
  g_autoptr(Recording) recording = recording_of(file);
  ck_assert_uint_eq(recording->completions->len, 3); /* one in each step */
  const CompletionEvent *last = &g_array_index(recording->completions, CompletionEvent, 2);
  ck_assert_int_eq(last->time, -1);
  gint64 waits = 0;
  for (guint i = 0; i < recording->memory->len; i++) {
    const MemoryEvent *event = memory_event(recording, i);
    if (event->allocation == last->allocation)
      waits = ABS(event->block_bytes);
  }
  ck_assert_int_eq(waits, 174874112 - 168873984); /* active less allocated */
}
END_TEST

START_TEST(out_of_memory_at_the_end_is_recorded)
{
  g_autoptr(SnapshotFile) file = load_recorded("out_of_memory");
  g_autoptr(Recording) recording = recording_of(file);
  const OutOfMemoryRecord *out = &recording->out_of_memory;
  ck_assert(out->happened);
  ck_assert_int_eq(out->requested_bytes, 60 * GIB);
  ck_assert_int_eq(out->segment_bytes, 60 * GIB);
  ck_assert_int_eq(out->allocated_bytes, recorded[4].peak_allocated);
  ck_assert_int_eq(out->limit_bytes, 80 * GIB); /* "total capacity of 80.00 GiB" */
}
END_TEST

/* ---- snapshots written here ---- */

typedef struct {
  const char *action;
  guint64 address;
  gint64 bytes;
  int stream;
} Entry;

typedef struct {
  gint64 bytes, requested;
  const char *state; /* NULL: no more */
} Part;

typedef struct {
  guint64 address;
  gint64 bytes;
  const char *type;
  gboolean expandable;
  Part parts[3];
} Whole;

#define ACTIVE "active_allocated"
#define PENDING "active_pending_free"
#define FREE "inactive"

static void
add_text(PickleWriter *out, const char *key, const char *text)
{
  pickle_write_string(out, key);
  pickle_write_string(out, text);
}

static void
add_int(PickleWriter *out, const char *key, gint64 number)
{
  pickle_write_string(out, key);
  pickle_write_int(out, number);
}

static void
add_entries(PickleWriter *out, const Entry *entries)
{
  pickle_begin_list(out);
  for (guint i = 0; entries && entries[i].action; i++) {
    pickle_next_item(out, i);
    pickle_begin_dict(out);
    add_text(out, "action", entries[i].action);
    add_int(out, "addr", (gint64) entries[i].address);
    add_int(out, "device_free", 5);
    add_int(out, "size", entries[i].bytes);
    add_int(out, "stream", entries[i].stream);
    pickle_end_dict(out);
  }
  pickle_end_list(out);
}

static void
add_parts(PickleWriter *out, const Part *parts)
{
  pickle_write_string(out, "blocks");
  pickle_begin_list(out);
  for (guint i = 0; i < 3 && parts[i].state; i++) {
    pickle_next_item(out, i);
    pickle_begin_dict(out);
    add_int(out, "size", parts[i].bytes);
    add_int(out, "requested_size", parts[i].requested);
    add_text(out, "state", parts[i].state);
    pickle_end_dict(out);
  }
  pickle_end_list(out);
}

static void
add_wholes(PickleWriter *out, const Whole *wholes, int device)
{
  for (guint i = 0; wholes && wholes[i].type; i++) {
    pickle_next_item(out, i);
    pickle_begin_dict(out);
    add_int(out, "device", device);
    add_int(out, "address", (gint64) wholes[i].address);
    add_int(out, "total_size", wholes[i].bytes);
    add_int(out, "stream", 0);
    add_text(out, "segment_type", wholes[i].type);
    pickle_write_string(out, "is_expandable");
    pickle_write_bool(out, wholes[i].expandable);
    add_parts(out, wholes[i].parts);
    pickle_end_dict(out);
  }
}

/* Of device 0, and of device 1 when it has a history; both end with zeroes. */
static GByteArray *
snapshot_of(const Entry *first, const Entry *second, const Whole *wholes, int device)
{
  PickleWriter out = pickle_writer_begin();
  pickle_begin_dict(&out);
  pickle_write_string(&out, "device_traces");
  pickle_begin_list(&out);
  add_entries(&out, first);
  add_entries(&out, second);
  pickle_end_list(&out);
  pickle_write_string(&out, "segments");
  pickle_begin_list(&out);
  add_wholes(&out, wholes, device);
  pickle_end_list(&out);
  pickle_end_dict(&out);
  return pickle_writer_end(&out);
}

static SnapshotFile *
read_snapshot(const GByteArray *bytes, int device, GError **error)
{
  g_autoptr(ByteSource) source = byte_source_from_memory("F", bytes->data, bytes->len);
  return snapshot_file_read(source, device, error);
}

/* ---- how a history began ---- */

#define AT ((guint64) 1 << 40)

static const StartBlock *
only_block(const SnapshotStart *start)
{
  ck_assert_uint_eq(start->blocks->len, 1);
  return &g_array_index(start->blocks, StartBlock, 0);
}

/* A block whose free alone is in the history, in a segment that outlives it. */
static const struct {
  gint64 segment, freed, block;
  const char *type;
  gboolean expandable;
} freed_blocks[] = {
    /* The large pool cuts off what leaves more than 1 MiB (kSmallSize). */
    {20 * MIB, 19 * MIB + 1, 20 * MIB, "large", FALSE},
    {20 * MIB, 19 * MIB, 20 * MIB, "large", FALSE},
    {20 * MIB, 19 * MIB - 512, 19 * MIB - 512, "large", FALSE},
    {20 * MIB, 3 * MIB + 100, 3 * MIB + 512, "large", FALSE},
    /* The small pool and expandable segments cut off 512 bytes. */
    {2 * MIB, MIB - 1000, MIB - 512, "small", FALSE},
    {20 * MIB, 19 * MIB + 1, 19 * MIB + 512, "large", TRUE},
};

START_TEST(a_block_that_is_freed_had_the_size_that_the_allocator_cuts)
{
  const Entry entries[] = {{"free_requested", AT, freed_blocks[_i].freed, 0},
                           {"free_completed", AT, freed_blocks[_i].freed, 0},
                           {0}};
  const Whole wholes[] = {{AT,
                           freed_blocks[_i].segment,
                           freed_blocks[_i].type,
                           freed_blocks[_i].expandable,
                           {{freed_blocks[_i].segment, 0, FREE}}},
                          {0}};
  g_autoptr(GByteArray) bytes = snapshot_of(entries, NULL, wholes, 0);
  g_autoptr(SnapshotFile) file = read_snapshot(bytes, -1, NULL);
  SnapshotStart start;
  ck_assert(snapshot_start_find(&start, file, NULL));
  ck_assert_int_eq(only_block(&start)->bytes, freed_blocks[_i].block);
  ck_assert_int_eq(only_block(&start)->requested_bytes, freed_blocks[_i].freed);
  ck_assert(!only_block(&start)->pending);
  snapshot_start_clear(&start);
}
END_TEST

START_TEST(a_free_whose_request_is_lost_was_waiting)
{
  const Entry entries[] = {{"free_completed", AT, 600, 0}, {0}};
  const Whole wholes[] = {{AT, 2 * MIB, "small", FALSE, {{2 * MIB, 0, FREE}}}, {0}};
  g_autoptr(GByteArray) bytes = snapshot_of(entries, NULL, wholes, 0);
  g_autoptr(SnapshotFile) file = read_snapshot(bytes, -1, NULL);
  SnapshotStart start;
  ck_assert(snapshot_start_find(&start, file, NULL));
  ck_assert(only_block(&start)->pending);
  ck_assert_int_eq(only_block(&start)->bytes, 1024);
  snapshot_start_clear(&start);
  g_autoptr(Recording) recording = recording_of(file);
  ck_assert_uint_eq(recording->memory->len, 2);
  ck_assert_uint_eq(recording->completions->len, 1);
}
END_TEST

START_TEST(a_segment_that_is_given_back_was_there)
{
  const Entry entries[] = {{"free_requested", AT, 30 * MIB, 0},
                           {"free_completed", AT, 30 * MIB, 0},
                           {"segment_free", AT, 30 * MIB, 0},
                           {0}};
  g_autoptr(GByteArray) bytes = snapshot_of(entries, NULL, NULL, 0);
  g_autoptr(SnapshotFile) file = read_snapshot(bytes, -1, NULL);
  g_autoptr(Recording) recording = recording_of(file);
  ck_assert_int_eq(recording->peak.allocated, 30 * MIB);
  ck_assert_int_eq(recording->peak.reserved, 30 * MIB);
  ck_assert_uint_eq(recording->segments->len, 2);
  ck_assert_uint_eq(recording->steps->len, 0);
  ck_assert_uint_eq(recording->peak.live->len, 1);
}
END_TEST

START_TEST(without_a_history_what_is_there_is_the_peak)
{
  const Whole wholes[] = {
      {AT, 2 * MIB, "small", FALSE, {{512, 4, ACTIVE}, {2 * MIB - 512, 0, FREE}}},
      {AT + 4 * MIB, 20 * MIB, "large", FALSE, {{20 * MIB, 20 * MIB, ACTIVE}}},
      {0}};
  g_autoptr(GByteArray) bytes = snapshot_of(NULL, NULL, wholes, 0);
  g_autoptr(SnapshotFile) file = read_snapshot(bytes, -1, NULL);
  g_autoptr(Recording) recording = recording_of(file);
  ck_assert_int_eq(recording->peak.allocated, 20 * MIB + 512);
  ck_assert_int_eq(recording->peak.reserved, 22 * MIB);
  ck_assert_int_eq(g_array_index(recording->cached, gint64, 0), 2 * MIB - 512);
}
END_TEST

START_TEST(the_device_with_the_longest_history_is_taken_unless_one_is_named)
{
  const Entry one[] = {{"snapshot", 0, 0, 0}, {0}};
  const Entry two[] = {{"segment_alloc", AT, 2 * MIB, 0}, {"alloc", AT, 5, 0}, {0}};
  const Whole wholes[] = {
      {AT, 2 * MIB, "small", FALSE, {{512, 5, ACTIVE}, {2 * MIB - 512, 0, FREE}}}, {0}};
  g_autoptr(GByteArray) bytes = snapshot_of(one, two, wholes, 1);
  g_autoptr(SnapshotFile) longest = read_snapshot(bytes, -1, NULL);
  g_autoptr(SnapshotFile) named = read_snapshot(bytes, 0, NULL);
  g_autoptr(GError) error = NULL;
  ck_assert_int_eq(longest->device, 1);
  ck_assert_uint_eq(longest->entries->len, 2);
  ck_assert_uint_eq(longest->segments->len, 1);
  ck_assert_uint_eq(named->entries->len, 1);
  ck_assert_uint_eq(named->segments->len, 0);
  ck_assert(read_snapshot(bytes, 2, &error) == NULL);
  ck_assert(test_error_says(error, "F: device 2 has neither a history nor segments"));
}
END_TEST

/* ---- what cannot have happened ---- */

#define SMALL_FREE                                                                                 \
  {                                                                                                \
    AT, 2 * MIB, "small", FALSE,                                                                   \
    {                                                                                              \
      {                                                                                            \
        2 * MIB, 0, FREE                                                                           \
      }                                                                                            \
    }                                                                                              \
  }

static const struct {
  Entry entries[3];
  Whole wholes[3];
  const char *message;
} impossible[] = {
    {{{"alloc", AT, 5, 0}}, {SMALL_FREE}, "device_traces[0]: alloc: is no allocation afterwards"},
    {{{"free_requested", AT, 5, 0}},
     {SMALL_FREE},
     "device_traces[0]: free_requested: is not waiting to be free afterwards"},
    {{{"free_completed", AT, 5, 0}},
     {{AT, 2 * MIB, "small", FALSE, {{512, 5, ACTIVE}, {2 * MIB - 512, 0, FREE}}}},
     "device_traces[0]: free_completed: is an allocation afterwards"},
    {{{"segment_alloc", AT, 2 * MIB, 0}}, {{0}}, "segment_alloc: is no segment afterwards"},
    {{{"segment_alloc", AT, 4 * MIB, 0}}, {SMALL_FREE}, "segment_alloc: is no segment afterwards"},
    {{{"segment_free", AT + MIB, 2 * MIB, 0}},
     {SMALL_FREE},
     "segment_free: is a segment afterwards"},
    {{{"free_requested", AT + 4 * MIB, 5, 0}, {"free_completed", AT + 4 * MIB, 5, 0}},
     {SMALL_FREE},
     "has no room in a segment when the history begins"},
    {{{"explode", AT, 5, 0}}, {SMALL_FREE}, "device_traces[0]: unknown action 'explode'"},
    {{{"alloc", AT, 0, 0}}, {SMALL_FREE}, "device_traces[0]: key 'size' is 0"},
    {{{"alloc", AT, -1, 0}}, {SMALL_FREE}, "device_traces[0]: key 'size' is not a number in 0.."},
    {{{"alloc", AT, 5, -1}}, {SMALL_FREE}, "device_traces[0]: key 'stream' is not a number in 0.."},
    {{{0}}, {SMALL_FREE, SMALL_FREE}, "segments[1]: overlaps another one"},
    {{{0}},
     {{AT, 2 * MIB, "small", FALSE, {{MIB, 0, FREE}}}},
     "segments[0]: its blocks do not tile its total_size"},
    {{{0}}, {{AT, 2 * MIB, "small", FALSE, {{2 * MIB, 0, "lost"}}}}, "unknown state 'lost'"},
};

START_TEST(a_history_that_cannot_have_happened_is_refused)
{
  g_autoptr(GByteArray) bytes = snapshot_of(impossible[_i].entries, NULL, impossible[_i].wholes, 0);
  g_autoptr(GError) error = NULL;
  g_autoptr(SnapshotFile) file = read_snapshot(bytes, -1, &error);
  g_autoptr(Recording) recording = file ? snapshot_recording(file, &error) : NULL;
  ck_assert(recording == NULL);
  ck_assert(test_error_says(error, impossible[_i].message));
}
END_TEST

START_TEST(another_pickle_is_no_snapshot)
{
  g_autoptr(GByteArray) bytes = g_byte_array_new();
  g_byte_array_append(bytes, (const guint8 *) "\200\004}.", 4);
  g_autoptr(GError) error = NULL;
  ck_assert(read_snapshot(bytes, -1, &error) == NULL);
  ck_assert(test_error_says(error, "F: not a memory snapshot"));
  g_clear_error(&error);
  bytes->data[0] = 'P';
  ck_assert(read_snapshot(bytes, -1, &error) == NULL);
  ck_assert(test_error_says(error, "F: begins like an archive of torch.save()"));
}
END_TEST

/* ---- a Recording as a snapshot ---- */

static void
add_memory(Recording *r, SimTime time, gint64 bytes, guint64 address, gint32 allocation)
{
  const MemoryEvent *before =
      r->memory->len > 0 ? memory_event(r, r->memory->len - 1) : &(const MemoryEvent){0};
  MemoryEvent event = {.time = time,
                       .requested_bytes = bytes,
                       .block_bytes = bytes,
                       .allocated_after = before->allocated_after + bytes,
                       .address = address,
                       .allocation = allocation,
                       .category = CATEGORY_ACTIVATION,
                       .step = 1,
                       .module = recording_string(r, "layers.0"),
                       .what = recording_string(r, "mlp")};
  g_array_append_val(r->memory, event);
}

static void
add_segment(Recording *r, SegmentAction action, guint64 address, gint64 bytes)
{
  SegmentEvent event = {.address = address,
                        .bytes = bytes,
                        .memory_events = (gint32) r->memory->len,
                        .action = (guint8) action};
  g_array_append_val(r->segments, event);
}

static void
add_completion(Recording *r, SimTime time, gint32 allocation)
{
  CompletionEvent event = {time, allocation, (gint32) r->memory->len, (gint32) r->segments->len};
  g_array_append_val(r->completions, event);
}

static SnapshotFile *
written(const Recording *recording)
{
  const AllocatorConfig config = allocator_config_default();
  g_autoptr(GByteArray) bytes = memory_snapshot(recording, &config);
  g_autoptr(GError) error = NULL;
  SnapshotFile *file = read_snapshot(bytes, -1, &error);
  ck_assert_msg(file != NULL, "%s", error ? error->message : "");
  return file;
}

static void
assert_actions(const SnapshotFile *file, const char *const *actions)
{
  guint i = 0;
  for (; actions[i]; i++) {
    ck_assert_uint_lt(i, file->entries->len);
    const SnapshotEntry *entry = &g_array_index(file->entries, SnapshotEntry, i);
    ck_assert_str_eq(trace_action_name((TraceAction) entry->action), actions[i]);
  }
  ck_assert_uint_eq(file->entries->len, i);
}

/* A block that another stream holds up, one that is freed at once, one that lives. */
static Recording *
small_recording(void)
{
  Recording *r = recording_new();
  g_ptr_array_add(r->streams, g_strdup("compute"));
  add_segment(r, SEGMENT_ALLOC, AT, 20 * MIB);
  add_memory(r, 1000, 2 * MIB, AT, 0);
  add_memory(r, 2000, 3 * MIB, AT + 2 * MIB, 1);
  add_memory(r, 3000, 4 * MIB, AT + 5 * MIB, 2);
  add_memory(r, 4000, -2 * MIB, AT, 0);
  add_memory(r, 5000, -3 * MIB, AT + 2 * MIB, 1);
  return r;
}

START_TEST(entries_are_in_the_order_of_the_allocator)
{
  g_autoptr(Recording) r = small_recording();
  add_completion(r, 6000, 0);
  add_segment(r, SEGMENT_ALLOC, AT + 32 * MIB, 2 * MIB);
  add_memory(r, 7000, 512, AT + 32 * MIB, 3);
  g_autoptr(SnapshotFile) file = written(r);
  assert_actions(file, (const char *const[]){"segment_alloc", "alloc", "alloc", "alloc",
                                             "free_requested", "free_requested", "free_completed",
                                             "free_completed", "segment_alloc", "alloc", NULL});
  const SnapshotEntry *entries = (const SnapshotEntry *) (gpointer) file->entries->data;
  ck_assert_uint_eq(entries[6].address, AT + 2 * MIB); /* waited for nothing */
  ck_assert_uint_eq(entries[7].address, AT);
  ck_assert_int_eq(entries[7].time_us, 6);
  ck_assert_int_eq(entries[1].category, CATEGORY_ACTIVATION);
  const SnapshotLabel *label = &g_array_index(file->labels, SnapshotLabel, entries[1].label);
  ck_assert_str_eq(label->what, "mlp");
  ck_assert_str_eq(label->module, "layers.0");
  ck_assert_int_eq(label->step, 1);
}
END_TEST

START_TEST(blocks_at_the_end_tile_their_segment)
{
  g_autoptr(Recording) r = small_recording();
  add_completion(r, -1, 0);
  g_autoptr(SnapshotFile) file = written(r);
  ck_assert_uint_eq(file->segments->len, 1);
  static const SnapshotBlock expected[] = {
      {AT, 2 * MIB, 2 * MIB, 0, SNAPSHOT_PENDING_FREE},
      {AT + 2 * MIB, 3 * MIB, 0, 0, SNAPSHOT_INACTIVE},
      {AT + 5 * MIB, 4 * MIB, 4 * MIB, 0, SNAPSHOT_ALLOCATED},
      {AT + 9 * MIB, 11 * MIB, 0, 0, SNAPSHOT_INACTIVE},
  };
  ck_assert_uint_eq(file->blocks->len, G_N_ELEMENTS(expected));
  for (guint i = 0; i < G_N_ELEMENTS(expected); i++) {
    const SnapshotBlock *block = &g_array_index(file->blocks, SnapshotBlock, i);
    ck_assert_uint_eq(block->address, expected[i].address);
    ck_assert_int_eq(block->bytes, expected[i].bytes);
    ck_assert_int_eq(block->requested_bytes, expected[i].requested_bytes);
    ck_assert_int_eq(block->state, expected[i].state);
  }
  assert_actions(file,
                 (const char *const[]){"segment_alloc", "alloc", "alloc", "alloc", "free_requested",
                                       "free_requested", "free_completed", NULL});
}
END_TEST

START_TEST(pages_that_touch_are_one_segment_and_those_unmapped_are_none)
{
  g_autoptr(Recording) r = recording_new();
  g_ptr_array_add(r->streams, g_strdup("compute"));
  add_segment(r, SEGMENT_MAP, AT, 40 * MIB);
  add_memory(r, 1, 30 * MIB, AT, 0);
  add_segment(r, SEGMENT_MAP, AT + 40 * MIB, 40 * MIB);
  add_memory(r, 2, 50 * MIB, AT + 30 * MIB, 1);
  add_memory(r, 3, -50 * MIB, AT + 30 * MIB, 1);
  add_segment(r, SEGMENT_UNMAP, AT + 40 * MIB, 20 * MIB);
  g_autoptr(SnapshotFile) file = written(r);
  ck_assert_uint_eq(file->segments->len, 2);
  const SnapshotSegment *segments = (const SnapshotSegment *) (gpointer) file->segments->data;
  ck_assert_int_eq(segments[0].bytes, 40 * MIB);
  ck_assert_uint_eq(segments[1].address, AT + 60 * MIB);
  ck_assert_int_eq(segments[1].bytes, 20 * MIB);
  ck_assert(segments[0].expandable && segments[1].expandable);
  ck_assert(!segments[0].small_pool);
}
END_TEST

START_TEST(out_of_memory_is_the_last_entry)
{
  g_autoptr(Recording) r = small_recording();
  r->out_of_memory = (OutOfMemoryRecord){.happened = TRUE,
                                         .step = 1,
                                         .phase = -1,
                                         .module = recording_string(r, "layers.0"),
                                         .what = recording_string(r, "logits"),
                                         .requested_bytes = 100 * MIB,
                                         .limit_bytes = 50 * MIB,
                                         .reserved_bytes = 20 * MIB,
                                         .category = CATEGORY_TEMPORARY};
  g_autoptr(SnapshotFile) file = written(r);
  const SnapshotEntry *entry = &g_array_index(file->entries, SnapshotEntry, file->entries->len - 1);
  ck_assert_str_eq(trace_action_name((TraceAction) entry->action), "oom");
  ck_assert_int_eq(entry->bytes, 100 * MIB);
  ck_assert_int_eq(entry->device_free, 30 * MIB);
  ck_assert_int_eq(entry->category, CATEGORY_TEMPORARY);
  ck_assert_str_eq(g_array_index(file->labels, SnapshotLabel, entry->label).what, "logits");
  ck_assert_int_eq(file->config.memory_limit, 50 * MIB);
}
END_TEST

static void
add_phase(Recording *r, const char *name, SimTime start, SimTime end, gint64 allocated)
{
  Range range = {.start = start,
                 .end = end,
                 .kind = RECORDED_PHASE,
                 .step = 1,
                 .micro_batch = -1,
                 .name = recording_string(r, name),
                 .module = -1,
                 .start_allocated = allocated};
  g_array_append_val(r->ranges, range);
}

/* All in one moment: zero_grad frees 1, forward allocates 1, and a phase of no event is between. */
START_TEST(phases_of_one_moment_are_told_apart_by_what_is_allocated)
{
  g_autoptr(Recording) r = recording_new();
  g_ptr_array_add(r->streams, g_strdup("compute"));
  add_segment(r, SEGMENT_ALLOC, AT, 20 * MIB);
  add_memory(r, 0, 2 * MIB, AT, 0);
  add_phase(r, "zero_grad", 5000, 5000, 2 * MIB);
  add_memory(r, 5000, -2 * MIB, AT, 0);
  add_phase(r, "clip", 5000, 5000, 0);
  add_phase(r, "forward", 5000, 9000, 0);
  add_memory(r, 5000, 3 * MIB, AT, 1);
  g_autoptr(SnapshotFile) file = written(r);
  static const char *const phases[] = {NULL, NULL, "zero_grad", "zero_grad", "forward"};
  ck_assert_uint_eq(file->entries->len, G_N_ELEMENTS(phases));
  for (guint i = 0; i < G_N_ELEMENTS(phases); i++) {
    const SnapshotEntry *entry = &g_array_index(file->entries, SnapshotEntry, i);
    const char *phase = g_array_index(file->labels, SnapshotLabel, entry->label).phase;
    ck_assert_msg(g_strcmp0(phase, phases[i]) == 0, "%u: %s", i, phase);
  }
}
END_TEST

/* ---- segment maps ---- */

START_TEST(segments_never_overlap_and_join_only_pages_of_their_kind)
{
  SegmentMap map;
  segment_map_init(&map);
  MappedSegment segment = {.address = AT, .bytes = 4 * MIB, .stream = 1};
  ck_assert(segment_map_add(&map, &segment));
  ck_assert(!segment_map_add(&map, &segment));
  segment.address += 4 * MIB;
  ck_assert(segment_map_add(&map, &segment)); /* cudaMalloc's stay apart */
  ck_assert_uint_eq(map.segments->len, 2);
  segment = (MappedSegment){.address = AT + 8 * MIB, .bytes = 2 * MIB, .expandable = TRUE};
  ck_assert(segment_map_add(&map, &segment));
  segment.address += 4 * MIB;
  ck_assert(segment_map_add(&map, &segment));
  segment.address -= 2 * MIB;
  ck_assert(segment_map_add(&map, &segment)); /* fills the hole */
  ck_assert_uint_eq(map.segments->len, 3);
  ck_assert_int_eq(segment_map_find(&map, AT + 12 * MIB)->bytes, 6 * MIB);
  ck_assert(segment_map_find(&map, AT + 14 * MIB) == NULL);
  ck_assert(!segment_map_remove(&map, AT, 2 * MIB, NULL)); /* part of a whole one */
  ck_assert(segment_map_remove(&map, AT + 10 * MIB, 2 * MIB, &segment));
  ck_assert_uint_eq(segment.address, AT + 10 * MIB);
  ck_assert_uint_eq(map.segments->len, 4);
  ck_assert(!segment_map_remove(&map, AT + 10 * MIB, 2 * MIB, NULL));
  segment_map_clear(&map);
}
END_TEST

Suite *
test_suite(void)
{
  Suite *suite = suite_create("memory snapshot");
  TCase *measured = tcase_create("recorded by PyTorch");
  tcase_add_loop_test(measured, a_recorded_snapshot_replays_to_the_statistics_of_pytorch, 0,
                      G_N_ELEMENTS(recorded));
  tcase_add_loop_test(measured, a_recorded_snapshot_is_a_recording_with_the_statistics_of_pytorch,
                      0, G_N_ELEMENTS(recorded));
  tcase_add_test(measured, who_asked_is_named_by_the_frames);
  tcase_add_test(measured, annotated_optimizers_are_phases);
  tcase_add_test(measured, a_free_that_still_waits_is_recorded);
  tcase_add_test(measured, out_of_memory_at_the_end_is_recorded);
  suite_add_tcase(suite, measured);
  TCase *begins = tcase_create("beginning");
  tcase_add_loop_test(begins, a_block_that_is_freed_had_the_size_that_the_allocator_cuts, 0,
                      G_N_ELEMENTS(freed_blocks));
  tcase_add_test(begins, a_free_whose_request_is_lost_was_waiting);
  tcase_add_test(begins, a_segment_that_is_given_back_was_there);
  tcase_add_test(begins, without_a_history_what_is_there_is_the_peak);
  tcase_add_test(begins, the_device_with_the_longest_history_is_taken_unless_one_is_named);
  tcase_add_loop_test(begins, a_history_that_cannot_have_happened_is_refused, 0,
                      G_N_ELEMENTS(impossible));
  tcase_add_test(begins, another_pickle_is_no_snapshot);
  suite_add_tcase(suite, begins);
  TCase *writes = tcase_create("written");
  tcase_add_test(writes, entries_are_in_the_order_of_the_allocator);
  tcase_add_test(writes, blocks_at_the_end_tile_their_segment);
  tcase_add_test(writes, pages_that_touch_are_one_segment_and_those_unmapped_are_none);
  tcase_add_test(writes, out_of_memory_is_the_last_entry);
  tcase_add_test(writes, phases_of_one_moment_are_told_apart_by_what_is_allocated);
  tcase_add_test(writes, segments_never_overlap_and_join_only_pages_of_their_kind);
  suite_add_tcase(suite, writes);
  return suite;
}
