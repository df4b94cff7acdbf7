/* chrome_calls.c - the host's calls of CUDA, on a track of their own: launches, events, waits; and
 * flows from a launch to its work, and from work to what waited for it.
 *
 * Of a launch the Recording has the moment at which it was done, and of other calls but those that
 * held the host up how long they took as well.  So a call is drawn as long as is free before it, at
 * most a microsecond; several that were done at one moment share that. */
#include "report/chrome_parts.h"

typedef enum { CALL_HELD, CALL_RECORD, CALL_WAIT, CALL_LAUNCH } CallKind;

typedef struct {
  SimTime done;       /* by the Recording */
  SimTime start, end; /* as drawn */
  CallKind kind;
  guint index; /* of the span, or the wait */
} Call;

/* The longest that a call is drawn. */
static const SimTime call_time = 1000;

/* What a call that held the host up gives to those behind it: less than work takes, so that what it
 * waited for has begun by its end. */
static const SimTime given_time = 100;

/* What each kind of span is launched with. */
static const char *const launches[] = {
    [SPAN_KERNEL] = "cudaLaunchKernel",
    [SPAN_COPY] = "cudaMemcpyAsync",
    [SPAN_COLLECTIVE] = "cudaLaunchKernelExC",
};

static const Span *
span_of(const ChromeTrace *trace, guint i)
{
  return &g_array_index(trace->recording->spans, Span, i);
}

static const Wait *
wait_of(const ChromeTrace *trace, guint i)
{
  return &g_array_index(trace->recording->waits, Wait, i);
}

static gboolean
is_hosts(const ChromeTrace *trace, const Wait *wait)
{
  return g_str_equal(g_ptr_array_index(trace->recording->streams, wait->stream), "host");
}

/* ---- which calls ---- */

static int
compare_calls(gconstpointer a, gconstpointer b)
{
  const Call *x = a, *y = b;
  if (x->done != y->done)
    return x->done < y->done ? -1 : 1;
  if (x->kind != y->kind)
    return (int) x->kind - (int) y->kind;
  return (x->index > y->index) - (x->index < y->index);
}

static void
add_call(GArray *calls, CallKind kind, guint index, SimTime start, SimTime done)
{
  Call call = {.done = done, .start = start, .end = done, .kind = kind, .index = index};
  g_array_append_val(calls, call);
}

/* For each wait the first that is for the same record of an event; -1: it is for all of a stream.
 * Such a record is one call. */
static int *
first_of_records(const ChromeTrace *trace)
{
  const GArray *waits = trace->recording->waits;
  int *firsts = g_new(int, waits->len);
  g_autoptr(GHashTable) known = g_hash_table_new_full(g_int64_hash, g_int64_equal, g_free, NULL);
  for (guint i = 0; i < waits->len; i++) {
    const Wait *wait = wait_of(trace, i);
    gint64 key = wait->recorded * 256 + wait->source;
    gpointer found = g_hash_table_lookup(known, &key);
    firsts[i] = wait->recorded == 0 ? -1 : found != NULL ? GPOINTER_TO_INT(found) - 1 : (int) i;
    if (firsts[i] == (int) i)
      g_hash_table_insert(known, g_memdup2(&key, sizeof key), GINT_TO_POINTER((int) i + 1));
  }
  return firsts;
}

static GArray *
calls_new(const ChromeTrace *trace, const int *records)
{
  const Recording *r = trace->recording;
  GArray *calls = g_array_new(FALSE, FALSE, sizeof(Call));
  for (guint i = 0; i < r->spans->len; i++) {
    const Span *span = span_of(trace, i);
    if (!chrome_is_on_device(span))
      add_call(calls, CALL_HELD, i, span->start, span->end);
    else if (span->issued > 0)
      add_call(calls, CALL_LAUNCH, i, span->issued, span->issued);
  }
  for (guint i = 0; i < r->waits->len; i++) {
    const Wait *wait = wait_of(trace, i);
    if (records[i] == (int) i)
      add_call(calls, CALL_RECORD, i, wait->recorded, wait->recorded);
    if (!is_hosts(trace, wait))
      add_call(calls, CALL_WAIT, i, wait->issued, wait->issued);
  }
  g_array_sort(calls, compare_calls);
  return calls;
}

/* ---- where they are drawn ---- */

/* n calls one after another from start on, each of that length. */
static void
place(Call *calls, guint n, SimTime start, SimTime length)
{
  for (guint i = 0; i < n; i++) {
    calls[i].start = start + (SimTime) i * length;
    calls[i].end = calls[i].start + length;
  }
}

static SimTime
shared(SimTime time, guint n)
{
  return CLAMP(time / n, 0, call_time);
}

/* Calls that were done at one moment end there.  Where there is no room before, since the host was
 * held up until then, that call gives of its own.  free: when the track was; held: NULL, or the
 * call that ended then. */
static void
place_group(Call *calls, guint n, SimTime free, Call *held)
{
  SimTime done = calls[0].done, length = shared(done - free, n);
  if (length == 0 && held != NULL) {
    length = shared(MIN((done - held->start) / 2, MAX(given_time, n)), n);
    held->end = done - (SimTime) n * length;
  }
  place(calls, n, done - (SimTime) n * length, length);
}

static void
place_calls(GArray *calls)
{
  Call *all = &g_array_index(calls, Call, 0);
  for (guint i = 0, end; i < calls->len; i = end) {
    end = i + 1;
    if (all[i].kind == CALL_HELD)
      continue;
    while (end < calls->len && all[end].kind != CALL_HELD && all[end].done == all[i].done)
      end++;
    Call *before = i > 0 ? &all[i - 1] : NULL;
    place_group(&all[i], end - i, before != NULL ? before->done : 0,
                before != NULL && before->kind == CALL_HELD ? before : NULL);
  }
}

/* ---- what is written of them ---- */

static void
begin_call(ChromeTrace *trace, const Call *call, const char *name, gint64 correlation)
{
  chrome_event_begin(&trace->out, "X", "cuda_runtime", name, HOST_PROCESS, RUNTIME_THREAD);
  chrome_event_interval(&trace->out, call->start, call->end);
  chrome_event_number(&trace->out, "correlation", correlation);
  if (call->end != call->done)
    chrome_event_us(&trace->out, "done", call->done);
}

static void
write_launch(ChromeTrace *trace, const Call *call)
{
  const Span *span = span_of(trace, call->index);
  gint64 correlation = chrome_correlation(call->index);
  begin_call(trace, call, launches[span->kind], correlation);
  chrome_event_end(&trace->out);
  chrome_event_flow(&trace->out, "ac2g", correlation,
                    (ChromeEnd){HOST_PROCESS, RUNTIME_THREAD, call->start},
                    (ChromeEnd){DEVICE_PROCESS, chrome_stream(span->stream), span->start});
}

/* What a wait is for, as the profiler says it of "cuda_sync" events. */
static void
write_wait_arguments(ChromeTrace *trace, const Wait *wait, const char *kind, int record)
{
  chrome_event_text(&trace->out, "cuda_sync_kind", kind);
  chrome_event_number(&trace->out, "wait_on_stream", chrome_stream(wait->source));
  if (record >= 0)
    chrome_event_number(&trace->out, "wait_on_cuda_event_record_corr_id",
                        chrome_call_correlation(trace, 2 * (guint) record));
}

/* The work that a wait was for: the last of the stream by then, unless that had to wait itself
 * until then. */
static const Span *
cause_of(const ChromeTrace *trace, guint i)
{
  const GArray *waits = trace->recording->waits;
  const Wait *wait = wait_of(trace, i);
  guint index;
  const Span *cause = chrome_span_before(trace, wait->source, wait->end, &index);
  if (cause != NULL && cause->end == wait->end)
    return cause;
  guint8 stream = wait->source;
  guint from = i, to = i; /* waits that ended at the same moment */
  while (from > 0 && wait_of(trace, from - 1)->end == wait->end)
    from--;
  while (to + 1 < waits->len && wait_of(trace, to + 1)->end == wait->end)
    to++;
  for (guint k = from; k <= to; k++) {
    const Wait *other = wait_of(trace, k);
    const Span *found = chrome_span_before(trace, other->source, wait->end, &index);
    if (other->stream == stream && found != NULL && found->end == wait->end)
      return found;
  }
  return cause;
}

/* The stream's wait from the work that it was for: to the next work of the stream. */
static void
write_stream_wait(ChromeTrace *trace, guint i, int record)
{
  const Wait *wait = wait_of(trace, i);
  guint index;
  const Span *cause = cause_of(trace, i);
  const Span *next = chrome_span_after(trace, wait->stream, wait->end, &index);
  chrome_event_begin(&trace->out, "X", "cuda_sync", "Stream Wait Event", DEVICE_PROCESS,
                     chrome_stream(wait->stream));
  chrome_event_interval(&trace->out, wait->start, wait->end);
  write_wait_arguments(trace, wait, "Stream Wait Event", record);
  chrome_event_number(&trace->out, "stream", chrome_stream(wait->stream));
  chrome_event_number(&trace->out, "correlation", chrome_call_correlation(trace, 2 * i + 1));
  chrome_event_number(&trace->out, "device", 0);
  chrome_event_end(&trace->out);
  if (cause != NULL && next != NULL)
    chrome_event_flow(&trace->out, "wait", (gint64) i + 1, chrome_end_of(cause),
                      (ChromeEnd){DEVICE_PROCESS, chrome_stream(wait->stream), next->start});
}

/* The host's wait, within the call that ends as drawn: from when what it was for began, so that the
 * flow leads forward. */
static void
write_host_wait(ChromeTrace *trace, guint i, int record, SimTime end)
{
  const Wait *wait = wait_of(trace, i);
  const char *kind = record >= 0 ? "Event Sync" : "Stream Sync";
  const Span *cause = cause_of(trace, i);
  SimTime start = cause != NULL ? CLAMP(cause->start, wait->start, end) : wait->start;
  chrome_event_begin(&trace->out, "X", "cuda_sync", kind, HOST_PROCESS, RUNTIME_THREAD);
  chrome_event_interval(&trace->out, start, end);
  write_wait_arguments(trace, wait, kind, record);
  chrome_event_number(&trace->out, "correlation", chrome_call_correlation(trace, 2 * i + 1));
  chrome_event_number(&trace->out, "device", 0);
  chrome_event_end(&trace->out);
  if (cause == NULL || cause->start >= end)
    return;
  ChromeEnd from = chrome_end_of(cause);
  from.time = MIN(from.time, end - 1);
  chrome_event_flow(&trace->out, "wait", (gint64) i + 1, from,
                    (ChromeEnd){HOST_PROCESS, RUNTIME_THREAD, MAX(start, end - 1)});
}

static void
write_held(ChromeTrace *trace, const Call *call)
{
  const Recording *r = trace->recording;
  const Span *span = span_of(trace, call->index);
  begin_call(trace, call, recording_text(r, span->name), chrome_correlation(call->index));
  if (span->module >= 0)
    chrome_event_text(&trace->out, "module", recording_text(r, span->module));
  chrome_phase_write(trace, span);
}

static void
write_call(ChromeTrace *trace, const Call *call)
{
  switch (call->kind) {
  case CALL_HELD:
    write_held(trace, call);
    break;
  case CALL_RECORD:
    begin_call(trace, call, "cudaEventRecord", chrome_call_correlation(trace, 2 * call->index));
    break;
  case CALL_WAIT:
    begin_call(trace, call, "cudaStreamWaitEvent",
               chrome_call_correlation(trace, 2 * call->index + 1));
    break;
  case CALL_LAUNCH:
    write_launch(trace, call);
    return;
  }
  chrome_event_end(&trace->out);
}

/* The host's waits lie in calls of the same ends. */
static void
write_waits(ChromeTrace *trace, const GArray *calls, const int *records)
{
  guint call = 0;
  for (guint i = 0; i < trace->recording->waits->len; i++) {
    const Wait *wait = wait_of(trace, i);
    if (!is_hosts(trace, wait)) {
      write_stream_wait(trace, i, records[i]);
      continue;
    }
    SimTime end = wait->end;
    for (; call < calls->len && g_array_index(calls, Call, call).done <= wait->end; call++)
      if (g_array_index(calls, Call, call).kind == CALL_HELD)
        end = g_array_index(calls, Call, call).end;
    write_host_wait(trace, i, records[i], MIN(end, wait->end));
  }
}

void
chrome_calls_write(ChromeTrace *trace)
{
  g_autofree int *records = first_of_records(trace);
  g_autoptr(GArray) calls = calls_new(trace, records);
  if (calls->len > 0)
    place_calls(calls);
  for (guint i = 0; i < calls->len; i++)
    write_call(trace, &g_array_index(calls, Call, i));
  write_waits(trace, calls, records);
}
