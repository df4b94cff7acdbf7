/* snapshot_recording.c - records a snapshot's history as if it were going on. */
#include "import/snapshot_recording.h"

#include <string.h>

#include "base/category.h"
#include "import/allocation_trace_snapshot.h"
#include "import/snapshot_places.h"
#include "import/snapshot_sizes.h"
#include "program/program.h"
#include "record/recorder.h"

/* Sums and times beyond what a recording's file can hold. */
#define MOST_BYTES ((gint64) 1 << 52)
#define LATEST ((SimTime) 1 << 52)

/* A stream is a byte of a memory event. */
#define MOST_STREAMS 256

static const char before_text[] = "allocated before the history begins";

typedef struct {
  const SnapshotFile *file;
  const SnapshotStart *start;
  const AllocationTrace *trace;
  Recording *recording;
  Recorder *recorder;
  SnapshotPlaces places;
  guint8 streams[MOST_STREAMS]; /* of each stream of the trace: that of the recording */
  gint64 *bytes;                /* of each slot of the trace: its block */
  gint32 *allocations;          /* of each slot: its number in the recording, or -1 */
  gint64 *requested;            /* of each slot */
  const TraceReplay *replay;    /* NULL: the allocator does not know such a beginning */
  MemoryLevel level;
  gint64 first_us;
  SimTime time;
} Maker;

static MemoryLevel
read_level(gpointer user)
{
  Maker *m = user;
  MemoryLevel level = m->level;
  m->level.peak_allocated = m->level.allocated;
  m->level.peak_reserved = m->level.reserved;
  return level;
}

static void
change_level(Maker *m, gint64 allocated, gint64 reserved)
{
  m->level.allocated += allocated;
  m->level.reserved += reserved;
  m->level.peak_allocated = MAX(m->level.peak_allocated, m->level.allocated);
  m->level.peak_reserved = MAX(m->level.peak_reserved, m->level.reserved);
}

/* ---- events ---- */

static void
record_segment(Maker *m, SegmentAction action, int stream, guint64 address, gint64 bytes)
{
  const SegmentEvent event = {.time = m->time,
                              .address = address,
                              .bytes = bytes,
                              .action = (guint8) action,
                              .stream = m->streams[stream]};
  change_level(m, 0, action == SEGMENT_ALLOC || action == SEGMENT_MAP ? bytes : -bytes);
  recorder_segment(m->recorder, &event);
}

static void
name_tensor(const Maker *m, gint32 index, MemoryEvent *event)
{
  const SnapshotLabel *label =
      index < 0 ? NULL : &g_array_index(m->file->labels, SnapshotLabel, index);
  event->what = label && label->what ? recording_string(m->recording, label->what) : -1;
  event->module = label && label->module ? recording_string(m->recording, label->module) : -1;
}

static void
record_allocation(Maker *m, gint32 slot, MemoryEvent *event)
{
  change_level(m, m->bytes[slot], 0);
  event->time = m->time;
  event->requested_bytes = m->requested[slot];
  event->block_bytes = m->bytes[slot];
  event->allocated_after = m->level.allocated;
  event->reserved_after = m->level.reserved;
  m->allocations[slot] = recorder_allocate(m->recorder, event);
}

static void
record_free(Maker *m, gint32 slot)
{
  change_level(m, -m->bytes[slot], 0);
  recorder_release(m->recorder, m->allocations[slot], m->time, m->level.allocated,
                   m->level.reserved);
}

/* ---- the beginning ---- */

/* The recording's number of a stream that segments name. */
static guint8
stream_of_segment(const Maker *m, guint64 number)
{
  guint i = 0;
  while (i < m->trace->streams->len && g_array_index(m->trace->streams, guint64, i) != number)
    i++;
  return i < m->trace->streams->len ? m->streams[i] : 0;
}

static void
record_start_blocks(Maker *m)
{
  for (guint i = 0; i < m->start->blocks->len; i++) {
    const StartBlock *block = &g_array_index(m->start->blocks, StartBlock, i);
    const MappedSegment *segment = segment_map_find(&m->start->map, block->address);
    MemoryEvent event = {.address = block->address,
                         .category = CATEGORY_OTHER,
                         .stream = stream_of_segment(m, (guint64) segment->stream)};
    name_tensor(m, block->label, &event);
    if (event.what < 0)
      event.what = recording_string(m->recording, before_text);
    record_allocation(m, (gint32) i, &event);
  }
  for (guint i = 0; i < m->start->blocks->len; i++)
    if (g_array_index(m->start->blocks, StartBlock, i).pending)
      record_free(m, (gint32) i);
}

static void
record_start(Maker *m)
{
  for (guint i = 0; i < m->trace->segments->len; i++) {
    const TraceSegment *segment = &g_array_index(m->trace->segments, TraceSegment, i);
    const MappedSegment *mapped = segment_map_find(&m->start->map, segment->address);
    record_segment(m, mapped->expandable ? SEGMENT_MAP : SEGMENT_ALLOC, segment->stream,
                   segment->address, mapped->bytes);
  }
  record_start_blocks(m);
}

/* ---- the history ---- */

static void
follow_alloc(Maker *m, const SnapshotEntry *entry, const TraceEvent *traced, guint i)
{
  (void) i;
  MemoryEvent event = {.address = entry->address,
                       .stream = m->streams[traced->stream],
                       .category =
                           (guint8) (entry->category < 0 ? CATEGORY_OTHER : entry->category)};
  name_tensor(m, entry->label, &event);
  record_allocation(m, traced->slot, &event);
}

static void
follow_free_requested(Maker *m, const SnapshotEntry *entry, const TraceEvent *traced, guint i)
{
  (void) entry, (void) i;
  record_free(m, traced->slot);
}

/* One that comes right behind its request waited for nothing. */
static void
follow_free_completed(Maker *m, const SnapshotEntry *entry, const TraceEvent *traced, guint i)
{
  (void) entry;
  gint32 freed_at = g_array_index(m->trace->slots, TraceSlot, traced->slot).freed_at;
  if (freed_at < 0 || freed_at + 1 < (gint32) i)
    recorder_complete(m->recorder, m->allocations[traced->slot], m->time);
}

static void
follow_segment(Maker *m, const SnapshotEntry *entry, const TraceEvent *traced, guint i)
{
  static const SegmentAction actions[] = {
      [TRACE_SEGMENT_ALLOC] = SEGMENT_ALLOC,
      [TRACE_SEGMENT_FREE] = SEGMENT_FREE,
      [TRACE_SEGMENT_MAP] = SEGMENT_MAP,
      [TRACE_SEGMENT_UNMAP] = SEGMENT_UNMAP,
  };
  (void) i;
  record_segment(m, actions[entry->action], traced->stream, entry->address, entry->bytes);
}

/* A program that goes on to allocate has got over it. */
static gboolean
goes_on(const Maker *m, guint i)
{
  while (++i < m->trace->events->len)
    if (trace_event(m->trace, i)->action == TRACE_ALLOC)
      return TRUE;
  return FALSE;
}

static void
follow_out_of_memory(Maker *m, const SnapshotEntry *entry, const TraceEvent *traced, guint i)
{
  if (goes_on(m, i) || m->recording->out_of_memory.happened)
    return;
  gboolean replayed = m->replay && m->replay->out_of_memory_at == (gint32) i;
  MemoryEvent asked;
  name_tensor(m, entry->label, &asked);
  const OutOfMemoryRecord record = {
      .module = asked.module,
      .what = asked.what,
      .requested_bytes = entry->bytes,
      .segment_bytes = replayed ? m->replay->failure.segment_bytes : entry->bytes,
      .limit_bytes = m->file->config.memory_limit,
      .allocated_bytes = m->level.allocated,
      .reserved_bytes = m->level.reserved,
      .category = (guint8) (entry->category < 0 ? CATEGORY_OTHER : entry->category),
      .stream = m->streams[traced->stream]};
  recorder_out_of_memory(m->recorder, &record);
}

typedef void (*FollowEntry)(Maker *m, const SnapshotEntry *entry, const TraceEvent *traced,
                            guint i);
static const FollowEntry follow[TRACE_ACTION_COUNT] = {
    [TRACE_ALLOC] = follow_alloc,
    [TRACE_FREE_REQUESTED] = follow_free_requested,
    [TRACE_FREE_COMPLETED] = follow_free_completed,
    [TRACE_SEGMENT_ALLOC] = follow_segment,
    [TRACE_SEGMENT_FREE] = follow_segment,
    [TRACE_SEGMENT_MAP] = follow_segment,
    [TRACE_SEGMENT_UNMAP] = follow_segment,
    [TRACE_OUT_OF_MEMORY] = follow_out_of_memory,
};

/* FALSE: more bytes than there can be. */
static gboolean
record_history(Maker *m)
{
  for (guint i = 0; i < m->file->entries->len; i++) {
    const SnapshotEntry *entry = &g_array_index(m->file->entries, SnapshotEntry, i);
    if (entry->action != TRACE_SNAPSHOT) /* of which only the action is known */
      m->time = MAX(m->time, MIN((entry->time_us - m->first_us) * 1000, LATEST));
    snapshot_places_follow(&m->places, entry, m->time);
    if (follow[entry->action])
      follow[entry->action](m, entry, trace_event(m->trace, i), i);
    if (m->level.allocated > MOST_BYTES)
      return FALSE;
  }
  return TRUE;
}

static void
record_waiting(Maker *m)
{
  for (guint i = 0; i < m->trace->slots->len; i++) {
    const TraceSlot *slot = &g_array_index(m->trace->slots, TraceSlot, i);
    if (slot->freed_at != G_MAXINT32 && slot->completed_at == G_MAXINT32)
      recorder_complete(m->recorder, m->allocations[i], -1);
  }
}

/* ---- the whole ---- */

static gboolean
is_simulated(const SnapshotFile *file)
{
  return file->labels->len > 0 && g_array_index(file->labels, SnapshotLabel, 0).simulated;
}

/* A simulated run has names for streams, whether they have memory or not. */
static void
name_streams(Maker *m)
{
  const GArray *streams = m->trace->streams;
  GPtrArray *names = m->recording->streams;
  gboolean simulated =
      is_simulated(m->file) && g_array_index(streams, guint64, streams->len - 1) < STREAM_COUNT;
  for (int i = 0; simulated && i < STREAM_COUNT; i++)
    g_ptr_array_add(names, g_strdup(program_stream_name((StreamId) i)));
  for (guint i = 0; i < streams->len; i++) {
    guint64 number = g_array_index(streams, guint64, i);
    m->streams[i] = (guint8) (simulated ? number : i);
    if (!simulated)
      g_ptr_array_add(names, g_strdup_printf("stream %" G_GUINT64_FORMAT, number));
  }
}

static void
describe(Maker *m)
{
  const SnapshotFile *file = m->file;
  g_free(m->recording->title);
  m->recording->title = g_path_get_basename(file->name);
  m->recording->capacity_bytes = file->config.memory_limit;
  name_streams(m);
  m->first_us = is_simulated(file) ? 0 : G_MAXINT64;
  for (guint i = 0; i < file->entries->len; i++) {
    const SnapshotEntry *entry = &g_array_index(file->entries, SnapshotEntry, i);
    if (entry->action != TRACE_SNAPSHOT)
      m->first_us = MIN(m->first_us, entry->time_us);
  }
}

static void
count_cached(const Maker *m)
{
  GArray *cached = m->recording->cached;
  g_array_set_size(cached, m->recording->streams->len);
  memset(cached->data, 0, cached->len * sizeof(gint64));
  for (guint i = 0; i < m->file->segments->len; i++) {
    const SnapshotSegment *segment = &g_array_index(m->file->segments, SnapshotSegment, i);
    guint8 stream = stream_of_segment(m, segment->stream);
    for (guint k = 0; k < segment->n_blocks; k++) {
      const SnapshotBlock *block =
          &g_array_index(m->file->blocks, SnapshotBlock, segment->first_block + k);
      if (block->state == SNAPSHOT_INACTIVE)
        g_array_index(cached, gint64, stream) += block->bytes;
    }
  }
}

static gboolean
make(Maker *m)
{
  if (snapshot_has_steps(m->file) == FALSE)
    recorder_count_all(m->recorder);
  describe(m);
  record_start(m);
  snapshot_places_begin(&m->places, m->file, m->recorder, m->recording);
  gboolean ok = record_history(m);
  snapshot_places_end(&m->places, m->time);
  record_waiting(m);
  count_cached(m);
  if (ok)
    recorder_finish(m->recorder);
  return ok;
}

static Recording *
make_recording(const SnapshotFile *file, const SnapshotStart *start, const AllocationTrace *trace)
{
  const ReplayOptions options = {.follow_addresses = TRUE};
  g_autoptr(TraceReplay) replay = trace_replay_run(trace, &options, NULL);
  guint n = trace->slots->len + 1;
  g_autofree gint64 *bytes = g_new0(gint64, n);
  g_autofree gint64 *requested = g_new0(gint64, n);
  snapshot_block_sizes(file, start, trace, replay, bytes);
  snapshot_requested_sizes(start, trace, requested);
  g_autofree gint32 *allocations = g_new0(gint32, n);
  g_autoptr(Recording) recording = recording_new();
  Maker m = {.file = file,
             .start = start,
             .trace = trace,
             .replay = replay,
             .recording = recording,
             .bytes = bytes,
             .requested = requested,
             .allocations = allocations};
  g_autoptr(Recorder) recorder = recorder_new(recording, read_level, &m);
  m.recorder = recorder;
  return make(&m) ? g_steal_pointer(&recording) : NULL;
}

Recording *
snapshot_recording(const SnapshotFile *file, GError **error)
{
  SnapshotStart start = {0};
  g_autoptr(AllocationTrace) trace = snapshot_start_find(&start, file, error)
                                         ? allocation_trace_of_snapshot(file, &start, error)
                                         : NULL;
  Recording *recording = NULL;
  if (trace && trace->streams->len <= MOST_STREAMS)
    recording = make_recording(file, &start, trace);
  if (trace && !recording)
    g_set_error(error, HIGHWATER_ERROR, HIGHWATER_ERROR_INPUT,
                "%s: more than %d streams, or more bytes than a device has", file->name,
                MOST_STREAMS);
  snapshot_start_clear(&start);
  return recording;
}
