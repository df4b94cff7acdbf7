/* chrome_trace.c - the document: what stands around the events, names of tracks. */
#include "report/chrome_trace.h"

#include "base/number_text.h"
#include "report/chrome_parts.h"

/* ---- names of tracks ---- */

static void
name_one(ChromeTrace *trace, const char *what, int process, int thread, const char *name)
{
  chrome_event_begin(&trace->out, "M", NULL, what, process, thread);
  chrome_event_time(&trace->out, 0);
  chrome_event_text(&trace->out, g_str_equal(what, "process_labels") ? "labels" : "name", name);
  chrome_event_end(&trace->out);
}

static void
place_one(ChromeTrace *trace, const char *what, int process, int thread, int order)
{
  chrome_event_begin(&trace->out, "M", NULL, what, process, thread);
  chrome_event_time(&trace->out, 0);
  chrome_event_number(&trace->out, "sort_index", order);
  chrome_event_end(&trace->out);
}

static void
name_process(ChromeTrace *trace, int process, const char *name, const char *label, int order)
{
  name_one(trace, "process_name", process, 0, name);
  name_one(trace, "process_labels", process, 0, label);
  place_one(trace, "process_sort_index", process, 0, order);
}

static void
name_thread(ChromeTrace *trace, int process, int thread, const char *name, int order)
{
  name_one(trace, "thread_name", process, thread, name);
  place_one(trace, "thread_sort_index", process, thread, order);
}

static void
name_communicators(ChromeTrace *trace)
{
  const Recording *r = trace->recording;
  g_autoptr(GHashTable) named = g_hash_table_new(NULL, NULL);
  for (guint i = 0; i < r->spans->len; i++) {
    const Span *span = &g_array_index(r->spans, Span, i);
    if (span->kind != SPAN_COLLECTIVE ||
        !g_hash_table_add(named, GINT_TO_POINTER(span->communicator + 1)))
      continue;
    int n = (int) g_hash_table_size(named);
    if (n == 1)
      name_process(trace, COMMUNICATOR_PROCESS, "communicators", "NCCL", 2);
    name_thread(trace, COMMUNICATOR_PROCESS, span->communicator,
                recording_text(r, span->communicator), n);
  }
}

static void
name_tracks(ChromeTrace *trace)
{
  const GPtrArray *streams = trace->recording->streams;
  name_process(trace, HOST_PROCESS, "host", "CPU", 0);
  name_thread(trace, HOST_PROCESS, HOST_THREAD, "host thread", 0);
  name_thread(trace, HOST_PROCESS, RUNTIME_THREAD, "CUDA runtime", 1);
  name_process(trace, DEVICE_PROCESS, "GPU 0", "GPU 0", 1);
  for (guint i = 0; i < streams->len; i++) {
    const char *stream = g_ptr_array_index(streams, i);
    int thread = chrome_stream((guint8) i);
    g_autofree char *name = g_strdup_printf("stream %d %s", thread, stream);
    if (!g_str_equal(stream, "host"))
      name_thread(trace, DEVICE_PROCESS, thread, name, (int) i);
  }
  name_communicators(trace);
}

/* ---- the document ---- */

static void
append_number(GString *out, const char *key, gint64 number)
{
  g_string_append(out, key);
  number_text_append(out, number);
}

/* As torch.profiler has it of a job's process groups. */
static void
append_job(const ChromeTrace *trace)
{
  const RunInfo *info = trace->info;
  GString *out = trace->out.text;
  int world = info->shard * info->replicate;
  if (world <= 1 || info->communicators->len == 0)
    return;
  append_number(out, ",\"distributedInfo\":{\"backend\":\"nccl\",\"rank\":", info->rank);
  append_number(out, ",\"world_size\":", world);
  append_number(out, ",\"pg_count\":", info->communicators->len);
  g_string_append(out, ",\"pg_config\":[");
  for (guint i = 0; i < info->communicators->len; i++) {
    const CommunicatorInfo *group = &g_array_index(info->communicators, CommunicatorInfo, i);
    g_autoptr(GString) list = g_string_new(NULL);
    int ranks;
    g_string_append(out, i > 0 ? ",{\"pg_name\":" : "{\"pg_name\":");
    chrome_event_quote(out, group->name);
    g_string_append(out, ",\"backend_config\":\"cuda:nccl\"");
    append_number(out, ",\"pg_size\":", group->ranks);
    if (chrome_group_ranks(trace, group->name, &ranks, list))
      g_string_append_printf(out, ",\"ranks\":%s", list->str);
    g_string_append_c(out, '}');
  }
  g_string_append(out, "]}");
}

static void
append_header(const ChromeTrace *trace)
{
  const Recording *r = trace->recording;
  GString *out = trace->out.text;
  g_string_append(out, "{\"schemaVersion\":1,\"displayTimeUnit\":\"ms\","
                       "\"baseTimeNanoseconds\":0,\"traceName\":");
  chrome_event_quote(out, r->title != NULL ? r->title : "highwater");
  g_string_append(out, ",\"deviceProperties\":[{\"id\":0,\"name\":");
  chrome_event_quote(out, trace->info->device != NULL ? trace->info->device : "GPU");
  if (r->capacity_bytes != G_MAXINT64) {
    append_number(out, ",\"totalGlobalMem\":", r->capacity_bytes + r->outside_allocator_bytes);
    append_number(out, ",\"outside_allocator_bytes\":", r->outside_allocator_bytes);
  }
  g_string_append(out, "}]");
  append_job(trace);
}

static GPtrArray *
spans_of_streams(const Recording *recording)
{
  GPtrArray *of_stream = g_ptr_array_new_with_free_func((GDestroyNotify) g_array_unref);
  for (guint i = 0; i < recording->streams->len; i++)
    g_ptr_array_add(of_stream, g_array_new(FALSE, FALSE, sizeof(guint)));
  for (guint i = 0; i < recording->spans->len; i++) {
    const Span *span = &g_array_index(recording->spans, Span, i);
    if (chrome_is_on_device(span))
      g_array_append_val((GArray *) g_ptr_array_index(of_stream, span->stream), i);
  }
  return of_stream;
}

void
chrome_trace(const Recording *recording, const RunInfo *info, GString *out)
{
  ChromeTrace trace = {.recording = recording, .info = info, .out.text = out};
  trace.of_stream = spans_of_streams(recording);
  append_header(&trace);
  g_string_append(out, ",\"traceEvents\":[");
  name_tracks(&trace);
  chrome_host_write(&trace);
  chrome_device_write(&trace);
  chrome_calls_write(&trace);
  chrome_memory_write(&trace);
  g_string_append(out, "\n]}\n");
  g_ptr_array_unref(trace.of_stream);
}
