/* memory_snapshot_frames.c - what a snapshot says of each entry: where the host was and what for.
 */
#include "report/memory_snapshot_parts.h"

/* No tensor's. */
#define NOTHING (-2)

/* What a list of frames is made of. */
typedef struct {
  gint32 what, module; /* string ids, or NOTHING */
  SnapshotPlace place;
} FrameKey;

static guint
frame_key_hash(gconstpointer key)
{
  const FrameKey *k = key;
  guint hash = (guint) k->what * 31u + (guint) k->module;
  return (hash * 31u + (guint) k->place.phase) * 31u + (guint) k->place.step;
}

static gboolean
frame_key_equal(gconstpointer a, gconstpointer b)
{
  const FrameKey *x = a, *y = b;
  return x->what == y->what && x->module == y->module && x->place.phase == y->place.phase &&
         x->place.step == y->place.step;
}

static void
list_phases(Snapshot *s)
{
  const GArray *ranges = s->recording->ranges;
  s->phases = g_array_new(FALSE, FALSE, sizeof(gint32));
  for (gint32 i = 0; i < (gint32) ranges->len; i++)
    if (g_array_index(ranges, Range, i).kind == RECORDED_PHASE)
      g_array_append_val(s->phases, i);
}

void
snapshot_begin(Snapshot *s, const Recording *recording)
{
  *s = (Snapshot){.out = pickle_writer_begin(), .recording = recording};
  s->texts = g_hash_table_new(NULL, NULL);
  s->frames = g_hash_table_new_full(frame_key_hash, frame_key_equal, g_free, NULL);
  list_phases(s);
  s->births = g_new0(guint, recording->memory->len + 1);
  s->waits = g_new0(guint8, recording->memory->len + 1);
  s->birth_frames = g_new0(guint32, recording->memory->len + 1);
  s->segment_frames = g_new0(guint32, recording->segments->len + 1);
  for (guint i = 0; i < recording->memory->len; i++) {
    const MemoryEvent *event = &g_array_index(recording->memory, MemoryEvent, i);
    if (event->requested_bytes > 0)
      s->births[event->allocation] = i;
  }
  for (guint i = 0; i < recording->completions->len; i++)
    s->waits[g_array_index(recording->completions, CompletionEvent, i).allocation] = TRUE;
}

GByteArray *
snapshot_end_document(Snapshot *s)
{
  g_hash_table_unref(s->texts);
  g_hash_table_unref(s->frames);
  g_array_unref(s->phases);
  g_free(s->births);
  g_free(s->waits);
  g_free(s->birth_frames);
  g_free(s->segment_frames);
  return pickle_writer_end(&s->out);
}

void
snapshot_text(Snapshot *s, const char *text)
{
  gpointer kept = g_hash_table_lookup(s->texts, text);
  if (kept) {
    pickle_repeat(&s->out, GPOINTER_TO_UINT(kept) - 1);
    return;
  }
  pickle_write_string(&s->out, text);
  g_hash_table_insert(s->texts, GSIZE_TO_POINTER(GPOINTER_TO_SIZE(text)),
                      GUINT_TO_POINTER(pickle_keep(&s->out) + 1));
}

/* The step that the host is in. */
static gint32
current_step(const Snapshot *s)
{
  const GArray *memory = s->recording->memory;
  if (s->done < memory->len)
    return g_array_index(memory, MemoryEvent, s->done).step;
  if (s->recording->out_of_memory.happened)
    return s->recording->out_of_memory.step;
  return memory->len > 0 ? g_array_index(memory, MemoryEvent, memory->len - 1).step : 0;
}

/* One phase may end, or begin and end, and the next begin in the moment of an event: it begins when
 * as much is allocated as it says. */
static gboolean
has_begun(const Snapshot *s, const Range *phase, SimTime time)
{
  gint64 allocated =
      s->done == 0 ? 0
                   : g_array_index(s->recording->memory, MemoryEvent, s->done - 1).allocated_after;
  return phase->start < time || (phase->start == time && phase->start_allocated == allocated);
}

static const Range *
phase_at(const Snapshot *s, guint i)
{
  return &g_array_index(s->recording->ranges, Range, g_array_index(s->phases, gint32, i));
}

SnapshotPlace
snapshot_place(Snapshot *s, SimTime time)
{
  SnapshotPlace place = {-1, current_step(s)};
  while (s->begun < s->phases->len && has_begun(s, phase_at(s, s->begun), time))
    s->begun++;
  if (s->begun > 0 && phase_at(s, s->begun - 1)->end >= time)
    place.phase = g_array_index(s->phases, gint32, s->begun - 1);
  return place;
}

static const char *
text_of(const Snapshot *s, gint32 id)
{
  return id < 0 ? SNAPSHOT_NOTHING : recording_text(s->recording, id);
}

/* {"name": name, "filename": file, "line": line}; a file of NULL is left to the caller. */
static void
write_frame(Snapshot *s, const char *name, const char *file, int line)
{
  pickle_begin_dict(&s->out);
  snapshot_text(s, "name");
  snapshot_text(s, name);
  snapshot_text(s, "line");
  pickle_write_int(&s->out, line);
  snapshot_text(s, "filename");
  if (file) {
    snapshot_text(s, file);
    pickle_end_dict(&s->out);
  }
}

static void
write_place(Snapshot *s, SnapshotPlace place)
{
  static const Range nowhere = {.name = -1, .micro_batch = -1};
  const Range *range =
      place.phase < 0 ? &nowhere : &g_array_index(s->recording->ranges, Range, place.phase);
  gboolean beyond = place.phase >= 0 && recording_is_beyond(s->recording, place.phase);
  g_autofree char *file = beyond           ? g_strdup_printf(SNAPSHOT_AFTER_STEP, place.step)
                          : place.step > 0 ? g_strdup_printf(SNAPSHOT_STEP, place.step)
                                           : g_strdup(SNAPSHOT_CONSTRUCTION);
  write_frame(s, text_of(s, range->name), NULL, range->micro_batch + 1);
  pickle_write_string(&s->out, file);
  pickle_end_dict(&s->out);
}

/* The frames behind those of the tensor, which are the same for many. */
static void
write_host_frames(Snapshot *s, SnapshotPlace place)
{
  write_place(s, place);
  write_frame(s, SNAPSHOT_FRAME_NAME, SNAPSHOT_FRAME_FILE, 0);
}

guint32
snapshot_frames(Snapshot *s, const MemoryEvent *event, SnapshotPlace place)
{
  FrameKey key = {event ? event->what : NOTHING, event ? event->module : NOTHING, place};
  gpointer kept = g_hash_table_lookup(s->frames, &key);
  if (kept) {
    pickle_repeat(&s->out, GPOINTER_TO_UINT(kept) - 1);
    return GPOINTER_TO_UINT(kept) - 1;
  }
  pickle_begin_list(&s->out);
  if (event)
    write_frame(s, text_of(s, event->what), text_of(s, event->module), 0);
  write_host_frames(s, place);
  pickle_end_list(&s->out);
  guint32 number = pickle_keep(&s->out);
  g_hash_table_insert(s->frames, g_memdup2(&key, sizeof key), GUINT_TO_POINTER(number + 1));
  return number;
}

SimTime
snapshot_end(const Snapshot *s)
{
  const GArray *memory = s->recording->memory, *segments = s->recording->segments;
  SimTime end = 0;
  if (memory->len > 0)
    end = g_array_index(memory, MemoryEvent, memory->len - 1).time;
  if (segments->len > 0)
    end = MAX(end, g_array_index(segments, SegmentEvent, segments->len - 1).time);
  return end;
}
