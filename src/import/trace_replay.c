/* trace_replay.c - drives the caching allocator by the events of a trace, step by step beside it.
 */
#include "import/trace_replay.h"
#include "base/units.h"
#include "memory/allocator_restore.h"

/* A slot of the trace as it is replayed. */
typedef struct {
  BlockHandle block;
  gint32 stream;
  gboolean waited; /* the allocator has waited for its free */
} SlotState;

typedef struct {
  const AllocationTrace *trace;
  const ReplayOptions *options;
  TraceReplay *replay;
  CachingAllocator *allocator;
  SlotState *slots;
  gint32 freeing;     /* slot whose free is being requested */
  guint event;        /* the event being replayed */
  guint group;        /* the first event after the last call of the program */
  guint call;         /* the next event that is a call of the program */
  gboolean releasing; /* the trace released segments for that call */
  guint ready;        /* frees completed in the trace before this event are ready to be seen */
  guint compared;     /* events before this one have been compared */
  gboolean restoring;
  const BlockHandle *restored; /* handles of the blocks that the trace begins with */
  guint n_restored;
  GArray *pending; /* slots whose free was requested before the trace */
} Driver;

static const TraceSlot *
slot_at(const Driver *driver, gint32 slot)
{
  return &g_array_index(driver->trace->slots, TraceSlot, slot);
}

static ReplayStream *
stream_at(const Driver *driver, int stream)
{
  return &g_array_index(driver->replay->streams, ReplayStream, stream);
}

/* ---- Moments */

static ReplayPhase *
current_phase(const Driver *driver)
{
  const GArray *phases = driver->replay->phases;
  return phases->len > 0 ? &g_array_index(phases, ReplayPhase, phases->len - 1) : NULL;
}

static ReplayMoment
moment(const Driver *driver)
{
  const AllocatorStats *stats = caching_allocator_stats(driver->allocator);
  const ReplayPhase *phase = current_phase(driver);
  return (ReplayMoment){
      .event = (gint32) driver->event,
      .phase = phase ? phase->phase : -1,
      .allocated = stats->allocated_bytes.current,
      .reserved = stats->reserved_bytes.current,
      .active = stats->active_bytes.current,
      .requested = stats->requested_bytes.current,
      .inactive_split = stats->inactive_split_bytes.current,
  };
}

/* Reserved memory may be higher within an allocation than after it. */
static void
note_reserved(Driver *driver)
{
  ReplayPhase *phase = current_phase(driver);
  gint64 reserved = caching_allocator_stats(driver->allocator)->reserved_bytes.current;
  if (phase)
    phase->peak_reserved = MAX(phase->peak_reserved, reserved);
}

static void
note_peaks(Driver *driver)
{
  TraceReplay *replay = driver->replay;
  ReplayMoment now = moment(driver);
  ReplayPhase *phase = current_phase(driver);
  gint64 highest = caching_allocator_stats(driver->allocator)->reserved_bytes.peak;
  note_reserved(driver);
  if (phase)
    phase->peak_allocated = MAX(phase->peak_allocated, now.allocated);
  if (highest > replay->peak_reserved.reserved) {
    replay->peak_reserved = now;
    replay->peak_reserved.reserved = highest;
  }
  if (now.allocated <= replay->peak_allocated.allocated)
    return;
  replay->peak_allocated = now;
  for (guint i = 0; i < replay->streams->len; i++) {
    ReplayStream *stream = stream_at(driver, (int) i);
    stream->allocated_at_peak = stream->allocated;
    stream->reserved_at_peak = stream->reserved;
  }
}

/* Work of other threads, as of autograd's, has no name of its own. */
static void
follow_phase(Driver *driver, const TraceEvent *event)
{
  const AllocationTrace *trace = driver->trace;
  GArray *phases = driver->replay->phases;
  if (event->phase < 0 || *(const char *) g_ptr_array_index(trace->phases, event->phase) == '\0')
    return;
  if (current_phase(driver) && current_phase(driver)->phase == event->phase)
    return;
  ReplayPhase phase = {.phase = event->phase, .first_event = (gint32) driver->event};
  g_array_append_val(phases, phase);
  note_peaks(driver);
}

static void
count_allocated(Driver *driver, int stream, gint64 bytes)
{
  ReplayStream *counters = stream_at(driver, stream);
  counters->allocated += bytes;
  counters->peak_allocated = MAX(counters->peak_allocated, counters->allocated);
}

/* ---- Comparison with the trace's own segment events */

static gboolean
is_segment_event(const TraceEvent *event)
{
  return event->action >= TRACE_SEGMENT_ALLOC && event->action <= TRACE_SEGMENT_UNMAP;
}

static gboolean
is_release(const TraceEvent *event)
{
  return event->action == TRACE_SEGMENT_FREE || event->action == TRACE_SEGMENT_UNMAP;
}

/* What the program does; all else is the allocator's answer, and comes before the call's own event.
 */
static gboolean
is_call(const TraceEvent *event)
{
  return !is_segment_event(event) && event->action != TRACE_FREE_COMPLETED &&
         event->action != TRACE_SNAPSHOT;
}

/* The next segment event of the trace before the next call, or NULL. */
static const TraceEvent *
expected_segment(Driver *driver)
{
  for (; driver->compared < driver->call; driver->compared++) {
    const TraceEvent *event = trace_event(driver->trace, driver->compared);
    if (is_segment_event(event))
      return event;
  }
  return NULL;
}

static char *
describe(const Driver *driver, TraceAction action, int stream, gint64 bytes, guint64 address)
{
  return g_strdup_printf(
      "%s of %" G_GINT64_FORMAT " bytes at %" G_GUINT64_FORMAT " on stream %" G_GUINT64_FORMAT,
      trace_action_name(action), bytes, address, stream_at(driver, stream)->stream);
}

static void
diverge(Driver *driver, guint event, char *trace_did, char *replay_did)
{
  TraceReplay *replay = driver->replay;
  if (!driver->trace->has_segment_events || replay->first_divergence >= 0) {
    g_free(trace_did);
    g_free(replay_did);
    return;
  }
  replay->first_divergence = (gint32) event;
  replay->trace_did = trace_did;
  replay->replay_did = replay_did;
}

static char *
describe_expected(const Driver *driver, const TraceEvent *expected)
{
  if (expected)
    return describe(driver, (TraceAction) expected->action, expected->stream, expected->bytes,
                    expected->address);
  gboolean failed = trace_event(driver->trace, driver->event)->action == TRACE_OUT_OF_MEMORY;
  return g_strdup(failed ? "out of memory" : "nothing");
}

static void
compare_segment(Driver *driver, TraceAction action, int stream, guint64 address, gint64 bytes)
{
  const TraceEvent *expected = expected_segment(driver);
  guint at = expected ? driver->compared : driver->event;
  driver->compared += expected != NULL;
  if (expected && expected->action == action && expected->stream == stream &&
      expected->bytes == bytes && expected->address == address) {
    driver->replay->segment_events_compared++;
    return;
  }
  diverge(driver, at, describe_expected(driver, expected),
          describe(driver, action, stream, bytes, address));
}

/* Best fit takes one block of many: where it differs shows earlier than by segments. */
static void
compare_address(Driver *driver, guint64 expected, guint64 address)
{
  TraceReplay *replay = driver->replay;
  if (!driver->trace->has_segment_events || replay->first_misplaced >= 0 || address == expected)
    return;
  replay->first_misplaced = (gint32) driver->event;
  replay->trace_address = expected;
  replay->replay_address = address;
}

/* What the trace did for this call and the replay did not. */
static void
finish_comparison(Driver *driver)
{
  const TraceEvent *expected = expected_segment(driver);
  if (expected)
    diverge(driver, driver->compared, describe_expected(driver, expected), g_strdup("nothing"));
}

/* ---- The allocator's host */

static guint64
host_record_event(gpointer user, int stream)
{
  Driver *driver = user;
  (void) stream;
  return (guint64) driver->freeing;
}

/* When segments were released for the allocation, the completed frees before it were those it
 * waited for on the way: none of them was ready before. */
static gboolean
host_event_done(gpointer user, guint64 event)
{
  const Driver *driver = user;
  gint32 slot = (gint32) event;
  return driver->slots[slot].waited || slot_at(driver, slot)->completed_at < (gint32) driver->ready;
}

static void
host_synchronize_event(gpointer user, guint64 event)
{
  Driver *driver = user;
  driver->slots[event].waited = TRUE;
}

static void
host_segment(gpointer user, SegmentAction action, int stream, guint64 address, gint64 bytes)
{
  static const TraceAction actions[] = {
      [SEGMENT_ALLOC] = TRACE_SEGMENT_ALLOC,
      [SEGMENT_FREE] = TRACE_SEGMENT_FREE,
      [SEGMENT_MAP] = TRACE_SEGMENT_MAP,
      [SEGMENT_UNMAP] = TRACE_SEGMENT_UNMAP,
  };
  Driver *driver = user;
  ReplayStream *counters = stream_at(driver, stream);
  gboolean comes = action == SEGMENT_ALLOC || action == SEGMENT_MAP;
  counters->reserved += comes ? bytes : -bytes;
  counters->peak_reserved = MAX(counters->peak_reserved, counters->reserved);
  if (driver->restoring)
    return;
  note_reserved(driver);
  compare_segment(driver, actions[action], stream, address, bytes);
}

/* The driver's next address is that of the trace's next new segment, while both agree.  A
 * reservation is made before its first pages are mapped: in between, others may be released for
 * these. */
static gboolean
host_place(gpointer user, int stream, gint64 bytes, guint64 *address)
{
  Driver *driver = user;
  (void) bytes;
  if (driver->replay->first_divergence >= 0)
    return FALSE;
  for (guint i = driver->compared; i < driver->call; i++) {
    const TraceEvent *event = trace_event(driver->trace, i);
    if (event->action != TRACE_SEGMENT_ALLOC && event->action != TRACE_SEGMENT_MAP)
      continue;
    *address = event->address;
    return event->stream == stream;
  }
  return FALSE;
}

/* ---- Events */

static gboolean
fail(Driver *driver, const AllocatorFailure *failure)
{
  driver->replay->out_of_memory_at = (gint32) driver->event;
  driver->replay->failure = *failure;
  note_peaks(driver);
  return FALSE;
}

/* Each returns FALSE when the replay cannot go on. */
static gboolean
replay_alloc(Driver *driver, const TraceEvent *event)
{
  AllocatorFailure failure;
  BlockHandle block =
      caching_allocator_malloc(driver->allocator, event->bytes, event->stream, &failure);
  finish_comparison(driver);
  if (block == BLOCK_NONE) {
    diverge(driver, driver->event, g_strdup("an allocation"), g_strdup("out of memory"));
    return fail(driver, &failure);
  }
  driver->slots[event->slot] = (SlotState){block, event->stream, FALSE};
  compare_address(driver, event->address, caching_allocator_address(driver->allocator, block));
  count_allocated(driver, event->stream, caching_allocator_block_size(driver->allocator, block));
  note_peaks(driver);
  return TRUE;
}

static void
release_slot(Driver *driver, gint32 slot)
{
  BlockHandle block = driver->slots[slot].block;
  int lane = slot_at(driver, slot)->lane;
  count_allocated(driver, driver->slots[slot].stream,
                  -caching_allocator_block_size(driver->allocator, block));
  driver->freeing = slot;
  if (lane >= 0)
    caching_allocator_record_stream(driver->allocator, block,
                                    (int) driver->trace->streams->len + lane);
  caching_allocator_release(driver->allocator, block);
}

static gboolean
replay_free(Driver *driver, const TraceEvent *event)
{
  finish_comparison(driver);
  release_slot(driver, event->slot);
  return TRUE;
}

/* What the next call will make the allocator do, with what was ready before it. */
static MallocOutlook
outlook(Driver *driver)
{
  const AllocationTrace *trace = driver->trace;
  if (driver->call == trace->events->len)
    return MALLOC_REUSES;
  const TraceEvent *call = trace_event(trace, driver->call);
  if (call->action != TRACE_ALLOC && call->action != TRACE_OUT_OF_MEMORY)
    return MALLOC_REUSES;
  driver->ready = driver->group;
  return caching_allocator_outlook(driver->allocator, call->bytes, call->stream);
}

/* Releases in the trace are the next allocation's own doing if the allocator would release for it
 * here; else the program has emptied the cache. */
static gboolean
replay_release(Driver *driver, const TraceEvent *event)
{
  if (driver->releasing || (driver->event > 0 && is_release(event - 1)))
    return TRUE;
  MallocOutlook expected = outlook(driver);
  driver->releasing = expected == MALLOC_COLLECTS || expected == MALLOC_WAITS;
  /* Frees that completed before a collection were ready; those before a wait were waited for. */
  driver->ready = expected == MALLOC_WAITS ? driver->group : driver->event;
  if (!driver->releasing) {
    driver->replay->empty_caches++;
    caching_allocator_empty_cache(driver->allocator);
  }
  return TRUE;
}

static gboolean
replay_empty_cache(Driver *driver, const TraceEvent *event)
{
  (void) event;
  caching_allocator_empty_cache(driver->allocator);
  return TRUE;
}

static gboolean
replay_out_of_memory(Driver *driver, const TraceEvent *event)
{
  AllocatorFailure failure;
  BlockHandle block =
      caching_allocator_malloc(driver->allocator, event->bytes, event->stream, &failure);
  finish_comparison(driver);
  if (block == BLOCK_NONE)
    return fail(driver, &failure);
  /* With more memory than the recording had, its program would have gone on. */
  diverge(driver, driver->event, g_strdup("out of memory"), g_strdup("an allocation"));
  count_allocated(driver, event->stream, caching_allocator_block_size(driver->allocator, block));
  note_peaks(driver);
  return TRUE;
}

static gboolean (*const replay_event[TRACE_ACTION_COUNT])(Driver *driver,
                                                          const TraceEvent *event) = {
    [TRACE_ALLOC] = replay_alloc,
    [TRACE_FREE_REQUESTED] = replay_free,
    [TRACE_SEGMENT_FREE] = replay_release,
    [TRACE_SEGMENT_UNMAP] = replay_release,
    [TRACE_OUT_OF_MEMORY] = replay_out_of_memory,
    [TRACE_EMPTY_CACHE] = replay_empty_cache,
};

static void
replay_events(Driver *driver)
{
  const AllocationTrace *trace = driver->trace;
  gboolean more = TRUE;
  for (guint i = 0; more && i < trace->events->len; i++) {
    const TraceEvent *event = trace_event(trace, i);
    driver->event = i;
    while (driver->call < trace->events->len &&
           (driver->call < i || !is_call(trace_event(trace, driver->call))))
      driver->call++;
    if (!driver->releasing)
      driver->ready = i;
    follow_phase(driver, event);
    if (replay_event[event->action])
      more = replay_event[event->action](driver, event);
    if (is_call(event)) {
      driver->group = driver->ready = i + 1;
      driver->releasing = FALSE;
    }
  }
}

/* ---- Beginning and end */

/* Calls visit for each block that the trace begins with, in order of addresses. */
static void
each_first_block(Driver *driver, void (*visit)(Driver *driver, const TraceSegment *segment,
                                               const TraceBlock *block))
{
  const AllocationTrace *trace = driver->trace;
  for (guint i = 0; i < trace->segments->len; i++) {
    const TraceSegment *segment = &g_array_index(trace->segments, TraceSegment, i);
    for (guint k = 0; k < segment->n_blocks; k++)
      visit(driver, segment, &g_array_index(trace->blocks, TraceBlock, segment->first_block + k));
  }
}

static void
take_handle(Driver *driver, const TraceSegment *segment, const TraceBlock *block)
{
  if (block->slot >= 0)
    driver->slots[block->slot] =
        (SlotState){driver->restored[driver->n_restored++], segment->stream, FALSE};
}

static gboolean
restore(Driver *driver, GError **error)
{
  const AllocationTrace *trace = driver->trace;
  g_autofree RestoredSegment *segments = g_new(RestoredSegment, MAX(trace->segments->len, 1));
  g_autofree RestoredBlock *blocks = g_new(RestoredBlock, MAX(trace->blocks->len, 1));
  g_autofree BlockHandle *restored = g_new(BlockHandle, MAX(trace->slots->len, 1));
  for (guint i = 0; i < trace->blocks->len; i++) {
    const TraceBlock *block = &g_array_index(trace->blocks, TraceBlock, i);
    blocks[i] = (RestoredBlock){block->bytes, block->requested_bytes, block->slot >= 0};
  }
  for (guint i = 0; i < trace->segments->len; i++) {
    const TraceSegment *segment = &g_array_index(trace->segments, TraceSegment, i);
    segments[i] = (RestoredSegment){.address = segment->address,
                                    .stream = segment->stream,
                                    .small_pool = segment->small_pool,
                                    .blocks = blocks + segment->first_block,
                                    .n_blocks = segment->n_blocks,
                                    .reservation_address = segment->reservation_address};
  }
  driver->restoring = TRUE;
  if (!caching_allocator_restore(driver->allocator, segments, trace->segments->len,
                                 trace->reservation_bytes, restored, error)) {
    g_prefix_error(error, "%s: segments_before: ", trace->name);
    return FALSE;
  }
  driver->restoring = FALSE;
  driver->restored = restored;
  each_first_block(driver, take_handle);
  driver->restored = NULL;
  return TRUE;
}

static void
count_first_block(Driver *driver, const TraceSegment *segment, const TraceBlock *block)
{
  if (block->slot >= 0)
    count_allocated(driver, segment->stream, block->bytes);
}

static void
take_pending(Driver *driver, const TraceSegment *segment, const TraceBlock *block)
{
  (void) segment;
  if (block->pending_free)
    g_array_append_val(driver->pending, block->slot);
}

static gint
compare_completion(gconstpointer a, gconstpointer b, gpointer user)
{
  gint32 first = slot_at(user, *(const gint32 *) a)->completed_at;
  gint32 second = slot_at(user, *(const gint32 *) b)->completed_at;
  return (first > second) - (first < second);
}

/* Frees that were under way when the trace began queue in the order in which they complete. */
static void
request_first_frees(Driver *driver)
{
  driver->pending = g_array_new(FALSE, FALSE, sizeof(gint32));
  each_first_block(driver, take_pending);
  g_array_sort_with_data(driver->pending, compare_completion, driver);
  for (guint i = 0; i < driver->pending->len; i++)
    release_slot(driver, g_array_index(driver->pending, gint32, i));
  g_array_free(driver->pending, TRUE);
}

static void
begin(Driver *driver)
{
  TraceReplay *replay = driver->replay;
  each_first_block(driver, count_first_block);
  request_first_frees(driver);
  for (guint i = 0; i < replay->streams->len; i++) {
    ReplayStream *stream = stream_at(driver, (int) i);
    stream->peak_allocated = stream->allocated;
  }
  caching_allocator_reset_peak(driver->allocator);
  note_peaks(driver);
  replay->peak_allocated.event = replay->peak_reserved.event = -1;
}

static void
keep_block(const BlockInfo *info, gpointer user)
{
  g_array_append_vals(user, info, 1);
}

static void
finish(Driver *driver)
{
  TraceReplay *replay = driver->replay;
  replay->stats = *caching_allocator_stats(driver->allocator);
  replay->end = moment(driver);
  for (guint i = 0; i < replay->streams->len; i++)
    stream_at(driver, (int) i)->cached = caching_allocator_cached_bytes(driver->allocator, (int) i);
  caching_allocator_visit(driver->allocator, keep_block, replay->blocks);
}

static TraceReplay *
replay_new(const AllocationTrace *trace)
{
  TraceReplay *replay = g_new0(TraceReplay, 1);
  replay->streams = g_array_new(FALSE, TRUE, sizeof(ReplayStream));
  replay->phases = g_array_new(FALSE, FALSE, sizeof(ReplayPhase));
  replay->blocks = g_array_new(FALSE, FALSE, sizeof(BlockInfo));
  replay->out_of_memory_at = replay->first_divergence = replay->first_misplaced = -1;
  /* A list of frees alone has no stream. */
  g_array_set_size(replay->streams, MAX(trace->streams->len, 1));
  for (guint i = 0; i < trace->streams->len; i++)
    g_array_index(replay->streams, ReplayStream, i).stream =
        g_array_index(trace->streams, guint64, i);
  return replay;
}

void
trace_replay_free(TraceReplay *replay)
{
  if (!replay)
    return;
  g_array_free(replay->streams, TRUE);
  g_array_free(replay->phases, TRUE);
  g_array_free(replay->blocks, TRUE);
  g_free(replay->trace_did);
  g_free(replay->replay_did);
  g_free(replay);
}

TraceReplay *
trace_replay_run(const AllocationTrace *trace, const ReplayOptions *options, GError **error)
{
  g_autoptr(TraceReplay) replay = replay_new(trace);
  g_autofree SlotState *slots = g_new0(SlotState, MAX(trace->slots->len, 1));
  Driver driver = {.trace = trace, .options = options, .replay = replay, .slots = slots};
  const AllocatorHost host = {
      .user = &driver,
      .record_event = host_record_event,
      .event_done = host_event_done,
      .synchronize_event = host_synchronize_event,
      .segment = host_segment,
      .place = options->follow_addresses ? host_place : NULL,
  };
  g_autoptr(CachingAllocator) allocator = caching_allocator_new(&trace->config, &host);
  driver.allocator = allocator;
  if (!restore(&driver, error))
    return NULL;
  begin(&driver);
  replay_events(&driver);
  finish(&driver);
  return g_steal_pointer(&replay);
}
