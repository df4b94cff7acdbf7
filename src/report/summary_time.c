/* summary_time.c - where the last complete step's time went, from its spans. */
#include "report/interval_set.h"
#include "report/summary_parts.h"

/* The step as sets of moments. */
typedef struct {
  SimTime start, end;
  int index;
  int compute_stream;
  gboolean has_spans;
  gint32 rate_limiter;  /* string id of the hook */
  SimTime compute_done; /* end of the compute stream's last work so far */
  SimTime limited;      /* since then the limiter held the host up from here on; -1: it did not */
  IntervalSet *compute, *collectives, *waits; /* waits: of collectives, for other ranks */
  IntervalSet *lost; /* the host is in cudaMalloc or cudaFree, or waits there for the device */
  GPtrArray *lanes;  /* IntervalSet *: when each of model->communication runs, parallel to it */
} StepTimes;

int
summary_stream(const Recording *recording, StreamId stream)
{
  for (guint i = 0; i < recording->streams->len; i++)
    if (g_str_equal(g_ptr_array_index(recording->streams, i), program_stream_name(stream)))
      return (int) i;
  return -1;
}

gboolean
summary_is_compute(const Span *span, int compute_stream)
{
  return span->stream == compute_stream && (span->kind == SPAN_KERNEL || span->kind == SPAN_COPY);
}

static const CommunicatorInfo *
find_communicator(const RunInfo *info, const char *name)
{
  for (guint i = 0; i < info->communicators->len; i++) {
    const CommunicatorInfo *communicator = &g_array_index(info->communicators, CommunicatorInfo, i);
    if (g_str_equal(communicator->name, name))
      return communicator;
  }
  return NULL;
}

/* Position of a collective's communicator and kind in model->communication, new when it is the
 * first. */
static guint
find_lane(ReportModel *model, StepTimes *times, const Span *span)
{
  const char *communicator = report_text(model->recording, span->communicator, "");
  const char *collective = report_text(model->recording, span->name, "");
  for (guint i = 0; i < model->communication->len; i++) {
    const CommunicationSummary *known =
        &g_array_index(model->communication, CommunicationSummary, i);
    if (g_str_equal(known->communicator, communicator) &&
        g_str_equal(known->collective, collective))
      return i;
  }
  CommunicationSummary summary = {
      .communicator = communicator,
      .collective = collective,
      .info = find_communicator(model->info, communicator),
  };
  g_array_append_val(model->communication, summary);
  g_ptr_array_add(times->lanes, interval_set_new());
  return model->communication->len - 1;
}

/* A gap of the compute stream in which a rate limiter let the host go was made by it, from the
 * moment on when it stopped the host: nothing could be issued before. */
static void
add_gap(TimeSummary *time, StepTimes *times, SimTime start, SimTime end)
{
  if (times->limited >= 0)
    time->rate_limited += MAX(start - MAX(times->limited, times->compute_done), 0);
  times->compute_done = end;
  times->limited = -1;
}

static void
add_host_wait(StepTimes *times, const Span *span, SimTime start)
{
  if (span->module == times->rate_limiter && times->limited < 0)
    times->limited = start;
}

static void
add_copy(CopySummary *copies, const Span *span)
{
  copies->count++;
  copies->bytes += span->bytes;
  copies->time += span->end - span->start;
}

/* What a span took longer than it does alone. */
static SimTime
slowed_by(const Span *span)
{
  SimTime duration = span->end - span->start;
  return span->alone > 0 ? MAX(duration - span->alone, 0) : 0;
}

static void
add_span(ReportModel *model, StepTimes *times, const Span *span)
{
  SimTime start = CLAMP(span->start, times->start, times->end);
  SimTime end = CLAMP(span->end, times->start, times->end);
  if (span->kind == SPAN_COPY)
    add_copy(&model->copies, span);
  if (span->kind == SPAN_COLLECTIVE) {
    guint lane = find_lane(model, times, span);
    CommunicationSummary *summary =
        &g_array_index(model->communication, CommunicationSummary, lane);
    summary->count++;
    summary->bytes += span->bytes;
    summary->time += span->end - span->start;
    summary->contention += slowed_by(span);
    interval_set_add(g_ptr_array_index(times->lanes, lane), start, end);
    interval_set_add(times->collectives, start, end);
    if (span->arrived > 0 && span->arrived < span->start)
      interval_set_add(times->waits, CLAMP(span->arrived, times->start, times->end), start);
  } else if (summary_is_compute(span, times->compute_stream)) {
    interval_set_add(times->compute, start, end);
    model->time.compute_contention += slowed_by(span);
    add_gap(&model->time, times, start, end);
  } else if (span->kind == SPAN_LOST) {
    interval_set_add(times->lost, start, end);
  } else if (span->kind == SPAN_HOST_BLOCKED && span->module >= 0) {
    add_host_wait(times, span, start);
  }
}

static Bound
largest_share(const TimeSummary *time)
{
  const SimTime shares[] = {[BOUND_COMPUTE] = time->compute,
                            [BOUND_COMMUNICATION] = time->exposed,
                            [BOUND_RANKS] = time->rank_wait,
                            [BOUND_HOST] = time->host_bound};
  guint largest = BOUND_COMPUTE;
  for (guint i = 0; i < G_N_ELEMENTS(shares); i++)
    if (shares[i] > shares[largest])
      largest = i;
  return (Bound) largest;
}

/* While a collective waits for other ranks and nothing else goes on. */
static SimTime
time_of_waits(const StepTimes *times)
{
  g_autoptr(IntervalSet) busy = interval_set_new();
  interval_set_join(busy, times->compute);
  interval_set_join(busy, times->collectives);
  return interval_set_length(times->waits) - interval_set_overlap(times->waits, busy);
}

static void
fill_time(ReportModel *model, const StepTimes *times)
{
  const RunInfo *info = model->info;
  TimeSummary *time = &model->time;
  time->known = TRUE;
  time->is_split = times->has_spans;
  time->step = times->end - times->start;
  time->compute = interval_set_length(times->compute);
  time->communication = interval_set_length(times->collectives);
  time->exposed = time->communication - interval_set_overlap(times->collectives, times->compute);
  time->rank_wait = time_of_waits(times);
  SimTime known = time->compute + time->exposed + time->rank_wait;
  time->host_bound = times->has_spans ? time->step - known : 0;
  time->allocator =
      interval_set_length(times->lost) - interval_set_overlap(times->lost, times->compute);
  time->bound = largest_share(time);
  double seconds = (double) time->step * 1e-9;
  if (seconds <= 0)
    return;
  time->tokens_per_s = (double) info->tokens_per_step / seconds;
  if (info->peak_flops > 0) {
    time->mfu = info->model_flops / seconds / info->peak_flops;
    time->hfu = info->hardware_flops / seconds / info->peak_flops;
  }
}

void
summary_time(ReportModel *model)
{
  const StepSummary *step = report_model_last_step(model);
  if (!step)
    return;
  const Recording *recording = model->recording;
  StepTimes times = {
      .start = step->start,
      .end = step->start + step->duration,
      .index = step->index,
      .rate_limiter = recording_find_string(recording, "rate_limiter"),
      .compute_done = step->start,
      .limited = -1,
      .compute_stream = summary_stream(recording, STREAM_COMPUTE),
      .compute = interval_set_new(),
      .collectives = interval_set_new(),
      .waits = interval_set_new(),
      .lost = interval_set_new(),
      .lanes = g_ptr_array_new_with_free_func((GDestroyNotify) interval_set_free),
  };
  for (guint i = 0; i < recording->spans->len; i++) {
    const Span *span = &g_array_index(recording->spans, Span, i);
    if (span->step != times.index || recording_is_beyond(recording, span->phase - 1))
      continue;
    times.has_spans = TRUE;
    add_span(model, &times, span);
  }
  fill_time(model, &times);
  if (times.has_spans) {
    model->path =
        critical_path_new(recording, times.index, times.compute_stream, times.start, times.end);
    model->time.contention = model->path->contention;
  }
  for (guint i = 0; i < times.lanes->len; i++) {
    const IntervalSet *busy = g_ptr_array_index(times.lanes, i);
    g_array_index(model->communication, CommunicationSummary, i).exposed =
        interval_set_length(busy) - interval_set_overlap(busy, times.compute);
  }
  interval_set_free(times.compute);
  interval_set_free(times.collectives);
  interval_set_free(times.waits);
  interval_set_free(times.lost);
  g_ptr_array_unref(times.lanes);
}
