/* recorder.c - ranges, peaks and memory events of a run, as they happen. */
#include "record/recorder.h"

/* An open range, and where the host is while it is the innermost one. */
typedef struct {
  guint range; /* index into ranges */
  gint32 phase, module;
  gint32 micro_batch;
} Frame;

struct _Recorder {
  Recording *recording;
  RecorderLevel level;
  gpointer user;
  int step;
  gint64 retries_before;             /* of the step's start */
  GArray *frames;                    /* Frame: open ranges, innermost last */
  GArray *births;                    /* guint: memory event that began allocation i */
  gint64 live_bytes[CATEGORY_COUNT]; /* rounded, of what steps made */
  gboolean keeps_gradients;          /* between steps */
  gboolean only_peaks;
  gboolean counts_all; /* not only steps and what is beyond them */
  guint peak_events;   /* how many memory events led to the peak */
  gboolean has_peak;
  gboolean beyond; /* the step (or construction) is over, a phase beyond it has begun */
};

Recorder *
recorder_new(Recording *recording, RecorderLevel level, gpointer user)
{
  Recorder *recorder = g_new0(Recorder, 1);
  recorder->recording = recording;
  recorder->level = level;
  recorder->user = user;
  recorder->frames = g_array_new(FALSE, FALSE, sizeof(Frame));
  recorder->births = g_array_new(FALSE, FALSE, sizeof(guint));
  return recorder;
}

void
recorder_free(Recorder *recorder)
{
  if (recorder == NULL)
    return;
  g_array_unref(recorder->frames);
  g_array_unref(recorder->births);
  g_free(recorder);
}

/* Appending by hand spares a call of memcpy() for each of 10^5 events. */
#define APPEND(array, type, value)                                                                 \
  (g_array_set_size((array), (array)->len + 1),                                                    \
   g_array_index((array), type, (array)->len - 1) = (value))

static void
reserve(GArray *array, guint more)
{
  guint length = array->len;
  g_array_set_size(array, length + more);
  g_array_set_size(array, length);
}

void
recorder_reserve(Recorder *recorder, guint memory, guint ranges, guint spans)
{
  reserve(recorder->recording->memory, memory);
  reserve(recorder->births, memory);
  reserve(recorder->recording->ranges, ranges);
  reserve(recorder->recording->range_events, ranges);
  reserve(recorder->recording->spans, spans);
}

/* Where the host is. */
static Frame
current_frame(const Recorder *recorder)
{
  if (recorder->frames->len == 0)
    return (Frame){.phase = -1, .module = -1, .micro_batch = -1};
  return g_array_index(recorder->frames, Frame, recorder->frames->len - 1);
}

static Range *
frame_range(const Recorder *recorder, guint i)
{
  guint range = g_array_index(recorder->frames, Frame, i).range;
  return &g_array_index(recorder->recording->ranges, Range, range);
}

static StepRecord *
current_step(const Recorder *recorder)
{
  GArray *steps = recorder->recording->steps;
  return &g_array_index(steps, StepRecord, steps->len - 1);
}

/* Reading the level restarts the maxima, so they are given to all that is open: phases and the
 * step. */
static MemoryLevel
read_level(Recorder *recorder)
{
  MemoryLevel level = recorder->level(recorder->user);
  for (guint i = 0; i < recorder->frames->len; i++) {
    Range *range = frame_range(recorder, i);
    if (range->kind != RECORDED_PHASE)
      continue;
    range->peak_allocated = MAX(range->peak_allocated, level.peak_allocated);
    range->peak_reserved = MAX(range->peak_reserved, level.peak_reserved);
  }
  if (recorder->beyond)
    return level;
  gint64 *allocated = &recorder->recording->construction_peak_allocated;
  gint64 *reserved = &recorder->recording->construction_peak_reserved;
  if (recorder->step > 0) {
    allocated = &current_step(recorder)->peak_allocated;
    reserved = &current_step(recorder)->peak_reserved;
  }
  *allocated = MAX(*allocated, level.peak_allocated);
  *reserved = MAX(*reserved, level.peak_reserved);
  return level;
}

/* Remembers this instant if memory was never higher in any step.  Only the instant: who was alive
 * follows from the events, once. */
static void
mark_peak(Recorder *recorder, const MemoryEvent *now)
{
  PeakRecord *peak = &recorder->recording->peak;
  if (recorder->only_peaks || (recorder->step == 0 && !recorder->beyond && !recorder->counts_all) ||
      (recorder->has_peak && now->allocated_after <= peak->allocated))
    return;
  Frame frame = current_frame(recorder);
  recorder->has_peak = TRUE;
  recorder->peak_events = recorder->recording->memory->len;
  peak->step = recorder->step;
  peak->phase = frame.phase;
  peak->module = frame.module >= 0 ? frame.module : now->module;
  peak->micro_batch = frame.micro_batch;
  peak->time = now->time;
  peak->allocated = now->allocated_after;
  peak->reserved = now->reserved_after;
}

void
recorder_keep_only_peaks(Recorder *recorder)
{
  recorder->only_peaks = TRUE;
}

void
recorder_count_all(Recorder *recorder)
{
  recorder->counts_all = TRUE;
}

void
recorder_keep_gradients(Recorder *recorder)
{
  recorder->keeps_gradients = TRUE;
}

/* Gradients that a step made are what zero_grad() drops; everything else stays between steps, and
 * so do gradient buffers of the construction. */
static gint64
at_rest_bytes(const Recorder *recorder, gint64 allocated)
{
  if (recorder->keeps_gradients)
    return allocated;
  return allocated - recorder->live_bytes[CATEGORY_SHARDED_GRADIENT] -
         recorder->live_bytes[CATEGORY_UNSHARDED_GRADIENT];
}

void
recorder_close_ranges(Recorder *recorder, SimTime time)
{
  while (recorder->frames->len > 0)
    recorder_pop(recorder, time);
}

void
recorder_end_construction(Recorder *recorder)
{
  if (recorder->beyond)
    return;
  MemoryLevel level = read_level(recorder);
  recorder->recording->construction_allocated = level.allocated;
  recorder->recording->construction_reserved = level.reserved;
  recorder->recording->at_rest_bytes = at_rest_bytes(recorder, level.allocated);
}

void
recorder_begin_step(Recorder *recorder, SimTime time)
{
  MemoryLevel level = read_level(recorder);
  recorder->beyond = FALSE;
  StepRecord step = {.index = ++recorder->step,
                     .start = time,
                     .end = time,
                     .peak_allocated = level.allocated,
                     .peak_reserved = level.reserved};
  g_array_append_val(recorder->recording->steps, step);
  if (recorder->only_peaks) { /* no range is open between steps */
    g_array_set_size(recorder->recording->ranges, 0);
    g_array_set_size(recorder->recording->range_events, 0);
  }
  recorder->retries_before = level.retries;
  MemoryEvent now = {.time = time,
                     .allocated_after = level.allocated,
                     .reserved_after = level.reserved,
                     .module = -1};
  mark_peak(recorder, &now);
}

void
recorder_end_step(Recorder *recorder, SimTime time)
{
  while (recorder->frames->len > 0)
    recorder_pop(recorder, time);
  if (recorder->beyond)
    return;
  MemoryLevel level = read_level(recorder);
  StepRecord *step = current_step(recorder);
  step->end = time;
  step->end_allocated = level.allocated;
  step->allocator_retries = level.retries - recorder->retries_before;
  recorder->recording->at_rest_bytes = at_rest_bytes(recorder, level.allocated);
}

void
recorder_step_done(Recorder *recorder, guint i, SimTime time)
{
  g_array_index(recorder->recording->steps, StepRecord, i).end = time;
}

void
recorder_push(Recorder *recorder, SimTime time, const Range *range)
{
  Frame frame = current_frame(recorder);
  Range opened = {.start = time,
                  .end = time,
                  .kind = range->kind,
                  .step = (gint16) recorder->step,
                  .micro_batch = range->micro_batch,
                  .name = range->name,
                  .module = range->module};
  if (range->kind == RECORDED_PHASE) {
    MemoryLevel level = read_level(recorder);
    opened.start_allocated = opened.peak_allocated = level.allocated;
    opened.peak_reserved = level.reserved;
    frame.phase = range->name;
    frame.micro_batch = range->micro_batch;
  } else if (range->kind == RECORDED_MODULE) {
    frame.module = range->module >= 0 ? range->module : range->name;
  }
  frame.range = recorder->recording->ranges->len;
  gint32 events = (gint32) recorder->recording->memory->len;
  APPEND(recorder->recording->ranges, Range, opened);
  APPEND(recorder->recording->range_events, RangeEvents, ((RangeEvents){events, events}));
  APPEND(recorder->frames, Frame, frame);
}

void
recorder_begin_beyond(Recorder *recorder, SimTime time, const Range *range)
{
  g_assert(recorder->frames->len == 0);
  if (recorder->step == 0)
    recorder_end_construction(recorder);
  else
    recorder_end_step(recorder, time);
  recorder->beyond = TRUE;
  BeyondRecord beyond = {(gint32) recorder->recording->ranges->len, time, time};
  g_array_append_val(recorder->recording->beyond, beyond);
  recorder_push(recorder, time, range);
}

void
recorder_beyond_done(Recorder *recorder, guint i, SimTime start, SimTime end)
{
  BeyondRecord *beyond = &g_array_index(recorder->recording->beyond, BeyondRecord, i);
  beyond->start = start;
  beyond->end = end;
}

void
recorder_pop(Recorder *recorder, SimTime time)
{
  g_assert(recorder->frames->len > 0);
  Range *range = frame_range(recorder, recorder->frames->len - 1);
  range->end = time;
  if (range->kind == RECORDED_PHASE)
    range->end_allocated = read_level(recorder).allocated;
  const Frame *frame = &g_array_index(recorder->frames, Frame, recorder->frames->len - 1);
  g_array_index(recorder->recording->range_events, RangeEvents, frame->range).end =
      (gint32) recorder->recording->memory->len;
  g_array_set_size(recorder->frames, recorder->frames->len - 1);
}

gint32
recorder_phase(const Recorder *recorder)
{
  for (guint i = recorder->frames->len; i > 0; i--)
    if (frame_range(recorder, i - 1)->kind == RECORDED_PHASE)
      return (gint32) g_array_index(recorder->frames, Frame, i - 1).range + 1;
  return 0;
}

gint32
recorder_hook(const Recorder *recorder)
{
  for (guint i = recorder->frames->len; i > 0; i--)
    if (frame_range(recorder, i - 1)->kind == RECORDED_HOOK)
      return frame_range(recorder, i - 1)->name;
  return -1;
}

gint32
recorder_allocate(Recorder *recorder, const MemoryEvent *event)
{
  GArray *memory = recorder->recording->memory;
  if (recorder->only_peaks)
    return 0;
  guint birth = memory->len;
  gint32 allocation = (gint32) recorder->births->len;
  APPEND(memory, MemoryEvent, *event);
  MemoryEvent *added = &g_array_index(memory, MemoryEvent, birth);
  added->allocation = allocation;
  added->step = (gint16) recorder->step;
  APPEND(recorder->births, guint, birth);
  if (added->step > 0)
    recorder->live_bytes[event->category] += event->block_bytes;
  mark_peak(recorder, added);
  return allocation;
}

void
recorder_release(Recorder *recorder, gint32 allocation, SimTime time, gint64 allocated,
                 gint64 reserved)
{
  GArray *memory = recorder->recording->memory;
  if (recorder->only_peaks)
    return;
  MemoryEvent event =
      g_array_index(memory, MemoryEvent, g_array_index(recorder->births, guint, allocation));
  if (event.step > 0)
    recorder->live_bytes[event.category] -= event.block_bytes;
  event.time = time;
  event.requested_bytes = -event.requested_bytes;
  event.block_bytes = -event.block_bytes;
  event.allocated_after = allocated;
  event.reserved_after = reserved;
  event.step = (gint16) recorder->step;
  APPEND(memory, MemoryEvent, event);
}

void
recorder_segment(Recorder *recorder, const SegmentEvent *event)
{
  GArray *segments = recorder->recording->segments;
  if (recorder->only_peaks)
    return;
  APPEND(segments, SegmentEvent, *event);
  g_array_index(segments, SegmentEvent, segments->len - 1).memory_events =
      (gint32) recorder->recording->memory->len;
}

void
recorder_complete(Recorder *recorder, gint32 allocation, SimTime time)
{
  const Recording *recording = recorder->recording;
  CompletionEvent event = {.time = time,
                           .allocation = allocation,
                           .memory_events = (gint32) recording->memory->len,
                           .segment_events = (gint32) recording->segments->len};
  if (!recorder->only_peaks)
    g_array_append_val(recording->completions, event);
}

void
recorder_span(Recorder *recorder, const Span *span)
{
  GArray *spans = recorder->recording->spans;
  g_assert(spans->len == 0 || g_array_index(spans, Span, spans->len - 1).end <= span->end);
  APPEND(spans, Span, *span);
}

/* When memory runs out before the first step, the construction's highest moment is the run's. */
static void
mark_construction_peak(Recorder *recorder)
{
  PeakRecord *peak = &recorder->recording->peak;
  const GArray *memory = recorder->recording->memory;
  for (guint i = 0; i < memory->len; i++) {
    const MemoryEvent *event = &g_array_index(memory, MemoryEvent, i);
    if (event->allocated_after <= peak->allocated)
      continue;
    recorder->has_peak = TRUE;
    recorder->peak_events = i + 1;
    peak->module = event->module;
    peak->time = event->time;
    peak->allocated = event->allocated_after;
    peak->reserved = event->reserved_after;
  }
}

void
recorder_out_of_memory(Recorder *recorder, const OutOfMemoryRecord *record)
{
  Frame frame = current_frame(recorder);
  OutOfMemoryRecord *out = &recorder->recording->out_of_memory;
  *out = *record;
  out->happened = TRUE;
  out->step = recorder->step;
  out->phase = frame.phase;
  if (frame.module >= 0)
    out->module = frame.module;
  if (!recorder->has_peak)
    mark_construction_peak(recorder);
}

void
recorder_finish(Recorder *recorder)
{
  PeakRecord *peak = &recorder->recording->peak;
  if (!recorder->has_peak)
    return; /* no step ran */
  g_array_unref(peak->live);
  peak->live = recording_live(recorder->recording, recorder->peak_events);
  gint64 sum = 0;
  for (guint i = 0; i < peak->live->len; i++) {
    const LiveTensor *tensor = &g_array_index(peak->live, LiveTensor, i);
    peak->categories[tensor->category] += tensor->bytes;
    sum += tensor->bytes;
  }
  g_assert(sum == peak->allocated);
}
