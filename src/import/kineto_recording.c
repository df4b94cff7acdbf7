/* kineto_recording.c - one device's work, in order and with what the host's side says of it: the
 * Recording of a trace. */
#include "import/kineto_recording.h"

#include <stdlib.h>
#include <string.h>

#include "import/kineto_timeline.h"

#define WORK(timeline, i) (&g_array_index((timeline)->works, TimelineWork, (i)))
#define TRACK(timeline, i) (&g_array_index((timeline)->tracks, TimelineTrack, (i)))

/* ---- which device, which streams ---- */

/* The process of the device that is asked for, or of that with most work; NULL: there is none. */
static const char *
choose_process(const Timeline *timeline, int device)
{
  g_autoptr(GHashTable) works = g_hash_table_new(g_str_hash, g_str_equal);
  g_autofree char *asked = g_strdup_printf("%d", device);
  const char *best = NULL;
  guint most = 0;
  for (guint i = 0; i < timeline->tracks->len; i++) {
    const TimelineTrack *track = TRACK(timeline, i);
    guint sum = GPOINTER_TO_UINT(g_hash_table_lookup(works, track->process)) + track->works;
    g_hash_table_insert(works, track->process, GUINT_TO_POINTER(sum));
    gboolean fits = device < 0 || g_str_equal(track->process, asked);
    if (fits && sum > most) {
      best = track->process;
      most = sum;
    }
  }
  return best;
}

static void
note_others(const Timeline *timeline, const char *process)
{
  guint left = 0;
  for (guint i = 0; i < timeline->tracks->len; i++)
    if (!g_str_equal(TRACK(timeline, i)->process, process))
      left += TRACK(timeline, i)->works;
  if (left > 0)
    g_ptr_array_add(timeline->about->notes,
                    g_strdup_printf("work of other devices than %s is left out (%u kernels, copies "
                                    "and fills): --device chooses another",
                                    process, left));
}

/* "7" and "stream 7" are numbers. */
static gint64
stream_number(const char *thread)
{
  static const char prefix[] = "stream ";
  const char *digits = g_str_has_prefix(thread, prefix) ? thread + sizeof(prefix) - 1 : thread;
  return g_ascii_strtoll(digits, NULL, 10);
}

/* "compute" of "stream 7 compute"; "stream 7" where it has no name of its own. */
static char *
stream_name(const TimelineTrack *track)
{
  gint64 number = stream_number(track->thread);
  g_autofree char *plain = g_strdup_printf("stream %" G_GINT64_FORMAT, number);
  const char *name = track->name != NULL ? track->name : track->thread;
  if (g_str_has_prefix(name, plain))
    name += strlen(plain);
  g_autofree char *own = g_strstrip(g_strdup(name));
  gboolean is_number = own[0] == '\0' || g_str_equal(own, track->thread);
  return is_number ? g_steal_pointer(&plain) : g_steal_pointer(&own);
}

typedef struct {
  guint track;
  gint64 number;
} StreamTrack;

static int
compare_streams(gconstpointer a, gconstpointer b)
{
  const StreamTrack *x = a, *y = b;
  if (x->number != y->number)
    return x->number < y->number ? -1 : 1;
  return (x->track > y->track) - (x->track < y->track);
}

/* Where most computing is done is the compute stream, if no stream has that name. */
static void
name_compute(Timeline *timeline, const guint8 *stream_of)
{
  GPtrArray *streams = timeline->recording->streams;
  g_autofree SimTime *busy = g_new0(SimTime, streams->len + 1);
  guint best = 0;
  for (guint i = 0; i < streams->len; i++)
    if (g_str_equal(g_ptr_array_index(streams, i), "compute"))
      return;
  for (guint i = 0; i < timeline->works->len; i++) {
    const TimelineWork *work = WORK(timeline, i);
    if (stream_of[work->track] < streams->len && work->span.kind == SPAN_KERNEL)
      busy[stream_of[work->track]] += work->span.end - work->span.start;
  }
  for (guint i = 1; i < streams->len; i++)
    best = busy[i] > busy[best] ? i : best;
  g_free(g_ptr_array_index(streams, best));
  streams->pdata[best] = g_strdup("compute");
}

enum { NO_STREAM = 255 };

/* Streams by their numbers, the host's last.  The stream of each track, NO_STREAM: it is not of
 * the device.  NULL and error when there are too many. */
static guint8 *
make_streams(Timeline *timeline, const char *process, const char *file, GError **error)
{
  Recording *recording = timeline->recording;
  g_autoptr(GArray) order = g_array_new(FALSE, FALSE, sizeof(StreamTrack));
  for (guint i = 0; i < timeline->tracks->len; i++) {
    StreamTrack track = {i, stream_number(TRACK(timeline, i)->thread)};
    if (g_str_equal(TRACK(timeline, i)->process, process) &&
        (TRACK(timeline, i)->works > 0 || TRACK(timeline, i)->name != NULL))
      g_array_append_val(order, track);
  }
  if (order->len >= NO_STREAM) {
    g_set_error(error, HIGHWATER_ERROR, HIGHWATER_ERROR_INPUT,
                "%s: device %s has %u streams, %d are allowed", file, process, order->len,
                NO_STREAM - 1);
    return NULL;
  }
  g_array_sort(order, compare_streams);
  guint8 *stream_of = g_malloc(timeline->tracks->len + 1);
  memset(stream_of, NO_STREAM, timeline->tracks->len + 1);
  for (guint i = 0; i < order->len; i++) {
    const StreamTrack *track = &g_array_index(order, StreamTrack, i);
    stream_of[track->track] = (guint8) i;
    g_array_append_val(timeline->numbers, track->number);
    g_ptr_array_add(recording->streams, stream_name(TRACK(timeline, track->track)));
  }
  name_compute(timeline, stream_of);
  g_ptr_array_add(recording->streams, g_strdup("host"));
  g_array_set_size(recording->cached, recording->streams->len);
  memset(recording->cached->data, 0, recording->cached->len * sizeof(gint64));
  return stream_of;
}

/* ---- steps ---- */

static int
compare_steps(gconstpointer a, gconstpointer b)
{
  const TimelineStep *x = a, *y = b;
  return x->begin < y->begin ? -1 : x->begin > y->begin;
}

/* In order, none beginning before the one before ended; all of the trace if it names none. */
static void
order_steps(Timeline *timeline)
{
  GArray *steps = timeline->steps;
  g_array_sort(steps, compare_steps);
  guint kept = 0;
  for (guint i = 0; i < steps->len; i++) {
    TimelineStep step = g_array_index(steps, TimelineStep, i);
    if (kept > 0)
      step.begin = MAX(step.begin, g_array_index(steps, TimelineStep, kept - 1).end);
    if (step.end > step.begin)
      g_array_index(steps, TimelineStep, kept++) = step;
  }
  g_array_set_size(steps, kept);
  if (kept > 0)
    return;
  SimTime end = 1;
  for (guint i = 0; i < timeline->works->len; i++)
    end = MAX(end, WORK(timeline, i)->span.end);
  TimelineStep all = {.end = end, .done = -1};
  g_array_append_val(steps, all);
  g_ptr_array_add(timeline->about->notes,
                  g_strdup("there are no ProfilerStep ranges: all of it is one step"));
}

/* The step in which the host did something; what it did when one began belongs to the one before.
 */
static gint16
step_of(const Timeline *timeline, SimTime time)
{
  return (gint16) timeline_steps_before(timeline, time);
}

/* ---- spans ---- */

static int
compare_calls(gconstpointer a, gconstpointer b)
{
  const TimelineCall *x = a, *y = b;
  return x->correlation < y->correlation ? -1 : x->correlation > y->correlation;
}

static const TimelineCall *
find_call(const Timeline *timeline, gint64 correlation)
{
  TimelineCall key = {.correlation = correlation};
  guint at;
  if (correlation <= 0 || !g_array_binary_search(timeline->calls, &key, compare_calls, &at))
    return NULL;
  return &g_array_index(timeline->calls, TimelineCall, at);
}

/* Ranges of a kind in the order in which they begin: indices. */
static GArray *
ranges_of_kind(const Recording *recording, RecordedRange kind)
{
  GArray *order = g_array_new(FALSE, FALSE, sizeof(guint));
  for (guint i = 0; i < recording->ranges->len; i++)
    if (g_array_index(recording->ranges, Range, i).kind == kind)
      g_array_append_val(order, i);
  return order;
}

/* 1 + index of the phase in which the host was; what it did when one began belongs to the one that
 * ended then, if one did and begun (a name, or -1) does not say that it was in the new one. */
static gint32
phase_of(const Recording *recording, const GArray *phases, SimTime time, gint32 begun)
{
  gint32 found = 0;
  guint low = 0, high = phases->len;
  while (low < high) {
    guint middle = low + (high - low) / 2;
    const Range *range =
        &g_array_index(recording->ranges, Range, g_array_index(phases, guint, middle));
    if (range->start <= time)
      low = middle + 1;
    else
      high = middle;
  }
  for (guint i = low; i > 0 && i + 4 > low; i--) {
    guint index = g_array_index(phases, guint, i - 1);
    const Range *range = &g_array_index(recording->ranges, Range, index);
    if (range->start == time && begun >= 0 && range->name == begun)
      return (gint32) index + 1;
    if (range->start < time && time <= range->end)
      return (gint32) index + 1;
    if (range->start == time && found == 0)
      found = (gint32) index + 1;
  }
  return found;
}

/* The innermost call of a module at each launch. */
static void
set_modules(Recording *recording, GArray *spans)
{
  g_autoptr(GArray) modules = ranges_of_kind(recording, RECORDED_MODULE);
  for (guint i = 0; modules->len > 0 && i < spans->len; i++) {
    Span *span = &g_array_index(spans, Span, i);
    guint low = 0, high = modules->len;
    if (span->module >= 0 || span->issued == 0 || span->kind > SPAN_COLLECTIVE)
      continue;
    while (low < high) {
      guint middle = low + (high - low) / 2;
      const Range *range =
          &g_array_index(recording->ranges, Range, g_array_index(modules, guint, middle));
      if (range->start < span->issued)
        low = middle + 1;
      else
        high = middle;
    }
    /* Modules nest a few deep, and those that are over are passed. */
    for (guint k = low; k > 0 && k + 64 > low && span->module < 0; k--) {
      const Range *range =
          &g_array_index(recording->ranges, Range, g_array_index(modules, guint, k - 1));
      if (range->end >= span->issued)
        span->module = range->module;
    }
  }
}

typedef struct {
  Span span;
  guint order;
} OrderedSpan;

static int
compare_spans(gconstpointer a, gconstpointer b)
{
  const OrderedSpan *x = a, *y = b;
  if (x->span.end != y->span.end)
    return x->span.end < y->span.end ? -1 : 1;
  return (x->order > y->order) - (x->order < y->order);
}

static void
add_span(GArray *spans, const Span *span)
{
  OrderedSpan ordered = {*span, spans->len};
  g_array_append_val(spans, ordered);
}

static void
add_works(Timeline *timeline, const guint8 *stream_of, GArray *spans)
{
  g_autoptr(GArray) phases = ranges_of_kind(timeline->recording, RECORDED_PHASE);
  for (guint i = 0; i < timeline->works->len; i++) {
    const TimelineWork *work = WORK(timeline, i);
    Span span = work->span;
    if (stream_of[work->track] == NO_STREAM)
      continue;
    const TimelineCall *call = find_call(timeline, work->correlation);
    span.issued = call != NULL ? MIN(call->done, span.start) : 0;
    SimTime when = call != NULL ? span.issued : span.start;
    span.stream = stream_of[work->track];
    span.step = step_of(timeline, when);
    span.phase = call != NULL ? phase_of(timeline->recording, phases, when, work->phase) : 0;
    add_span(spans, &span);
  }
}

/* From the second step on there should be no more need for segments. */
static gboolean
is_lost(const Timeline *timeline, const Span *span)
{
  const char *name = recording_text(timeline->recording, span->name);
  gboolean waits = strstr(name, "Synchronize") != NULL;
  return span->step > 1 && !waits;
}

static void
add_held(Timeline *timeline, GArray *spans)
{
  g_autoptr(GArray) phases = ranges_of_kind(timeline->recording, RECORDED_PHASE);
  for (guint i = 0; i < timeline->held->len; i++) {
    const TimelineHeld *held = &g_array_index(timeline->held, TimelineHeld, i);
    Span span = held->span;
    span.stream = (guint8) (timeline->recording->streams->len - 1);
    span.step = step_of(timeline, MAX(span.start, 0) + 1);
    span.phase = phase_of(timeline->recording, phases, span.start, held->phase);
    span.kind = is_lost(timeline, &span) ? SPAN_LOST : SPAN_HOST_BLOCKED;
    add_span(spans, &span);
  }
}

static void
make_spans(Timeline *timeline, const guint8 *stream_of)
{
  Recording *recording = timeline->recording;
  g_autoptr(GArray) spans = g_array_new(FALSE, FALSE, sizeof(OrderedSpan));
  g_array_sort(timeline->calls, compare_calls);
  add_works(timeline, stream_of, spans);
  add_held(timeline, spans);
  g_array_sort(spans, compare_spans);
  for (guint i = 0; i < spans->len; i++)
    g_array_append_val(recording->spans, g_array_index(spans, OrderedSpan, i).span);
  set_modules(recording, recording->spans);
}

/* A step is done when all that it issued is. */
static void
end_steps(Timeline *timeline)
{
  Recording *recording = timeline->recording;
  guint n = recording->steps->len;
  g_autofree SimTime *ends = g_new0(SimTime, n + 1);
  for (guint i = 0; i < recording->spans->len; i++) {
    const Span *span = &g_array_index(recording->spans, Span, i);
    if (!recording_is_beyond(recording, span->phase - 1))
      ends[MIN((guint) span->step, n)] = MAX(ends[MIN((guint) span->step, n)], span->end);
  }
  for (guint i = 0; i < n; i++) {
    StepRecord *step = &g_array_index(recording->steps, StepRecord, i);
    const TimelineStep *said = &g_array_index(timeline->steps, TimelineStep, i);
    step->end = said->done >= said->begin ? said->done : MAX(said->end, ends[i + 1]);
    step->allocator_retries = said->retries;
    if (i > 0)
      step->end = MAX(step->end, step[-1].end);
  }
}

/* ---- waits ---- */

static gboolean
work_ends_at(const Recording *recording, SimTime time)
{
  guint low = 0, high = recording->spans->len;
  while (low < high) {
    guint middle = low + (high - low) / 2;
    if (g_array_index(recording->spans, Span, middle).end < time)
      low = middle + 1;
    else
      high = middle;
  }
  for (; low < recording->spans->len; low++) {
    const Span *span = &g_array_index(recording->spans, Span, low);
    if (span->end != time)
      return FALSE;
    if (span->kind <= SPAN_COLLECTIVE)
      return TRUE;
  }
  return FALSE;
}

static SimTime
call_done(const Timeline *timeline, gint64 correlation)
{
  const TimelineCall *call = find_call(timeline, correlation);
  return call != NULL ? call->done : 0;
}

/* The call that a wait of the host is in. */
static const TimelineHeld *
held_around(const Timeline *timeline, const TimelineSync *sync)
{
  for (guint i = 0; i < timeline->held->len; i++) {
    const TimelineHeld *held = &g_array_index(timeline->held, TimelineHeld, i);
    if (held->span.start <= sync->begin && sync->end <= held->drawn_end)
      return held;
  }
  return NULL;
}

static int
compare_waits(gconstpointer a, gconstpointer b)
{
  const Wait *x = a, *y = b;
  if (x->end != y->end)
    return x->end < y->end ? -1 : 1;
  return x->stream != y->stream ? x->stream - y->stream
                                : (x->start > y->start) - (x->start < y->start);
}

/* Of "cuda_sync" events those that say when the wait was over: CUPTI's say when it was called. */
static void
make_waits(Timeline *timeline)
{
  Recording *recording = timeline->recording;
  for (guint i = 0; i < timeline->syncs->len; i++) {
    const TimelineSync *sync = &g_array_index(timeline->syncs, TimelineSync, i);
    const TimelineHeld *held = sync->is_stream ? NULL : held_around(timeline, sync);
    int source = timeline_stream(timeline, sync->source);
    int stream = sync->is_stream ? timeline_stream(timeline, sync->stream)
                                 : (int) recording->streams->len - 1;
    if (source < 0 || stream < 0 || (!sync->is_stream && held == NULL))
      continue;
    Wait wait = {.start = held != NULL ? held->span.start : sync->begin,
                 .end = held != NULL ? held->span.end : sync->end,
                 .recorded = call_done(timeline, sync->record),
                 .stream = (guint8) stream,
                 .source = (guint8) source};
    wait.issued = held != NULL ? wait.start : call_done(timeline, sync->correlation);
    wait.step = step_of(timeline, MAX(wait.issued, held != NULL ? wait.start + 1 : 0));
    if (wait.issued >= 0 && wait.recorded >= 0 && work_ends_at(recording, wait.end))
      g_array_append_val(recording->waits, wait);
  }
  g_array_sort(recording->waits, compare_waits);
}

/* ---- all ---- */

static void
set_title(Timeline *timeline, const char *file)
{
  const char *name = timeline->title[0] != '\0' ? timeline->title : file;
  g_autofree char *title = g_path_get_basename(name);
  static const char *const suffixes[] = {".gz", ".json", ".pt.trace"};
  for (guint i = 0; i < G_N_ELEMENTS(suffixes); i++)
    if (g_str_has_suffix(title, suffixes[i]) && strlen(title) > strlen(suffixes[i]))
      title[strlen(title) - strlen(suffixes[i])] = '\0';
  g_free(timeline->recording->title);
  timeline->recording->title = g_utf8_make_valid(title, -1);
}

static gboolean
check_steps(const Timeline *timeline, const char *file, GError **error)
{
  if (timeline->steps->len <= G_MAXINT16)
    return TRUE;
  g_set_error(error, HIGHWATER_ERROR, HIGHWATER_ERROR_INPUT, "%s: %u steps, %d are allowed", file,
              timeline->steps->len, G_MAXINT16);
  return FALSE;
}

static gboolean
make_recording(Timeline *timeline, const char *process, const char *file, GError **error)
{
  gint64 memory = timeline->about->machine.memory_bytes;
  gint64 outside = CLAMP(timeline->about->machine.outside_bytes, 0, memory);
  g_autofree guint8 *stream_of = make_streams(timeline, process, file, error);
  if (stream_of == NULL)
    return FALSE;
  note_others(timeline, process);
  set_title(timeline, file);
  timeline->recording->capacity_bytes = memory > 0 ? memory - outside : G_MAXINT64;
  timeline->recording->outside_allocator_bytes = outside;
  order_steps(timeline);
  if (!check_steps(timeline, file, error))
    return FALSE;
  timeline_infer_phases(timeline);
  timeline_play_host(timeline, g_ascii_isdigit(process[0]) ? atoi(process) : -1);
  make_spans(timeline, stream_of);
  end_steps(timeline);
  make_waits(timeline);
  return TRUE;
}

Recording *
kineto_recording_read(ByteSource *source, int device, KinetoAbout *about, GError **error)
{
  g_autoptr(Timeline) timeline = timeline_new(about);
  if (!timeline_read(timeline, source, error))
    return NULL;
  const char *process = choose_process(timeline, device);
  if (process == NULL) {
    g_set_error(error, HIGHWATER_ERROR, HIGHWATER_ERROR_INPUT,
                device >= 0 ? "%s: no kernel, copy or fill ran on device %d"
                            : "%s: no kernel, copy or fill of a GPU is in it",
                source->name, device);
    return NULL;
  }
  if (!make_recording(timeline, process, source->name, error))
    return NULL;
  const char *key;
  g_autofree char *wrong = recording_check(timeline->recording, &key);
  g_assert(wrong == NULL);
  return g_steal_pointer(&timeline->recording);
}

Recording *
kineto_recording_load(const char *path, int device, KinetoAbout *about, GError **error)
{
  g_autoptr(ByteSource) source = byte_source_open(path, error);
  if (source == NULL)
    return NULL;
  source->limit = KINETO_BYTE_LIMIT;
  return kineto_recording_read(source, device, about, error);
}
