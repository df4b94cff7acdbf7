/* kineto_timeline.c - events of a trace as what happened: work, calls, waits, ranges, steps,
 * memory.
 */
#include "import/kineto_timeline.h"

#include <string.h>

#include "base/category.h"
#include "spec/dtype.h"

/* ---- the value ---- */

static void
track_clear(gpointer data)
{
  TimelineTrack *track = data;
  g_free(track->process);
  g_free(track->thread);
  g_free(track->name);
}

static void
group_clear(gpointer data)
{
  g_free(((KinetoGroup *) data)->name);
}

KinetoAbout *
kineto_about_new(void)
{
  KinetoAbout *about = g_new0(KinetoAbout, 1);
  about->groups = g_array_new(FALSE, FALSE, sizeof(KinetoGroup));
  g_array_set_clear_func(about->groups, group_clear);
  about->notes = g_ptr_array_new_with_free_func(g_free);
  return about;
}

void
kineto_about_free(KinetoAbout *about)
{
  if (about == NULL)
    return;
  g_array_unref(about->groups);
  g_ptr_array_unref(about->notes);
  g_free(about);
}

Timeline *
timeline_new(KinetoAbout *about)
{
  Timeline *timeline = g_new0(Timeline, 1);
  timeline->recording = recording_new();
  timeline->about = about;
  timeline->first = G_MAXINT64, timeline->last = G_MININT64;
  timeline->tracks = g_array_new(FALSE, FALSE, sizeof(TimelineTrack));
  g_array_set_clear_func(timeline->tracks, track_clear);
  timeline->works = g_array_new(FALSE, FALSE, sizeof(TimelineWork));
  timeline->calls = g_array_new(FALSE, FALSE, sizeof(TimelineCall));
  timeline->held = g_array_new(FALSE, FALSE, sizeof(TimelineHeld));
  timeline->syncs = g_array_new(FALSE, FALSE, sizeof(TimelineSync));
  timeline->ranges = g_array_new(FALSE, FALSE, sizeof(TimelineRange));
  timeline->steps = g_array_new(FALSE, FALSE, sizeof(TimelineStep));
  timeline->memory = g_array_new(FALSE, FALSE, sizeof(TimelineMemory));
  timeline->ops = g_array_new(FALSE, FALSE, sizeof(TimelineOp));
  timeline->numbers = g_array_new(FALSE, FALSE, sizeof(gint64));
  timeline->track_of = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, NULL);
  return timeline;
}

void
timeline_free(Timeline *timeline)
{
  if (timeline == NULL)
    return;
  GArray *arrays[] = {timeline->tracks, timeline->works,  timeline->calls, timeline->held,
                      timeline->syncs,  timeline->ranges, timeline->steps, timeline->memory,
                      timeline->ops,    timeline->numbers};
  for (guint i = 0; i < G_N_ELEMENTS(arrays); i++)
    g_array_unref(arrays[i]);
  g_hash_table_unref(timeline->track_of);
  recording_free(timeline->recording);
  g_free(timeline);
}

int
timeline_stream(const Timeline *timeline, gint64 number)
{
  for (guint i = 0; i < timeline->numbers->len; i++)
    if (g_array_index(timeline->numbers, gint64, i) == number)
      return (int) i;
  return -1;
}

/* ---- what events share ---- */

static guint
track_of(Timeline *timeline, const KinetoEvent *event)
{
  char *key = g_strconcat(event->process->str, "/", event->thread->str, NULL);
  gpointer found = g_hash_table_lookup(timeline->track_of, key);
  if (found != NULL) {
    g_free(key);
    return GPOINTER_TO_UINT(found) - 1;
  }
  TimelineTrack track = {.process = g_strdup(event->process->str),
                         .thread = g_strdup(event->thread->str)};
  g_array_append_val(timeline->tracks, track);
  g_hash_table_insert(timeline->track_of, key, GUINT_TO_POINTER(timeline->tracks->len));
  return timeline->tracks->len - 1;
}

static gint32
string_of(Timeline *timeline, const GString *text)
{
  return text->len > 0 ? recording_string(timeline->recording, text->str) : -1;
}

static gint32
module_of(Timeline *timeline, const KinetoDetails *details)
{
  return details->has_module ? recording_string(timeline->recording, details->module->str) : -1;
}

/* Foreign figures that a Recording cannot hold are not known. */
static gint64
bounded(gint64 value)
{
  return value > 0 && value < KINETO_MOST ? value : 0;
}

/* The figure if it can be one; else -1. */
static gint64
within(gint64 value, gint64 from, gint64 to)
{
  return value >= from && value <= to ? value : -1;
}

/* ---- work of the device ---- */

/* "AllGather" of "ncclDevKernel_AllGather_RING_LL(...)" as "all_gather"; NULL: none of NCCL's. */
static char *
collective_of_kernel(const char *kernel)
{
  static const char *const prefixes[] = {"ncclDevKernel_", "ncclKernel_", "ncclSymkDevKernel_",
                                         "ncclSymDevKernel_"};
  for (guint i = 0; i < G_N_ELEMENTS(prefixes); i++) {
    if (!g_str_has_prefix(kernel, prefixes[i]))
      continue;
    const char *word = kernel + strlen(prefixes[i]);
    GString *name = g_string_new(NULL);
    for (; g_ascii_isalnum(*word); word++) {
      if (g_ascii_isupper(*word) && name->len > 0)
        g_string_append_c(name, '_');
      g_string_append_c(name, g_ascii_tolower(*word));
    }
    return g_string_free(name, FALSE);
  }
  return g_str_has_prefix(kernel, "nccl") ? g_strdup("collective") : NULL;
}

/* Names that a collective has had in ProcessGroupNCCL and in kernels, and ours. */
static const char *
collective_name(const char *name)
{
  static const char *const names[][2] = {
      {"_allgather_base", "all_gather"},
      {"allgather", "all_gather"},
      {"allgather_coalesced", "all_gather"},
      {"allgather_into_tensor_coalesced", "all_gather"},
      {"_reduce_scatter_base", "reduce_scatter"},
      {"reduce_scatter_tensor_coalesced", "reduce_scatter"},
      {"allreduce", "all_reduce"},
      {"allreduce_coalesced", "all_reduce"},
      {"all_to_all", "alltoall"},
      {"all_to_allv", "alltoall"},
      {"alltoall_base", "alltoall"},
      {"send", "sendrecv"},
      {"recv", "sendrecv"},
      {"send_recv", "sendrecv"},
      {"_broadcast_oop", "broadcast"},
      {"_reduce_oop", "reduce"},
  };
  for (guint i = 0; i < G_N_ELEMENTS(names); i++)
    if (g_str_equal(names[i][0], name))
      return names[i][1];
  return name;
}

static void
know_group(Timeline *timeline, const KinetoEvent *event, const char *name)
{
  GArray *groups = timeline->about->groups;
  for (guint i = 0; i < groups->len; i++)
    if (g_str_equal(g_array_index(groups, KinetoGroup, i).name, name))
      return;
  gboolean known = event->ranks > 0 && event->ranks < 1 << 20;
  KinetoGroup group = {g_strdup(name), known ? (int) event->ranks : 0, (int) event->stride};
  g_array_append_val(groups, group);
}

static void
describe_collective(Timeline *timeline, const KinetoEvent *event, const char *kernel, Span *span)
{
  const KinetoDetails *details = &event->details;
  const char *name = collective_name(event->collective->len > 0 ? event->collective->str : kernel);
  gboolean purpose =
      details->group_purpose->len > 0 && !g_str_equal(details->group_purpose->str, "undefined");
  const char *group = purpose                   ? details->group_purpose->str
                      : details->group->len > 0 ? details->group->str
                                                : "nccl";
  int dtype = kineto_dtype(event->type->str);
  gint64 elements = MAX(event->elements[0], event->elements[1]);
  span->kind = SPAN_COLLECTIVE;
  span->name = recording_string(timeline->recording, name);
  span->communicator = recording_string(timeline->recording, group);
  if (dtype >= 0)
    span->dtype = 1 + recording_string(timeline->recording, dtype_name((DType) dtype));
  if (span->bytes == 0 && dtype >= 0 && elements > 0 && elements < (gint64) 1 << 48)
    span->bytes = elements * dtype_size((DType) dtype);
  know_group(timeline, event, group);
}

static void
keep_work(Timeline *timeline, const KinetoEvent *event)
{
  const KinetoDetails *details = &event->details;
  TimelineWork work = {.correlation = event->correlation,
                       .phase = string_of(timeline, details->phase),
                       .track = track_of(timeline, event)};
  g_autofree char *collective =
      event->kind == KINETO_EVENT_KERNEL ? collective_of_kernel(event->name->str) : NULL;
  work.span = (Span){.start = event->begin,
                     .end = event->begin + event->length,
                     .arrived = within(details->arrived, 0, event->begin),
                     .alone = bounded(details->alone),
                     .kind = event->kind == KINETO_EVENT_KERNEL ? SPAN_KERNEL : SPAN_COPY,
                     .name = recording_string(timeline->recording, event->name->str),
                     .module = module_of(timeline, details),
                     .communicator = -1,
                     .bytes = bounded(event->bytes),
                     .flops = (double) bounded(details->flops)};
  if (collective != NULL || (event->kind == KINETO_EVENT_KERNEL && event->collective->len > 0))
    describe_collective(timeline, event, collective != NULL ? collective : event->name->str,
                        &work.span);
  g_array_index(timeline->tracks, TimelineTrack, work.track).works++;
  g_array_append_val(timeline->works, work);
}

/* ---- calls and waits ---- */

/* Calls that hold the host up until the device has come somewhere, or while it makes memory. */
static gboolean
holds_host(const char *name)
{
  static const char *const names[] = {
      "cudaStreamSynchronize",
      "cudaEventSynchronize",
      "cudaDeviceSynchronize",
      "cudaMalloc",
      "cudaFree",
      "cuMemMap",
      "cuMemUnmap",
      "cuMemCreate",
      "cuStreamSynchronize",
      "cuEventSynchronize",
      "hipStreamSynchronize",
      "hipMalloc",
      "hipEventSynchronize",
      "hipFree",
      "hipDeviceSynchronize",
  };
  for (guint i = 0; i < G_N_ELEMENTS(names); i++)
    if (g_str_equal(names[i], name))
      return TRUE;
  return FALSE;
}

static void
keep_call(Timeline *timeline, const KinetoEvent *event)
{
  const KinetoDetails *details = &event->details;
  SimTime end = event->begin + event->length;
  SimTime done = within(details->done, event->begin, end + KINETO_MOST);
  done = done >= 0 ? done : end;
  if (!holds_host(event->name->str)) {
    TimelineCall call = {.begin = event->begin,
                         .end = end,
                         .done = done,
                         .correlation = event->correlation,
                         .track = track_of(timeline, event)};
    if (event->correlation != 0)
      g_array_append_val(timeline->calls, call);
    return;
  }
  TimelineHeld held = {.drawn_end = end, .phase = string_of(timeline, details->phase)};
  held.span = (Span){.start = event->begin,
                     .end = done,
                     .issued = event->begin,
                     .alone = done - event->begin,
                     .kind = SPAN_HOST_BLOCKED,
                     .name = recording_string(timeline->recording, event->name->str),
                     .module = module_of(timeline, details),
                     .communicator = -1};
  if (done > event->begin)
    g_array_append_val(timeline->held, held);
}

static void
keep_sync(Timeline *timeline, const KinetoEvent *event)
{
  const KinetoDetails *details = &event->details;
  TimelineSync sync = {.begin = event->begin,
                       .end = event->begin + event->length,
                       .correlation = event->correlation,
                       .record = details->record,
                       .stream = details->stream,
                       .source = details->source,
                       .is_stream = g_str_equal(event->name->str, "Stream Wait Event")};
  if (sync.source >= 0 && sync.end > sync.begin)
    g_array_append_val(timeline->syncs, sync);
}

/* ---- ranges and steps ---- */

static void
keep_range(Timeline *timeline, const KinetoEvent *event, RecordedRange kind, const char *name,
           gint32 module)
{
  TimelineRange range = {.order = timeline->ranges->len + 1};
  range.range = (Range){.start = event->begin,
                        .end = event->begin + event->length,
                        .kind = (guint8) kind,
                        .micro_batch = (gint32) CLAMP(event->details.micro_batch, -1, 1 << 20),
                        .name = recording_string(timeline->recording, name),
                        .module = module};
  g_array_append_val(timeline->ranges, range);
}

/* A phase's name of an annotation that PyTorch makes or people like to write; NULL: none. */
static const char *
phase_of_annotation(const KinetoEvent *event)
{
  static const struct {
    const char *prefix, *phase;
  } known[] = {{"Optimizer.step#", "optimizer"}, {"Optimizer.zero_grad#", "zero_grad"}};
  static const char *const phases[] = {"forward", "backward", "optimizer", "zero_grad"};
  const char *name = event->name->str;
  if (event->details.phase->len > 0)
    return event->details.phase->str;
  for (guint i = 0; i < G_N_ELEMENTS(known); i++)
    if (g_str_has_prefix(name, known[i].prefix))
      return known[i].phase;
  name += strspn(name, "# ");
  gsize length = strcspn(name, "# ");
  for (guint i = 0; i < G_N_ELEMENTS(phases); i++)
    if (strlen(phases[i]) == length && g_ascii_strncasecmp(name, phases[i], length) == 0 &&
        strspn(name + length, "# ") == strlen(name + length))
      return phases[i];
  return NULL;
}

/* Module of "FSDP::all_gather (layers.0)", or -1. */
static gint32
module_in_name(Timeline *timeline, const char *name)
{
  const char *open = strstr(name, " (");
  gsize length = open != NULL ? strlen(open) : 0;
  if (length < 4 || open[length - 1] != ')')
    return -1;
  g_autofree char *module = g_strndup(open + 2, length - 3);
  return recording_string(timeline->recording, module);
}

static void
keep_annotation(Timeline *timeline, const KinetoEvent *event)
{
  const char *name = event->name->str, *phase = phase_of_annotation(event);
  gint32 module = module_of(timeline, &event->details);
  if (g_str_has_prefix(name, "ProfilerStep#")) {
    SimTime end = event->begin + event->length;
    TimelineStep step = {event->begin, end,
                         within(event->details.done, event->begin, end + KINETO_MOST),
                         bounded(event->details.retries)};
    g_array_append_val(timeline->steps, step);
  } else if (phase != NULL) {
    keep_range(timeline, event, RECORDED_PHASE, phase, module);
  } else {
    keep_range(timeline, event, RECORDED_HOOK, name,
               module >= 0 ? module : module_in_name(timeline, name));
  }
}

static void
keep_python(Timeline *timeline, const KinetoEvent *event)
{
  static const char prefix[] = "nn.Module: ";
  const char *name = event->name->str;
  if (!g_str_has_prefix(name, prefix))
    return;
  name += sizeof(prefix) - 1;
  gint32 module = module_of(timeline, &event->details);
  keep_range(timeline, event, RECORDED_MODULE, name,
             module >= 0 ? module : recording_string(timeline->recording, name));
}

static void
keep_op(Timeline *timeline, const KinetoEvent *event)
{
  static const char node[] = "autograd::engine::evaluate_function";
  TimelineOp op = {.begin = event->begin,
                   .end = event->begin + event->length,
                   .track = track_of(timeline, event),
                   .is_node = g_str_has_prefix(event->name->str, node)};
  g_array_append_val(timeline->ops, op);
}

/* ---- memory ---- */

static void
keep_memory(Timeline *timeline, const KinetoEvent *event)
{
  enum { CUDA = 1, PRIVATE = 20 }; /* c10::DeviceType; a device of its own */
  const KinetoDetails *details = &event->details;
  int category = category_from_name(details->category->str);
  SimTime at = within(details->at, 0, event->begin);
  TimelineMemory memory = {.time = at >= 0 ? at : event->begin,
                           .bytes = event->bytes,
                           .requested = bounded(details->requested),
                           .address = within(details->address, 0, KINETO_MOST - 1),
                           .allocated = within(details->allocated, 0, KINETO_MOST - 1),
                           .reserved = within(details->reserved, 0, KINETO_MOST - 1),
                           .device = details->device,
                           .stream = details->stream,
                           .step = details->step,
                           .module = module_of(timeline, details),
                           .what = string_of(timeline, details->what),
                           .category = category >= 0 ? (guint8) category : CATEGORY_OTHER,
                           .in_phase = details->phase->len > 0,
                           .failed = g_str_equal(event->name->str, "[OutOfMemory]")};
  if (details->device_type != CUDA && details->device_type != PRIVATE)
    return;
  if (memory.bytes == 0 || memory.bytes >= KINETO_MOST || memory.bytes <= -KINETO_MOST)
    return;
  g_array_append_val(timeline->memory, memory);
}

/* ---- all ---- */

static void
keep_name(Timeline *timeline, const KinetoEvent *event)
{
  if (!g_str_equal(event->name->str, "thread_name") || event->details.track->len == 0)
    return;
  guint at = track_of(timeline, event);
  TimelineTrack *track = &g_array_index(timeline->tracks, TimelineTrack, at);
  g_free(track->name);
  track->name = g_strdup(event->details.track->str);
}

static void
keep_interval(Timeline *timeline, const KinetoEvent *event)
{
  switch (event->kind) {
  case KINETO_EVENT_KERNEL:
  case KINETO_EVENT_COPY:
  case KINETO_EVENT_FILL:
    keep_work(timeline, event);
    break;
  case KINETO_EVENT_LAUNCH:
    keep_call(timeline, event);
    break;
  case KINETO_EVENT_SYNC:
    keep_sync(timeline, event);
    break;
  case KINETO_EVENT_ANNOTATION:
    keep_annotation(timeline, event);
    break;
  case KINETO_EVENT_PYTHON:
    keep_python(timeline, event);
    break;
  case KINETO_EVENT_OP:
    keep_op(timeline, event);
    break;
  case KINETO_EVENT_OTHER:
    return;
  }
  timeline->last = MAX(timeline->last, event->begin + event->length);
  timeline->first = MIN(timeline->first, event->begin);
}

/* Where a time could be one at all. */
static gboolean
is_within_reason(const KinetoEvent *event)
{
  const SimTime most = (SimTime) 1 << 61;
  return event->timed && event->begin > -most && event->begin < most && event->length >= 0 &&
         event->length < KINETO_MOST;
}

static gboolean
keep_event(gpointer user, const KinetoEvent *event, JsonPull *pull)
{
  Timeline *timeline = user;
  if (event->phase == 'M') {
    keep_name(timeline, event);
    return TRUE;
  }
  if (!is_within_reason(event))
    return TRUE;
  if (event->complete) {
    keep_interval(timeline, event);
  } else if (event->phase == 'i' && (g_str_equal(event->name->str, "[memory]") ||
                                     g_str_equal(event->name->str, "[OutOfMemory]"))) {
    keep_memory(timeline, event);
    timeline->first = MIN(timeline->first, event->begin);
    timeline->last = MAX(timeline->last, event->begin);
  }
  guint most = MAX(timeline->memory->len, MAX(timeline->works->len, timeline->ranges->len));
  if (most > KINETO_MAX_EVENTS)
    return json_pull_fail(pull, "more than %d kernels, ranges or memory events", KINETO_MAX_EVENTS);
  return TRUE;
}

/* Times count from the first event, unless the trace says that they count from its own begin. */
static void
shift(Timeline *timeline, SimTime by)
{
  for (guint i = 0; i < timeline->works->len; i++) {
    Span *span = &g_array_index(timeline->works, TimelineWork, i).span;
    span->start -= by, span->end -= by;
    span->arrived = span->arrived >= 0 ? MAX(span->arrived - by, 0) : 0;
  }
  for (guint i = 0; i < timeline->calls->len; i++) {
    TimelineCall *call = &g_array_index(timeline->calls, TimelineCall, i);
    call->begin -= by, call->end -= by, call->done -= by;
  }
  for (guint i = 0; i < timeline->held->len; i++) {
    TimelineHeld *held = &g_array_index(timeline->held, TimelineHeld, i);
    held->span.start -= by, held->span.end -= by, held->span.issued -= by, held->drawn_end -= by;
  }
  for (guint i = 0; i < timeline->syncs->len; i++) {
    TimelineSync *sync = &g_array_index(timeline->syncs, TimelineSync, i);
    sync->begin -= by, sync->end -= by;
  }
  for (guint i = 0; i < timeline->ranges->len; i++) {
    Range *range = &g_array_index(timeline->ranges, TimelineRange, i).range;
    range->start -= by, range->end -= by;
  }
  for (guint i = 0; i < timeline->steps->len; i++) {
    TimelineStep *step = &g_array_index(timeline->steps, TimelineStep, i);
    step->begin -= by, step->end -= by;
    step->done = step->done >= 0 ? step->done - by : -1;
  }
  for (guint i = 0; i < timeline->memory->len; i++)
    g_array_index(timeline->memory, TimelineMemory, i).time -= by;
  for (guint i = 0; i < timeline->ops->len; i++) {
    TimelineOp *op = &g_array_index(timeline->ops, TimelineOp, i);
    op->begin -= by, op->end -= by;
  }
}

gboolean
timeline_read(Timeline *timeline, ByteSource *source, GError **error)
{
  KinetoDocument document = {.machine = &timeline->about->machine,
                             .notes = timeline->about->notes,
                             .keep = keep_event,
                             .user = timeline};
  if (!kineto_document_read(&document, source, error))
    return FALSE;
  g_strlcpy(timeline->title, document.title, sizeof(timeline->title));
  if (timeline->first > timeline->last)
    return TRUE;
  if (timeline->last - timeline->first >= KINETO_MOST) {
    g_set_error(error, HIGHWATER_ERROR, HIGHWATER_ERROR_INPUT,
                "%s: events are more than a hundred days apart", source->name);
    return FALSE;
  }
  gboolean from_its_begin =
      document.base_ns == 0 && timeline->first >= 0 && timeline->last < KINETO_MOST;
  shift(timeline, from_its_begin ? 0 : timeline->first);
  return TRUE;
}
