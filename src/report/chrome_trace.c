/* chrome_trace.c - events of the trace format: complete (X), counters (C), flows (s, f), metadata
 * (M).  Times are microseconds, with the nanoseconds behind the point. */
#include "report/chrome_trace.h"

#include <string.h>

/* Processes of the trace: PyTorch's profiler numbers GPUs from 0 as processes beside the host's. */
enum { DEVICE_PROCESS = 0, HOST_PROCESS = 1, COMMUNICATOR_PROCESS = 2 };

/* Threads of the host: slices of one must lie in each other, and a launch that is drawn as long as
 * below may reach over the end of a range. */
enum { HOST_THREAD = 1, RUNTIME_THREAD = 2 };

/* How long a launch is drawn; its own time is not recorded. */
static const SimTime launch_time = 1000;

typedef struct {
  const Recording *recording;
  GString *out;
  gboolean first; /* no event yet */
} Trace;

/* ---- JSON ---- */

static void
append_text(GString *out, const char *text)
{
  g_string_append_c(out, '"');
  for (const char *c = text; *c != '\0'; c++) {
    if (*c == '"' || *c == '\\')
      g_string_append_c(out, '\\');
    if ((guchar) *c < 0x20)
      g_string_append_printf(out, "\\u%04x", (guint) *c);
    else
      g_string_append_c(out, *c);
  }
  g_string_append_c(out, '"');
}

static void
append_time(GString *out, const char *key, SimTime time)
{
  g_string_append_printf(out, ",\"%s\":%" G_GINT64_FORMAT ".%03" G_GINT64_FORMAT, key, time / 1000,
                         time % 1000);
}

/* An event without its times and arguments; "}" ends it. */
static void
begin(Trace *t, const char *type, const char *category, const char *name, int process, int thread)
{
  g_string_append(t->out, t->first ? "\n{" : ",\n{");
  t->first = FALSE;
  g_string_append_printf(t->out, "\"ph\":\"%s\",", type);
  if (category != NULL)
    g_string_append_printf(t->out, "\"cat\":\"%s\",", category);
  g_string_append(t->out, "\"name\":");
  append_text(t->out, name);
  g_string_append_printf(t->out, ",\"pid\":%d,\"tid\":%d", process, thread);
}

static void
end(Trace *t)
{
  g_string_append_c(t->out, '}');
}

static void
interval(Trace *t, SimTime start, SimTime until)
{
  append_time(t->out, "ts", start);
  append_time(t->out, "dur", until - start);
}

static void
append_argument(GString *out, gboolean first, const char *key, const char *text)
{
  g_string_append(out, first ? "" : ",");
  append_text(out, key);
  g_string_append_c(out, ':');
  append_text(out, text);
}

/* ---- names of tracks ---- */

static void
name_track(Trace *t, const char *what, int process, int thread, const char *name, int order)
{
  begin(t, "M", NULL, what, process, thread);
  g_string_append(t->out, ",\"ts\":0,\"args\":{\"name\":");
  append_text(t->out, name);
  g_string_append(t->out, "}");
  end(t);
  gboolean is_process = g_str_equal(what, "process_name");
  begin(t, "M", NULL, is_process ? "process_sort_index" : "thread_sort_index", process, thread);
  g_string_append_printf(t->out, ",\"ts\":0,\"args\":{\"sort_index\":%d}", order);
  end(t);
}

static void
name_communicators(Trace *t)
{
  g_autoptr(GHashTable) named = g_hash_table_new(NULL, NULL);
  for (guint i = 0; i < t->recording->spans->len; i++) {
    const Span *span = &g_array_index(t->recording->spans, Span, i);
    if (span->kind != SPAN_COLLECTIVE ||
        !g_hash_table_add(named, GINT_TO_POINTER(span->communicator + 1)))
      continue;
    if (g_hash_table_size(named) == 1)
      name_track(t, "process_name", COMMUNICATOR_PROCESS, 0, "communicators", 2);
    name_track(t, "thread_name", COMMUNICATOR_PROCESS, span->communicator,
               recording_text(t->recording, span->communicator), (int) g_hash_table_size(named));
  }
}

static void
name_tracks(Trace *t)
{
  name_track(t, "process_name", HOST_PROCESS, 0, "host", 0);
  name_track(t, "thread_name", HOST_PROCESS, HOST_THREAD, "host thread", 0);
  name_track(t, "thread_name", HOST_PROCESS, RUNTIME_THREAD, "CUDA runtime", 1);
  name_track(t, "process_name", DEVICE_PROCESS, 0, "GPU 0", 1);
  for (guint i = 0; i < t->recording->streams->len; i++) {
    const char *stream = g_ptr_array_index(t->recording->streams, i);
    g_autofree char *name = g_strdup_printf("stream %u %s", i, stream);
    if (!g_str_equal(stream, "host"))
      name_track(t, "thread_name", DEVICE_PROCESS, (int) i, name, (int) i);
  }
  name_communicators(t);
}

/* ---- the host ---- */

static char *
range_name(const Recording *recording, const Range *range)
{
  const char *name = recording_text(recording, range->name);
  if (range->kind == RECORDED_MODULE)
    return g_strdup_printf("nn.Module: %s", recording_text(recording, range->module));
  if (range->kind == RECORDED_PHASE && range->micro_batch > 0)
    return g_strdup_printf("%s %d", name, range->micro_batch);
  return g_strdup(name);
}

static void
write_ranges(Trace *t)
{
  for (guint i = 0; i < t->recording->ranges->len; i++) {
    const Range *range = &g_array_index(t->recording->ranges, Range, i);
    g_autofree char *name = range_name(t->recording, range);
    begin(t, "X", range->kind == RECORDED_MODULE ? "python_function" : "user_annotation", name,
          HOST_PROCESS, HOST_THREAD);
    interval(t, range->start, range->end);
    g_string_append(t->out, ",\"args\":{");
    if (range->module >= 0)
      append_argument(t->out, TRUE, "module", recording_text(t->recording, range->module));
    g_string_append(t->out, "}");
    end(t);
  }
}

/* From where the host begins a step to where it begins the next: its last range for the last. */
static void
write_steps(Trace *t)
{
  const Recording *r = t->recording;
  SimTime last = 0;
  for (guint i = 0; i < r->ranges->len; i++)
    last = MAX(last, g_array_index(r->ranges, Range, i).end);
  for (guint i = 0; i < r->steps->len; i++) {
    const StepRecord *step = &g_array_index(r->steps, StepRecord, i);
    SimTime until = i + 1 < r->steps->len ? g_array_index(r->steps, StepRecord, i + 1).start : last;
    g_autofree char *name = g_strdup_printf("ProfilerStep#%d", step->index);
    begin(t, "X", "user_annotation", name, HOST_PROCESS, HOST_THREAD);
    interval(t, step->start, MAX(until, step->start));
    end(t);
  }
}

/* ---- the device ---- */

/* What each kind of span is in PyTorch's traces. */
static const struct {
  const char *category, *launch;
} kinds[] = {
    [SPAN_KERNEL] = {"kernel", "cudaLaunchKernel"},
    [SPAN_COPY] = {"gpu_memcpy", "cudaMemcpyAsync"},
    [SPAN_COLLECTIVE] = {"kernel", "cudaLaunchKernelExC"},
};

static gboolean
is_on_device(const Span *span)
{
  return span->kind <= SPAN_COLLECTIVE;
}

/* NCCL's kernels are told by their names: "ncclDevKernel_AllGather" of "all_gather". */
static char *
span_name(const Recording *recording, const Span *span)
{
  const char *name = recording_text(recording, span->name);
  if (span->kind != SPAN_COLLECTIVE)
    return g_strdup(name);
  g_auto(GStrv) words = g_strsplit(name, "_", -1);
  for (int i = 0; words[i] != NULL; i++)
    words[i][0] = g_ascii_toupper(words[i][0]);
  g_autofree char *joined = g_strjoinv("", words);
  return g_strconcat("ncclDevKernel_", joined, NULL);
}

static void
append_span_arguments(Trace *t, const Span *span, guint correlation)
{
  const Recording *r = t->recording;
  g_string_append_printf(t->out, ",\"args\":{\"device\":0,\"stream\":%d,\"correlation\":%u",
                         span->stream, correlation);
  if (span->bytes > 0)
    g_string_append_printf(t->out, ",\"bytes\":%" G_GINT64_FORMAT, span->bytes);
  if (span->flops > 0)
    g_string_append_printf(t->out, ",\"flops\":%.0f", span->flops);
  if (span->module >= 0)
    append_argument(t->out, FALSE, "module", recording_text(r, span->module));
  if (span->kind == SPAN_COLLECTIVE) {
    append_argument(t->out, FALSE, "Collective name", recording_text(r, span->name));
    append_argument(t->out, FALSE, "Process Group Name", recording_text(r, span->communicator));
  }
  g_string_append_c(t->out, '}');
}

static void
write_span(Trace *t, const Span *span, guint correlation)
{
  g_autofree char *name = span_name(t->recording, span);
  begin(t, "X", kinds[span->kind].category, name, DEVICE_PROCESS, span->stream);
  interval(t, span->start, span->end);
  append_span_arguments(t, span, correlation);
  end(t);
  if (span->kind != SPAN_COLLECTIVE)
    return;
  begin(t, "X", "communicator", recording_text(t->recording, span->name), COMMUNICATOR_PROCESS,
        span->communicator);
  interval(t, span->start, span->end);
  append_span_arguments(t, span, correlation);
  end(t);
}

static void
write_host_span(Trace *t, const Span *span)
{
  begin(t, "X", "cuda_runtime", recording_text(t->recording, span->name), HOST_PROCESS,
        RUNTIME_THREAD);
  interval(t, span->start, span->end);
  end(t);
}

/* ---- launches ---- */

static void
write_flow(Trace *t, const char *type, int process, int thread, SimTime time, guint id)
{
  begin(t, type, "ac2g", "ac2g", process, thread);
  append_time(t->out, "ts", time);
  g_string_append_printf(t->out, ",\"id\":%u", id);
  if (*type == 'f')
    g_string_append(t->out, ",\"bp\":\"e\"");
  end(t);
}

typedef struct {
  SimTime issued;
  guint span; /* position */
} Launch;

static int
by_issue(gconstpointer a, gconstpointer b)
{
  const Launch *x = a, *y = b;
  if (x->issued != y->issued)
    return x->issued < y->issued ? -1 : 1;
  return (x->span > y->span) - (x->span < y->span);
}

static GArray *
launches_of(const Recording *recording)
{
  GArray *launches = g_array_new(FALSE, FALSE, sizeof(Launch));
  for (guint i = 0; i < recording->spans->len; i++) {
    const Span *span = &g_array_index(recording->spans, Span, i);
    Launch launch = {span->issued, i};
    if (is_on_device(span) && span->issued > 0)
      g_array_append_val(launches, launch);
  }
  g_array_sort(launches, by_issue);
  return launches;
}

static void
write_launches(Trace *t)
{
  g_autoptr(GArray) launches = launches_of(t->recording);
  for (guint i = 0; i < launches->len; i++) {
    const Launch *launch = &g_array_index(launches, Launch, i);
    const Span *span = &g_array_index(t->recording->spans, Span, launch->span);
    SimTime until = launch->issued + launch_time;
    if (i + 1 < launches->len)
      until = MIN(until, g_array_index(launches, Launch, i + 1).issued);
    begin(t, "X", "cuda_runtime", kinds[span->kind].launch, HOST_PROCESS, RUNTIME_THREAD);
    interval(t, launch->issued, until);
    g_string_append_printf(t->out, ",\"args\":{\"correlation\":%u}", launch->span + 1);
    end(t);
    write_flow(t, "s", HOST_PROCESS, RUNTIME_THREAD, launch->issued, launch->span + 1);
    write_flow(t, "f", DEVICE_PROCESS, span->stream, span->start, launch->span + 1);
  }
}

static void
write_spans(Trace *t)
{
  for (guint i = 0; i < t->recording->spans->len; i++) {
    const Span *span = &g_array_index(t->recording->spans, Span, i);
    if (is_on_device(span))
      write_span(t, span, i + 1);
    else
      write_host_span(t, span);
  }
  write_launches(t);
}

/* ---- memory ---- */

static void
write_counter(Trace *t, const char *name, SimTime time, gint64 bytes)
{
  begin(t, "C", NULL, name, DEVICE_PROCESS, 0);
  append_time(t->out, "ts", time);
  g_string_append_printf(t->out, ",\"args\":{\"bytes\":%" G_GINT64_FORMAT "}", bytes);
  end(t);
}

static void
write_categories(Trace *t, SimTime time, const gint64 bytes[CATEGORY_COUNT])
{
  begin(t, "C", NULL, "by category", DEVICE_PROCESS, 0);
  append_time(t->out, "ts", time);
  for (int i = 0; i < CATEGORY_COUNT; i++)
    g_string_append_printf(t->out, "%s\"%s\":%" G_GINT64_FORMAT, i == 0 ? ",\"args\":{" : ",",
                           category_name((Category) i), bytes[i]);
  g_string_append_c(t->out, '}');
  end(t);
}

static void
write_memory(Trace *t)
{
  gint64 bytes[CATEGORY_COUNT] = {0}, reserved = -1;
  for (guint i = 0; i < t->recording->memory->len; i++) {
    const MemoryEvent *event = &g_array_index(t->recording->memory, MemoryEvent, i);
    bytes[event->category] += event->block_bytes;
    write_counter(t, "allocated", event->time, event->allocated_after);
    if (event->reserved_after != reserved)
      write_counter(t, "reserved", event->time, event->reserved_after);
    reserved = event->reserved_after;
    write_categories(t, event->time, bytes);
  }
}

/* ---- the document ---- */

static void
append_header(const Recording *recording, const RunInfo *info, GString *out)
{
  g_string_append(out, "{\"schemaVersion\":1,\"displayTimeUnit\":\"ms\",\"traceName\":");
  append_text(out, recording->title != NULL ? recording->title : "highwater");
  g_string_append(out, ",\"deviceProperties\":[{\"id\":0,\"name\":");
  append_text(out, info->device != NULL ? info->device : "GPU");
  g_string_append_printf(out, ",\"totalGlobalMem\":%" G_GINT64_FORMAT "}]",
                         recording->capacity_bytes);
}

void
chrome_trace(const Recording *recording, const RunInfo *info, GString *out)
{
  Trace trace = {.recording = recording, .out = out, .first = TRUE};
  append_header(recording, info, out);
  g_string_append(out, ",\"traceEvents\":[");
  name_tracks(&trace);
  write_steps(&trace);
  write_ranges(&trace);
  write_spans(&trace);
  write_memory(&trace);
  g_string_append(out, "\n]}\n");
}
