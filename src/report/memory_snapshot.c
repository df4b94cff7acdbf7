/* memory_snapshot.c - the document: history, segments, settings, annotations. */
#include "report/memory_snapshot.h"

#include "report/memory_snapshot_parts.h"

/* ---- history ---- */

static const char *const segment_actions[] = {
    [SEGMENT_ALLOC] = "segment_alloc",
    [SEGMENT_FREE] = "segment_free",
    [SEGMENT_MAP] = "segment_map",
    [SEGMENT_UNMAP] = "segment_unmap",
};

/* An entry without its frames and category. */
typedef struct {
  const char *action;
  const char *place; /* key of address: "addr", or "device_free" */
  guint64 address;
  gint64 bytes;
  guint8 stream;
  SimTime time;
} Entry;

static void
begin_entry(Snapshot *s, const Entry *entry)
{
  PickleWriter *out = &s->out;
  pickle_next_item(out, s->entries++);
  pickle_begin_dict(out);
  snapshot_text(s, "action");
  snapshot_text(s, entry->action);
  snapshot_text(s, entry->place);
  pickle_write_int(out, (gint64) entry->address);
  snapshot_text(s, "size");
  pickle_write_int(out, entry->bytes);
  snapshot_text(s, "stream");
  pickle_write_int(out, entry->stream);
  snapshot_text(s, "time_us");
  pickle_write_int(out, entry->time / 1000);
  snapshot_text(s, "compile_context");
  snapshot_text(s, "N/A");
  snapshot_text(s, "user_metadata");
  snapshot_text(s, "");
  snapshot_text(s, "frames");
}

static void
add_category(Snapshot *s, const char *name)
{
  snapshot_text(s, "category");
  snapshot_text(s, name);
}

static void
add_allocation(Snapshot *s, const MemoryEvent *event)
{
  const Entry entry = {"alloc",       "addr",     event->address, event->requested_bytes,
                       event->stream, event->time};
  begin_entry(s, &entry);
  s->birth_frames[event->allocation] = snapshot_frames(s, event, snapshot_place(s, event->time));
  add_category(s, category_name((Category) event->category));
  pickle_end_dict(&s->out);
}

/* Where the host was, not whose memory it is. */
static void
add_free(Snapshot *s, const MemoryEvent *event, const char *action, SimTime time)
{
  const Entry entry = {action,        "addr", event->address, ABS(event->requested_bytes),
                       event->stream, time};
  begin_entry(s, &entry);
  snapshot_frames(s, NULL, snapshot_place(s, time));
  pickle_end_dict(&s->out);
}

static void
add_segment(Snapshot *s, guint number)
{
  const SegmentEvent *event = &g_array_index(s->recording->segments, SegmentEvent, number);
  const Entry entry = {segment_actions[event->action],
                       "addr",
                       event->address,
                       event->bytes,
                       event->stream,
                       event->time};
  begin_entry(s, &entry);
  s->segment_frames[number] = snapshot_frames(s, NULL, snapshot_place(s, event->time));
  add_category(s, SNAPSHOT_NO_CATEGORY);
  pickle_end_dict(&s->out);
}

static void
add_completion(Snapshot *s, const CompletionEvent *event)
{
  add_free(s, snapshot_birth(s, event->allocation), "free_completed", event->time);
}

/* What happened between memory events: segments, and frees that had waited. */
static void
add_between(Snapshot *s, guint *segment, guint *completion)
{
  const GArray *segments = s->recording->segments, *completions = s->recording->completions;
  for (;;) {
    const CompletionEvent *done = *completion < completions->len
                                      ? &g_array_index(completions, CompletionEvent, *completion)
                                      : NULL;
    const SegmentEvent *event =
        *segment < segments->len ? &g_array_index(segments, SegmentEvent, *segment) : NULL;
    if (done && done->time >= 0 && (guint) done->memory_events <= s->done &&
        (guint) done->segment_events <= *segment) {
      add_completion(s, done);
      ++*completion;
    } else if (event && (guint) event->memory_events <= s->done) {
      add_segment(s, (*segment)++);
    } else {
      return;
    }
  }
}

static void
add_out_of_memory(Snapshot *s)
{
  const OutOfMemoryRecord *record = &s->recording->out_of_memory;
  if (!record->happened)
    return;
  SimTime time = snapshot_end(s);
  const Entry entry = {"oom",
                       "device_free",
                       (guint64) MAX(record->limit_bytes - record->reserved_bytes, 0),
                       record->requested_bytes,
                       record->stream,
                       time};
  const MemoryEvent asked = {.module = record->module, .what = record->what};
  begin_entry(s, &entry);
  snapshot_frames(s, &asked, snapshot_place(s, time));
  add_category(s, category_name((Category) record->category));
  pickle_end_dict(&s->out);
}

static void
add_history(Snapshot *s)
{
  const GArray *memory = s->recording->memory;
  guint segment = 0, completion = 0;
  pickle_begin_list(&s->out);
  for (s->done = 0; s->done < memory->len; s->done++) {
    const MemoryEvent *event = &g_array_index(memory, MemoryEvent, s->done);
    add_between(s, &segment, &completion);
    if (event->requested_bytes > 0) {
      add_allocation(s, event);
      continue;
    }
    add_free(s, event, "free_requested", event->time);
    if (!snapshot_waits(s, event->allocation))
      add_free(s, event, "free_completed", event->time);
  }
  add_between(s, &segment, &completion);
  add_out_of_memory(s);
  pickle_end_list(&s->out);
}

/* ---- settings: what PyTorch lists of PYTORCH_ALLOC_CONF ---- */

static void
add_int(Snapshot *s, const char *key, gint64 number)
{
  snapshot_text(s, key);
  pickle_write_int(&s->out, number);
}

/* -1: none. */
static void
add_limit(Snapshot *s, const char *key, gint64 bytes)
{
  add_int(s, key, bytes == G_MAXINT64 ? -1 : bytes);
}

static void
add_bool(Snapshot *s, const char *key, gboolean truth)
{
  snapshot_text(s, key);
  pickle_write_bool(&s->out, truth);
}

static void
add_divisions(Snapshot *s, const AllocatorConfig *config)
{
  snapshot_text(s, "roundup_power2_divisions");
  pickle_begin_dict(&s->out);
  for (int i = 0; i < ALLOCATOR_SIZE_CLASSES; i++) {
    char mebibytes[16];
    g_snprintf(mebibytes, sizeof mebibytes, "%d", 1 << i);
    pickle_write_string(&s->out, mebibytes);
    pickle_write_int(&s->out, config->roundup_power2_divisions < 0
                                  ? config->roundup_power2_by_size[i]
                                  : config->roundup_power2_divisions);
  }
  pickle_end_dict(&s->out);
}

static void
add_settings(Snapshot *s, const AllocatorConfig *config)
{
  PickleWriter *out = &s->out;
  pickle_begin_dict(out);
  snapshot_text(s, "PYTORCH_CUDA_ALLOC_CONF");
  snapshot_text(s, config->expandable_segments ? "expandable_segments:True" : "");
  add_limit(s, "max_split_size", config->max_split_size);
  snapshot_text(s, "garbage_collection_threshold");
  pickle_write_double(out, config->garbage_collection_threshold);
  add_bool(s, "expandable_segments", config->expandable_segments);
  add_int(s, "pinned_num_register_threads", 1);
  add_bool(s, "release_lock_on_cudamalloc", FALSE);
  add_bool(s, "pinned_use_cuda_host_register", FALSE);
  add_bool(s, "graph_capture_record_stream_reuse", FALSE);
  add_divisions(s, config);
  add_int(s, SNAPSHOT_DEVICE_BYTES, config->device_total_bytes);
  add_limit(s, SNAPSHOT_MEMORY_LIMIT, config->memory_limit);
  add_limit(s, SNAPSHOT_PROCESS_LIMIT, config->process_limit);
  pickle_end_dict(out);
}

/* ---- annotations: phases, and steps as the profiler names them ---- */

typedef struct {
  SimTime time;
  const char *name; /* NULL: of the step */
  int step;
  gboolean ends;
  guint order;
} Annotation;

/* In order of time; of equal times as they came. */
static gint
compare_annotations(gconstpointer a, gconstpointer b)
{
  const Annotation *x = a, *y = b;
  if (x->time != y->time)
    return x->time < y->time ? -1 : 1;
  return (x->order > y->order) - (x->order < y->order);
}

static void
annotate(GArray *annotations, const char *name, int step, SimTime start, SimTime end)
{
  Annotation begins = {start, name, step, FALSE, annotations->len};
  Annotation ends = {end, name, step, TRUE, annotations->len + 1};
  g_array_append_val(annotations, begins);
  g_array_append_val(annotations, ends);
}

static GArray *
list_annotations(const Recording *recording)
{
  GArray *annotations = g_array_new(FALSE, FALSE, sizeof(Annotation));
  for (guint i = 0; i < recording->steps->len; i++) {
    const StepRecord *step = &g_array_index(recording->steps, StepRecord, i);
    annotate(annotations, NULL, step->index, step->start, step->end);
  }
  for (guint i = 0; i < recording->ranges->len; i++) {
    const Range *range = &g_array_index(recording->ranges, Range, i);
    if (range->kind == RECORDED_PHASE && range->name >= 0)
      annotate(annotations, recording_text(recording, range->name), 0, range->start, range->end);
  }
  g_array_sort(annotations, compare_annotations);
  return annotations;
}

static void
add_annotations(Snapshot *s)
{
  g_autoptr(GArray) annotations = list_annotations(s->recording);
  pickle_begin_list(&s->out);
  for (guint i = 0; i < annotations->len; i++) {
    const Annotation *annotation = &g_array_index(annotations, Annotation, i);
    g_autofree char *step = g_strdup_printf(SNAPSHOT_ANNOTATED_STEP, annotation->step);
    pickle_next_item(&s->out, i);
    pickle_begin_dict(&s->out);
    snapshot_text(s, "stage");
    snapshot_text(s, annotation->ends ? "END" : "START");
    snapshot_text(s, "name");
    pickle_write_string(&s->out, annotation->name ? annotation->name : step);
    add_int(s, "device", 0);
    add_int(s, "time_us", annotation->time / 1000);
    pickle_end_dict(&s->out);
  }
  pickle_end_list(&s->out);
}

GByteArray *
memory_snapshot(const Recording *recording, const AllocatorConfig *config)
{
  Snapshot s;
  snapshot_begin(&s, recording);
  pickle_begin_dict(&s.out);
  /* The history first: what it says of segments and blocks is repeated by them. */
  snapshot_text(&s, "device_traces");
  pickle_begin_list(&s.out);
  add_history(&s);
  pickle_end_list(&s.out);
  snapshot_text(&s, "segments");
  snapshot_add_segments(&s);
  snapshot_text(&s, "allocator_settings");
  add_settings(&s, config);
  snapshot_text(&s, "external_annotations");
  add_annotations(&s);
  pickle_end_dict(&s.out);
  return snapshot_end_document(&s);
}
