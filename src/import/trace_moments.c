/* trace_moments.c - where a replay is and what its highest points were: of all, streams and phases.
 */
#include "import/trace_replay_internal.h"

static ReplayPhase *
current_phase(const ReplayDriver *driver)
{
  const GArray *phases = driver->replay->phases;
  return phases->len > 0 ? &g_array_index(phases, ReplayPhase, phases->len - 1) : NULL;
}

ReplayMoment
trace_moments_now(const ReplayDriver *driver)
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

void
trace_moments_note_reserved(ReplayDriver *driver)
{
  ReplayPhase *phase = current_phase(driver);
  gint64 reserved = caching_allocator_stats(driver->allocator)->reserved_bytes.current;
  if (phase)
    phase->peak_reserved = MAX(phase->peak_reserved, reserved);
}

void
trace_moments_note_peaks(ReplayDriver *driver)
{
  TraceReplay *replay = driver->replay;
  ReplayMoment now = trace_moments_now(driver);
  ReplayPhase *phase = current_phase(driver);
  gint64 highest = caching_allocator_stats(driver->allocator)->reserved_bytes.peak;
  trace_moments_note_reserved(driver);
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
    ReplayStream *stream = replay_stream(driver, (int) i);
    stream->allocated_at_peak = stream->allocated;
    stream->reserved_at_peak = stream->reserved;
  }
}

/* Work of other threads, as of autograd's, has no name of its own. */
void
trace_moments_follow_phase(ReplayDriver *driver, const TraceEvent *event)
{
  const AllocationTrace *trace = driver->trace;
  GArray *phases = driver->replay->phases;
  if (event->phase < 0 || *(const char *) g_ptr_array_index(trace->phases, event->phase) == '\0')
    return;
  if (current_phase(driver) && current_phase(driver)->phase == event->phase)
    return;
  ReplayPhase phase = {.phase = event->phase, .first_event = (gint32) driver->event};
  /* What happened before any phase belongs to the first. */
  if (phases->len == 0) {
    phase.peak_allocated = caching_allocator_stats(driver->allocator)->allocated_bytes.peak;
    phase.peak_reserved = caching_allocator_stats(driver->allocator)->reserved_bytes.peak;
  }
  g_array_append_val(phases, phase);
  trace_moments_note_peaks(driver);
}

void
trace_moments_count(ReplayDriver *driver, int stream, gint64 bytes)
{
  ReplayStream *counters = replay_stream(driver, stream);
  counters->allocated += bytes;
  counters->peak_allocated = MAX(counters->peak_allocated, counters->allocated);
}

/* How many phases are those of complete steps: up to the last one of the first one's name. */
static guint
complete_phases(const TraceReplay *replay)
{
  guint count = replay->phases->len;
  if (replay->out_of_memory_at < 0 || count == 0)
    return count;
  gint32 name = g_array_index(replay->phases, ReplayPhase, 0).phase;
  do
    count--;
  while (g_array_index(replay->phases, ReplayPhase, count).phase != name);
  return count > 0 ? count : replay->phases->len;
}

void
trace_moments_finish(ReplayDriver *driver)
{
  TraceReplay *replay = driver->replay;
  guint complete = complete_phases(replay);
  replay->end = trace_moments_now(driver);
  if (complete == replay->phases->len) {
    replay->complete_peak_allocated = replay->stats.allocated_bytes.peak;
    replay->complete_peak_reserved = replay->stats.reserved_bytes.peak;
    return;
  }
  for (guint i = 0; i < complete; i++) {
    const ReplayPhase *phase = &g_array_index(replay->phases, ReplayPhase, i);
    replay->complete_peak_allocated = MAX(replay->complete_peak_allocated, phase->peak_allocated);
    replay->complete_peak_reserved = MAX(replay->complete_peak_reserved, phase->peak_reserved);
  }
}
