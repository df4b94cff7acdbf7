/* chrome_device.c - tracks of the device: what runs on each stream and each communicator, and what
 * a stream waited for before it went on. */
#include "report/chrome_parts.h"

#include "spec/dtype.h"

/* ---- finding spans ---- */

static const Span *
span_at(const ChromeTrace *trace, const GArray *order, guint i)
{
  return &g_array_index(trace->recording->spans, Span, g_array_index(order, guint, i));
}

/* How many of the stream's spans ended by then. */
static guint
ended_by(const ChromeTrace *trace, const GArray *order, SimTime time)
{
  guint low = 0, high = order->len;
  while (low < high) {
    guint middle = low + (high - low) / 2;
    if (span_at(trace, order, middle)->end <= time)
      low = middle + 1;
    else
      high = middle;
  }
  return low;
}

const Span *
chrome_span_before(const ChromeTrace *trace, guint8 stream, SimTime time, guint *index)
{
  const GArray *order = g_ptr_array_index(trace->of_stream, stream);
  guint n = ended_by(trace, order, time);
  if (n == 0)
    return NULL;
  *index = g_array_index(order, guint, n - 1);
  return span_at(trace, order, n - 1);
}

const Span *
chrome_span_after(const ChromeTrace *trace, guint8 stream, SimTime time, guint *index)
{
  const GArray *order = g_ptr_array_index(trace->of_stream, stream);
  for (guint i = ended_by(trace, order, time); i < order->len; i++) {
    const Span *span = span_at(trace, order, i);
    *index = g_array_index(order, guint, i);
    if (span->start >= time)
      return span;
  }
  return NULL;
}

ChromeEnd
chrome_end_of(const Span *span)
{
  return (ChromeEnd){DEVICE_PROCESS, chrome_stream(span->stream), MAX(span->start, span->end - 1)};
}

/* ---- collectives ---- */

static const CommunicatorInfo *
find_communicator(const ChromeTrace *trace, const char *name)
{
  const GArray *all = trace->info->communicators;
  for (guint i = 0; i < all->len; i++)
    if (g_str_equal(g_array_index(all, CommunicatorInfo, i).name, name))
      return &g_array_index(all, CommunicatorInfo, i);
  return NULL;
}

gboolean
chrome_group_ranks(const ChromeTrace *trace, const char *communicator, int *ranks, GString *list)
{
  const CommunicatorInfo *group = find_communicator(trace, communicator);
  *ranks = group != NULL ? group->ranks : 0;
  if (group == NULL || group->stride < 1)
    return FALSE;
  int rank = trace->info->rank;
  int first = rank - rank / group->stride % group->ranks * group->stride;
  for (int i = 0; i < group->ranks; i++)
    g_string_append_printf(list, "%s%d", i == 0 ? "[" : ", ", first + i * group->stride);
  g_string_append_c(list, ']');
  return TRUE;
}

/* What PyTorch calls a type of NCCL's; NULL: nothing that is sent. */
static const char *
torch_dtype(const char *name)
{
  static const struct {
    DType dtype;
    const char *torch;
  } names[] = {
      {DTYPE_FP32, "Float"}, {DTYPE_BF16, "BFloat16"}, {DTYPE_FP16, "Half"},
      {DTYPE_INT64, "Long"}, {DTYPE_INT32, "Int"},     {DTYPE_UINT8, "Byte"},
  };
  for (guint i = 0; i < G_N_ELEMENTS(names); i++)
    if (g_str_equal(dtype_name(names[i].dtype), name))
      return names[i].torch;
  return NULL;
}

/* How many elements go in and come out of a collective over the full buffer of n. */
static void
elements_of(const char *collective, gint64 n, int ranks, gint64 *in, gint64 *out)
{
  *in = g_str_equal(collective, "all_gather") ? n / MAX(ranks, 1) : n;
  *out = g_str_equal(collective, "reduce_scatter") ? n / MAX(ranks, 1) : n;
}

/* "_allgather_base" is what ProcessGroupNCCL says of an all_gather_into_tensor. */
static const char *
torch_collective(const char *name)
{
  static const char *const names[][2] = {
      {"all_gather", "_allgather_base"},
      {"reduce_scatter", "_reduce_scatter_base"},
      {"all_reduce", "allreduce"},
      {"alltoall", "all_to_all"},
  };
  for (guint i = 0; i < G_N_ELEMENTS(names); i++)
    if (g_str_equal(names[i][0], name))
      return names[i][1];
  return name;
}

static void
write_collective_arguments(ChromeTrace *trace, const Span *span)
{
  const Recording *r = trace->recording;
  const char *name = recording_text(r, span->name);
  const char *group = recording_text(r, span->communicator);
  g_autoptr(GString) list = g_string_new(NULL);
  int ranks;
  gboolean listed = chrome_group_ranks(trace, group, &ranks, list);
  int dtype = span->dtype > 0 ? dtype_from_name(recording_text(r, span->dtype - 1)) : -1;
  const char *type = dtype >= 0 ? torch_dtype(dtype_name((DType) dtype)) : NULL;
  chrome_event_text(&trace->out, "Collective name", torch_collective(name));
  if (type != NULL && ranks > 0) {
    gint64 in, out;
    elements_of(name, span->bytes / dtype_size((DType) dtype), ranks, &in, &out);
    chrome_event_number(&trace->out, "In msg nelems", in);
    chrome_event_number(&trace->out, "Out msg nelems", out);
    chrome_event_number(&trace->out, "Group size", ranks);
    chrome_event_text(&trace->out, "dtype", type);
  }
  chrome_event_text(&trace->out, "Process Group Name", group);
  if (listed)
    chrome_event_text(&trace->out, "Process Group Ranks", list->str);
  if (span->arrived > 0)
    chrome_event_us(&trace->out, "arrived", span->arrived);
}

/* ---- work ---- */

/* NCCL's kernels are told by their names: "ncclDevKernel_AllGather" of "all_gather". */
static char *
kernel_of_collective(const char *name)
{
  g_auto(GStrv) words = g_strsplit(name, "_", -1);
  for (int i = 0; words[i] != NULL; i++)
    words[i][0] = g_ascii_toupper(words[i][0]);
  g_autofree char *joined = g_strjoinv("", words);
  return g_strconcat("ncclDevKernel_", joined, NULL);
}

void
chrome_phase_write(ChromeTrace *trace, const Span *span)
{
  const GArray *ranges = trace->recording->ranges;
  const Range *phase = span->phase > 0 ? &g_array_index(ranges, Range, span->phase - 1) : NULL;
  if (phase != NULL && phase->start == span->issued)
    chrome_event_text(&trace->out, "phase", recording_text(trace->recording, phase->name));
}

static void
write_arguments(ChromeTrace *trace, const Span *span, guint index)
{
  chrome_event_number(&trace->out, "device", 0);
  chrome_event_number(&trace->out, "stream", chrome_stream(span->stream));
  chrome_event_number(&trace->out, "correlation", chrome_correlation(index));
  if (span->bytes > 0)
    chrome_event_number(&trace->out, "bytes", span->bytes);
  if (span->flops > 0)
    chrome_event_number(&trace->out, "flops", (gint64) MIN(span->flops, 9e18));
  if (span->alone > 0)
    chrome_event_us(&trace->out, "alone", span->alone);
  if (span->module >= 0)
    chrome_event_text(&trace->out, "module", recording_text(trace->recording, span->module));
  chrome_phase_write(trace, span);
  if (span->kind == SPAN_COLLECTIVE)
    write_collective_arguments(trace, span);
}

static void
write_span(ChromeTrace *trace, const Span *span, guint index)
{
  const char *name = recording_text(trace->recording, span->name);
  gboolean collective = span->kind == SPAN_COLLECTIVE;
  g_autofree char *kernel = collective ? kernel_of_collective(name) : NULL;
  chrome_event_begin(&trace->out, "X", span->kind == SPAN_COPY ? "gpu_memcpy" : "kernel",
                     collective ? kernel : name, DEVICE_PROCESS, chrome_stream(span->stream));
  chrome_event_interval(&trace->out, span->start, span->end);
  write_arguments(trace, span, index);
  chrome_event_end(&trace->out);
  if (!collective)
    return;
  chrome_event_begin(&trace->out, "X", "communicator", name, COMMUNICATOR_PROCESS,
                     span->communicator);
  chrome_event_interval(&trace->out, span->start, span->end);
  if (span->module >= 0)
    chrome_event_text(&trace->out, "module", recording_text(trace->recording, span->module));
  chrome_event_number(&trace->out, "bytes", span->bytes);
  chrome_event_end(&trace->out);
}

void
chrome_device_write(ChromeTrace *trace)
{
  const GArray *spans = trace->recording->spans;
  for (guint i = 0; i < spans->len; i++) {
    const Span *span = &g_array_index(spans, Span, i);
    if (chrome_is_on_device(span))
      write_span(trace, span, i);
  }
}
