/* trace_replay.c - drives the caching allocator by the events of a trace, step by step beside it.
 */
#include "import/trace_replay.h"
#include "base/units.h"
#include "import/trace_replay_internal.h"
#include "memory/allocator_restore.h"

/* ---- The allocator's host */

static guint64
host_record_event(gpointer user, int stream)
{
  ReplayDriver *driver = user;
  (void) stream;
  return (guint64) driver->freeing;
}

/* When segments were released for the allocation, the completed frees before it were those it
 * waited for on the way: none of them was ready before. */
static gboolean
host_event_done(gpointer user, guint64 event)
{
  const ReplayDriver *driver = user;
  gint32 slot = (gint32) event;
  return driver->slots[slot].waited ||
         replay_slot(driver, slot)->completed_at < (gint32) driver->ready;
}

static void
host_synchronize_event(gpointer user, guint64 event)
{
  ReplayDriver *driver = user;
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
  ReplayDriver *driver = user;
  ReplayStream *counters = replay_stream(driver, stream);
  gboolean comes = action == SEGMENT_ALLOC || action == SEGMENT_MAP;
  counters->reserved += comes ? bytes : -bytes;
  counters->peak_reserved = MAX(counters->peak_reserved, counters->reserved);
  if (driver->restoring)
    return;
  trace_moments_note_reserved(driver);
  trace_compare_segment(driver, actions[action], stream, address, bytes);
}

/* The driver's next address is that of the trace's next new segment, while both agree.  A
 * reservation is made before its first pages are mapped: in between, others may be released for
 * these. */
static gboolean
host_place(gpointer user, int stream, gint64 bytes, guint64 *address)
{
  ReplayDriver *driver = user;
  (void) bytes;
  if (driver->replay->first_divergence >= 0)
    return FALSE;
  for (guint i = driver->compared; i < driver->call; i++) {
    const TraceEvent *event = trace_event(driver->trace, i);
    if (!trace_event_is_growth(event))
      continue;
    *address = event->address;
    return event->stream == stream;
  }
  return FALSE;
}

/* ---- Events */

static gboolean
fail(ReplayDriver *driver, const AllocatorFailure *failure)
{
  driver->replay->out_of_memory_at = (gint32) driver->event;
  driver->replay->failure = *failure;
  trace_moments_note_peaks(driver);
  return FALSE;
}

/* Each returns FALSE when the replay cannot go on. */
static gboolean
replay_alloc(ReplayDriver *driver, const TraceEvent *event)
{
  AllocatorFailure failure;
  BlockHandle block =
      caching_allocator_malloc(driver->allocator, event->bytes, event->stream, &failure);
  trace_compare_finish(driver);
  if (block == BLOCK_NONE) {
    trace_compare_diverge(driver, driver->event, g_strdup("an allocation"),
                          g_strdup("out of memory"));
    return fail(driver, &failure);
  }
  driver->slots[event->slot] = (SlotState){block, event->stream, FALSE};
  trace_compare_address(driver, event->address,
                        caching_allocator_address(driver->allocator, block));
  gint64 bytes = caching_allocator_block_size(driver->allocator, block);
  if (caching_allocator_address(driver->allocator, block) == event->address)
    driver->replay->slot_bytes[event->slot] = bytes;
  trace_moments_count(driver, event->stream, bytes);
  trace_moments_note_peaks(driver);
  return TRUE;
}

static void
release_slot(ReplayDriver *driver, gint32 slot)
{
  BlockHandle block = driver->slots[slot].block;
  int lane = replay_slot(driver, slot)->lane;
  trace_moments_count(driver, driver->slots[slot].stream,
                      -caching_allocator_block_size(driver->allocator, block));
  driver->freeing = slot;
  if (lane >= 0)
    caching_allocator_record_stream(driver->allocator, block,
                                    (int) driver->trace->streams->len + lane);
  caching_allocator_release(driver->allocator, block);
}

static gboolean
replay_free(ReplayDriver *driver, const TraceEvent *event)
{
  trace_compare_finish(driver);
  release_slot(driver, event->slot);
  return TRUE;
}

/* What the next call will make the allocator do, with what was ready before it. */
static MallocOutlook
outlook(ReplayDriver *driver)
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
replay_release(ReplayDriver *driver, const TraceEvent *event)
{
  if (driver->releasing || (driver->event > 0 && trace_event_is_release(event - 1)))
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
replay_empty_cache(ReplayDriver *driver, const TraceEvent *event)
{
  (void) event;
  caching_allocator_empty_cache(driver->allocator);
  return TRUE;
}

static gboolean
replay_out_of_memory(ReplayDriver *driver, const TraceEvent *event)
{
  AllocatorFailure failure;
  BlockHandle block =
      caching_allocator_malloc(driver->allocator, event->bytes, event->stream, &failure);
  trace_compare_finish(driver);
  if (block == BLOCK_NONE)
    return fail(driver, &failure);
  /* With more memory than the recording had, its program would have gone on. */
  trace_compare_diverge(driver, driver->event, g_strdup("out of memory"),
                        g_strdup("an allocation"));
  trace_moments_count(driver, event->stream,
                      caching_allocator_block_size(driver->allocator, block));
  trace_moments_note_peaks(driver);
  return TRUE;
}

static gboolean (*const replay_event[TRACE_ACTION_COUNT])(ReplayDriver *driver,
                                                          const TraceEvent *event) = {
    [TRACE_ALLOC] = replay_alloc,
    [TRACE_FREE_REQUESTED] = replay_free,
    [TRACE_SEGMENT_FREE] = replay_release,
    [TRACE_SEGMENT_UNMAP] = replay_release,
    [TRACE_OUT_OF_MEMORY] = replay_out_of_memory,
    [TRACE_EMPTY_CACHE] = replay_empty_cache,
};

static void
replay_events(ReplayDriver *driver)
{
  const AllocationTrace *trace = driver->trace;
  gboolean more = TRUE;
  for (guint i = 0; more && i < trace->events->len; i++) {
    const TraceEvent *event = trace_event(trace, i);
    driver->event = i;
    while (driver->call < trace->events->len &&
           (driver->call < i || !trace_event_is_call(trace_event(trace, driver->call))))
      driver->call++;
    if (!driver->releasing)
      driver->ready = i;
    trace_moments_follow_phase(driver, event);
    if (replay_event[event->action])
      more = replay_event[event->action](driver, event);
    if (trace_event_is_call(event)) {
      driver->group = driver->ready = i + 1;
      driver->releasing = FALSE;
    }
  }
}

/* ---- Beginning and end */

/* Calls visit for each block that the trace begins with, in order of addresses. */
static void
each_first_block(ReplayDriver *driver,
                 void (*visit)(ReplayDriver *driver, const TraceSegment *segment,
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
take_handle(ReplayDriver *driver, const TraceSegment *segment, const TraceBlock *block)
{
  if (block->slot >= 0)
    driver->slots[block->slot] =
        (SlotState){driver->restored[driver->n_restored++], segment->stream, FALSE};
}

static gboolean
restore(ReplayDriver *driver, GError **error)
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
count_first_block(ReplayDriver *driver, const TraceSegment *segment, const TraceBlock *block)
{
  if (block->slot >= 0)
    trace_moments_count(driver, segment->stream, block->bytes);
}

static void
take_pending(ReplayDriver *driver, const TraceSegment *segment, const TraceBlock *block)
{
  (void) segment;
  if (block->pending_free)
    g_array_append_val(driver->pending, block->slot);
}

static gint
compare_completion(gconstpointer a, gconstpointer b, gpointer user)
{
  gint32 first = replay_slot(user, *(const gint32 *) a)->completed_at;
  gint32 second = replay_slot(user, *(const gint32 *) b)->completed_at;
  return (first > second) - (first < second);
}

/* Frees that were under way when the trace began queue in the order in which they complete. */
static void
request_first_frees(ReplayDriver *driver)
{
  driver->pending = g_array_new(FALSE, FALSE, sizeof(gint32));
  each_first_block(driver, take_pending);
  g_array_sort_with_data(driver->pending, compare_completion, driver);
  for (guint i = 0; i < driver->pending->len; i++)
    release_slot(driver, g_array_index(driver->pending, gint32, i));
  g_array_free(driver->pending, TRUE);
}

static void
begin(ReplayDriver *driver)
{
  TraceReplay *replay = driver->replay;
  each_first_block(driver, count_first_block);
  request_first_frees(driver);
  for (guint i = 0; i < replay->streams->len; i++) {
    ReplayStream *stream = replay_stream(driver, (int) i);
    stream->peak_allocated = stream->allocated;
  }
  caching_allocator_reset_peak(driver->allocator);
  trace_moments_note_peaks(driver);
  /* Peaks of nothing are moments too: the first allocation may already fail. */
  replay->peak_allocated = trace_moments_now(driver);
  replay->peak_allocated.event = -1;
  replay->peak_reserved = replay->peak_allocated;
}

static void
keep_block(const BlockInfo *info, gpointer user)
{
  g_array_append_vals(user, info, 1);
}

static void
finish(ReplayDriver *driver)
{
  TraceReplay *replay = driver->replay;
  replay->stats = *caching_allocator_stats(driver->allocator);
  trace_moments_finish(driver);
  for (guint i = 0; i < replay->streams->len; i++)
    replay_stream(driver, (int) i)->cached =
        caching_allocator_cached_bytes(driver->allocator, (int) i);
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
  replay->slot_bytes = g_new0(gint64, trace->slots->len + 1);
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
  g_free(replay->slot_bytes);
  g_free(replay->trace_did);
  g_free(replay->replay_did);
  g_free(replay);
}

TraceReplay *
trace_replay_run(const AllocationTrace *trace, const ReplayOptions *options, GError **error)
{
  g_autoptr(TraceReplay) replay = replay_new(trace);
  g_autofree SlotState *slots = g_new0(SlotState, MAX(trace->slots->len, 1));
  ReplayDriver driver = {.trace = trace, .replay = replay, .slots = slots};
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
